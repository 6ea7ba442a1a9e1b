"""MIMLFast on data that arrive in pieces."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

import bagwise
from bagwise.datasets import make_miml, make_msra_like
from bagwise.errors import DataError
from bagwise.metrics import hamming_loss, ranking_loss
from bagwise.models import MIMLFast

SMALL = {"n_components": 12, "n_sub_concepts": 2, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    return make_miml(n_bags=150, n_labels=5, n_features=8, random_state=0)


@pytest.mark.parametrize("solver", ["minibatch", "asgd", "sgd"])
def test_partial_fit_learns_from_pieces(solver, data):
    model = MIMLFast(solver=solver, **SMALL)
    for _ in range(6):
        for start in range(0, 100, 25):
            model.partial_fit(data.bags[start : start + 25], data.Y[start : start + 25])
    S = model.decision_function(data.bags[100:])
    assert ranking_loss(data.Y[100:], S) < 0.15
    assert hamming_loss(data.Y[100:], (S > 0).astype(int)) < data.Y[100:].mean()
    with pytest.raises(DataError, match="features"):
        model.partial_fit(data.bags[:5, :][:, :3], data.Y[:5])
    model.partial_fit(data.bags[:1], data.Y[:1])


@pytest.fixture(scope="module")
def many():
    return make_msra_like(n_bags=1400, n_labels=20, n_features=30, n_latent=15)


@pytest.mark.parametrize("solver", ["asgd", "minibatch"])
@pytest.mark.parametrize("size", [1, 16, 100])
def test_new_pieces_do_not_spoil_a_fit(solver, size, many):
    """A fit that began anew with the first piece lost a fourth to all of what it had learned."""
    model = MIMLFast(20, 3, solver=solver, random_state=0).fit(many.bags[:800], many.Y[:800])
    before = ranking_loss(many.Y[1000:], model.decision_function(many.bags[1000:]))
    for start in range(800, 800 + 5 * min(size, 40), min(size, 40)):
        model.partial_fit(many.bags[start : start + size], many.Y[start : start + size])
    assert ranking_loss(many.Y[1000:], model.decision_function(many.bags[1000:])) < before + 0.002


@pytest.mark.parametrize("solver", ["asgd", "minibatch"])
def test_own_training_bags_once_more(solver, many):
    model = MIMLFast(20, 3, solver=solver, random_state=0).fit(many.bags[:800], many.Y[:800])
    before = ranking_loss(many.Y[:800], model.decision_function(many.bags[:800]))
    model.partial_fit(many.bags[:800], many.Y[:800])
    assert ranking_loss(many.Y[:800], model.decision_function(many.bags[:800])) < before + 0.002


@pytest.mark.parametrize("solver", ["asgd", "minibatch", "sgd"])
def test_a_saved_model_goes_on_as_the_one_in_memory(solver, data, tmp_path):
    model = MIMLFast(solver=solver, max_iter=4, **SMALL).fit(data.bags[:100], data.Y[:100])
    steps = model._state["t"]
    bagwise.save(model, tmp_path / "model.skops")
    loaded, copied = bagwise.load(tmp_path / "model.skops"), pickle.loads(pickle.dumps(model))
    answers = [
        m.partial_fit(data.bags[100:], data.Y[100:]).decision_function(data.bags)
        for m in (model, loaded, copied)
    ]
    assert model._state["t"] > steps > 0
    np.testing.assert_array_equal(answers[0], answers[1])
    np.testing.assert_array_equal(answers[0], answers[2])


def test_a_clone_and_a_new_fit_begin_anew(data):
    model = MIMLFast(max_iter=4, **SMALL).fit(data.bags, data.Y)
    expected = model.decision_function(data.bags)
    model.partial_fit(data.bags[:50], data.Y[:50])
    assert not hasattr(clone(model), "_state")
    np.testing.assert_array_equal(model.fit(data.bags, data.Y).decision_function(data.bags), expected)


def test_the_shape_is_that_of_the_first_training(data):
    model = MIMLFast(max_iter=2, **SMALL).fit(data.bags, data.Y)
    model.set_params(n_sub_concepts=4, n_components=3, solver="minibatch").partial_fit(data.bags, data.Y)
    assert model.label_weights_.shape == (6, 2, 12)
    assert model.solver_ == "asgd"


def test_partial_fit_with_classes():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = np.array(["a", "b"])[(X[:, 0] > 0).astype(int)]
    model = MIMLFast(**SMALL)
    only_a = np.flatnonzero(y == "a")[:5]
    model.partial_fit(X[only_a], y[only_a], classes=["a", "b"])
    for _ in range(10):
        model.partial_fit(X, y)
    assert (model.predict(X) == y).mean() > 0.8
