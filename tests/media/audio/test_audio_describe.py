"""Spectra, mel bands and every number of the description against plain, slow NumPy written here."""

import numpy as np
import pytest

from bagwise.media.audio.decode import ratio, resampled
from bagwise.media.audio.describe import (
    MODULATION,
    describe,
    feature_table,
    make_grid,
    mel_bands,
    powers,
    spectra,
)

GRID = make_grid(48000, 50.0, 16000.0)
BANDS = 28
NAMES = list(feature_table(GRID, BANDS))
RNG = np.random.default_rng(0)


def chirps(seconds=1.2, rate=48000, seed=0):
    rng = np.random.default_rng(seed)
    t = np.arange(int(seconds * rate)) / rate
    tone = np.sin(2 * np.pi * (2500 * t + 900 * t**2)) * (np.sin(2 * np.pi * 5 * t) > 0)
    return (0.3 * tone + 0.01 * rng.standard_normal(len(t))).astype(np.float32)


def test_powers():
    x = chirps()
    P = powers(x, GRID)
    window = np.sin(np.pi * (np.arange(GRID.length) + 0.5) / GRID.length) ** 2
    for k in (0, 17, len(P) - 1):
        frame = x[k * GRID.hop : k * GRID.hop + GRID.length].astype(np.float64) * window
        n = np.arange(GRID.length)
        for b in (0, 100, GRID.n_bins - 1):
            z = np.sum(frame * np.exp(-2j * np.pi * n * (GRID.first + b) / GRID.length))
            expected = 2 * abs(z) ** 2 / (GRID.length * np.sum(window**2))
            assert np.isclose(P[k, b], expected, rtol=1e-3, atol=1e-9)


@pytest.mark.parametrize("size", [100, 4801, 50_000])
def test_spectra_of_a_stream(size):
    x = chirps(3.0)
    parts = list(spectra((x[k : k + size] for k in range(0, len(x), size)), GRID))
    assert np.array_equal(np.concatenate([P for P, _ in parts]), powers(x, GRID))
    assert np.array_equal(np.concatenate([samples for _, samples in parts]), x)


def test_less_than_a_frame():
    ((P, x),) = spectra([np.ones(10, dtype=np.float32)], GRID)
    assert P.shape == (1, GRID.n_bins) and len(x) == 10


@pytest.mark.parametrize("bands", [4, 28, 120])
def test_mel_bands(bands):
    W, peaks = mel_bands(GRID, bands)
    edges = (np.array([GRID.first, GRID.last + 1]) - 0.5) * GRID.step
    mel = 2595 * np.log10(1 + edges / 700)
    corners = 700 * (10 ** (np.linspace(mel[0], mel[1], bands + 2) / 2595) - 1)
    assert np.allclose(peaks, corners[1:-1])
    for b in range(0, GRID.n_bins, 37):
        f = (GRID.first + b - 0.5 + (np.arange(2000) + 0.5) / 2000) * GRID.step
        for m in range(bands):
            left, peak, right = corners[m : m + 3]
            triangle = np.maximum(np.minimum((f - left) / (peak - left), (right - f) / (right - peak)), 0)
            assert np.isclose(W[b, m], triangle.mean(), atol=1e-4)
    assert (W.sum(axis=0) > 0).all()  # no band is empty, however narrow


