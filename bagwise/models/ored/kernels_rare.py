"""Bags that few fits have, and so never compile: many labels, nearly impossible sets, the paper's algorithms.

Bags of more than eight labels come first: inclusion-exclusion with a table in two parts, else sums over sets.
"""

from __future__ import annotations

import numpy as np

from bagwise.compute.compiled import kernel, part
from bagwise.models.ored.kernels import (
    AUTO,
    EXACT,
    FORWARD_BACKWARD,
    IMPOSSIBLE,
    INCLUSION,
    TOLERANCE,
    WIDE,
    first_choice,
    restrict_rows,
    write_bag,
)
from bagwise.models.ored.kernels_cover import (
    LOW_LABELS,
    NUDGE,
    UNIT_ROUNDOFF,
    fold,
    forward_backward,
    halving_sum,
    normalise,
    roundings,
    segment_length,
    subset_sums,
)


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


# ----------------------------------------------------------------------
# Cover probability and posteriors of one bag in numbers that never underflow
#
# A wide number is a pair (m, e) worth m * 2^(512 e). It is needed when a bag's labels are so improbable
# under the model that doubles end, below 1e-280: confident instances, none of which wants a label that
# the bag has.


# The mantissa is 0 or 2^-256 <= m < 2^256, so that a product of two fits a double.
RADIX, INVERSE_RADIX = 2.0**512, 2.0**-512
WIDE_MAX, WIDE_MIN = 2.0**256, 2.0**-256
LOG_RADIX = 512 * np.log(2.0)
# 512 log 2 in two pieces; the first has 21 trailing zero bits, so e * LOG_RADIX_HIGH is exact for |e| < 2^21.
LOG_RADIX_HIGH = 512 * 0.693147180369123816490
LOG_RADIX_LOW = 512 * 1.90821492927058770002e-10


@part(error_model="numpy")
def _wide_exp(x):
    """e^x for x <= 0 as a wide number; zero below -1e15."""
    if not x > -1e15:
        return 0.0, np.int64(0)
    e = np.int64(np.rint(x / LOG_RADIX))
    return np.exp((x - e * LOG_RADIX_HIGH) - e * LOG_RADIX_LOW), e


@part(error_model="numpy")
def _wide_product(m1, e1, m2, e2):
    m, e = m1 * m2, e1 + e2
    if m >= WIDE_MAX:
        return m * INVERSE_RADIX, e + 1
    if m < WIDE_MIN:
        return m * RADIX, e - 1
    return m, e


@part(error_model="numpy")
def _wide_sum(m1, e1, m2, e2):
    if m1 == 0.0 or (m2 != 0.0 and e2 > e1):
        m1, e1, m2, e2 = m2, e2, m1, e1
    if m2 != 0.0 and e1 - e2 <= 1:
        m1 += m2 if e1 == e2 else m2 * INVERSE_RADIX
        if m1 >= WIDE_MAX:
            return m1 * INVERSE_RADIX, e1 + 1
    return m1, e1


@part(error_model="numpy")
def _forward_step(i, before, before_exp, r, size, n, after, after_exp):
    """Distribution of the union after instance i from the one before it; r: mantissas and exponents."""
    rm, re = r
    k = rm.shape[1]
    for s in range(before.size):
        after[s], after_exp[s] = 0.0, 0
    for s in range(before.size):
        if before[s] != 0.0 and k - size[s] <= n - i:
            for c in range(k):
                if rm[i, c] != 0.0:
                    t = s | (1 << c)
                    m, e = _wide_product(before[s], before_exp[s], rm[i, c], re[i, c])
                    after[t], after_exp[t] = _wide_sum(after[t], after_exp[t], m, e)


@part(error_model="numpy")
def _backward_sums(i, A, A_exp, r, size, n, B, B_exp, J, J_exp):
    """Sums J of instance i over sets before it (A) and after it (B); B moves on to the instance before."""
    rm, re = r
    k = rm.shape[1]
    for c in range(k):
        J[c], J_exp[c] = 0.0, 0
    for s in range(A.size):
        total, total_exp = 0.0, np.int64(0)
        for c in range(k if A[s] != 0.0 and k - size[s] <= n - i else 0):
            t = s | (1 << c)
            if B[t] != 0.0 and rm[i, c] != 0.0:
                m, e = _wide_product(rm[i, c], re[i, c], B[t], B_exp[t])
                total, total_exp = _wide_sum(total, total_exp, m, e)
                m, e = _wide_product(A[s], A_exp[s], m, e)
                J[c], J_exp[c] = _wide_sum(J[c], J_exp[c], m, e)
        B[s], B_exp[s] = total, total_exp


@part(error_model="numpy")
def _posterior_row(J, J_exp, post, i):
    """Write the posterior of instance i from its sums; return their total, the cover."""
    k = J.size
    cover, cover_exp = 0.0, np.int64(0)
    for c in range(k):
        cover, cover_exp = _wide_sum(cover, cover_exp, J[c], J_exp[c])
    for c in range(k):
        shift = J_exp[c] - cover_exp
        post[i, c] = J[c] if shift == 0 else (J[c] * INVERSE_RADIX if shift == -1 else 0.0)
    normalise(post, i, k)
    return cover, cover_exp


