"""Checks of what the measures are given; each error names what was expected and where it was not met."""

from __future__ import annotations

import numpy as np
from scipy.sparse import issparse

from bagwise.compute.aligned import frozen
from bagwise.compute.compiled import kernel, part
from bagwise.compute.threads import cores, in_threads
from bagwise.errors import DataError


def as_label_sets(Y, name="Y", ndim=2):
    """Return ``Y`` as a bool array, or complain."""
    Y = Y.toarray() if issparse(Y) else np.asarray(Y)
    if Y.ndim != ndim:
        shape = "(n_bags, n_labels)" if ndim == 2 else "(n_bags,)"
        raise DataError(f"expected {name} of shape {shape}, received shape {Y.shape}")
    if ndim == 2 and Y.shape[1] == 0:
        raise DataError(f"expected at least one label, received {name} of shape {Y.shape}")
    if Y.dtype == np.bool_:
        return Y
    if Y.dtype.kind not in "iuf":
        raise DataError(f"expected {name} to hold 0 and 1, received values of type {Y.dtype}")
    sets = Y.astype(np.bool_)
    wrong = sets != Y
    if wrong.any():
        place = np.unravel_index(np.argmax(wrong), Y.shape)
        raise DataError(f"expected {name} to hold 0 and 1 only, found {Y[place]} in {_where(place)}")
    return sets


def as_scores(S, shape, name="S"):
    """Return ``S`` as float32 or float64 of the given shape and free of NaN, or complain."""
    S = np.asarray(S)
    if S.dtype.kind not in "biuf":
        raise DataError(f"expected {name} to hold numbers, received values of type {S.dtype}")
    S = np.ascontiguousarray(S, dtype=np.float32 if S.dtype == np.float32 else np.float64)
    same_shape(S, shape, name)
    # The minimum of anything with a NaN is NaN, and it takes no second array to find out.
    if S.size and np.isnan(S.min()):
        place = np.unravel_index(np.argmax(np.isnan(S)), S.shape)
        raise DataError(f"expected {name} without NaN, found one in {_where(place)}; score every label")
    return S


def same_shape(A, shape, name, other="Y"):
    """Complain unless ``A`` has the shape of the other array."""
    if A.shape != tuple(shape):
        raise DataError(f"expected {name} of the shape of {other}, {tuple(shape)}; received shape {A.shape}")


def one_of(value, choices, name):
    """Complain unless ``value`` is one of the choices."""
    if value not in choices:
        raise DataError(f"expected {name} to be one of {', '.join(map(repr, choices))}; received {value!r}")


def _where(place):
    return " of ".join(
        [f"label column {place[1]}", f"bag row {place[0]}"] if len(place) == 2 else [f"row {place[0]}"]
    )


# ----------------------------------------------------------------------
# Compiled loops of the measures: one row at a time for bags, a few columns at a time for labels
#
# Loops over bags take the first bag and the one after the last, so that threads can share them; what is
# sorted whole is sorted by NumPy, which need not be compiled.


# Columns of the array that `rank_bags` fills.
ONE_ERROR, DEPTH, RANKING_LOSS, AVERAGE_PRECISION = 0, 1, 2, 3
N_VALUES = 4

_WORTH_A_THREAD = 1 << 16  # scores below which a second thread costs more than it saves
# Columns copied together, so that each cache line of the row-major scores is read once.
_N_COLUMNS = 8
# Bisections carried on side by side.
_N_BISECTIONS = 64
# Counting takes |Y_b| passes over the scores, each a plain vector loop; sorting log2(|Y_b|) slower ones. The
# two were found to meet at about 20 relevant labels, among 100 labels as among 1,000.
_COUNT_UP_TO = 16


@part
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


@part
def _place(ascending, v, c):
    """Set ``c[i]`` to the number of ``ascending`` values at or below ``v[i]``.

    The bisections advance side by side: each is a chain of dependent loads, and the processor overlaps many.
    """
    for i in range(c.size):
        c[i] = 0
    rest = ascending.size
    while rest > 1:
        half = rest >> 1
        for i in range(v.size):
            c[i] += half * (ascending[c[i] + half - 1] <= v[i])
        rest -= half
    for i in range(v.size):
        c[i] += ascending[c[i]] <= v[i]


@part
def _groups(ascending):
    """Start of the group of equal values that each of the ascending values belongs to."""
    first = np.empty(ascending.size, np.int64)
    for p in range(ascending.size):
        first[p] = first[p - 1] if p > 0 and ascending[p] == ascending[p - 1] else p
    return first


@part
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


@kernel
def _rank_few(first, last, Y, S, worst_of_ties, relevant, out, n_relevant):
    """All bags with one-error; of those with few relevant labels the rest, too. ``relevant`` is scratch."""
    n_labels = S.shape[1]
    for b in range(first, last):
        s, y = S[b], Y[b]
        n = 0
        top_relevant, top_irrelevant = -np.inf, -np.inf
        for l in range(n_labels):
            if y[l]:
                relevant[n] = l
                n += 1
                top_relevant = max(top_relevant, s[l])
            else:
                top_irrelevant = max(top_irrelevant, s[l])
        top = max(top_relevant, top_irrelevant)
        n_relevant[b] = n
        if n == 0 or n == n_labels:
            out[b, ONE_ERROR] = 1.0 if n == 0 else 0.0
            out[b, DEPTH] = n
            out[b, RANKING_LOSS] = 0.0
            out[b, AVERAGE_PRECISION] = 1.0
            continue
        out[b, ONE_ERROR] = top_irrelevant == top if worst_of_ties else top_relevant < top
        if n <= _COUNT_UP_TO:
            depth, wrong, precision = _by_counting(s, relevant, n, worst_of_ties)
            out[b, DEPTH] = depth
            out[b, RANKING_LOSS] = wrong / (n * (n_labels - n))
            out[b, AVERAGE_PRECISION] = precision / n


