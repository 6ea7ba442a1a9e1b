"""Compiled loops of the measures: one row at a time for bags, a few columns at a time for labels."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

# Columns of the array that `rank_bags` fills.
ONE_ERROR, DEPTH, RANKING_LOSS, AVERAGE_PRECISION = 0, 1, 2, 3
N_VALUES = 4

# Scratch memory is made once per piece, not once per bag.
_N_PIECES = 64
# Columns copied together, so that each cache line of the row-major scores is read once.
_N_COLUMNS = 8
# Bisections carried on side by side.
_N_BISECTIONS = 64
# Counting takes |Y_b| passes over the scores, each a plain vector loop; sorting log2(|Y_b|) slower ones. The
# two were found to meet at about 20 relevant labels, among 100 labels as among 1,000.
_COUNT_UP_TO = 16


@njit(cache=True)
def _by_counting(s, relevant, n, worst_of_ties):
    """Depth, wrongly ordered pairs and sum of precisions, from counts for each relevant label."""
    depth, wrong, precision = 0, 0, 0.0
    for a in range(n):
        l = relevant[a]
        v = s[l]
        above, not_below = 0, 1
        for j in range(l):
            above += s[j] > v
            not_below += s[j] >= v
        later = 0
        for j in range(l + 1, s.size):
            later += s[j] >= v
        not_below += later
        relevant_above, relevant_not_below = 0, 0
        for c in range(n):
            w = s[relevant[c]]
            relevant_not_below += w >= v
            # Among ties the higher index ranks better, and `relevant` ascends.
            relevant_above += (w > v) | ((w == v) & (c >= a))
        wrong += not_below - relevant_not_below
        if worst_of_ties:
            rank, hits = not_below, relevant_not_below
        else:
            rank, hits = above + later + 1, relevant_above
        depth = max(depth, rank)
        precision += hits / rank
    return depth, wrong, precision


@njit(cache=True)
def _place(ascending, v, c):
    """Set ``c[i]`` to the number of ``ascending`` values at or below ``v[i]``.

    The bisections advance side by side: each is a chain of dependent loads, and the processor overlaps many.
    """
    c[:] = 0
    rest = ascending.size
    while rest > 1:
        half = rest >> 1
        for i in range(v.size):
            c[i] += half * (ascending[c[i] + half - 1] <= v[i])
        rest -= half
    for i in range(v.size):
        c[i] += ascending[c[i]] <= v[i]


@njit(cache=True)
def _groups(ascending):
    """Start of the group of equal values that each of the ascending values belongs to."""
    first = np.empty(ascending.size, np.int64)
    for p in range(ascending.size):
        first[p] = first[p - 1] if p > 0 and ascending[p] == ascending[p - 1] else p
    return first


@njit(cache=True)
def _by_sorting(s, y, n, worst_of_ties):
    """Return the same as `_by_counting`: sort the ``n`` relevant labels, then place the others among them."""
    relevant, others = np.empty(n, np.int64), np.empty(s.size - n, np.int64)
    p, q = 0, 0
    for l in range(s.size):
        if y[l]:
            relevant[p] = l
            p += 1
        else:
            others[q] = l
            q += 1
    relevant = relevant[np.argsort(s[relevant], kind="mergesort")]  # by score, then by index
    scores, rest = s[relevant], s[others]
    first = _groups(scores)
    # placed[c]: irrelevant labels that rank above exactly c of the relevant ones.
    placed = np.zeros(n + 1, np.int64)
    places = np.empty(_N_BISECTIONS, np.int64)
    wrong = 0
    for start in range(0, rest.size, _N_BISECTIONS):
        v = rest[start : min(start + _N_BISECTIONS, rest.size)]
        _place(scores, v, places[: v.size])
        for i in range(v.size):
            c = places[i]
            wrong += c
            if not worst_of_ties and c > 0 and scores[c - 1] == v[i]:
                # Of the relevant labels tied with it, a label outranks those of lower index only.
                f = first[c - 1]
                c = f + np.searchsorted(relevant[f:c], others[start + i])
            placed[c] += 1
    rank, precision = 0, 0.0
    above = 0
    end = n
    while end > 0:
        begin = first[end - 1] if worst_of_ties else end - 1
        for c in range(begin + 1, end + 1):
            above += placed[c]
        hits = n - begin
        rank = hits + above
        precision += (end - begin) * (hits / rank)
        end = begin
    return rank, wrong, precision


@njit(cache=True, parallel=True)
def rank_bags(Y, S, worst_of_ties, out, n_relevant):
    """Fill ``out[b]`` with the four values of bag ``b``; degenerate bags get what counting them calls for.

    Reference ties: one-error forgives a tie at the top, else the higher index ranks better.
    ``worst_of_ties``: a tie at the top is an error, and tied labels all take their worst rank.
    """
    n_bags, n_labels = S.shape
    n_pieces = min(_N_PIECES, n_bags)
    for piece in prange(n_pieces):
        relevant = np.empty(n_labels, np.int64)
        for b in range(piece * n_bags // n_pieces, (piece + 1) * n_bags // n_pieces):
            s, y = S[b], Y[b]
            n = 0
            top, top_relevant, top_irrelevant = -np.inf, -np.inf, -np.inf
            for l in range(n_labels):
                if y[l]:
                    relevant[n] = l
                    n += 1
                    top_relevant = max(top_relevant, s[l])
                else:
                    top_irrelevant = max(top_irrelevant, s[l])
            top = max(top_relevant, top_irrelevant)
            n_relevant[b] = n
            if n == 0:
                out[b, ONE_ERROR] = 1.0
            elif n == n_labels:
                out[b, ONE_ERROR] = 0.0
            elif worst_of_ties:
                out[b, ONE_ERROR] = top_irrelevant == top
            else:
                out[b, ONE_ERROR] = top_relevant < top
            if n == 0 or n == n_labels:
                out[b, DEPTH] = n
                out[b, RANKING_LOSS] = 0.0
                out[b, AVERAGE_PRECISION] = 1.0
                continue
            if n <= _COUNT_UP_TO:
                depth, wrong, precision = _by_counting(s, relevant, n, worst_of_ties)
            else:
                depth, wrong, precision = _by_sorting(s, y, n, worst_of_ties)
            out[b, DEPTH] = depth
            out[b, RANKING_LOSS] = wrong / (n * (n_labels - n))
            out[b, AVERAGE_PRECISION] = precision / n


@njit(cache=True)
def _rank_column(y, s):
    """Average precision and area under the ROC curve of one label; NaN where undefined.

    Only the positives are sorted. Each negative is then placed among them by bisection.
    """
    values = np.empty_like(s)  # positives from the left, negatives from the right
    n_positive, end = 0, s.size
    for b in range(s.size):
        if y[b]:
            values[n_positive] = s[b]
            n_positive += 1
        else:
            end -= 1
            values[end] = s[b]
    n_negative = s.size - n_positive
    if n_positive == 0:
        return np.nan, np.nan
    positives = np.sort(values[:n_positive])
    first = _groups(positives)
    # placed[c]: negatives that are at or above exactly c of the positives.
    placed = np.zeros(n_positive + 1, np.int64)
    below = 0.0  # pairs with the negative below the positive, a tie being half
    places = np.empty(_N_BISECTIONS, np.int64)
    for start in range(n_positive, s.size, _N_BISECTIONS):
        v = values[start : min(start + _N_BISECTIONS, s.size)]
        _place(positives, v, places[: v.size])
        for i in range(v.size):
            c = places[i]
            placed[c] += 1
            below += n_positive - c
            if c > 0 and positives[c - 1] == v[i]:
                below += 0.5 * (c - first[c - 1])
    precision = 0.0
    negatives = 0  # at or above the group at hand
    group_end = n_positive
    while group_end > 0:
        start = first[group_end - 1]
        for c in range(start + 1, group_end + 1):
            negatives += placed[c]
        hits = n_positive - start
        precision += (group_end - start) * (hits / (hits + negatives))
        group_end = start
    auc = below / (n_positive * n_negative) if n_negative > 0 else np.nan
    return precision / n_positive, auc


@njit(cache=True, parallel=True)
def rank_labels(Y, S, out):
    """Fill ``out[l]`` with average precision and area under the ROC curve of label ``l`` over all bags."""
    n_bags, n_labels = S.shape
    for block in prange((n_labels + _N_COLUMNS - 1) // _N_COLUMNS):
        start = block * _N_COLUMNS
        width = min(_N_COLUMNS, n_labels - start)
        y = np.empty((width, n_bags), np.bool_)
        s = np.empty((width, n_bags), S.dtype)
        for b in range(n_bags):
            for l in range(width):
                y[l, b] = Y[b, start + l]
                s[l, b] = S[b, start + l]
        for l in range(width):
            out[start + l, 0], out[start + l, 1] = _rank_column(y[l], s[l])


@njit(cache=True)
def key_instances(F, offsets, Z, Y, hits, pairs):
    """Count, for each bag, the pairs to judge and those whose best instance carries the label."""
    for b in range(offsets.size - 1):
        lo, hi = offsets[b], offsets[b + 1]
        for l in range(F.shape[1]):
            if not Y[b, l] or lo == hi:
                continue
            best, shown = lo, False
            for i in range(lo, hi):
                shown |= Z[i, l]
                if F[i, l] > F[best, l]:
                    best = i
            if shown:
                pairs[b] += 1
                hits[b] += Z[best, l]
