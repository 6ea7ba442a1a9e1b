"""What people wrote down about files: a label of the whole file, or of a place in it.

A place is a time span with or without a band (``start``, ``end`` in seconds, ``low``, ``high`` in Hz), a box
in pixels with or without an outline inside it (``x``, ``y``, ``width``, ``height``, ``outline``), or a
span of characters (``start_char``, ``end_char``, end exclusive). A span without any of them speaks of the
whole file; without a label it says that somebody looked there and found nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from bagwise.bags import Bags
from bagwise.bags.dataset import UNKNOWN

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
    """One label of a file or of a place in it; see the head of this module for the fields."""

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


def point_at(x: float, y: float) -> dict[str, Any]:
    """What a `Span` is told of a place without extent."""
    return {"x": float(x), "y": float(y), "width": 0.0, "height": 0.0}


def box_corners(x: float, y: float, width: float, height: float) -> np.ndarray:
    """A box as a ring of four points."""
    x1, y1 = x + width, y + height
    return np.array([[x, y], [x1, y], [x1, y1], [x, y1]])


def outlined(outline: list[Rings] | Mask) -> dict[str, Any]:
    """What a `Span` is told of a place with an outline: the box around it, too."""
    if isinstance(outline, Mask):
        x, y, width, height = outline.box()
    else:
        points = np.concatenate([ring for rings in outline for ring in rings])
        x, y, width, height = map(float, [*points.min(axis=0), *np.ptp(points, axis=0)])
    return {"x": x, "y": y, "width": width, "height": height, "outline": outline}


def ellipse(cx: float, cy: float, rx: float, ry: float, degrees: float = 0.0) -> list[Rings]:
    """An ellipse as a polygon of 48 points, turned clockwise as seen on a screen."""
    turn = np.linspace(0, 2 * np.pi, 48, endpoint=False)
    a, b = rx * np.cos(turn), ry * np.sin(turn)
    angle = np.deg2rad(degrees)
    x, y = a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)
    return [[np.stack([cx + x, cy + y], axis=1)]]


# ----------------------------------------------------------------------
# Known labels of parts: which parts of a bag the spans that people drew speak of
#
# The rule, for every medium: a part carries the label of a span if the span covers **at least half of the
# part**, or if **at least half of the span** lies in the part. What is measured is
#
# - in sound, time; where both part and span have a band, time x frequency;
# - in pictures and on slides, area; where one of the two is an outline or a mask, the area is counted on a
#   grid of points over what their boxes share (every pixel, at most 128 x 128 points);
# - in text, characters.
#
# A span without extent (a point, a moment) lies in a part that contains it. A part has one known label:
# of several, the one whose spans share most with it; of equals, the first in the order of the names. A
# part that no span speaks of stays unknown, also in a file that somebody looked at.


_GRID = 128  # points along each side
HALF = 0.5
_SLACK = 1e-9  # a half stays a half when decimals are not exact


def instance_labels(spans: Sequence[Span], bags: Bags, label_names: Sequence[str]) -> np.ndarray:
    """Label of every instance that a span speaks of, -1 for the others; see the rule above.

    Parameters
    ----------
    spans : sequence of Span
        Places with labels, as `read_labels` gives them.
    bags : Bags
        Bags with places; spans go by bag id, which is the file.
    label_names : sequence of str
        Names in the order of the numbers returned; spans of other labels are left out.

    Examples
    --------
    >>> places = {"start": np.array([0.0, 3.0]), "end": np.array([3.0, 6.0])}
    >>> bags = Bags(np.zeros((2, 1)), [0, 2], bag_ids=["a.wav"], instance_info=places)
    >>> instance_labels([Span("a.wav", "wren", start=2.9, end=3.9)], bags, ["robin", "wren"])
    array([-1,  1])
    """
    number = {name: k for k, name in enumerate(label_names)}
    by_file: dict[str, list[Span]] = {}
    for span in spans:
        if span.is_place and span.label in number:
            by_file.setdefault(span.file, []).append(span)
    found = np.full(bags.n_instances, UNKNOWN, dtype=np.int64)
    for i, file in enumerate(bags.bag_ids.tolist()):
        a, b = int(bags.offsets[i]), int(bags.offsets[i + 1])
        if a == b or file not in by_file:
            continue
        places = {name: column[a:b] for name, column in bags.instance_info.items()}
        share = np.zeros((b - a, len(label_names)))
        for span in by_file[file]:
            together, part, whole = shared(places, span)
            counts = (together >= HALF * part - _SLACK * part) | (together >= HALF * whole - _SLACK * whole)
            share[:, number[str(span.label)]] += np.where(counts & (together > 0), together, 0.0)
        carried = share.max(axis=1) > 0
        found[a:b][carried] = share.argmax(axis=1)[carried]
    return found


def shared(places: Mapping[str, np.ndarray], span: Span) -> tuple[np.ndarray, np.ndarray, float]:
    """What each part shares with a span, the size of each part, the size of the span, in one measure.

    Places of another medium share nothing. A point or a moment has a tiny size of its own.
    """
    if span.start is not None and "start" in places:
        return _in_time(places, span)
    if span.start_char is not None and "start_char" in places:
        return _along(places["start_char"], places["end_char"], span.start_char, span.end_char)
    if span.x is not None and "x" in places:
        return _in_area(places, span)
    n = len(next(iter(places.values()), ()))
    return np.zeros(n), np.ones(n), 1.0


def _along(begin: Any, end: Any, first: Any, last: Any) -> tuple[np.ndarray, np.ndarray, float]:
    """Overlap on a line. A moment belongs to the part that begins with it, not to the one that ends there."""
    begin, end = np.asarray(begin, dtype=np.float64), np.asarray(end, dtype=np.float64)
    size = end - begin
    if last <= first:
        return np.where((begin <= first) & (first < end), _tiny(first), 0.0), size, _tiny(first)
    together = np.minimum(end, last) - np.maximum(begin, first)
    return np.maximum(together, 0.0), size, float(last - first)


def _tiny(place: float) -> float:
    return 1e-9 * max(1.0, abs(place))


def _in_time(places: Mapping[str, np.ndarray], span: Span) -> tuple[np.ndarray, np.ndarray, float]:
    time = _along(places["start"], places["end"], span.start, span.end)
    if (span.low is None and span.high is None) or "low" not in places:
        return time
    low, high = np.asarray(places["low"], dtype=np.float64), np.asarray(places["high"], dtype=np.float64)
    unbound = ~(high > low)  # a part without a band, or a point on the frequency axis
    low, high = np.where(unbound, 0.0, low), np.where(unbound, 1e9, high)
    first = 0.0 if span.low is None else span.low
    last = float(high.max()) if span.high is None else span.high
    if last <= first:
        return time
    band = _along(low, high, first, last)
    # A part without a band shares all of the span's, and is covered in frequency by whatever it hears.
    shared_band = np.where(unbound, last - first, band[0])
    size = np.where(unbound, last - first, band[1])
    return time[0] * shared_band, time[1] * size, time[2] * band[2]


def _in_area(places: Mapping[str, np.ndarray], span: Span) -> tuple[np.ndarray, np.ndarray, float]:
    x, y, width, height = span.box
    across = _along(places["x"], places["x"] + places["width"], x, x + width)
    down = _along(places["y"], places["y"] + places["height"], y, y + height)
    together, size, whole = across[0] * down[0], across[1] * down[1], across[2] * down[2]
    outlines = places.get("polygon")
    if span.outline is None and outlines is None:
        return together, size, whole
    if span.outline is not None and span.width and span.height:
        whole = max(area(span.outline), _tiny(whole))
    size = size.copy()
    for k in range(len(together)):
        own = None if outlines is None else parse_points(str(outlines[k]))
        if own is not None:
            size[k] = max(area([[own]]), _tiny(1.0))
        if together[k] > 0:
            left, top = float(places["x"][k]), float(places["y"][k])
            x0, x1 = max(left, x), min(left + float(places["width"][k]), x + width)
            y0, y1 = max(top, y), min(top + float(places["height"][k]), y + height)
            box = (x0, max(x0, x1), y0, max(y0, y1))
            together[k] *= _share_of_points(box, [[own]] if own is not None else None, span.outline)
    return together, size, whole


def _share_of_points(box: tuple[float, float, float, float], *shapes: list[Rings] | Mask | None) -> float:
    """Share of a grid of points over a box that lies in all shapes."""
    x0, x1, y0, y1 = box
    nx, ny = (int(np.clip(np.ceil(side), 1, _GRID)) for side in (x1 - x0, y1 - y0))
    x = x0 + (np.arange(nx) + 0.5) * (x1 - x0) / nx
    y = y0 + (np.arange(ny) + 0.5) * (y1 - y0) / ny
    grid_x, grid_y = (side.ravel() for side in np.meshgrid(x, y))
    inside = np.ones(len(grid_x), dtype=bool)
    for shape in shapes:
        if shape is not None:
            inside &= contains(shape, grid_x, grid_y)
    return float(inside.mean())


def contains(shape: list[Rings] | Mask, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Which points lie in a mask, or in one of several polygons with holes."""
    if isinstance(shape, Mask):
        return shape.contains(x, y)
    inside = np.zeros(len(x), dtype=bool)
    for rings in shape:
        odd = np.zeros(len(x), dtype=bool)
        for ring in rings:
            for (x1, y1), (x2, y2) in zip(ring, np.roll(ring, -1, axis=0)):
                if y1 != y2:
                    crosses = (y1 > y) != (y2 > y)
                    odd ^= crosses & (x < (x2 - x1) * (y - y1) / (y2 - y1) + x1)
        inside |= odd
    return inside


def area(shape: list[Rings] | Mask) -> float:
    """Area of a mask or of polygons: their outer rings less their holes; polygons are taken as apart."""
    if isinstance(shape, Mask):
        return shape.area
    total = 0.0
    for rings in shape:
        points = [(ring[:, 0] - ring[0, 0], ring[:, 1] - ring[0, 1]) for ring in rings]
        sizes = [abs(float(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1)))) / 2 for x, y in points]
        total += max(sizes[0] - sum(sizes[1:]), 0.0)
    return total


def parse_points(text: str) -> np.ndarray | None:
    """The outline of a part from its place, ``"x,y x,y ..."``; None where there is none.

    Examples
    --------
    >>> parse_points("0,0 4,0 4,2").tolist(), parse_points("")
    ([[0.0, 0.0], [4.0, 0.0], [4.0, 2.0]], None)
    """
    numbers = text.replace(",", " ").split()
    if len(numbers) < 6 or len(numbers) % 2:
        return None
    return np.array(numbers, dtype=np.float64).reshape(-1, 2)
