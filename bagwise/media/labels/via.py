"""VGG Image Annotator 2 (and 1): projects and annotations in JSON, or its CSV.

The label of a region is its attribute ``label``, ``class``, ``name``, ``type``, ``species`` or
``category``, or its only attribute; ticked boxes are several labels. Attributes of a file count where they
are called ``labels`` or alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bagwise.media.labels._parts import Node, is_label, json_of, polygon
from bagwise.media.labels.span import Notes, Span, ellipse, polygon_box
from bagwise.media.labels.table import Table

_ATTRIBUTES = ("label", "labels", "class", "classes", "species", "category", "name", "type", "object")
_OF_FILES = ("label", "labels", "class", "classes", "species", "tags", "categories", "topics")
_CSV = ("filename", "region_count", "region_shape_attributes", "region_attributes")


def is_via(value: Any) -> bool:
    """Whether a JSON value is a project or the annotations of VIA."""
    if isinstance(value, dict) and "_via_img_metadata" in value:
        return True
    first = next(iter(value.values()), None) if isinstance(value, dict) else None
    return isinstance(first, dict) and "regions" in first and "filename" in first


def is_via_table(table: Table) -> bool:
    """Whether a table has VIA's columns."""
    return table.has(*_CSV[1:]) and table.first("filename", "#filename") is not None


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
    notes.spans = _once(notes.spans)
    return notes


def _once(spans: list[Span]) -> list[Span]:
    """Labels of whole files once, though every region of the file repeats them."""
    seen: set[tuple[str, str | None]] = set()
    kept = []
    for span in spans:
        key = (span.file, span.label)
        if span.is_place or key not in seen:
            kept.append(span)
        if not span.is_place:
            seen.add(key)
    return kept


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
    place = _place(shape)
    for label in _names(given[name]):
        notes.spans.append(Span(file, label, **place))


def _place(shape: Node) -> dict[str, Any]:
    kind = shape["name"].text()

    def number(name: str) -> float:
        return shape[name].number()

    if kind == "rect":
        box = {side: number(side) for side in ("x", "y", "width", "height")}
        if min(box["width"], box["height"]) < 0:
            raise shape.wrong("a box with a negative side")
        return box
    if kind == "point":
        return {"x": number("cx"), "y": number("cy"), "width": 0.0, "height": 0.0}
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
    x0, y0, width, height = polygon_box(outline)
    return {"x": x0, "y": y0, "width": width, "height": height, "outline": outline}
