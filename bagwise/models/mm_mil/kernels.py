"""Compiled loops of MM-MIL: from activations to instance log-odds, and back to gradients.

Activations are rows ``[a_1 .. a_M, s_1 .. s_M]``: ``a_m`` of expert m, ``s_m`` of gate m. With
``theta = softmax(s)`` and ``y_m = 1 / (1 + exp(-a_m))`` an instance has ``p = sum theta_m y_m`` and
``1 - p = sum theta_m (1 - y_m)``: two sums of positive terms, never ``1 - sum``. Nothing here overflows;
where a sum underflows it is taken again from logarithms.

Instances go through in blocks, turned so that one activation of all of them lies side by side. Then loops run
over instances and fill vector registers, and exponentials, most of the work, are taken many at a time.
"""

from __future__ import annotations

import math

import numpy as np

from bagwise.compute.compiled import kernel, part
from bagwise.compute.numeric import exp_of_negatives

__all__ = ["bag_losses", "instance_posteriors"]

_ROWS = 64  # instances in a block
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
def _from_logarithms(f, plus, minus):
    """Log-odds of an instance where a sum of its probabilities underflows; fills P(z|x,+) and P(z|x,-)."""
    M = plus.size
    u, w = np.empty(M), np.empty(M)
    for m in range(M):
        u[m] = f[M + m] - _softplus(-f[m])
        w[m] = f[M + m] - _softplus(f[m])
    log_p, log_n = _log_sum(u), _log_sum(w)
    for m in range(M):
        plus[m] = math.exp(u[m] - log_p)
        minus[m] = math.exp(w[m] - log_n)
    return log_p - log_n


@part
def _room(M):
    """Where a block is worked on: F turned, exponentials, posteriors, sums of instances, scratch."""
    turned, exponentials, posteriors = (2 * M, _ROWS), (2 * M, _ROWS), (3 * M, _ROWS)
    scale = np.empty(2 * M * _ROWS)
    # zeros: a last block that is not full must not hold numbers that have no exponential
    room = np.zeros(turned), np.zeros(exponentials), np.empty(posteriors), np.empty((3, _ROWS))
    return room, (scale, scale.view(np.int64))


# Loops over a block are functions of few arrays each: among many the compiler gives up proving that none
# overlaps another, and takes one instance after the other.


@part
def _turn(F, bias, first, n, a):
    for j in range(n):
        f = F[first + j]
        for k in range(f.size):
            a[k, j] = f[k] + bias[k]


@part
def _turn_back(a, first, n, F):
    for j in range(n):
        f = F[first + j]
        for k in range(f.size):
            f[k] = a[k, j]


@part
def _largest(a, n, top):
    for j in range(n):
        top[j] = a[j] if a[j] > top[j] else top[j]


@part
def _minus_size(a, n, x):
    for j in range(n):
        x[j] = -abs(a[j])


@part
def _difference(a, b, n, x):
    for j in range(n):
        x[j] = a[j] - b[j]


@part(error_model="numpy")
def _logistic(a, n, x, y):
    """Fill y = 1 / (1 + exp(-a)), and x, which is exp(-|a|), with 1 - y."""
    for j in range(n):
        large = 1.0 / (1.0 + x[j])
        small = x[j] * large
        y[j] = large if a[j] >= 0 else small
        x[j] = small if a[j] >= 0 else large


@part
def _product(a, b, n, x, total):
    for j in range(n):
        x[j] = a[j] * b[j]
        total[j] += x[j]


@part(error_model="numpy")
def _divide(x, n, by):
    for j in range(n):
        x[j] /= by[j]


@part(error_model="numpy")
def _odds(p, q, n, r):
    """Give p / (1 - p), or -1 where either is so small that it may have lost terms."""
    for j in range(n):
        r[j] = p[j] / q[j] if p[j] > _TINY and q[j] > _TINY else -1.0


