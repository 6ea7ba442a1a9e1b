"""Cover probability and posteriors of one bag in numbers that never underflow.

A wide number is a pair (m, e) worth m * 2^(512 e). It is needed when a bag's labels are so improbable under
the model that doubles end, below 1e-280: confident instances, none of which wants a label that the bag has.
"""

import numpy as np
from numba import njit

from bagwise.models.ored.union_cover import normalise, segment_length

__all__ = ["wide_forward_backward"]

# The mantissa is 0 or 2^-256 <= m < 2^256, so that a product of two fits a double.
RADIX, INVERSE_RADIX = 2.0**512, 2.0**-512
WIDE_MAX, WIDE_MIN = 2.0**256, 2.0**-256
LOG_RADIX = 512 * np.log(2.0)
# 512 log 2 in two pieces; the first has 21 trailing zero bits, so e * LOG_RADIX_HIGH is exact for |e| < 2^21.
LOG_RADIX_HIGH = 512 * 0.693147180369123816490
LOG_RADIX_LOW = 512 * 1.90821492927058770002e-10


@njit(cache=True, nogil=True, error_model="numpy")
def _wide_exp(x):
    """e^x for x <= 0 as a wide number; zero below -1e15."""
    if not x > -1e15:
        return 0.0, 0
    e = int(np.rint(x / LOG_RADIX))
    return np.exp((x - e * LOG_RADIX_HIGH) - e * LOG_RADIX_LOW), e


@njit(cache=True, nogil=True, error_model="numpy")
def _wide_product(m1, e1, m2, e2):
    m, e = m1 * m2, e1 + e2
    if m >= WIDE_MAX:
        return m * INVERSE_RADIX, e + 1
    if m < WIDE_MIN:
        return m * RADIX, e - 1
    return m, e


@njit(cache=True, nogil=True, error_model="numpy")
def _wide_sum(m1, e1, m2, e2):
    if m1 == 0.0 or (m2 != 0.0 and e2 > e1):
        m1, e1, m2, e2 = m2, e2, m1, e1
    if m2 != 0.0 and e1 - e2 <= 1:
        m1 += m2 if e1 == e2 else m2 * INVERSE_RADIX
        if m1 >= WIDE_MAX:
            return m1 * INVERSE_RADIX, e1 + 1
    return m1, e1


@njit(cache=True, nogil=True, error_model="numpy")
def _wide_forward_step(m0, e0, rm, re, i, n, k, size, m1, e1):
    m1[:] = 0.0
    e1[:] = 0
    for s in range(m0.size):
        if m0[s] != 0.0 and k - size[s] <= n - i:
            for c in range(k):
                if rm[i, c] != 0.0:
                    t = s | (1 << c)
                    m, e = _wide_product(m0[s], e0[s], rm[i, c], re[i, c])
                    m1[t], e1[t] = _wide_sum(m1[t], e1[t], m, e)


@njit(cache=True, nogil=True, error_model="numpy")
def wide_forward_backward(log_r, n, k, size, post):
    """The sums of :func:`forward_backward` in numbers with an exponent of their own.

    The usual escape from underflow, the same recursion on logarithms, loses digits: at log A = -30,000 one
    rounding is a relative error of 2e-12, and n = 1000 of them add up. With a separate exponent every
    operation keeps its relative error of one roundoff, and the loop takes no exponential or logarithm.

    Parameters
    ----------
    log_r : ndarray of shape (>= n, >= k)
        Logarithms of `r`; -inf is allowed.
    n, k, size, post
        As in :func:`forward_backward`. Workspace is allocated here, since bags this improbable are rare.

    Returns
    -------
    float
        Log probability of the cover; -inf when a cover is impossible.

    Examples
    --------
    >>> import numpy as np
    >>> log_r, post = np.array([[0.0, -1000.0], [0.0, -1001.0]]), np.empty((2, 2))
    >>> round(wide_forward_backward(log_r, 2, 2, np.array([0, 1, 1, 2]), post), 6)  # log(e^-1000 + e^-1001)
    -999.686738
    >>> post.round(4)
    array([[0.2689, 0.7311],
           [0.7311, 0.2689]])
    """
    n_sets = 1 << k
    length = segment_length(n, k)
    n_segments = (n + length - 1) // length
    rm, re = np.empty((n, k)), np.empty((n, k), dtype=np.int64)
    for i in range(n):
        for c in range(k):
            rm[i, c], re[i, c] = _wide_exp(log_r[i, c])
    A, A_exp = np.empty((length + 1, n_sets)), np.empty((length + 1, n_sets), dtype=np.int64)
    start_of, start_exp = np.zeros((n_segments, n_sets)), np.zeros((n_segments, n_sets), dtype=np.int64)
    start_of[0, 0] = 1.0
    for segment in range(n_segments - 1):
        A[0, :], A_exp[0, :] = start_of[segment], start_exp[segment]
        for j in range(length):
            i = segment * length + j
            _wide_forward_step(A[j], A_exp[j], rm, re, i, n, k, size, A[j + 1], A_exp[j + 1])
        start_of[segment + 1, :], start_exp[segment + 1, :] = A[length], A_exp[length]
    B, B_exp = np.zeros(n_sets), np.zeros(n_sets, dtype=np.int64)
    B[n_sets - 1] = 1.0
    J, J_exp = np.empty(k), np.empty(k, dtype=np.int64)
    cover, cover_exp = 0.0, 0
    for segment in range(n_segments - 1, -1, -1):
        first, last = segment * length, min(n, (segment + 1) * length)
        A[0, :], A_exp[0, :] = start_of[segment], start_exp[segment]
        for i in range(first + 1, last):
            j = i - 1 - first
            _wide_forward_step(A[j], A_exp[j], rm, re, i - 1, n, k, size, A[j + 1], A_exp[j + 1])
        for i in range(last - 1, first - 1, -1):
            J[:], J_exp[:] = 0.0, 0
            for s in range(n_sets):
                a, a_exp = A[i - first, s], A_exp[i - first, s]
                total, total_exp = 0.0, 0
                if a != 0.0 and k - size[s] <= n - i:
                    for c in range(k):
                        t = s | (1 << c)
                        if B[t] == 0.0 or rm[i, c] == 0.0:
                            continue
                        m, e = _wide_product(rm[i, c], re[i, c], B[t], B_exp[t])
                        total, total_exp = _wide_sum(total, total_exp, m, e)
                        m, e = _wide_product(a, a_exp, m, e)
                        J[c], J_exp[c] = _wide_sum(J[c], J_exp[c], m, e)
                B[s], B_exp[s] = total, total_exp
            cover, cover_exp = 0.0, 0
            for c in range(k):
                cover, cover_exp = _wide_sum(cover, cover_exp, J[c], J_exp[c])
            for c in range(k):
                shift = J_exp[c] - cover_exp
                post[i, c] = J[c] if shift == 0 else (J[c] * INVERSE_RADIX if shift == -1 else 0.0)
            normalise(post, i, k)
    if cover == 0.0:
        return -np.inf
    return np.log(cover) + cover_exp * LOG_RADIX
