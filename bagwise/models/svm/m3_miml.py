"""M3MIML: machines over instances, in which a positive bag counts as a whole and a negative one in parts."""

from __future__ import annotations

import numpy as np

from bagwise.base import Traits
from bagwise.compute.threads import small_products
from bagwise.models._shared.scores import each_label
from bagwise.models.svm.base import (
    MACHINES,
    THRESHOLD_RULE,
    InstanceClassifier,
    gram,
    kernel_products,
    labels_by_rule,
    precomputed_machine,
    resolve_gamma,
    weights_of,
)
from bagwise.models.svm.kernels import set_kernel
from bagwise.utils.arrays import check_memory

_AT_A_TIME = 2000  # negative instances that join the machine of a label at a time
_TOL = 1e-4  # of the machines; with 1e-6 those of Scene take minutes at larger C
_CLOSE = 1e-3  # how far inside the margin an example may lie before it must join


class M3MIML(InstanceClassifier):
    r"""Maximum margin machines of instances: the mean of a positive bag, every instance of a negative one.

    Parameters
    ----------
    kernel : {"rbf", "linear"}, default="rbf"
        Kernel between instances.
    gamma : float or "scale", default="scale"
        Of the kernel "rbf", ``exp(-gamma |x - x'|^2)``; "scale" is one over the number of features and the
        variance of their scaled values.
    C : float, default=1.0
        Penalty of errors; try 1 to 32.
    threshold_rule : {"t-criterion", "zero"}, default="t-criterion"
        Labels with a score above 0 are predicted and, with "t-criterion", the best label of a bag where there
        is none.
    scaling : {"standard", "minmax", "l2", "none"}, default="standard"
        What is done to instances first: features with mean 0 and variance 1 over the training instances
        (sparse ones are divided by one spread, not moved), features divided by their range, instances
        divided by their length, or nothing.
    n_jobs : int, optional
        Labels learned at a time.

    Attributes
    ----------
    support_ : ndarray of shape (n_support,)
        Numbers of the training instances that support some label, alone or with their bag.
    support_vectors_ : ndarray or CSR of shape (n_support, n_features)
        Those instances, scaled.
    dual_coef_ : ndarray of shape (n_support, n_labels)
        Their weights.
    intercept_ : ndarray of shape (n_labels,)
        Constants of the machines.
    gamma_ : float
        The gamma that was used.
    constant_scores_ : ndarray of shape (n_labels,)
        1 for a label that all training bags carry, -1 for one that none does, NaN for others. It is the
        score of such a label everywhere.

    Notes
    -----
    For each label, over :math:`f(x) = w \cdot \phi(x) + b`,

    .. math:: \min \tfrac 1 2 |w|^2 + C \sum \xi, \qquad
        \frac{1}{|B|} \sum_{x \in B} f(x) \ge 1 - \xi_B \text{ for positive bags}, \qquad
        -f(x) \ge 1 - \xi_x \text{ for every instance of negative bags.}

    The score of a bag is the largest :math:`f(x)` of its instances. The mean of f over a bag is f at the mean
    of the bag in the kernel's space, so that this is a plain machine whose positive examples are such means.
    Negative examples are many more than positive ones. With bags of one instance it is the usual machine, one
    label against the rest.

    Under the T-criterion ``predict`` adds a label of score at most 0 where no score is above 0. With a single
    label the rule would always predict it, and is not applied.

    *Complexity.* Instances of negative bags join the machine some thousand at a time, those that violate it
    most, until none does: the result is that of all. With s examples in the end, :math:`s^2` numbers and, per
    label, :math:`s^2` to :math:`s^3` operations and N s kernels (N instances).

    *Differences from* [1]_. (1) Each label is solved exactly by a standard solver for machines; labels do not
    interact in the published problem. The released optimiser (Frank-Wolfe) may stop early. (2) Features are
    scaled by training instances.

    References
    ----------
    .. [1] M.-L. Zhang, Z.-H. Zhou: M3MIML: a maximum margin method for multi-instance multi-label learning.
       ICDM 2008.

    Examples
    --------
    >>> from bagwise.datasets import make_miml
    >>> data = make_miml(n_bags=60, random_state=0)
    >>> model = M3MIML(C=8.0).fit(data.bags, data.Y)
    >>> bool((model.predict(data.bags) == data.Y).mean() > 0.8)
    True
    >>> model.key_instances(data.bags).shape == (60, data.Y.shape[1], 1)
    True
    """

    traits = Traits(instances="model")

    _parameters = {**MACHINES, "threshold_rule": THRESHOLD_RULE}

    def __init__(
        self,
        *,
        kernel="rbf",
        gamma="scale",
        C=1.0,
        threshold_rule="t-criterion",
        scaling="standard",
        n_jobs=None,
    ):
        self.kernel = kernel
        self.gamma = gamma
        self.C = C
        self.threshold_rule = threshold_rule
        self.scaling = scaling
        self.n_jobs = n_jobs

    def _learn(self, X, offsets, Y):
        self.gamma_ = resolve_gamma(self.gamma, X)
        gamma = self.gamma_ if self.kernel == "rbf" else None
        machines = each_label(learn_label, Y, self.n_jobs, X, offsets, gamma, self.C)
        self.support_, self.dual_coef_, self.intercept_ = weights_of(machines, X.shape[0])
        self.support_vectors_, self._width = X[self.support_], len(self.support_)

    def _instance_score(self, X, offsets):
        K = gram(self.kernel, self.gamma_, X, self.support_vectors_)
        return K @ self.dual_coef_ + self.intercept_

    def _predict(self, bags, scores):
        return labels_by_rule(self.threshold_rule, scores, self.constant_scores_)


