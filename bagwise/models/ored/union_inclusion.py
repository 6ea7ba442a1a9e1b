"""Cover probability and posteriors of one bag by inclusion and exclusion over subsets of its labels.

With q_i(S) the mass of instance i inside S and F(S) the product over i of q_i(S),

    cover = sum_S (-1)^(k - |S|) F(S),   J_i(c) = r_i(c) sum_{S has c} (-1)^(k - |S|) F(S) / q_i(S).

The error is bounded as follows, with u the unit roundoff and mag = sum_S F(S). A sum q_i(S) of positive terms
takes d roundings at most, d = k - 1 or, when the table is split in two (``union_many.py``), one more than in
its larger part; so F(S) has a relative error of at most n (d + 1) u. Summing F adds at most (rows + 30) u mag
to the error of the cover. In J_i(c) the quotient and the factor r_i(c) add 2 u, and since r_i(c) <= q_i(S)
its terms are again bounded by F(S). The posterior, their quotient, is off by at most
2 (n (d + 1) + rows + 32) u mag / cover to first order in u; where this exceeds `tolerance` the result is
refused. Where q_i(S) underflows so does r_i(c), and what is lost is below F(S) <= 1e-284.
"""

import numpy as np

from bagwise.compute.compiled import part
from bagwise.models.ored.union_cover import normalise

__all__ = [
    "LOW_LABELS",
    "NUDGE",
    "UNIT_ROUNDOFF",
    "fold",
    "halving_sum",
    "inclusion_exclusion",
    "roundings",
    "subset_sums",
]

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
        Distributions over the labels of the bag, see ``union_cover.py``.
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
