"""One pass over bags: softmax, restriction to the bag's labels, choice of algorithm, posterior or residual.

The drivers in ``union_posterior.py`` hand stretches of bags to :func:`union_bags`, one per thread. Nothing of
size N * 2^|Y| exists: the workspace is reused from bag to bag.
"""

import math

import numpy as np
from numba import njit

from bagwise.models.ored.union_cover import SMALLEST_COVER, forward_backward, segment_length
from bagwise.models.ored.union_inclusion import UNIT_ROUNDOFF, inclusion_exclusion, roundings
from bagwise.models.ored.union_paper import forward, forward_substitution
from bagwise.models.ored.union_wide import wide_forward_backward

__all__ = ["EXACT", "IMPOSSIBLE", "METHODS", "SKIPPED", "TOO_MANY_LABELS", "union_bags"]

METHODS = ("auto", "inclusion_exclusion", "forward_backward", "wide", "forward", "substitution")
EXACT, IMPOSSIBLE, TOO_MANY_LABELS, SKIPPED = 0, 1, 2, 3
# Inclusion-exclusion is refused where the bound on its error exceeds this; true errors are far smaller.
TOLERANCE = 1e-10

# For the exponential: log 2 in two pieces, so that j * LOG_2_HIGH is exact, and coefficients 1 / j!.
LOG2_E, LOG_2_HIGH, LOG_2_LOW = 1.4426950408889634, 6.93147180369123816490e-01, 1.90821492927058770002e-10
ROUNDER = 1.5 * 2.0**52
T2, T3, T4, T5, T6, T7, T8, T9, T10, T11, T12, T13 = [1.0 / math.factorial(j) for j in range(2, 14)]


@njit(cache=True, nogil=True, error_model="numpy")
def _exponentials(x, scratch):
    """Replace x <= 0 by e^x, within two roundoffs; zero below -708. Plain arithmetic, hence vectorised.

    x = j log 2 + t with |t| <= log(2) / 2, e^t by its Taylor series, 2^j by writing the exponent bits.
    """
    for c in range(x.size):
        tiny = x[c] < -708.0
        value = -708.0 if tiny else x[c]
        # Adding 1.5 * 2^52 rounds to an integer and leaves it in the lowest bits of the sum.
        shifted = value * LOG2_E + ROUNDER
        j = shifted - ROUNDER
        t = (value - j * LOG_2_HIGH) - j * LOG_2_LOW
        series = T8 + t * (T9 + t * (T10 + t * (T11 + t * (T12 + t * T13))))
        series = T4 + t * (T5 + t * (T6 + t * (T7 + t * series)))
        scratch[c] = shifted
        x[c] = 0.0 if tiny else 1.0 + t * (1.0 + t * (T2 + t * (T3 + t * series)))
    bits = scratch.view(np.int64)
    for c in range(x.size):
        bits[c] = (bits[c] + 1023) << 52
    for c in range(x.size):
        x[c] *= scratch[c]


@njit(cache=True, nogil=True, error_model="numpy")
def _softmax_rows(logits, start, n, labels, k, scratch, p, r):
    """Softmax over all classes to p[start:start + n], the same renormalised over `labels` to r[:n].

    Returns the sum over instances of the log mass inside `labels`; -inf if some instance has none.
    """
    n_classes = logits.shape[1]
    for i in range(n):
        b = start + i
        # Two running maxima halve the chain of dependent comparisons.
        even, odd = logits[b, 0], logits[b, n_classes - 1]
        for c in range(0, n_classes - 1, 2):
            even = max(even, logits[b, c])
            odd = max(odd, logits[b, c + 1])
        largest = max(even, odd)
        for c in range(n_classes):
            p[b, c] = logits[b, c] - largest
    _exponentials(p[start : start + n].reshape(n * n_classes), scratch[: n * n_classes])
    log_mass, product = 0.0, 1.0
    for i in range(n):
        b = start + i
        even, odd, inside = p[b, n_classes - 1] if n_classes % 2 else 0.0, 0.0, 0.0
        for c in range(0, n_classes - 1, 2):
            even += p[b, c]
            odd += p[b, c + 1]
        everything = even + odd
        for j in range(k):
            r[i, j] = p[b, labels[j]]
            inside += r[i, j]
        scale = 1.0 / everything
        for c in range(n_classes):
            p[b, c] *= scale
        if inside >= 1e-8:
            # One logarithm for as many instances as a product can hold.
            product *= inside * scale
            if product < 1e-200:
                log_mass += np.log(product)
                product = 1.0
            scale = 1.0 / inside
            for j in range(k):
                r[i, j] *= scale
        else:
            log_mass += _restrict_from_logits(logits[b], labels, k, r, i) - np.log(everything)
    return log_mass + np.log(product)


@njit(cache=True, nogil=True, error_model="numpy")
def _restrict_from_logits(x, labels, k, r, i):
    """Write the softmax over `labels` alone to r[i]; return log sum_{c in labels} exp(x_c - max x)."""
    largest, top = x.max(), -np.inf
    for j in range(k):
        top = max(top, x[labels[j]])
    if top == -np.inf:
        r[i, :k] = 1.0 / max(k, 1)
        return -np.inf
    inside = 0.0
    for j in range(k):
        r[i, j] = np.exp(x[labels[j]] - top)
        inside += r[i, j]
    for j in range(k):
        r[i, j] /= inside
    return (top - largest) + np.log(inside)


