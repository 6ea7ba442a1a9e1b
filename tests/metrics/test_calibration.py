"""Expected calibration error against a loop over bins, and on probabilities that are right."""

import numpy as np
import pytest

from bagwise.metrics import calibration_error


def by_hand(Y, P, n_bins):
    total = 0.0
    for k in range(n_bins):
        low, high = k / n_bins, (k + 1) / n_bins
        inside = (low <= P) & ((high > P) if k < n_bins - 1 else (P <= 1))
        if inside.any():
            total += inside.sum() * abs(P[inside].mean() - Y[inside].mean())
    return total / P.size


@pytest.mark.parametrize("n_bins", [4, 8, 16])
def test_is_the_loop_over_bins(n_bins):
    rng = np.random.default_rng(0)
    P = rng.random((50, 6))
    P[0] = 1.0
    Y = (rng.random(P.shape) < P**2).astype(int)
    assert calibration_error(Y, P, n_bins) == pytest.approx(by_hand(Y, P, n_bins))


def test_right_probabilities_have_nearly_none():
    rng = np.random.default_rng(1)
    P = rng.random((20_000, 5))
    assert calibration_error((rng.random(P.shape) < P).astype(int), P) < 0.01
    assert calibration_error((rng.random(P.shape) < P).astype(int), 1 - P) > 0.3


def test_scores_are_no_probabilities():
    with pytest.raises(ValueError, match="from 0 to 1"):
        calibration_error([[1, 0]], [[2.0, -1.0]])
