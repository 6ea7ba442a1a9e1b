"""The contract: what goes in, what comes out."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from bagwise import Bags, MultiViewBags
from bagwise.base import MIMLClassifier, Traits, best_rows, is_list_of_bags
from bagwise.checks import sample_bags
from bagwise.errors import DataError
from bagwise.models import MIMLDummy, SingleInstanceLogisticRegression


class Column(MIMLClassifier):
    """Score of label l: largest value of feature l in the bag."""

    traits = Traits(instances="singleton")

    def _fit(self, bags, Y):
        self.n_labels_ = Y.shape[1]

    def _scores(self, bags):
        return np.array([np.asarray(bag)[:, : self.n_labels_].max(axis=0) for bag in bags])


@pytest.fixture
def bags():
    return Bags.from_list([[[1.0, -2.0], [0.5, 3.0]], [[-1.0, -1.0]], [[2.0, 0.0], [2.0, -1.0], [0.0, 0.5]]])


Y3 = np.array([[1, 1], [0, 0], [1, 1]])


def test_two_private_methods_are_enough(bags):
    model = Column().fit(bags, Y3)
    assert model.decision_function(bags).tolist() == [[1, 3], [-1, -1], [2, 0.5]]
    assert model.predict(bags).tolist() == [[1, 1], [0, 0], [1, 1]]
    assert model.instance_scores(bags).tolist() == bags.X.tolist()
    assert model.key_instances(bags)[:, :, 0].tolist() == [[0, 1], [2, 2], [3, 5]]
    assert model.key_instances(bags, k=2)[1].tolist() == [[2, -1], [2, -1]]
    assert model.annotate(bags).tolist() == [0, 1, 0, 0, 0, 1]
    assert model.annotate(bags, [[0, 1], [0, 0], [1, 0]]).tolist() == [1, 1, -1, 0, 0, 0]
    assert not hasattr(model, "predict_proba")
    with pytest.raises(TypeError, match="no probabilities"):
        model.annotate(bags, return_proba=True)


def test_labels_by_name_and_as_frame(bags):
    model = MIMLDummy().fit(bags, [["owl", "wren"], [], ["owl"]])
    assert model.label_names_ == ("owl", "wren")
    assert model.annotate(bags, [["wren"], [], ["owl"]]).tolist() == [1, 1, -1, 0, 0, 0]
    with pytest.raises(DataError, match="'eagle'"):
        model.annotate(bags, [["eagle"], [], []])
    frame = pd.DataFrame(Y3, columns=["owl", "wren"])
    assert model.fit(bags, frame).label_names_ == ("owl", "wren")
    assert not hasattr(model.fit(bags, Y3), "label_names_")
    assert model.fit(bags, sparse.csr_array(Y3)).predict(bags).shape == (3, 2)


@pytest.mark.parametrize("dtype", [np.int8, np.int64, bool, np.float64])
def test_predictions_have_the_type_of_the_labels(bags, dtype):
    assert MIMLDummy().fit(bags, Y3.astype(dtype)).predict(bags).dtype == dtype


def test_one_class_per_bag(bags):
    binary = MIMLDummy().fit(bags, ["no", "yes", "yes"])
    assert binary.classes_.tolist() == ["no", "yes"]
    assert binary.predict(bags).tolist() == ["yes"] * 3
    assert binary.decision_function(bags).shape == (3,)
    np.testing.assert_allclose(binary.predict_proba(bags), [[1 / 3, 2 / 3]] * 3)
    assert binary.annotate(bags, ["no", "yes", "no"]).tolist() == [-1, -1, 0, -1, -1, -1]
    several = MIMLDummy().fit(bags, ["a", "b", "c"])
    assert several.decision_function(bags).shape == (3, 3)
    np.testing.assert_allclose(several.predict_proba(bags).sum(axis=1), 1.0)
    with pytest.raises(DataError, match="one class only, 'a'"):
        MIMLDummy().fit(bags, ["a", "a", "a"])


@pytest.mark.parametrize(
    ("X", "Y", "error", "words"),
    [
        ("bags", None, DataError, "y is None"),
        ("bags", Y3[:2], DataError, "3 bags, 2 rows"),
        ("bags", [[0, 2], [0, 0], [1, 1]], DataError, "bag 0 has the value 2"),
        ("bags", [[0, np.nan], [0, 0], [1, 1]], DataError, "NaN"),
        ("empty", Y3, DataError, "empty: 'e1'"),
        ("views", Y3, TypeError, "pick one"),
        ("nothing", np.zeros((0, 2)), DataError, "0 sample"),
    ],
)
def test_errors(bags, X, Y, error, words):
    cases = {
        "bags": bags,
        "empty": Bags(bags.X, [0, 2, 2, 6], bag_ids=["e0", "e1", "e2"]),
        "views": MultiViewBags({"a": bags}),
        "nothing": bags[:0],
    }
    with pytest.raises(error, match=words):
        Column().fit(cases[X], Y)


def test_feature_names_must_agree():
    named = Bags(np.ones((2, 2)), [0, 1, 2], feature_names=["a", "b"])
    model = MIMLDummy().fit(named, [[1], [0]])
    assert model.feature_names_in_.tolist() == ["a", "b"]
    with pytest.raises(DataError, match="other names"):
        model.predict(Bags(np.ones((2, 2)), [0, 1, 2], feature_names=["b", "a"]))


def test_a_table_is_bags_of_one_instance():
    X, Y = np.arange(6.0).reshape(3, 2), np.eye(3, dtype=int)[:, :2]
    assert MIMLDummy().fit(X, Y).predict(X).shape == (3, 2)
    assert is_list_of_bags([np.ones((1, 2))]) and not is_list_of_bags(X) and not is_list_of_bags(X.tolist())
    assert is_list_of_bags([[], np.ones((1, 2))])


def test_best_rows_against_sorting_each_bag():
    rng = np.random.default_rng(0)
    sizes = rng.integers(0, 5, 20)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    F = rng.integers(0, 3, (offsets[-1], 4)).astype(float)
    for k in (1, 3):
        result = best_rows(F, offsets, k)
        for b in range(20):
            for label in range(4):
                rows = sorted(
                    range(offsets[b], offsets[b + 1]), key=lambda r, label=label: (-F[r, label], r)
                )[:k]
                assert result[b, label].tolist() == rows + [-1] * (k - len(rows))


def test_dummy_is_the_best_constant_set():
    """No other constant label set has a lower Hamming loss on the training bags."""
    bags, _ = sample_bags()
    rng = np.random.default_rng(0)
    Y = (rng.random((40, 5)) < [0.1, 0.5, 0.9, 0.4, 0.6]).astype(int)
    Y[:, 1] = np.arange(40) % 2  # exactly half: not predicted
    predicted = MIMLDummy().fit(bags, Y).predict(bags)
    assert predicted[0, 1] == 0
    losses = [np.not_equal(Y, [(s >> k) & 1 for k in range(5)]).mean() for s in range(32)]
    assert (predicted != Y).mean() == pytest.approx(min(losses))


def test_upper_bound_solves_its_equations():
    """At the optimum of the penalised likelihood the gradient vanishes, on standardised features."""
    bags, Y = sample_bags()
    model = SingleInstanceLogisticRegression(alpha=2.0, tol=1e-10, max_iter=2000).fit(bags, Y)
    mean, scale = bags.X.mean(axis=0), bags.X.std(axis=0)
    Z = (bags.X - mean) / scale
    W = model.coef_ * scale
    logits = bags.X @ model.coef_.T + model.intercept_
    P = np.exp(logits - logits.max(axis=1, keepdims=True))
    P /= P.sum(axis=1, keepdims=True)
    residual = np.eye(3)[bags.instance_info["label"]] - P
    np.testing.assert_allclose(residual.T @ Z, 2.0 * W, atol=1e-4)
    np.testing.assert_allclose(residual.sum(axis=0), 0.0, atol=1e-4)
    # predictions are the union of the instances' labels
    union = np.zeros_like(Y)
    union[bags.index, logits.argmax(axis=1)] = 1
    np.testing.assert_array_equal(model.predict(bags), union)
    np.testing.assert_allclose(
        model.predict_proba(bags), [P[a:b].max(axis=0) for a, b in zip(bags.offsets[:-1], bags.offsets[1:])]
    )


def test_upper_bound_asks_for_instance_labels(bags):
    with pytest.raises(DataError, match="labelled_bags"):
        SingleInstanceLogisticRegression().fit(bags, Y3)


def test_import_is_light():
    code = (
        "import sys, bagwise; heavy = ('numba', 'matplotlib', 'torch', 'sklearn', 'pyarrow', 'pandas'); "
        "print([name for name in heavy if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
