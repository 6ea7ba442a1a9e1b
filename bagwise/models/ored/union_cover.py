"""Probability that independent labels cover a set, and the posterior of each label, for one bag.

All functions take ``r`` of shape (n, k): row *i* is the distribution of instance *i* over the k labels of the
bag (it sums to one). A set of labels is an integer whose bit *c* says whether label *c* is inside. They write
``post[i, c] = p(y_i = c | union of y = all k labels)`` and return the logarithm of the probability of that
union. The symbols are those of the notes of :func:`bagwise.models.ored.union_posterior.union_posterior`.

Three algorithms, each exact on its own ground; the first is in ``union_inclusion.py``, the last in
``union_wide.py``:

=====================  ==================  =============================================================
function               time                ground
=====================  ==================  =============================================================
inclusion_exclusion    n 2^k               unless the alternating sum cancels, which is measured
forward_backward       k n 2^k, pruned     free of subtractions; cover probability above 1e-280
wide_forward_backward  the same, slower    free of subtractions and of underflow
=====================  ==================  =============================================================

Forward and backward: A_i(S) is the probability that the first i instances have the union S, B_i(S) that the
instances after i complete S to all labels: B_{i-1}(S) = sum_c r_i(c) B_i(S + c), and
J_i(c) = r_i(c) sum_S A_{i-1}(S) B_i(S + c).

Positive terms only: the relative error of A, B and J is below n (k + 2) + 2^k roundoffs, the last term from
the plain sum over S; that is 1e-11 at n = 1000 and k = 16. A and B are probabilities, so an entry of r below
1e-307, taken for zero, or an underflow loses no more than itself of the cover; after n k 2^k such losses that
is still below 1e-297 and harmless for a cover above 1e-280. Below it the result is NaN.
"""

import numpy as np

from bagwise.compute.compiled import part

__all__ = ["SMALLEST_COVER", "forward_backward", "normalise", "segment_length", "segment_lengths"]

# A cover probability above this is free of underflow: see above.
SMALLEST_COVER = 1e-280
# Rows of forward sums kept at once: everything up to 16 MiB, beyond that about 2 sqrt(n) of the n rows.
MAX_STORED_SUMS = 2**21


@part(error_model="numpy")
def normalise(post, i, k):
    """Clip and scale row i to sum one, which removes the rounding errors common to the row."""
    total = 0.0
    for c in range(k):
        post[i, c] = max(post[i, c], 0.0)
        total += post[i, c]
    if total > 0.0:
        scale = 1.0 / total
        for c in range(k):
            post[i, c] *= scale


@part
def segment_length(n, k):
    """Forward rows kept together: all n while they fit, else sqrt(n) with a checkpoint before each segment.

    Examples
    --------
    >>> segment_length(30, 16), segment_length(1000, 16)
    (30, 32)
    """
    if n * (1 << k) <= MAX_STORED_SUMS:
        return n
    return int(np.ceil(np.sqrt(n)))


def segment_lengths(n, k):
    """`segment_length` of many bags at once.

    Examples
    --------
    >>> segment_lengths(np.array([30, 1000]), np.array([16, 16]))
    array([30, 32])
    """
    return np.where(n << k <= MAX_STORED_SUMS, n, np.ceil(np.sqrt(n)).astype(np.int64))


@part(error_model="numpy")
def _forward_row(before, after, r, i, n, k, size):
    """Distribution of the union after instance i from the one before it. Eq. (15) of the paper, as a push."""
    n_sets = 1 << k
    for s in range(n_sets):
        after[s] = 0.0
    for s in range(n_sets):
        # Sets that cannot be reached hold a zero; sets too small for the instances left are dropped here.
        if before[s] != 0.0 and k - size[s] <= n - i:
            for c in range(k):
                after[s | (1 << c)] += before[s] * r[i, c]


@part(error_model="numpy")
def _backward_row(A, B, r, i, n, k, size, post):
    """Posterior of instance i from the sums before it; B, after i, becomes after i - 1. Returns the cover.

    In place: the update of B(S) reads supersets of S only, and these come later.
    """
    for c in range(k):
        post[i, c] = 0.0
    cover = 0.0
    for s in range(1 << k):
        a = A[s]
        if a == 0.0 or k - size[s] > n - i:
            B[s] = 0.0
            continue
        total = 0.0
        for c in range(k):
            term = r[i, c] * B[s | (1 << c)]
            total += term
            post[i, c] += a * term
        B[s] = total
        cover += a * total
    normalise(post, i, k)
    return cover


@part(error_model="numpy")
def forward_backward(r, n, k, size, sums, post):
    """Forward and backward sums over sets of labels, without a single subtraction; see the head of the file.

    Parameters
    ----------
    r, n, k, post
        As in :func:`bagwise.models.ored.union_inclusion.inclusion_exclusion`.
    size : ndarray of shape (>= 2**k,)
        Number of labels of each set.
    sums : ndarray of shape (>= (c + ceil(n / c) + 2) * 2**k,)
        Workspace, with c = ``segment_length(n, k)``.

    Returns
    -------
    float
        Log probability of the cover, or NaN.

    Examples
    --------
    >>> r, post, size = np.full((2, 2), 0.5), np.empty((2, 2)), np.array([0, 1, 1, 2])
    >>> float(np.exp(forward_backward(r, 2, 2, size, np.empty(20), post)).round(12))
    0.5
    """
    n_sets, length = 1 << k, segment_length(n, k)
    n_segments = (n + length - 1) // length
    # forward sums of a segment, the first row of every segment, backward sums
    starts, B = (length + 1) * n_sets, sums[(length + 1 + n_segments) * n_sets :]
    for s in range(n_sets):
        sums[starts + s] = B[s] = 0.0
    sums[starts] = B[n_sets - 1] = 1.0
    cover = 0.0
    # up to the last segment only its first row is kept; then, from the last to the first, all rows
    for visit in range(2 * n_segments - 1):
        keeping = visit >= n_segments - 1
        segment = 2 * n_segments - 2 - visit if keeping else visit
        first, last = segment * length, min(n, (segment + 1) * length)
        for s in range(n_sets):
            sums[s] = sums[starts + segment * n_sets + s]
        for i in range(first, last - keeping):
            A = sums[(i - first) * n_sets : (i - first + 2) * n_sets]
            _forward_row(A[:n_sets], A[n_sets:], r, i, n, k, size)
        for s in range(0 if keeping else n_sets):
            sums[starts + (segment + 1) * n_sets + s] = sums[length * n_sets + s]
        for i in range(last - 1, first - 1 if keeping else last - 1, -1):
            cover = _backward_row(
                sums[(i - first) * n_sets : (i - first + 1) * n_sets], B, r, i, n, k, size, post
            )
    return np.log(cover) if cover > SMALLEST_COVER else np.nan
