"""Small numerical parts against SciPy, exact sums and the published generator."""

import math

import numpy as np
import pytest
from scipy.special import digamma

from bagwise.compute import numeric
from bagwise.compute.compiled import kernel


@kernel
def exp_digamma(x):
    return numeric.exp_digamma(x)


@kernel
def exp_of_negatives(x):
    scale = np.empty(x.size)
    numeric.exp_of_negatives(x, scale, scale.view(np.int64))


@kernel
def reordered_dot(a, b, n):
    return numeric.reordered_dot(a, b, n)


@kernel
def splitmix64(state):
    return numeric.splitmix64(state)


def test_exp_digamma():
    x = np.concatenate([np.geomspace(2e-3, 1.0, 50), np.linspace(1.0, 60.0, 200), [1e4, 1e8]])
    got = np.array([exp_digamma(v) for v in x])
    np.testing.assert_allclose(got, np.exp(digamma(x)), rtol=2e-9)
    assert exp_digamma(1e-6) == 0.0


@pytest.mark.parametrize("n", [1, 7, 64, 1001])
def test_exponentials_of_negatives_are_exact_to_the_last_place(n):
    rng = np.random.default_rng(n)
    for spread in (1e-9, 1.0, 200.0):
        x = np.maximum(-np.abs(rng.standard_normal(n)) * spread, -708.0)
        got = x.copy()
        exp_of_negatives(got)
        np.testing.assert_allclose(got, np.exp(x), rtol=2.3e-16, atol=0)


def test_exponentials_of_the_far_end_stay_above_zero_and_nan_stays_nan():
    x = np.array([0.0, -0.0, -708.0, -709.0, -1e9, -np.inf, np.nan, -1.0])
    exp_of_negatives(x)
    assert (x[:2] == 1.0).all() and np.isnan(x[6])
    np.testing.assert_allclose(x[2:6], np.exp(-708.0), rtol=1e-15)
    np.testing.assert_allclose(x[7], math.exp(-1.0), rtol=2.3e-16)


def test_dot_is_exact_to_rounding_and_keeps_undefined_numbers():
    """The compiler may reorder the sum, and nothing else: neither infinities nor NaN may get lost."""
    rng = np.random.default_rng(0)
    for n in (0, 1, 2, 3, 7, 16, 33, 500):
        a, b = rng.standard_normal(n) * 10.0 ** rng.integers(-8, 8, n), rng.standard_normal(n)
        room = n * 2.3e-16 * np.abs(a * b).sum()
        assert abs(reordered_dot(a, b, n) - math.fsum(a * b)) <= room
        if n > 2:
            assert reordered_dot(a, b, n - 2) == pytest.approx(math.fsum((a * b)[:-2]), abs=room)
            for bad in (np.nan, np.inf, -np.inf):
                c = np.abs(a)
                c[n // 2] = bad
                np.testing.assert_equal(reordered_dot(c, np.ones(n), n), bad)
            c[:2] = np.inf, -np.inf
            assert np.isnan(reordered_dot(c, np.ones(n), n))


def test_splitmix64_is_the_published_generator():
    state = np.array([1234567], dtype=np.uint64)
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [int(splitmix64(state)) for _ in range(3)] == expected