def learn_label(y, X, offsets, gamma, C):
    """Instances that support a label, their weights, and the intercept.

    Examples are sets of instances with equal weights: the bags that carry the label, and single instances of
    the others. These join as long as some violate the machine without them.
    """
    sizes = np.diff(offsets)
    positive = np.flatnonzero(np.repeat(y > 0, sizes))
    outside = np.flatnonzero(np.repeat(y == 0, sizes))
    cuts = np.concatenate([[0], np.cumsum(sizes[y > 0])])
    shares = 1.0 / np.repeat(sizes[y > 0], sizes[y > 0])
    step = max(1, -(-len(outside) // _AT_A_TIME))
    joined = outside[::step]
    K = set_kernel(X[positive], cuts, shares, gamma=gamma)
    K = _grown(K, X, positive, cuts, shares, np.empty(0, np.int64), joined, gamma)
    while True:
        signs = np.repeat([1, 0], [len(cuts) - 1, len(joined)])
        support, dual, b = precomputed_machine(signs, K, C, _TOL)
        weights = np.zeros(len(K))
        weights[support] = dual
        rows = np.concatenate([positive, joined])
        each = np.concatenate(
            [shares * np.repeat(weights[: len(cuts) - 1], np.diff(cuts)), weights[len(cuts) - 1 :]]
        )
        rows, each = rows[each != 0], each[each != 0]
        waiting = np.setdiff1d(outside, joined, assume_unique=True)
        if len(waiting) == 0:
            break
        F = kernel_products(*_kind(gamma), X[waiting], X[rows], each) + b
        worst = np.argsort(-F, kind="stable")[:_AT_A_TIME]
        new = np.sort(waiting[worst[F[worst] > -1.0 + _CLOSE]])
        if len(new) == 0:
            break
        K = _grown(K, X, positive, cuts, shares, joined, new, gamma)
        joined = np.concatenate([joined, new])
    return rows, each, b


def _grown(K, X, positive, cuts, shares, joined, new, gamma):
    """Kernel matrix of the examples with some single instances more."""
    n = len(K) + len(new)
    check_memory(16.0 * n * n, f"the kernel of {n:,} examples", "lower C, or use MIMLFast or BagClassifier")
    alone, ones = np.arange(len(new) + 1), np.ones(len(new))
    beside = set_kernel(X[positive], cuts, shares, X[new], alone, ones, gamma=gamma)
    if len(joined):
        beside = np.concatenate([beside, _kernel(X[joined], X[new], gamma)])
    return np.block([[K, beside], [beside.T, _kernel(X[new], X[new], gamma)]])


def _kernel(A, B, gamma):
    with small_products(float(A.shape[0]) * B.shape[0] * A.shape[1]):
        return gram(*_kind(gamma), A, B)


def _kind(gamma) -> tuple[str, float]:
    return ("linear", 0.0) if gamma is None else ("rbf", gamma)
