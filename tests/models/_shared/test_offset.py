"""The threshold of fewest errors against trying them all."""

import numpy as np
import pytest

from bagwise.models._shared.scores import best_offset


def test_best_offset_against_trying_all():
    rng = np.random.default_rng(0)
    for _ in range(50):
        margins = rng.integers(-3, 4, (4, 3)).astype(float)
        Y = rng.integers(0, 2, (4, 3))
        tried = [np.mean((margins > o) != Y) for o in np.arange(-5, 5, 0.25)]
        assert np.mean((margins > best_offset(margins, Y)) != Y) == pytest.approx(min(tried))
