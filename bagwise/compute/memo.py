"""Results that several fits in a row would each compute anew, kept for as long as a search lasts.

Settings of a search differ in a penalty or two and ask for the same distances and kernels again and again.
Inside `shared_work` functions marked by `remembered` give what they gave before for the same arguments;
outside they are as they always were. Arguments are compared by their contents, so that nobody needs to know
which fold or setting a matrix belongs to; contents are looked at once for results kept here, which are
read-only, and for arrays that `unchanging` names.
"""

from __future__ import annotations

import functools
import hashlib
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from typing import Any, ParamSpec, TypeVar

import numpy as np
from scipy import sparse

P = ParamSpec("P")
T = TypeVar("T")

_LIMIT = 1 << 30  # bytes kept; the longest unused go first


class _Memory:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self.kept: OrderedDict[bytes, tuple[Any, int]] = OrderedDict()
        self.marks: dict[int, tuple[weakref.ref, bytes]] = {}  # of arrays that do not change, by identity

    def mark(self, array: np.ndarray) -> bytes:
        """Hash of an array's contents."""
        array_then, mark = self.marks.get(id(array), (lambda: None, b""))
        return mark if array_then() is array else _mark_of(array)

    def fix(self, value: Any) -> None:
        """Remember the hashes of arrays that do not change."""
        for array in _arrays(value):
            self.marks[id(array)] = weakref.ref(array), _mark_of(array)

    def get(self, key: bytes, compute: Callable[[], Any]) -> Any:
        if key in self.kept:
            self.kept.move_to_end(key)
            return self.kept[key][0]
        value = compute()
        size = 8
        for array in _arrays(value):
            array.flags.writeable = False
            size += array.nbytes
        if size <= self.limit:
            self.fix(value)
            self.kept[key] = value, size
            self.size += size
            while self.size > self.limit:
                self.size -= self.kept.popitem(last=False)[1][1]
        return value


_memory: ContextVar[_Memory | None] = ContextVar("memory", default=None)


@contextmanager
def shared_work(limit: int = _LIMIT) -> Iterator[None]:
    """Keep results of `remembered` functions inside the block, up to so many bytes.

    An inner block uses the memory of the outer one.

    Examples
    --------
    >>> calls = []
    >>> @remembered
    ... def double(x):
    ...     calls.append(len(x))
    ...     return 2 * x
    >>> with shared_work():
    ...     first, again = double(np.arange(3)), double(np.arange(3))
    >>> len(calls), first is again, first.flags.writeable
    (1, True, False)
    """
    if _memory.get() is not None:
        yield
        return
    token = _memory.set(_Memory(limit))
    try:
        yield
    finally:
        _memory.reset(token)


def unchanging(*values: Any) -> None:
    """Say that nobody writes to these arrays inside `shared_work`: contents are hashed now, not each time.

    Outside it says nothing.
    """
    memory = _memory.get()
    if memory is not None:
        memory.fix(values)


