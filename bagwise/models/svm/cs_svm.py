"""cs.SVM: sums of instances, and a machine per view and label whose errors cost by how rare the label is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse

from bagwise.bags import Bags, MultiViewBags
from bagwise.base import MIMLClassifier, Traits, best_labels
from bagwise.base.parameters import Choice, Number, PerView
from bagwise.compute.scaling import apply_scaling, learn_scaling
from bagwise.compute.segment import segment_sum
from bagwise.errors import DataError
from bagwise.models._shared.scores import each_label
from bagwise.models.svm.base import (
    CELLS,
    MACHINES,
    bag_matrix,
    blocks,
    constant_scores,
    gram,
    precomputed_machine,
    put_constants,
    resolve_gamma,
    short_indices,
    weights_of,
)
from bagwise.utils.arrays import check_memory

_ONLY = "bags"  # name of the view of bags that have one


class CSSVM(MIMLClassifier):
    r"""Add up the instances of each bag and learn every label by a cost-sensitive support vector machine.

    Several views are learned apart, and their scores are averaged. A view in which a bag has no instances is
    left out for that bag, in training as in prediction.

    Parameters
    ----------
    view_weights : float, sequence, or mapping of view to float, default=1.0
        What each view counts for in the average.
    kernel : {"rbf", "linear"}, default="rbf"
        Kernel between sums.
    gamma : float, "auto" or "scale", default="auto"
        Of the kernel "rbf", ``exp(-gamma |s - s'|^2)``; "auto" is one over the number of features, "scale"
        that over the variance of the scaled sums, too.
    C : float, default=1.0
        Penalty of errors, before it is weighted.
    scaling : {"standard", "minmax", "l2", "none"}, default="standard"
        What is done to the sums: features with mean 0 and variance 1 over the training bags (sparse ones are
        divided by one spread, not moved), features divided by their range, sums divided by their length, or
        nothing.
    n_jobs : int, optional
        Labels learned at a time.

    Attributes
    ----------
    support_ : dict of ndarray
        For each view the numbers of the training bags that support some label. Bags of a single view have
        the view "bags".
    support_sums_ : dict of ndarray or CSR
        Their scaled sums.
    dual_coef_ : dict of ndarray of shape (n_support, n_labels)
        Their weights.
    intercept_ : dict of ndarray of shape (n_labels,)
        Constants of the machines.
    gamma_ : dict of float
        The gamma that was used.
    weights_ : dict of float
        What each view counts for.
    constant_scores_ : ndarray of shape (n_labels,)
        1 for a label that all training bags carry, -1 for one that none does, NaN for others. It is the
        score of such a label everywhere.

    Notes
    -----
    For each view and label with p of n bags positive, over functions f of the sum s of a bag's instances,

    .. math:: \min \tfrac 1 2 |w|^2 + C \frac n p \sum_{+} \max(0, 1 - f(s))
        + C \frac{n}{n - p} \sum_{-} \max(0, 1 + f(s)) ,

    so that both classes weigh the same, with twice the weights of scikit-learn's "balanced". The score of a
    bag is the mean of f over its views, weighted by ``view_weights``; the paper takes .3 and .7, or .6 and
    .4. A bag without any instance has the score -1. An instance is scored as a bag of its own.

    *Complexity.* :math:`n^2` kernels of d features per view, shared by all labels, and between :math:`n^2`
    and :math:`n^3` operations per label.

    *Differences from* [1]_. (1) Sums are scaled unless ``scaling="none"``: counts of words need not be, other
    features do. (2) What is done where a bag lacks a view is not stated there.

    References
    ----------
    .. [1] C.-T. Nguyen, X. Wang, J. Liu, Z.-H. Zhou: Labeling complicated objects: multi-view multi-instance
       multi-label learning. AAAI 2014. Its baseline cs.SVM.

    Examples
    --------
    >>> from bagwise.datasets import make_miml
    >>> data = make_miml(n_bags=120, random_state=0)
    >>> model = CSSVM().fit(data.bags, data.Y)
    >>> bool((model.predict(data.bags) == data.Y).mean() > 0.8)
    True

    Two views, the second of which counts for more:

    >>> views = MultiViewBags({"a": data.bags[:, :10], "b": data.bags[:, 10:]})
    >>> both = CSSVM({"a": 0.3, "b": 0.7}).fit(views, data.Y)
    >>> both.decision_function(views).shape == data.Y.shape
    True
    """

    support_: dict[str, np.ndarray]
    support_sums_: dict[str, Any]
    dual_coef_: dict[str, np.ndarray]
    intercept_: dict[str, np.ndarray]
    gamma_: dict[str, float]

    traits = Traits(instances="singleton", views=True, empty_bags=True)

    _parameters = {
        "view_weights": PerView(Number(above=0)),
        **MACHINES,
        "gamma": (Choice("auto", "scale"), Number(above=0)),
    }

    def __init__(
        self, view_weights=1.0, *, kernel="rbf", gamma="auto", C=1.0, scaling="standard", n_jobs=None
    ):
        self.view_weights = view_weights
        self.kernel = kernel
        self.gamma = gamma
        self.C = C
        self.scaling = scaling
        self.n_jobs = n_jobs

    def _fit(self, bags: Any, Y: np.ndarray) -> None:
        views = _views(bags)
        self.weights_ = view_weights(self.view_weights, list(views))
        self.constant_scores_ = constant_scores(Y)
        self._scalings: dict[str, Any] = {}
        self._constants: dict[str, np.ndarray] = {}  # of the bags that have the view
        self.support_, self.support_sums_, self.gamma_ = {}, {}, {}
        self.dual_coef_, self.intercept_ = {}, {}
        for name, part in views.items():
            self._learn_view(name, part, Y)

    def _learn_view(self, name: str, bags: Bags, Y: np.ndarray) -> None:
        there = np.flatnonzero(bags.sizes > 0)
        if len(there) == 0:
            raise DataError(
                f"no bag has an instance{'' if name == _ONLY else f' in view {name!r}'}; leave the view out"
            )
        Y = Y[there]
        sums = bag_sums(bags[there])
        self._scalings[name] = learn_scaling(sums, self.scaling)
        S = short_indices(apply_scaling(sums, self._scalings[name]))
        self.gamma_[name] = 1.0 / S.shape[1] if self.gamma == "auto" else resolve_gamma(self.gamma, S)
        n = len(there)
        check_memory(
            16.0 * n * n, f"the kernel of {n:,} bags", "take a sample, or use PooledLogisticRegression"
        )
        K = gram(self.kernel, self.gamma_[name], S, S)
        machines = each_label(cost_sensitive_machine, Y, self.n_jobs, K, self.C)
        rows, self.dual_coef_[name], self.intercept_[name] = weights_of(machines, n)
        self.support_[name], self.support_sums_[name] = there[rows], S[rows]
        self._constants[name] = constant_scores(Y)

    def _view_scores(self, name: str, bags: Bags) -> np.ndarray:
        """Scores of all bags by one view; those without an instance get whatever."""
        dual = self.dual_coef_[name]
        out = np.tile(self.intercept_[name], (len(bags), 1))
        if len(dual):
            done = 0
            for part in blocks(bags, CELLS // max(len(dual), bags.n_features)):
                S = short_indices(apply_scaling(bag_sums(part), self._scalings[name]))
                K = gram(self.kernel, self.gamma_[name], S, self.support_sums_[name])
                out[done : done + len(part)] += K @ dual
                done += len(part)
        return put_constants(out, self._constants[name])

    def _scores(self, bags: Any) -> np.ndarray:
        total = np.zeros((len(bags), len(self.constant_scores_)))
        weight = np.zeros(len(bags))
        for name, part in _views(bags).items():
            each = np.where(part.sizes > 0, self.weights_[name], 0.0)
            total += each[:, None] * self._view_scores(name, part)
            weight += each
        S = np.divide(total, weight[:, None], out=np.full_like(total, -1.0), where=weight[:, None] > 0)
        return put_constants(S, self.constant_scores_)

    def _instance_scores(self, bags: Any) -> Any:
        found = {
            name: put_constants(self._view_scores(name, part.singletons()), self.constant_scores_)
            for name, part in _views(bags).items()
        }
        return found if isinstance(bags, MultiViewBags) else found[_ONLY]

    def _annotate(self, bags: Any, Y: np.ndarray | None) -> Any:
        if not isinstance(bags, MultiViewBags):
            return super()._annotate(bags, Y)
        return {name: best_labels(F, bags[name], Y) for name, F in self._instance_scores(bags).items()}


def view_weights(given: Any, names: list[str]) -> dict[str, float]:
    """Weight of every view, from one for all, one each in order, or a mapping."""
    if isinstance(given, Mapping):
        if set(given) != set(names):
            raise DataError(
                f"view_weights names the views {sorted(given)}, but the views are {sorted(names)}"
            )
        return {name: float(given[name]) for name in names}
    if np.ndim(given) == 0:
        return dict.fromkeys(names, float(given))
    if len(given) != len(names):
        raise DataError(f"view_weights has {len(given)} numbers for the {len(names)} views {names}")
    return {name: float(w) for name, w in zip(names, given)}


def bag_sums(bags: Bags) -> Any:
    """Sum of the instances of every bag, in double precision; CSR of CSR."""
    if bags.is_sparse:
        sums = sparse.csr_array(bag_matrix(bags.offsets, np.ones(bags.n_instances)) @ bags.X)
        sums.sort_indices()
        return sums
    return segment_sum(np.asarray(bags.X, dtype=np.float64), bags.offsets)


def cost_sensitive_machine(y: np.ndarray, K: np.ndarray, C: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Machine of one label whose classes weigh by how rare they are."""
    n, n_positive = len(y), int((y > 0).sum())
    weights = {1: n / n_positive, 0: n / (n - n_positive)}
    return precomputed_machine(y, K, C, weights=weights)


def _views(bags: Any) -> dict[str, Bags]:
    return dict(bags.views) if isinstance(bags, MultiViewBags) else {_ONLY: bags}
