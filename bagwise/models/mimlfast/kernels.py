"""Compiled loops of MIMLfast over mini-batches: everything between the matrix products.

A batch is cut into slices of bags, each worked on by one thread with a ``SliceMemory`` of its own. Within a
slice instances are renumbered from 0; ``bounds`` are the offsets of its bags. Label vectors are kept as (K,
L + 1, m), sub-concepts first, so that one pass along the labels compares neighbouring numbers. The relevant
labels of bag ``b`` are ``labels[starts[b]:starts[b + 1]]``, ascending, without the dummy, which is label L.

Scores are made and read a tile of bags at a time, while they are in the cache: ``first`` and ``last`` count
bags of the slice, and row 0 of ``scores`` is the first instance of bag ``first``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bagwise.compute.compiled import kernel, part
from bagwise.models.mimlfast.kernels_sgd import cap_norm


class LabelRows(NamedTuple):
    """Relevant labels of each bag: those of bag b are ``labels[starts[b]:starts[b + 1]]``."""

    labels: np.ndarray
    starts: np.ndarray

    @classmethod
    def from_matrix(cls, Y: np.ndarray) -> LabelRows:
        """From the 0/1 matrix of labels."""
        rows, columns = np.divmod(np.flatnonzero((Y != 0).ravel()), Y.shape[1])
        starts = np.searchsorted(rows, np.arange(len(Y) + 1))
        return cls(columns.astype(np.int64), starts.astype(np.int64))


class SliceMemory(NamedTuple):
    """Memory of a thread for one slice of bags; the next slice overwrites it."""

    bounds: np.ndarray
    scaled: np.ndarray  # instances (n, n_inputs), dense ones only
    projected: np.ndarray  # (n, m)
    scores: np.ndarray  # of a tile of instances (n, K (L + 1))
    projected_gradient: np.ndarray  # (n, m)
    active: np.ndarray  # which instances have a gradient
    best: np.ndarray  # (L + 1,) scores of the labels in one bag
    source: np.ndarray  # where they come from: instance * K + sub-concept
    close: np.ndarray  # scores of irrelevant labels that may violate a margin, side by side
    changed: np.ndarray  # labels whose scores have a slope, at most 2 (L + 1) entries
    slopes: np.ndarray  # derivatives of the loss by these scores
    is_relevant: np.ndarray  # (L + 1,) truth values, all False between bags

    @classmethod
    def allocate(
        cls,
        shape: tuple[int, int, int],
        n_bags: int,
        n_rows: int,
        n_tile: int,
        n_inputs: int,
        dtype: Any = np.float32,
    ) -> SliceMemory:
        """Memory for some bags and instances; ``shape`` is that of the label vectors (K, L + 1, m).

        ``n_tile`` is the number of instances that are scored at a time, ``n_inputs`` that of the features of
        a scaled instance, 0 where instances stay sparse.
        """
        K, n_all, m = shape
        return cls(
            bounds=np.zeros(n_bags + 1, np.int64),
            scaled=np.empty((n_rows, n_inputs), dtype),
            projected=np.empty((n_rows, m), dtype),
            scores=np.empty((n_tile, K * n_all), dtype),
            projected_gradient=np.empty((n_rows, m), dtype),
            active=np.empty(n_rows, np.bool_),
            best=np.empty(n_all, dtype),
            source=np.empty(n_all, np.int32),
            close=np.empty(n_all, dtype),
            changed=np.empty(2 * n_all, np.int64),
            slopes=np.empty(2 * n_all, dtype),
            is_relevant=np.zeros(n_all, np.bool_),
        )


class Moments(NamedTuple):
    """Running means of the gradient and of its square."""

    mean: np.ndarray
    square: np.ndarray


class AdamStep(NamedTuple):
    """Constants of one step of Adam, all in the precision of the parameters."""

    rate: float
    keep_mean: float
    keep_square: float
    correct_mean: float
    correct_square: float
    gradient_weight: float
    max_norm: float


@kernel
def gather_dense(bags, X, offsets, mean, factor, constant, out, bounds):
    """Copy the instances of some bags, standardised and with a constant feature; return their number."""
    n = np.int64(0)
    d = X.shape[1]
    for s in range(bags.size):
        bounds[s] = n
        for i in range(offsets[bags[s]], offsets[bags[s] + 1]):
            x, z = X[i], out[n]
            for j in range(d):
                z[j] = (x[j] - mean[j]) * factor[j]
            z[d] = constant
            n += 1
    bounds[bags.size] = n
    return n


@kernel
def gather_sparse(bags, values, columns, row_starts, offsets, factor, constant, space, projected, bounds):
    """Project the instances of some bags, the scaled rows with a constant feature; return their number."""
    n = np.int64(0)
    d = space.shape[0] - 1
    for s in range(bags.size):
        bounds[s] = n
        for i in range(offsets[bags[s]], offsets[bags[s] + 1]):
            p = projected[n]
            for c in range(p.size):
                p[c] = constant * space[d, c]
            for q in range(row_starts[i], row_starts[i + 1]):
                j = columns[q]
                x = values[q] * factor[j]
                for c in range(p.size):
                    p[c] += x * space[j, c]
            n += 1
    bounds[bags.size] = n
    return n


@kernel
def sparse_gradient(bags, values, columns, row_starts, offsets, factor, constant, projected_gradient, out):
    """Gradient for the shared space, from that of the instances that `gather_sparse` projected."""
    n = 0
    d = out.shape[0] - 1
    for j in range(out.shape[0]):
        for c in range(out.shape[1]):
            out[j, c] = 0.0
    for s in range(bags.size):
        for i in range(offsets[bags[s]], offsets[bags[s] + 1]):
            g = projected_gradient[n]
            for c in range(g.size):
                out[d, c] += constant * g[c]
            for q in range(row_starts[i], row_starts[i + 1]):
                j = columns[q]
                x = values[q] * factor[j]
                for c in range(g.size):
                    out[j, c] += x * g[c]
            n += 1


@kernel
def keep_active(n, active, scaled, projected_gradient):
    """Close the gaps of instances without a gradient, in place; return how many are left."""
    n_kept = np.int64(0)
    for i in range(n):
        if active[i]:
            if n_kept < i:
                for j in range(scaled.shape[1]):
                    scaled[n_kept, j] = scaled[i, j]
                for c in range(projected_gradient.shape[1]):
                    projected_gradient[n_kept, c] = projected_gradient[i, c]
            n_kept += 1
    return n_kept


@part
def _maxima(scores, first, last, base, n_sub, best, source):
    """Score of each label over rows of one bag, and where it comes from; the first wins a tie.

    ``base`` is the instance of row 0: sources count instances of the slice, not of the tile.
    """
    n = best.size
    code = np.int32((base + first) * n_sub)
    for l in range(n):
        best[l], source[l] = scores[first, l], code
    for i in range(first, last):
        for k in range(n_sub):
            row = scores[i, k * n : (k + 1) * n]
            code = np.int32((base + i) * n_sub + k)
            for l in range(n):
                # a select instead of a jump: the loop becomes vector compare and blend
                larger = row[l] > best[l]
                best[l] = row[l] if larger else best[l]
                source[l] = code if larger else source[l]


@kernel
def best_scores(first, last, n_sub, memory, out):
    """Scores of all labels and the dummy for bags of a tile, into rows of ``out``."""
    base = memory.bounds[first]
    for s in range(first, last):
        lo, hi = memory.bounds[s] - base, memory.bounds[s + 1] - base
        _maxima(memory.scores, lo, hi, base, n_sub, out[s], memory.source)


@part
def _close_labels(relevant, memory):
    """Put the irrelevant labels that violate the lowest margin side by side, then the dummy; count them.

    Few irrelevant labels violate anything: only they are compared with every relevant label.
    """
    best, is_relevant = memory.best, memory.is_relevant
    dummy = best.size - 1
    lowest = best[dummy]
    for y in relevant:
        is_relevant[y] = True
        lowest = min(lowest, best[y])
    floor = lowest - best.dtype.type(1.0)
    n_close = np.int64(0)
    for l in range(dummy):
        memory.changed[n_close], memory.close[n_close] = l, best[l]
        n_close += (best[l] > floor) & (not is_relevant[l])
    for y in relevant:
        is_relevant[y] = False
    memory.changed[n_close] = dummy
    return n_close


@part
def _label_slopes(relevant, n_close, n_sub, harmonic, memory, used):
    """Slopes of Eq. (5) for one bag's scores, in ``slopes`` and ``changed``; their number, and sum H(R)."""
    best, close, changed, slopes = memory.best, memory.close, memory.changed, memory.slopes
    dummy = best.size - 1
    zero, one = best.dtype.type(0.0), best.dtype.type(1.0)
    for c in range(n_close + 1):
        slopes[c] = zero
    total, n_slopes = 0.0, n_close + 1
    for q in range(relevant.size + 1):
        y = dummy if q == relevant.size else relevant[q]
        used[y, memory.source[y] % n_sub] += 1
        floor = best[y] - one
        with_dummy = y != dummy and best[dummy] > floor
        rank = np.int64(with_dummy)
        for c in range(n_close):
            rank += close[c] > floor
        if rank == 0:
            continue
        weight = harmonic[rank] / best.dtype.type(rank)
        for c in range(n_close):
            slopes[c] += weight if close[c] > floor else zero
        if with_dummy:
            slopes[n_close] += weight
        total += harmonic[rank]  # the margin 1 of each violator, times its weight
        if y == dummy:
            slopes[n_close] -= harmonic[rank]
        else:
            changed[n_slopes], slopes[n_slopes] = y, -harmonic[rank]
            n_slopes += 1
    n_kept = np.int64(0)
    for e in range(n_slopes):  # without the labels that violate nothing
        changed[n_kept], slopes[n_kept] = changed[e], slopes[e]
        n_kept += slopes[e] != zero
    return n_kept, total


