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
        self.end = 0  # frame after the last one read
        self._P = [np.zeros((0, grid.n_bins), dtype=np.float32)]  # joined when they are asked for
        self._x = [np.zeros(0, dtype=np.float32)]

    @property
    def P(self) -> np.ndarray:
        """Powers of the frames from base on."""
        if len(self._P) > 1:
            self._P = [np.concatenate(self._P)]
        return self._P[0]

    def add(self, P: np.ndarray, x: np.ndarray) -> None:
        """Append what was read."""
        self._P.append(P)
        self.end += len(P)
        self.n_samples += len(x)
        if self.with_samples:
            self._x.append(x)

    def forget(self, frame: int) -> None:
        """Drop what lies before a frame."""
        drop = min(max(frame - self.base, 0), self.end - self.base)
        self._P, self.base = [self.P[drop:]], self.base + drop
        if self.with_samples:
            self._x = [np.concatenate(self._x)[drop * self.grid.hop :]]

    def samples(self, start: float, end: float) -> np.ndarray:
        """What was recorded between two samples."""
        first = self.base * self.grid.hop
        if len(self._x) > 1:
            self._x = [np.concatenate(self._x)]
        return self._x[0][max(round(start) - first, 0) : max(round(end) - first, 0)].copy()
