"""Calls found in a stream against a plain search of the whole, and windows against single clips."""

import numpy as np
import pytest
from scipy import ndimage

from bagwise.media.audio import cut as room
from bagwise.media.audio.cut import calls, closing, windows
from bagwise.media.audio.describe import make_grid, powers, spectra

GRID = make_grid(16000, 100.0, 7500.0)
LEAST = {"min_duration": 0.03, "min_area": 5.0}


def song(seconds, seed=0, per_second=2.0, noise=0.01):
    """Chirps at random times and pitches in noise."""
    rng = np.random.default_rng(seed)
    x = noise * rng.standard_normal(int(seconds * GRID.rate))
    for _ in range(int(seconds * per_second)):
        t = np.arange(int(rng.uniform(0.1, 0.6) * GRID.rate)) / GRID.rate
        tone = np.sin(2 * np.pi * (rng.uniform(500, 5000) * t + rng.uniform(-1500, 1500) * t**2))
        first = rng.integers(0, len(x) - len(t))
        x[first : first + len(t)] += rng.uniform(0.05, 0.5) * tone * np.hanning(len(t))
    return x.astype(np.float32)


def parts(x, size):
    return spectra((x[k : k + size] for k in range(0, len(x), size)), GRID)


def as_rows(found):
    return [(c.start[0], c.end[0], c.low[0], c.high[0], c.P.sum()) for c in found]


@pytest.mark.parametrize("size", [999, 16000, 10**6])
def test_blocks_do_not_matter(size):
    x = song(20)
    how = {"threshold": 8.0, "gap": 0.05, "segment": 3.0, "with_samples": True, **LEAST}
    expected = list(calls(parts(x, 5000), GRID, **how))
    found = list(calls(parts(x, size), GRID, **how))
    assert len(expected) > 15
    assert as_rows(found) == as_rows(expected)
    for a, b in zip(found, expected):
        assert np.array_equal(a.P, b.P) and np.array_equal(a.samples[0], b.samples[0])


def plain_search(P, floor, threshold, reach, min_frames, min_cells):
    """Boxes and powers of calls in the whole spectrogram at once, by loops and SciPy's binary morphology."""
    T, F = P.shape
    padded = np.pad(P.astype(np.float64), 1, mode="edge")
    smooth = sum(padded[i : i + T, j : j + F] for i in range(3) for j in range(3)) / 9
    over = smooth > floor * 10 ** (threshold / 10)
    loud = np.where(over, smooth, 0.0)
    around = np.zeros_like(loud)
    for k in range(-2, 3):  # 20 ms either way
        rows = np.arange(max(0, -k), min(T, T - k))
        around[rows] = np.maximum(around[rows], loud[rows + k])
    near = np.zeros_like(loud)
    width = round(1500 / GRID.step)
    for b in range(F):
        near[:, b] = around[:, max(0, b - width) : b + width + 1].max(axis=1)
    marks = over & (smooth > near * 10**-2.5) & (smooth > around.max(axis=1, keepdims=True) * 10**-4.0)
    frame = np.pad(marks, 2 * reach + 2)
    grown = ndimage.binary_dilation(frame, np.ones((2 * reach + 1, 3)))
    beyond = np.ones_like(frame)
    inner = (slice(2 * reach + 2, -2 * reach - 2),) * 2
    beyond[inner] = grown[inner]
    closed = ndimage.binary_erosion(beyond, np.ones((2 * reach + 1, 3)), border_value=1)[inner]
    numbers, n = ndimage.label(closed, np.ones((3, 3)))
    found = []
    for k in range(1, n + 1):
        rows, columns = np.nonzero(numbers == k)
        if np.ptp(rows) + 1 >= min_frames and len(rows) >= min_cells:
            power = np.maximum(P - floor, 0)[numbers == k].sum()
            found.append((rows.min(), np.ptp(rows) + 1, columns.min(), np.ptp(columns) + 1, power))
    return sorted(found)


@pytest.mark.parametrize("segment", [1.0, 2.5, 60.0])
@pytest.mark.parametrize("gap", [0.0, 0.06])
def test_calls_across_seams_are_whole(monkeypatch, segment, gap):
    """With one floor for all segments, where segments end must not be seen in the calls."""
    x = song(12, seed=1, per_second=4)
    P = powers(x, GRID)
    floor = np.quantile(P, 0.5, axis=0).astype(np.float32)
    monkeypatch.setattr(
        room.np, "partition", lambda smooth, k, axis: np.repeat(floor[:, None], k + 1, axis=1)
    )
    monkeypatch.setattr(room, "LONGEST", 1e9)
    reach = round(gap * 100 / 2)
    cells = 5.0 / (0.01 * GRID.step)
    expected = plain_search(P, floor, 8.0, reach, 3, cells)
    found = []
    for c in calls(parts(x, 4000), GRID, threshold=8.0, gap=gap, segment=segment, **LEAST):
        first = (c.start[0] - (GRID.length - GRID.hop) / 2) / GRID.hop
        low = c.low[0] / GRID.step + 0.5 - GRID.first
        n_bins = (c.high[0] - c.low[0]) / GRID.step
        found.append((round(first), c.P.shape[1], round(low), round(n_bins), c.P.sum()))
    assert len(expected) > 20
    assert [row[:4] for row in sorted(found)] == [row[:4] for row in expected]
    assert np.allclose([row[4] for row in sorted(found)], [row[4] for row in expected], rtol=1e-4)


