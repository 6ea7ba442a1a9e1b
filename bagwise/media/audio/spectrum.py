"""Power spectra of short frames, on a grid of time and frequency that is the same for every recording.

Frame k holds the samples ``k * hop`` to ``k * hop + length`` (10 ms and about 21 ms), weighted by a Hann
window. Powers are scaled so that their sum over all frequencies is the mean square of the frame, whatever
the rate; only the bins between ``low`` and ``high`` are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

CHUNK = 128  # frames transformed at once: their samples stay in the cache


class Grid(NamedTuple):
    """Frames and bins at a working rate."""

    rate: int
    hop: int  # samples from frame to frame
    length: int  # samples of a frame
    first: int  # first bin that is kept
    last: int  # last bin that is kept

    @property
    def n_bins(self) -> int:
        """Number of bins kept."""
        return self.last - self.first + 1

    @property
    def step(self) -> float:
        """Hz from bin to bin."""
        return self.rate / self.length

    @property
    def frequencies(self) -> np.ndarray:
        """Hz of each bin that is kept."""
        return np.arange(self.first, self.last + 1) * self.step


def make_grid(rate: int, low: float, high: float) -> Grid:
    """Grid of a working rate: frames of about 21 ms every 10 ms, bins of about 47 Hz from low to high.

    Examples
    --------
    >>> make_grid(48000, 50.0, 16000.0)
    Grid(rate=48000, hop=480, length=1024, first=1, last=341)
    """
    from scipy.fft import next_fast_len

    length = next_fast_len(max(round(rate * 1024 / 48000), 16), real=True)
    step = rate / length
    first = max(int(np.floor(low / step + 0.5)), 1)  # the bin whose range holds low; never that of 0 Hz
    last = max(min(int(np.ceil(high / step - 0.5)), (length - 1) // 2), first + 3)
    return Grid(rate, max(round(rate * 0.01), 1), length, first, last)


def powers(x: np.ndarray, grid: Grid) -> np.ndarray:
    """Power of each whole frame of some samples: (n_frames, n_bins) of float32.

    Examples
    --------
    >>> import numpy as np
    >>> grid = make_grid(48000, 50.0, 16000.0)
    >>> x = np.sin(2 * np.pi * 3000 * np.arange(4800) / 48000).astype(np.float32)
    >>> P = powers(x, grid)
    >>> P.shape, float(P.sum(axis=1).mean().round(3)), float(grid.frequencies[P[0].argmax()])
    ((8, 341), 0.5, 3000.0)
    """
    from scipy.fft import rfft

    n_frames = max((len(x) - grid.length) // grid.hop + 1, 0)
    out = np.empty((n_frames, grid.n_bins), dtype=np.float32)
    if n_frames == 0:
        return out
    window = _window(grid)
    frames = np.lib.stride_tricks.sliding_window_view(x, grid.length)[:: grid.hop]
    for start in range(0, n_frames, CHUNK):
        Z = rfft(frames[start : start + CHUNK] * window, axis=1, workers=1)
        kept = Z[:, grid.first : grid.last + 1]
        part = out[start : start + CHUNK]
        np.multiply(kept.real, kept.real, out=part)
        part += kept.imag**2
    return out


def _window(grid: Grid) -> np.ndarray:
    w = 0.5 - 0.5 * np.cos(2 * np.pi * (np.arange(grid.length) + 0.5) / grid.length)
    # both halves of the spectrum, and Parseval: the sum of powers is the mean square
    return (w * np.sqrt(2.0 / (grid.length * np.sum(w**2)))).astype(np.float32)


def spectra(blocks: Iterable[np.ndarray], grid: Grid) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Powers of a stream of samples, and the samples from each part's first frame to that of the next part.

    Frames are always transformed in the same groups, so that the blocks in which samples come change no
    bit. A recording shorter than one frame is padded with silence to one.
    """
    rest, done = np.zeros(0, dtype=np.float32), 0
    for block in blocks:
        rest = np.concatenate([rest, block])
        n_frames = max((len(rest) - grid.length) // grid.hop + 1, 0) // CHUNK * CHUNK
        if n_frames:
            yield powers(rest[: (n_frames - 1) * grid.hop + grid.length], grid), rest[: n_frames * grid.hop]
            rest = rest[n_frames * grid.hop :]
            done += n_frames
    if done == 0 and len(rest) < grid.length:
        yield powers(np.pad(rest, (0, grid.length - len(rest))), grid), rest
        return
    yield powers(rest, grid), rest
