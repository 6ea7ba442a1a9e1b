"""Compiled loops of MIMLfast over mini-batches: everything between the matrix products.

A batch is cut into slices of bags, each worked on by one thread. Within a slice instances are renumbered from
0; ``bounds`` are the offsets of its bags. ``W`` is kept as (K, L + 1, m), sub-concepts first, so that one
pass along the labels compares neighbouring numbers. Relevant labels of bag ``b`` are
``labels[starts[b]:starts[b + 1]]``, ascending, without the dummy, which is label L.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = [
    "adam_step",
    "bag_maxima",
    "feature_sums",
    "gather_dense",
    "gather_sparse",
    "sparse_gradient",
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
def bag_maxima(S, bounds, n_bags, n_sub, out):
    """Scores of all labels and the dummy for each bag of a slice."""
    arg = np.empty(out.shape[1], np.int32)
    for b in range(n_bags):
        _maxima(S, bounds[b], bounds[b + 1], n_sub, out[b], arg)


@njit(cache=True, nogil=True)
def _pass_on(g, l, top, arg, n_sub, P, W, dP, dW):
    """Carry the slope ``g`` of a label's score to its key instance and sub-concept; return g f_l."""
    i, k = arg[l] // n_sub, arg[l] % n_sub
    p, dp, w, dw = P[i], dP[i], W[k, l], dW[k, l]
    for c in range(p.size):
        dp[c] += g * w[c]
        dw[c] += g * p[c]
    return g * top[l]


@njit(cache=True, nogil=True)
def warp_gradient(S, P, W, bounds, bags, labels, starts, harmonic, dP, dW, used):
    """Eq. (5) with exact ranks: its value, and its gradient for scores with their key instances held.

    For every relevant label y and the dummy, all violating labels share the weight H(R) / R, where R counts
    them. ``dP`` is overwritten, ``dW`` added to; ``used[l, k]`` counts for how many bags with label l its
    sub-concept k was the best.
    """
    n_sub, n_all = W.shape[:2]
    dummy = n_all - 1
    dP[:] = 0.0
    top = np.empty(n_all, S.dtype)
    rival = np.empty(n_all, S.dtype)
    near = np.empty(n_all, S.dtype)
    coef = np.empty(n_all, S.dtype)
    arg = np.empty(n_all, np.int32)
    close = np.empty(n_all, np.int64)
    zero, one = S.dtype.type(0.0), S.dtype.type(1.0)
    loss = 0.0
    for s in range(bags.size):
        _maxima(S, bounds[s], bounds[s + 1], n_sub, top, arg)
        relevant = labels[starts[bags[s]] : starts[bags[s] + 1]]
        rival[:] = top
        lowest = top[dummy]
        for y in relevant:
            rival[y] = -np.inf
            lowest = min(lowest, top[y])
        # Few irrelevant labels violate anything: only they, side by side, are compared with every y.
        n_close = 0
        for l in range(dummy):
            close[n_close], near[n_close] = l, rival[l]
            n_close += rival[l] > lowest - one
        coef[: n_close + 1] = zero
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
                coef[c] += weight if near[c] > floor else zero
            if with_dummy:
                coef[n_close] += weight
            loss += harmonic[rank]  # the margin 1 of each violator, times its weight
            if y == dummy:
                coef[n_close] -= harmonic[rank]
            else:
                loss += _pass_on(-harmonic[rank], y, top, arg, n_sub, P, W, dP, dW)
        close[n_close] = dummy
        for c in range(n_close + 1):
            if coef[c] != zero:
                loss += _pass_on(coef[c], close[c], top, arg, n_sub, P, W, dP, dW)
    return loss


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
        norm2 = theta.dtype.type(0.0)
        for c in range(x.size):
            norm2 += x[c] * x[c]
        norm = np.sqrt(norm2)
        if norm > C:
            x *= C / norm
