"""What a Parquet file says of its own size, read from its footer before any page is unpacked.

pyarrow can tell as much, but ends the whole process over some damaged footers (a C++ exception that nobody
catches on the way to ``RowGroupMetaData.column``), so the few numbers needed are read here. The footer is one
struct in Thrift's compact protocol: fields of (id, type, value), integers as zigzag varints.
"""

from __future__ import annotations

from typing import Any

from bagwise.errors import DataError

_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 12
_INTEGERS = (4, 5, 6)
_DEEPEST = 16  # structs within structs; an honest footer has half as many

# Field numbers of parquet.thrift
_NUM_ROWS, _ROW_GROUPS = 3, 4  # of FileMetaData
_COLUMNS = 1  # of RowGroup
_META_DATA = 3  # of ColumnChunk
_NUM_VALUES, _UNPACKED = 5, 6  # of ColumnMetaData


def claimed_bytes(content: bytes) -> int:
    """Memory that the pages of a file take at least, as its footer tells it.

    Parameters
    ----------
    content : bytes
        The footer, without its length and the closing ``PAR1``.
    """
    footer = _Compact(content).struct()
    total = 0
    for group in footer.get(_ROW_GROUPS, []):
        for chunk in group.get(_COLUMNS, []):
            facts = chunk.get(_META_DATA, {})
            # A repeated value takes next to nothing in the file but a place each in memory.
            total += max(facts.get(_UNPACKED, 0), 4 * facts.get(_NUM_VALUES, 0), 0)
    return max(total, footer.get(_NUM_ROWS, 0))


def read_struct(content: bytes) -> tuple[dict[int, Any], int]:
    """The struct that some bytes begin with, by field number, and how many bytes it takes."""
    reader = _Compact(content)
    return reader.struct(), reader.place


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
