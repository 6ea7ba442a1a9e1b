"""Sigmoids per label: against other minimisers, scikit-learn, and labels that have no say."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from bagwise.compute import calibration
from bagwise.compute.calibration import (
    ANY_SCALE,
    LOG_ODDS,
    TOWARDS_EQUAL,
    calibrate,
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


# ---------------------------------------------------------------------- with shared values, as log odds


def sample(n=300, n_labels=3, seed=0):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, n_labels)) * 2
    slope, intercept = np.array([0.5, 1.0, 2.0])[:n_labels], np.array([-1.0, 0.0, 1.0])[:n_labels]
    return scores, (rng.random((n, n_labels)) < expit(scores * slope + intercept)).astype(int)


def penalised_loss(scores, Y, slope, intercept, shared):
    z = np.where(Y > 0, 1, -1) * (scores * slope + intercept)
    pull = 4.0 * np.square(slope - shared[0]).sum() + 0.3 * np.square(intercept - shared[1]).sum()
    return np.logaddexp(0, -z).sum() + pull / 2 + 0.05 * ((shared[0] - 1) ** 2 + shared[1] ** 2)


def test_the_minimum_is_found():
    scores, Y = sample()
    found = calibrate(scores, Y)
    # the best shared values, given those of the labels
    shared = [
        (4.0 * found.slope.sum() + 0.1) / (4.0 * 3 + 0.1),
        0.3 * found.intercept.sum() / (0.3 * 3 + 0.1),
    ]
    best = penalised_loss(scores, Y, *found, shared)
    rng = np.random.default_rng(1)
    for _ in range(200):
        other = [a + 1e-3 * rng.normal(size=3) for a in found]
        assert penalised_loss(scores, Y, *other, shared + 1e-3 * rng.normal(size=2)) > best


def test_without_penalties_each_label_is_a_logistic_regression(monkeypatch):
    monkeypatch.setattr(calibration, "LOG_ODDS", LOG_ODDS._replace(pull=np.zeros(2)))
    scores, Y = sample()
    found = calibrate(scores, Y)
    for label in range(3):
        each = LogisticRegression(C=np.inf, tol=1e-8).fit(scores[:, [label]], Y[:, label])
        assert found.slope[label] == pytest.approx(each.coef_[0, 0], abs=1e-3)
        assert found.intercept[label] == pytest.approx(each.intercept_[0], abs=1e-3)


def test_weights_are_copies_and_unknown_scores_do_not_count():
    scores, Y = sample(100)
    copies = np.arange(100) % 3
    weighted = calibrate(scores, Y, copies.astype(float))
    repeated = calibrate(np.repeat(scores, copies, axis=0), np.repeat(Y, copies, axis=0))
    unknown = np.where(copies[:, None] > 0, scores, np.nan)
    holed = calibrate(unknown, Y, copies.astype(float))
    for other in (repeated, holed):
        np.testing.assert_allclose(weighted.slope, other.slope, atol=1e-4)
        np.testing.assert_allclose(weighted.intercept, other.intercept, atol=1e-4)


def test_few_bags_constant_labels_and_scores_that_mislead():
    scores, Y = sample(4)
    Y[:, 0], Y[:, 1] = 1, 0
    found = calibrate(scores, Y)
    assert np.isfinite(found.slope).all() and np.isfinite(found.intercept).all()
    assert (found.probabilities(scores - 1000)[:, 0] > 0.5).all()  # always carried, always predicted
    assert found.slope[1] == 1 and found.intercept[1] == 0  # never carried: left alone
    scores, Y = sample(200)
    assert (calibrate(-scores, Y).slope >= 0).all()  # never turned round
    nothing = calibrate(np.full((3, 2), np.nan), np.array([[0, 1], [1, 0], [0, 0]]))
    assert nothing.slope.tolist() == [1, 1] and nothing.intercept.tolist() == [0, 0]