def test_closing_by_hand():
    marks = np.zeros((12, 9), dtype=bool)
    marks[0, 0] = marks[2, 0] = marks[5, 3] = marks[5, 5] = marks[11, 8] = True
    expected = marks.copy()
    expected[1, 0] = expected[5, 4] = True
    assert np.array_equal(closing(marks, 1), expected)
    assert closing(marks[:0], 1).shape == (0, 9)


def test_long_sound_is_cut_not_kept_in_memory(monkeypatch):
    monkeypatch.setattr(room, "LONGEST", 2.0)
    t = np.arange(30 * GRID.rate) / GRID.rate
    x = 0.001 * np.random.default_rng(0).standard_normal(len(t)) + 0.3 * np.sin(2 * np.pi * 3000 * t) * (
        t % 10 > 5.05
    )
    found = list(
        calls(parts(x.astype(np.float32), 9000), GRID, threshold=8.0, gap=0.05, segment=12.0, **LEAST)
    )
    assert found and max((c.end[0] - c.start[0]) / GRID.rate for c in found) < 14.1


def test_quiet_recordings_have_no_calls():
    rng = np.random.default_rng(0)
    for x in (np.zeros(GRID.rate), 0.1 * rng.standard_normal(20 * GRID.rate), np.zeros(5)):
        how = {"threshold": 8.0, "gap": 0.05, "min_duration": 0.05, "min_area": 20.0}
        assert not list(calls(parts(x.astype(np.float32), 5000), GRID, **how))


def test_a_known_call_is_found_where_it_is():
    t = np.arange(5 * GRID.rate) / GRID.rate
    x = 0.01 * np.random.default_rng(0).standard_normal(len(t))
    x += 0.2 * np.sin(2 * np.pi * 3000 * t) * ((t > 2) & (t < 2.4))
    (call,) = calls(
        parts(x.astype(np.float32), 5000), GRID, threshold=8.0, gap=0.05, min_duration=0.05, min_area=20
    )
    assert np.allclose([call.start[0] / GRID.rate, call.end[0] / GRID.rate], [2.0, 2.4], atol=0.03)
    assert call.low[0] < 3000 < call.high[0] < 3400 and call.low[0] > 2600


LIMITS = (100.0, 7500.0)


@pytest.mark.parametrize("size", [100, 7000, 10**6])
@pytest.mark.parametrize(
    "seconds, overlap", [(10.0, 0.0), (10.0, 0.4), (40.3, 0.5), (0.4, 0.0), (0.001, 0.0)]
)
def test_windows_are_clips(seconds, overlap, size):
    """Each window is what its samples alone would give, wherever blocks end."""
    x = song(max(seconds, 1.0))[: int(seconds * GRID.rate)]
    n = 0
    for cut in windows(parts(x, size), GRID, 1.0, overlap, LIMITS, True):
        for P, start, end, samples in zip(cut.P, cut.start, cut.end, cut.samples):
            clip = x[int(start) : int(end)]
            assert np.array_equal(samples, clip)
            clip = np.pad(clip, (0, max(GRID.length - len(clip), 0)))
            assert np.allclose(P, powers(clip, GRID), rtol=1e-4, atol=1e-12)
            n += 1
    assert n == (1 if seconds < 1 else {(10.0, 0.0): 10, (10.0, 0.4): 16, (40.3, 0.5): 80}[seconds, overlap])


@pytest.mark.parametrize(
    "seconds, starts",
    [
        (3.0, [0, 1, 2]),
        (3.05, [0, 1, 2]),  # a rest below a tenth of a window
        (3.5, [0, 1, 2, 2.5]),  # a last window that ends with the recording
        (1.0, [0]),
        (0.5, [0]),
    ],
)
def test_the_end_of_a_recording(seconds, starts):
    found = list(windows(parts(song(4)[: int(seconds * GRID.rate)], 5000), GRID, 1.0, 0.0, LIMITS))
    start = np.concatenate([c.start for c in found]) / GRID.rate
    end = np.concatenate([c.end for c in found]) / GRID.rate
    assert np.allclose(start, starts) and np.allclose(end - start, min(seconds, 1.0))
