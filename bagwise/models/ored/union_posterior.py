"""Exact posteriors of instance labels given the union of the labels of their bag, for many bags.

This is the expectation step of ORed logistic regression. The algorithms for one bag are described in
``union_cover.py``, those printed in the paper in ``union_paper.py``; ``union_bags.py`` goes through the bags.
"""

import numpy as np

from bagwise.compute.numeric import frozen
from bagwise.compute.threads import in_threads
from bagwise.models.ored.union_bags import FORWARD, METHODS, SUBSTITUTION, WIDE, union_bags
from bagwise.models.ored.union_cover import segment_lengths
from bagwise.models.ored.union_inclusion import LOW_LABELS
from bagwise.models.ored.union_many import many_labels
from bagwise.models.ored.union_paper import paper_bags
from bagwise.models.ored.union_rows import EXACT, IMPOSSIBLE, LEFT, SKIPPED, TOO_MANY_LABELS, Task, Workspace
from bagwise.models.ored.union_wide import wide_bags

__all__ = [
    "EXACT",
    "IMPOSSIBLE",
    "METHODS",
    "SKIPPED",
    "TOO_MANY_LABELS",
    "UnionPass",
    "union_posterior",
    "union_residual",
]

LARGEST_MAX_LABELS = 25  # 24 and the background


