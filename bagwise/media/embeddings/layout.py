"""Which arrays of a file are features, which are coordinates, and how many bags they are.

====================================  =====================================================================
``features`` (+ ``coords``)           one bag: CLAM, TRIDENT, and any file with one table of numbers
groups with ``features`` in each      a bag per group, called by its path
``features`` and ``offsets``          bags in a row: bag i is rows offsets[i] to offsets[i + 1]
several tables and none so called     a bag per table, called by its name
====================================  =====================================================================

Features may be (n, d), (1, n, d) or, for one vector, (d,). Coordinates are the top left corners of tiles
(x, y) in pixels of level 0, or (x, y, width, height). Arrays are known by their shapes before they are read;
shapes that cannot be true are refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bagwise.errors import BagwiseError, DataError, in_one_line, listed
from bagwise.media.parts import Part

__all__ = ["Stored", "check_claim", "parts_of", "reading_as"]

FEATURES = ("features", "feats", "embeddings", "embedding", "feature", "x", "data")
COORDS = ("coords", "coordinates", "coord", "positions", "locations", "xy")
_SPACED = "has no size of its tiles; the distance between them, {:g} pixels, was taken (or give tile_size=)"
_OTHER = "has coordinates of {} columns in place of x and y; they were left out"
# What an array may take in memory whatever its file, and how many times its file: zeros shrink well.
_ALWAYS = 1 << 28
_TIMES = 100


@dataclass(frozen=True)
class Stored:
    """An array that is read when asked for; ``attrs`` are the facts that its file keeps beside it."""

    shape: tuple[int, ...]
    kind: str  # of its numbers, as NumPy names kinds: f, i, u, b; another letter is no number
    read: Callable[[], Any]
    attrs: Mapping[str, Any] = field(default_factory=dict)


def check_claim(path: str, shape: tuple[int, ...], itemsize: int, what: str) -> None:
    """Refuse an array that claims far more bytes than its file could hold."""
    if any(n < 0 for n in shape):
        raise DataError(f"{what} declares the shape {shape}")
    claimed = float(itemsize)
    for n in shape:
        claimed *= n
    if claimed > max(_ALWAYS, _TIMES * _size(path)):
        raise DataError(
            f"{what} declares {' x '.join(map(str, shape))} numbers, {claimed:.3g} bytes in a file of "
            f"{_size(path):,}"
        )


def _size(path: str) -> int:
    if not os.path.isdir(path):
        return os.path.getsize(path)
    return sum(os.path.getsize(os.path.join(folder, f)) for folder, _, files in os.walk(path) for f in files)


@contextmanager
def reading_as(kind: str) -> Iterator[None]:
    """Turn whatever a decoder raises over a damaged file into one line."""
    try:
        yield
    except BagwiseError:
        raise
    except Exception as error:  # decoders fail in their own ways
        raise DataError(f"cannot be read as {kind} ({in_one_line(error)})") from None


def as_float(X: np.ndarray) -> np.ndarray:
    """Numbers as float32, wide ones as float64; no copy where none is needed, nor for half precision.

    The base turns half precision into single while it puts bags together, which spares a copy.
    """
    if X.dtype.kind == "f" and X.dtype.itemsize in (2, 4, 8):
        return X if X.dtype.isnative else X.astype(X.dtype.newbyteorder("="))
    return X.astype(np.float32 if X.dtype.itemsize <= 2 else np.float64)


def all_finite(X: np.ndarray) -> bool:
    """Whether no number is infinite or undefined, without a copy of the size of the whole."""
    if X.dtype == np.float16:
        rows = max((1 << 20) // max(X.shape[1], 1), 1)
        bits = X.view(np.uint16) if X.flags.c_contiguous else np.ascontiguousarray(X).view(np.uint16)
        return all((bits[k : k + rows] & 0x7C00).max() < 0x7C00 for k in range(0, len(bits), rows))
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(X.sum())) or bool(np.isfinite(X).all())  # a sum may overflow by itself


# ---------------------------------------------------------------------- bags of a file


def parts_of(
    arrays: Mapping[str, Stored], features: str | None, coords: str | None, tile_size: float | None
) -> list[tuple[str, Part]]:
    """Bags of a file, each with its name inside; "" for a file that is one bag."""
    numbers = {name: a for name, a in arrays.items() if a.kind in "fiub"}
    found = []
    for group in ["", *sorted({name.rpartition("/")[0] for name in numbers if "/" in name})]:
        # full names of the arrays that lie directly in the group, by their own name
        inner = {name.rpartition("/")[2]: name for name in numbers if name.rpartition("/")[0] == group}
        key, where = _pick(inner, features, FEATURES), _pick(inner, coords, COORDS)
        if key is None:
            continue
        if not group and "offsets" in arrays and key != "offsets":
            return _rows_of_bags(arrays, key, where, tile_size)
        found.append((group, _part(numbers[key], numbers.get(where or ""), tile_size)))
        if not group:
            break  # what lies at the root is the whole file
    if found:
        return found
    tables = [name for name, a in numbers.items() if len(a.shape) == 2 and a.kind == "f"]
    if features is None and tables:
        return [("" if len(tables) == 1 else name, _part(numbers[name], None, tile_size)) for name in tables]
    wanted = f"array {features!r}" if features else "table of features"
    shown = listed(f"{name[:40]} {a.shape}" for name, a in arrays.items())
    raise DataError(f"holds no {wanted}; it holds {shown or 'no arrays at all'} (see features=)")


def _pick(inner: Mapping[str, str], given: str | None, usual: tuple[str, ...]) -> str | None:
    if given is not None:
        return inner.get(given)
    by_name = {name.lower(): full for name, full in inner.items()}
    return next((by_name[name] for name in usual if name in by_name), None)


def _table(stored: Stored) -> np.ndarray:
    """Features as rows."""
    shape = stored.shape
    if len(shape) == 3 and shape[0] == 1:
        shape = shape[1:]
    elif len(shape) == 1:
        shape = (0, 0) if shape[0] == 0 else (1, shape[0])
    if len(shape) != 2:
        raise DataError(f"features should be a table of numbers, their shape is {stored.shape}")
    return as_float(np.asarray(stored.read())).reshape(shape)


def _part(features: Stored, coords: Stored | None, tile_size: float | None) -> Part:
    X = _table(features)
    if coords is None:
        return Part(X, {})
    attrs = {**features.attrs, **coords.attrs}
    return _placed(X, np.asarray(coords.read()), attrs, tile_size)


def _placed(X: np.ndarray, coords: np.ndarray, attrs: Mapping[str, Any], tile_size: float | None) -> Part:
    if coords.ndim == 3 and coords.shape[0] == 1:
        coords = coords[0]
    if not coords.size and not len(X):
        coords = coords.reshape(0, 2)
    if coords.ndim != 2 or len(coords) != len(X):
        raise DataError(f"has features of {len(X)} tiles, but coordinates of shape {coords.shape}")
    places = coords.astype(np.float64)
    if not np.isfinite(places).all():
        raise DataError("has coordinates that are not finite")
    level = int(_number(attrs, "patch_level") or 0)
    notes: tuple[str, ...] = ()
    if places.shape[1] == 4:
        wide, high = places[:, 2], places[:, 3]
    elif places.shape[1] == 2:
        size = tile_size or _level0_size(attrs)
        if size is None:
            # the smallest distance between columns or rows of tiles; 1 where there is one tile alone
            steps = [np.diff(np.unique(places[:, axis])) for axis in (0, 1)]
            size = min((float(step.min()) for step in steps if len(step)), default=1.0)
            notes = (_SPACED.format(size),) if len(places) else ()
        wide = high = np.full(len(places), float(size))
    else:
        return Part(X, {}, (_OTHER.format(places.shape[1]),))
    columns = {"x": places[:, 0], "y": places[:, 1], "width": wide, "height": high}
    columns = {name: column.copy() for name, column in columns.items()}
    return Part(X, {**columns, "level": np.full(len(places), level, dtype=np.int64)}, notes)


def _level0_size(attrs: Mapping[str, Any]) -> float | None:
    """Side of a tile in pixels of level 0, as TRIDENT or CLAM keep it."""
    size = _number(attrs, "patch_size_level0")
    if size is not None:
        return size
    size = _number(attrs, "patch_size")
    if size is None:
        return None
    source, target = _number(attrs, "level0_magnification"), _number(attrs, "target_magnification")
    if source is not None and target:
        return size * source / target
    return size * (_number(attrs, "downsample") or 1.0)


def _number(attrs: Mapping[str, Any], name: str) -> float | None:
    """A positive number among the facts of a file; of a pair the first; None if there is none."""
    try:
        value = float(np.ravel(attrs[name])[0])
    except (KeyError, ValueError, TypeError, IndexError):
        return None
    return value if np.isfinite(value) and value > 0 else None


def _rows_of_bags(
    arrays: Mapping[str, Stored], root: str, where: str | None, tile_size: float | None
) -> list[tuple[str, Part]]:
    offsets = np.asarray(arrays["offsets"].read()).ravel()
    n = arrays[root].shape[0]
    if offsets.dtype.kind not in "iu" or len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != n:
        raise DataError(f"offsets should run from 0 to {n}, the number of rows of features")
    offsets = offsets.astype(np.int64)
    if (np.diff(offsets) < 0).any():
        raise DataError("offsets should not decrease")
    X = _table(arrays[root])
    coords = None if where is None else np.asarray(arrays[where].read())
    attrs = {**arrays[root].attrs, **({} if where is None else arrays[where].attrs)}
    names = _bag_names(arrays, attrs, len(offsets) - 1)
    found = []
    for name, start, end in zip(names, offsets[:-1].tolist(), offsets[1:].tolist()):
        rows = X[start:end]
        part = Part(rows, {}) if coords is None else _placed(rows, coords[start:end], attrs, tile_size)
        found.append((name, part))
    return found


def _bag_names(arrays: Mapping[str, Stored], attrs: Mapping[str, Any], n: int) -> list[str]:
    """Names kept beside the bags, in JSON or as a list; else their numbers from 1."""
    for key in ("bag_ids", "names", "ids"):
        value = attrs.get(key)
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                continue
        if value is not None and not isinstance(value, (str, bytes, dict)) and np.size(value) == n:
            names = [str(name) for name in np.ravel(value)]
            if len(set(names)) == n:
                return names
    return [str(k + 1) for k in range(n)]