@part(error_model="numpy")
def _exponentials(log_r, n, k):
    """The first n rows and k columns of e^log_r in wide numbers."""
    rm, re = np.empty((n, k)), np.empty((n, k), dtype=np.int64)
    for i in range(n):
        for c in range(k):
            rm[i, c], re[i, c] = _wide_exp(log_r[i, c])
    return rm, re


@part(error_model="numpy")
def wide_forward_backward(log_r, n, k, size, post):
    """The sums of :func:`forward_backward` in numbers with an exponent of their own; -inf: impossible.

    The usual escape from underflow, the same recursion on logarithms, loses digits: at log A = -30,000 one
    rounding is a relative error of 2e-12, and n = 1000 of them add up. With a separate exponent every
    operation keeps its relative error of one roundoff, and the loop takes no exponential or logarithm.

    ``log_r`` holds logarithms of ``r``, -inf allowed; the rest as in :func:`forward_backward`. Workspace is
    allocated here, since bags this improbable are rare.

    Examples
    --------
    >>> import numpy as np
    >>> log_r, post = np.array([[0.0, -1000.0], [0.0, -1001.0]]), np.empty((2, 2))
    >>> # log(e^-1000 + e^-1001)
    >>> round(float(wide_forward_backward(log_r, 2, 2, np.array([0, 1, 1, 2]), post)), 6)
    -999.686738
    >>> post.round(4)
    array([[0.2689, 0.7311],
           [0.7311, 0.2689]])
    """
    n_sets, length = 1 << k, segment_length(n, k)
    n_segments = (n + length - 1) // length
    r = _exponentials(log_r, n, k)
    A, A_exp = np.empty((length + 1, n_sets)), np.empty((length + 1, n_sets), dtype=np.int64)
    starts, starts_exp = np.zeros((n_segments, n_sets)), np.zeros((n_segments, n_sets), dtype=np.int64)
    B, B_exp = np.zeros(n_sets), np.zeros(n_sets, dtype=np.int64)
    starts[0, 0] = B[n_sets - 1] = 1.0
    J, J_exp = np.empty(k), np.empty(k, dtype=np.int64)
    cover, cover_exp = 0.0, np.int64(0)
    # up to the last segment only its first row is kept; then, from the last to the first, all rows
    for visit in range(2 * n_segments - 1):
        keeping = visit >= n_segments - 1
        segment = 2 * n_segments - 2 - visit if keeping else visit
        first, last = segment * length, min(n, (segment + 1) * length)
        for s in range(n_sets):
            A[0, s], A_exp[0, s] = starts[segment, s], starts_exp[segment, s]
        for i in range(first, last - keeping):
            j = i - first
            _forward_step(i, A[j], A_exp[j], r, size, n, A[j + 1], A_exp[j + 1])
        for s in range(0 if keeping else n_sets):
            starts[segment + 1, s], starts_exp[segment + 1, s] = A[length, s], A_exp[length, s]
        for i in range(last - 1, first - 1 if keeping else last - 1, -1):
            _backward_sums(i, A[i - first], A_exp[i - first], r, size, n, B, B_exp, J, J_exp)
            cover, cover_exp = _posterior_row(J, J_exp, post, i)
    return -np.inf if cover == 0.0 else np.log(cover) + cover_exp * LOG_RADIX


@kernel(error_model="numpy")
def wide_bags(first, last, which, task, work):
    """Finish the bags which[first:last] from the logits themselves, where no probability has underflowed."""
    for position in range(first, last):
        b = which[position]
        start, n = task.offsets[b], task.offsets[b + 1] - task.offsets[b]
        labels = task.labels[task.label_starts[b] : task.label_starts[b + 1]]
        k = labels.size
        log_r = np.empty((n, k))
        for i in range(n):
            top, total = -np.inf, 0.0
            for j in range(k):
                log_r[i, j] = task.logits[start + i, labels[j]]
                top = max(top, log_r[i, j])
            for j in range(k):
                total += np.exp(log_r[i, j] - top)
            for j in range(k):
                log_r[i, j] = (log_r[i, j] - top) - np.log(total)
        task.loglik[b] += wide_forward_backward(log_r, n, k, work.size, work.post)
        task.status[b] = IMPOSSIBLE if task.loglik[b] == -np.inf else EXACT
        if task.status[b] == IMPOSSIBLE:
            restrict_rows(task, work, b, labels)
        write_bag(task, b, labels, work.post if task.status[b] == EXACT else work.r)


