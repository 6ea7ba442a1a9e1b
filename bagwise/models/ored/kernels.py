"""One pass over bags: softmax, restriction to the bag's labels, and the algorithms that most bags need.

A pass fills a `Task` bag by bag. Softmax probabilities are written to the rows of ``out`` first; when the
posterior of the bag is known, it, or its difference to them, takes their place. Bags for which the algorithms
of ``kernels_cover.py`` are too imprecise or too slow (more than eight labels, a label set of nearly
probability zero, the algorithms of the paper) are marked as left; `bagwise.models.ored.predict.UnionPass`
hands them to the functions of ``kernels_rare.py``, which most fits never compile.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from bagwise.compute.compiled import kernel, part
from bagwise.models.ored.kernels_cover import (
    LOW_LABELS,
    SMALLEST_COVER,
    UNIT_ROUNDOFF,
    forward_backward,
    inclusion_exclusion,
    roundings,
)

METHODS = ("auto", "inclusion_exclusion", "forward_backward", "wide", "forward", "substitution")
AUTO, INCLUSION, FORWARD_BACKWARD, WIDE, FORWARD, SUBSTITUTION = range(6)
# Inclusion-exclusion is refused where the bound on its error exceeds this; true errors are far smaller.
TOLERANCE = 1e-10

EXACT, IMPOSSIBLE, TOO_MANY_LABELS, SKIPPED = 0, 1, 2, 3
LEFT = 4  # for the algorithm after this one; no bag is left at the end of a pass

# For the exponential: log 2 in two pieces, so that j * LOG_2_HIGH is exact, and coefficients 1 / j!.
LOG2_E, LOG_2_HIGH, LOG_2_LOW = 1.4426950408889634, 6.93147180369123816490e-01, 1.90821492927058770002e-10
ROUNDER = 1.5 * 2.0**52
T2, T3, T4, T5, T6, T7, T8, T9, T10, T11, T12, T13 = [1.0 / math.factorial(j) for j in range(2, 14)]


class Task(NamedTuple):
    """What a pass reads (frozen) and writes (the last four)."""

    logits: np.ndarray  # (N, C)
    offsets: np.ndarray  # (B + 1,)
    label_starts: np.ndarray  # (B + 1,): where the labels of each bag begin in the next
    labels: np.ndarray  # of int64
    weights: np.ndarray  # (B,), used for residuals
    residual: bool  # weight * (posterior - prior) is wanted, not the posterior
    out: np.ndarray  # (N, C)
    flat: np.ndarray  # the same numbers, (N * C,)
    loglik: np.ndarray  # (B,)
    status: np.ndarray  # (B,) of int8


class Workspace(NamedTuple):
    """Scratch of one thread, for bags of up to n instances and k labels."""

    r: np.ndarray  # (n, C): distributions over the labels of a bag
    post: np.ndarray  # (n, C): posteriors
    size: np.ndarray  # (2^k,) of int8: number of labels of each set
    F: np.ndarray  # (2^k,)
    sums: np.ndarray  # see `forward_backward` and `inclusion_exclusion`
    scratch: np.ndarray  # (n * C,)
    bits: np.ndarray  # the same memory as int64


@part(error_model="numpy")
def _exponentials(x, scratch, bits):
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
    for c in range(x.size):
        bits[c] = (bits[c] + 1023) << 52
    for c in range(x.size):
        x[c] *= scratch[c]


@part(error_model="numpy")
def softmax_rows(logits, start, n, labels, scratch, bits, p, flat, r):
    """Softmax over all classes to p[start:start + n], the same renormalised over `labels` to r[:n].

    ``flat`` and ``bits`` are other views of ``p`` and ``scratch``. Returns the sum over instances of the log
    mass inside `labels`; -inf if some instance has none.
    """
    n_classes, k = logits.shape[1], labels.size
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
    _exponentials(flat[start * n_classes : (start + n) * n_classes], scratch, bits)
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
                log_mass += math.log(product)
                product = 1.0
            scale = 1.0 / inside
            for j in range(k):
                r[i, j] *= scale
        else:
            log_mass += _restrict_from_logits(logits, b, labels, k, r, i) - math.log(everything)
    return log_mass + math.log(product)


@part(error_model="numpy")
def _restrict_from_logits(logits, b, labels, k, r, i):
    """Write the softmax over `labels` alone to r[i]; return log sum_{c in labels} exp(x_c - max x)."""
    largest, top = logits[b, 0], -np.inf
    for c in range(logits.shape[1]):
        largest = max(largest, logits[b, c])
    for j in range(k):
        top = max(top, logits[b, labels[j]])
    if top == -np.inf:
        for j in range(k):
            r[i, j] = 1.0 / k
        return -np.inf
    inside = 0.0
    for j in range(k):
        r[i, j] = math.exp(logits[b, labels[j]] - top)
        inside += r[i, j]
    for j in range(k):
        r[i, j] /= inside
    return (top - largest) + math.log(inside)


@part(error_model="numpy")
def restrict_rows(task, work, b, labels):
    """Write to ``work.r`` what `softmax_rows` wrote there, from the softmax that is still in ``task.out``."""
    start, n, k = task.offsets[b], task.offsets[b + 1] - task.offsets[b], labels.size
    for i in range(n):
        inside = 0.0
        for j in range(k):
            work.r[i, j] = task.out[start + i, labels[j]]
            inside += work.r[i, j]
        if inside >= 1e-8:
            for j in range(k):
                work.r[i, j] /= inside
        else:
            _restrict_from_logits(task.logits, start + i, labels, k, work.r, i)


@part(error_model="numpy")
def write_rows(out, start, n, labels, keep, weight, chosen):
    """Replace the softmax p in the rows of a bag by ``keep * p + weight * chosen``."""
    for i in range(n):
        for c in range(out.shape[1]):
            out[start + i, c] *= keep
        for j in range(labels.size):
            out[start + i, labels[j]] += weight * chosen[i, j]


@part(error_model="numpy")
def write_bag(task, b, labels, chosen):
    """Write the rows of bag b, as the task wants them."""
    start = task.offsets[b]
    n = task.offsets[b + 1] - start
    weight = 1.0
    if task.residual:
        weight = task.weights[b] if task.status[b] == EXACT else 0.0
    write_rows(task.out, start, n, labels, -weight if task.residual else 0.0, weight, chosen)


# ---------------------------------------------------------------------- one pass over bags


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
