"""Pages of Parquet: numbers that lie flat, how much a file claims to hold, row groups decoded ahead.

A file whose numbers lie flat has one page per row group, as they are in memory; it is an ordinary Parquet
file for all other software. In a data page that is neither packed nor encoded the values are its last bytes,
one after the other, so a reader that knows how many there are needs to look at nothing else: no unpacking, no
levels of nested lists (two numbers for every value), one copy. That takes a tenth of the time of decoding.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bagwise.bags import Bags, views_of
from bagwise.bags.arrow import is_list, ragged_to_arrow
from bagwise.bags.dataset import Dataset
from bagwise.compute.aligned import aligned_empty
from bagwise.errors import DataError
from bagwise.io._parquet_tables import KEY, table_of

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
    """Write bags that came in pieces, a row group at a time, which is all that is copied of their instances.

    ``dataset`` holds all but the instances (its matrices have no columns), ``pieces`` the same bags of each
    view with their instances, ``beside`` further columns with one value per bag.
    """
    table, paths, texts = table_of(dataset)
    for name, values in beside.items():
        table = table.append_column(name, pa.array(values))
    facts = json.loads(table.schema.metadata[KEY])
    views = views_of(dataset.bags)
    row_bytes = 0
    columns = {}
    for view, stack in pieces.items():
        like = stack[0]
        facts["views"][view] |= {"n_features": like.n_features, "feature_names": like.feature_names}
        columns[view] = _Stacked([bags.X for bags in stack], views[view].offsets)
        row_bytes += sum(bags.X.nbytes for bags in stack)
    step = max(1, min(_GROUP_BYTES, row_bytes // 8) * max(len(dataset), 1) // max(row_bytes, 1))
    names = table.column_names
    table = table.replace_schema_metadata({KEY: json.dumps(facts)})

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
    """The instances of a view (its column), given the sizes of the bags; None if they do not lie flat.

    The file is what was written: nothing is verified here but where the numbers lie.
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
    reader = _Compact(handle.read(_HEADER_BYTES))
    header = reader.struct()
    only = reader.place + header[_PACKED_SIZE] == chunk.total_compressed_size
    if not only or header[_TYPE] != 0 or header[_DATA_PAGE][_ENCODING] != _PLAIN:
        return None
    return chunk.data_page_offset + chunk.total_compressed_size - n_values * dtype.itemsize


# ----------------------------------------------------------------------
# What a Parquet file says of its own size, read from its footer before any page is unpacked
#
# pyarrow can tell as much, but ends the whole process over some damaged footers (a C++ exception that
# nobody catches on the way to ``RowGroupMetaData.column``), so the few numbers needed are read here. The
# footer is one struct in Thrift's compact protocol: fields of (id, type, value), integers as zigzag
# varints.


_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 12
_INTEGERS = (4, 5, 6)
_DEEPEST = 16  # structs within structs; an honest footer has half as many

# Field numbers of parquet.thrift
_NUM_ROWS, _ROW_GROUPS = 3, 4  # of FileMetaData
_COLUMNS = 1  # of RowGroup
_META_DATA = 3  # of ColumnChunk
_NUM_VALUES, _UNPACKED = 5, 6  # of ColumnMetaData


def claimed_bytes(content: bytes) -> int:
    """Memory that pages take at least, as a footer tells it (without its length and the closing ``PAR1``)."""
    footer = _Compact(content).struct()
    total = 0
    for group in footer.get(_ROW_GROUPS, []):
        for chunk in group.get(_COLUMNS, []):
            facts = chunk.get(_META_DATA, {})
            # A repeated value takes next to nothing in the file but a place each in memory.
            total += max(facts.get(_UNPACKED, 0), 4 * facts.get(_NUM_VALUES, 0), 0)
    return max(total, footer.get(_NUM_ROWS, 0))


class _Compact:
    """Reader of Thrift's compact protocol: structs become dicts by field number."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.place = 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        if depth > _DEEPEST:
            raise DataError("a Parquet footer with structs nested too deep")
        fields: dict[int, Any] = {}
        number = 0
        while (head := self.byte()) != _STOP:
            step = head >> 4
            number = number + step if step else self.integer()
            fields[number] = self.value(head & 15, depth)
        return fields

    def value(self, kind: int, depth: int) -> Any:
        if kind in _INTEGERS:
            return self.integer()
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind == _BINARY:
            return self.skip(self.varint())
        if kind in (_LIST, _SET):
            return self.items(depth)
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind in (_BYTE, _DOUBLE):
            return self.skip(1 if kind == _BYTE else 8)
        raise DataError(f"a Parquet footer with a field of the unknown type {kind}")

    def items(self, depth: int) -> list[Any]:
        head = self.byte()
        size, kind = head >> 4, head & 15
        size = self.varint() if size == 15 else size
        if size > len(self.content) - self.place:  # each takes a byte or more
            raise DataError("a Parquet footer with a list longer than itself")
        if kind in (_TRUE, _FALSE):  # within a list they take a byte, within a struct none
            return [self.byte() for _ in range(size)]
        return [self.value(kind, depth) for _ in range(size)]

    def skip(self, size: int) -> None:
        if size > len(self.content) - self.place:
            raise DataError("a Parquet footer that ends too early")
        self.place += size

    def byte(self) -> int:
        self.skip(1)
        return self.content[self.place - 1]

    def varint(self) -> int:
        result = 0
        for shift in range(0, 70, 7):
            part = self.byte()
            result |= (part & 127) << shift
            if part < 128:
                return result
        raise DataError("a Parquet footer with a number of more than 64 bits")

    def integer(self) -> int:
        number = self.varint()
        return (number >> 1) ^ -(number & 1)


# ----------------------------------------------------------------------
# Row groups of a Parquet file in order, a few of them decoded ahead at the same time


_MOST = 8  # row groups decoded at once: what they take in memory comes on top of the result


def row_groups(source: Path | bytes) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """Schema of a file, and a table for each of its row groups (one empty table if it has none)."""
    with _open(source) as file:
        return file.schema_arrow, _tables(source, file.metadata, file.schema_arrow)


def _tables(source: Path | bytes, metadata: pq.FileMetaData, schema: pa.Schema) -> Iterator[pa.Table]:
    n_groups = metadata.num_row_groups
    if n_groups == 0:
        yield schema.empty_table()
    elif n_groups == 1:
        yield _decode(source, metadata, 0)
    else:
        at_once = min(_MOST, os.cpu_count() or 1)
        with ThreadPoolExecutor(at_once) as pool:
            ahead: deque[Future[pa.Table]] = deque()
            for k in range(n_groups):
                ahead.append(pool.submit(_decode, source, metadata, k))
                if len(ahead) > at_once:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()


def _decode(source: Path | bytes, metadata: pq.FileMetaData, group: int) -> pa.Table:
    with _open(source, metadata) as file:  # a reader of its own: they are not to be shared by threads
        return file.read_row_group(group, use_threads=False)


def _open(source: Path | bytes, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    return pq.ParquetFile(pa.BufferReader(source) if isinstance(source, bytes) else source, metadata=metadata)
