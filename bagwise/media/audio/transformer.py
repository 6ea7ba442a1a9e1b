"""The transformer from recordings to bags."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Any, ClassVar

import numpy as np

from bagwise.base.parameters import Anything, Choice, Flag, Number, Whole
from bagwise.errors import DataError
from bagwise.media.audio.cut import Cut, calls, windows
from bagwise.media.audio.decode import BLOCK, SUFFIXES, open_recording, ratio, resampled
from bagwise.media.audio.describe import Grid, describe, feature_table, make_grid, spectra
from bagwise.media.audio.exported import ExportedEmbeddings
from bagwise.media.base import COMMON, ToBags
from bagwise.media.parts import Part

Embedding = Callable[[np.ndarray, int], Any] | str | PathLike[str] | None


class AudioToBags(ToBags):
    """Recordings to bags: one bag per recording, one instance per window or call, about 100 numbers for each.

    Files are read in blocks, brought to one working rate and described between ``low`` and ``high`` on one
    grid of 10 ms and about 47 Hz, so that the same sound gives the same numbers whatever the rate of its
    recording, as long as that rate is at least twice ``high``; bands that a recording of a lower rate
    cannot hold are described as silent. What the numbers are says ``docs/audio.md`` and `feature_table`.

    Parameters
    ----------
    cut : {"windows", "calls"}, default="windows"
        Instances are windows of equal length, or calls: patches of time and frequency that stand out from
        the noise. A recording without calls is a bag without instances.
    window : float, default=3.0
        Length of a window in seconds. A recording shorter than that is one instance; see `windows` for the
        end.
    overlap : float, default=0.0
        Seconds that a window shares with the next one.
    rate : int, default=48000
        Working rate in Hz to which all recordings are brought.
    low, high : float, default=50 and 16000
        Frequencies in Hz between which sound is looked at; ``high`` is at most half the working rate. For
        bats, say ``rate=256000, low=15000, high=120000``.
    bands : int, default=28
        Number of mel bands; two numbers of the description for each.
    channel : "mean" or int, default="mean"
        The mean of all channels, or the number of one, from 0.
    threshold : float, default=8.0
        Of calls: dB over the noise floor of their bin.
    gap : float, default=0.05
        Of calls: silence in seconds that is still inside one call.
    min_duration : float, default=0.05
        Of calls: seconds.
    min_area : float, default=20.0
        Of calls: Hz times seconds; 20 is 0.1 s of a tone 200 Hz wide.
    embedding : callable, path or None, default=None
        Something else to describe instances by. A callable is given the samples of each instance (float32,
        mono, at the working rate) and the rate, and returns a vector. A path is that of embeddings written
        by another program (BirdNET, Perch), joined by file and time; see `ExportedEmbeddings`.
    keep_description : bool, default=False
        Whether the description stands before the embedding; without an embedding it is always there.
    n_jobs : int or None, default=None
        Recordings read at once.
    cache : path or None, default=None
        Folder for parts already made.

    See Also
    --------
    bagwise.media.audio.describe.feature_table : names and meaning of the numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.media import AudioToBags
    >>> t = np.arange(7 * 48000) / 48000
    >>> song = np.sin(2 * np.pi * 3000 * t) * (t > 5)
    >>> bags = AudioToBags().fit_transform([(song, 48000)])
    >>> bags.sizes, bags.n_features, bags.instance_info["start"].round(2)
    (array([3]), 103, array([0., 3., 4.]))
    >>> calls = AudioToBags("calls").transform([(song, 48000)])
    >>> calls.instance_info["start"].round(1), calls.instance_info["end"].round(1)
    (array([5.]), array([7.]))
    """

    medium = "audio"
    suffixes = SUFFIXES
    may_be_empty = True
    version = 1

    _parameters: ClassVar = {
        "cut": Choice("windows", "calls"),
        "window": Number(low=0.05, high=600.0),
        "overlap": Number(low=0.0),
        "rate": Whole(1_000, 1_000_000),
        "low": Number(low=0.0),
        "high": Number(above=0.0),
        "bands": Whole(4, 256),
        "channel": (Choice("mean"), Whole(0)),
        "threshold": Number(above=0.0),
        "gap": Number(low=0.0, high=5.0),
        "min_duration": Number(low=0.0),
        "min_area": Number(low=0.0),
        "embedding": (Choice(None), Anything("a callable, a path or None")),
        "keep_description": Flag(),
        **COMMON,
    }

    def __init__(
        self,
        cut: str = "windows",
        *,
        window: float = 3.0,
        overlap: float = 0.0,
        rate: int = 48000,
        low: float = 50.0,
        high: float = 16000.0,
        bands: int = 28,
        channel: str | int = "mean",
        threshold: float = 8.0,
        gap: float = 0.05,
        min_duration: float = 0.05,
        min_area: float = 20.0,
        embedding: Embedding = None,
        keep_description: bool = False,
        n_jobs: int | None = None,
        cache: str | PathLike[str] | None = None,
    ) -> None:
        self.cut = cut
        self.window = window
        self.overlap = overlap
        self.rate = rate
        self.low = low
        self.high = high
        self.bands = bands
        self.channel = channel
        self.threshold = threshold
        self.gap = gap
        self.min_duration = min_duration
        self.min_area = min_area
        self.embedding = embedding
        self.keep_description = keep_description
        self.n_jobs = n_jobs
        self.cache = cache

    def fingerprint(self) -> str | None:
        """As in the base; None with an embedding, which may change behind its name."""
        return super().fingerprint() if self.embedding is None else None

    def _check_settings(self) -> None:
        if self.overlap > 0.95 * self.window:
            raise ValueError(
                f"overlap of AudioToBags must be at most 0.95 of the window ({self.window:g} s), "
                f"got {self.overlap:g}"
            )
        if self.high > self.rate / 2:
            raise ValueError(
                f"high of AudioToBags must be at most half the rate of {self.rate} Hz, got {self.high:g}"
            )
        if self.low > 0.9 * self.high:
            raise ValueError(
                f"low of AudioToBags must be at most 0.9 of high ({self.high:g} Hz), got {self.low:g}"
            )
        if self.embedding is not None and not callable(self.embedding):
            if not isinstance(self.embedding, (str, PathLike)):
                raise ValueError(
                    f"embedding of AudioToBags must be a callable, a path or None, got {self.embedding!r}"
                )

    def _names(self) -> list[str] | None:
        if self.embedding is not None:
            return None  # its width is known when it is seen
        return list(feature_table(self._grid(), self.bands))

    def _grid(self) -> Grid:
        return make_grid(int(self.rate), float(self.low), float(self.high))

    def _part(self, source: Any, block: int = BLOCK) -> Part:
        grid = self._grid()
        rate, blocks, notes = open_recording(source, self.channel, block)
        factor = ratio(rate, grid.rate)
        seconds = float(1 / (rate * factor))  # of one sample at the working rate
        by_callable = self.embedding if callable(self.embedding) else None
        parts, with_samples = spectra(resampled(blocks, factor), grid), by_callable is not None
        if self.cut == "windows":
            limits = (float(self.low), float(min(self.high, rate / 2)))
            found = windows(parts, grid, self.window, self.overlap, limits, with_samples)
        else:
            least = (self.min_duration, self.min_area)
            found = calls(parts, grid, self.threshold, self.gap, *least, with_samples)
        rows, cuts = [], []
        for cut in found:
            if self.embedding is None or self.keep_description:
                rows.append(describe(cut.P, grid, self.bands, (cut.end - cut.start) * seconds))
            else:
                rows.append(np.zeros((len(cut.P), 0), dtype=np.float32))
            if by_callable is not None:
                rows[-1] = np.hstack([rows[-1], _embedded(by_callable, cut, grid.rate, seconds)])
            cuts.append((cut.start * seconds, cut.end * seconds, cut.low, cut.high))
        width = len(feature_table(grid, self.bands)) if self.embedding is None else 0
        X = np.concatenate(rows) if rows else np.zeros((0, width), dtype=np.float32)
        start, end, low, high = (
            (np.concatenate(column) for column in zip(*cuts)) if cuts else [np.zeros(0)] * 4
        )
        if self.embedding is not None and not callable(self.embedding) and len(X):
            X = np.hstack([X, ExportedEmbeddings(self.embedding).rows(source, start, end)])
        if not len(X):
            notes.append(f"holds no call {self.threshold:g} dB over its noise")
        return Part(X, {"start": start, "end": end, "low": low, "high": high}, tuple(notes))


def _embedded(embedding: Callable, cut: Cut, rate: int, seconds: float) -> np.ndarray:
    """Vectors of the samples of each piece."""
    vectors: list[np.ndarray] = []
    for k, samples in enumerate(cut.samples or []):
        vector = np.asarray(embedding(samples, rate), dtype=np.float32)
        if vector.ndim != 1 or len(vector) == 0 or not np.isfinite(vector).all():
            raise DataError(
                f"the embedding must return a vector of finite numbers, got shape {vector.shape} for the "
                f"part at {cut.start[k] * seconds:.2f} s"
            )
        if vectors and len(vector) != len(vectors[0]):
            raise DataError(f"the embedding returned {len(vector)} numbers, before {len(vectors[0])}")
        vectors.append(vector)
    return np.stack(vectors)
