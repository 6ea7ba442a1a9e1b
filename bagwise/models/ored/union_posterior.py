"""Exact posteriors of instance labels given the union of the labels of their bag, for many bags.

This is the expectation step of ORed logistic regression. The algorithms for one bag are described in
``union_cover.py``, those printed in the paper in ``union_paper.py``, the pass over bags in ``union_bags.py``.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from bagwise.models.ored.union_bags import EXACT, IMPOSSIBLE, METHODS, SKIPPED, TOO_MANY_LABELS, union_bags

__all__ = [
    "EXACT",
    "IMPOSSIBLE",
    "METHODS",
    "SKIPPED",
    "TOO_MANY_LABELS",
    "union_posterior",
    "union_residual",
]

LARGEST_MAX_LABELS = 24


def _plain(array, dtype):
    """C-contiguous and writable: numba would compile everything again for the type of read-only arrays."""
    array = np.ascontiguousarray(array, dtype=dtype)
    return array if array.flags.writeable else array.copy()


def _run(logits, offsets, Y, weights, residual, method, max_labels, n_threads, out):
    """Split the bags into stretches of equal work, one per thread; no result depends on the split."""
    if method not in METHODS:
        raise ValueError(f"method must be one of {METHODS}, got {method!r}; choose one of them")
    if not 1 <= max_labels <= LARGEST_MAX_LABELS:
        raise ValueError(
            f"max_labels must lie in 1..{LARGEST_MAX_LABELS}, got {max_labels}; "
            "drop bags with more labels, time and memory double with each"
        )
    logits, offsets = _plain(logits, np.float64), _plain(offsets, np.int64)
    Y, weights = _plain(Y, np.int8), _plain(weights, np.float64)
    n_bags = len(offsets) - 1
    if Y.shape != (n_bags, logits.shape[1]) or out.shape != logits.shape or offsets[-1] != len(logits):
        raise ValueError(
            f"expected Y of shape {(n_bags, logits.shape[1])}, out of shape {logits.shape} and offsets up to "
            f"{len(logits)}, got {Y.shape}, {out.shape} and {offsets[-1]}; pass arrays of the same bags"
        )
    counts = np.count_nonzero(Y, axis=1)
    loglik, status = np.empty(n_bags), np.empty(n_bags, dtype=np.int8)
    code = METHODS.index(method)
    fixed = (code, logits, offsets, Y, counts, weights, residual, max_labels)
    if n_threads == 1 or n_bags < 2:
        union_bags(*fixed, 0, n_bags, out, loglik, status)
        return loglik, status
    work = np.cumsum(np.diff(offsets) * (logits.shape[1] + 2.0 ** np.minimum(counts, max_labels)))
    cuts = np.searchsorted(work, work[-1] * np.arange(1, n_threads) / n_threads)
    cuts = np.concatenate([[0], cuts, [n_bags]])
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(lambda a, b: union_bags(*fixed, a, b, out, loglik, status), cuts[:-1], cuts[1:]))
    return loglik, status


def union_posterior(logits, offsets, Y, *, method="auto", max_labels=16, n_threads=1):
    r"""Posterior of each instance's label given the union of the labels of its bag, and the bags' likelihood.

    The labels of the instances are independent with softmax probabilities; the bag shows their union only.

    Parameters
    ----------
    logits : ndarray of shape (N, C), float64
        Scores before the softmax; log-probabilities will do, -inf is allowed.
    offsets : ndarray of shape (B + 1,), int64
        Bag b owns the rows offsets[b] to offsets[b + 1].
    Y : ndarray of shape (B, C), int8
        Labels of the bags, 0 or 1.
    method : {"auto", "inclusion_exclusion", "forward_backward", "wide", "forward", "substitution"}
        "auto" takes per bag the cheapest algorithm that is provably exact for it. The next three are its
        parts, run without their guards; the last two are Algorithms 1 and 2 of [1]_, which may return NaN.
    max_labels : int
        Bags with more labels are not computed, see `status`. With K labels in the largest bag computed, a
        thread needs at most 2^K (2 sqrt(n) + 6) doubles or 20 MiB, whichever is more: 36 MB at K = 16 and
        n = 1000; three times that while a bag has a likelihood below 1e-280.
    n_threads : int
        Bags are divided among so many threads; the result is the same to the last bit.

    Returns
    -------
    Q : ndarray of shape (N, C)
        Posteriors, zero outside the bag's labels. For bags whose status is not 0: the prior restricted to
        the bag's labels.
    loglik : ndarray of shape (B,)
        Log probability of the label set.
    status : ndarray of shape (B,), int8
        0 exact; 1 impossible, such as no labels or more labels than instances, `loglik` -inf; 2 more than
        `max_labels` labels, `loglik` NaN.

    Notes
    -----
    With Y the labels of a bag, r_i(c) the prior of instance i renormalised over Y and q_i(S) its mass in S,

    .. math:: \log p(Y) = \sum_i \log \sum_{c \in Y} p_i(c) + \log \sum_S (-1)^{|Y| - |S|} \prod_i q_i(S).

    The second term is the probability that the instances cover Y. "auto" evaluates this sum in O(n 2^|Y|) and
    with it a bound on its rounding error; when posteriors might be off by more than 1e-10 it sums over the
    sets reached by the first and completed by the last instances instead, which needs no subtraction, if
    necessary in numbers of unlimited range.

    Differences from [1]_: the priors are renormalised over Y first, which leaves the posterior as it is and
    keeps long bags from underflowing; the default is neither of its algorithms, because Algorithm 2 loses all
    digits with confident instances and Algorithm 1 is quadratic in n.

    References
    ----------
    .. [1] A. T. Pham, R. Raich and X. Z. Fern, "Dynamic programming for instance annotation in multi-instance
       multi-label learning", IEEE Transactions on Pattern Analysis and Machine Intelligence 39(12), 2017.

    Examples
    --------
    Two instances, labels {0, 1}: one of the two has label 1.

    >>> import numpy as np
    >>> p = np.array([[0.8, 0.1, 0.1], [0.5, 0.4, 0.1]])
    >>> Q, loglik, status = union_posterior(np.log(p), np.array([0, 2]), np.array([[1, 1, 0]], dtype=np.int8))
    >>> Q.round(3)
    array([[0.865, 0.135, 0.   ],
           [0.135, 0.865, 0.   ]])
    >>> np.exp(loglik).round(3), status
    (array([0.37]), array([0], dtype=int8))
    """
    logits = _plain(logits, np.float64)
    if logits.size and not np.isfinite(logits.max(axis=1)).all():
        row = int(np.flatnonzero(~np.isfinite(logits.max(axis=1)))[0])
        raise ValueError(
            f"expected logits without NaN or +inf and a finite one in each row, got {logits[row]} in row "
            f"{row}; check the features or the weights of the model"
        )
    Q = np.empty_like(logits)
    loglik, status = _run(logits, offsets, Y, np.ones(1), False, method, max_labels, n_threads, Q)
    return Q, loglik, status


def union_residual(logits, offsets, Y, weights, out, *, method="auto", max_labels=16, n_threads=1):
    """Log likelihood of each bag and its weighted gradient with respect to the logits, in one pass.

    Posterior and prior are subtracted as soon as a bag is done: ``out = weight * (Q - p)``, Eq. (22) of [1]_.
    For logits ``X @ W.T`` the gradient of ``weights @ loglik`` is then ``out.T @ X``.

    Parameters
    ----------
    logits, offsets, Y, method, max_labels, n_threads
        As in :func:`union_posterior`, but logits are not checked for NaN, which gives a `loglik` of NaN.
    weights : ndarray of shape (B,)
        Weights of the bags. A bag of weight 0 is skipped and costs nothing.
    out : ndarray of shape (N, C), float64, C-contiguous
        Receives the residuals; zero for bags whose status is not 0.

    Returns
    -------
    loglik : ndarray of shape (B,)
        Log probability of the label set, not weighted; 0 for skipped bags.
    status : ndarray of shape (B,), int8
        As in :func:`union_posterior`; 3 for skipped bags.

    References
    ----------
    .. [1] A. T. Pham, R. Raich and X. Z. Fern, "Dynamic programming for instance annotation in multi-instance
       multi-label learning", IEEE Transactions on Pattern Analysis and Machine Intelligence 39(12), 2017.

    Examples
    --------
    >>> import numpy as np
    >>> logits, out = np.log([[0.8, 0.1, 0.1], [0.5, 0.4, 0.1]]), np.empty((2, 3))
    >>> Y = np.array([[1, 1, 0]], dtype=np.int8)
    >>> loglik, status = union_residual(logits, np.array([0, 2]), Y, np.ones(1), out)
    >>> out.round(3)
    array([[ 0.065,  0.035, -0.1  ],
           [-0.365,  0.465, -0.1  ]])
    """
    return _run(logits, offsets, Y, weights, True, method, max_labels, n_threads, out)
