"""Probability that independent labels cover a set, and the posterior of each label, for one bag.

All functions take ``r`` of shape (n, k): row *i* is the distribution of instance *i* over the k labels of the
bag (it sums to one). A set of labels is an integer whose bit *c* says whether label *c* is inside. They write
``post[i, c] = p(y_i = c | union of y = all k labels)`` and return the logarithm of the probability of that
union. The symbols are those of the notes of :func:`bagwise.models.ored.predict.union_posterior`.

Three algorithms, each exact on its own ground; the last, for bags that few fits have, is
in ``kernels_rare.py``:

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

from __future__ import annotations

import numpy as np

from bagwise.compute.compiled import part

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
        As in :func:`bagwise.models.ored.kernels_cover.inclusion_exclusion`.
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


# ----------------------------------------------------------------------
# Cover probability and posteriors of one bag by inclusion and exclusion over subsets of its labels
#
# With q_i(S) the mass of instance i inside S and F(S) the product over i of q_i(S),
#
#     cover = sum_S (-1)^(k - |S|) F(S),   J_i(c) = r_i(c) sum_{S has c} (-1)^(k - |S|) F(S) / q_i(S).
#
# The error is bounded as follows, with u the unit roundoff and mag = sum_S F(S). A sum q_i(S) of positive
# terms takes d roundings at most, d = k - 1 or, when the table is split in two (``kernels_rare.py``), one
# more than in its larger part; so F(S) has a relative error of at most n (d + 1) u. Summing F adds at
# most (rows + 30) u mag to the error of the cover. In J_i(c) the quotient and the factor r_i(c) add 2 u,
# and since r_i(c) <= q_i(S) its terms are again bounded by F(S). The posterior, their quotient, is off by
# at most 2 (n (d + 1) + rows + 32) u mag / cover to first order in u; where this exceeds `tolerance` the
# result is refused. Where q_i(S) underflows so does r_i(c), and what is lost is below F(S) <= 1e-284.


# Half the distance from 1 to the next double: the largest relative error of one rounded operation.
UNIT_ROUNDOFF = 2.0**-53
# Added to every sum of probabilities so that no quotient is 0/0; below half an ulp of anything that counts.
NUDGE = 1e-300
# Subsets are split into these lowest labels and the others, so that the tables of an instance stay in cache.
LOW_LABELS = 8
# Entries of the tables q_i(S) of a bag that are kept rather than computed twice.
MAX_CACHED_SUMS = 2**15


@part(error_model="numpy")
def subset_sums(r, i, first, last, empty, q):
    """Fill q[S] with `empty` + sum of r[i, c] over the labels first <= c < last in S, by doubling."""
    q[0] = empty
    half = 1
    if last - first >= 4:
        # Loops of constant length are unrolled: four labels at the price of one short loop.
        q[1] = empty + r[i, first]
        for s in range(2):
            q[2 + s] = q[s] + r[i, first + 1]
        for s in range(4):
            q[4 + s] = q[s] + r[i, first + 2]
        for s in range(8):
            q[8 + s] = q[s] + r[i, first + 3]
        half, first = 16, first + 4
    for c in range(first, last):
        mass = r[i, c]
        for s in range(half):
            q[half + s] = q[s] + mass
        half *= 2


@part(error_model="numpy")
def halving_sum(v, width):
    """Sum v[:width], a power of two, by halving it in place: few roundings per term, and it vectorises."""
    while width > 16:
        width //= 2
        # Without the two views the compiler cannot tell that the halves are apart.
        low, high = v[:width], v[width : 2 * width]
        for s in range(width):
            low[s] += high[s]
    total = 0.0
    for s in range(width):
        total += v[s]
    return total


# Terms may be added in any order that the compiler fixes, which lets it use vector registers.
@part(error_model="numpy", fastmath={"reassoc"})
def fold(g, r, i, first, last, post):
    """Write post[i, c] = r[i, c] * sum of g[S] over S with c; g is indexed by sets of first..last - 1."""
    while last - first > 3:
        # The highest label is summed out of g, in place.
        last -= 1
        half = 1 << (last - first)
        low, high = g[:half], g[half : 2 * half]
        total = 0.0
        for s in range(half):
            total += high[s]
            low[s] += high[s]
        post[i, last] = r[i, last] * total
    if last - first == 1:
        post[i, first] = r[i, first] * g[1]
    elif last - first == 2:
        post[i, first] = r[i, first] * (g[1] + g[3])
        post[i, first + 1] = r[i, first + 1] * (g[2] + g[3])
    elif last - first == 3:
        post[i, first] = r[i, first] * ((g[1] + g[3]) + (g[5] + g[7]))
        post[i, first + 1] = r[i, first + 1] * ((g[2] + g[3]) + (g[6] + g[7]))
        post[i, first + 2] = r[i, first + 2] * ((g[4] + g[5]) + (g[6] + g[7]))


@part
def roundings(n, k):
    """Roundoffs, relative to the sum of all terms, that a posterior by inclusion-exclusion may be off.

    Examples
    --------
    >>> roundings(15, 6), roundings(20, 12)
    (246.0, 456.0)
    """
    d = k - 1 if k <= LOW_LABELS else max(LOW_LABELS, k - LOW_LABELS)
    return 2.0 * (n * (d + 1) + (1 << max(0, k - LOW_LABELS)) + 32)


@part(error_model="numpy")
def _two_labels(r, n, tolerance, post):
    """Inclusion-exclusion for two labels: a bag lacks one only if all instances have the other."""
    all_first, all_second = 1.0, 1.0
    for i in range(n):
        all_first *= r[i, 0]
        all_second *= r[i, 1]
    cover = 1.0 - (all_first + all_second)
    if not cover * tolerance >= roundings(n, np.int64(2)) * UNIT_ROUNDOFF * 2.0:
        return np.nan
    for i in range(n):
        post[i, 0] = r[i, 0] - all_first
        post[i, 1] = r[i, 1] - all_second
        normalise(post, i, np.int64(2))
    return np.log1p(-(all_first + all_second))


@part(error_model="numpy")
def inclusion_exclusion(r, n, k, tolerance, size, F, sums, post):
    """Cover probability as an alternating sum over subsets; NaN when it cancels too much for `tolerance`.

    Parameters
    ----------
    r : ndarray of shape (>= n, >= k)
        Distributions over the labels of the bag, see the head of the file.
    n, k : int
        Instances and labels; 2 <= k <= 8.
    tolerance : float
        Largest acceptable bound on the error of a posterior; infinity accepts everything.
    size, F : ndarray of shape (>= 2**k,)
        Number of labels of each set, and workspace.
    sums : ndarray of shape (>= (n + 2) * 2**k,), or of 3 * 2**k when that exceeds 2**15
        Workspace.
    post : ndarray of shape (>= n, >= k)
        Receives the posteriors, unless the result is NaN.

    Examples
    --------
    >>> r, post, size = np.full((2, 2), 0.5), np.empty((2, 2)), np.array([0, 1, 1, 2])
    >>> float(np.exp(inclusion_exclusion(r, 2, 2, 1e-10, size, np.empty(4), np.empty(16), post)).round(12))
    0.5
    """
    if k == 2:
        return _two_labels(r, n, tolerance, post)
    n_sets = 1 << k
    # the sums q_i(S) of all instances are kept while cache allows
    step = n_sets if n * n_sets <= MAX_CACHED_SUMS else 0
    g = sums[n * step + n_sets : n * step + 2 * n_sets]
    for s in range(n_sets):
        F[s] = 1.0
    for i in range(n):
        q = sums[i * step : i * step + n_sets]
        subset_sums(r, i, np.int64(0), k, NUDGE, q)
        for s in range(n_sets):
            F[s] *= q[s]
    F[0] = 0.0
    for s in range(n_sets):
        g[s] = F[s]
    magnitude = halving_sum(g, n_sets)
    for s in range(n_sets):
        F[s] = g[s] = -F[s] if (k - size[s]) & 1 else F[s]
    cover = halving_sum(g, n_sets)
    if not cover * tolerance >= roundings(n, k) * UNIT_ROUNDOFF * magnitude:
        return np.nan
    for i in range(n):
        q = sums[i * step : i * step + n_sets]
        if step == 0:
            subset_sums(r, i, np.int64(0), k, NUDGE, q)
        for s in range(n_sets):
            g[s] = F[s] / q[s]
        fold(g, r, i, np.int64(0), k, post)
        normalise(post, i, k)
    return np.log(cover)
