"""Scaling against plain NumPy, and what it costs in memory."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

from bagwise.compute.scaling import is_text, learn_scaling


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 7, 1024, 5000])
@pytest.mark.parametrize("weighted", [False, True])
def test_standard_is_mean_and_spread(dtype, n, weighted):
    rng = np.random.default_rng(n)
    X = (rng.standard_normal((n, 4)) * [1.0, 1e-3, 1e4, 0.0] + [0.0, 5.0, -1e6, 0.1]).astype(dtype)
    weights = rng.random(n) if weighted else None
    scaling = learn_scaling(X, "standard", weights)
    Z = X.astype(np.float64)
    mean = np.average(Z, axis=0, weights=weights)
    spread = np.sqrt(np.average((Z - mean) ** 2, axis=0, weights=weights))
    np.testing.assert_allclose(scaling.shift, mean, rtol=1e-12)
    if n > 1:
        np.testing.assert_allclose(scaling.factor[:3], 1.0 / spread[:3], rtol=1e-7)
    assert scaling.factor[3] == 0.0  # constant but for rounding


def test_no_copy_of_the_data():
    X = np.random.default_rng(0).random((40_000, 20))
    tracemalloc.start()
    learn_scaling(X, "standard")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < X.nbytes / 4


@pytest.mark.parametrize("share", [0.05, 0.099, 0.1, 0.5])
@pytest.mark.parametrize("n", [10, 3000])
def test_text_is_known_by_its_zeros_wherever_they_are(share, n):
    X = np.zeros((n, 100))
    X.ravel()[: round(share * X.size)] = 1.0
    for rows in (X, X[::-1]):
        assert is_text(rows) == is_text(sparse.csr_array(rows)) == (share < 0.1)
    assert not is_text(np.zeros((0, 3)))


def test_huge_values_are_scaled_like_others():
    # their squares are infinite, and a feature of infinite spread was left out without a word
    X = np.random.default_rng(0).normal(size=(50, 3))
    plain = learn_scaling(X, "standard")
    size = np.array([1e300, 1.0, 1e-3])
    huge = learn_scaling(X * size, "standard")
    np.testing.assert_allclose(huge.factor * size, plain.factor, rtol=1e-12)
    np.testing.assert_allclose(huge.shift / size, plain.shift, rtol=1e-9)
