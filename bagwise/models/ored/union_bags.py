"""One pass over bags: softmax, restriction to the bag's labels, and the algorithms that most bags need.

Bags for which these are too imprecise or too slow (more than eight labels, a label set of nearly probability
zero, the algorithms of the paper) are marked as left; ``union_posterior.py`` hands them to the functions of
``union_many.py``, ``union_wide.py`` and ``union_paper.py``, which most fits never compile.
"""

import numpy as np

from bagwise.compute.compiled import kernel, part
from bagwise.models.ored.union_cover import SMALLEST_COVER, forward_backward
from bagwise.models.ored.union_inclusion import LOW_LABELS, UNIT_ROUNDOFF, inclusion_exclusion, roundings
from bagwise.models.ored.union_rows import (
    EXACT,
    IMPOSSIBLE,
    LEFT,
    SKIPPED,
    TOO_MANY_LABELS,
    softmax_rows,
    write_rows,
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
    "first_choice",
    "union_bags",
]

METHODS = ("auto", "inclusion_exclusion", "forward_backward", "wide", "forward", "substitution")
AUTO, INCLUSION, FORWARD_BACKWARD, WIDE, FORWARD, SUBSTITUTION = range(6)
# Inclusion-exclusion is refused where the bound on its error exceeds this; true errors are far smaller.
TOLERANCE = 1e-10


@part(error_model="numpy")
def first_choice(method, r, n, k):
    """The algorithm to begin with: INCLUSION, FORWARD_BACKWARD, or WIDE where doubles may underflow."""
    if method != AUTO:
        return method
    # Upper bound of the cover: "label c occurs" are negatively associated events of mass <= sum_i r_i(c).
    bound = 1.0
    for c in range(k):
        total = 0.0
        for i in range(n):
            total += r[i, c]
        bound *= min(1.0, total)
    if bound <= SMALLEST_COVER:
        return WIDE
    # With hardly more instances than labels few sets are reachable, and the sums over them are cheaper.
    sparse = k > 2 and (n - k + 1) * k < 2 * n
    precise = bound * TOLERANCE >= roundings(n, k) * UNIT_ROUNDOFF
    return INCLUSION if precise and not sparse else FORWARD_BACKWARD


@kernel(error_model="numpy")
def union_bags(first, last, task, work, method, max_labels):
    """Write posteriors, or weighted residuals, of the bags first..last - 1 to ``task.out``."""
    # Helpers get arrays, not the two tuples: copying a tuple of arrays per bag cost a tenth of the time.
    logits, offsets, label_starts, all_labels, weights, residual, out, flat, loglik, status = task
    r, post, size, F, sums, scratch, bits = work
    tolerance = TOLERANCE if method == AUTO else np.inf
    for b in range(first, last):
        if residual and weights[b] == 0.0:
            loglik[b], status[b] = 0.0, SKIPPED
            continue
        start, n = offsets[b], offsets[b + 1] - offsets[b]
        labels = all_labels[label_starts[b] : label_starts[b + 1]]
        k = labels.size
        log_p = softmax_rows(logits, start, n, labels, scratch, bits, out, flat, r)
        state, chosen = EXACT, r
        if k > n or (k == 0 and n > 0) or log_p == -np.inf:
            log_p, state = -np.inf, IMPOSSIBLE
        elif k > max_labels:
            log_p, state = np.nan, TOO_MANY_LABELS
        elif k > LOW_LABELS or (method >= WIDE and k > 1) or (method >= FORWARD and k > 0):
            state = LEFT
        elif k > 1:
            choice, log_cover = first_choice(method, r, n, k), np.nan
            if choice == INCLUSION:
                log_cover = inclusion_exclusion(r, n, k, tolerance, size, F, sums, post)
            if choice == FORWARD_BACKWARD or (method == AUTO and choice != WIDE and np.isnan(log_cover)):
                log_cover = forward_backward(r, n, k, size, sums, post)
            if log_cover == -np.inf:
                log_p, state = -np.inf, IMPOSSIBLE
            elif method == AUTO and np.isnan(log_cover):
                state = LEFT
            else:
                log_p, chosen = log_p + log_cover, post
        loglik[b], status[b] = log_p, state
        if state != LEFT:
            weight = 0.0 if residual and state != EXACT else weights[b] if residual else 1.0
            write_rows(out, start, n, labels, -weight if residual else 0.0, weight, chosen)
