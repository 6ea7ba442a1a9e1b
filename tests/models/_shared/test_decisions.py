"""Calibration against scikit-learn, finite differences of what it minimises, and labels that have no say."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from bagwise.compute import calibration
from bagwise.compute.calibration import LOG_ODDS, calibrate
from bagwise.models._shared.held_out import held_out_scores


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


def test_every_bag_is_scored_by_models_of_other_bags():
    Y = (np.random.default_rng(0).random((50, 4)) < 0.3).astype(int)
    Y[:, 3] = 0
    Y[7, 3] = 1  # one bag alone: no model of the others knows this label
    seen = []

    def score(train, test):
        assert not set(train) & set(test)
        seen.extend(test)
        return np.ones((len(test), 4))

    scores = held_out_scores(score, Y)
    assert sorted(seen) == list(range(50))
    assert np.isfinite(scores[:, :3]).all() and np.isnan(scores[7, 3])
    weights = np.ones(50)
    weights[10:20] = 0
    assert np.isnan(held_out_scores(score, Y, weights)[10:20]).all()
    assert np.isnan(held_out_scores(score, Y[:5])).all()  # too few to hold any out
    seen.clear()
    held_out_scores(score, Y, most=40)
    assert len(seen) == 50 // 3


def test_several_kinds_of_scores_are_held_out_together():
    Y = np.tile([[0, 1], [1, 1], [1, 0]], (8, 1))

    def score(train, test):
        return np.stack([np.tile(test[:, None], 2), np.tile(-test[:, None], 2)])

    first, second = held_out_scores(score, Y)
    np.testing.assert_array_equal(first[:, 0], np.arange(24))
    np.testing.assert_array_equal(second, -first)
