"""Compiled loops of MIMLfast: Algorithm 1 of the paper, one triplet at a time.

Shared conventions. ``A`` (n_features, m) is the transpose of the paper's ``W_0``: its rows are the columns of
``W_0``, whose norms are capped. ``W`` (L + 1, K, m) holds the label vectors, the dummy label last. Instances
are either the rows of the dense ``X`` or those of the CSR matrix ``(data, indices, indptr)``; the other one
is empty and ``is_sparse`` tells which, so that one compilation serves both. Relevant labels of bag ``b`` are
``labels[starts[b]:starts[b + 1]]``, ascending, without the dummy.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["ranking_sum", "reordered_dot", "sgd_steps", "triplet_step"]

# Sums may be reordered, which lets dot products use vector registers; NaN and infinity keep their meaning.
# The tests compare a step with NumPy's to 1e-12 in double and 1e-6 in single precision.
_REORDER = {"reassoc", "contract"}


@njit(cache=True, nogil=True)
def _draw(state, n):
    """Uniform integer below ``n`` from the generator splitmix64, whose state is one number."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.int64(((z >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@njit(cache=True, nogil=True, fastmath=_REORDER)
def reordered_dot(a, b):
    """Inner product, summed in whatever order suits the vector registers (the same one every time)."""
    total = a[0] * b[0]
    for c in range(1, a.size):
        total += a[c] * b[c]
    return total


@njit(cache=True, nogil=True)
def _cap(v, C):
    """Scale a vector down to norm ``C`` if it is longer; never up. Tell whether it was."""
    norm = np.sqrt(reordered_dot(v, v))
    if norm > C:
        v *= C / norm
    return norm > C


@njit(cache=True, nogil=True)
def _add_row(v, x, out):
    for c in range(out.size):
        out[c] += x * v[c]


@njit(cache=True, nogil=True)
def _project(X, data, indices, indptr, is_sparse, row, A, out):
    """W_0 x for one instance."""
    out[:] = 0.0
    if is_sparse:
        for p in range(indptr[row], indptr[row + 1]):
            _add_row(A[indices[p]], data[p], out)
    else:
        for j in range(A.shape[0]):
            _add_row(A[j], X[row, j], out)


@njit(cache=True, nogil=True)
def _best(P, n_rows, w):
    """Value, instance and sub-concept of max over i, k of w_k . P_i; the first wins a tie."""
    top, i_top, k_top = reordered_dot(w[0], P[0]), 0, 0
    for i in range(n_rows):
        for k in range(w.shape[0]):
            value = reordered_dot(w[k], P[i])
            if value > top:
                top, i_top, k_top = value, i, k
    return top, i_top, k_top


@njit(cache=True, nogil=True)
def _irrelevant(place, labels):
    """The ``place``-th label that is not in the ascending ``labels``; past the last one, the dummy."""
    for l in labels:
        if l > place:
            break
        place += 1
    return place


@njit(cache=True, nogil=True)
def triplet_step(X, data, indices, indptr, is_sparse, i, j, A, W, y, k, y_bar, k_bar, p, p_bar, rate, C):
    """Eqs. (7) to (9) and the caps, in place; ``rate`` is gamma_t S, all right-hand sides are old values.

    ``i`` and ``j`` are the rows of the key instances x and x_bar, ``p`` and ``p_bar`` their projections.
    Returns how many vectors were over the cap.
    """
    w, w_bar = W[y, k].copy(), W[y_bar, k_bar].copy()
    for c in range(w.size):
        W[y, k, c] += rate * p[c]  # Eq. (8)
        W[y_bar, k_bar, c] -= rate * p_bar[c]  # Eq. (9)
    n_capped = int(_cap(W[y, k], C)) + int(_cap(W[y_bar, k_bar], C))
    if is_sparse:  # Eq. (7); columns of features that are zero in both instances do not move
        for q in range(indptr[i], indptr[i + 1]):
            _add_row(w, rate * data[q], A[indices[q]])
        for q in range(indptr[j], indptr[j + 1]):
            _add_row(w_bar, -rate * data[q], A[indices[q]])
        for q in range(indptr[i], indptr[i + 1]):
            n_capped += _cap(A[indices[q]], C)
        for q in range(indptr[j], indptr[j + 1]):
            n_capped += _cap(A[indices[q]], C)
    else:
        for f in range(A.shape[0]):
            a, b = rate * X[i, f], rate * X[j, f]
            column = A[f]
            for c in range(w.size):
                column[c] += a * w[c] - b * w_bar[c]
            n_capped += _cap(column, C)
    return n_capped


@njit(cache=True, nogil=True)
def _settle(v, total, since, place, n_summed):
    """Add a vector to its sum once for every state that was due since it last changed."""
    due = n_summed - since[place]
    if due > 0:
        for c in range(v.size):
            total[c] += due * v[c]
        since[place] = n_summed


