"""Decoder for MATLAB 5 files (``save -v6``, ``-v7``): matrices, cells, text and sparse matrices.

General readers trust the sizes that a file states, so a broken file of a hundred bytes can ask for gigabytes.
Here every size is held against the bytes that are really there before any memory is taken.

``scipy.io.loadmat`` reads public sets in the same time or less, but about 55 of 3,005 spoiled files end the
process, all of which pass a check of what they unpack to: a number of a type that does not exist is enough,
and so are 20,000 cells within each other. Here all of them are a `DataError`
(``benchmarks/own_or_library_input.py matlab``).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from bagwise.errors import DataError
from bagwise.io._source import MAX_BYTES, read_bytes

_MATRIX, _COMPRESSED = 14, 15
_CELL, _CHAR, _SPARSE = 1, 4, 5
_NUMERIC = range(6, 16)
_OTHER = {2: "struct", 3: "object", 16: "function", 17: "opaque object"}
# element type -> NumPy type; 16..18 are UTF-8, UTF-16 and UTF-32 text
_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_TEXT = {16: "utf-8", 17: "utf-16", 18: "utf-32"}
_DEEPEST = 8  # cells within cells; bags need two
_COMPLEX = 0x0800
_RESAVE = "in MATLAB: load(file); save(file, '-v7')"


@dataclass(frozen=True)
class Unsupported:
    """A variable that was skipped because of its kind."""

    kind: str


def read_variables(path: str | Path, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Variables of a MATLAB 5 file by name.

    Each is an ndarray, a CSC matrix, an object array (cell), a str (a list of str for several rows of text),
    or `Unsupported`.
    """
    content = memoryview(read_bytes(path, max_bytes))
    try:
        return _File(content, max_bytes).variables()
    except DataError as error:
        raise error.at(path) from None
    except (ValueError, TypeError, IndexError, OverflowError, MemoryError) as error:
        # Sizes that NumPy refuses, such as 0 x 2**31 x 2**31 x 2**31; nothing here is the caller's fault.
        raise DataError(f"damaged MATLAB file ({error})", path=path) from None


def byte_order(head: bytes) -> str | None:
    """``<`` or ``>`` if these bytes begin a MATLAB 5 file, else None."""
    if len(head) < 128:
        return None
    mark = bytes(head[124:128])
    return {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}.get(mark)


