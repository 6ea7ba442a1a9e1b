"""Bags with more than eight labels: inclusion-exclusion with a table in two parts, else sums over sets."""

import numpy as np
from numba import njit

from bagwise.models.ored.union_bags import AUTO, INCLUSION, TOLERANCE, cover_bound, inclusion_pays
from bagwise.models.ored.union_cover import SMALLEST_COVER, forward_backward, normalise
from bagwise.models.ored.union_inclusion import (
    LOW_LABELS,
    NUDGE,
    UNIT_ROUNDOFF,
    fill_signs,
    fold,
    halving_sum,
    roundings,
    subset_sums,
)
from bagwise.models.ored.union_rows import EXACT, IMPOSSIBLE, bag_labels, restrict_rows, write_bag

__all__ = ["many_labels"]


@njit(cache=True, nogil=True, error_model="numpy")
def _split_products(r, n, k, F, low, high):
    """Multiply the signs in F by the products over i of q_i(S), joined from low and high labels."""
    n_rows, n_columns = F.shape
    for i in range(n):
        subset_sums(r, i, np.int64(0), np.int64(LOW_LABELS), NUDGE, low)
        subset_sums(r, i, np.int64(LOW_LABELS), k, 0.0, high)
        for h in range(n_rows):
            mass = high[h]
            for s in range(n_columns):
                F[h, s] *= mass + low[s]
    F[0, 0] = 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def _split_table(r, n, k, tolerance, F, sums, post):
    """Inclusion-exclusion for many labels: q_i(S) is joined from a table of low and one of high labels."""
    n_rows, n_columns = F.shape
    low, g, total = sums[:n_columns], sums[n_columns : 2 * n_columns], sums[2 * n_columns : 3 * n_columns]
    high = sums[3 * n_columns : 3 * n_columns + n_rows]
    _split_products(r, n, k, F, low, high)
    magnitude = 0.0
    for h in range(n_rows):
        for s in range(n_columns):
            g[s] = F[h, s]
            total[s] = abs(F[h, s])
        high[h] = halving_sum(g, n_columns)
        magnitude += halving_sum(total, n_columns)
    cover = halving_sum(high, n_rows)
    if not cover * tolerance >= roundings(n, k) * UNIT_ROUNDOFF * magnitude:
        return np.nan
    for i in range(n):
        subset_sums(r, i, np.int64(0), np.int64(LOW_LABELS), NUDGE, low)
        subset_sums(r, i, np.int64(LOW_LABELS), k, 0.0, high)
        for s in range(n_columns):
            total[s] = 0.0
        for h in range(n_rows):
            mass = high[h]
            for s in range(n_columns):
                g[s] = F[h, s] / (mass + low[s])
            for s in range(n_columns):
                total[s] += g[s]
            high[h] = halving_sum(g, n_columns)
        fold(total, r, i, np.int64(0), np.int64(LOW_LABELS), post)
        fold(high, r, i, np.int64(LOW_LABELS), k, post)
        normalise(post, i, k)
    return np.log(cover)


@njit(cache=True, nogil=True, error_model="numpy")
def _cover(method, n, k, work):
    """As in ``union_bags.py``, for many labels."""
    log_cover, bound = np.nan, 1.0
    if method == AUTO:
        bound = cover_bound(work.r, n, k)
        if bound <= SMALLEST_COVER:
            return np.nan
    if method == INCLUSION or (method == AUTO and inclusion_pays(bound, n, k)):
        tolerance = np.inf if method == INCLUSION else TOLERANCE
        fill_signs(work.F, k)
        F = work.F[: 1 << k].reshape(1 << (k - LOW_LABELS), 1 << LOW_LABELS)
        log_cover = _split_table(work.r, n, k, tolerance, F, work.sums, work.post)
    if method != INCLUSION and np.isnan(log_cover):
        log_cover = forward_backward(work.r, n, k, work.size, work.sums, work.post)
    return log_cover


@njit(cache=True, nogil=True, error_model="numpy")
def many_labels(first, last, which, task, work, method):
    """Finish the bags which[first:last]; those whose cover is too improbable stay left for wide numbers."""
    for position in range(first, last):
        b = which[position]
        start, n = task.offsets[b], task.offsets[b + 1] - task.offsets[b]
        k = bag_labels(task.Y, b, work.labels)
        restrict_rows(task, work, start, n, k)
        log_cover = _cover(method, n, k, work)
        if method == AUTO and np.isnan(log_cover):
            continue
        task.loglik[b] += log_cover
        task.status[b] = IMPOSSIBLE if task.loglik[b] == -np.inf else EXACT
        write_bag(task, b, work.labels, k, work.post if task.status[b] == EXACT else work.r)
