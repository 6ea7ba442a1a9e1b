"""Maxima of latent values within bags: the smooth one, Eq. (38) of MIML-GP, and those drawn for Eq. (45)."""

from __future__ import annotations

import math

import numpy as np

from bagwise.compute.compiled import kernel, part
from bagwise.compute.numeric import reordered_dot, splitmix64

__all__ = ["largest_of_draws", "mean_logistic_of_max", "smooth_maximum"]


# One thread: Newton's method calls this hundreds of times on small arrays, and waking threads took longer
# than the work.
@kernel
def smooth_maximum(F, offsets, v, top, pi):
    """Write log(sum_j exp(v f_j)) / v of each bag and label to ``top`` and the softmax of v f to ``pi``.

    Parameters
    ----------
    F : (N, Q)
        Latent values of instances.
    offsets : (n + 1,)
        Bags, none of them empty.
    v : float
        Sharpness.
    top : (n, Q) and pi : (N, Q)
        Where to write.
    """
    n_labels = F.shape[1]
    total = np.empty(n_labels)
    for b in range(offsets.size - 1):
        lo, hi = offsets[b], offsets[b + 1]
        for s in range(n_labels):
            top[b, s] = F[lo, s]
            total[s] = 0.0
        for i in range(lo + 1, hi):
            for s in range(n_labels):
                top[b, s] = max(top[b, s], F[i, s])
        for i in range(lo, hi):
            for s in range(n_labels):
                e = math.exp(v * (F[i, s] - top[b, s]))
                pi[i, s] = e
                total[s] += e
        for i in range(lo, hi):
            for s in range(n_labels):
                pi[i, s] /= total[s]
        for s in range(n_labels):
            top[b, s] += math.log(total[s]) / v


@part
def _triangle(P, T, noise, lo, n, L):
    """Cholesky factor of the covariance ``T P' + diag(noise)`` of the rows of one bag.

    A row that the earlier ones determine but for rounding gets a zero on the diagonal.
    """
    m = P.shape[1]
    for j in range(n):
        own = reordered_dot(T[lo + j], P[lo + j], m) + noise[lo + j]
        for k in range(j):
            rest = reordered_dot(T[lo + j], P[lo + k], m)
            for i in range(k):
                rest -= L[j, i] * L[k, i]
            L[j, k] = rest / L[k, k] if L[k, k] > 0.0 else 0.0
        left = own
        for k in range(j):
            left -= L[j, k] * L[j, k]
        L[j, j] = math.sqrt(left) if left > 1e-12 * own else 0.0


@part
def _mean_sigmas(top):
    """Averages of sigma(x) and sigma(-x), each from small exponentials."""
    yes, no = 0.0, 0.0
    for s in range(top.size):
        e = math.exp(-abs(top[s]))
        small, large = e / (1.0 + e), 1.0 / (1.0 + e)
        yes += large if top[s] >= 0.0 else small
        no += small if top[s] >= 0.0 else large
    return yes / top.size, no / top.size


@kernel
def mean_logistic_of_max(first, last, mean, P, T, noise, offsets, Z, yes, no):
    """Average sigma(max_j f_j) and sigma(-max_j f_j) of bags ``first`` to ``last`` over draws, one label.

    Parameters
    ----------
    mean : (N,)
        Means of the latent values of instances, those that matter most first in each bag.
    P, T : (N, m)
        Features, and features times the covariance of the weights.
    noise : (N,)
        Variance of what the features leave unexplained, independent between instances.
    offsets : (n + 1,)
        Bags.
    Z : (largest bag, n_draws)
        Standard normal draws.
    yes, no : (n,)
        Where to write the two averages.
    """
    largest, n_draws = Z.shape
    L, f, top = np.empty((largest, largest)), np.empty(n_draws), np.empty(n_draws)
    for b in range(first, last):
        lo, n = offsets[b], offsets[b + 1] - offsets[b]
        _triangle(P, T, noise, lo, n, L)
        for s in range(n_draws):
            top[s] = mean[lo] + L[0, 0] * Z[0, s]
        for j in range(1, n):
            for s in range(n_draws):
                f[s] = mean[lo + j]
            for k in range(j + 1):
                c = L[j, k]
                for s in range(n_draws):
                    f[s] += c * Z[k, s]
            for s in range(n_draws):
                top[s] = max(top[s], f[s])
        yes[b], no[b] = _mean_sigmas(top)


@kernel
def largest_of_draws(first, last, F, spread, row, top):
    """Raise ``top`` of draws ``first`` to ``last`` to the largest latent value of some instances of a bag.

    Parameters
    ----------
    F : (n_draws, n)
        Latent values without what the features leave unexplained, which is drawn here.
    spread : (n,)
        Standard deviation of the latter.
    row : int
        Number of the first of these instances in its bag: an instance has the same draws in any block.
    top : (n_draws,)
    """
    state = np.empty(1, dtype=np.uint64)
    scale = 2.0**-53
    for s in range(first, last):
        for i in range(F.shape[1]):
            if F[s, i] + 8.7 * spread[i] <= top[s]:  # no draw of 53 bits lies further out
                continue
            state[0] = (np.uint64(row + i) << np.uint64(24)) ^ np.uint64(s)
            u = (float(splitmix64(state) >> np.uint64(11)) + 0.5) * scale
            v = (float(splitmix64(state) >> np.uint64(11)) + 0.5) * scale
            normal = math.sqrt(-2.0 * math.log(u)) * math.cos(2.0 * math.pi * v)
            top[s] = max(top[s], F[s, i] + spread[i] * normal)