# ----------------------------------------------------------------------
# The two E-step algorithms printed in the ORed logistic regression paper, for one bag
#
# They are kept to compare with and to reproduce the published experiments; the default of
# :func:`bagwise.models.ored.predict.union_posterior` is faster and safe. Both take ``p`` of shape
# (n, k), the prior probabilities of the k labels of the bag (not renormalised, as in the paper), write
# p(y_i = c | union = L) to ``post`` and return log p(union = L). Sets are integers, bit *c* for label
# *c*; a subset is always a smaller integer, so counting upwards is a valid order for the substitution.
#
# References
# ----------
# .. [1] A. T. Pham, R. Raich and X. Z. Fern, "Dynamic programming for instance annotation in multi-instance
#    multi-label learning", IEEE Transactions on Pattern Analysis and Machine Intelligence 39(12), 2017.


@part(error_model="numpy")
def _union_of_others(p, n, k, skipped, v, before):
    """Fill v[L] = p(union of all instances but `skipped` = L): Eqs. (14) and (15) of [1]."""
    for L in range(v.size):
        v[L] = 0.0
    v[0] = 1.0
    for j in range(n):
        if j == skipped:
            continue
        for L in range(v.size):
            before[L] = v[L]
        v[0] = 0.0
        for L in range(1, v.size):
            v[L] = 0.0
            for c in range(k):
                if L >> c & 1:
                    v[L] += p[j, c] * (before[L] + before[L ^ (1 << c)])


@part(error_model="numpy")
def _last_instance(p, i, k, v, post):
    """Write the posterior of instance i, Eqs. (11) and (19), from the union v of the others; return p(L)."""
    full = v.size - 1
    total = 0.0
    for c in range(k):
        post[i, c] = p[i, c] * (v[full] + v[full ^ (1 << c)])
        total += post[i, c]
    for c in range(k):
        post[i, c] /= total
    return total


@part(error_model="numpy")
def forward(p, n, k, u, v, post):
    """Algorithm 1 of [1]: each instance in turn is moved to the end of the chain, O(k 2^k n^2).

    Parameters
    ----------
    p : ndarray of shape (>= n, >= k)
        Prior probabilities of the labels of the bag.
    n, k : int
        Instances and labels.
    u, v : ndarray of shape (2**k,)
        Workspace.
    post : ndarray of shape (>= n, >= k)
        Receives the posteriors.

    Returns
    -------
    float
        Log probability of the union.

    Examples
    --------
    >>> import numpy as np
    >>> p, post = np.array([[0.8, 0.1], [0.5, 0.4]]), np.empty((2, 2))
    >>> float(np.exp(forward(p, 2, 2, np.empty(4), np.empty(4), post)).round(12))  # .8 * .4 + .1 * .5
    0.37
    """
    total = 0.0
    for i in range(n):
        _union_of_others(p, n, k, i, v, u)
        total = _last_instance(p, i, k, v, post)
    return np.log(total)


@part(error_model="numpy")
def forward_substitution(p, n, k, u, v, post):
    """Algorithm 2 of [1], forward and substitution: O(k 2^k n).

    The union of the other instances is solved from u = A v, Proposition 3. The substitution subtracts numbers
    that may agree in all their digits and divides by masses that may be tiny: with confident instances the
    result can be anything, NaN included.

    Parameters
    ----------
    p, n, k, u, v, post
        As in :func:`forward`.

    Returns
    -------
    float
        Log probability of the union.

    Examples
    --------
    >>> import numpy as np
    >>> p, post = np.array([[0.8, 0.1], [0.5, 0.4]]), np.empty((2, 2))
    >>> float(np.exp(forward_substitution(p, 2, 2, np.empty(4), np.empty(4), post)).round(12))
    0.37
    """
    _union_of_others(p, n, k, np.int64(-1), u, v)
    log_union = np.log(u[u.size - 1])
    for i in range(n):
        # The empty union is left out of Proposition 3; it is certain when there is no other instance.
        v[0] = 1.0 if n == 1 else 0.0
        for L in range(1, v.size):
            total, mass = u[L], 0.0
            for c in range(k):
                if L >> c & 1:
                    mass += p[i, c]
                    total -= p[i, c] * v[L ^ (1 << c)]
            v[L] = total / mass
        _last_instance(p, i, k, v, post)
    return log_union


@kernel(error_model="numpy")
def paper_bags(first, last, which, task, work, substitution):
    """Finish the bags which[first:last] by Algorithm 2, or 1, from the softmax in ``task.out``."""
    for position in range(first, last):
        b = which[position]
        start, n = task.offsets[b], task.offsets[b + 1] - task.offsets[b]
        labels = task.labels[task.label_starts[b] : task.label_starts[b + 1]]
        k = labels.size
        for i in range(n):
            for j in range(k):
                work.r[i, j] = task.out[start + i, labels[j]]
        u, v = work.F[: 1 << k], work.sums[: 1 << k]
        if substitution:
            task.loglik[b] = forward_substitution(work.r, n, k, u, v, work.post)
        else:
            task.loglik[b] = forward(work.r, n, k, u, v, work.post)
        task.status[b] = EXACT
        write_bag(task, b, labels, work.post)
