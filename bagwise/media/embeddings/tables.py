"""Embeddings in a table: a row per instance with a list of numbers, or a row per bag with a list of lists."""

from __future__ import annotations

import csv
import io
import os
from typing import Any

import numpy as np

from bagwise.errors import DataError
from bagwise.media.embeddings.layout import COORDS, FEATURES, _placed, as_float, refused
from bagwise.media.parts import Part

__all__ = ["SUFFIXES", "parts_of_table"]

SUFFIXES = (".parquet", ".csv", ".tsv")
_IDS = (
    "bag_id",
    "bag",
    "slide_id",
    "slide",
    "file",
    "file_path",
    "filename",
    "file_name",
    "image",
    "id",
    "name",
)
_X = ("x", "coord_x", "x_coord", "left")
_Y = ("y", "coord_y", "y_coord", "top")
_SIDES = ("width", "height")
_MAX_BYTES = 4 << 30


def parts_of_table(
    path: str, features: str | None, coords: str | None, id_column: str | None, tile_size: float | None
) -> list[tuple[str, Part]]:
    """Bags of a table, called by their id."""
    columns = _parquet(path) if path.lower().endswith(".parquet") else _text_table(path)
    key = _column(columns, features, FEATURES, "features")
    name = _column(columns, id_column, _IDS, "id_column")
    ids = [str(value) for value in columns[name]()]
    values = columns[key]()
    where = _optional(columns, coords, COORDS)
    places = columns[where]() if where else None
    if len(values) and isinstance(values, list) and _is_nested(values):
        return _row_per_bag(ids, values, places, tile_size)
    X = _matrix(values, key)
    return _row_per_instance(ids, X, places, columns, tile_size)


def _row_per_bag(ids: list[str], values: list[Any], places: Any, tile_size: float | None) -> list[Any]:
    if len(set(ids)) < len(ids):
        raise DataError("an id comes twice among rows that are bags")
    found = []
    for k, (name, rows) in enumerate(zip(ids, values)):
        X = _matrix(rows, f"row {k + 1}")
        if places is None:
            found.append((name, Part(X, {})))
        else:
            found.append((name, _placed(X, _matrix(places[k], f"row {k + 1}"), {}, tile_size)))
    return found


def _row_per_instance(
    ids: list[str], X: np.ndarray, places: Any, columns: Any, tile_size: float | None
) -> list[Any]:
    order: dict[str, list[int]] = {}
    for row, name in enumerate(ids):
        order.setdefault(name, []).append(row)
    where = _matrix(places, "coords") if places is not None else _corners(columns)
    found = []
    for name, rows in order.items():
        if where is None:
            found.append((name, Part(X[rows], {})))
        else:
            found.append((name, _placed(X[rows], where[rows], {}, tile_size)))
    return found


def _corners(columns: Any) -> np.ndarray | None:
    x, y = _optional(columns, None, _X), _optional(columns, None, _Y)
    if x is None or y is None:
        return None
    names = [x, y]
    if all(side in columns for side in _SIDES):
        names += _SIDES
    try:
        return np.column_stack([np.asarray(columns[name](), dtype=np.float64) for name in names])
    except (ValueError, TypeError):
        raise DataError(f"columns {', '.join(names)} should hold numbers") from None


def _is_nested(values: list[Any]) -> bool:
    first = next((v for v in values if v is not None and len(v)), None)
    return first is not None and not np.isscalar(first[0]) and first[0] is not None


def _matrix(values: Any, what: str) -> np.ndarray:
    """Lists of equal length as rows."""
    if isinstance(values, np.ndarray) and values.ndim == 2:
        return as_float(values)
    try:
        X = np.array([np.asarray(row, dtype=np.float32) for row in values], dtype=np.float32)
    except (ValueError, TypeError):
        raise DataError(f"the lists in {what} should hold numbers and be of one length") from None
    if X.size == 0:
        return np.zeros((0, 0), dtype=np.float32)
    if X.ndim != 2:
        raise DataError(f"{what} should hold lists of numbers")
    return X


def _parquet(path: str) -> dict[str, Any]:
    """Columns of a Parquet file, read when asked for."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        schema = file.schema_arrow
        size = sum(file.metadata.row_group(k).total_byte_size for k in range(file.metadata.num_row_groups))
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise refused(error, "Parquet") from None
    if size > max(_MAX_BYTES, 100 * os.path.getsize(path)):
        raise DataError(f"declares {size:,} bytes in a file of {os.path.getsize(path):,}")

    def read(name: str) -> Any:
        try:
            return _arrow_values(file.read(columns=[name]).column(0).combine_chunks())
        except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
            raise refused(error, "Parquet") from None

    return {name: (lambda name=name: read(name)) for name in schema.names}


def _arrow_values(array: Any) -> Any:
    """A column as values; lists of numbers of one length as a matrix without going through Python."""
    import pyarrow as pa

    if hasattr(array, "chunks"):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else array
    kind = array.type
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and pa.types.is_floating(kind.value_type):
        starts = np.asarray(array.offsets)
        lengths = np.diff(starts)
        if len(lengths) and not array.null_count and (lengths == lengths[0]).all() and lengths[0]:
            inner = array.values.slice(starts[0], starts[-1] - starts[0])
            return inner.to_numpy(zero_copy_only=False).reshape(len(lengths), -1)
    if pa.types.is_fixed_size_list(kind) and pa.types.is_floating(kind.value_type) and not array.null_count:
        return array.flatten().to_numpy(zero_copy_only=False).reshape(len(array), kind.list_size)
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        return array.to_numpy(zero_copy_only=False)
    return array.to_pylist()


def _text_table(path: str) -> dict[str, Any]:
    """Columns of a CSV; a cell of an embedding is ``0.1,0.2,...`` or ``[0.1, 0.2, ...]``."""
    from bagwise.io._source import read_text

    text = read_text(path, _MAX_BYTES)
    head = text.partition("\n")[0]
    delimiter = "\t" if path.lower().endswith(".tsv") else max(",;\t", key=head.count)
    limit = csv.field_size_limit(len(text) + 1)
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if any(row)]
    except csv.Error as error:
        raise refused(error, "a table") from None
    finally:
        csv.field_size_limit(limit)
    if len(rows) < 2:
        raise DataError("holds no rows")
    header = [name.strip() for name in rows[0]]
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(header):
            raise DataError(f"expected {len(header)} cells, found {len(row)}", line=number)

    def read(k: int) -> list[Any]:
        cells = [row[k] for row in rows[1:]]
        if "," not in cells[0] and "[" not in cells[0]:
            return cells
        return [_numbers(cell) for cell in cells]

    return {name: (lambda k=k: read(k)) for k, name in enumerate(header)}


def _numbers(cell: str) -> Any:
    try:
        return np.array(cell.strip().strip("[]").replace(",", " ").split(), dtype=np.float32)
    except ValueError:
        return cell


def _column(columns: Any, given: str | None, usual: tuple[str, ...], parameter: str) -> str:
    found = _optional(columns, given, usual)
    if found is None:
        shown = ", ".join(repr(name[:40]) for name in list(columns)[:12])
        wanted = f"no column {given!r}" if given else f"no column to take for {parameter}="
        raise DataError(f"there is {wanted}; the columns are {shown}")
    return found


def _optional(columns: Any, given: str | None, usual: tuple[str, ...]) -> str | None:
    if given is not None:
        return given if given in columns else None
    by_name = {name.lower(): name for name in columns}
    return next((by_name[name] for name in usual if name in by_name), None)