def slow(P, grid, bands, seconds):
    """The numbers of one piece (T, F), one at a time, in double precision."""
    P = P.astype(np.float64)
    T, _F = P.shape
    f = grid.frequencies
    W = mel_bands(grid, bands)[0].astype(np.float64)
    M, E, S = P @ W, P.sum(axis=1), P.sum(axis=0)
    level = 10 * np.log10(max(E.mean(), 1e-12))
    L = np.maximum(10 * np.log10(np.maximum(M, 1e-30)) - level, -60)
    out = {f"mel_{m + 1:02d}_mean": L[:, m].mean() for m in range(bands)}
    out |= {f"mel_{m + 1:02d}_std": L[:, m].std() for m in range(bands)}
    s = S / S.sum()
    c = sum(s * f)
    sd = np.sqrt(sum(s * (f - c) ** 2))
    out |= {"centroid": c, "bandwidth": sd}
    out["spectral_skewness"] = sum(s * (f - c) ** 3) / sd**3
    out["spectral_kurtosis"] = sum(s * (f - c) ** 4) / sd**4 - 3
    for q in (5, 25, 50, 75, 95):
        k = 0
        while s[: k + 1].sum() < q / 100:
            k += 1
        out[f"rolloff_{q:02d}"] = f[k]
    clipped = np.maximum(s, s.mean() * 1e-6)
    out["flatness"] = 10 * np.log10(np.exp(np.log(clipped).mean()) / clipped.mean())
    out["spectral_entropy"] = -sum(p * np.log(p) for p in s if p > 0) / np.log(len(s))
    k = S.argmax()
    out["peak_frequency"], out["peak_share"] = f[k], s[max(k - 1, 0) : k + 2].sum()
    w = E / E.sum()
    live = [t for t in range(T) if E[t] > 0]
    centroid, width, entropy = np.zeros(T), np.zeros(T), np.zeros(T)
    for t in live:
        p = P[t] / E[t]
        centroid[t] = sum(p * f)
        width[t] = np.sqrt(sum(p * (f - centroid[t]) ** 2))
        m = M[t] / M[t].sum()
        entropy[t] = -sum(v * np.log(v) for v in m if v > 0) / np.log(bands)
    mean = {k: sum(w * v) for k, v in (("c", centroid), ("b", width), ("e", entropy))}
    out["centroid_std"] = np.sqrt(sum(w * (centroid - mean["c"]) ** 2))
    out["bandwidth_mean"] = mean["b"]
    out["bandwidth_std"] = np.sqrt(sum(w * (width - mean["b"]) ** 2))
    out["entropy_mean"] = mean["e"]
    out["entropy_std"] = np.sqrt(sum(w * (entropy - mean["e"]) ** 2))
    out["flux"] = np.mean([abs(L[t + 1] - L[t]).mean() for t in range(T - 1)])
    out["occupancy"] = np.mean(L.max() - 20 < L)
    track = np.array([f[P[t].argmax()] for t in range(T)])
    out["track_mean"] = sum(w * track)
    out["track_std"] = np.sqrt(sum(w * (track - out["track_mean"]) ** 2))
    for k, name in enumerate(("first", "middle", "last")):
        inside = slice(k * T // 3, (k + 1) * T // 3)
        some = w[inside].sum() > 0
        out[f"track_{name}"] = sum(w[inside] * track[inside]) / w[inside].sum() if some else out["track_mean"]
    loud = E.max() / 10 <= E
    out["track_lowest"], out["track_highest"] = track[loud].min(), track[loud].max()
    t = np.arange(T) * grid.hop / grid.rate
    slope, start = np.polyfit(t, track, 1, w=np.sqrt(w))
    out["track_slope"] = slope
    out["track_residual"] = np.sqrt(sum(w * (track - start - slope * t) ** 2))
    out |= {"duration": seconds, "level": level, "crest": 10 * np.log10(E.max() / E.mean())}
    out["envelope_std"] = np.maximum(10 * np.log10(np.maximum(E, 1e-30)) - level, -60).std()
    out["activity"] = loud.mean()
    u = (np.arange(T) + 0.5) / T
    out["attack"], out["time_centroid"] = u[E.argmax()], sum(w * u)
    spread = np.sqrt(sum(w * (u - sum(w * u)) ** 2))
    out["time_spread"] = spread
    out["time_skewness"] = sum(w * (u - sum(w * u)) ** 3) / spread**3
    out["time_kurtosis"] = sum(w * (u - sum(w * u)) ** 4) / spread**4 - 3
    out["time_entropy"] = -sum(v * np.log(v) for v in w if v > 0) / np.log(T)
    a = np.sqrt(E)
    out["modulation_depth"] = a.std() / a.mean()
    n = 512
    z = [
        abs(sum((a / a.mean() - 1) * np.exp(-2j * np.pi * np.arange(T) * k / n))) ** 2
        for k in range(n // 2 + 1)
    ]
    hertz = np.arange(n // 2 + 1) / n * grid.rate / grid.hop
    for low, high in zip(MODULATION[:-1], MODULATION[1:]):
        share = sum(v for v, h in zip(z, hertz) if low <= h < high) / sum(z)
        out[f"modulation_{low:g}_{high:g}"] = share
    return out


@pytest.mark.parametrize("masked", [False, True])
def test_description(masked):
    P = powers(chirps(), GRID)
    if masked:  # as of a call: most cells are no part of it
        inside = np.zeros_like(P)
        inside[20:70, 40:110] = 1
        P = P * inside
    found = describe(P[None], GRID, BANDS, np.array([1.2]))[0]
    expected = slow(P, GRID, BANDS, 1.2)
    assert set(expected) == set(NAMES)
    for name, value in zip(NAMES, found):
        assert np.isclose(value, expected[name], rtol=2e-3, atol=2e-3), name


def test_a_stack_is_one_by_one():
    P = powers(chirps(3.0), GRID)[:280].reshape(4, 70, -1)
    together = describe(P, GRID, BANDS, np.full(4, 0.7))
    for k in range(4):
        alone = describe(P[k : k + 1], GRID, BANDS, np.array([0.7]))[0]
        assert np.allclose(alone, together[k], rtol=1e-4, atol=1e-4)


def test_louder_changes_the_level_alone():
    P = powers(chirps(), GRID)[None]
    a, b = describe(P, GRID, BANDS, np.ones(1))[0], describe(100 * P, GRID, BANDS, np.ones(1))[0]
    differ = [name for name, x, y in zip(NAMES, a, b) if not np.isclose(x, y, rtol=1e-3, atol=1e-3)]
    assert differ == ["level"] and np.isclose(
        b[NAMES.index("level")] - a[NAMES.index("level")], 20, atol=1e-3
    )


@pytest.mark.parametrize("rate", [32000, 44100, 96000, 192000])
def test_other_rates_give_the_same_numbers(rate):
    """The same sound, recorded at another rate, is described alike."""
    here = describe(powers(tones(48000), GRID)[None, :90], GRID, BANDS, np.ones(1))[0]
    x = np.concatenate(list(resampled([tones(rate)], ratio(rate, 48000))))
    there = describe(powers(x, GRID)[None, :90], GRID, BANDS, np.ones(1))[0]
    table = dict(zip(NAMES, zip(here, there)))
    for name in (
        "centroid",
        "rolloff_50",
        "track_slope",
        "level",
        "duration",
        "time_centroid",
    ):
        assert np.isclose(*table[name], rtol=0.01, atol=0.05), name
    for m in range(BANDS):
        if table[f"mel_{m + 1:02d}_mean"][0] > -40:  # below lies the rounding of the tone itself
            assert np.isclose(*table[f"mel_{m + 1:02d}_mean"], atol=0.3)


def tones(rate):
    t = np.arange(rate) / rate
    return (0.2 * np.sin(2 * np.pi * (3000 * t + 1000 * t**2)) + 0.02 * np.sin(2 * np.pi * 9000 * t)).astype(
        "f4"
    )


@pytest.mark.parametrize("shape", [(1, 1, GRID.n_bins), (2, 2, GRID.n_bins), (1, 3, GRID.n_bins)])
@pytest.mark.parametrize("value", [0.0, 1e-20, 1e10])
def test_silence_and_single_frames_are_finite(shape, value):
    P = np.full(shape, value, dtype=np.float32)
    assert np.isfinite(describe(P, GRID, BANDS, np.ones(len(P)))).all()
    one = np.zeros(shape, dtype=np.float32)
    one[:, 0, 5] = value
    assert np.isfinite(describe(one, GRID, BANDS, np.ones(len(P)))).all()
