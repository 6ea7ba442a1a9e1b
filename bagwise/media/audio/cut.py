"""Instances of a recording, cut out while it streams by: windows of equal length, or calls.

Windows begin every ``window - overlap`` seconds (rounded to 10 ms). What is left after the last whole
window, if it is at least a tenth of a window, gets one more window of full length that ends with the
recording and so overlaps the one before; a recording shorter than one window is one instance of its own
length. A window's numbers depend on its samples alone: cut out and saved as a file, it is described alike.

Calls are patches of time and frequency that stand out from the noise:

1. Powers are smoothed over 3 frames and 3 bins.
2. The noise floor of a bin is a low quantile of its smoothed powers over ``SEGMENT`` seconds (the last
   segment takes the rest of the recording with it, so it is up to twice as long). Hum, wind and rain that
   last become floor.
3. What exceeds the floor by ``threshold`` dB is marked, but not the skirts of louder sound: what lies 25 dB
   below the loudest mark within 20 ms and 1500 Hz, or 40 dB below that of all frequencies.
4. Gaps of up to ``gap`` seconds and two bins are closed.
5. Marked cells that touch are one call, if it lasts and covers enough.

Only what later frames may still change is kept: about two segments, and calls that are not yet over. A call
that crosses a segment's end is whole. One that has lasted ``LONGEST`` seconds when a segment ends is cut
there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.ndimage import find_objects, label

from bagwise.media.audio.describe import Grid


class Cut(NamedTuple):
    """Pieces of the same number of frames, cut together."""

    P: (
        np.ndarray
    )  # powers (n, n_frames, n_bins), float32; zero where a frame and bin are no part of the piece
    start: (
        np.ndarray
    )  # (n,) samples at the working rate, from the begin of the recording; halves are possible
    end: np.ndarray
    low: np.ndarray  # (n,) Hz
    high: np.ndarray
    samples: list[np.ndarray] | None  # recorded between start and end, float32, where they were asked for


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


# ---------------------------------------------------------------------- windows


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
    """Cut a stream of `spectra` into windows, in seconds, that are said to lie between ``limits`` in Hz."""
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


# ---------------------------------------------------------------------- calls


SEGMENT = 60.0  # seconds
LONGEST = 30.0  # seconds
QUANTILE = 0.3  # of smoothed powers: where the floor lies; calls may fill 70 % of the time
BINS_CLOSED = 2
NEAR = (25.0, 1500.0)  # dB below the loudest within so many Hz at which its skirts end
FAR = 40.0  # the same across all frequencies: clicks
SKIRT_FRAMES = 2  # frames before and after
_SIGHT = SKIRT_FRAMES + 1  # frames on either side that the marks of a frame depend on


def calls(
    parts: Iterable[tuple[np.ndarray, np.ndarray]],
    grid: Grid,
    threshold: float,
    gap: float,
    min_duration: float,
    min_area: float,
    with_samples: bool = False,
    segment: float = SEGMENT,
) -> Iterator[Cut]:
    """Cut the calls out of a stream of `spectra`, in the order of their segments and starts.

    The threshold is in dB over the noise floor, which is taken over ``segment`` seconds and subtracted from
    the powers of a call; ``gap`` and ``min_duration`` are in seconds, ``min_area`` in Hz times seconds.
    """
    frame = grid.hop / grid.rate
    size = max(round(segment / frame), 8)
    reach = max(round(gap / frame / 2), 0)  # frames by which marks grow on either side before they shrink
    finder = _Finder(grid, threshold, reach, with_samples)
    least = (max(round(min_duration / frame), 1), min_area / (frame * grid.step))
    for P, x in parts:
        finder.at_hand.add(P, x)
        while finder.at_hand.end - finder.marked >= 2 * size:
            yield from finder.segment(finder.marked + size, False, least)
    if finder.at_hand.end > finder.marked:
        yield from finder.segment(finder.at_hand.end, True, least)


class _Finder:
    """Frames and marks that are still needed, and the number of frames that are done with."""

    def __init__(self, grid: Grid, threshold: float, reach: int, with_samples: bool) -> None:
        self.grid, self.reach = grid, reach
        self.factor = np.float32(10.0 ** (threshold / 10.0))
        self.at_hand = Stretch(grid, with_samples)
        self.marked = 0  # frames with marks
        self.marks = np.zeros((0, grid.n_bins), dtype=bool)  # from marks_base to marked
        self.marks_base = 0
        self.open = self.marks  # closed marks of calls that are not over, from open_base on
        self.open_base = 0
        self.floors: list[tuple[int, np.ndarray]] = []  # first frame and floor of each segment still needed

    def segment(self, stop: int, last: bool, least: tuple[int, float]) -> Iterator[Cut]:
        """Mark the frames up to ``stop``, and cut out the calls that are over."""
        self._mark(stop)
        done = stop if last else max(stop - 2 * self.reach, self.open_base + len(self.open))
        # closed marks of the frames from those already closed to done; no longer needed are those before
        start = self.open_base + len(self.open)
        closed = closing(self.marks, self.reach)[start - self.marks_base : done - self.marks_base]
        drop = max(done - 2 * self.reach - self.marks_base, 0)
        self.marks, self.marks_base = self.marks[drop:], self.marks_base + drop
        yield from self._components(np.concatenate([self.open, closed]), done, last, least)
        self.at_hand.forget(min(self.open_base, stop - _SIGHT))
        starts = [first for first, _ in self.floors[1:]]
        while starts and starts[0] <= self.at_hand.base:
            self.floors.pop(0)
            starts.pop(0)

    def _mark(self, stop: int) -> None:
        """Mark the frames up to ``stop``, with some more on either side in sight where there are some."""
        first, base = self.marked, self.at_hand.base
        before = min(_SIGHT, first - base)
        after = min(_SIGHT, self.at_hand.end - stop)
        P = self.at_hand.P[first - before - base : stop + after - base]
        inner = slice(before, len(P) - after)
        # averaged over 3 frames and 3 bins; beyond the edge lies what lies on it
        smooth = np.pad(P, 1, mode="edge")
        smooth = smooth[:-2] + smooth[1:-1] + smooth[2:]
        smooth = smooth[:, :-2] + smooth[:, 1:-1] + smooth[:, 2:]
        smooth *= np.float32(1 / 9)
        k = int(QUANTILE * (stop - first - 1))
        floor = np.partition(smooth[inner].T.copy(), k, axis=1)[:, k]  # sorts fastest along the memory
        self.floors.append((first, floor))
        self.marks = np.concatenate([self.marks, marked(smooth, floor, self.factor, self.grid)[inner]])
        self.marked = stop

    def _components(self, mask: np.ndarray, done: int, last: bool, least: tuple[int, float]) -> Iterator[Cut]:
        base = self.open_base
        numbers, _ = label(mask, structure=np.ones((3, 3)))
        boxes = find_objects(numbers)
        longest = round(LONGEST * self.grid.rate / self.grid.hop)
        going_on = set()
        if not last and len(numbers):
            going_on = {
                k for k in np.unique(numbers[-1]) if k and len(mask) - boxes[k - 1][0].start < longest
            }
        over = [k for k in range(1, len(boxes) + 1) if k not in going_on]
        for k in sorted(over, key=lambda k: (boxes[k - 1][0].start, boxes[k - 1][1].start)):
            box = boxes[k - 1]
            inside = numbers[box] == k
            if len(inside) >= least[0] and inside.sum() >= least[1]:
                yield self._cut(base + box[0].start, box[1].start, inside)
        first = min((boxes[k - 1][0].start for k in going_on), default=len(mask))
        self.open = np.isin(numbers[first:], list(going_on)) if going_on else mask[first:]
        self.open_base = base + first

    def _cut(self, first: int, bin_: int, inside: np.ndarray) -> Cut:
        grid, n = self.grid, len(inside)
        band = slice(bin_, bin_ + inside.shape[1])
        rows = self.at_hand.P[first - self.at_hand.base :][:n, band]
        P = np.zeros((1, n, grid.n_bins), dtype=np.float32)
        starts = np.array([start for start, _ in self.floors])
        which = np.searchsorted(starts, np.arange(first, first + n), side="right") - 1
        floor = np.stack([floor for _, floor in self.floors])[which]
        P[0, :, band] = np.where(inside, np.maximum(rows - floor[:, band], 0.0), 0.0)
        # a frame stands for the hop around its middle
        start = np.array([first * grid.hop + (grid.length - grid.hop) / 2.0])
        end = start + n * grid.hop
        low = (grid.first + bin_ - 0.5) * grid.step
        edges = np.array([low, low + inside.shape[1] * grid.step])
        kept = [self.at_hand.samples(start[0], end[0])] if self.at_hand.with_samples else None
        return Cut(P, start, end, edges[:1], edges[1:], kept)


def over(op: np.ufunc, x: np.ndarray, reach: int, axis: int, outside: float) -> np.ndarray:
    """An associative operation over each value and its ``reach`` neighbours on either side.

    In about log2(reach) passes over whole arrays, many times faster than the filters of SciPy.
    """
    pad = [(0, 0), (0, 0)]
    pad[axis] = (reach, reach)
    y = np.pad(x, pad, constant_values=outside)
    covered, size = 1, 2 * reach + 1
    while covered < size:
        step = min(covered, size - covered)
        y = op(y[:-step], y[step:]) if axis == 0 else op(y[:, :-step], y[:, step:])
        covered += step
    return y


def marked(smooth: np.ndarray, floor: np.ndarray, factor: np.float32, grid: Grid) -> np.ndarray:
    """Cells that stand out from the floor and are no skirts of a louder one.

    A loud tone leaks into all bins where it begins and ends; over a low floor these skirts would tie calls
    together that have nothing in common.
    """
    # A floor of digital silence would mark the faintest hiss.
    marks = smooth > np.maximum(floor, np.float32(1e-13)) * factor
    loud = over(np.maximum, np.where(marks, smooth, np.float32(0)), SKIRT_FRAMES, 0, 0.0)
    marks &= smooth > loud.max(axis=1, keepdims=True) * np.float32(10 ** (-FAR / 10))
    near = over(np.maximum, loud, round(NEAR[1] / grid.step), 1, 0.0)
    return marks & (smooth > near * np.float32(10 ** (-NEAR[0] / 10)))


def closing(marks: np.ndarray, reach: int) -> np.ndarray:
    """Marks with small gaps filled: grown by ``reach`` frames and one bin each way, then shrunk again.

    Outside the marks is neither sound nor silence: nothing grows in from there, and nothing shrinks back
    from it.
    """
    if len(marks) == 0:
        return marks
    bins = BINS_CLOSED // 2
    grown = over(np.logical_or, over(np.logical_or, marks, reach, 0, False), bins, 1, False)
    return over(np.logical_and, over(np.logical_and, grown, reach, 0, True), bins, 1, True)
