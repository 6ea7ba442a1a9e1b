"""Exact posteriors of instance labels given the union of the labels of their bag, for many bags.

This is the expectation step of ORed logistic regression, and its answer for bags whose labels are known. The
algorithms for one bag are described in ``kernels_cover.py``, those printed in the paper in
``kernels_rare.py``; ``kernels.py`` goes through the bags.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bagwise.compute.aligned import aligned_empty, frozen
from bagwise.compute.threads import in_threads
from bagwise.models.ored.kernels import (
    FORWARD,
    LEFT,
    METHODS,
    SKIPPED,
    SUBSTITUTION,
    WIDE,
    Task,
    Workspace,
    union_bags,
)
from bagwise.models.ored.kernels_cover import LOW_LABELS, MAX_STORED_SUMS
from bagwise.models.ored.kernels_rare import many_labels, paper_bags, wide_bags

LARGEST_MAX_LABELS = 25  # 24 and the background
FLOOR = 1e-3  # no class is taken for less probable than this: a forest says 0 where it means rarely


class UnionPass:
    """Passes over the same bags, as a fit makes them: what depends on bags and label sets alone is kept.

    Parameters as in :func:`union_posterior`.
    """

    def __init__(self, offsets, Y, *, background=False, method="auto", max_labels=16, n_threads=1):
        if method not in METHODS:
            raise ValueError(f"method must be one of {METHODS}, got {method!r}; choose one of them")
        if not 1 <= max_labels <= LARGEST_MAX_LABELS:
            raise ValueError(
                f"max_labels must lie in 1..{LARGEST_MAX_LABELS}, got {max_labels}; "
                "drop bags with more labels, time and memory double with each"
            )
        offsets, Y = np.asarray(offsets, dtype=np.int64), np.asarray(Y)
        if Y.ndim != 2 or len(Y) != len(offsets) - 1:
            raise ValueError(
                f"expected Y of shape ({len(offsets) - 1}, n_classes), got {Y.shape}; "
                "pass labels and offsets of the same bags"
            )
        self.given_rows = None  # those of the instances as given, where there are others
        if background:
            # It needs no algorithm of its own: one more row per bag, at its end, that carries the background
            # for certain makes it part of every union.
            offsets = offsets + np.arange(len(offsets))
            self.given_rows = np.delete(np.arange(offsets[-1]), offsets[1:] - 1)
        self.offsets = frozen(offsets)
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

    def run(self, logits, weights, *, residual, out=None):
        """Posteriors or residuals, log-likelihood (not weighted) and status of each bag.

        Residuals are ``weight * (Q - p)``, Eq. (22) of [1], posterior less prior: for logits ``X @ W.T`` the
        gradient of ``weights @ loglik`` is ``residuals.T @ X``. They are 0 where the status is not. A bag of
        weight 0 is skipped and costs nothing; its status is 3 and its log-likelihood 0. Logits are not
        checked for NaN, which gives a log-likelihood of NaN. ``out`` receives the result, if given.
        """
        if self.given_rows is not None:
            extended = np.full((self.offsets[-1], self.n_classes), -np.inf)
            extended[:, -1] = 0.0
            extended[self.given_rows] = logits
            logits = extended
        out = np.empty(logits.shape) if out is None else out
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
        left = np.flatnonzero(status == LEFT)
        if left.size:
            self._finish(task, left)
        if (status == SKIPPED).any():
            out[np.repeat(status == SKIPPED, self.sizes)] = 0.0
        return (out if self.given_rows is None else out[self.given_rows]), loglik, status

    def _finish(self, task, left):
        """Go through the bags that were left by the algorithms that few fits need."""
        if self.method < WIDE:
            many = left[self.counts[left] > LOW_LABELS]
            self._in_threads(many, lambda a, b, work: many_labels(a, b, many, task, work, self.method))
            left = np.flatnonzero(task.status == LEFT)
        if self.method < FORWARD:
            self._in_threads(left, lambda a, b, work: wide_bags(a, b, left, task, work))
        else:
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
        if key in self._workspaces:
            return self._workspaces[key]
        n, k = self.sizes, np.where(self.exponents <= most_labels, self.exponents, 0)
        # `segment_length` of all bags at once
        length = np.where(n << k <= MAX_STORED_SUMS, n, np.ceil(np.sqrt(n)).astype(np.int64))
        n_instances, n_labels = int(n.max(initial=1)), int(k.max(initial=1))
        n_sums = int(((length + -(-n // np.maximum(length, 1)) + 2) << k).max(initial=8))
        n_cells = n_instances * self.n_classes
        size = np.zeros(1, dtype=np.int8)
        for _ in range(n_labels):
            size = np.concatenate([size, size + np.int8(1)])
        scratch = aligned_empty((n_cells,), np.float64)
        self._workspaces[key] = Workspace(
            r=aligned_empty((n_instances, self.n_classes), np.float64),
            post=aligned_empty((n_instances, self.n_classes), np.float64),
            size=size,
            F=aligned_empty((1 << n_labels,), np.float64),
            sums=aligned_empty((n_sums,), np.float64),
            scratch=scratch,
            bits=scratch.view(np.int64),
        )
        return self._workspaces[key]


def union_posterior(logits, offsets, Y, *, background=False, method="auto", max_labels=16, n_threads=1):
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
    background : bool
        Whether the last class, whose column of ``Y`` holds ones, may be carried by any instance of any bag
        without showing in the set.
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
    how = {"background": background, "method": method, "max_labels": max_labels, "n_threads": n_threads}
    bags = UnionPass(offsets, Y, **how)
    return bags.run(logits, np.ones(len(bags.sizes)), residual=False)


# ---------------------------------------------------------------------- what is known of instances


class Known(NamedTuple):
    """What is known: row numbers of instances, and which classes each of them may have."""

    rows: Any  # arrays, or tensors on a GPU
    allowed: Any

    def clamped(self, logits: np.ndarray) -> np.ndarray:
        """Logits without the classes that are ruled out."""
        clamped = logits.copy()
        clamped[self.rows] = np.where(self.allowed, logits[self.rows], -np.inf)
        return clamped

    def of_classes(self, classes: np.ndarray) -> Known | None:
        """What remains when only some classes do; rows of which nothing remains are left open."""
        allowed = self.allowed[:, classes]
        some = allowed.any(axis=1)
        return Known(self.rows[some], allowed[some]) if some.any() else None


def known_classes(known: np.ndarray | None, n_labels: int, background: bool) -> Known | None:
    """Classes that instances may have; None where nothing is known.

    Parameters
    ----------
    known : int array of shape (n_instances,) or (n_instances, n_labels), or None
        Label of every instance, -1 where it is not known; or 1, 0 and -1 for each label.
    n_labels : int
        Number of labels.
    background : bool
        Whether there is one more class, the last, for instances without a label. Without it, an instance that
        carries none of the labels is left open: there is no class for it.

    Examples
    --------
    >>> found = known_classes(np.array([-1, 1]), 2, background=True)
    >>> found.rows, found.allowed
    (array([1]), array([[False,  True, False]]))
    >>> known_classes(np.array([[0, -1], [0, 0]]), 2, background=False).allowed
    array([[False,  True]])
    """
    if known is None:
        return None
    if known.ndim == 1:
        allowed = known[:, None] == np.arange(n_labels + background)
        rows = np.flatnonzero(known >= 0)
    else:
        carried = known == 1
        allowed = np.where(carried.any(axis=1, keepdims=True), carried, known != 0)
        if background:
            allowed = np.column_stack([allowed, ~carried.any(axis=1)])
        rows = np.flatnonzero((known >= 0).any(axis=1) & allowed.any(axis=1))
    return Known(rows, allowed[rows]) if rows.size else None


def with_background(Y: np.ndarray, background: Any) -> np.ndarray:
    """Label sets with the background as last column: of every bag, or of those without labels."""
    if not background:
        return Y
    carried = np.ones(len(Y), dtype=bool) if background == "anywhere" else ~Y.any(axis=1)
    return np.column_stack([Y, carried.astype(np.int8)])


def expectation(
    P: np.ndarray,
    offsets: np.ndarray,
    Y: np.ndarray,
    *,
    background: bool,
    known: np.ndarray | None = None,
    max_labels: int = 16,
    n_threads: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Posterior of every instance's class given the label set of its bag, and the log-likelihood of the sets.

    Parameters
    ----------
    P : ndarray of shape (n_instances, n_classes)
        Class probabilities of instances; clipped at `FLOOR`.
    offsets : ndarray of shape (n_bags + 1,)
        Where bags begin.
    Y : ndarray of shape (n_bags, n_labels)
        Label sets.
    background : bool
        Whether ``P`` has one more class, at its end, for instances that carry no label.
    known : ndarray of shape (n_instances,) or (n_instances, n_labels), optional
        Labels of instances that are known, -1 for the others; see `known_classes`.
    max_labels : int, default=16
        Larger sets, and sets that cannot be, restrict the probabilities and no more.
    n_threads : int, default=1
        Threads; they change nothing.

    Returns
    -------
    Q : ndarray of shape (n_instances, n_classes)
        Posteriors.
    loglik : ndarray of shape (n_bags,)
        Log-likelihood of the label set; -inf for one that cannot be, NaN for one that is too large.

    Examples
    --------
    >>> P = np.array([[0.8, 0.1, 0.1], [0.5, 0.4, 0.1]])
    >>> Q, _ = expectation(P, np.array([0, 2]), np.array([[1, 1, 0]]), background=False)
    >>> Q.round(3)  # one of the two carries the second label
    array([[0.865, 0.135, 0.   ],
           [0.135, 0.865, 0.   ]])
    """
    logits = np.log(np.maximum(P, FLOOR))
    clamps = known_classes(known, Y.shape[1], background)
    if clamps is not None:
        logits = clamps.clamped(logits)
    Y = with_background(np.ascontiguousarray(Y, dtype=np.int8), "anywhere" if background else False)
    how = {"background": background, "max_labels": max_labels, "n_threads": n_threads}
    return union_posterior(logits, offsets, Y, **how)[:2]


def log_normaliser(F: np.ndarray) -> np.ndarray:
    """Logarithm of sum_c exp(F_ic) of every row, without the overhead of SciPy for small arrays."""
    top = F.max(axis=1)
    shifted = F - top[:, None]
    return np.log(np.exp(shifted, out=shifted).sum(axis=1)) + top