def remembered(function: Callable[P, T]) -> Callable[P, T]:
    """Mark a function whose result depends on the contents of its arguments alone.

    Arguments are arrays, sparse matrices, numbers, strings, None, and dataclasses of these. What it returns,
    the same or a tuple, belongs to all callers inside `shared_work`, and cannot be written to there.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        memory = _memory.get()
        if memory is None:
            return function(*args, **kwargs)
        mark = hashlib.blake2b(f"{function.__module__}.{function.__qualname__}".encode(), digest_size=16)
        for value in (*args, *(part for pair in sorted(kwargs.items()) for part in pair)):
            _add(mark, value, memory)
        return memory.get(mark.digest(), lambda: function(*args, **kwargs))

    return call


def _add(mark: Any, value: Any, memory: _Memory) -> None:
    """Add an argument to the hash of a call."""
    if sparse.issparse(value) or is_dataclass(value):
        mark.update(f"{type(value).__name__}{getattr(value, 'shape', '')}".encode())
        for part in _parts(value):
            _add(mark, part, memory)
    elif isinstance(value, np.ndarray):
        mark.update(memory.mark(value))
    elif value is None or isinstance(value, str | int | float | np.number):
        mark.update(f"{type(value).__name__}{value!r};".encode())
    else:
        raise TypeError(
            f"a remembered function takes arrays, numbers and strings, not {type(value).__name__}"
        )


def _mark_of(array: np.ndarray) -> bytes:
    mark = hashlib.blake2b(f"{array.dtype}{array.shape}".encode(), digest_size=16)
    mark.update(np.ascontiguousarray(array).data)
    return mark.digest()


def _parts(value: Any) -> Iterator[Any]:
    """What a sparse matrix, a dataclass or a tuple is made of."""
    if sparse.issparse(value):
        yield from (value.data, value.indices, value.indptr)
    elif is_dataclass(value):
        yield from (getattr(value, part.name) for part in fields(value))
    elif isinstance(value, tuple):
        yield from value


def _arrays(value: Any) -> Iterator[np.ndarray]:
    """All arrays inside."""
    if isinstance(value, np.ndarray):
        yield value
    for part in _parts(value):
        yield from _arrays(part)


# ----------------------------------------------------------------------
# Kernels between bags kept pair by pair, for runs in which the same bags meet in fold after fold
#
# What two bags have to do with each other does not depend on the fold they are in, unless features are scaled
# by the training part. Inside `shared_pairs` matrices between bags are put together from pairs that are
# known, and only the others are computed.


_MOST_BAGS = 1000  # of a matrix that is kept, with room to grow: 32 MB

Compute = Callable[[np.ndarray, np.ndarray], np.ndarray]


class _Matrix:
    """A symmetric function of pairs of bags, as far as it is known."""

    def __init__(self) -> None:
        self.places: dict[bytes, int] = {}
        self.values = np.full((0, 0), np.nan)

    def rows(self, marks: list[bytes]) -> np.ndarray:
        rows = np.array([self.places.setdefault(mark, len(self.places)) for mark in marks], dtype=np.intp)
        n = len(self.values)
        if len(self.places) > n:
            more = np.full((2 * len(self.places),) * 2, np.nan)
            more[:n, :n] = self.values
            self.values = more
        return rows

    def between(self, left: np.ndarray, right: np.ndarray, compute: Compute) -> np.ndarray:
        unknown = np.isnan(self.values[np.ix_(left, right)])
        if unknown.any():
            some, others = np.flatnonzero(unknown.any(axis=1)), np.flatnonzero(unknown.any(axis=0))
            found = compute(some, others)
            self.values[np.ix_(left[some], right[others])] = found
            self.values[np.ix_(right[others], left[some])] = found.T
        return self.values[np.ix_(left, right)]


_matrices: ContextVar[dict[Any, _Matrix] | None] = ContextVar("matrices", default=None)


@contextmanager
def shared_pairs(matrices: dict[Any, _Matrix]) -> Iterator[None]:
    """Keep pairs in ``matrices``, an empty dict at first, which may serve several blocks.

    Examples
    --------
    >>> X, offsets, seen = np.arange(4.0)[:, None], np.array([0, 2, 3, 4]), []
    >>> def product(rows, others):
    ...     seen.append((len(rows), len(others)))
    ...     sums = np.add.reduceat(X[:, 0], offsets[:-1])
    ...     return np.outer(sums[rows], sums[others])
    >>> with shared_pairs({}):
    ...     first = between_bags("product", (X, offsets), (X, offsets), product)
    ...     again = between_bags("product", (X, offsets), (X, offsets), product)
    >>> np.array_equal(first, again), seen
    (True, [(3, 3)])
    """
    token = _matrices.set(matrices)
    try:
        yield
    finally:
        _matrices.reset(token)


def between_bags(
    what: Any, left: tuple[np.ndarray, ...], right: tuple[np.ndarray, ...], compute: Compute
) -> np.ndarray:
    """Matrix of a symmetric function of pairs of bags, from known pairs where they are kept.

    Parameters
    ----------
    what : hashable
        Which function, with its settings.
    left, right : tuples of arrays
        Instances, offsets of the bags, and whatever else the function knows of every instance.
    compute : callable
        Gives the matrix between some bags on the left and some on the right, by their numbers.
    """
    matrices = _matrices.get()
    n, m = len(left[1]) - 1, len(right[1]) - 1
    if matrices is None or max(n, m) > _MOST_BAGS:
        return compute(np.arange(n), np.arange(m))
    matrix = matrices.setdefault(what, _Matrix())
    if len(matrix.places) > _MOST_BAGS:
        matrix = matrices[what] = _Matrix()
    rows = matrix.rows(_marks(*left))
    return matrix.between(rows, rows if left is right else matrix.rows(_marks(*right)), compute)


def _marks(X: np.ndarray, offsets: np.ndarray, *more: np.ndarray) -> list[bytes]:
    """What tells one bag from another: a hash of all that is known of its instances."""
    marks = []
    for lo, hi in zip(offsets[:-1], offsets[1:]):
        mark = hashlib.blake2b(f"{X.dtype}{X.shape[1:]}".encode(), digest_size=16)
        for part in (X, *more):
            mark.update(np.ascontiguousarray(part[lo:hi]).data)
        marks.append(mark.digest())
    return marks
