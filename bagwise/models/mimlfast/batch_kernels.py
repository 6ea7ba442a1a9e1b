"""Compiled loops of MIMLfast over mini-batches: everything between the matrix products.

A batch is cut into slices of bags, each worked on by one thread. Within a slice instances are renumbered from
0; ``bounds`` are the offsets of its bags. ``W`` is kept as (K, L + 1, m), sub-concepts first, so that one
pass along the labels compares neighbouring numbers. Relevant labels of bag ``b`` are
``labels[starts[b]:starts[b + 1]]``, ascending, without the dummy, which is label L.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from bagwise.models.mimlfast.sgd_kernels import reordered_dot

__all__ = [
    "adam_step",
    "dense_slice",
    "feature_sums",
    "gather_dense",
    "gather_sparse",
    "sparse_gradient",
    "tile_gradients",
    "tile_scores",
    "warp_gradient",
]


@njit(cache=True, nogil=True)
def feature_sums(X, start, stop, shift, total, squares):
    """Add up x - shift and (x - shift)^2 over some rows; return how many entries are not zero."""
    filled = 0
    for i in range(start, stop):
        x = X[i]
        for j in range(x.size):
            filled += x[j] != 0
        for j in range(x.size):
            r = np.float64(x[j]) - shift[j]
            total[j] += r
            squares[j] += r * r
    return filled


@njit(cache=True, nogil=True)
def gather_dense(X, offsets, bags, mean, factor, constant, out, bounds):
    """Copy the instances of some bags, standardised and with a constant feature; return their number."""
    n = 0
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


@njit(cache=True, nogil=True)
def gather_sparse(data, indices, indptr, offsets, bags, factor, constant, A, P, bounds):
    """Project the instances of some bags, P = Z A, where Z are the scaled rows and a constant feature."""
    n = 0
    d = A.shape[0] - 1
    for s in range(bags.size):
        bounds[s] = n
        for i in range(offsets[bags[s]], offsets[bags[s] + 1]):
            p = P[n]
            for c in range(p.size):
                p[c] = constant * A[d, c]
            for q in range(indptr[i], indptr[i + 1]):
                j = indices[q]
                x = data[q] * factor[j]
                for c in range(p.size):
                    p[c] += x * A[j, c]
            n += 1
    bounds[bags.size] = n
    return n


@njit(cache=True, nogil=True)
def sparse_gradient(data, indices, indptr, offsets, bags, factor, constant, dP, dA):
    """Add Z^T dP to ``dA``, for the rows that `gather_sparse` projected."""
    n = 0
    d = dA.shape[0] - 1
    for s in range(bags.size):
        for i in range(offsets[bags[s]], offsets[bags[s] + 1]):
            g = dP[n]
            for c in range(g.size):
                dA[d, c] += constant * g[c]
            for q in range(indptr[i], indptr[i + 1]):
                j = indices[q]
                x = data[q] * factor[j]
                for c in range(g.size):
                    dA[j, c] += x * g[c]
            n += 1


@njit(cache=True, nogil=True)
def _maxima(S, lo, hi, n_sub, top, arg):
    """Score of each label in one bag, and where it comes from as row * K + k; the first wins a tie."""
    n = top.size
    top[:] = S[lo, :n]
    arg[:] = lo * n_sub
    for i in range(lo, hi):
        for k in range(n_sub):
            row = S[i, k * n : (k + 1) * n]
            code = np.int32(i * n_sub + k)
            for l in range(n):
                # a select instead of a jump: the loop becomes vector compare and blend
                larger = row[l] > top[l]
                top[l] = row[l] if larger else top[l]
                arg[l] = code if larger else arg[l]


@njit(cache=True, nogil=True)
def tile_scores(P, W, bounds, tile_bags, S, out):
    """Scores of all labels and the dummy for each bag of a slice, made a tile of bags at a time."""
    n_bags, n_sub = out.shape[0], W.shape[0]
    columns = W.reshape(-1, W.shape[2]).T
    arg = np.empty(out.shape[1], np.int32)
    for a in range(0, n_bags, tile_bags):
        b = min(a + tile_bags, n_bags)
        first = bounds[a]
        tile = S[: bounds[b] - first]
        np.dot(P[first : bounds[b]], columns, tile)
        for s in range(a, b):
            _maxima(tile, bounds[s] - first, bounds[s + 1] - first, n_sub, out[s], arg)


@njit(cache=True, nogil=True)
def _scatter(n, who, slope, top, arg, n_sub, P, W, dP, dW, hit):
    """Carry slopes of label scores to their key instances and sub-concepts; return the sum of slope * score.

    One call per bag, with its loops in place: a call per label costs several times what it computes.
    """
    total = 0.0
    for e in range(n):
        g, l = slope[e], who[e]
        i, k = arg[l] // n_sub, arg[l] % n_sub
        total += g * top[l]
        hit[i] = True
        p, dp, w, dw = P[i], dP[i], W[k, l], dW[k, l]
        for c in range(p.size):
            dp[c] += g * w[c]
            dw[c] += g * p[c]
    return total


@njit(cache=True, nogil=True)
def warp_gradient(S, P, W, bounds, bags, labels, starts, harmonic, dP, dW, hit, used):
    """Eq. (5) with exact ranks: its value, and its gradient for scores with their key instances held.

    For every relevant label y and the dummy, all violating labels share the weight H(R) / R, where R counts
    them. ``dP`` and ``hit`` (instances with a gradient) are overwritten, ``dW`` added to; ``used[l, k]``
    counts for how many bags with label l its sub-concept k was the best.
    """
    n_sub, n_all = W.shape[:2]
    dummy = n_all - 1
    dP[:] = 0.0
    hit[:] = False
    top = np.empty(n_all, S.dtype)
    near = np.empty(n_all, S.dtype)
    slope = np.empty(2 * n_all, S.dtype)
    arg = np.empty(n_all, np.int32)
    who = np.empty(2 * n_all, np.int64)
    relevant_too = np.zeros(n_all, np.bool_)
    zero, one = S.dtype.type(0.0), S.dtype.type(1.0)
    loss = 0.0
    for s in range(bags.size):
        _maxima(S, bounds[s], bounds[s + 1], n_sub, top, arg)
        relevant = labels[starts[bags[s]] : starts[bags[s] + 1]]
        lowest = top[dummy]
        for y in relevant:
            relevant_too[y] = True
            lowest = min(lowest, top[y])
        # Few irrelevant labels violate anything: only they, side by side, are compared with every y.
        floor = lowest - one
        n_close = 0
        for l in range(dummy):
            who[n_close], near[n_close] = l, top[l]
            n_close += (top[l] > floor) & (not relevant_too[l])
        for y in relevant:
            relevant_too[y] = False
        who[n_close] = dummy
        slope[: n_close + 1] = zero
        n_active = n_close + 1
        for q in range(relevant.size + 1):
            y = dummy if q == relevant.size else relevant[q]
            used[y, arg[y] % n_sub] += 1
            floor = top[y] - one
            with_dummy = y != dummy and top[dummy] > floor
            rank = int(with_dummy)
            for c in range(n_close):
                rank += near[c] > floor
            if rank == 0:
                continue
            weight = harmonic[rank] / S.dtype.type(rank)
            for c in range(n_close):
                slope[c] += weight if near[c] > floor else zero
            if with_dummy:
                slope[n_close] += weight
            loss += harmonic[rank]  # the margin 1 of each violator, times its weight
            if y == dummy:
                slope[n_close] -= harmonic[rank]
            else:
                who[n_active], slope[n_active] = y, -harmonic[rank]
                n_active += 1
        first = 0
        for e in range(n_active):  # close together, without the labels that violate nothing
            who[first], slope[first] = who[e], slope[e]
            first += slope[e] != zero
        loss += _scatter(first, who, slope, top, arg, n_sub, P, W, dP, dW, hit)
    return loss


@njit(cache=True, nogil=True)
def tile_gradients(P, W, bounds, bags, tile_bags, labels, starts, harmonic, S, dP, dW, hit, used):
    """`warp_gradient` for all bags of a slice, whose scores are made a tile of bags at a time.

    They never all lie in memory, and are read again while still in the cache. ``dW`` is overwritten.
    """
    dW[:] = 0.0
    columns = W.reshape(-1, W.shape[2]).T
    loss = 0.0
    for a in range(0, bags.size, tile_bags):
        b = min(a + tile_bags, bags.size)
        lo, hi = bounds[a], bounds[b]
        tile = S[: hi - lo]
        np.dot(P[lo:hi], columns, tile)
        loss += warp_gradient(
            tile, P[lo:hi], W, bounds[a : b + 1] - lo, bags[a:b], labels, starts, harmonic, dP[lo:hi], dW,
            hit[lo:hi], used,
        )  # fmt: skip
    return loss


@njit(cache=True, nogil=True)
def dense_slice(
    X, offsets, bags, mean, factor, constant, A, W, tile_bags, labels, starts, harmonic, bounds, Z, P, S, dP,
    hit, dA, dW, used,
):  # fmt: skip
    """Value and gradients of Eq. (5) for a slice of bags with dense instances, in one piece.

    Everything, matrix products included, happens without the interpreter, so threads do not wait for each
    other. Returns the value and the number of instances that had a gradient; only these enter the last
    product.
    """
    n = gather_dense(X, offsets, bags, mean, factor, constant, Z, bounds)
    np.dot(Z[:n], A, P[:n])
    loss = tile_gradients(P[:n], W, bounds, bags, tile_bags, labels, starts, harmonic, S, dP, dW, hit, used)
    n_hit = 0
    for i in range(n):
        if hit[i]:
            if n_hit < i:
                Z[n_hit] = Z[i]
                dP[n_hit] = dP[i]
            n_hit += 1
    np.dot(Z[:n_hit].T, dP[:n_hit], dA)
    return loss, n_hit


@njit(cache=True, nogil=True)
def adam_step(
    theta, slices, first, second, start, stop, rate, decay1, decay2, correction1, correction2, weight, C
):
    """One step of Adam on some rows of ``theta`` with the gradient ``weight`` * sum of slices, then the caps.

    Slices are added in their order, whichever thread made them: the result does not depend on threads.
    """
    g = np.empty(theta.shape[1], theta.dtype)
    one = theta.dtype.type(1.0)
    for r in range(start, stop):
        x, m1, m2 = theta[r], first[r], second[r]
        g[:] = slices[0, r]
        for s in range(1, slices.shape[0]):
            part = slices[s, r]
            for c in range(g.size):
                g[c] += part[c]
        for c in range(g.size):
            g[c] *= weight
            m1[c] = decay1 * m1[c] + (one - decay1) * g[c]
            m2[c] = decay2 * m2[c] + (one - decay2) * g[c] * g[c]
            x[c] -= rate * (m1[c] * correction1) / (np.sqrt(m2[c] * correction2) + theta.dtype.type(1e-8))
        norm = np.sqrt(reordered_dot(x, x))
        if norm > C:
            x *= C / norm
