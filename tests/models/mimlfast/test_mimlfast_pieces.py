"""MIMLFast on data that arrive in pieces."""

import numpy as np
import pytest

from bagwise.datasets.synthetic import make_miml
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


def test_partial_fit_continues_a_fit(data):
    model = MIMLFast(**SMALL).fit(data.bags[:100], data.Y[:100])
    before = ranking_loss(data.Y[100:], model.decision_function(data.bags[100:]))
    model.partial_fit(data.bags[:100], data.Y[:100])
    assert ranking_loss(data.Y[100:], model.decision_function(data.bags[100:])) < before + 0.03


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
