"""Compiled loops of the Hausdorff distances: one instance to many, rows of a pair of bags, runs of bags."""

from __future__ import annotations

import math

import numpy as np

from bagwise.compute.compiled import kernel, part

KINDS = {"max": 0, "average": 1, "min": 2}
CHUNK = 512  # column instances at a time: two work arrays and some stripes of features stay in the cache
_MAX, _MIN = KINDS["max"], KINDS["min"]


@part
def dense_row(x, YT, start, n, t):
    """Squared distances of one instance to ``n`` columns.

    Stripes are cut before the loops: an index that might be negative costs the vector instructions.
    """
    stop = start + n
    for j in range(n):
        t[j] = 0.0
    d = YT.shape[0]
    k = 0
    while k + 3 < d:  # four features a pass: fewer visits to t
        a, b, c, e = x[k], x[k + 1], x[k + 2], x[k + 3]
        r0, r1 = YT[k, start:stop], YT[k + 1, start:stop]
        r2, r3 = YT[k + 2, start:stop], YT[k + 3, start:stop]
        for j in range(n):
            u, v, w, z = a - r0[j], b - r1[j], c - r2[j], e - r3[j]
            t[j] += (u * u + v * v) + (w * w + z * z)
        k += 4
    while k < d:
        a, r0 = x[k], YT[k, start:stop]
        for j in range(n):
            u = a - r0[j]
            t[j] += u * u
        k += 1


@part
def _sparse_row(x, length, data, indices, indptr, start, n, t):
    """Squared distances of one instance, spread out in ``x``, to ``n`` sparse rows.

    Features that only x has contribute ``length - common``. Both add the squares of x in the same order, so
    that nothing remains of them when y has all features of x: equal instances are at distance 0 exactly.
    """
    for j in range(n):
        total = 0.0
        common = 0.0
        for p in range(indptr[start + j], indptr[start + j + 1]):
            v = x[indices[p]]
            u = v - data[p]
            total += u * u
            common += v * v
        t[j] = total + max(length - common, 0.0)


@part
def _combine(kind, nearest, lo, hi, so_far, n_pair):
    """Distance of two bags from what their rows gave and from ``nearest``, squared, of every column."""
    if kind == _MIN:
        best = nearest[lo]
        for j in range(lo + 1, hi):
            best = min(best, nearest[j])
        return math.sqrt(best)
    if kind == _MAX:
        for j in range(lo, hi):
            so_far = max(so_far, nearest[j])
        return math.sqrt(so_far)
    total = 0.0
    for j in range(lo, hi):
        total += math.sqrt(nearest[j])
    return (so_far + total) / n_pair


@part
def _begin(b, y_offsets, nearest, so_far):
    """Clear the room for as many whole column bags from ``b`` on as fit; return the one after the last."""
    last = b + 1  # there are no empty bags
    while last < y_offsets.size - 1 and y_offsets[last + 1] - y_offsets[b] <= CHUNK:
        last += 1
    for j in range(y_offsets[last] - y_offsets[b]):
        nearest[j] = np.inf
    for c in range(last - b):
        so_far[c] = 0.0
    return last


@part
def _take(kind, t, b, last, y_offsets, nearest, so_far):
    """Add what the squared distances ``t`` of one instance say of the column bags from ``b`` to ``last``."""
    start = y_offsets[b]
    for j in range(y_offsets[last] - start):
        nearest[j] = min(nearest[j], t[j])
    if kind == _MIN:
        return
    for c in range(b, last):
        best = np.inf
        for j in range(y_offsets[c] - start, y_offsets[c + 1] - start):
            best = min(best, t[j])
        if kind == _MAX:
            so_far[c - b] = max(so_far[c - b], best)
        else:
            so_far[c - b] += math.sqrt(best)


@part
def _finish(kind, size, b, last, y_offsets, nearest, so_far, row):
    """Distances of a bag of some size to the column bags from ``b`` to ``last``."""
    start = y_offsets[b]
    for c in range(b, last):
        lo, hi = y_offsets[c] - start, y_offsets[c + 1] - start
        row[c] = _combine(kind, nearest, lo, hi, so_far[c - b], size + hi - lo)


@kernel
def dense_bags(first, last, symmetric, kind, X, offsets, YT, y_offsets, room, out):
    """Distances of the bags from ``first`` to ``last`` to all column bags, or to those after themselves.

    Rows of ``room`` are squared distances, the nearest so far of every column, and what rows gave for every
    column bag.
    """
    t, nearest, so_far = room[0], room[1], room[2]
    for a in range(first, last):
        b = a + 1 if symmetric else np.int64(0)
        while b < y_offsets.size - 1:
            end = _begin(b, y_offsets, nearest, so_far)
            for i in range(offsets[a], offsets[a + 1]):
                dense_row(X[i], YT, y_offsets[b], y_offsets[end] - y_offsets[b], t)
                _take(kind, t, b, end, y_offsets, nearest, so_far)
            _finish(kind, offsets[a + 1] - offsets[a], b, end, y_offsets, nearest, so_far, out[a])
            b = end


@kernel
def sparse_bags(first, last, symmetric, kind, rows, offsets, columns, y_offsets, room, spread, out):
    """The same for CSR rows; ``spread`` has room for one row made dense."""
    data, indices, indptr = rows
    y_data, y_indices, y_indptr = columns
    t, nearest, so_far = room[0], room[1], room[2]
    for a in range(first, last):
        b = a + 1 if symmetric else np.int64(0)
        while b < y_offsets.size - 1:
            end = _begin(b, y_offsets, nearest, so_far)
            start, n = y_offsets[b], y_offsets[end] - y_offsets[b]
            for i in range(offsets[a], offsets[a + 1]):
                length = 0.0
                for p in range(indptr[i], indptr[i + 1]):
                    spread[indices[p]] = data[p]
                    length += data[p] * data[p]
                _sparse_row(spread, length, y_data, y_indices, y_indptr, start, n, t)
                for p in range(indptr[i], indptr[i + 1]):
                    spread[indices[p]] = 0.0
                _take(kind, t, b, end, y_offsets, nearest, so_far)
            _finish(kind, offsets[a + 1] - offsets[a], b, end, y_offsets, nearest, so_far, out[a])
            b = end