@part
def _posteriors(F, bias, first, r, room, scratch):
    """Log-odds r = ln p - ln(1 - p) of the instances from row ``first`` on, as many as ``r`` has room for.

    Of the room, ``turned`` receives activations, the first half of ``exponentials`` 1 - y, ``posteriors`` y,
    P(z|x,+) and P(z|x,-), one row per cluster.
    """
    turned, exponentials, posteriors, sums = room
    M, n = turned.shape[0] // 2, r.size
    _turn(F, bias, first, n, turned)
    top, p, q = sums[0], sums[1], sums[2]
    for j in range(n):
        top[j], p[j], q[j] = turned[M, j], 0.0, 0.0
    for m in range(1, M):
        _largest(turned[M + m], n, top)
    for m in range(M):
        _minus_size(turned[m], n, exponentials[m])
        _difference(turned[M + m], top, n, exponentials[M + m])
    exp_of_negatives(exponentials.ravel(), scratch[0], scratch[1])
    for m in range(M):
        # gates up to a factor, which cancels in all that follows
        y, other, gate = posteriors[m], exponentials[m], exponentials[M + m]
        _logistic(turned[m], n, other, y)
        _product(gate, y, n, posteriors[M + m], p)
        _product(gate, other, n, posteriors[2 * M + m], q)
    _odds(p, q, n, r)
    for m in range(M):
        _divide(posteriors[M + m], n, p)
        _divide(posteriors[2 * M + m], n, q)
    for j in range(n):
        if r[j] > 0:
            r[j] = math.log(r[j])
        else:
            plus, minus = posteriors[M : 2 * M, j], posteriors[2 * M :, j]
            r[j] = _from_logarithms(turned[:, j], plus, minus)


@kernel
def instance_posteriors(F, r, plus):
    """Log-odds ``r`` (n,) and P(z_m | x, +) ``plus`` (n, M) of every instance, from activations (n, 2 M)."""
    n, M = plus.shape
    bias = np.zeros(2 * M)
    room, scratch = _room(M)
    for first in range(0, n, _ROWS):
        here = min(_ROWS, n - first)
        _posteriors(F, bias, first, r[first : first + here], room, scratch)
        _turn_back(room[2][M : 2 * M], first, here, plus)


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


@part(fastmath={"contract"})
def _slopes(plus, minus, n, y, other, gate):
    """Derivatives of log-odds: dr/da = q+ (1 - y) + q- y in the place of 1 - y, dr/ds = q+ - q-."""
    for j in range(n):
        gate[j] = plus[j] - minus[j]
    for j in range(n):
        other[j] = plus[j] * other[j] + minus[j] * y[j]


@part
def _all_slopes(n, room):
    """Turn activations of a block into derivatives of the log-odds with respect to them."""
    turned, exponentials, posteriors, _ = room
    M = turned.shape[0] // 2
    for m in range(M):
        y, plus, minus = posteriors[m], posteriors[M + m], posteriors[2 * M + m]
        _slopes(plus, minus, n, y, exponentials[m], exponentials[M + m])


@kernel
def bag_losses(F, bias, offsets, labels, weights, sharpness, G, of_bias):
    """Smooth and hard negative log-likelihood of bags, and the gradient of the smooth one.

    ``F`` (n, 2 M) are activations without the intercepts ``bias``; ``G`` receives the gradient by ``F``, that
    by ``bias`` is added to ``of_bias``. Rows of bag b are ``offsets[b] - offsets[0]`` to ``offsets[b + 1] -
    offsets[0]``; labels are 1 for positive bags, 0 for negative ones.

    The losses are sums of ``log(1 + exp(-g))`` over positive and ``log(1 + exp(g))`` over negative bags with
    ``g = (1 / v) log sum_j exp(v r_j)`` at the sharpness v, of which infinity is the maximum itself; the hard
    one has the largest ``r_j`` in place of g.
    """
    n, M = F.shape[0], F.shape[1] // 2
    room, scratch = _room(M)
    log_odds = np.empty(n)
    for first in range(0, n, _ROWS):
        here = min(_ROWS, n - first)
        _posteriors(F, bias, first, log_odds[first : first + here], room, scratch)
        _all_slopes(here, room)
        _turn_back(room[1], first, here, G)
    smooth, hard = 0.0, 0.0
    for b in range(offsets.size - 1):
        lo, size = offsets[b] - offsets[0], offsets[b + 1] - offsets[b]
        r = log_odds[lo : lo + size]
        top, g = _shares(r, size, sharpness)
        sign = -1.0 if labels[b] > 0 else 1.0
        smooth += weights[b] * _softplus(sign * g)
        hard += weights[b] * _softplus(sign * top)
        # d softplus(x) / dx = 1 / (1 + exp(-x)), from the small exponential
        e = math.exp(-abs(g))
        slope = weights[b] * sign * (1.0 / (1.0 + e) if sign * g >= 0 else e / (1.0 + e))
        for j in range(size):
            row, share = G[lo + j], slope * r[j]
            for k in range(row.size):
                row[k] *= share
                of_bias[k] += row[k]
    return smooth, hard