@kernel
def _rank_many(first, last, which, Y, S, worst_of_ties, out, n_relevant):
    """Bags with many relevant labels. Apart, since few data have them and sorting is slow to compile."""
    for i in range(first, last):
        b = which[i]
        n = n_relevant[b]
        depth, wrong, precision = _by_sorting(S[b], Y[b], n, worst_of_ties)
        out[b, DEPTH] = depth
        out[b, RANKING_LOSS] = wrong / (n * (S.shape[1] - n))
        out[b, AVERAGE_PRECISION] = precision / n


def rank_bags(Y, S, worst_of_ties):
    """Return four values for every bag and its number of relevant labels.

    Degenerate bags get what counting them calls for. Reference ties: one-error forgives a tie at the top,
    else the higher index ranks better. ``worst_of_ties``: a tie at the top is an error, and tied labels all
    take their worst rank.
    """
    n_bags, n_labels = S.shape
    out, n_relevant = np.empty((n_bags, N_VALUES)), np.empty(n_bags, np.int64)
    Y, S = frozen(Y), frozen(S)

    def few(first, last):
        _rank_few(first, last, Y, S, worst_of_ties, np.empty(n_labels, np.int64), out, n_relevant)

    def many(first, last):
        _rank_many(first, last, which, Y, S, worst_of_ties, out, n_relevant)

    smallest = max(_WORTH_A_THREAD // n_labels, 1)
    in_threads(few, n_bags, cores(), smallest=smallest)
    which = np.flatnonzero((n_relevant > _COUNT_UP_TO) & (n_relevant < n_labels))
    if which.size:
        in_threads(many, which.size, cores(), smallest=smallest)
    return out, n_relevant


@kernel
def _split_columns(start, stop, Y, S, values, n_positive):
    """Rows of ``values``: the scores of some labels, positives from the left, negatives from the right."""
    n_bags = S.shape[0]
    for l in range(start, stop):
        n_positive[l - start] = 0
    for b in range(n_bags):
        for l in range(start, stop):
            n = n_positive[l - start]
            if Y[b, l]:
                values[l - start, n] = S[b, l]
                n_positive[l - start] = n + 1
            else:
                values[l - start, n_bags - 1 - (b - n)] = S[b, l]


@kernel
def _rank_column(positives, negatives, placed, places):
    """Average precision and area under the ROC curve of one label; the area is NaN without negatives.

    ``positives`` ascend; each negative is placed among them by bisection. ``placed`` and ``places`` are
    scratch: zeros for every number of positives, and room for one round of bisections.
    """
    n_positive, n_negative = positives.size, negatives.size
    first = _groups(positives)
    # placed[c]: negatives that are at or above exactly c of the positives.
    below = 0.0  # pairs with the negative below the positive, a tie being half
    for start in range(0, n_negative, _N_BISECTIONS):
        v = negatives[start : min(start + _N_BISECTIONS, n_negative)]
        _place(positives, v, places[: v.size])
        for i in range(v.size):
            c = places[i]
            placed[c] += 1
            below += n_positive - c
            if c > 0 and positives[c - 1] == v[i]:
                below += 0.5 * (c - first[c - 1])
    precision = 0.0
    above = 0  # negatives at or above the group at hand
    group_end = n_positive
    while group_end > 0:
        start = first[group_end - 1]
        for c in range(start + 1, group_end + 1):
            above += placed[c]
        hits = n_positive - start
        precision += (group_end - start) * (hits / (hits + above))
        group_end = start
    auc = below / (n_positive * n_negative) if n_negative > 0 else np.nan
    return precision / n_positive, auc


def rank_labels(Y, S):
    """Return average precision and area under the ROC curve of every label; NaN where undefined."""
    n_bags, n_labels = S.shape
    out = np.full((n_labels, 2), np.nan)
    Y, S = frozen(Y), frozen(S)

    def labels(first, last):
        values = np.empty((_N_COLUMNS, n_bags), S.dtype)
        n_positive, places = np.empty(_N_COLUMNS, np.int64), np.empty(_N_BISECTIONS, np.int64)
        for start in range(first, last, _N_COLUMNS):
            stop = min(start + _N_COLUMNS, last)
            _split_columns(start, stop, Y, S, values, n_positive)
            for l in range(start, stop):
                n, column = n_positive[l - start], values[l - start]
                if n:
                    column[:n].sort()
                    out[l] = _rank_column(column[:n], column[n:], np.zeros(n + 1, np.int64), places)

    if out.size:
        in_threads(labels, n_labels, cores(), smallest=max(_WORTH_A_THREAD // max(n_bags, 1), _N_COLUMNS))
    return out


@kernel
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
