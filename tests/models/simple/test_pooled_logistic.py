"""Pooled logistic regression against scikit-learn's on the same table, and against finite differences."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from bagwise import Bags
from bagwise.datasets import make_miml
from bagwise.models import PooledLogisticRegression
from bagwise.models.simple.pooled_logistic import loss_and_gradient
from bagwise.preprocessing import bag_statistics


def test_the_same_as_scikit_learn():
    data = make_miml(n_bags=150, random_state=0)
    model = PooledLogisticRegression(0.5, tol=1e-9, max_iter=2000).fit(data.bags, data.Y)
    scaled = StandardScaler().fit_transform(bag_statistics(data.bags, model.statistics))
    for label in range(data.Y.shape[1]):
        other = LogisticRegression(C=2.0, tol=1e-10, max_iter=5000).fit(scaled, data.Y[:, label])
        mine = model.decision_function(data.bags)[:, label]
        np.testing.assert_allclose(mine, other.decision_function(scaled), atol=1e-3)
    assert (np.diff(model.objective_) <= 1e-9).all()


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_gradient(form):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(9, 3)), rng.integers(0, 2, (9, 2)).astype(np.int8)
    data, W = (form(X), Y), rng.normal(size=(2, 4))
    _, G = loss_and_gradient(W, data)
    for place in np.ndindex(W.shape):
        step = np.zeros_like(W)
        step[place] = 1e-6
        rise = loss_and_gradient(W + step, data)[0] - loss_and_gradient(W - step, data)[0]
        assert abs(rise / 2e-6 - G[place]) < 1e-6


def test_labels_that_do_not_vary_and_empty_bags():
    rng = np.random.default_rng(0)
    bags = Bags(rng.normal(size=(12, 2)), [0, 3, 3, 6, 12])
    Y = np.array([[1, 1, 0], [1, 0, 0], [1, 1, 0], [1, 0, 0]])
    model = PooledLogisticRegression().fit(bags, Y)
    np.testing.assert_allclose(model.decision_function(bags)[:, 0], np.log(9.0))
    np.testing.assert_allclose(model.decision_function(bags)[:, 2], -np.log(9.0))
