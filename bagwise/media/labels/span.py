"""What people wrote down about files: a label of the whole file, or of a place in it.

A place is a time span with or without a band (``start``, ``end`` in seconds, ``low``, ``high`` in Hz), a box
in pixels with or without an outline inside it (``x``, ``y``, ``width``, ``height``, ``outline``), or a
span of characters (``start_char``, ``end_char``, end exclusive). A span without any of them speaks of the
whole file; without a label it says that somebody looked there and found nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

Rings = list[np.ndarray]  # outlines (n, 2); a point inside an odd number of them is in


class Mask(NamedTuple):
    """Pixels of a picture that belong to something, as runs that begin outside, never unpacked."""

    height: int
    width: int
    ends: np.ndarray  # where each run ends, int64; runs out, in, out, ...
    by_column: bool  # whether the runs go down the columns, as in COCO

    def contains(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Which of these points, in pixels, lie in it."""
        column, row = np.floor(x).astype(np.int64), np.floor(y).astype(np.int64)
        inside = (column >= 0) & (column < self.width) & (row >= 0) & (row < self.height)
        place = column * self.height + row if self.by_column else row * self.width + column
        return inside & (np.searchsorted(self.ends, place, side="right") % 2 == 1)

    @property
    def area(self) -> float:
        """Number of pixels."""
        lengths = np.diff(self.ends, prepend=0)
        return float(lengths[1::2].sum())

    def box(self) -> tuple[float, float, float, float]:
        """The smallest box around it: x, y, width, height; all 0 if it is empty."""
        begins, ends = self.ends[:-1][::2], self.ends[1::2]
        begins, ends = begins[ends > begins], ends[ends > begins] - 1  # first and last pixel of each run
        if not len(begins):
            return 0.0, 0.0, 0.0, 0.0
        length = self.height if self.by_column else self.width
        first, last = begins // length, ends // length
        long = (first != last).any()
        along = (0, length - 1) if long else (int((begins % length).min()), int((ends % length).max()))
        across = (int(first.min()), int(last.max()))
        (x0, x1), (y0, y1) = (across, along) if self.by_column else (along, across)
        return float(x0), float(y0), float(x1 - x0 + 1), float(y1 - y0 + 1)


@dataclass(frozen=True, slots=True)
class Span:
    """One label of a file or of a place in it; see the head of this module for the fields.

    Examples
    --------
    >>> Span("a.wav", "wren", start=1.0, end=2.5).is_place, Span("a.wav", "wren").is_place
    (True, False)
    """

    file: str
    label: str | None
    start: float | None = None
    end: float | None = None
    low: float | None = None
    high: float | None = None
    x: float | None = None
    y: float | None = None
    width: float | None = None
    height: float | None = None
    outline: list[Rings] | Mask | None = None  # polygons, each with its holes
    start_char: int | None = None
    end_char: int | None = None
    score: float | None = None

    @property
    def is_place(self) -> bool:
        """Whether it speaks of a place, not of the whole file."""
        return self.start is not None or self.x is not None or self.start_char is not None

    @property
    def time(self) -> tuple[float, float]:
        """Start and end in seconds, of a span of sound."""
        assert self.start is not None and self.end is not None
        return self.start, self.end

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, width and height in pixels, of a part of a picture."""
        assert self.x is not None and self.y is not None
        assert self.width is not None and self.height is not None
        return self.x, self.y, self.width, self.height

    @property
    def characters(self) -> tuple[int, int]:
        """First character and the one after the last, of a span of text."""
        assert self.start_char is not None and self.end_char is not None
        return self.start_char, self.end_char

    def of(self, file: str) -> Span:
        """The same for a file by another name."""
        return self if file == self.file else replace(self, file=file)

    def whole(self) -> Span:
        """The label as one of the whole file."""
        return Span(self.file, self.label, score=self.score)


@dataclass
class Notes:
    """What one reader found: spans by the names that the tool uses, and what kind they are."""

    kind: str
    spans: list[Span] = field(default_factory=list)
    looked: set[str] = field(default_factory=set)

    def look(self, file: str) -> None:
        """Remember that somebody looked at a file, whether or not something was found."""
        if file not in self.looked:
            self.looked.add(file)
            self.spans.append(Span(file, None))


@dataclass(frozen=True)
class Labels:
    """Labels of files, matched to the files at hand.

    Attributes
    ----------
    bag_labels : dict of str to list of str
        Labels of every file that somebody looked at, sorted; those of its places included.
    spans : list of Span
        Labels of places in files.
    unknown_files : list of str
        Files that the labels speak of, but that are not there.
    files_without : list of str
        Files that the labels do not speak of.
    said : str
        What the labels were taken for, in one line.
    """

    bag_labels: dict[str, list[str]]
    spans: list[Span]
    unknown_files: list[str]
    files_without: list[str]
    said: str

    @property
    def label_names(self) -> list[str]:
        """All labels, sorted."""
        return sorted({label for labels in self.bag_labels.values() for label in labels})


def polygon_box(polygons: list[Rings]) -> tuple[float, float, float, float]:
    """The smallest box around polygons: x, y, width, height.

    Examples
    --------
    >>> polygon_box([[np.array([[1.0, 2.0], [4.0, 2.0], [4.0, 3.0]])]])
    (1.0, 2.0, 3.0, 1.0)
    """
    points = np.concatenate([ring for rings in polygons for ring in rings])
    (x0, y0), (x1, y1) = points.min(axis=0), points.max(axis=0)
    return float(x0), float(y0), float(x1 - x0), float(y1 - y0)


def ellipse(cx: float, cy: float, rx: float, ry: float, degrees: float = 0.0) -> list[Rings]:
    """An ellipse as a polygon of 48 points, turned clockwise as seen on a screen."""
    turn = np.linspace(0, 2 * np.pi, 48, endpoint=False)
    a, b = rx * np.cos(turn), ry * np.sin(turn)
    angle = np.deg2rad(degrees)
    x, y = a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)
    return [[np.stack([cx + x, cy + y], axis=1)]]
