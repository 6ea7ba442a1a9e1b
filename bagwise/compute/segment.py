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
from collections.abc import Callable
from typing import Any

import numpy as np

from bagwise.compute.aligned import frozen
from bagwise.compute.compiled import kernel, part
from bagwise.compute.threads import cores, in_threads
from bagwise.errors import DataError
from bagwise.utils.arrays import checked_offsets

__all__ = [
    "segment_argmax",
    "segment_logsumexp",
    "segment_max",
    "segment_mean",
    "segment_softmax",
    "segment_sum",
]


_WORTH_A_THREAD = 1 << 18  # numbers of X below which a second thread costs more than it saves


# A kernel per operation, so that nobody waits for the compilation of those that are not called. Arguments:
# the first bag and the one after the last, X, offsets, what is filled, and what else the operation needs:
# room for one row of doubles, for one of the type of X (each thread has its own).


@kernel(error_model="numpy")
def _sums(first, last, X, offsets, out, total, mean):
    """Sums, or means: one loop for both, since most fits need both."""
    for b in range(first, last):
        lo, hi = offsets[b], offsets[b + 1]
        for j in range(total.size):
            total[j] = 0.0
        for i in range(lo, hi):
            row = X[i]
            for j in range(total.size):
                total[j] += row[j]
        y, count = out[b], hi - lo if lo < hi else np.nan
        for j in range(total.size):
            y[j] = total[j] / count if mean else total[j]


@part
def _max_rows(X, lo, hi, top):
    for j in range(top.size):
        top[j] = -np.inf
    for i in range(lo, hi):
        row = X[i]
        for j in range(top.size):
            # `|`, not `or`: without a jump the loop becomes vector compare and blend. A NaN in `top` stays.
            top[j] = row[j] if (row[j] > top[j]) | (row[j] != row[j]) else top[j]


@kernel
def _maxima(first, last, X, offsets, out):
    for b in range(first, last):
        _max_rows(X, offsets[b], offsets[b + 1], out[b])


@kernel
def _argmaxima(first, last, X, offsets, out, top):
    for b in range(first, last):
        lo, hi = offsets[b], offsets[b + 1]
        y = out[b]
        for j in range(y.size):
            y[j] = lo if lo < hi else -1
            top[j] = X[lo, j] if lo < hi else -np.inf
        for i in range(lo + 1, hi):
            row = X[i]
            for j in range(y.size):
                better = (row[j] > top[j]) | ((row[j] != row[j]) & (top[j] == top[j]))
                top[j] = row[j] if better else top[j]
                y[j] = i if better else y[j]


@kernel
def _logsumexps(first, last, X, offsets, out, total):
    for b in range(first, last):
        lo, hi = offsets[b], offsets[b + 1]
        y = out[b]
        _max_rows(X, lo, hi, y)
        for j in range(total.size):
            total[j] = 0.0
        for i in range(lo, hi):
            row = X[i]
            for j in range(total.size):
                # The test keeps inf - inf out: where x is the maximum, its share is exactly 1.
                total[j] += math.exp(row[j] - y[j]) if row[j] < y[j] else 1.0
        for j in range(y.size):
            if lo < hi:
                y[j] = y[j] + math.log(total[j])


@kernel
def _softmaxima(first, last, X, offsets, out, total, top):
    for b in range(first, last):
        lo, hi = offsets[b], offsets[b + 1]
        _max_rows(X, lo, hi, top)
        for j in range(total.size):
            total[j] = 0.0
        for i in range(lo, hi):
            for j in range(total.size):
                out[i, j] = math.exp(X[i, j] - top[j]) if X[i, j] < top[j] else 1.0
                total[j] += out[i, j]
        for j in range(total.size):
            total[j] = total[j] if top[j] == top[j] else np.nan
        for i in range(lo, hi):
            for j in range(total.size):
                out[i, j] = out[i, j] / total[j]


def _run(
    kernel: Callable[..., None],
    X: Any,
    offsets: Any,
    more: Callable[..., tuple[Any, ...]] = lambda k, dtype: (),
    *,
    dtype: Any = None,
    per_row: bool = False,
) -> Any:
    """Run a kernel in threads; ``more`` makes its last arguments from the number and type of columns."""
    X = np.asarray(X)
    ndim = X.ndim
    if ndim not in (1, 2):
        raise DataError(f"expected X of shape (n_instances, k) or (n_instances,), received shape {X.shape}")
    offsets = frozen(checked_offsets(offsets, X.shape[0]))
    X = np.ascontiguousarray(X, dtype=np.float32 if X.dtype == np.float32 else np.float64)
    X = frozen(X.reshape(X.shape[0], math.prod(X.shape[1:])))
    n_bags, k = offsets.size - 1, X.shape[1]
    out = np.empty((X.shape[0] if per_row else n_bags, k), dtype or X.dtype)
    if out.size:

        def bags(first: int, last: int) -> None:
            kernel(first, last, X, offsets, out, *more(k, X.dtype))

        in_threads(bags, n_bags, cores(), work=offsets, smallest=max(_WORTH_A_THREAD // k, 1))
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
    return _run(_sums, X, offsets, lambda k, dtype: (np.empty(k), False))


def segment_mean(X, offsets):
    """Average the instances of each bag; an empty bag gives NaN. Parameters as in `segment_sum`.

    Examples
    --------
    >>> import numpy as np
    >>> segment_mean(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 2, 3]))
    array([1.5, nan, 4. ])
    """
    return _run(_sums, X, offsets, lambda k, dtype: (np.empty(k), True))


def segment_max(X, offsets):
    """Largest value in each bag and column; an empty bag gives -inf. Parameters as in `segment_sum`.

    Examples
    --------
    >>> import numpy as np
    >>> segment_max(np.array([[1.0, 5.0], [2.0, 4.0], [0.0, 0.0]]), np.array([0, 2, 3]))
    array([[2., 5.],
           [0., 0.]])
    """
    return _run(_maxima, X, offsets)


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
    return _run(_argmaxima, X, offsets, lambda k, dtype: (np.empty(k, dtype),), dtype=np.int64)


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
    return _run(_logsumexps, X, offsets, lambda k, dtype: (np.empty(k),))


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
    return _run(_softmaxima, X, offsets, lambda k, dtype: (np.empty(k), np.empty(k, dtype)), per_row=True)
