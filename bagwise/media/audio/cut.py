"""What cutters share: pieces of a recording, and the frames and samples at hand while it streams by."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bagwise.media.audio.spectrum import Grid


class Cut(NamedTuple):
    """Pieces of the same number of frames, cut together.

    Parameters
    ----------
    P : float32 array of shape (n, n_frames, n_bins)
        Powers, zero where a frame and bin are no part of the piece.
    start, end : float64 arrays of shape (n,)
        Samples at the working rate, from the begin of the recording; halves are possible.
    low, high : float64 arrays of shape (n,)
        Hz.
    samples : list of float32 arrays, or None
        What was recorded between start and end, where it was asked for.
    """

    P: np.ndarray
    start: np.ndarray
    end: np.ndarray
    low: np.ndarray
    high: np.ndarray
    samples: list[np.ndarray] | None


class Stretch:
    """The frames (and, if asked for, samples) of a recording from frame ``base`` to where it was read."""

    def __init__(self, grid: Grid, with_samples: bool) -> None:
        self.grid, self.with_samples = grid, with_samples
        self.base = 0  # frame
        self.n_samples = 0  # read so far, from the begin of the recording
        self.P = np.zeros((0, grid.n_bins), dtype=np.float32)
        self._x = np.zeros(0, dtype=np.float32)

    @property
    def end(self) -> int:
        """Frame after the last one read."""
        return self.base + len(self.P)

    def add(self, P: np.ndarray, x: np.ndarray) -> None:
        """Append what was read."""
        self.P = np.concatenate([self.P, P])
        self.n_samples += len(x)
        if self.with_samples:
            self._x = np.concatenate([self._x, x])

    def forget(self, frame: int) -> None:
        """Drop what lies before a frame."""
        drop = min(max(frame - self.base, 0), len(self.P))
        self.P, self.base = self.P[drop:], self.base + drop
        if self.with_samples:
            self._x = self._x[drop * self.grid.hop :]

    def samples(self, start: float, end: float) -> np.ndarray:
        """What was recorded between two samples."""
        first = self.base * self.grid.hop
        return self._x[max(round(start) - first, 0) : max(round(end) - first, 0)].copy()
