"""Annotations in XML: ASAP and Camelyon for slides, Pascal VOC for pictures.

ASAP: the label is the group; Camelyon's groups ``_2`` and ``Exclusion`` are holes cut out of the others.
VOC: the corners are taken as they stand, whatever a tool counts from, since one pixel decides no overlap.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from bagwise.errors import DataError
from bagwise.media.labels._parts import beside, is_label, number_in
from bagwise.media.labels.span import Notes, Rings, Span, polygon_box

_HOLES = {"_2", "exclusion"}
_AREAS, _POINTS = {"polygon", "spline", "rectangle"}, {"dot", "pointset"}


def read_xml(path: Path, root: Element, folder: Path | None = None) -> Notes:
    """What an XML file of one of these tools says."""
    if root.tag == "ASAP_Annotations":
        return _asap(path, root, beside(path, folder, [r"\.xml$"]))
    if root.tag == "annotation":
        return _voc(path, root, beside(path, folder, [r"\.xml$"]))
    raise DataError(
        f"XML of an unknown kind, <{str(root.tag)[:40]}>; known: ASAP_Annotations, annotation", path=path
    )


def _asap(path: Path, root: Element, file: str) -> Notes:
    notes, holes, areas = Notes("ASAP annotations"), [], []
    notes.look(file)
    for node in root.iter("Annotation"):
        name, kind = node.get("PartOfGroup", ""), node.get("Type", "").lower()
        name = node.get("Name", "") if not is_label(name) else name
        points = _coordinates(path, node)
        if kind in _POINTS and is_label(name):
            place: dict[str, Any]
            for x, y in points:
                place = {"x": float(x), "y": float(y), "width": 0.0, "height": 0.0}
                notes.spans.append(Span(file, name, **place))
        elif kind in _AREAS:
            if len(points) < 3:
                raise DataError(
                    f"annotation {node.get('Name')!r} has {len(points)} points, expected 3", path=path
                )
            if name.lower() in _HOLES:
                holes.append(points)
            elif is_label(name):
                areas.append((name, points))
    for name, points in areas:
        rings = [points, *(hole for hole in holes if _within(hole, points))]
        x, y, width, height = polygon_box([[points]])
        outline: list[Rings] = [rings]
        notes.spans.append(Span(file, name, x=x, y=y, width=width, height=height, outline=outline))
    return notes


def _within(hole: np.ndarray, ring: np.ndarray) -> bool:
    low, high = (hole.min(axis=0) >= ring.min(axis=0)).all(), (hole.max(axis=0) <= ring.max(axis=0)).all()
    return bool(low and high)


def _coordinates(path: Path, node: Element) -> np.ndarray:
    rows = []
    for k, point in enumerate(node.iter("Coordinate")):
        order, x, y = (point.get(name, "") for name in ("Order", "X", "Y"))
        place = number_in(order, "Order", path, None) if order else float(k)
        rows.append((place, number_in(x, "X", path, None), number_in(y, "Y", path, None)))
    rows.sort(key=lambda row: row[0])
    return np.array([row[1:] for row in rows]).reshape(-1, 2)


def _voc(path: Path, root: Element, own: str) -> Notes:
    name = (root.findtext("filename") or "").strip()
    # The name of the XML file tells the folder; a name inside that says another file is believed.
    file = name if name and name.rpartition(".")[0] != own.rpartition("/")[2] else own
    notes = Notes("Pascal VOC annotations")
    notes.look(file)
    for k, node in enumerate(root.iter("object"), 1):
        label, box = (node.findtext("name") or "").strip(), node.find("bndbox")
        if box is None:
            raise DataError(f"object {k} has no bndbox", path=path)
        sides = ("xmin", "ymin", "xmax", "ymax")
        x0, y0, x1, y1 = (number_in(box.findtext(s) or "", f"object {k}, {s}", path, None) for s in sides)
        if x1 < x0 or y1 < y0:
            raise DataError(f"object {k} ends before it begins", path=path)
        if is_label(label):
            notes.spans.append(Span(file, label, x=x0, y=y0, width=x1 - x0, height=y1 - y0))
    return notes
