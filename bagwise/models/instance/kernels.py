"""Hinge loss over all pairs of a relevant and an irrelevant label of each bag, and its gradient."""

from __future__ import annotations

import numpy as np

from bagwise.compute.aligned import frozen
from bagwise.compute.compiled import kernel, part

# Up to this many pairs per label a plain double loop beats sorting; beyond it sorting keeps the cost of a
# bag at O(L log L) instead of |Y| (L - |Y|).
_PAIRS_PER_LABEL = 20


@part
def _all_pairs(a, b, width, da, db):
    """Loss of all pairs (p, q) at excess u = a[p] + b[q]; adds slopes to ``da`` and ``db``."""
    loss = 0.0
    for p in range(a.size):
        for q in range(b.size):
            u = a[p] + b[q]
            if u > 0.0:
                slope = 1.0 if u >= width else u / width
                loss += u - 0.5 * width if u >= width else 0.5 * u * slope
                da[p] += slope
                db[q] += slope
    return loss


@part
def _prefix(b):
    """Order of ``b`` from above, and running sums of b and b^2 in that order."""
    order = np.argsort(-b)
    s1 = np.zeros(b.size + 1)
    s2 = np.zeros(b.size + 1)
    for k in range(b.size):
        v = b[order[k]]
        s1[k + 1] = s1[k] + v
        s2[k + 1] = s2[k] + v * v
    return order, s1, s2


@part
def _sorted_side(a, order_a, b, order_b, s1, s2, width, da):
    """Loss and slopes of every a[p] against all b: both ends of the active range only move forward."""
    loss = 0.0
    full, some = b.size, b.size  # b's above width - a[p], and above -a[p]
    for k in range(a.size):
        p = order_a[k]  # a falls, so fewer and fewer b's are active
        while full > 0 and a[p] + b[order_b[full - 1]] <= width:
            full -= 1
        while some > 0 and a[p] + b[order_b[some - 1]] <= 0.0:
            some -= 1
        n = some - full
        if n > 0:  # the quadratic part, 0 < u < width
            t1, t2 = s1[some] - s1[full], s2[some] - s2[full]
            da[p] += (n * a[p] + t1) / width
            loss += 0.5 * (n * a[p] * a[p] + 2.0 * a[p] * t1 + t2) / width
        da[p] += full
        loss += full * (a[p] - 0.5 * width) + s1[full]
    return loss


@part
def _sorted_pairs(a, b, width, da, db):
    # shifting both by the mean of b leaves u as it is and keeps the squares small
    shift = b.mean()
    a, b = a + shift, b - shift
    order_a, a1, a2 = _prefix(a)
    order_b, b1, b2 = _prefix(b)
    loss = _sorted_side(a, order_a, b, order_b, b1, b2, width, da)
    _sorted_side(b, order_b, a, order_a, a1, a2, width, db)
    return loss


@part
def _split(g, y, a, b, da, db):
    """Fill in excesses of relevant and other labels and zeros for slopes; return how many are relevant."""
    n_a, n_b = 0, 0
    for j in range(g.size):
        if y[j] > 0:
            a[n_a] = 1.0 - g[j]
            da[n_a] = 0.0
            n_a += 1
        else:
            b[n_b] = g[j]
            db[n_b] = 0.0
            n_b += 1
    return n_a


@part
def _join(y, da, db, scale, slopes):
    """Slopes in the order of the labels."""
    n_a, n_b = 0, 0
    for j in range(y.size):
        if y[j] > 0:
            slopes[j] = -scale * da[n_a]
            n_a += 1
        else:
            slopes[j] = scale * db[n_b]
            n_b += 1


# Two doors, so that data with few labels need not wait for the compilation of sorting. ``room`` has four rows
# of as many numbers as there are labels.


@kernel
def _hinge_by_pairs(which, G, Y, width, room, losses, slopes):
    L = G.shape[1]
    a, da, b, db = room[0], room[1], room[2], room[3]
    for k in range(which.size):
        i = which[k]
        n = _split(G[i], Y[i], a, b, da, db)
        scale = 1.0 / (n * (L - n))
        losses[i] = scale * _all_pairs(a[:n], b[: L - n], width, da, db)
        _join(Y[i], da, db, scale, slopes[i])


@kernel
def _hinge_by_sorting(which, G, Y, width, room, losses, slopes):
    L = G.shape[1]
    a, da, b, db = room[0], room[1], room[2], room[3]
    for k in range(which.size):
        i = which[k]
        n = _split(G[i], Y[i], a, b, da, db)
        scale = 1.0 / (n * (L - n))
        losses[i] = scale * _sorted_pairs(a[:n], b[: L - n], width, da, db)
        _join(Y[i], da, db, scale, slopes[i])


def rank_hinge(G, Y, smoothing=0.0, *, pairs_per_label=_PAIRS_PER_LABEL):
    """Mean over pairs (p in Y_b, q not in Y_b) of the hinge of 1 - G_p + G_q, for every bag, and its slopes.

    ``smoothing`` is the width w of the quadratic part: the hinge of u is ``u^2 / (2 w)`` for 0 < u < w and
    ``u - w / 2`` above; 0 is the hinge itself, with a subgradient at its kink. Bags with an empty or full set
    have no pairs: loss and slopes are 0. Those with more pairs than ``pairs_per_label`` times the number of
    labels are treated by sorting.
    """
    G, Y = frozen(np.asarray(G, dtype=np.float64)), frozen(np.asarray(Y, dtype=np.int8))
    losses, slopes = np.zeros(len(G)), np.zeros(G.shape)
    room = np.empty((4, G.shape[1]))
    n_relevant = np.count_nonzero(Y, axis=1)
    n_pairs = n_relevant * (G.shape[1] - n_relevant)
    by_sorting = n_pairs > pairs_per_label * G.shape[1]
    few, many = np.flatnonzero((n_pairs > 0) & ~by_sorting), np.flatnonzero((n_pairs > 0) & by_sorting)
    if few.size:
        _hinge_by_pairs(few, G, Y, float(smoothing), room, losses, slopes)
    if many.size:
        _hinge_by_sorting(many, G, Y, float(smoothing), room, losses, slopes)
    return losses, slopes
