"""Gaussian kernel between bags, averaged over their pairs of instances, without storing the pairs.

Eq. (2) of MIML-GP: ``k(x, x') = exp(-|x - x'|^2 / delta^2)``; ``rate`` is ``1 / delta^2``. Columns come
transposed, one row per feature, so that the loop over instances runs along neighbouring numbers and is
vectorised.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

__all__ = ["gaussian_means", "gaussian_self_means"]

_CHUNK = 512  # instances at a time: two work arrays and a stripe of features stay in the first-level cache
_FAR = 40.0  # exp(-40) is below the rounding of a sum that holds a one


@njit(cache=True)
def _add_exp(t, n, rate, total):
    """Add exp(-rate * t) to the totals.

    exp(-u) is taken as the 256th power of exp(-u / 256): eight terms of the series and eight squarings,
    without a table or a branch. The relative error is 256 roundings, about 3e-14.
    """
    for j in range(n):
        u = rate * t[j]
        u = min(max(u, 0.0), _FAR) * (-1.0 / 256.0)
        p = 1.0 + u * (1.0 / 8.0)
        p = 1.0 + u * (1.0 / 7.0) * p
        p = 1.0 + u * (1.0 / 6.0) * p
        p = 1.0 + u * (1.0 / 5.0) * p
        p = 1.0 + u * (1.0 / 4.0) * p
        p = 1.0 + u * (1.0 / 3.0) * p
        p = 1.0 + u * (1.0 / 2.0) * p
        p = 1.0 + u * p
        p *= p
        p *= p
        p *= p
        p *= p
        p *= p
        p *= p
        p *= p
        p *= p
        total[j] += p


@njit(cache=True)
def _squared_distances(x, x2, YT, y2, start, n, t):
    """Squared distances of one instance to some columns, by |x|^2 + |y|^2 - 2 x'y.

    Stripes are cut before the loops: an index that might be negative costs the vector instructions.
    """
    stop = start + n
    lengths = y2[start:stop]
    for j in range(n):
        t[j] = x2 + lengths[j]
    d = YT.shape[0]
    k = 0
    while k + 3 < d:  # four features a pass: fewer visits to t
        a, b, c, e = -2.0 * x[k], -2.0 * x[k + 1], -2.0 * x[k + 2], -2.0 * x[k + 3]
        r0, r1 = YT[k, start:stop], YT[k + 1, start:stop]
        r2, r3 = YT[k + 2, start:stop], YT[k + 3, start:stop]
        for j in range(n):
            t[j] += (a * r0[j] + b * r1[j]) + (c * r2[j] + e * r3[j])
        k += 4
    while k < d:
        a, r0 = -2.0 * x[k], YT[k, start:stop]
        for j in range(n):
            t[j] += a * r0[j]
        k += 1


@njit(cache=True)
def _one_row(bag, symmetric, X, x2, offsets, YT, y2, column_offsets, rate, row):
    """Mean kernel of one bag with all column bags, or with those from itself on."""
    a = np.int64(bag)  # indices of a parallel loop are unsigned; mixed with signed ones they become floats
    first = a if symmetric else np.int64(0)
    n_columns = column_offsets.size - 1
    total = np.empty(_CHUNK)
    t = np.empty(_CHUNK)
    size = offsets[a + 1] - offsets[a]
    row[first:] = 0.0
    b = first
    start = column_offsets[first]
    while start < column_offsets[n_columns]:
        n = min(_CHUNK, column_offsets[n_columns] - start)
        total[:n] = 0.0
        for i in range(offsets[a], offsets[a + 1]):
            _squared_distances(X[i], x2[i], YT, y2, start, n, t)
            _add_exp(t, n, rate, total)
        j = 0
        while j < n:  # hand the column sums to their bags
            while column_offsets[b + 1] <= start + j:
                b += 1
            stop = min(n, column_offsets[b + 1] - start)
            part = 0.0
            while j < stop:
                part += total[j]
                j += 1
            row[b] += part
        start += n
    for c in range(first, n_columns):
        row[c] /= size * (column_offsets[c + 1] - column_offsets[c])


@njit(cache=True, parallel=True)
def gaussian_means(X, x2, offsets, YT, y2, column_offsets, rate, symmetric, out):
    """Mean kernel between bags of rows and bags of columns, into ``out``.

    Parameters
    ----------
    X : (N, d) and x2 : (N,)
        Instances of the row bags and their squared lengths; ``offsets`` are their bags.
    YT : (d, M) and y2 : (M,)
        The same for the columns, transposed; ``column_offsets`` are their bags. No bag is empty.
    rate : float
        1 / delta^2.
    symmetric : bool
        Whether rows and columns are the same bags; then half the work is done and mirrored.
    out : (n_bags, n_column_bags)
    """
    n_rows = offsets.size - 1
    half = (n_rows + 1) // 2
    for turn in prange(half):
        # two bags a turn, a long row and a short one where half the matrix is done: turns take equally long
        other = n_rows - 1 - turn
        _one_row(turn, symmetric, X, x2, offsets, YT, y2, column_offsets, rate, out[turn])
        if other != turn:
            _one_row(other, symmetric, X, x2, offsets, YT, y2, column_offsets, rate, out[other])
    if symmetric:
        for a in range(n_rows):
            for b in range(a):
                out[a, b] = out[b, a]


@njit(cache=True, parallel=True)
def gaussian_self_means(X, offsets, rate, out):
    """Mean kernel of each bag with itself, into ``out``: the diagonal of `gaussian_means`."""
    for a in prange(offsets.size - 1):
        lo, hi = offsets[a], offsets[a + 1]
        total = 0.0
        for i in range(lo, hi):
            for j in range(lo, i):
                t = 0.0
                for k in range(X.shape[1]):
                    t += (X[i, k] - X[j, k]) ** 2
                total += np.exp(-rate * t)
        out[a] = (2.0 * total + (hi - lo)) / float((hi - lo) ** 2)
