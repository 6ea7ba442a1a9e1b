"""The two E-step algorithms printed in the ORed logistic regression paper, for one bag.

They are kept to compare with and to reproduce the published experiments; the default of
:func:`bagwise.models.ored.union_posterior.union_posterior` is faster and safe. Both take ``p`` of shape
(n, k), the prior probabilities of the k labels of the bag (not renormalised, as in the paper), write
p(y_i = c | union = L) to ``post`` and return log p(union = L). Sets are integers, bit *c* for label *c*; a
subset is always a smaller integer, so counting upwards is a valid order for the substitution.

References
----------
.. [1] A. T. Pham, R. Raich and X. Z. Fern, "Dynamic programming for instance annotation in multi-instance
   multi-label learning", IEEE Transactions on Pattern Analysis and Machine Intelligence 39(12), 2017.
"""

import numpy as np

from bagwise.compute.compiled import kernel, part
from bagwise.models.ored.union_rows import EXACT, write_bag

__all__ = ["forward", "forward_substitution", "paper_bags"]


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
