"""A picture or a slide: the labelled parts on it, and a heat map for each of the labels that matter most.

Heat is the probability of the label, from pale to dark in a scale that keeps its order in grey and for
readers who do not see all colours; where parts overlap, their mean. A slide is drawn as the map of its tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import ndimage

from bagwise.errors import BagwiseError
from bagwise.media.images.decode import read_picture
from bagwise.media.labels import Found
from bagwise.media.labels.answers import extent
from bagwise.media.labels.span import contains, parse_points
from bagwise.media.places import medium_of
from bagwise.report.media.frame import (
    FAINT,
    INK,
    NO_ORIGINAL,
    caption,
    colours_of,
    head,
    most_seen,
    new_figure,
    rgb,
    shorten,
)

_MAPS = 5  # heat maps beside the picture
_SIDE = 900  # pixels of a picture as drawn
_CELLS = 360  # cells of a heat map along the longer side
_PANEL = 3.3  # inches of the longer side
_HEAT = "YlOrBr"
_LETTER = 0.052  # inches of a letter of a name
_NAMED = 60  # parts up to which each bears its name


def draw(found: Found, names: list[str]) -> tuple[Any, str | None]:
    """Draw one picture or slide."""
    slide = medium_of(found.places) == "slide"
    picture, size = (None, None) if slide else _read(found.path)
    size = size or extent(found.places)
    note = NO_ORIGINAL if picture is None and not slide else None
    seen = most_seen(found.values, found.labels, found.whole, names, _MAPS)
    seen = seen if np.isfinite(found.values).any() else []
    n = 1 + len(seen)
    columns = min(n, 3)
    rows = -(-n // columns)
    x0 = y0 = 0.0  # the whole picture is drawn, or what the tiles of a slide reach
    if slide and len(found.labels):
        x0, y0 = float(found.places["x"].min()), float(found.places["y"].min())
    across, down = float(size[0]) - x0, float(size[1]) - y0
    where = (x0, y0), across, down
    ratio = float(np.clip(across / max(down, 1.0), 0.4, 2.5))
    wide, tall = (_PANEL, _PANEL / ratio) if ratio >= 1 else (_PANEL * ratio, _PANEL)
    figure = new_figure(columns * (wide + 0.25) + 0.85, 0.55 + rows * (tall + 0.42) + 0.2)
    colours = colours_of(found.labels, names)
    heat = None
    for k in range(n):
        axes = _axes(figure, k, columns, wide, tall)
        axes.set_xlim(x0, x0 + across)
        axes.set_ylim(y0 + down, y0)
        if picture is not None:
            shown = picture
            if k:  # pale and without colour, under a heat map
                grey = picture.astype(np.float64) @ [0.299, 0.587, 0.114]
                shown = np.repeat((255 - (255 - grey) * 0.75).astype(np.uint8)[:, :, None], 3, axis=2)
            axes.imshow(shown, extent=(0, size[0], size[1], 0), aspect="auto", interpolation="bilinear")
        if k == 0:
            _parts(axes, found, names, colours, where, slide)
            axes.set_title("tiles" if slide else "parts", size=8.5, color=FAINT, loc="left", pad=3)
            continue
        label = seen[k - 1]
        mean, reach = _raster(found, found.values[:, label], where)
        shape = {"aspect": "auto", "interpolation": "nearest", "alpha": 1.0 if picture is None else 0.72}
        heat = axes.imshow(mean, extent=reach, cmap=_HEAT, vmin=0, vmax=1, **shape)
        peak = np.nanmax(found.values[:, label]) if len(found.values) else np.nan
        mark = "✓ " if names[label] in found.whole else ""
        title = f"{mark}{shorten(names[label], 30)}   highest {peak:.2f}"
        axes.set_title(title, size=8.5, color=INK, loc="left", pad=3)
    if heat is not None:
        _scale(figure, heat)
    head(figure, found, note)
    return figure, note


def _axes(figure: Any, k: int, columns: int, wide: float, tall: float) -> Any:
    width, height = figure.get_size_inches()
    row, column = divmod(k, columns)
    left, below = 0.18 + column * (wide + 0.25), height - 0.55 - (row + 1) * (tall + 0.42) + 0.2
    axes = figure.add_axes((left / width, below / height, wide / width, tall / height))
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_color("#d0d7de")
    return axes


def _read(path: str | None) -> tuple[np.ndarray | None, tuple[float, float] | None]:
    """The upright picture, made small, and its size; None if it cannot be read."""
    if path is None:
        return None, None
    try:
        found = read_picture(path, _SIDE)
    except (BagwiseError, OSError):  # damaged, too large, or no library: the places can still be drawn
        return None, None
    return (found.rgb * 255).astype(np.uint8), (found.width, found.height)


def _rings(found: Found) -> list[np.ndarray]:
    """Outline of every part."""
    places = found.places
    outlines = places.get("polygon")
    rings = []
    for k in range(len(found.labels)):
        ring = None if outlines is None else parse_points(str(outlines[k]))
        if ring is None:
            x, y = float(places["x"][k]), float(places["y"][k])
            x1, y1 = x + float(places["width"][k]), y + float(places["height"][k])
            ring = np.array([[x, y], [x1, y], [x1, y1], [x, y1]])
        rings.append(ring)
    return rings


def _parts(axes: Any, found: Found, names: list[str], colours: Any, where: Any, slide: bool) -> None:
    """Every place in the colour of the label that most speaks there, a name on each field."""
    if slide:
        from matplotlib.collections import PolyCollection

        axes.add_collection(
            PolyCollection(_rings(found), facecolors="#e4e8ec", edgecolors="#c4cad1", linewidths=0.3)
        )
    marked = np.flatnonzero(found.labels >= 0)
    if not len(marked):
        return
    seen = sorted(set(found.labels[marked].tolist()))
    weight = np.nan_to_num(found.values[np.arange(len(found.labels)), np.maximum(found.labels, 0)], nan=1.0)
    layers = np.stack([_raster(found, np.where(found.labels == k, weight, np.nan), where)[0] for k in seen])
    winner = np.where(np.isfinite(layers).any(axis=0), np.nan_to_num(layers, nan=-1.0).argmax(axis=0), -1)
    shades = np.array([rgb(colours[names[k]]) for k in seen] + [(0.0, 0.0, 0.0)])
    alpha = np.where(winner < 0, 0.0, 0.8 if slide else 0.3)
    alpha[_borders(winner)] = 0.95
    (x0, y0), step = where[0], _step(where)
    reach = (x0, x0 + winner.shape[1] * step, y0 + winner.shape[0] * step, y0)
    axes.imshow(
        np.dstack([shades[winner], alpha]), extent=reach, aspect="auto", interpolation="nearest", zorder=2
    )
    fields = list(_fields(winner, layers))
    if slide or len(fields) > _NAMED:
        from matplotlib.patches import Patch

        marks = [Patch(color=colour, label=shorten(name, 24)) for name, colour in colours.items()]
        axes.legend(handles=marks, fontsize=7, loc="upper right", framealpha=0.9, borderpad=0.4)
        return
    for row, column, k, value in fields:
        shown = value if np.isfinite(found.values).any() else np.nan
        _tag(axes, x0 + (column + 0.5) * step, y0 + (row + 0.5) * step, caption(names[seen[k]], shown))


def _borders(winner: np.ndarray) -> np.ndarray:
    """Cells at the edge of a field, two deep."""
    edge = np.zeros(winner.shape, dtype=bool)
    padded = np.pad(winner, 2, constant_values=-1)
    for down, across in ((0, 2), (4, 2), (2, 0), (2, 4), (1, 2), (3, 2), (2, 1), (2, 3)):
        edge |= padded[down : down + winner.shape[0], across : across + winner.shape[1]] != winner
    return edge & (winner >= 0)


def _fields(winner: np.ndarray, layers: np.ndarray) -> Iterator[tuple[int, int, int, float]]:
    """Innermost cell, label and highest value of every field of one label."""
    for k in range(len(layers)):
        numbers, _ = ndimage.label(winner == k)
        for number, place in enumerate(ndimage.find_objects(numbers), 1):
            inside = numbers[place] == number
            depth = ndimage.distance_transform_edt(np.pad(inside, 1))[1:-1, 1:-1]
            row, column = np.unravel_index(int(depth.argmax()), depth.shape)
            top = float(layers[k][place][inside].max())
            yield place[0].start + int(row), place[1].start + int(column), k, top


def _tag(axes: Any, x: float, y: float, text: str) -> None:
    """A name around a point, moved so far that all of it is on the picture."""
    left, right = axes.get_xlim()
    half = (
        0.5 * len(text) * _LETTER * (right - left) / (axes.get_position().width * axes.figure.get_figwidth())
    )
    x = min(max(x, left + half), max(right - half, left + half))
    axes.text(
        x,
        y,
        text,
        size=6.5,
        color=INK,
        va="center",
        ha="center",
        clip_on=True,
        zorder=3,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.78, "pad": 0.7},
    )


def _step(where: Any) -> float:
    return max(where[1], where[2]) / _CELLS


def _raster(found: Found, values: np.ndarray, where: Any) -> tuple[np.ndarray, Any]:
    """Mean value of the parts over each cell, NaN where there is none; and what the cells reach."""
    (x0, y0), wide, tall = where
    step = _step(where)
    nx, ny = max(int(np.ceil(wide / step)), 1), max(int(np.ceil(tall / step)), 1)
    total, count = np.zeros((ny, nx)), np.zeros((ny, nx))
    outlined = "polygon" in found.places
    for ring, value in zip(_rings(found), values):
        if not np.isfinite(value):
            continue
        a, b = np.floor((ring.min(axis=0) - [x0, y0]) / step + 1e-6).astype(int)
        c, d = np.ceil((ring.max(axis=0) - [x0, y0]) / step - 1e-6).astype(int)
        window = (slice(max(b, 0), max(d, 0)), slice(max(a, 0), max(c, 0)))
        inside: Any = 1.0
        if outlined:
            x, y = np.meshgrid(np.arange(nx)[window[1]], np.arange(ny)[window[0]])
            points = x0 + (x.ravel() + 0.5) * step, y0 + (y.ravel() + 0.5) * step
            inside = contains([[ring]], *points).reshape(x.shape).astype(float)
        total[window] += value * inside
        count[window] += inside
    mean = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    return mean, (x0, x0 + nx * step, y0 + ny * step, y0)


def _scale(figure: Any, heat: Any) -> None:
    width, height = figure.get_size_inches()
    axes = figure.add_axes(((width - 0.52) / width, 0.35 / height, 0.1 / width, 1.6 / height))
    bar = figure.colorbar(heat, cax=axes)
    bar.solids.set_alpha(1.0)
    axes.tick_params(labelsize=7, colors=FAINT, length=2)
    axes.set_title("p", size=8, color=FAINT, pad=4)
    bar.outline.set_visible(False)
