"""Parquet whose numbers lie flat: one page per row group, as they are in memory, read straight into a matrix.

An ordinary Parquet file for all other software. In a data page that is neither packed nor encoded the values
are its last bytes, one after the other, so a reader that knows how many there are needs to look at nothing
else: no unpacking, no levels of nested lists (two numbers for every value), one copy. Reading such a file
takes a tenth of the time of decoding it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bagwise.bags import Bags
from bagwise.bags.dataset import Dataset
from bagwise.compute.aligned import aligned_empty
from bagwise.io import _facts, parquet
from bagwise.io._parquet_footer import read_struct
from bagwise.utils.arrow import is_list, ragged_to_arrow

__all__ = ["read_flat", "write_flat"]

_GROUP_BYTES = 8 << 20  # of a row group: Arrow needs several times as much while it writes one
_NO_LIMIT = 1 << 30  # of bytes and rows of a page
_TYPES = {"float32": "FLOAT", "float64": "DOUBLE"}
_HEADER_BYTES = 64  # more than any header of a page without statistics

# Field numbers of parquet.thrift, and what they hold here
_TYPE, _PACKED_SIZE, _DATA_PAGE = 1, 3, 5  # of PageHeader
_ENCODING = 2  # of DataPageHeader
_PLAIN = 0


def write_flat(
    dataset: Dataset,
    pieces: Mapping[str, Sequence[Bags]],
    path: str | Path,
    beside: Mapping[str, Any],
) -> None:
    """Write bags that came in pieces, a row group at a time.

    The instances are never put together: a row group is all that is copied of them.

    Parameters
    ----------
    dataset : Dataset
        All but the instances: bags whose matrices have no columns.
    pieces : mapping of str to list of Bags
        The same bags of each view with their instances, in order.
    path : path
        Where to.
    beside : mapping of str to array
        Further columns, one value per bag.
    """
    table, paths, texts = parquet.table_of(dataset)
    for name, values in beside.items():
        table = table.append_column(name, pa.array(values))
    facts = json.loads(table.schema.metadata[b"bagwise"])
    views = _facts.views_of(dataset)
    row_bytes = 0
    columns = {}
    for view, stack in pieces.items():
        like = stack[0]
        facts["views"][view] |= {"n_features": like.n_features, "feature_names": like.feature_names}
        columns[view] = _Stacked([bags.X for bags in stack], views[view].offsets)
        row_bytes += sum(bags.X.nbytes for bags in stack)
    step = max(1, min(_GROUP_BYTES, row_bytes // 8) * max(len(dataset), 1) // max(row_bytes, 1))
    names = table.column_names
    table = table.replace_schema_metadata({b"bagwise": json.dumps(facts)})

    def group(first: int, last: int) -> pa.Table:
        part = table.slice(first, last - first)
        for view, column in columns.items():
            part = part.set_column(names.index(view), view, column.lists(first, last))
        return part

    schema = group(0, min(1, len(dataset))).schema
    leaves = [leaf for field in schema for leaf in _leaves(field.type, field.name)]
    settings = {
        "compression": {leaf: "none" if leaf in paths else "lz4" for leaf in leaves},
        "use_dictionary": texts,
        "write_statistics": False,
        "data_page_size": _NO_LIMIT,
        "max_rows_per_page": _NO_LIMIT,
    }
    with pq.ParquetWriter(path, schema, **settings) as writer:
        for first in range(0, len(dataset), step):
            writer.write_table(group(first, min(first + step, len(dataset))), row_group_size=step)
            pa.default_memory_pool().release_unused()  # room for levels, several times that of a row group


class _Stacked:
    """Rows of several matrices as lists of bags."""

    def __init__(self, stack: Sequence[np.ndarray], offsets: np.ndarray) -> None:
        self.stack, self.offsets = stack, offsets
        self.starts = np.cumsum([0, *(len(rows) for rows in stack)])

    def lists(self, first: int, last: int) -> pa.LargeListArray:
        begin, end = int(self.offsets[first]), int(self.offsets[last])
        pieces = [
            rows[max(begin - start, 0) : max(end - start, 0)]
            for rows, start in zip(self.stack, self.starts.tolist())
            if start < end and start + len(rows) > begin
        ]
        if len(pieces) == 1:
            X = pieces[0]
        else:
            X = np.concatenate(pieces) if pieces else self.stack[0][:0]
        return ragged_to_arrow(X, self.offsets[first : last + 1] - begin)


def _leaves(kind: pa.DataType, path: str) -> list[str]:
    if is_list(kind):
        return _leaves(kind.value_type, f"{path}.list.element")
    if pa.types.is_struct(kind):
        return [leaf for field in kind for leaf in _leaves(field.type, f"{path}.{field.name}")]
    return [path]


def read_flat(
    handle: BinaryIO, meta: pq.FileMetaData, view: str, sizes: np.ndarray, width: int, dtype: Any
) -> np.ndarray | None:
    """The instances of a view, None if they do not lie flat in this file.

    Parameters
    ----------
    handle : binary file
        The file, which is what was written: nothing is verified here but where the numbers lie.
    meta : FileMetaData
        Its directory.
    view : str
        Column of the instances.
    sizes : ndarray of shape (n_bags,)
        Number of instances of each bag.
    width, dtype
        Number of features and their type.
    """
    dtype = np.dtype(dtype)
    if dtype.name not in _TYPES or width == 0:
        return None
    places, bag = [], 0
    for k in range(meta.num_row_groups):
        group = meta.row_group(k)
        here = sizes[bag : bag + group.num_rows]
        bag += group.num_rows
        n_values = int(here.sum()) * width
        # an empty list stands in the page as a level without a value
        place = _values_at(handle, group, view, n_values, int((here == 0).sum()), dtype)
        if place is None:
            return None
        places.append((place, n_values))
    X = aligned_empty((int(sizes.sum()), width), dtype)
    flat, done = memoryview(X.reshape(-1).view(np.uint8)), 0  # type: ignore[arg-type]
    for place, n_values in places:
        end = done + n_values * dtype.itemsize
        handle.seek(place)
        while done < end:  # a read may stop early
            n_read = handle.readinto(flat[done:end])  # type: ignore[attr-defined]
            if not n_read:
                raise EOFError("the file ends before its numbers do")
            done += n_read
    return X


def _values_at(
    handle: BinaryIO, group: Any, view: str, n_values: int, n_empty: int, dtype: np.dtype
) -> int | None:
    """Where the values of a column chunk begin, None if they are packed, encoded, or in several pages."""
    path = f"{view}.list.element.list.element"
    columns = (group.column(k) for k in range(group.num_columns))
    chunk = next((column for column in columns if column.path_in_schema == path), None)
    if (
        chunk is None
        or chunk.compression != "UNCOMPRESSED"
        or chunk.has_dictionary_page
        or chunk.physical_type != _TYPES[dtype.name]
        or chunk.num_values != n_values + n_empty
    ):
        return None
    handle.seek(chunk.data_page_offset)
    header, length = read_struct(handle.read(_HEADER_BYTES))
    only = length + header[_PACKED_SIZE] == chunk.total_compressed_size
    if not only or header[_TYPE] != 0 or header[_DATA_PAGE][_ENCODING] != _PLAIN:
        return None
    return chunk.data_page_offset + chunk.total_compressed_size - n_values * dtype.itemsize
