"""Compiled loops of MM-MIL: from activations to instance log-odds, and back to gradients.

Activations are rows ``[a_1 .. a_M, s_1 .. s_M]``: ``a_m`` of expert m, ``s_m`` of gate m. With
``theta = softmax(s)`` and ``y_m = 1 / (1 + exp(-a_m))`` an instance has ``p = sum theta_m y_m`` and
``1 - p = sum theta_m (1 - y_m)``: two sums of positive terms, never ``1 - sum``. Nothing here overflows;
where a sum underflows it is taken again from logarithms.
"""

from __future__ import annotations

import math

import numpy as np

from bagwise.utils.compiled import kernel, part

__all__ = ["bag_losses", "instance_posteriors"]

_TINY = 1e-280  # below this a sum of probabilities may have lost terms to underflow


@part
def _softplus(x):
    """Give log(1 + exp(x)) without overflow."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@part
def _log_sum(v):
    """Logarithm of the sum of exponentials of a short vector."""
    top = v[0]
    for m in range(1, v.size):
        top = max(top, v[m])
    total = 0.0
    for m in range(v.size):
        total += math.exp(v[m] - top)
    return top + math.log(total)


@part
def _posteriors(f, y, plus, minus, u, w):
    """Log-odds r = ln p - ln(1 - p) of one instance; fills y, P(z|x,+) and P(z|x,-). ``u, w`` are scratch."""
    M = y.size
    top = f[M]
    for m in range(1, M):
        top = max(top, f[M + m])
    p = 0.0
    n = 0.0
    for m in range(M):
        e = math.exp(-abs(f[m]))
        small = e / (1.0 + e)
        large = 1.0 / (1.0 + e)
        y[m] = large if f[m] >= 0 else small
        theta = math.exp(f[M + m] - top)  # up to a factor, which cancels in all that follows
        plus[m] = theta * y[m]
        minus[m] = theta * (small if f[m] >= 0 else large)
        p += plus[m]
        n += minus[m]
    if p > _TINY and n > _TINY:
        for m in range(M):
            plus[m] /= p
            minus[m] /= n
        return math.log(p / n)
    for m in range(M):
        u[m] = f[M + m] - _softplus(-f[m])
        w[m] = f[M + m] - _softplus(f[m])
    log_p, log_n = _log_sum(u), _log_sum(w)
    for m in range(M):
        plus[m] = math.exp(u[m] - log_p)
        minus[m] = math.exp(w[m] - log_n)
    return log_p - log_n


@kernel
def instance_posteriors(F, r, plus):
    """Log-odds and P(z_m | x, +) of every instance.

    Parameters
    ----------
    F : array of shape (n_instances, 2 M)
        Activations of experts, then gates.
    r : array of shape (n_instances,)
        Receives the log-odds.
    plus : array of shape (n_instances, M)
        Receives the posterior of clusters given that the instance is positive.
    """
    M = plus.shape[1]
    y, minus, u, w = np.empty(M), np.empty(M), np.empty(M), np.empty(M)
    for i in range(F.shape[0]):
        r[i] = _posteriors(F[i], y, plus[i], minus, u, w)


@part
def _shares(r, size, sharpness):
    """Turn log-odds of a bag into their shares in its soft maximum; the maximum, and the soft one.

    Infinite sharpness gives all to the first largest instance.
    """
    best = 0
    for j in range(1, size):
        if r[j] > r[best]:
            best = j
    top = r[best]
    total = 0.0
    for j in range(size):
        if sharpness < np.inf:
            r[j] = math.exp(sharpness * (r[j] - top))
        else:
            r[j] = 1.0 if j == best else 0.0
        total += r[j]
    for j in range(size):
        r[j] /= total
    return top, top + math.log(total) / sharpness


@kernel
def bag_losses(F, offsets, labels, weights, sharpness, G):
    """Smooth and hard negative log-likelihood of bags, and the gradient of the smooth one.

    Parameters
    ----------
    F : array of shape (n_instances, 2 M)
        Activations of experts, then gates.
    offsets : int array of shape (n_bags + 1,)
        Rows of bag ``b`` are ``offsets[b] - offsets[0]`` to ``offsets[b + 1] - offsets[0]``.
    labels : array of shape (n_bags,)
        1 for positive bags, 0 for negative ones.
    weights : array of shape (n_bags,)
        Weights of the bags.
    sharpness : float
        ``v`` of the bag log-odds ``g = (1 / v) log sum_j exp(v r_j)``; infinity is the maximum itself.
    G : array of the shape of F
        Receives the gradient with respect to ``F``.

    Returns
    -------
    smooth, hard : float
        Sums of ``log(1 + exp(-g))`` over positive and ``log(1 + exp(g))`` over negative bags; ``hard`` with
        the largest ``r_j`` in place of ``g``.
    """
    M = F.shape[1] // 2
    y, plus, minus, u, w = np.empty(M), np.empty(M), np.empty(M), np.empty(M), np.empty(M)
    r = np.empty(F.shape[0])
    smooth, hard = 0.0, 0.0
    for b in range(offsets.size - 1):
        lo, size = offsets[b] - offsets[0], offsets[b + 1] - offsets[b]
        for j in range(size):
            r[j] = _posteriors(F[lo + j], y, plus, minus, u, w)
            for m in range(M):
                # dr/da = q+ (1 - y) + q- y; dr/ds = q+ - q-
                G[lo + j, m] = plus[m] * (1.0 - y[m]) + minus[m] * y[m]
                G[lo + j, M + m] = plus[m] - minus[m]
        top, g = _shares(r, size, sharpness)
        sign = -1.0 if labels[b] > 0 else 1.0
        smooth += weights[b] * _softplus(sign * g)
        hard += weights[b] * _softplus(sign * top)
        # d softplus(x) / dx = 1 / (1 + exp(-x)), from the small exponential
        e = math.exp(-abs(g))
        slope = weights[b] * sign * (1.0 / (1.0 + e) if sign * g >= 0 else e / (1.0 + e))
        for j in range(size):
            share = slope * r[j]
            for m in range(2 * M):
                G[lo + j, m] *= share
    return smooth, hard
