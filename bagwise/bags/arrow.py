"""Between Arrow's tables and lists and our matrices and offsets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from bagwise.errors import DataError, quoted

LONGEST_NAME = 255  # NumPy gives every name of a column the room of the longest
_INTEGER = r"^(0|-?[1-9][0-9]{0,19})$"
_LEADING_ZERO = r"^[+-]?0[0-9]"  # a code, not a number
_WHOLE = re.compile(r"-?[1-9][0-9]{0,19}|0", re.ASCII)
_DECIMAL = re.compile(r"-?[0-9]+\.[0-9]+(e[+-][0-9]+)?|-?[0-9](\.[0-9]+)?e[+-][0-9]+", re.ASCII)


def as_table(frame: Any) -> pa.Table:
    """Turn pandas, polars, pyarrow or any holder of an Arrow stream into a pyarrow table."""
    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    if type(frame).__module__.partition(".")[0] == "pandas":
        return pa.Table.from_pandas(frame, preserve_index=False)
    if hasattr(frame, "__arrow_c_stream__"):
        return pa.table(frame)
    raise TypeError(
        f"expected a table (pandas, polars, pyarrow or any Arrow-compatible one), got {type(frame).__name__}"
    )


def to_numpy(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """A column as a NumPy array; text becomes NumPy text, lists of equal length more dimensions."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_fixed_size_list(column.type):
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        return to_numpy(column.flatten()).reshape(len(column), column.type.list_size)
    values = column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy()
    return as_text(values) if values.dtype == object else values


def as_text(values: np.ndarray) -> np.ndarray:
    """Python strings as NumPy text; as they are beside None, or where one long one would widen all."""
    if not all(isinstance(v, str) for v in values):
        return values
    lengths = [len(v) for v in values]
    if max(lengths, default=0) * len(values) > 64 * sum(lengths) + (1 << 20):
        return values
    return values.astype(str)


def has_offsets(kind: pa.DataType) -> bool:
    """Whether a column holds lists that may differ in length."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def is_list(kind: pa.DataType) -> bool:
    """Whether a column holds lists, of whatever kind."""
    return has_offsets(kind) or pa.types.is_fixed_size_list(kind)


def group_rows(
    column: pa.ChunkedArray | pa.Array, name: str = "bag"
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Order that brings equal ids together (bags by first appearance), offsets, and the ids.

    Examples
    --------
    >>> order, offsets, ids = group_rows(pa.array(["b", "a", "b"]))
    >>> order.tolist(), offsets.tolist(), ids.tolist()
    ([0, 2, 1], [0, 2, 3], ['b', 'a'])
    """
    if column.null_count:
        raise DataError(f"row {first_null(column)} has no bag id in column {name!r}")
    encoded = plain(column).dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes, minlength=len(encoded.dictionary))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return order, offsets, to_numpy(encoded.dictionary)


def is_number(kind: pa.DataType) -> bool:
    """Whether a column holds numbers or truth values."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)


def plain(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """One array of values, no chunks and no dictionary."""
    column = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def text_of(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column as text, empty where there is nothing."""
    found = plain(column)
    if found.type == pa.string() and not found.null_count:
        return found
    if str(found.type) in ("string", "large_string", "string_view"):
        return found.cast(pa.large_string()).fill_null("")
    return pa.array(["" if v is None else str(v) for v in found.to_pylist()], pa.large_string())


# ---------------------------------------------------------------------- text as what it looks like


