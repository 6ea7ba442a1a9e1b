"""Known labels of parts: which parts of a bag the spans that people drew speak of.

The rule, for every medium: a part carries the label of a span if the span covers **at least half of the
part**, or if **at least half of the span** lies in the part. What is measured is

- in sound, time; where both part and span have a band, time x frequency;
- in pictures and on slides, area; where one of the two is an outline or a mask, the area is counted on a grid
  of points over what their boxes share (every pixel, at most 128 x 128 points);
- in text, characters.

A span without extent (a point, a moment) lies in a part that contains it. A part has one known label: of
several, the one whose spans share most with it; of equals, the first in the order of the names. A part that
no span speaks of stays unknown, also in a file that somebody looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.bags.dataset import UNKNOWN
from bagwise.media.labels.span import Mask, Rings, Span

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
            box = _common_box(places, k, span)
            together[k] *= _share_of_points(box, [[own]] if own is not None else None, span.outline)
    return together, size, whole


def _common_box(places: Mapping[str, np.ndarray], k: int, span: Span) -> tuple[float, float, float, float]:
    left, top, width, height = span.box
    x, y = float(places["x"][k]), float(places["y"][k])
    x0, x1 = max(x, left), min(x + float(places["width"][k]), left + width)
    y0, y1 = max(y, top), min(y + float(places["height"][k]), top + height)
    return x0, max(x0, x1), y0, max(y0, y1)


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
    """Which points lie in a mask, or in one of several polygons with holes.

    Examples
    --------
    >>> triangle = [[np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])]]
    >>> contains(triangle, np.array([1.0, 3.0]), np.array([1.0, 3.0])).tolist()
    [True, False]
    """
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
    """Area of a mask or of polygons: their outer rings less their holes; polygons are taken as apart.

    Examples
    --------
    >>> area([[np.array([[0.0, 0.0], [4.0, 0.0], [4.0, 2.0], [0.0, 2.0]])]])
    8.0
    """
    if isinstance(shape, Mask):
        return shape.area
    sizes = [[_ring_area(ring) for ring in rings] for rings in shape]
    return float(sum(max(size[0] - sum(size[1:]), 0.0) for size in sizes))


def _ring_area(ring: np.ndarray) -> float:
    x, y = ring[:, 0] - ring[0, 0], ring[:, 1] - ring[0, 1]
    return abs(float(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1)))) / 2


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
