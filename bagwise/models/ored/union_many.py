"""Bags with more than eight labels: inclusion-exclusion with a table in two parts, else sums over sets."""

import numpy as np

from bagwise.compute.compiled import kernel, part
from bagwise.models.ored.union_bags import AUTO, FORWARD_BACKWARD, INCLUSION, TOLERANCE, WIDE, first_choice
from bagwise.models.ored.union_cover import forward_backward, normalise
from bagwise.models.ored.union_inclusion import (
    LOW_LABELS,
    NUDGE,
    UNIT_ROUNDOFF,
    fold,
    halving_sum,
    roundings,
    subset_sums,
)
from bagwise.models.ored.union_rows import EXACT, IMPOSSIBLE, restrict_rows, write_bag

__all__ = ["many_labels"]


@part(error_model="numpy")
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


@part(error_model="numpy")
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


@part(error_model="numpy")
def _fill_signs(F, k):
    """Write (-1)^(k - |S|) to F[S]: a label more flips the sign, and the full set has +."""
    F[0] = -1.0 if k % 2 else 1.0
    half = 1
    for _ in range(k):
        for s in range(half):
            F[half + s] = -F[s]
        half *= 2


@part(error_model="numpy")
def _cover(method, n, k, work):
    """Posteriors of one bag by the cheaper algorithm that is exact for it; the log cover, NaN if neither."""
    choice, log_cover = first_choice(method, work.r, n, k), np.nan
    if choice == INCLUSION:
        tolerance = np.inf if method == INCLUSION else TOLERANCE
        _fill_signs(work.F, k)
        F = work.F[: 1 << k].reshape(1 << (k - LOW_LABELS), 1 << LOW_LABELS)
        log_cover = _split_table(work.r, n, k, tolerance, F, work.sums, work.post)
    if choice == FORWARD_BACKWARD or (method == AUTO and choice != WIDE and np.isnan(log_cover)):
        log_cover = forward_backward(work.r, n, k, work.size, work.sums, work.post)
    return log_cover


@kernel(error_model="numpy")
def many_labels(first, last, which, task, work, method):
    """Finish the bags which[first:last]; those whose cover is too improbable stay left for wide numbers."""
    for position in range(first, last):
        b = which[position]
        labels = task.labels[task.label_starts[b] : task.label_starts[b + 1]]
        restrict_rows(task, work, b, labels)
        log_cover = _cover(method, task.offsets[b + 1] - task.offsets[b], labels.size, work)
        if method == AUTO and np.isnan(log_cover):
            continue
        task.loglik[b] += log_cover
        task.status[b] = IMPOSSIBLE if task.loglik[b] == -np.inf else EXACT
        write_bag(task, b, labels, work.post if task.status[b] == EXACT else work.r)