@njit(cache=True, nogil=True)
def sgd_steps(
    X, data, indices, indptr, is_sparse, offsets, labels, starts, A, W, C, gamma0, eta, t, n_steps, state,
    sum_A, sum_W, every, used,
):  # fmt: skip
    """Run iterations ``t`` to ``t + n_steps - 1`` of Algorithm 1 in place.

    ``state`` is the state of the random numbers, advanced in place. Every ``every`` iterations (0: never) the
    parameters are added to ``sum_A`` and ``sum_W``: each vector not then, but when it next changes.
    ``used[l, k]`` counts how often sub-concept k was the best one of the relevant label l. Returns how many
    states were summed and how often a vector was over the cap.
    """
    n_bags, n_labels = offsets.size - 1, W.shape[0] - 1
    dummy = n_labels
    harmonic = np.zeros(n_labels + 2, A.dtype)
    for r in range(1, n_labels + 2):
        harmonic[r] = harmonic[r - 1] + A.dtype.type(1.0) / A.dtype.type(r)
    longest = 0
    for b in range(n_bags):
        longest = max(longest, offsets[b + 1] - offsets[b])
    P = np.empty((longest, W.shape[2]), A.dtype)
    C = A.dtype.type(C)
    n_summed, n_capped = 0, 0
    since_A, since_W = np.zeros(A.shape[0], np.int64), np.zeros(W.shape[0] * W.shape[1], np.int64)
    n_sub = W.shape[1]
    first = t == 0  # columns that no step has touched yet may begin above the cap
    for step in range(t, t + n_steps):
        b = _draw(state, n_bags)
        relevant = labels[starts[b] : starts[b + 1]]
        draw = _draw(state, relevant.size + 1)
        y = dummy if draw == relevant.size else relevant[draw]
        # Y_bar: the irrelevant labels, and the dummy unless it is y itself
        n_bar = n_labels - relevant.size + (y != dummy)
        lo, n_rows = offsets[b], offsets[b + 1] - offsets[b]
        for i in range(n_rows if n_bar > 0 else 0):
            _project(X, data, indices, indptr, is_sparse, lo + i, A, P[i])
        if n_bar > 0:
            f, i, k = _best(P, n_rows, W[y])
            used[y, k] += 1
        for v in range(1, n_bar + 1):
            y_bar = _irrelevant(_draw(state, n_bar), relevant)
            f_bar, j, k_bar = _best(P, n_rows, W[y_bar])
            if f_bar > f - 1.0:
                gamma = gamma0 / (1.0 + eta * gamma0 * step)
                rate = A.dtype.type(gamma * harmonic[n_bar // v])
                if every > 0:
                    _settle(W[y, k], sum_W[y, k], since_W, y * n_sub + k, n_summed)
                    _settle(W[y_bar, k_bar], sum_W[y_bar, k_bar], since_W, y_bar * n_sub + k_bar, n_summed)
                    if is_sparse and not first:
                        for row in (lo + i, lo + j):
                            for q in range(indptr[row], indptr[row + 1]):
                                f_q = indices[q]
                                _settle(A[f_q], sum_A[f_q], since_A, f_q, n_summed)
                    else:
                        for f_q in range(A.shape[0]):
                            _settle(A[f_q], sum_A[f_q], since_A, f_q, n_summed)
                n_capped += triplet_step(
                    X, data, indices, indptr, is_sparse, lo + i, lo + j, A, W, y, k, y_bar, k_bar,
                    P[i], P[j], rate, C,
                )  # fmt: skip
                if first:
                    for column in A:
                        n_capped += _cap(column, C)
                    first = False
                break
        if every > 0 and step % every == 0:
            n_summed += 1
    if every > 0:
        for f_q in range(A.shape[0]):
            _settle(A[f_q], sum_A[f_q], since_A, f_q, n_summed)
        for l in range(W.shape[0]):
            for k in range(n_sub):
                _settle(W[l, k], sum_W[l, k], since_W, l * n_sub + k, n_summed)
    return n_summed, n_capped


@njit(cache=True, nogil=True)
def ranking_sum(Y, S):
    """Ranking loss summed over bags that have both kinds of labels, and their number; a tie is an error.

    In one thread: held-out sets are small, and starting threads for each would take longer.
    """
    n_labels = Y.shape[1]
    relevant = np.empty(n_labels, S.dtype)
    others = np.empty(n_labels, S.dtype)
    total, n_proper = 0.0, 0
    for b in range(Y.shape[0]):
        n, n_others = 0, 0
        for l in range(n_labels):
            if Y[b, l] > 0:
                relevant[n] = S[b, l]
                n += 1
            else:
                others[n_others] = S[b, l]
                n_others += 1
        if n == 0 or n_others == 0:
            continue
        wrong = 0
        for q in range(n):
            for l in range(n_others):
                wrong += others[l] >= relevant[q]
        total += wrong / (n * n_others)
        n_proper += 1
    return total, n_proper
