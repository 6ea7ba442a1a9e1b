"""Index arithmetic over rows and offsets, and the coercion of what users give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from bagwise.errors import DataError, quoted

_BLOCK = 1 << 20  # values looked at together; small enough to stay in cache
_MANY = 1 << 25  # values from which more than one thread looks
Matrix = Any  # np.ndarray or scipy.sparse.csr_array; neither library has a type for both


def bag_numbers(key: Any, n_bags: int) -> np.ndarray:
    """Turn a list, integer array or mask into non-negative bag numbers."""
    which = np.asarray(key)
    if which.ndim != 1:
        raise IndexError(f"bags are indexed by one-dimensional arrays, got {which.ndim} dimensions")
    if which.dtype == bool:
        if len(which) != n_bags:
            raise IndexError(f"mask of length {len(which)} for {n_bags} bags")
        return np.flatnonzero(which)
    if which.size == 0:
        return np.empty(0, dtype=np.int64)
    if not np.issubdtype(which.dtype, np.integer):
        raise IndexError(f"bags are indexed by integers or booleans, got {which.dtype}")
    which = which.astype(np.int64)
    outside = (which < -n_bags) | (which >= n_bags)
    if outside.any():
        raise IndexError(f"bag number {which[outside][0]} is out of range for {n_bags} bags")
    return np.where(which < 0, which + n_bags, which)


def instance_rows(offsets: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers of the instances of some bags, and the offsets of the bags so gathered.

    Examples
    --------
    >>> instance_rows(np.array([0, 2, 3, 6]), np.array([2, 0]))
    (array([3, 4, 5, 0, 1]), array([0, 3, 5]))
    """
    sizes = offsets[which + 1] - offsets[which]
    new_offsets = np.zeros(len(which) + 1, dtype=np.int64)
    np.cumsum(sizes, out=new_offsets[1:])
    rows = np.arange(new_offsets[-1])
    rows += np.repeat(offsets[which] - new_offsets[:-1], sizes)
    return rows, new_offsets


def row_range(X: Matrix, a: int, b: int) -> Matrix:
    """Rows a to b without copying values; SciPy's own slicing of CSR copies them."""
    if not sparse.issparse(X):
        return X[a:b]
    start, stop = X.indptr[a], X.indptr[b]
    indptr = X.indptr[a : b + 1] - start
    part = sparse.csr_array((int(b - a), X.shape[1]), dtype=X.dtype)
    # set one by one: the constructor copies a view that is much smaller than what it looks into
    part.data, part.indices, part.indptr = X.data[start:stop], X.indices[start:stop], indptr
    part.has_canonical_format = True  # true of every Bags.X; spares a pass over the indices
    return part


def stack_rows(parts: list[Matrix]) -> Matrix:
    if any(sparse.issparse(part) for part in parts):
        return sparse.vstack([sparse.csr_array(part) for part in parts], format="csr")
    return np.concatenate(parts)


def rows_of_list(items: list[Any], bag_ids: Any = None) -> tuple[Matrix, np.ndarray]:
    """One matrix of the 2-D arrays of bags, and the offsets."""
    if not items:
        raise DataError("from_list needs at least one bag; for no bags at all use Bags(X[:0], [0])")
    parts = [part if sparse.issparse(part) else np.asarray(part) for part in items]
    # the first bag with instances says how wide instances are
    first = next((j for j, p in enumerate(parts) if p.ndim == 2 and p.shape[0]), None)
    if first is None:
        first, width = 0, max((p.shape[1] for p in parts if p.ndim == 2), default=0)
    else:
        width = parts[first].shape[1]
    names = range(len(parts)) if bag_ids is None else bag_ids
    for i, part in enumerate(parts):
        if part.ndim == 1 and part.shape[0] == 0:
            parts[i] = np.empty((0, width))  # a plain [] is an empty bag
        elif part.ndim != 2:
            raise DataError(
                f"bag {quoted(names[i])} has {part.ndim} dimension(s), not 2 (instances x features); "
                "a single instance is written [x], not x"
            )
        elif part.shape[0] and part.shape[1] != width:
            raise DataError(
                f"bag {quoted(names[i])} has {part.shape[1]} features, bag {quoted(names[first])} has {width}"
            )
    offsets = np.concatenate([[0], np.cumsum([part.shape[0] for part in parts], dtype=np.int64)])
    filled = [part for part in parts if part.shape[0]] or [np.empty((0, width))]
    return stack_rows(filled), offsets


