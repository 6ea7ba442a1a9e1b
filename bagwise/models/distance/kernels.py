"""Hausdorff distances between bags, from Euclidean distances between instances that are never stored.

For bags A and C let ``r_i`` be the distance of instance i of A to its nearest instance of C, and ``c_j`` that
of instance j of C to its nearest of A:

- "max": the largest of all r_i and c_j, in both directions;
- "average": ``(sum r_i + sum c_j) / (|A| + |C|)``;
- "min": the smallest of them, the distance of the closest pair.

Rules for all kinds:

- Differences are squared and added feature by feature, not by ``|x|^2 + |y|^2 - 2 x'y``: equal instances are
  at distance 0 exactly.
- Each pair of bags is computed by one thread, in a fixed order of operations that does not depend on the bags
  around it: neither the number of threads nor the other bags change a bit.
- Memory beside the result: the instances, transposed, in double precision and some thousand numbers a thread.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import sparse

from bagwise.bags import runs
from bagwise.compute.aligned import frozen
from bagwise.compute.compiled import kernel, part
from bagwise.compute.devices import gpu_for
from bagwise.compute.memo import remembered
from bagwise.compute.threads import cores, in_threads
from bagwise.errors import DataError
from bagwise.utils.arrays import checked_offsets

_CELLS = 1 << 21  # numbers of a sparse matrix that are made dense at a time
_DENSE_FROM = 0.15  # share of non-zeros from which sparse rows are faster as dense ones
_WORTH_A_THREAD = 1 << 21  # differences of features below which a second thread costs more than it saves


@remembered
def hausdorff_distances(
    X: Any,
    offsets: Any,
    Z: Any = None,
    z_offsets: Any = None,
    *,
    kind: str = "average",
    device: str = "cpu",
) -> np.ndarray:
    """Hausdorff distances (n_bags, n_others) between all bags of one set, or from these to all of another.

    Z is the other set, by default the first, at half the work. No bag may be empty. On a GPU distances of
    equal instances are of the size of rounding instead of 0; sparse instances stay here.

    ``N M d`` operations for N and M instances and d features, or the number of non-zeros of Z in place of
    ``M d`` where both sets are sparse. Sparse rows with many non-zeros, or beside dense ones, are made dense
    some thousand at a time.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    X, offsets = _prepared(X, offsets)
    symmetric = Z is None
    Z, z_offsets = (X, offsets) if symmetric else _prepared(Z, z_offsets)
    if X.shape[1] != Z.shape[1]:
        raise DataError(
            f"instances have {X.shape[1]} and {Z.shape[1]} features; both sets need the same ones"
        )
    out = np.empty((len(offsets) - 1, len(z_offsets) - 1))
    if out.size == 0:
        return out
    gpu = None if sparse.issparse(X) or sparse.issparse(Z) else gpu_for(device, X.shape[0] * Z.shape[0])
    if gpu is not None:
        from bagwise.models._shared.gpu import hausdorff

        return hausdorff(X, offsets, None if symmetric else Z, z_offsets, kind, gpu)
    # the choice looks at Z alone, so that a bag's distances to Z do not depend on the bags around it
    both_sparse = sparse.issparse(X) and sparse.issparse(Z) and Z.nnz < _DENSE_FROM * math.prod(Z.shape)
    if both_sparse or not (sparse.issparse(X) or sparse.issparse(Z)):
        _fill(X, offsets, Z, z_offsets, symmetric, KINDS[kind], both_sparse, out)
        return out
    for a, b in _blocks(Z, z_offsets):
        Z_part, z_part = _dense_part(Z, z_offsets, a, b)
        for c, d in _blocks(X, offsets):
            if symmetric and c >= b:
                continue  # this block lies below the diagonal, and is mirrored
            X_part, part = _dense_part(X, offsets, c, d)
            block = np.empty((d - c, b - a))
            _fill(X_part, part, Z_part, z_part, symmetric and a == c, KINDS[kind], False, block)
            out[c:d, a:b] = block
            if symmetric:
                out[a:b, c:d] = block.T
    return out


def _fill(X, offsets, Z, z_offsets, symmetric, kind, is_sparse, out):
    widest = max(CHUNK, int(np.diff(z_offsets).max()))
    offsets, z_offsets = frozen(offsets), frozen(z_offsets)
    if is_sparse:
        rows, columns = _csr(X), _csr(Z)
        each = max(Z.nnz / max(Z.shape[0], 1), 1.0)
    else:
        rows = frozen(np.asarray(X, dtype=np.float64))
        columns = frozen(np.asarray(Z, dtype=np.float64).T)
        each = max(X.shape[1], 1)

    def bags(first, last):
        room = np.empty((3, widest))
        if is_sparse:
            spread = np.zeros(X.shape[1])
            sparse_bags(first, last, symmetric, kind, rows, offsets, columns, z_offsets, room, spread, out)
        else:
            dense_bags(first, last, symmetric, kind, rows, offsets, columns, z_offsets, room, out)

    partners = z_offsets[-1] - offsets[1:] if symmetric else np.full(len(out), z_offsets[-1])
    work = np.concatenate([[0], np.cumsum(np.diff(offsets) * partners)])
    in_threads(bags, len(out), cores(), work=work, smallest=max(int(_WORTH_A_THREAD // each), 1))
    if symmetric:
        np.fill_diagonal(out, 0.0)  # every instance is its own nearest
        for a in range(1, len(out)):
            out[a, :a] = out[:a, a]


def _csr(X):
    indices, indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return frozen(np.asarray(X.data, dtype=np.float64)), frozen(indices), frozen(indptr)


def _blocks(X, offsets):
    """Runs of bags that hold at most some million numbers as dense rows; dense instances are one run."""
    if not sparse.issparse(X):
        return [(0, len(offsets) - 1)]
    return list(runs(offsets, max(_CELLS // max(X.shape[1], 1), 1)))


def _dense_part(X, offsets, a, b):
    rows = X[offsets[a] : offsets[b]]
    return rows.toarray() if sparse.issparse(X) else rows, offsets[a : b + 1] - offsets[a]


def _prepared(X, offsets):
    """Return instances and offsets, checked."""
    if sparse.issparse(X):
        X = sparse.csr_array(X)
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
    else:
        X = np.asarray(X)
        if X.ndim != 2:
            raise DataError(
                f"expected instances of shape (n_instances, n_features), received shape {X.shape}"
            )
    return X, checked_offsets(offsets, X.shape[0], empty=False)


# ----------------------------------------------------------------------
# Compiled loops of the Hausdorff distances: one instance to many, rows of a pair of bags, runs of bags


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
