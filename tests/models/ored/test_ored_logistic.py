"""ORedLogisticRegression as an estimator: features, sparse data, kernels, refusals."""

import numpy as np
import pytest
from ored_problems import random_problem
from scipy import sparse

from bagwise import Bags, load_dataset
from bagwise.models import ORedLogisticRegression


def test_units_of_the_features_do_not_matter():
    bags, Y = random_problem(seed=5, n_bags=25)
    moved = bags.with_X(bags.X * [1e3, 1e-3, 7.0, 1.0] + [5.0, 0.0, -100.0, 3.0])
    first = ORedLogisticRegression(tol=1e-8).fit(bags, Y)
    second = ORedLogisticRegression(tol=1e-8).fit(moved, Y)
    np.testing.assert_allclose(second.predict_proba(moved), first.predict_proba(bags), atol=1e-5)


def test_text_is_divided_by_one_number_and_not_centred():
    rng = np.random.default_rng(7)
    words = rng.poisson(0.06, size=(90, 40)) * rng.uniform(0.5, 2.0, size=40)  # mostly zeros
    bags = Bags(words, np.arange(0, 91, 3))
    Y = np.zeros((30, 3), dtype=int)
    Y[bags.index, rng.integers(0, 3, 90)] = 1
    scaled = ORedLogisticRegression(tol=1e-9).fit(bags.with_X(sparse.csr_array(words)), Y)
    spread = np.sqrt(np.square(words[words != 0]).mean())
    by_hand = ORedLogisticRegression(tol=1e-9, standardize=False).fit(bags.with_X(words / spread), Y)
    np.testing.assert_allclose(scaled.coef_ * spread, by_hand.coef_, atol=1e-5)


def test_sparse_equals_dense():
    bags, Y = random_problem(seed=7, n_bags=30)
    as_csr = bags.with_X(sparse.csr_array(bags.X))
    scaled = ORedLogisticRegression(tol=1e-9).fit(as_csr, Y)
    assert scaled.coef_.shape == (3, 4)
    np.testing.assert_allclose(scaled.coef_, ORedLogisticRegression(tol=1e-9).fit(bags, Y).coef_, atol=1e-8)


def test_a_constant_feature_has_no_weight():
    """The spread of a constant .1 is rounding noise; dividing by it gave weights of 1e11."""
    Y = np.eye(3, dtype=int)[np.arange(150) % 3]

    def bags(value):
        rng = np.random.default_rng(0)
        return [
            np.column_stack([rng.normal(size=(4, 3)) + [b % 3, 0, 0], np.full(4, value)]) for b in range(150)
        ]

    first = ORedLogisticRegression().fit(bags(0.1), Y)
    assert np.abs(first.coef_).max() < 10 and (first.coef_[:, 3] == 0).all()
    moved = ORedLogisticRegression().fit(bags(0.1 + 1e-9), Y)
    np.testing.assert_allclose(
        moved.predict_proba(bags(0.1 + 1e-9)), first.predict_proba(bags(0.1)), atol=1e-9
    )
    np.testing.assert_allclose(
        first.predict_proba(bags(0.1 + 1e-9)), first.predict_proba(bags(0.1)), atol=1e-9
    )


def test_kernel_version_separates_what_lines_cannot():
    rng = np.random.default_rng(14)
    X = rng.normal(size=(600, 2))
    z = (np.hypot(*X.T) > 1.2).astype(int)  # a disc and its outside
    bags = Bags(X, np.arange(0, 601, 3), instance_info={"label": z})
    Y = np.zeros((200, 2), dtype=int)
    Y[bags.index, z] = 1
    linear = ORedLogisticRegression().fit(bags, Y)
    rbf = ORedLogisticRegression(0.1, kernel="rbf", dictionary_size=100, width_scale=0.3, random_state=0).fit(
        bags, Y
    )
    assert (linear.annotate(bags) == z).mean() < 0.75
    assert (rbf.annotate(bags) == z).mean() > 0.93
    assert rbf.coef_.shape == (2, 100) and rbf.dictionary_.rows_.shape == (100, 2)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    squared = np.square(scaled[:, None] - rbf.dictionary_.rows_[None]).sum(axis=2)
    pairs = np.square(scaled[:, None] - scaled[None]).sum(axis=2)
    width = 0.3 * pairs.sum() / (600 * 599)
    assert rbf.dictionary_.width_ == pytest.approx(width)
    logits = np.exp(-squared / width) @ rbf.coef_.T + rbf.intercept_
    np.testing.assert_array_equal(rbf.annotate(bags), logits.argmax(axis=1))


@pytest.mark.parametrize(
    "wrong",
    [
        {"solver": "sgd"},
        {"alpha": -1},
        {"prune": 1.0},
        {"subset": 0.5},
        {"kernel": "poly"},
        {"unusable_bags": "keep"},
        {"bag_probability": "mean"},
        {"inference": "magic"},
        {"decision": "vote"},
        {"alpha": np.nan},
        {"tol": np.nan},
        {"max_iter": -3},
        {"max_labels": 60},
        {"dictionary_size": 1.5},
        {"width_scale": 0.0},
    ],
)
def test_wrong_parameters_are_named(wrong):
    bags, Y = random_problem()
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ORedLogisticRegression(**wrong).fit(bags, Y)


def test_reads_digits_from_bag_labels_alone():
    data = load_dataset("digits", n_bags=600)
    train, test = data["train"], data["test"]
    model = ORedLogisticRegression().fit(train.bags, train.Y)
    assert (model.annotate(test.bags) == test.instance_Y).mean() > 0.85
    assert (model.annotate(train.bags, train.Y) == train.instance_Y).mean() > 0.95