@part
def _scatter(n_slopes, vectors, memory, gradient):
    """Carry slopes of label scores to their key instances and sub-concepts; return the sum of slope * score.

    One call per bag, with its loops in place: a call per label costs several times what it computes.
    """
    total, n_sub = 0.0, vectors.shape[0]
    for e in range(n_slopes):
        g, l = memory.slopes[e], memory.changed[e]
        i, k = memory.source[l] // n_sub, memory.source[l] % n_sub
        total += g * memory.best[l]
        memory.active[i] = True
        p, dp, w, dw = memory.projected[i], memory.projected_gradient[i], vectors[k, l], gradient[k, l]
        for c in range(p.size):
            dp[c] += g * w[c]
            dw[c] += g * p[c]
    return total


@kernel
def warp_gradient(first, last, bags, rows, vectors, harmonic, memory, gradient, used):
    """Eq. (5) with exact ranks: its value, and its gradient for scores with their key instances held.

    For every relevant label y and the dummy, all violating labels share the weight H(R) / R, where R counts
    them. ``projected_gradient`` and ``active`` of the memory are overwritten; ``gradient``, that of the label
    vectors, is added to; ``used[l, k]`` counts for how many bags with label l its sub-concept k was the best.
    """
    n_sub, bounds = vectors.shape[0], memory.bounds
    base = bounds[first]
    for i in range(base, bounds[last]):
        memory.active[i] = False
        for c in range(memory.projected_gradient.shape[1]):
            memory.projected_gradient[i, c] = 0.0
    loss = 0.0
    for s in range(first, last):
        _maxima(
            memory.scores, bounds[s] - base, bounds[s + 1] - base, base, n_sub, memory.best, memory.source
        )
        relevant = rows.labels[rows.starts[bags[s]] : rows.starts[bags[s] + 1]]
        n_close = _close_labels(relevant, memory)
        n_slopes, total = _label_slopes(relevant, n_close, n_sub, harmonic, memory, used)
        loss += total + _scatter(n_slopes, vectors, memory, gradient)
    return loss


@kernel
def adam_step(first, last, parameters, slices, moments, step):
    """One step of Adam on some rows with the gradients that the slices of a batch found, then the caps.

    Slices are added into the first one in their order, whichever thread made them: the result does not depend
    on threads.
    """
    one, tiny = parameters.dtype.type(1.0), parameters.dtype.type(1e-8)
    for r in range(first, last):
        x, mean, square, g = parameters[r], moments.mean[r], moments.square[r], slices[0, r]
        for s in range(1, slices.shape[0]):
            part = slices[s, r]
            for c in range(g.size):
                g[c] += part[c]
        for c in range(g.size):
            g[c] *= step.gradient_weight
            mean[c] = step.keep_mean * mean[c] + (one - step.keep_mean) * g[c]
            square[c] = step.keep_square * square[c] + (one - step.keep_square) * g[c] * g[c]
            x[c] -= (
                step.rate * (mean[c] * step.correct_mean) / (np.sqrt(square[c] * step.correct_square) + tiny)
            )
        cap_norm(x, step.max_norm)