class UnionPass:
    """Passes over the same bags, as a fit makes them: what depends on bags and label sets alone is kept.

    Parameters as in :func:`union_posterior`.
    """

    def __init__(self, offsets, Y, *, method="auto", max_labels=16, n_threads=1):
        if method not in METHODS:
            raise ValueError(f"method must be one of {METHODS}, got {method!r}; choose one of them")
        if not 1 <= max_labels <= LARGEST_MAX_LABELS:
            raise ValueError(
                f"max_labels must lie in 1..{LARGEST_MAX_LABELS}, got {max_labels}; "
                "drop bags with more labels, time and memory double with each"
            )
        self.offsets = frozen(np.asarray(offsets, dtype=np.int64))
        Y = np.asarray(Y)
        if Y.ndim != 2 or len(Y) != len(self.offsets) - 1:
            raise ValueError(
                f"expected Y of shape ({len(self.offsets) - 1}, n_classes), got {Y.shape}; "
                "pass labels and offsets of the same bags"
            )
        self.method, self.max_labels, self.n_threads = METHODS.index(method), max_labels, n_threads
        self.sizes = np.diff(self.offsets)
        self.n_classes = Y.shape[1]
        self.counts = np.count_nonzero(Y, axis=1)
        self.label_starts = frozen(np.concatenate([[0], np.cumsum(self.counts)]))
        self.labels = frozen(np.nonzero(Y)[1])  # of bag after bag
        # bags with impossible or too large label sets are not computed
        self.exponents = np.where(self.counts <= np.minimum(self.sizes, max_labels), self.counts, 0)
        self.cost = self.sizes * (self.n_classes + 2.0 ** np.minimum(self.counts, max_labels))
        self.work = np.concatenate([[0.0], np.cumsum(self.cost)])
        self._workspaces = {}

    def run(self, logits, weights, out, *, residual):
        """Fill `out` with posteriors, or weighted residuals; return log-likelihood and status of each bag."""
        n_bags, shape = len(self.sizes), (int(self.offsets[-1]), self.n_classes)
        if logits.shape != shape or out.shape != shape:
            raise ValueError(
                f"expected logits and out of shape {shape}, got {logits.shape} and {out.shape}; "
                "pass arrays of the same bags"
            )
        loglik, status = np.empty(n_bags), np.empty(n_bags, dtype=np.int8)
        logits, weights = frozen(np.asarray(logits, dtype=np.float64)), frozen(weights.astype(np.float64))
        # a view, not a copy: `out` is contiguous
        flat = out.reshape(-1)
        bags = (self.offsets, self.label_starts, self.labels)
        task = Task(logits, *bags, weights, residual, out, flat, loglik, status)

        def few_labels(first, last):
            work = self._workspace(first, most_labels=LOW_LABELS)
            union_bags(first, last, task, work, self.method, self.max_labels)

        in_threads(few_labels, n_bags, self.n_threads, work=self.work)
        self._finish(task)
        if (status == SKIPPED).any():
            out[np.repeat(status == SKIPPED, self.sizes)] = 0.0
        return loglik, status

    def _finish(self, task):
        """Go through the bags that were left by the algorithms that few fits need."""
        left = np.flatnonzero(task.status == LEFT)
        if left.size and self.method < WIDE:
            many = left[self.counts[left] > LOW_LABELS]
            self._in_threads(many, lambda a, b, work: many_labels(a, b, many, task, work, self.method))
            left = np.flatnonzero(task.status == LEFT)
        if left.size and self.method < FORWARD:
            self._in_threads(left, lambda a, b, work: wide_bags(a, b, left, task, work))
        elif left.size:
            by_substitution = self.method == SUBSTITUTION
            self._in_threads(left, lambda a, b, work: paper_bags(a, b, left, task, work, by_substitution))

    def _in_threads(self, bags, function):
        if bags.size:
            work = np.concatenate([[0.0], np.cumsum(self.cost[bags])])
            in_threads(
                lambda first, last: function(first, last, self._workspace(first, LARGEST_MAX_LABELS)),
                bags.size,
                self.n_threads,
                work=work,
            )

    def _workspace(self, first, most_labels):
        """Scratch of the thread whose run begins at `first`, for all bags of up to `most_labels` labels."""
        key = (first, most_labels)
        if key not in self._workspaces:
            self._workspaces[key] = self._new_workspace(most_labels)
        return self._workspaces[key]

    def _new_workspace(self, most_labels):
        n, k = self.sizes, np.where(self.exponents <= most_labels, self.exponents, 0)
        length = segment_lengths(n, k)
        n_instances, n_labels = int(n.max(initial=1)), int(k.max(initial=1))
        n_sums = int(((length + -(-n // np.maximum(length, 1)) + 2) << k).max(initial=8))
        n_cells = n_instances * self.n_classes
        size = np.zeros(1, dtype=np.int8)
        for _ in range(n_labels):
            size = np.concatenate([size, size + np.int8(1)])
        scratch = _aligned(n_cells)
        return Workspace(
            r=_aligned(n_cells).reshape(n_instances, self.n_classes),
            post=_aligned(n_cells).reshape(n_instances, self.n_classes),
            size=size,
            F=_aligned(1 << n_labels),
            sums=_aligned(n_sums),
            scratch=scratch,
            bits=scratch.view(np.int64),
        )


def _aligned(n):
    """Scratch of n doubles that begins with a line of the processor's cache; NumPy's begins anywhere."""
    plain = np.empty(n + 7)
    return plain[-plain.ctypes.data % 64 // 8 :][:n]


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
        thread needs at most 2^K (2 sqrt(n) + 7) doubles or 20 MiB, whichever is more: 36 MB at K = 16 and
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
    logits = np.asarray(logits, dtype=np.float64)
    if logits.size and not np.isfinite(logits.max(axis=1)).all():
        row = int(np.flatnonzero(~np.isfinite(logits.max(axis=1)))[0])
        raise ValueError(
            f"expected logits without NaN or +inf and a finite one in each row, got {logits[row]} in row "
            f"{row}; check the features or the weights of the model"
        )
    Q = np.empty(logits.shape)
    bags = UnionPass(offsets, Y, method=method, max_labels=max_labels, n_threads=n_threads)
    loglik, status = bags.run(logits, np.ones(len(bags.sizes)), Q, residual=False)
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
    bags = UnionPass(offsets, Y, method=method, max_labels=max_labels, n_threads=n_threads)
    return bags.run(logits, np.asarray(weights), out, residual=True)
