"""Gaussian kernel between bags, averaged over their pairs of instances, without storing the pairs.

Eq. (2) of MIML-GP: ``k(x, x') = exp(-|x - x'|^2 / delta^2)``; ``rate`` is ``1 / delta^2``. Columns come
transposed, one row per feature, so that the loop over instances runs along neighbouring numbers and is
vectorised.
"""

from __future__ import annotations

import numpy as np

from bagwise.compute.compiled import kernel, part

__all__ = ["gaussian_means", "gaussian_pair_sums"]

_CHUNK = 512  # instances at a time: two work arrays and a stripe of features stay in the first-level cache
_FAR = 40.0  # exp(-40) is below the rounding of a sum that holds a one


@part
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


@part
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


@part
def _one_row(bag, first, X, x2, offsets, YT, y2, column_offsets, rate, row):
    """Mean kernel of one bag with the column bags from ``first`` on."""
    n_columns = column_offsets.size - 1
    total, t = np.empty(_CHUNK), np.empty(_CHUNK)
    size = offsets[bag + 1] - offsets[bag]
    for c in range(first, n_columns):
        row[c] = 0.0
    b = first
    start = column_offsets[first]
    while start < column_offsets[n_columns]:
        n = min(_CHUNK, column_offsets[n_columns] - start)
        for j in range(n):
            total[j] = 0.0
        for i in range(offsets[bag], offsets[bag + 1]):
            _squared_distances(X[i], x2[i], YT, y2, start, n, t)
            _add_exp(t, n, rate, total)
        j = 0
        while j < n:  # hand the column sums to their bags
            while column_offsets[b + 1] <= start + j:
                b += 1
            stop = min(n, column_offsets[b + 1] - start)
            part = 0.0
            for i in range(j, stop):
                part += total[i]
            row[b] += part
            j = stop
        start += n
    for c in range(first, n_columns):
        row[c] /= size * (column_offsets[c + 1] - column_offsets[c])


@kernel
def gaussian_means(first, last, X, x2, offsets, YT, y2, column_offsets, rate, symmetric, out):
    """Mean kernel between bags of rows and bags of columns, into ``out``; turns ``first`` to ``last``.

    A turn is two bags, the one of that number and its counterpart from the end: a long row and a short one
    where half of the matrix is done, so that turns take equally long. There are as many turns as half the
    bags, rounded up.

    Parameters
    ----------
    X : (N, d) and x2 : (N,)
        Instances of the row bags and their squared lengths; ``offsets`` are their bags.
    YT : (d, M) and y2 : (M,)
        The same for the columns, transposed; ``column_offsets`` are their bags. No bag is empty.
    rate : float
        1 / delta^2.
    symmetric : bool
        Whether rows and columns are the same bags; then the part below the diagonal is left undone.
    out : (n_bags, n_column_bags)
    """
    n_rows = offsets.size - 1
    for turn in range(first, last):
        for side in range(2):
            bag = turn if side == 0 else n_rows - 1 - turn
            if side == 0 or bag != turn:
                start = bag if symmetric else np.int64(0)
                _one_row(bag, start, X, x2, offsets, YT, y2, column_offsets, rate, out[bag])


@kernel
def gaussian_pair_sums(first, last, X, x2, ends, YT, y2, rate, out):
    """Sum of the kernel of each instance with those behind it in its bag, into ``out``.

    Parameters
    ----------
    X : (N, d), x2 : (N,) and YT : (d, N)
        Instances, their squared lengths, and the instances transposed.
    ends : (N,)
        Row after the last of each instance's bag.
    """
    total, t = np.empty(_CHUNK), np.empty(_CHUNK)
    for i in range(first, last):
        out[i] = 0.0
        start = i + 1
        while start < ends[i]:
            n = min(_CHUNK, ends[i] - start)
            for j in range(n):
                total[j] = 0.0
            _squared_distances(X[i], x2[i], YT, y2, start, n, t)
            _add_exp(t, n, rate, total)
            for j in range(n):
                out[i] += total[j]
            start += n
