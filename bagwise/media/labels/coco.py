"""COCO's JSON: boxes, polygons and masks of objects in pictures; read and written.

Read: instances (``images``, ``categories``, ``annotations``); every image that is listed counts as looked at.
``labels`` of an image are ours, for labels of the whole picture.

Written: ``coco.json``, a data set with scores on its annotations, and ``coco_results.json``, the bare list
that ``COCO.loadRes`` takes, without which nothing can be evaluated (it refuses an empty list, which is not
written).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bagwise.errors import DataError
from bagwise.media.labels._parts import Node, is_label, polygon
from bagwise.media.labels.overlap import area
from bagwise.media.labels.rle import coco_mask
from bagwise.media.labels.span import Notes, Rings, Span, polygon_box


def is_coco(value: Any) -> bool:
    """Whether a JSON value is a data set of COCO."""
    return isinstance(value, dict) and isinstance(value.get("images"), list) and "annotations" in value


def is_results(value: Any) -> bool:
    """Whether a JSON value is COCO's bare list of results, which names neither files nor categories."""
    return (
        isinstance(value, list) and bool(value) and isinstance(value[0], dict) and "category_id" in value[0]
    )


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
        labels = image.get("labels")
        for label in labels.items() if labels is not None else ():
            notes.spans.append(Span(file, label.text()))
    categories = root.get("categories")
    names = {} if categories is None else {_id(c["id"]): c["name"].text() for c in categories.items()}
    for note in root["annotations"].items():
        image_id, category = _id(note["image_id"]), _id(note["category_id"])
        if image_id not in files:
            raise note.wrong(f"image_id {image_id!r} is not among the images")
        if category not in names:
            raise note.wrong(f"category_id {category!r} is not among the categories")
        if is_label(names[category]):
            score = note.get("score")
            place = _place(note)
            spans = Span(
                files[image_id], names[category], score=None if score is None else score.number(), **place
            )
            notes.spans.append(spans)
    return notes


def _id(node: Node) -> Any:
    return node._expect((int, str), "an id")


def _place(note: Node) -> dict[str, Any]:
    """Box and outline; a whole-picture label where there is neither."""
    outline = _outline(note)
    box = note.get("bbox")
    if box is not None and box.value:
        numbers = box.numbers()
        if len(numbers) != 4 or min(numbers[2:]) < 0:
            raise box.wrong("expected x, y, width and height, the last two not negative")
        x, y, width, height = numbers
    elif outline is None:
        return {}
    else:
        x, y, width, height = outline.box() if not isinstance(outline, list) else polygon_box(outline)
    return {"x": x, "y": y, "width": width, "height": height, "outline": outline}


def _outline(note: Node) -> Any:
    node = note.get("segmentation")
    if node is None or not node.value:
        return None
    if isinstance(node.value, list):
        return [polygon(_points(part), part) for part in node.items()]
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


def _points(part: Node) -> np.ndarray:
    numbers = part.numbers()
    if len(numbers) % 2:
        raise part.wrong(f"a polygon of {len(numbers)} numbers; expected x, y, x, y, ...")
    return np.array(numbers).reshape(-1, 2)


# ---------------------------------------------------------------------- out


def image(number: int, file: str, size: tuple[float, float], whole: Sequence[str]) -> dict[str, Any]:
    """An entry of ``images``."""
    return {
        "id": number,
        "file_name": file,
        "width": round(size[0]),
        "height": round(size[1]),
        "labels": list(whole),
    }


def annotation(number: int, image_id: int, category: int, span: Span) -> dict[str, Any]:
    """An entry of ``annotations``; parts that were joined are several polygons of one object."""
    polygons: list[Rings]
    if isinstance(span.outline, list):
        polygons = span.outline
    else:
        assert (
            span.x is not None and span.y is not None and span.width is not None and span.height is not None
        )
        x0, y0, x1, y1 = span.x, span.y, span.x + span.width, span.y + span.height
        polygons = [[np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]])]]
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