@njit(cache=True, nogil=True, error_model="numpy")
def _wide(logits, start, n, labels, k, size, post):
    """Run the wide sums from the logits themselves, where no probability has underflowed yet."""
    log_r = np.empty((n, k))
    for i in range(n):
        x = logits[start + i]
        top, total = -np.inf, 0.0
        for j in range(k):
            top = max(top, x[labels[j]])
        for j in range(k):
            total += np.exp(x[labels[j]] - top)
        for j in range(k):
            log_r[i, j] = (x[labels[j]] - top) - np.log(total)
    return wide_forward_backward(log_r, n, k, size, post)


@njit(cache=True, nogil=True, error_model="numpy")
def _cover_bound(r, n, k):
    """Upper bound of the cover: "label c occurs" are negatively associated events of mass <= sum_i r_i(c)."""
    bound = 1.0
    for c in range(k):
        total = 0.0
        for i in range(n):
            total += r[i, c]
        bound *= min(1.0, total)
    return bound


@njit(cache=True, nogil=True, error_model="numpy")
def _cover(method, logits, start, n, labels, k, r, size, F, work, post):
    """Posteriors of one bag by the cheapest algorithm that is exact for it; return the log cover."""
    if method == 3:
        return _wide(logits, start, n, labels, k, size, post)
    if method == 1:
        return inclusion_exclusion(r, n, k, np.inf, F, work, post)
    log_cover = np.nan
    if method == 0:
        bound = _cover_bound(r, n, k)
        if bound <= SMALLEST_COVER:
            return _wide(logits, start, n, labels, k, size, post)
        # With hardly more instances than labels few sets are reachable, and the sums over them are cheaper.
        sparse = k > 2 and (n - k + 1) * k < 2 * n
        if not sparse and bound * TOLERANCE >= roundings(n, k) * UNIT_ROUNDOFF:
            log_cover = inclusion_exclusion(r, n, k, TOLERANCE, F, work, post)
    if np.isnan(log_cover):
        log_cover = forward_backward(r, n, k, size, work, post)
    if np.isnan(log_cover) and method == 0:
        log_cover = _wide(logits, start, n, labels, k, size, post)
    return log_cover


@njit(cache=True, nogil=True, error_model="numpy")
def _work_size(offsets, counts, max_labels, first, last):
    """Largest bag, largest label set and longest workspace of forward_backward among some bags."""
    most_instances, most_labels, longest = 1, 1, 8
    for b in range(first, last):
        n, k = offsets[b + 1] - offsets[b], counts[b]
        most_instances = max(most_instances, n)
        if 0 < k <= max_labels and k <= n:
            length = segment_length(n, k)
            most_labels = max(most_labels, k)
            longest = max(longest, (length + (n + length - 1) // length + 1) << k)
    return most_instances, most_labels, longest


@njit(cache=True, nogil=True, error_model="numpy")
def union_bags(
    method, logits, offsets, Y, counts, weights, residual, max_labels, first, last, out, loglik, status
):
    """Write posteriors, or weighted residuals, of the bags first..last - 1 to `out`."""
    n_classes = logits.shape[1]
    most_instances, most_labels, longest = _work_size(offsets, counts, max_labels, first, last)
    r, post = np.empty((most_instances, n_classes)), np.empty((most_instances, n_classes))
    F, work = np.empty(1 << most_labels), np.empty(longest)
    labels, scratch = np.empty(n_classes, dtype=np.int64), np.empty(most_instances * n_classes)
    size = np.zeros(1 << most_labels, dtype=np.int8)
    for s in range(1, size.size):
        size[s] = size[s >> 1] + (s & 1)
    for b in range(first, last):
        start, n, k = offsets[b], offsets[b + 1] - offsets[b], 0
        if residual and weights[b] == 0.0:
            out[start : start + n] = 0.0
            loglik[b], status[b] = 0.0, SKIPPED
            continue
        for c in range(n_classes):
            if Y[b, c]:
                labels[k] = c
                k += 1
        log_mass = _softmax_rows(logits, start, n, labels, k, scratch, out, r)
        status[b], loglik[b] = EXACT, log_mass
        if k > n or (k == 0 and n > 0) or log_mass == -np.inf:
            status[b], loglik[b] = IMPOSSIBLE, -np.inf
        elif k > max_labels:
            status[b], loglik[b] = TOO_MANY_LABELS, np.nan
        elif k > 1 and method < 4:
            m = 1 << k
            loglik[b] += _cover(method, logits, start, n, labels, k, r, size, F[:m], work, post)
            if loglik[b] == -np.inf:
                status[b] = IMPOSSIBLE
        elif k > 0 and method >= 4:
            m = 1 << k
            for i in range(n):
                for j in range(k):
                    r[i, j] = out[start + i, labels[j]]
            if method == 4:
                loglik[b] = forward(r, n, k, F[:m], work[:m], post)
            else:
                loglik[b] = forward_substitution(r, n, k, F[:m], work[:m], post)
        certain = k == 1 and method < 4
        chosen = r if certain or status[b] != EXACT else post
        if residual:
            weight = weights[b] if status[b] == EXACT else 0.0
            for i in range(n):
                for c in range(n_classes):
                    out[start + i, c] *= -weight
                for j in range(k):
                    out[start + i, labels[j]] += weight * chosen[i, j]
        else:
            for i in range(n):
                out[start + i, :] = 0.0
                for j in range(k):
                    out[start + i, labels[j]] = chosen[i, j]
