"""Kernels between bags kept pair by pair, for runs in which the same bags meet in fold after fold.

What two bags have to do with each other does not depend on the fold they are in, unless features are scaled
by the training part. Inside `shared_pairs` matrices between bags are put together from pairs that are known,
and only the others are computed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

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
