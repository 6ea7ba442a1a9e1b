"""The resampler against a known sine, against SciPy's on the whole, and against itself in other blocks."""

import numpy as np
import pytest
from scipy.signal import resample_poly

from bagwise.media.audio.decode import ratio, resampled

RNG = np.random.default_rng(0)


def whole(x, factor, size=None):
    size = size or len(x)
    return np.concatenate(list(resampled((x[k : k + size] for k in range(0, len(x), size)), factor)))


@pytest.mark.parametrize("rate", [8000, 22050, 32000, 44100, 96000, 250000])
def test_sine(rate):
    factor = ratio(rate, 48000)
    assert rate * factor == 48000
    x = np.sin(2 * np.pi * 1000 * np.arange(rate) / rate).astype(np.float32)
    y = whole(x, factor)
    assert len(y) == 48000
    expected = np.sin(2 * np.pi * 1000 * np.arange(48000) / 48000)
    assert np.abs(y - expected)[500:-500].max() < 5e-3


@pytest.mark.parametrize("rate", [22050, 44100, 96000, 250000])
@pytest.mark.parametrize("length", [1, 100, 20001])
def test_equals_scipy_on_the_whole(rate, length):
    factor = ratio(rate, 48000)
    x = RNG.standard_normal(length).astype(np.float32)
    expected = resample_poly(x.astype(np.float64), factor.numerator, factor.denominator)
    for size in (None, 997, 7):
        y = whole(x, factor, size)
        assert y.dtype == np.float32 and y.shape == expected.shape
        assert np.abs(y - expected).max() < 5e-6


def test_odd_rates_stay_small():
    factor = ratio(999_983, 48000)
    assert factor.denominator <= 1000 and abs(float(factor) * 999_983 / 48000 - 1) < 1e-4
    assert ratio(48000, 48000) == 1