class _File:
    def __init__(self, content: memoryview, max_bytes: int) -> None:
        self.content = content
        self.left = max_bytes  # what may still be unpacked
        if bytes(content[:10]) == b"MATLAB 7.3" or b"\x89HDF\r\n\x1a\n" in bytes(content[:1024]):
            raise DataError(f"a MATLAB 7.3 (HDF5) file; save it in the older format: {_RESAVE}")
        order = byte_order(bytes(content[:128]))
        if order is None:
            raise DataError(f"no MATLAB 5 file; if it comes from MATLAB, save it again: {_RESAVE}")
        self.order = order

    def variables(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        at = 128
        while at < len(self.content):
            kind, body, at = self.element(self.content, at, padded=False)
            if kind == _COMPRESSED:
                body = self.unpack(body)
                kind, body, _ = self.element(body, 0)
            if kind != _MATRIX:
                raise DataError(f"damaged: a variable of the unknown type {kind} before byte {at}")
            name, value = self.matrix(body, 0)
            found[name] = value
        return found

    def unpack(self, body: memoryview) -> memoryview:
        stream = zlib.decompressobj()
        try:
            content = stream.decompress(body, self.left + 1)
        except zlib.error as error:
            raise DataError(f"damaged compressed variable ({error})") from None
        if len(content) > self.left:
            raise DataError(
                "unpacks to more bytes than allowed; if that is right, read it with a larger max_bytes"
            )
        if not stream.eof:
            raise DataError("truncated: a compressed variable ends before its data do")
        self.left -= len(content)
        return memoryview(content)

    def element(self, data: memoryview, at: int, padded: bool = True) -> tuple[int, memoryview, int]:
        """Type and body of the element at a position, and where the next one begins."""
        if at + 8 > len(data):
            raise DataError(f"truncated: {len(data) - at} bytes where an element of at least 8 should begin")
        first, second = np.frombuffer(data[at : at + 8], dtype=f"{self.order}u4").tolist()
        if first >> 16:  # small element: size, type and up to 4 bytes of data in one word pair
            size = first >> 16
            if size > 4:
                raise DataError(f"damaged: a short element of {size} bytes")
            return first & 0xFFFF, data[at + 4 : at + 4 + size], at + 8
        begin, end = at + 8, at + 8 + second
        if end > len(data):
            raise DataError(f"truncated: an element states {second:,} bytes, {len(data) - begin:,} are left")
        return first, data[begin:end], end + (-end % 8 if padded else 0)

    def numbers(self, data: memoryview, at: int) -> tuple[np.ndarray, int]:
        kind, body, after = self.element(data, at)
        if kind not in _TYPES:
            raise DataError(f"damaged: numbers of the unknown type {kind}")
        dtype = np.dtype(self.order + _TYPES[kind])
        if len(body) % dtype.itemsize:
            raise DataError(f"damaged: {len(body)} bytes are no whole number of {dtype.itemsize}-byte values")
        return np.frombuffer(body, dtype=dtype).astype(dtype.newbyteorder("=")), after

    def matrix(self, data: memoryview, depth: int) -> tuple[str, Any]:
        """Name and value of the body of a matrix element."""
        if not len(data):
            return "", np.empty((0, 0))  # how MATLAB writes an unset cell
        flags, at = self.numbers(data, 0)
        if flags.dtype != np.uint32 or len(flags) != 2:
            raise DataError("damaged: a variable without flags")
        kind = int(flags[0]) & 0xFF
        if kind in _OTHER:
            if kind == 17:  # laid out differently; its name comes where others have their size
                return "", Unsupported(_OTHER[kind])
            _, at = self.numbers(data, at)
            return self.name(data, at)[0], Unsupported(_OTHER[kind])
        dims, at = self.numbers(data, at)
        if dims.dtype.kind != "i" or not 2 <= len(dims) <= 32 or (dims < 0).any():
            raise DataError("damaged: a variable without a size")
        shape = tuple(dims.tolist())
        name, at = self.name(data, at)
        if kind == _CELL:
            return name, self.cell(data, at, shape, depth)
        if int(flags[0]) & _COMPLEX:
            return name, Unsupported("complex matrix")
        if kind == _CHAR:
            return name, self.text(data, at, shape)
        if kind == _SPARSE:
            return name, self.sparse(data, at, shape)
        if kind not in _NUMERIC:
            raise DataError(f"damaged: variable {name!r} is of the unknown class {kind}")
        values, _ = self.numbers(data, at)
        if len(values) != prod(shape):
            raise DataError(f"damaged: variable {name!r} states {_by(shape)} values and has {len(values):,}")
        return name, values.reshape(shape, order="F")

    def name(self, data: memoryview, at: int) -> tuple[str, int]:
        _, body, after = self.element(data, at)
        return bytes(body).decode("latin-1"), after

    def cell(self, data: memoryview, at: int, shape: tuple[int, ...], depth: int) -> np.ndarray:
        if depth >= _DEEPEST:
            raise DataError(f"cells nested more than {_DEEPEST} deep")
        if prod(shape) > (len(data) - at) // 8:
            raise DataError(f"damaged: a cell array states {_by(shape)} cells, more than its bytes can hold")
        cells = np.empty(prod(shape), dtype=object)
        for k in range(len(cells)):
            kind, body, at = self.element(data, at)
            if kind != _MATRIX:
                raise DataError(f"damaged: cell {k + 1} is of the unknown type {kind}")
            cells[k] = self.matrix(body, depth + 1)[1]
        return cells.reshape(shape, order="F")

    def text(self, data: memoryview, at: int, shape: tuple[int, ...]) -> Any:
        kind, body, _ = self.element(data, at)
        if kind in _TEXT:
            codec = _TEXT[kind] + ("" if kind == 16 else "-le" if self.order == "<" else "-be")
            try:
                letters = list(bytes(body).decode(codec))
            except UnicodeDecodeError as error:
                raise DataError(f"damaged text: {error.reason}") from None
        else:
            codes = self.numbers(data, at)[0]
            if codes.dtype.kind not in "iu" or (codes < 0).any() or (codes > 0x10FFFF).any():
                raise DataError("damaged text: no character codes")
            letters = [chr(code) for code in codes.tolist()]
        if len(shape) != 2 or len(letters) != prod(shape):
            raise DataError(f"damaged text: {_by(shape)} characters stated, {len(letters)} found")
        if not letters:
            return ""
        rows = ["".join(letters[k :: shape[0]]) for k in range(shape[0])]
        try:  # MATLAB characters are UTF-16 units; some take two
            rows = [row.encode("utf-16", "surrogatepass").decode("utf-16") for row in rows]
        except UnicodeDecodeError:
            raise DataError("damaged text: half of a UTF-16 character") from None
        return rows[0] if len(rows) == 1 else rows

    def sparse(self, data: memoryview, at: int, shape: tuple[int, ...]) -> Any:
        rows, at = self.numbers(data, at)
        starts, at = self.numbers(data, at)
        values, _ = self.numbers(data, at)
        right = (
            len(shape) == 2
            and rows.dtype.kind in "iu"
            and starts.dtype.kind in "iu"
            and len(starts) == shape[1] + 1
            and starts[0] == 0
            and (np.diff(starts.astype(np.int64)) >= 0).all()
            and starts[-1] <= min(len(rows), len(values))
        )
        if right:
            # MATLAB keeps spare room after the last entry
            rows, values = rows[: starts[-1]], values[: starts[-1]]
            right = not len(rows) or (int(rows.min()) >= 0 and int(rows.max()) < shape[0])
        if not right:
            raise DataError("damaged: a sparse matrix whose entries do not fit its size")
        return sparse.csc_array((values, rows.astype(np.int64), starts.astype(np.int64)), shape=shape)


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