def natural(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """Text as what it looks like: whole numbers, numbers, True and False, or text (``007`` is text)."""
    column = plain(column)
    if len(column) and pc.all(pc.match_substring_regex(column, _INTEGER)).as_py():
        for kind in (pa.int64(), pa.uint64()):
            with suppress(pa.ArrowInvalid):
                return column.cast(kind).to_numpy()
        return to_numpy(column)
    if len(column) and pc.any(pc.match_substring_regex(column, _LEADING_ZERO)).as_py():
        return to_numpy(column)
    if set(pc.unique(column).to_pylist()) <= {"True", "False", "true", "false"}:
        return column.cast(pa.bool_()).to_numpy(zero_copy_only=False)
    try:
        return column.cast(pa.float64()).to_numpy()
    except pa.ArrowInvalid:
        return to_numpy(column)


def natural_names(texts: Sequence[str], lines: Sequence[int] = ()) -> np.ndarray:
    """Names as written: numbers if all of them are written as Python writes them, else text.

    So names that differ stay different: ``01``, ``1`` and ``1.0`` are three. With the lines on which they
    stand, names that are empty or very long are refused.

    Examples
    --------
    >>> natural_names(["12", "7"]).tolist(), natural_names(["12", "07"]).tolist()
    ([12, 7], ['12', '07'])
    >>> natural_names(["1.5", "2.0"]).tolist(), natural_names(["1.5", "2"]).tolist()
    ([1.5, 2.0], ['1.5', '2'])
    """
    for text, line in zip(texts, lines):
        if not text or len(text) > LONGEST_NAME:
            problem = "an empty name" if not text else f"a name of {len(text):,} characters"
            raise DataError(f"{problem}; names have 1 to {LONGEST_NAME} characters", line=int(line))
    if len(texts) and all(map(_WHOLE.fullmatch, texts)):
        values = [int(text) for text in texts]
        for kind in (np.int64, np.uint64):
            if np.iinfo(kind).min <= min(values) and max(values) <= np.iinfo(kind).max:
                return np.array(values, dtype=kind)
    elif len(texts) and all(_DECIMAL.fullmatch(text) and repr(float(text)) == text for text in texts):
        return np.array([float(text) for text in texts])
    return np.array(texts, dtype=np.str_)


# ---------------------------------------------------------------------- lists of instances


def ragged_to_arrow(X: Any, offsets: np.ndarray) -> pa.LargeListArray:
    """Bags as a large_list array whose int64 offsets are ours.

    Dense rows become ``fixed_size_list<value, n_features>``, CSR rows ``large_list<struct<index, value>>``:
    the inner list offsets are CSR's ``indptr``.
    """
    if sparse.issparse(X):
        entries = pa.StructArray.from_arrays(
            [pa.array(X.indices.astype(np.int32, copy=False)), pa.array(X.data)], names=["index", "value"]
        )
        rows = pa.LargeListArray.from_arrays(pa.array(X.indptr.astype(np.int64, copy=False)), entries)
    elif X.shape[1] == 0:  # Parquet has no fixed_size_list of nothing
        nothing = pa.array(np.zeros(len(X) + 1, dtype=np.int64))
        rows = pa.LargeListArray.from_arrays(nothing, pa.array(X.reshape(-1)))
    else:
        rows = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), X.shape[1])
    return pa.LargeListArray.from_arrays(pa.array(offsets), rows)


