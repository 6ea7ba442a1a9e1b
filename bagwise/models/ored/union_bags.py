"""One pass over bags: softmax, restriction to the bag's labels, and the algorithms that most bags need.

Bags for which these are too imprecise or too slow (more than eight labels, a label set of nearly probability
zero, the algorithms of the paper) are marked as left; ``union_posterior.py`` hands them to the functions of
``union_many.py``, ``union_wide.py`` and ``union_paper.py``, which most fits never compile.
"""

import numpy as np
from numba import njit

from bagwise.models.ored.union_cover import SMALLEST_COVER, forward_backward
from bagwise.models.ored.union_inclusion import LOW_LABELS, UNIT_ROUNDOFF, inclusion_exclusion, roundings
from bagwise.models.ored.union_rows import (
    EXACT,
    IMPOSSIBLE,
    LEFT,
    SKIPPED,
    TOO_MANY_LABELS,
    bag_labels,
    clear_rows,
    softmax_rows,
    write_posteriors,
    write_residuals,
)

__all__ = [
    "AUTO",
    "FORWARD",
    "FORWARD_BACKWARD",
    "INCLUSION",
    "METHODS",
    "SUBSTITUTION",
    "TOLERANCE",
    "WIDE",
    "union_bags",
]

METHODS = ("auto", "inclusion_exclusion", "forward_backward", "wide", "forward", "substitution")
AUTO, INCLUSION, FORWARD_BACKWARD, WIDE, FORWARD, SUBSTITUTION = range(6)
# Inclusion-exclusion is refused where the bound on its error exceeds this; true errors are far smaller.
TOLERANCE = 1e-10


@njit(cache=True, nogil=True, error_model="numpy")
def cover_bound(r, n, k):
    """Upper bound of the cover: "label c occurs" are negatively associated events of mass <= sum_i r_i(c)."""
    bound = 1.0
    for c in range(k):
        total = 0.0
        for i in range(n):
            total += r[i, c]
        bound *= min(1.0, total)
    return bound


@njit(cache=True, nogil=True, error_model="numpy")
def inclusion_pays(bound, n, k):
    """Whether inclusion-exclusion is worth a try: it might be precise, and sums over few sets cost more."""
    # With hardly more instances than labels few sets are reachable, and the sums over them are cheaper.
    sparse = k > 2 and (n - k + 1) * k < 2 * n
    return not sparse and bound * TOLERANCE >= roundings(n, k) * UNIT_ROUNDOFF


@njit(cache=True, nogil=True, error_model="numpy")
def _cover(method, n, k, r, size, F, sums, post):
    """Posteriors of one bag by the cheaper algorithm that is exact for it; the log cover, NaN if neither."""
    log_cover, bound = np.nan, 1.0
    if method == AUTO:
        bound = cover_bound(r, n, k)
        if bound <= SMALLEST_COVER:
            return np.nan
    if method == INCLUSION or (method == AUTO and inclusion_pays(bound, n, k)):
        tolerance = np.inf if method == INCLUSION else TOLERANCE
        log_cover = inclusion_exclusion(r, n, k, tolerance, F, sums, post)
    if method != INCLUSION and np.isnan(log_cover):
        log_cover = forward_backward(r, n, k, size, sums, post)
    return log_cover


@njit(cache=True, nogil=True, error_model="numpy")
def union_bags(first, last, task, work, method, max_labels):
    """Write posteriors, or weighted residuals, of the bags first..last - 1 to ``task.out``."""
    # Helpers get arrays, not the two tuples: copying a tuple of arrays per bag cost a tenth of the time.
    logits, offsets, Y, weights, residual, out, flat, loglik, status = task
    labels, r, post, size, F, sums, scratch, bits = work
    for b in range(first, last):
        start, n = offsets[b], offsets[b + 1] - offsets[b]
        if residual and weights[b] == 0.0:
            clear_rows(out, start, n)
            loglik[b], status[b] = 0.0, SKIPPED
            continue
        k = bag_labels(Y, b, labels)
        log_p = softmax_rows(logits, start, n, labels, k, scratch, bits, out, flat, r)
        state, chosen = EXACT, r
        if k > n or (k == 0 and n > 0) or log_p == -np.inf:
            log_p, state = -np.inf, IMPOSSIBLE
        elif k > max_labels:
            log_p, state = np.nan, TOO_MANY_LABELS
        elif k > LOW_LABELS or (method >= WIDE and k > 1) or (method >= FORWARD and k > 0):
            state = LEFT
        elif k > 1:
            log_cover = _cover(method, n, k, r, size, F, sums, post)
            if log_cover == -np.inf:
                log_p, state = -np.inf, IMPOSSIBLE
            elif method == AUTO and np.isnan(log_cover):
                state = LEFT
            else:
                log_p, chosen = log_p + log_cover, post
        loglik[b], status[b] = log_p, state
        if state != LEFT and residual:
            weight = weights[b] if state == EXACT else 0.0
            write_residuals(out, start, n, labels, k, chosen, weight)
        elif state != LEFT:
            write_posteriors(out, start, n, labels, k, chosen)
