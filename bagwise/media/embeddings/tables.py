"""Embeddings in a table: a row per instance with a list of numbers, or a row per bag with a list of lists."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bagwise.bags.arrow import is_list, ragged_from_arrow
from bagwise.bags.columns import column_for, first_of
from bagwise.bags.table import Rows
from bagwise.errors import DataError
from bagwise.io._source import delimiter_of, read_text, records
from bagwise.media.embeddings.layout import COORDS, FEATURES, _placed, as_float, reading_as
from bagwise.media.parts import Part

__all__ = ["SUFFIXES", "parts_of_table"]

SUFFIXES = (".parquet", ".csv", ".tsv")
_IDS = (
    *("bag_id", "bag", "slide_id", "slide", "file", "file_path", "filename", "file_name", "image", "id"),
    "name",
)
_X = ("x", "coord_x", "x_coord", "left")
_Y = ("y", "coord_y", "y_coord", "top")
_SIDES = ("width", "height")
_MAX_BYTES = 4 << 30
Read = Callable[[Sequence[str], Sequence[str]], pa.Table]  # of columns of lists, and of others


def parts_of_table(
    path: str, features: str | None, coords: str | None, id_column: str | None, tile_size: float | None
) -> list[tuple[str, Part]]:
    """Bags of a table, called by their id."""
    names, read = _parquet(path) if path.lower().endswith(".parquet") else _text_table(path)
    key = column_for(names, features, FEATURES, "no column to take for features=")
    bag = column_for(names, id_column, _IDS, "no column to take for id_column=")
    where = first_of(names, COORDS) if coords is None else coords if coords in names else None
    corners: list[str] = []  # columns of the places of instances, where each number has its own
    x, y = first_of(names, _X), first_of(names, _Y)
    if not where and x is not None and y is not None:
        corners = [x, y, *(_SIDES if set(_SIDES) <= set(names) else ())]
    table = read([key, where] if where else [key], [bag, *corners])
    kind = table.schema.field(key).type
    if not is_list(kind):
        raise DataError(f"column {key!r} should hold lists of numbers")
    places: Any = None
    if is_list(kind.value_type):
        ids = table.column(bag).to_pylist()
        if len(set(ids)) < len(ids):
            raise DataError("an id comes twice among rows that are bags")
        X, offsets = ragged_from_arrow(table.column(key))
        X = X.astype(np.float32, copy=False)
        if where:
            places, cuts = ragged_from_arrow(table.column(where))
            places = [places[a:b] for a, b in zip(cuts[:-1], cuts[1:])]
    else:
        rows = Rows(table, bag)
        ids, offsets, X = rows.ids.tolist(), rows.offsets, rows.lists(key)
        X = as_float(X) if X.dtype.kind == "f" else X.astype(np.float32)
        if where or corners:
            found = rows.lists(where) if where else _numbers(table, corners)[rows.order]
            places = np.split(found, offsets[1:-1])
    parts = []
    for k, (name, a, b) in enumerate(zip(ids, offsets[:-1], offsets[1:])):
        part = Part(X[a:b], {}) if places is None else _placed(X[a:b], places[k], {}, tile_size)
        parts.append((str(name), part))
    return parts


def _numbers(table: pa.Table, names: Sequence[str]) -> np.ndarray:
    columns = [table.column(name).to_pylist() for name in names]
    try:
        return np.column_stack([np.asarray(column, dtype=np.float64) for column in columns])
    except (ValueError, TypeError):
        raise DataError(f"columns {', '.join(names)} should hold numbers") from None


def _parquet(path: str) -> tuple[Sequence[str], Read]:
    """Names of the columns of a Parquet file, and a reader of some."""
    with reading_as("Parquet"):
        file = pq.ParquetFile(path)
        schema = file.schema_arrow
        size = sum(file.metadata.row_group(k).total_byte_size for k in range(file.metadata.num_row_groups))
    if size > max(_MAX_BYTES, 100 * os.path.getsize(path)):
        raise DataError(f"declares {size:,} bytes in a file of {os.path.getsize(path):,}")

    def read(lists: Sequence[str], others: Sequence[str]) -> pa.Table:
        with reading_as("Parquet"):
            return file.read(columns=[*lists, *others])

    return schema.names, read


def _text_table(path: str) -> tuple[Sequence[str], Read]:
    """The same of a CSV file; a cell of an embedding is ``0.1,0.2,...`` or ``[0.1, 0.2, ...]``."""
    text = read_text(path, _MAX_BYTES)
    delimiter = delimiter_of(path, text.partition("\n")[0])
    found = records(io.StringIO(text, newline=""), delimiter, longest=len(text) + 1)
    rows = [(line, cells) for line, cells in found if any(cells)]
    if len(rows) < 2:
        raise DataError("holds no rows")
    header = [name.strip() for name in rows[0][1]]
    for line, cells in rows[1:]:
        if len(cells) != len(header):
            raise DataError(f"expected {len(header)} cells, found {len(cells)}", line=line)

    def numbers(line: int, cell: str, name: str) -> np.ndarray:
        try:
            return np.array(cell.strip().strip("[]").replace(",", " ").split(), dtype=np.float32)
        except ValueError:
            raise DataError(f"column {name!r} should hold lists of numbers", line=line) from None

    def read(lists: Sequence[str], others: Sequence[str]) -> pa.Table:
        columns: dict[str, Any] = {}
        for name in dict.fromkeys([*lists, *others]):
            k = header.index(name)
            if name in lists:
                columns[name] = [numbers(line, cells[k], name) for line, cells in rows[1:]]
            else:
                columns[name] = [cells[k] for _, cells in rows[1:]]
        return pa.table(columns)

    return header, read
