import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from bagwise.compute.calibration import (
    ANY_SCALE,
    TOWARDS_EQUAL,
    fit_sigmoids,
    log_loss_sum,
    mixing_weights,
)


def problem(n, n_labels, seed):
    rng = np.random.default_rng(seed)
    S = rng.normal(size=(n, n_labels))
    Y = (rng.random(S.shape) < expit(rng.normal(1.5, 0.5, n_labels) * S - 1.0)).astype(float)
    return S, Y


@pytest.mark.parametrize("shape", [(30, 1), (40, 5), (300, 3)])
def test_newton_finds_the_minimum(shape):
    S, Y = problem(*shape, seed=1)
    L = shape[1]

    def loss(flat):
        theta, shared = flat[:-2].reshape(2, L), flat[-2:]
        apart = np.square(theta - shared[:, None]).sum(axis=1)
        value = log_loss_sum(theta[0] * S + theta[1], Y)
        return value + 0.5 * (ANY_SCALE.pull @ apart + ANY_SCALE.anchor @ np.square(shared))

    best = minimize(loss, np.zeros(2 * L + 2), method="BFGS", options={"gtol": 1e-6})
    np.testing.assert_allclose(np.ravel(fit_sigmoids(S, Y)), best.x[:-2], atol=2e-3)


def test_separable_and_constant_labels_stay_finite():
    S = np.linspace(-1, 1, 20)[:, None] * np.ones(3)
    Y = np.column_stack([S[:, 0] > 0, np.ones(20), np.zeros(20)]).astype(float)
    theta = np.array(fit_sigmoids(S, Y))
    assert np.isfinite(theta).all() and np.abs(theta).max() < 100
    P = expit(theta[0] * S + theta[1])
    assert P[:, 1].min() > 0.5 and P[:, 2].max() < 0.5


def test_means_without_the_bag_are_no_knowledge():
    # the mean of all other bags is lower for those that carry the label: turned round it would be perfect
    Y = (np.random.default_rng(0).random((50, 3)) < 0.4).astype(float)
    S = (Y.sum(axis=0) - Y) / 49.0
    slope, intercept = fit_sigmoids(S / S.std(), Y)
    assert (slope == 0).all()
    np.testing.assert_allclose(expit(intercept), (Y.sum(axis=0) + 0.5) / 51.0)


def test_weights_are_the_bounded_minimum():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(200, 2))
    Z = np.stack([truth + 0.3 * rng.normal(size=truth.shape), rng.normal(size=truth.shape), -truth])
    Y = (rng.random(truth.shape) < expit(2 * truth)).astype(float)
    w = mixing_weights(Z, Y)
    assert (w >= 0).all() and w[2] == 0 and w[0] > w[1]

    def loss(v):
        return log_loss_sum(np.tensordot(v, Z, 1), Y) + TOWARDS_EQUAL * np.square(v - 1 / 3).sum()

    for k in range(3):
        for step in (-1e-3, 1e-3):
            moved = w.copy()
            moved[k] += step
            if moved[k] >= 0:
                assert loss(moved) >= loss(w) - 1e-6
