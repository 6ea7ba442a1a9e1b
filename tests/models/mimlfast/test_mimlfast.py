"""MIMLFast, the estimator."""

import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

from bagwise import Bags
from bagwise.compute.calibration import best_offset
from bagwise.datasets import make_miml, make_msra_like, make_sub_concepts
from bagwise.metrics import hamming_loss, ranking_loss
from bagwise.models import MIMLFast

SMALL = {"n_components": 12, "n_sub_concepts": 2, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    return make_miml(n_bags=150, n_labels=5, n_features=8, random_state=0)


@pytest.fixture(scope="module", params=["asgd", "minibatch", "sgd"])
def solver(request):
    return request.param


def by_hand(model, bags):
    """`decision_function` from the public attributes alone."""
    scores = []
    for X in bags:
        X = X.toarray() if sparse.issparse(X) else X
        P = X.astype(float) @ model.shared_space_.T + model.shared_intercept_
        scores.append(np.einsum("im,lkm->ilk", P, model.label_weights_).max(axis=(0, 2)))
    f = np.array(scores)
    return f[:, :-1] - f[:, -1:] - model.offset_


def test_learns_and_can_be_checked_by_hand(solver, data):
    model = MIMLFast(solver=solver, **SMALL).fit(data.bags[:100], data.Y[:100])
    S = model.decision_function(data.bags[100:])
    np.testing.assert_allclose(S, by_hand(model, data.bags[100:]), rtol=1e-9, atol=1e-9)
    assert ranking_loss(data.Y[100:], S) < 0.1
    assert hamming_loss(data.Y[100:], (S > 0).astype(int)) < 0.5 * data.Y[100:].mean()
    assert model.shared_space_.shape == (12, 8)
    assert model.label_weights_.shape == (6, 2, 12)
    assert (model.predict(data.bags) == (model.decision_function(data.bags) > 0)).all()
    F = model.instance_scores(data.bags)
    np.testing.assert_allclose(
        [F[a:b].max(axis=0) for a, b in zip(data.bags.offsets, data.bags.offsets[1:])],
        model.decision_function(data.bags),
    )
    assert model.n_iter_ <= len(model.objective_)
    assert model.solver_ == solver


def test_any_feature_scale(solver, data):
    rng = np.random.default_rng(0)
    factor, shift = 10.0 ** rng.integers(-6, 7, 8), rng.standard_normal(8) * 100
    X = data.bags.X.astype(np.float64)
    a = MIMLFast(solver=solver, max_iter=3, **SMALL).fit(data.bags.with_X(X), data.Y)
    other = data.bags.with_X((X + shift) * factor)
    b = MIMLFast(solver=solver, max_iter=3, **SMALL).fit(other, data.Y)
    np.testing.assert_allclose(
        a.decision_function(data.bags), b.decision_function(other), rtol=1e-3, atol=1e-3
    )


def test_text_like_data_dense_or_sparse(solver):
    rng = np.random.default_rng(0)
    X = rng.poisson(0.05, (240, 40)) * 1.0
    Y = (X.reshape(60, 4, 40).max(axis=1)[:, :3] > 0).astype(int)
    offsets = np.arange(0, 241, 4)
    settings = {**SMALL, "max_iter": 20, "n_iter_no_change": 20}
    a = MIMLFast(solver=solver, **settings).fit(Bags(X, offsets), Y)
    sparse_bags = Bags(sparse.csr_array(X), offsets)
    b = MIMLFast(solver=solver, **settings).fit(sparse_bags, Y)
    np.testing.assert_allclose(a.decision_function(sparse_bags), b.decision_function(Bags(X, offsets)))
    assert ranking_loss(Y, a.decision_function(sparse_bags)) < 0.35


def test_dense_data_given_as_sparse(solver, data):
    a = MIMLFast(solver=solver, max_iter=3, **SMALL).fit(data.bags, data.Y)
    as_csr = data.bags.with_X(sparse.csr_array(data.bags.X))
    b = MIMLFast(solver=solver, max_iter=3, **SMALL).fit(as_csr, data.Y)
    np.testing.assert_allclose(
        a.decision_function(as_csr), b.decision_function(data.bags), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(("n_bags", "share", "expected"), [(400, 1.0, "asgd"), (3100, 1.0, "minibatch"),
                                                           (3100, 0.05, "asgd")])  # fmt: skip
def test_auto_goes_by_size_and_kind_of_data(n_bags, share, expected):
    rng = np.random.default_rng(0)
    X = rng.random((n_bags, 20)) * (rng.random((n_bags, 20)) < share)
    Y = (X[:, :2] > 0.5).astype(int)
    for form in (X, sparse.csr_array(X)):
        model = MIMLFast(2, 1, max_iter=1, random_state=0).fit(Bags(form, np.arange(n_bags + 1)), Y)
        assert model.solver_ == expected


def test_same_for_any_number_of_threads():
    data = make_msra_like(n_bags=400, n_labels=12, n_features=20, n_latent=10)
    models = [
        MIMLFast(solver="minibatch", batch_size=128, max_iter=2, n_jobs=n, **SMALL).fit(data.bags, data.Y)
        for n in (1, 3)
    ]
    np.testing.assert_array_equal(models[0].shared_space_, models[1].shared_space_)
    np.testing.assert_array_equal(models[0].label_weights_, models[1].label_weights_)
    assert models[0].offset_ == models[1].offset_


def test_same_seed_same_model(solver, data):
    a, b = (MIMLFast(solver=solver, max_iter=2, **SMALL).fit(data.bags, data.Y) for _ in range(2))
    np.testing.assert_array_equal(a.label_weights_, b.label_weights_)


def test_degenerate_labels(solver, data):
    Y = data.Y.copy()
    Y[:20], Y[20:40] = 0, 1
    Y[:, 4] = 0  # never seen
    model = MIMLFast(solver=solver, max_iter=4, **SMALL).fit(data.bags, Y)
    assert np.isfinite(model.decision_function(data.bags)).all()
    assert model.sub_concepts_in_use_[4] <= 2
    for constant in (0, 1):
        Y = np.full((len(data.bags), 3), constant)
        model = MIMLFast(solver=solver, max_iter=2, **SMALL).fit(data.bags, Y)
        assert (model.predict(data.bags) == constant).mean() > 0.95


def test_one_label_only(solver, data):
    model = MIMLFast(solver=solver, max_iter=20, **SMALL).fit(data.bags, data.Y[:, :1])
    assert (model.predict(data.bags) == data.Y[:, :1]).mean() > 0.85


def test_thousands_of_labels():
    data = make_msra_like(n_bags=100, n_labels=2000, n_features=10, n_latent=5)
    model = MIMLFast(4, 2, solver="minibatch", max_iter=1, random_state=0).fit(data.bags, data.Y)
    assert model.predict(data.bags).shape == (100, 2000)


def test_single_bag_and_single_instances():
    X = np.array([[0.0, 1.0], [2.0, 0.5], [1.0, 1.0]])
    one = MIMLFast(**SMALL).fit(Bags(X, [0, 3]), [[1, 0]])
    assert one.predict(Bags(X, [0, 3])).tolist() == [[1, 0]]
    Y = np.array([[1, 0], [0, 1], [1, 1]])
    rows = MIMLFast(max_iter=200, validation=0, **SMALL).fit(X, Y)
    as_bags = MIMLFast(max_iter=200, validation=0, **SMALL).fit(Bags(X, [0, 1, 2, 3]), Y)
    np.testing.assert_array_equal(rows.decision_function(X), as_bags.decision_function(X))
    assert (rows.predict(X) == Y).all()


def test_rules_by_name(data):
    fits = {
        rule: MIMLFast(threshold_rule=rule, max_iter=5, **SMALL).fit(data.bags, data.Y)
        for rule in ("calibrated", "text", "line17", "code")
    }
    offsets = {rule: model.offset_ for rule, model in fits.items()}
    assert (offsets["text"], offsets["line17"], offsets["code"]) == (0.0, -1.0, 1.0)
    margins = fits["text"].decision_function(data.bags)
    assert (fits["text"].predict(data.bags) == (margins > 0)).all()
    assert (fits["line17"].predict(data.bags) == (1 + margins > 0)).all()
    strict = margins > 1
    strict[np.arange(len(margins)), margins.argmax(axis=1)] = True
    assert (fits["code"].predict(data.bags) == strict).all()


def test_averaging_keeps_the_offset_right(data):
    """The average of both factors shifts the scores; calibration on held-out bags must take that back."""
    model = MIMLFast(solver="asgd", max_iter=8, **SMALL).fit(data.bags[:100], data.Y[:100])
    margins = model.decision_function(data.bags[100:]) + model.offset_
    best = hamming_loss(data.Y[100:], (margins > best_offset(margins, data.Y[100:])).astype(int))
    assert hamming_loss(data.Y[100:], model.predict(data.bags[100:])) < best + 0.03


def test_sub_concepts_and_key_instances():
    data = make_sub_concepts(n_bags=400, n_labels=4, n_sub=3, random_state=0)
    losses = {}
    for K in (1, 3):
        model = MIMLFast(20, K, solver="minibatch", max_iter=25, random_state=0)
        model.fit(data.bags[:300], data.Y[:300])
        losses[K] = ranking_loss(data.Y[300:], model.decision_function(data.bags[300:]))
    assert losses[3] < losses[1]
    which, where = model.sub_concepts(data.bags)
    assert (where == model.key_instances(data.bags)[:, :, 0]).all()
    P = data.bags.X @ model.shared_space_.T + model.shared_intercept_
    for b, l in ((0, 0), (5, 3), (17, 2)):
        assert which[b, l] == (model.label_weights_[l] @ P[where[b, l]]).argmax()
    right = data.instance_Y[where] == np.arange(4)
    assert right[data.Y > 0].mean() > 0.8
    assert (model.sub_concepts_in_use_ >= 2).all()
    assert model.sub_concept_counts_.shape == (4, 3)


def test_auto_takes_sub_concepts_where_they_help(data):
    mixed = make_sub_concepts(n_bags=200, n_labels=4, n_sub=3, random_state=0)
    few = {"n_components": 12, "max_iter": 20, "random_state": 0}
    assert MIMLFast(**few).fit(mixed.bags, mixed.Y).n_sub_concepts_ == 5
    plain = MIMLFast(**few).fit(data.bags, data.Y)
    assert plain.n_sub_concepts_ == plain.label_weights_.shape[1] == 1
    one = MIMLFast(n_sub_concepts=1, **few).fit(data.bags, data.Y)  # the same as if it had been asked for
    np.testing.assert_array_equal(plain.decision_function(data.bags), one.decision_function(data.bags))


def test_auto_without_a_choice(data):
    assert MIMLFast(4, validation=0, max_iter=1).fit(data.bags, data.Y).n_sub_concepts_ == 1
    X = np.random.default_rng(0).random((3001, 3))
    assert MIMLFast(4, max_iter=1).fit(X, X > 0.5).n_sub_concepts_ == 5
    assert MIMLFast(4, validation=0, max_iter=1).fit(X[:501], X[:501] > 0.5).n_sub_concepts_ == 5
    assert MIMLFast(4).partial_fit(data.bags, data.Y).n_sub_concepts_ == 5


def test_key_instances_by_contrast(data):
    model = MIMLFast(max_iter=5, **SMALL).fit(data.bags, data.Y)
    F = model.instance_scores(data.bags)
    found = model.key_instances(data.bags, k=2, rule="contrast")
    for b in range(0, 150, 7):
        rows = np.arange(data.bags.offsets[b], data.bags.offsets[b + 1])
        for l in range(5):
            margin = [F[i, l] - max(F[i, j] for j in range(5) if j != l) for i in rows]
            expected = [*rows[np.argsort(-np.array(margin), kind="stable")][:2], -1][:2]
            assert found[b, l].tolist() == expected
    with pytest.raises(ValueError, match="rule"):
        model.key_instances(data.bags, rule="loudest")
    with pytest.raises(ValueError, match="k must"):
        model.key_instances(data.bags, k=0, rule="contrast")


@pytest.mark.parametrize(
    ("name", "value"),
    [("solver", "adam"), ("threshold_rule", "best"), ("scaling", "minmax"), ("n_components", 0),
     ("max_norm", 0.0), ("validation", 1.5), ("max_iter", 2.5), ("step_decay", np.nan), ("max_iter", -3),
     ("step_size", np.nan), ("learning_rate", np.inf), ("feature_norm", np.nan), ("n_jobs", 0),
     ("validation", -0.1), ("refit", "yes"), ("random_state", -1)],
)  # fmt: skip
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_refuses_settings_without_meaning(method, name, value, data):
    with pytest.raises(ValueError, match=f"^{name} of MIMLFast must be .*, got {value!r}$"):
        getattr(MIMLFast(**{**SMALL, name: value}), method)(data.bags, data.Y)


@pytest.mark.parametrize("validation", [100, 0.999])
def test_refuses_to_hold_out_everything(validation, data):
    with pytest.raises(ValueError, match=f"{validation} with 60 bags"):
        MIMLFast(validation=validation, **SMALL).fit(data.bags[:60], data.Y[:60])


def test_every_question_before_fit_is_refused(data):
    model = MIMLFast()
    for method in ("sub_concepts", "key_instances", "instance_scores", "annotate", "predict"):
        with pytest.raises(NotFittedError):
            getattr(model, method)(data.bags)
    with pytest.raises(NotFittedError):
        model.key_instances(data.bags, rule="contrast")


def test_contrast_of_a_single_label_is_its_score(data):
    model = MIMLFast(max_iter=2, **SMALL).fit(data.bags, data.Y[:, :1])
    by_contrast = model.key_instances(data.bags, rule="contrast")
    np.testing.assert_array_equal(by_contrast, model.key_instances(data.bags))


def test_input_is_left_alone_and_may_be_read_only(data):
    X = data.bags.X.copy()
    X.flags.writeable = False
    MIMLFast(max_iter=2, **SMALL).fit(Bags(X, data.bags.offsets), data.Y)
    np.testing.assert_array_equal(X, data.bags.X)


def test_validation_choices(data):
    for validation in (0, 0.2, 2):
        model = MIMLFast(validation=validation, max_iter=3, **SMALL).fit(data.bags, data.Y)
        assert len(model.objective_) == (0 if validation == 0 else 3)
        assert np.isfinite(model.offset_)


ONE_TYPE_EACH = """
import numpy as np
from scipy import sparse
from bagwise.datasets import make_miml
from bagwise.models import MIMLFast
from bagwise.models.mimlfast import kernels, kernels_sgd
data = make_miml(n_bags=40, random_state=0)
text = data.bags.with_X(sparse.csr_array(np.where(np.arange(data.bags.X.size) % 11, 0, data.bags.X.ravel())
                                         .reshape(data.bags.X.shape)))
for solver in ("asgd", "minibatch", "sgd"):
    for bags in (data.bags, text):
        MIMLFast(4, 2, solver=solver, max_iter=2, max_norm=10, n_jobs=1).fit(bags, data.Y).predict(bags)
for module in (kernels, kernels_sgd):
    for name, function in vars(module).items():
        if hasattr(function, "overloads"):
            print(name, len(function.overloads))
"""


def test_each_loop_is_compiled_once():
    """Two types of the same argument would double the time of a first fit."""
    done = subprocess.run([sys.executable, "-c", ONE_TYPE_EACH], capture_output=True, text=True, check=True)
    counts = dict(line.split() for line in done.stdout.splitlines())
    assert counts["warp_gradient"] == counts["sgd_steps"] == "1"
    assert set(counts.values()) <= {"0", "1"}  # helpers come with their callers from the cache
