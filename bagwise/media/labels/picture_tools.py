"""Objects in pictures: COCO's JSON, read and written, masks, and VGG Image Annotator, read.

COCO. Read: instances (``images``, ``categories``, ``annotations``); every image that is listed counts as
looked at. ``labels`` of an image are ours, for labels of the whole picture. Written: ``coco.json``, a data
set with scores on its annotations, and ``coco_results.json``, the bare list that ``COCO.loadRes`` takes,
without which nothing can be evaluated (it refuses an empty list, which is not written).

Masks come as run lengths, COCO's two forms and the brush strokes of Label Studio. They are kept as the ends
of their runs (`Mask`), so a declared size of a million by a million costs nothing; whatever is read is
bounded by the length of what was written.

VGG Image Annotator 2 (and 1), projects and annotations in JSON, or its CSV: the label of a region is its
attribute ``label``, ``class``, ``name``, ``type``, ``species`` or ``category``, or its only attribute; ticked
boxes are several labels. Attributes of a file count where they are called ``labels`` or alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bagwise.errors import DataError
from bagwise.media.labels._parts import Node, is_label, json_of, polygon
from bagwise.media.labels.span import Mask, Notes, Rings, Span, area, box_corners, ellipse, outlined, point_at
from bagwise.media.labels.table import Table


def is_coco(value: Any) -> bool:
    """Whether a JSON value is a data set of COCO."""
    return isinstance(value, dict) and isinstance(value.get("images"), list) and "annotations" in value


def read_coco(path: Path, value: Any) -> Notes:
    """What a data set of COCO says."""
    notes, root = Notes("COCO annotations"), Node(value, path)
    files: dict[Any, str] = {}
    for image in root["images"].items():
        key, file = _id(image["id"]), image["file_name"].text()
        if key in files:
            raise image.wrong(f"the id {key!r} is used twice")
        files[key] = file
        notes.look(file)
        notes.spans.extend(Span(file, label.text()) for label in image.each("labels"))
    names = {_id(c["id"]): c["name"].text() for c in root.each("categories")}
    for note in root["annotations"].items():
        image_id, category = _id(note["image_id"]), _id(note["category_id"])
        if image_id not in files:
            raise note.wrong(f"image_id {image_id!r} is not among the images")
        if category not in names:
            raise note.wrong(f"category_id {category!r} is not among the categories")
        if is_label(names[category]):
            score, place = note.get("score"), _coco_place(note)
            place["score"] = None if score is None else score.number()
            notes.spans.append(Span(files[image_id], names[category], **place))
    return notes


def _id(node: Node) -> Any:
    return node._expect((int, str), "an id")


def _coco_place(note: Node) -> dict[str, Any]:
    """Box and outline; a whole-picture label where there is neither."""
    outline = _outline(note)
    box = note.get("bbox")
    if box is not None and box.value:
        numbers = box.numbers()
        if len(numbers) != 4 or min(numbers[2:]) < 0:
            raise box.wrong("expected x, y, width and height, the last two not negative")
        x, y, width, height = numbers
        return {"x": x, "y": y, "width": width, "height": height, "outline": outline}
    return {} if outline is None else outlined(outline)


def _outline(note: Node) -> Any:
    node = note.get("segmentation")
    if node is None or not node.value:
        return None
    if isinstance(node.value, list):
        rings = []
        for part in node.items():
            numbers = part.numbers()
            if len(numbers) % 2:
                raise part.wrong(f"a polygon of {len(numbers)} numbers; expected x, y, x, y, ...")
            rings.append(polygon(np.array(numbers).reshape(-1, 2), part))
        return rings
    sizes = [int(n) for n in node["size"].numbers()]
    if len(sizes) != 2:
        raise node.wrong("expected size [height, width]")
    counts = node["counts"].value
    if isinstance(counts, list):
        counts = [int(n) for n in node["counts"].numbers()]
    elif not isinstance(counts, str):
        raise node.wrong("counts must be a list of numbers or a text")
    try:
        return coco_mask(counts, *sizes)
    except DataError as error:
        raise node.wrong(error.message) from None


# ---------------------------------------------------------------------- out


def image(number: int, file: str, size: tuple[float, float], whole: Sequence[str]) -> dict[str, Any]:
    """An entry of ``images``."""
    width, height = map(round, size)
    return {"id": number, "file_name": file, "width": width, "height": height, "labels": list(whole)}


def annotation(number: int, image_id: int, category: int, span: Span) -> dict[str, Any]:
    """An entry of ``annotations``; parts that were joined are several polygons of one object."""
    polygons = span.outline if isinstance(span.outline, list) else [[box_corners(*span.box)]]
    return {
        "id": number,
        "image_id": image_id,
        "category_id": category,
        "bbox": [_short(v) for v in (span.x, span.y, span.width, span.height)],
        "area": _short(union_area(polygons)),
        "iscrowd": 0,
        "segmentation": [[_short(v) for v in rings[0].ravel().tolist()] for rings in polygons],
        **({} if span.score is None else {"score": round(float(span.score), 6)}),
    }


def _short(value: float | None) -> float:
    return round(float(value or 0.0), 2)


def union_area(polygons: list[Rings]) -> float:
    """Area that polygons cover together: exact for boxes along the axes, a sum for others.

    Examples
    --------
    >>> box = np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 2.0]])
    >>> union_area([[box], [box + 1]])
    7.0
    """
    rings = [part[0] for part in polygons]
    if len(rings) == 1 or not all(len(ring) == 4 and len(set(map(tuple, ring))) == 4 for ring in rings):
        return area(polygons)
    boxes = np.array([[*ring.min(axis=0), *ring.max(axis=0)] for ring in rings])
    x, y = np.unique(boxes[:, [0, 2]]), np.unique(boxes[:, [1, 3]])
    covered = np.zeros((len(x) - 1, len(y) - 1), dtype=bool)
    for x0, y0, x1, y1 in boxes:
        covered[slice(*np.searchsorted(x, [x0, x1])), slice(*np.searchsorted(y, [y0, y1]))] = True
    return float((covered * np.outer(np.diff(x), np.diff(y))).sum())


# ---------------------------------------------------------------------- masks as run lengths


_BITS = 8
_MOST_PIXELS = 1 << 40


def coco_mask(counts: str | Sequence[int], height: int, width: int) -> Mask:
    """Read the run lengths of COCO: a list, or its compressed text; runs go down the columns."""
    _check_size(height, width)
    lengths = _uncompressed(counts) if isinstance(counts, str) else list(counts)
    if any(n < 0 for n in lengths):
        raise DataError("run lengths of a mask are never negative")
    total = sum(lengths)
    if total != height * width:
        raise DataError(f"run lengths of a mask add up to {total}, its size is {height} x {width}")
    return Mask(height, width, np.cumsum(np.array(lengths, dtype=np.int64)), True)


def _check_size(height: int, width: int) -> None:
    if height < 0 or width < 0 or height * width > _MOST_PIXELS:
        raise DataError(f"a mask of {height} x {width} pixels cannot be")


def _uncompressed(text: str) -> list[int]:
    """Five bits a character, lowest first; from the fourth value on, differences to that two before."""
    values: list[int] = []
    value = shift = 0
    for letter in text:
        bits = ord(letter) - 48
        if not 0 <= bits < 64 or shift > 60:
            raise DataError(f"{letter!r} cannot stand in a compressed mask")
        value |= (bits & 0x1F) << shift
        shift += 5
        if bits & 0x20:
            continue
        if bits & 0x10:
            value -= 1 << shift
        values.append(value + values[-2] if len(values) > 2 else value)
        value = shift = 0
    if shift:
        raise DataError("a compressed mask ends within a number")
    return values


class _Bits:
    """A stream of bits, the most significant first."""

    def __init__(self, content: bytes) -> None:
        self.content, self.place, self.end = content, 0, _BITS * len(content)

    def take(self, n: int) -> int:
        if self.place + n > self.end:
            raise DataError("a brush mask ends too early")
        first, last = self.place // _BITS, (self.place + n + _BITS - 1) // _BITS
        value = int.from_bytes(self.content[first:last], "big")
        value >>= _BITS * last - self.place - n
        self.place += n
        return value & ((1 << n) - 1)


def brush_mask(rle: Sequence[int], height: int, width: int) -> Mask:
    """Read a brush stroke of Label Studio: four values a pixel, of which the fourth says if it is in."""
    _check_size(height, width)
    try:
        bits = _Bits(bytes(rle))
    except (ValueError, TypeError):
        raise DataError("a brush mask is a list of bytes, 0 to 255") from None
    n_values = bits.take(32)
    if n_values != 4 * height * width:
        raise DataError(f"a brush mask of {n_values} values does not fit {width} x {height} pixels of four")
    word = bits.take(5) + 1
    sizes = [bits.take(4) + 1 for _ in range(4)]
    ends, inside, place = [0], False, 0  # the first run is outside and may be empty
    while place < n_values:
        is_run = bits.take(1)
        count = bits.take(sizes[bits.take(2)]) + 1
        if place + count > n_values:
            raise DataError(f"a brush mask holds more than the {n_values} values that it declares")
        for length in [count] if is_run else [1] * count:
            value, after = bits.take(word) > 0, place + length
            pixels = after // 4 - place // 4  # of these values, those that are the fourth of a pixel
            place = after
            if pixels and value != inside:
                ends.append(ends[-1])
                inside = value
            ends[-1] += pixels
    return Mask(height, width, np.array(ends, dtype=np.int64), False)


# ---------------------------------------------------------------------- VGG Image Annotator


_ATTRIBUTES = ("label", "labels", "class", "classes", "species", "category", "name", "type", "object")
_OF_FILES = ("label", "labels", "class", "classes", "species", "tags", "categories", "topics")
VIA_COLUMNS = ("region_count", "region_shape_attributes", "region_attributes")


def is_via(value: Any) -> bool:
    """Whether a JSON value is a project or the annotations of VIA."""
    if isinstance(value, dict) and "_via_img_metadata" in value:
        return True
    first = next(iter(value.values()), None) if isinstance(value, dict) else None
    return isinstance(first, dict) and "regions" in first and "filename" in first


def read_via(path: Path, value: Any) -> Notes:
    """What a project says."""
    root, notes = Node(value, path), Notes("VIA annotations")
    if "_via_img_metadata" in value:
        root = root["_via_img_metadata"]
    for _, entry in root.pairs():
        file = entry["filename"].text()
        notes.look(file)
        _whole(notes, file, entry.get("file_attributes"))
        regions = entry["regions"]
        listed = regions.items() if isinstance(regions.value, list) else (n for _, n in regions.pairs())
        for region in listed:
            _region(notes, file, region["shape_attributes"], region["region_attributes"])
    return notes


def read_via_table(table: Table) -> Notes:
    """What VIA's CSV says."""
    notes, first = Notes("VIA annotations"), table.first("filename", "#filename") or ""
    for row in table.rows:
        file = table.cell(row, first)

        def cell(name: str, row: Any = row) -> Node:
            value = json_of(table.path, table.cell(row, name) or "{}", row.line)
            return Node(value, table.path, name, row.line)

        notes.look(file)
        _whole(notes, file, cell("file_attributes"))
        if cell("region_shape_attributes").value:
            _region(notes, file, cell("region_shape_attributes"), cell("region_attributes"))
    once: dict[Any, Span] = {}  # labels of whole files, though every region of the file repeats them
    for k, span in enumerate(notes.spans):
        once.setdefault(k if span.is_place else (span.file, span.label), span)
    notes.spans = list(once.values())
    return notes