def ragged_from_arrow(column: Any, n_features: int | None = None) -> tuple[Any, np.ndarray]:
    """Matrix and offsets of a list column; shares memory when the column is one chunk without nulls.

    The column is ``list<fixed_size_list<number>>``, ``list<list<number>>`` (all of one length) or
    ``list<list<struct<index, value>>>`` (sparse). ``n_features``, the width of the matrix, is needed for
    sparse lists and for columns without any instance.
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    builder = RaggedBuilder(n_features)
    for chunk in chunks or [pa.array([], column.type)]:
        builder.add(chunk)
    return builder.finish()


class RaggedBuilder:
    """Matrix and offsets from list chunks as they come; each is copied once and need not be kept.

    ``n_features`` is as in `ragged_from_arrow`; ``n_rows`` says how many instances are to come, and a wrong
    number costs time, not correctness.
    """

    def __init__(self, n_features: int | None = None, n_rows: int | None = None) -> None:
        self.n_features, self.n_rows = n_features, n_rows
        self.parts: list[Any] = []  # the first dense part, or all sparse ones
        self.offsets: list[np.ndarray] = []
        self.X: np.ndarray | None = None
        self.row = self.bag = 0

    def add(self, chunk: pa.Array, bag_ids: Any = None) -> None:
        """Take the next bags; ``bag_ids`` names those of the chunk in messages."""
        part, cuts = _ragged_chunk(chunk, self.n_features, self.bag, bag_ids)
        if sparse.issparse(part) or not self.offsets:
            self.parts.append(part)
        elif len(part):
            if self.row == 0:  # all bags so far were empty, and may not have known their width
                self.parts = [part]
            else:
                self._room(len(part), part.shape[1])[:] = part
        if self.n_features is None and not sparse.issparse(part) and len(part):
            self.n_features = part.shape[1]  # later chunks must agree
        self.offsets.append(cuts[1:] + self.row)
        self.row += part.shape[0]
        self.bag += len(chunk)

    def _room(self, n_new: int, width: int) -> np.ndarray:
        """Place for the next rows behind those that are there."""
        if self.X is None:  # a second chunk: now the first is copied too
            first = self.parts.pop()
            self.X = np.empty((max(self.n_rows or 0, self.row + n_new), width), dtype=first.dtype)
            self.X[: self.row] = first
        if self.row + n_new > len(self.X):
            larger = np.empty((max(2 * len(self.X), self.row + n_new), width), dtype=self.X.dtype)
            larger[: self.row] = self.X[: self.row]
            self.X = larger
        return self.X[self.row : self.row + n_new]

    def finish(self) -> tuple[Any, np.ndarray]:
        """The matrix and the offsets."""
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), *self.offsets])
        if self.X is not None:
            # A view would keep the surplus alive; honest files have none.
            return (self.X if self.row == len(self.X) else self.X[: self.row].copy()), offsets
        if len(self.parts) == 1:
            return self.parts[0], offsets
        width = max(part.shape[1] for part in self.parts)
        for part in self.parts:
            part.resize(part.shape[0], width)
        return sparse.vstack(self.parts, format="csr"), offsets


def _ragged_chunk(
    column: pa.Array, n_features: int | None, first: int, bag_ids: Any
) -> tuple[Any, np.ndarray]:
    """Matrix and offsets of one chunk; messages name its bags by id, or count them from ``first``."""

    def called(bag: int) -> str:
        return quoted(first + bag if bag_ids is None else bag_ids[bag])

    def bag_of(row: int) -> str:
        return called(int(np.searchsorted(offsets, row, side="right")) - 1)

    if not has_offsets(column.type):
        raise DataError(f"expected one list of instances per bag, got {column.type}")
    if column.null_count:
        bag = called(first_null(column))
        raise DataError(f"bag {bag} is null; write an empty list for a bag without instances")
    offsets, rows = unpack_lists(column)
    if rows.null_count:
        raise DataError(f"an instance of bag {bag_of(first_null(rows))} is null; leave such instances out")
    if pa.types.is_fixed_size_list(rows.type):
        width = rows.type.list_size
        indptr = None
        values = rows.values[rows.offset * width : (rows.offset + len(rows)) * width]
    elif has_offsets(rows.type):
        indptr, values = unpack_lists(rows)
        widths = np.diff(indptr)
        width = n_features if n_features is not None else int(widths[0]) if len(widths) else 0
    else:
        raise DataError(f"expected lists of instances per bag, got list<{rows.type}>")
    if values.null_count:
        k = first_null(values)
        row = k // width if indptr is None else int(np.searchsorted(indptr, k, side="right")) - 1
        bag = bag_of(row)
        raise DataError(f"a feature value of bag {bag} is null; fill or drop such instances first")
    if pa.types.is_struct(values.type):
        if indptr is None:
            indptr = np.arange(len(rows) + 1, dtype=np.int64) * width
        return _sparse_rows(values, indptr, n_features), offsets
    if indptr is not None and (widths != width).any():
        row = int(np.flatnonzero(widths != width)[0])
        raise DataError(f"an instance of bag {bag_of(row)} has {widths[row]} features, expected {width}")
    if n_features is not None and width != n_features:
        raise DataError(f"instances have {width} features, expected {n_features}")
    return numbers(values).reshape(len(rows), width), offsets


def _sparse_rows(entries: pa.StructArray, indptr: np.ndarray, n_features: int | None) -> sparse.csr_array:
    if {field.name for field in entries.type} != {"index", "value"}:
        raise DataError(f"a sparse instance is a list of (index, value) pairs, got {entries.type}")
    indices = numbers(entries.field("index"))
    if len(indices) and (indices.min() < 0 or (n_features is not None and indices.max() >= n_features)):
        raise DataError(f"a feature index lies outside 0..{n_features}; the file's width is wrong")
    width = n_features if n_features is not None else int(indices.max(initial=-1)) + 1
    if indptr[-1] < np.iinfo(np.int32).max and width <= np.iinfo(np.int32).max:
        indptr = indptr.astype(np.int32)  # scikit-learn's solvers want both kinds of index alike
        indices = indices.astype(np.int32, copy=False)
    data = numbers(entries.field("value"))
    return sparse.csr_array((data, indices, indptr), shape=(len(indptr) - 1, width), copy=False)


def first_null(array: pa.Array | pa.ChunkedArray) -> int:
    """Position of the first null."""
    return pc.index(array.is_null(), True).as_py()


def unpack_lists(column: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """int64 offsets from 0 and the values that they cut, also of a sliced array."""
    offsets = column.offsets.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    first, last = int(offsets[0]), int(offsets[-1])
    return (offsets - first if first else offsets), column.values[first:last]


def numbers(values: pa.Array) -> np.ndarray:
    """Numbers without nulls as a NumPy array."""
    if not is_number(values.type):
        raise DataError(f"features must be numbers, got {values.type}")
    if values.null_count:
        raise DataError("a feature value is null; fill or drop such instances first")
    return values.to_numpy(zero_copy_only=False)