def as_matrix(X: Any) -> Matrix:
    if sparse.issparse(X):
        csr = sparse.csr_array(X)
        if csr.dtype not in (np.float32, np.float64):
            csr = csr.astype(np.float64)
        if not csr.has_canonical_format:
            csr = csr.copy()  # the caller's matrix stays as it is
            csr.sum_duplicates()
        return csr
    array = np.asarray(X)
    if array.ndim != 2:
        raise DataError(f"X must be 2-D (instances x features), got {array.ndim} dimension(s)")
    if array.dtype not in (np.float32, np.float64):
        if np.issubdtype(array.dtype, np.complexfloating):
            raise DataError("Complex data not supported: X must hold real numbers")
        small = array.dtype.kind in "iubf" and array.dtype.itemsize <= 2  # exact in single precision
        try:
            array = array.astype(np.float32 if small else np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"X must hold numbers: {error}") from None
    return np.ascontiguousarray(array)


def as_column(name: str, values: Any, length: int) -> np.ndarray:
    array = np.asarray(values)
    if array.ndim == 0 or len(array) != length:
        raise DataError(f"{name} must have {length} entries, got {array.shape}")
    return array


def as_info(info: Any, n_instances: int) -> dict[str, np.ndarray]:
    items = info.items() if hasattr(info, "items") else ((c, info[c]) for c in info.columns)
    return {str(name): as_column(f"instance_info {name!r}", v, n_instances) for name, v in items}


def checked_csr(
    data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, n_features: int
) -> sparse.csr_array:
    """CSR from parts that nobody has checked; a wrong index would read foreign memory later.

    Examples
    --------
    >>> checked_csr(np.ones(1), np.array([2]), np.array([0, 1]), 3).toarray()
    array([[0., 0., 1.]])
    """
    if (
        any(part.ndim != 1 for part in (data, indices, indptr))
        or not len(indptr)
        or len(data) != len(indices)
    ):
        raise DataError("the parts of a sparse matrix do not fit together")
    if indices.dtype.kind != "i" or indptr.dtype.kind != "i":
        raise DataError("the places in a sparse matrix must be integers")
    if indptr[0] != 0 or indptr[-1] != len(data) or (indptr[1:] < indptr[:-1]).any():
        raise DataError("the rows of a sparse matrix do not run from the first value to the last")
    if len(indices) and not (indices.min() >= 0 and indices.max() < n_features):
        raise DataError(f"a sparse matrix has a column outside 0..{n_features - 1}")
    return sparse.csr_array((data, indices, indptr), shape=(len(indptr) - 1, n_features), copy=False)


def first_not_finite(X: Any) -> tuple[int, int] | None:
    """Row and column of the first NaN or infinity."""
    values = X.data if sparse.issparse(X) else X.reshape(-1)
    if len(values) < _MANY:
        k = _first_bad_of(values, 0, len(values))
    else:
        from bagwise.compute.threads import cores, in_threads

        found = in_threads(lambda a, b: _first_bad_of(values, a, b), len(values), min(8, cores()))
        k = next((k for k in found if k is not None), None)
    if k is None or not sparse.issparse(X):
        return None if k is None else divmod(k, X.shape[1])
    return int(np.searchsorted(X.indptr, k, side="right")) - 1, int(X.indices[k])


def _first_bad_of(values: np.ndarray, first: int, last: int) -> int | None:
    # A sum is one pass and makes no second array; it is finite only if every value is. A sum of
    # finite values may overflow, so a block with an infinite sum is looked at value by value.
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(first, last, _BLOCK):
            block = values[start : min(start + _BLOCK, last)]
            if not np.isfinite(block.sum()):
                bad = np.flatnonzero(~np.isfinite(block))
                if bad.size:
                    return start + int(bad[0])
    return None


# ----------------------------------------------------------------------
# Runs of bags that fit a limit on memory


def runs(offsets: np.ndarray, n_rows: float) -> Iterator[tuple[int, int]]:
    """First bag, and the one after the last, of runs with at most ``n_rows`` instances together.

    A larger bag is a run by itself. Every bag is in one run, in order.

    Examples
    --------
    >>> list(runs(np.array([0, 2, 3, 6]), 3))
    [(0, 2), (2, 3)]
    """
    first = 0
    while first < len(offsets) - 1:
        last = max(int(np.searchsorted(offsets, offsets[first] + n_rows, side="right")) - 1, first + 1)
        yield first, last
        first = last