def _whole(notes: Notes, file: str, attributes: Node | None) -> None:
    if attributes is None or not isinstance(attributes.value, dict):
        return
    for name, node in attributes.pairs():
        if name.lower() in _OF_FILES:
            notes.spans.extend(Span(file, label) for label in _names(node))


def _names(node: Node) -> Iterator[str]:
    """A text, or the boxes that are ticked."""
    if isinstance(node.value, dict):
        names = [name for name, ticked in node.pairs() if ticked.value in (True, 1, "true", "1")]
    else:
        names = [node.text()]
    yield from (name for name in names if is_label(name))


def _region(notes: Notes, file: str, shape: Node, attributes: Node) -> None:
    given = dict(attributes.pairs())
    lower = {name.lower(): name for name in given}
    name = next((lower[name] for name in _ATTRIBUTES if name in lower), None)
    if name is None and len(given) == 1:
        name = next(iter(given))
    if name is None:
        if not given:
            return
        raise attributes.wrong(
            f"which of {', '.join(list(given)[:8])} is the label? Call that attribute 'label'"
        )
    place = _via_place(shape)
    for label in _names(given[name]):
        notes.spans.append(Span(file, label, **place))


def _via_place(shape: Node) -> dict[str, Any]:
    kind = shape["name"].text()

    def number(name: str) -> float:
        return shape[name].number()

    if kind == "rect":
        box = {side: number(side) for side in ("x", "y", "width", "height")}
        if min(box["width"], box["height"]) < 0:
            raise shape.wrong("a box with a negative side")
        return box
    if kind == "point":
        return point_at(number("cx"), number("cy"))
    if kind == "circle":
        outline = ellipse(number("cx"), number("cy"), number("r"), number("r"))
    elif kind == "ellipse":
        turn = shape.get("theta")
        degrees = 0.0 if turn is None else float(np.rad2deg(turn.number()))
        outline = ellipse(number("cx"), number("cy"), number("rx"), number("ry"), degrees)
    elif kind in ("polygon", "polyline"):
        x, y = (shape[name].numbers() for name in ("all_points_x", "all_points_y"))
        if len(x) != len(y):
            raise shape.wrong(f"{len(x)} x and {len(y)} y")
        outline = [polygon(np.array([x, y]).T.reshape(-1, 2), shape)]
    else:
        raise shape.wrong(
            f"a shape called {kind[:40]!r}; known: rect, circle, ellipse, polygon, polyline, point"
        )
    return outlined(outline)
