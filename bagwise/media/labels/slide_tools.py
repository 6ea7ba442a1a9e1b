"""Objects on slides in full-resolution pixels: QuPath's GeoJSON, read and written, and XML, read.

QuPath, one file per slide. Read: FeatureCollection, Feature, bare geometry or an array of them, also gzipped;
the label is the classification (``names`` are several), in the forms of old and new versions. Objects without
a classification say nothing. Written: every tile as an object of type ``tile`` with the probability of each
label as a measurement of the same name (*Measure > Show measurement maps* draws them), and a classification
where a label was found. A classification must have a colour, or QuPath refuses the file.

XML of ASAP: the label is the group; Camelyon's groups ``_2`` and ``Exclusion`` are holes cut out of the
others. XML of Pascal VOC, for pictures: the corners are taken as they stand, whatever a tool counts from,
since one pixel decides no overlap.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from bagwise.errors import DataError
from bagwise.media.labels._parts import Node, beside, is_label, number_in, polygon
from bagwise.media.labels.span import Notes, Rings, Span, box_corners, ellipse, outlined, point_at

_GEOMETRIES = {"Point", "MultiPoint", "LineString", "MultiLineString", "Polygon", "MultiPolygon"}
_TYPES = _GEOMETRIES | {"FeatureCollection", "Feature", "GeometryCollection"}


def is_geojson(value: Any) -> bool:
    """Whether a JSON value is GeoJSON."""
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, dict) and str(first.get("type")) in _TYPES


def read_geojson(path: Path, value: Any, root: Path | None = None) -> Notes:
    """What a file of objects says of the slide whose name it bears."""
    file = beside(path, root, [r"\.geojson(\.gz)?$", r"\.json(\.gz)?$"])
    notes = Notes("QuPath objects")
    notes.look(file)
    for feature in _features(Node(value, path)):
        labels = _labels(feature)
        for place in _places(feature) if labels else ():
            notes.spans.extend(Span(file, label, **place) for label in labels)
    return notes


def _features(node: Node) -> Iterator[Node]:
    listed = [node] if isinstance(node.value, dict) else list(node.items())
    for entry in listed:
        if entry["type"].value == "FeatureCollection":
            yield from entry["features"].items()
        elif entry["type"].value == "Feature":
            yield entry


def _labels(feature: Node) -> list[str]:
    properties = feature.get("properties")
    given = None if properties is None else properties.get("classification")
    if given is None:
        return []
    if isinstance(given.value, str):
        names = [given.value]
    elif given.get("names") is not None:
        names = [name.text() for name in given["names"].items()]
    else:
        name = given.get("name")
        names = [] if name is None else [name.text()]
    return [name for name in dict.fromkeys(names) if is_label(name)]


def _places(feature: Node) -> Iterator[dict[str, Any]]:
    geometry = feature.get("geometry")
    if geometry is None:
        return
    kind = geometry["type"].text()
    coordinates = geometry["coordinates"] if kind in _GEOMETRIES else None
    if coordinates is None:
        raise geometry.wrong(f"geometry of type {kind!r}; expected {', '.join(sorted(_GEOMETRIES))}")
    if kind in ("Point", "MultiPoint"):
        points = [coordinates] if kind == "Point" else list(coordinates.items())
        for point in points:
            yield point_at(*Node([point.value], point.path, point.where).points()[0])
        return
    if kind not in ("Polygon", "MultiPolygon"):
        return  # a line has no area
    parts = [coordinates] if kind == "Polygon" else list(coordinates.items())
    outline = [rings for part in parts if (rings := [_ring(ring) for ring in part.items()])]
    if not outline:
        return
    place = outlined(outline)
    if geometry.value.get("isEllipse") is True:
        x, y, width, height = (place[side] for side in ("x", "y", "width", "height"))
        outline = ellipse(x + width / 2, y + height / 2, width / 2, height / 2)
    yield {**place, "outline": None if _is_box(outline) else outline}


def _ring(node: Node) -> np.ndarray:
    points = node.points()
    if len(points) > 1 and (points[0] == points[-1]).all():
        points = points[:-1]
    return polygon(points, node)[0]


def _is_box(outline: list[Rings]) -> bool:
    """Whether it is a rectangle along the axes, whose box says all."""
    ring = outline[0][0]
    if len(outline) > 1 or len(outline[0]) > 1 or len(ring) != 4:
        return False
    two_sides = all(len(np.unique(ring[:, k])) == 2 for k in (0, 1))
    return two_sides and all((a != b).sum() == 1 for a, b in zip(ring, np.roll(ring, -1, axis=0)))


# ---------------------------------------------------------------------- out


def tile(
    file: str,
    row: int,
    box: tuple[float, float, float, float],
    outline: np.ndarray | None,
    label: str | None,
    colour: tuple[int, int, int] | None,
    values: Mapping[str, float],
) -> dict[str, Any]:
    """One part of a slide or picture as an object of QuPath."""
    x, y, width, height = (float(v) for v in box)
    if outline is None:
        outline = box_corners(x, y, width, height)
    ring = outline.round(2).tolist()
    properties: dict[str, Any] = {"objectType": "tile"}
    if label is not None and colour is not None:
        # without colons, at which QuPath cuts a name into derived classes
        properties["classification"] = {"name": label.replace(":", " -"), "color": list(colour)}
    properties["measurements"] = {name: round(float(v), 6) for name, v in values.items() if np.isfinite(v)}
    return {
        "type": "Feature",
        "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{file}#{row}")),
        "geometry": {"type": "Polygon", "coordinates": [[*ring, ring[0]]]},
        "properties": properties,
    }


# ---------------------------------------------------------------------- XML


_HOLES = {"_2", "exclusion"}
_AREAS, _POINTS = {"polygon", "spline", "rectangle"}, {"dot", "pointset"}


def read_xml(path: Path, root: Element, folder: Path | None = None) -> Notes:
    """What an XML file of one of these tools says."""
    reader = {"ASAP_Annotations": _asap, "annotation": _voc}.get(root.tag)
    if reader is None:
        known = "known: ASAP_Annotations, annotation"
        raise DataError(f"XML of an unknown kind, <{str(root.tag)[:40]}>; {known}", path=path)
    return reader(path, root, beside(path, folder, [r"\.xml$"]))


def _asap(path: Path, root: Element, file: str) -> Notes:
    notes, holes, areas = Notes("ASAP annotations"), [], []
    notes.look(file)
    for node in root.iter("Annotation"):
        name, kind = node.get("PartOfGroup", ""), node.get("Type", "").lower()
        name = node.get("Name", "") if not is_label(name) else name
        points = _coordinates(path, node)
        if kind in _POINTS and is_label(name):
            notes.spans.extend(Span(file, name, **point_at(x, y)) for x, y in points)
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
        (low, high), rings = (points.min(axis=0), points.max(axis=0)), [points]
        rings += [hole for hole in holes if (hole >= low).all() and (hole <= high).all()]
        notes.spans.append(Span(file, name, **outlined([rings])))
    return notes


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
