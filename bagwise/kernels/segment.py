"""Reductions within bags: the instances of bag ``b`` are the rows ``offsets[b]:offsets[b + 1]`` of ``X``.

All functions share these rules.

- ``X`` has shape ``(n_instances, k)``, or ``(n_instances,)``, which is one column and answered in kind.
  float32 and float64 are used as they are, anything else is converted to float64. ``X`` is never written to
  and may be a read-only memory map; it is copied only if it is not C-contiguous or of another type.
- The result has the floating type of ``X``. Sums are accumulated in float64 in row order, so each is rounded
  once to float32; exponentials are those of the C library in the type of ``X``.
- Every bag is reduced by one thread in row order: results do not depend on the number of threads.
- A bag may be empty. It then gives the identity of the operation: sum 0, max -inf, logsumexp -inf, argmax -1;
  a mean over nothing is NaN.
- NaN propagates: it makes the sum, mean, max, logsumexp and softmax of its bag and column NaN.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

from bagwise.errors import DataError

__all__ = [
    "segment_argmax",
    "segment_logsumexp",
    "segment_max",
    "segment_mean",
    "segment_softmax",
    "segment_sum",
]

_SUM, _MEAN, _MAX, _LOGSUMEXP = 0, 1, 2, 3
# More pieces than threads, so that one piece with unlucky memory does not hold up the rest.
_N_PIECES = 64


@njit(cache=True)
def _piece(offsets, piece, n_pieces):
    """First and last bag of a piece; pieces hold about equally many instances, not bags."""
    n_bags = offsets.size - 1
    n = offsets[n_bags]
    first = np.searchsorted(offsets[:n_bags], piece * n // n_pieces)
    last = n_bags if piece == n_pieces - 1 else np.searchsorted(offsets[:n_bags], (piece + 1) * n // n_pieces)
    return first, last


@njit(cache=True)
def _sum_rows(X, lo, hi, total):
    total[:] = 0.0
    for i in range(lo, hi):
        row = X[i]
        for j in range(total.size):
            total[j] += row[j]


@njit(cache=True)
def _max_rows(X, lo, hi, top):
    top[:] = -np.inf
    for i in range(lo, hi):
        row = X[i]
        for j in range(top.size):
            # `|`, not `or`: without a jump the loop becomes vector compare and blend. A NaN in `top` stays.
            top[j] = row[j] if (row[j] > top[j]) | (row[j] != row[j]) else top[j]


@njit(cache=True)
def _sum_exp_rows(X, lo, hi, top, total):
    """Maximum and sum of exp(x - maximum); an infinite maximum counts how often it occurs."""
    _max_rows(X, lo, hi, top)
    total[:] = 0.0
    for i in range(lo, hi):
        row = X[i]
        for j in range(total.size):
            # The test keeps inf - inf out: where x is the maximum, its share is exactly 1.
            total[j] += math.exp(row[j] - top[j]) if row[j] < top[j] else 1.0


@njit(cache=True, parallel=True)
def _reduce(X, offsets, op, out):
    n_pieces = min(_N_PIECES, offsets.size - 1)
    for piece in prange(n_pieces):
        first, last = _piece(offsets, piece, n_pieces)
        total = np.empty(X.shape[1], np.float64)
        for b in range(first, last):
            lo, hi = offsets[b], offsets[b + 1]
            y = out[b]
            if op == _MAX:
                _max_rows(X, lo, hi, y)
            elif op == _LOGSUMEXP:
                _sum_exp_rows(X, lo, hi, y, total)
                for j in range(y.size):
                    if lo < hi:
                        y[j] = y[j] + math.log(total[j])
            else:
                _sum_rows(X, lo, hi, total)
                if op == _SUM:
                    for j in range(y.size):
                        y[j] = total[j]
                else:
                    for j in range(y.size):
                        y[j] = total[j] / (hi - lo) if lo < hi else np.nan


@njit(cache=True, parallel=True)
def _argmax(X, offsets, out):
    n_pieces = min(_N_PIECES, offsets.size - 1)
    for piece in prange(n_pieces):
        first, last = _piece(offsets, piece, n_pieces)
        top = np.empty(X.shape[1], X.dtype)
        for b in range(first, last):
            lo, hi = offsets[b], offsets[b + 1]
            y = out[b]
            y[:] = lo if lo < hi else -1
            if lo < hi:
                top[:] = X[lo]
            for i in range(lo + 1, hi):
                row = X[i]
                for j in range(y.size):
                    better = (row[j] > top[j]) | ((row[j] != row[j]) & (top[j] == top[j]))
                    top[j] = row[j] if better else top[j]
                    y[j] = i if better else y[j]


@njit(cache=True, parallel=True)
def _softmax(X, offsets, out):
    n_pieces = min(_N_PIECES, offsets.size - 1)
    for piece in prange(n_pieces):
        first, last = _piece(offsets, piece, n_pieces)
        top = np.empty(X.shape[1], X.dtype)
        total = np.empty(X.shape[1], np.float64)
        for b in range(first, last):
            lo, hi = offsets[b], offsets[b + 1]
            _max_rows(X, lo, hi, top)
            total[:] = 0.0
            for i in range(lo, hi):
                for j in range(total.size):
                    out[i, j] = math.exp(X[i, j] - top[j]) if X[i, j] < top[j] else 1.0
                    total[j] += out[i, j]
            for j in range(total.size):
                total[j] = total[j] if top[j] == top[j] else np.nan
            for i in range(lo, hi):
                for j in range(total.size):
                    out[i, j] = out[i, j] / total[j]


def _prepare(X, offsets):
    """Return ``X`` in two dimensions and ``offsets``, checked, and ready for the kernels."""
    X = np.asarray(X)
    if X.ndim not in (1, 2):
        raise DataError(f"expected X of shape (n_instances, k) or (n_instances,), received shape {X.shape}")
    X = np.ascontiguousarray(X, dtype=np.float32 if X.dtype == np.float32 else np.float64)
    offsets = np.asarray(offsets)
    if offsets.ndim != 1 or offsets.size == 0 or offsets.dtype.kind not in "iu":
        raise DataError(
            "expected offsets as a one-dimensional array of n_bags + 1 integers, "
            f"received {offsets.dtype} of shape {offsets.shape}"
        )
    offsets = np.ascontiguousarray(offsets, dtype=np.int64)
    if offsets[0] != 0 or offsets[-1] != X.shape[0]:
        raise DataError(
            f"expected offsets from 0 to the number of instances, {X.shape[0]}; "
            f"received offsets from {offsets[0]} to {offsets[-1]}"
        )
    # The kernels do not check bounds, so a wrong offset here would read foreign memory.
    falling = np.flatnonzero(offsets[1:] < offsets[:-1])
    if falling.size:
        b = falling[0]
        raise DataError(
            f"expected offsets that never fall; bag {b} runs from {offsets[b]} to {offsets[b + 1]}"
        )
    # Read-only views, whatever came: writable and read-only arrays are two types to the compiler, hence two
    # compilations of each kernel.
    X, offsets = X.reshape(X.shape[0], math.prod(X.shape[1:])), offsets.view()
    X.flags.writeable = offsets.flags.writeable = False
    return X, offsets


def _run(kernel, X, offsets, dtype=None, *op):
    ndim = np.ndim(X)
    X, offsets = _prepare(X, offsets)
    out = np.empty((offsets.size - 1, X.shape[1]), dtype or X.dtype)
    if out.size:
        kernel(X, offsets, *op, out)
    return out[:, 0] if ndim == 1 else out


def segment_sum(X, offsets):
    """Sum the instances of each bag.

    Parameters
    ----------
    X : array of shape (n_instances, k) or (n_instances,)
        Instances, bag after bag.
    offsets : int array of shape (n_bags + 1,)
        Bag ``b`` is ``X[offsets[b]:offsets[b + 1]]``.

    Returns
    -------
    array of shape (n_bags, k) or (n_bags,)
        Sums; 0 for an empty bag.

    Examples
    --------
    >>> import numpy as np
    >>> segment_sum(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 2, 3]))
    array([3., 0., 4.])
    """
    return _run(_reduce, X, offsets, None, _SUM)


def segment_mean(X, offsets):
    """Average the instances of each bag; an empty bag gives NaN. Parameters as in `segment_sum`.

    Examples
    --------
    >>> import numpy as np
    >>> segment_mean(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 2, 3]))
    array([1.5, nan, 4. ])
    """
    return _run(_reduce, X, offsets, None, _MEAN)


def segment_max(X, offsets):
    """Largest value in each bag and column; an empty bag gives -inf. Parameters as in `segment_sum`.

    Examples
    --------
    >>> import numpy as np
    >>> segment_max(np.array([[1.0, 5.0], [2.0, 4.0], [0.0, 0.0]]), np.array([0, 2, 3]))
    array([[2., 5.],
           [0., 0.]])
    """
    return _run(_reduce, X, offsets, None, _MAX)


def segment_argmax(X, offsets):
    """Row of ``X`` that holds the largest value of each bag and column. Parameters as in `segment_sum`.

    Returns
    -------
    int64 array of shape (n_bags, k) or (n_bags,)
        Rows of ``X``, not positions within the bag; -1 for an empty bag. The first of several equal values
        wins; a NaN counts as largest, as in `numpy.argmax`.

    Examples
    --------
    >>> import numpy as np
    >>> segment_argmax(np.array([1.0, 2.0, 2.0, 0.0]), np.array([0, 3, 3, 4]))
    array([ 1, -1,  3])
    """
    return _run(_argmax, X, offsets, np.int64)


def segment_logsumexp(X, offsets):
    """Logarithm of the sum of exponentials in each bag and column. Parameters as in `segment_sum`.

    Free of overflow. An empty bag gives -inf, as does one that holds nothing but -inf; a bag that holds +inf
    (and no NaN) gives +inf.

    Examples
    --------
    >>> import numpy as np
    >>> segment_logsumexp(np.array([1e300, 1e300, -np.inf]), np.array([0, 2, 2, 3]))
    array([1.e+300,   -inf,   -inf])
    """
    return _run(_reduce, X, offsets, None, _LOGSUMEXP)


def segment_softmax(X, offsets):
    """Exponentials scaled to sum to one within each bag and column. Parameters as in `segment_sum`.

    Returns
    -------
    array of the shape of X
        Weights. Infinite values are taken as limits: several +inf share the weight equally, and so do the
        instances of a bag that holds nothing but -inf.

    Examples
    --------
    >>> import numpy as np
    >>> segment_softmax(np.array([0.0, np.log(3.0), 7.0]), np.array([0, 2, 2, 3]))
    array([0.25, 0.75, 1.  ])
    """
    ndim = np.ndim(X)
    X, offsets = _prepare(X, offsets)
    out = np.empty_like(X)
    if out.size:
        _softmax(X, offsets, out)
    return out[:, 0] if ndim == 1 else out
