"""QuPath's GeoJSON: objects on a slide in full-resolution pixels; read, and written one per slide.

Read: FeatureCollection, Feature, bare geometry or an array of them, also gzipped; the label is the
classification (``names`` are several), in the forms of old and new versions. Objects without a
classification say nothing.

Written: every tile as an object of type ``tile`` with the probability of each label as a measurement of the
same name (*Measure > Show measurement maps* draws them), and a classification where a label was found. A
classification must have a colour, or QuPath refuses the file.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bagwise.media.labels._parts import Node, beside, is_label, polygon
from bagwise.media.labels.span import Notes, Rings, Span, ellipse, polygon_box

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
            (x, y) = Node([point.value], point.path, point.where).points()[0]
            yield {"x": float(x), "y": float(y), "width": 0.0, "height": 0.0}
        return
    if kind not in ("Polygon", "MultiPolygon"):
        return  # a line has no area
    parts = [coordinates] if kind == "Polygon" else list(coordinates.items())
    outline = [[_ring(ring) for ring in part.items()] for part in parts]
    outline = [rings for rings in outline if rings]
    if not outline:
        return
    x, y, width, height = polygon_box(outline)
    if geometry.value.get("isEllipse") is True:
        outline = ellipse(x + width / 2, y + height / 2, width / 2, height / 2)
    yield {"x": x, "y": y, "width": width, "height": height, "outline": _unless_box(outline)}


def _ring(node: Node) -> np.ndarray:
    points = node.points()
    if len(points) > 1 and (points[0] == points[-1]).all():
        points = points[:-1]
    return polygon(points, node)[0]


def _unless_box(outline: list[Rings]) -> list[Rings] | None:
    """None for a rectangle along the axes, whose box says all."""
    ring = outline[0][0]
    corners = len(outline) == 1 and len(outline[0]) == 1 and len(ring) == 4
    if corners and all(len(np.unique(ring[:, k])) == 2 for k in (0, 1)):
        if all((a != b).sum() == 1 for a, b in zip(ring, np.roll(ring, -1, axis=0))):
            return None
    return outline


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
    """One part of a slide or picture as an object of QuPath.

    Examples
    --------
    >>> feature = tile("s.svs", 0, (0, 0, 512, 512), None, "tumour", (213, 94, 0), {"tumour": 0.93})
    >>> feature["geometry"]["coordinates"], feature["properties"]["measurements"]
    ([[[0.0, 0.0], [512.0, 0.0], [512.0, 512.0], [0.0, 512.0], [0.0, 0.0]]], {'tumour': 0.93})
    """
    x, y, width, height = (float(v) for v in box)
    if outline is None:
        outline = np.array([[x, y], [x + width, y], [x + width, y + height], [x, y + height]])
    ring = outline.round(2).tolist()
    properties: dict[str, Any] = {"objectType": "tile"}
    if label is not None and colour is not None:
        properties["classification"] = {"name": class_name(label), "color": list(colour)}
    properties["measurements"] = {name: round(float(v), 6) for name, v in values.items() if np.isfinite(v)}
    return {
        "type": "Feature",
        "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{file}#{row}")),
        "geometry": {"type": "Polygon", "coordinates": [[*ring, ring[0]]]},
        "properties": properties,
    }


def class_name(label: str) -> str:
    """A label without the colon, at which QuPath cuts a name into derived classes."""
    return label.replace(":", " -")
