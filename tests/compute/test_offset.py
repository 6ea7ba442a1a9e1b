"""The threshold of fewest errors against trying them all."""

import numpy as np
import pytest

from bagwise.compute.calibration import best_offset


def test_best_offset_against_trying_all():
    rng = np.random.default_rng(0)
    for _ in range(50):
        margins = rng.integers(-3, 4, (4, 3)).astype(float)
        Y = rng.integers(0, 2, (4, 3))
        tried = [np.mean((margins > o) != Y) for o in np.arange(-5, 5, 0.25)]
        assert np.mean((margins > best_offset(margins, Y)) != Y) == pytest.approx(min(tried))


@pytest.mark.parametrize("measure", ["f1", "errors"])
@pytest.mark.parametrize("apart", [False, True])
def test_one_label_against_trying_everything(measure, apart):
    rng = np.random.default_rng(0)
    for _ in range(50):
        scores = rng.integers(-3, 4, 12) / 2.0
        truth = rng.integers(0, 2, 12)

        def quality(t, scores=scores, truth=truth):
            predicted = scores > t
            if measure == "errors":
                return (predicted == truth).mean()
            denominator = predicted.sum() + truth.sum()
            return 2 * (predicted & (truth == 1)).sum() / denominator if denominator else 0.0

        best = max(quality(t) for t in np.linspace(-2.3, 2.3, 93))
        assert quality(best_offset(scores, truth, measure, apart=apart)) == pytest.approx(best)


def test_ties_go_to_the_nearest():
    scores, truth = np.array([0.1, 0.2, 0.3, 0.4]), np.array([1, 0, 1, 0])
    assert best_offset(scores, truth, near=0.4) == 0.4  # two errors, as with all other cuts
    assert best_offset(scores, truth) == 0.0
    assert best_offset(scores, truth, near=0.26) == 0.26
    assert best_offset(scores[:2], 1 - truth[:2], near=9.0) == pytest.approx(0.15)
