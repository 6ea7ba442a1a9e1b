"""Windows of equal length, laid over a recording while it streams by.

Windows begin every ``window - overlap`` seconds (rounded to 10 ms). What is left after the last whole
window, if it is at least a tenth of a window, gets one more window of full length that ends with the
recording and so overlaps the one before; a recording shorter than one window is one instance of its own
length. A window's numbers depend on its samples alone: cut out and saved as a file, it is described alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from bagwise.media.audio.cut import Cut, Stretch
from bagwise.media.audio.spectrum import Grid

TOGETHER = 8  # windows described at once; fixed, so that blocks of reading change no bit
LEFT_OUT = 0.1  # of a window: the longest rest that gets no window


def windows(
    parts: Iterable[tuple[np.ndarray, np.ndarray]],
    grid: Grid,
    window: float,
    overlap: float,
    limits: tuple[float, float],
    with_samples: bool = False,
) -> Iterator[Cut]:
    """Cut a stream of `spectra` into windows.

    Parameters
    ----------
    parts : iterable of (powers, samples)
        As `spectra` gives them.
    grid : Grid
        Frames and bins.
    window, overlap : float
        Seconds.
    limits : (float, float)
        Frequencies in Hz between which windows are said to lie.
    with_samples : bool, default=False
        Whether to keep the samples of each window.
    """
    size = max(round(window * grid.rate), grid.length)  # samples
    n_frames = (size - grid.length) // grid.hop + 1
    step = max(round((window - overlap) * grid.rate / grid.hop), 1)  # frames
    at_hand = Stretch(grid, with_samples)
    following = 0  # frame at which the next window begins

    def cut(first: int, n: int, frames: int, length: int) -> Cut:
        every = np.lib.stride_tricks.sliding_window_view(at_hand.P[first - at_hand.base :], frames, axis=0)
        P = np.ascontiguousarray(every[::step][:n].transpose(0, 2, 1))
        start = (first + step * np.arange(n)) * float(grid.hop)
        end = start + length
        kept = [at_hand.samples(a, b) for a, b in zip(start, end)] if with_samples else None
        return Cut(P, start, end, np.full(n, limits[0]), np.full(n, limits[1]), kept)

    for P, x in parts:
        at_hand.add(P, x)
        while at_hand.end >= following + step * (TOGETHER - 1) + max(-(-size // grid.hop), step):
            yield cut(following, TOGETHER, n_frames, size)
            following += TOGETHER * step
            at_hand.forget(following - n_frames)
    left = (at_hand.end - following - n_frames) // step + 1
    if left > 0:
        yield cut(following, left, n_frames, size)
        following += left * step
    if following == 0:
        yield cut(0, 1, at_hand.end, at_hand.n_samples)
    elif at_hand.n_samples - ((following - step) * grid.hop + size) >= LEFT_OUT * size:
        yield cut((at_hand.n_samples - size) // grid.hop, 1, n_frames, size)
