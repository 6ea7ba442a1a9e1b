"""MILES: similarities of a bag to all training instances, of which a linear programme selects a few."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linprog
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import euclidean_distances

from bagwise.base import Traits
from bagwise.base.parameters import JOBS, Number
from bagwise.compute.memo import remembered
from bagwise.compute.segment import segment_max, segment_sum
from bagwise.compute.threads import small_products
from bagwise.errors import warn
from bagwise.models._shared.scores import each_label
from bagwise.models.svm.base import (
    CELLS,
    MACHINE,
    SCALING,
    InstanceClassifier,
    ScaledClassifier,
    resolve_gamma,
    row_blocks,
)
from bagwise.utils.arrays import check_memory
from bagwise.utils.progress import progress

_KEPT = 1e-9  # smaller weights are noise of the solver
_SLACK = 1e-7  # by how much a similarity may be worth more than it costs: the solver's own tolerance
_AT_A_TIME = 20  # similarities that join the linear programme in a round,
_LOOKED_AT = 400  # from among these many of the most promising,
_ALIKE = 0.9  # none correlated to another by more than this
_OPTIONS = {"presolve": False}  # dense and small: looking for what to leave out costs more than it saves
_WORTH_A_BAR = 1 << 31  # pairs of instances from which a terminal shows how far it is
_TIED = 1.0 - 1e-12  # instances this close to the most similar one share what it brings


class PrototypeClassifier(ScaledClassifier):
    """A linear function of the similarities of a bag to some training instances, the prototypes."""

    def _keep_prototypes(self, X: Any, machines: dict[int, tuple], n_labels: int) -> None:
        """Set what is learned, from rows of X, their weights and the constant of labels that vary."""
        coef, self.intercept_ = np.zeros((n_labels, X.shape[0])), np.zeros(n_labels)
        for label, (rows, weights, intercept) in machines.items():
            coef[label, rows], self.intercept_[label] = weights, intercept
        self.prototype_rows_ = np.flatnonzero(coef.any(axis=0))
        self.prototypes_, self.coef_ = X[self.prototype_rows_], coef[:, self.prototype_rows_]
        self._width = 3 * len(self.prototype_rows_) + 1

    def _score(self, X, offsets):
        if len(self.prototype_rows_) == 0:
            return np.tile(self.intercept_, (len(offsets) - 1, 1))
        S = bag_similarities(X, offsets, self.prototypes_, self.gamma_)
        return S @ self.coef_.T + self.intercept_


class MILES(PrototypeClassifier, InstanceClassifier):
    r"""Describe a bag by its similarity to every training instance and select by a 1-norm machine.

    Parameters
    ----------
    gamma : float or "scale", default="scale"
        Similarities are ``exp(-gamma |x - x'|^2)``; one over sigma^2 of [1]_. "scale" is one over the number
        of features and the variance of their scaled values. Try it times 1/4 to 4.
    penalty : float, default=0.5
        Penalty lambda on the absolute weights. The loss is a sum over bags, so larger sets stand larger
        values; with small sets try 0.05 to 0.5.
    positive_cost : float, default=0.5
        Cost mu of an error at a positive bag, 1 - mu at a negative one.
    scaling : {"standard", "minmax", "l2", "none"}, default="standard"
        What is done to instances first: features with mean 0 and variance 1 over the training instances
        (sparse ones are divided by one spread, not moved), features divided by their range, instances
        divided by their length, or nothing.
    n_jobs : int, optional
        Labels learned at a time.

    Attributes
    ----------
    prototypes_ : ndarray or CSR of shape (n_prototypes, n_features)
        Scaled training instances with a weight for some label.
    prototype_rows_ : ndarray of shape (n_prototypes,)
        Their numbers among the training instances.
    coef_ : ndarray of shape (n_labels, n_prototypes)
        Their weights.
    intercept_ : ndarray of shape (n_labels,)
        Constants.
    gamma_ : float
        The gamma that was used.
    objective_ : ndarray of shape (n_labels,)
        Minima of the linear programmes; 0 for a constant label.
    constant_scores_ : ndarray of shape (n_labels,)
        1 for a label that all training bags carry, -1 for one that none does, NaN for others. It is the
        score of such a label everywhere.
    n_iter_ : int
        Most linear programmes that a label took.

    Notes
    -----
    With :math:`s_k(B) = \max_{x \in B} \exp(-\gamma |x - x_k|^2)` for training instances :math:`x_k`, the
    score of a bag is :math:`\sum_k w_k s_k(B) + b`, and w and b minimise

    .. math:: \lambda \sum_k |w_k| + \mu \sum_{+} \xi_i + (1 - \mu) \sum_{-} \xi_i, \quad
        y_i (w \cdot s(B_i) + b) \ge 1 - \xi_i, \; \xi \ge 0 .

    ``penalty`` is :math:`\lambda` and ``positive_cost`` is :math:`\mu`. The minimum is unique, the weights
    may not be.

    ``instance_scores`` divides the score of a bag among its instances: the one most similar to a prototype
    receives :math:`w_k s_k(B)`, in equal parts where several are, and those that receive anything share b
    equally. Others have the score 0. The scores of a bag's instances add up to the score of the bag, and
    depend on the bag they are in. An instance is positive above 0, the threshold of [1]_.

    *Differences from* [1]_. (1) The linear programme is solved with a growing set of prototypes: first rounds
    find out whether any prototype is worth its penalty, later ones add those that would lower the objective
    most, until by the dual solution none would. The minimum is that of the whole programme, at a fraction of
    the time. (2) ``gamma`` follows the scale of the data by default, which on the nine features of the
    paper's images is inside the range tried there.

    References
    ----------
    .. [1] Y. Chen, J. Bi, J. Z. Wang: MILES: Multiple-instance learning via embedded instance selection. IEEE
       Transactions on Pattern Analysis and Machine Intelligence 28(12), 2006.

    Examples
    --------
    >>> from bagwise.datasets import make_miml
    >>> data = make_miml(n_bags=120, random_state=0)
    >>> model = MILES(penalty=0.2).fit(data.bags, data.Y)
    >>> bool((model.predict(data.bags) == data.Y).mean() > 0.9)
    True
    >>> len(model.prototype_rows_) < data.bags.n_instances / 3  # few are selected
    True
    """

    traits = Traits(instances="model")

    _parameters = {
        "gamma": MACHINE["gamma"],
        "penalty": Number(above=0),
        "positive_cost": Number(above=0, below=1),
        "scaling": SCALING,
        "n_jobs": JOBS,
    }

    def __init__(self, gamma="scale", *, penalty=0.5, positive_cost=0.5, scaling="standard", n_jobs=None):
        self.gamma = gamma
        self.penalty = penalty
        self.positive_cost = positive_cost
        self.scaling = scaling
        self.n_jobs = n_jobs

    @classmethod
    def _test_params(cls):
        return {"penalty": 0.1}  # for sets of some dozen bags

    def _learn(self, X, offsets, Y):
        self.gamma_ = resolve_gamma(self.gamma, X)
        S = bag_similarities(X, offsets, X, self.gamma_)
        found = each_label(select_prototypes, Y, self.n_jobs, S, self.penalty, self.positive_cost)
        machines = {label: f[:3] for label, f in enumerate(found) if f is not None}
        self._keep_prototypes(X, machines, Y.shape[1])
        self.objective_ = np.array([0.0 if f is None else f[3] for f in found])
        self.n_iter_ = max((f[4] for f in found if f is not None), default=0)

    def _instance_score(self, X, offsets):
        """Divide the score of each bag among its instances."""
        sizes = np.diff(offsets)
        if len(self.prototype_rows_) == 0:
            return np.repeat(self.intercept_ / sizes[:, None], sizes, axis=0)
        S = np.exp(-self.gamma_ * euclidean_distances(X, self.prototypes_, squared=True))
        nearest = (np.repeat(segment_max(S, offsets), sizes, axis=0) * _TIED <= S).astype(np.float64)
        S *= nearest / np.repeat(segment_sum(nearest, offsets), sizes, axis=0)
        takes_part = (nearest @ (self.coef_ != 0).T > 0).astype(np.float64)
        parts = segment_sum(takes_part, offsets)
        # a label without prototypes has nobody who takes part: all share its constant
        takes_part = np.where(np.repeat(parts, sizes, axis=0) > 0, takes_part, 1.0)
        parts = np.where(parts > 0, parts, sizes[:, None])
        return S @ self.coef_.T + takes_part * np.repeat(self.intercept_ / parts, sizes, axis=0)


@remembered
def bag_similarities(X, offsets, prototypes, gamma):
    """Largest ``exp(-gamma |x - prototype|^2)`` of every bag and prototype."""
    n_bags, n = len(offsets) - 1, prototypes.shape[0]
    what = f"the similarity of {n_bags:,} bags to {n:,} instances"
    check_memory(8.0 * n_bags * n, what, "take a sample of the bags, or another method such as SetKernelSVM")
    out = np.full((n_bags, n), -np.inf)
    enabled = X.shape[0] * n > _WORTH_A_BAR
    with (
        small_products(X.shape[0] * n * X.shape[1]),
        progress("similarities to instances", total=X.shape[0], enabled=enabled) as advance,
    ):
        for a, b, rows in row_blocks(offsets, max(1, CELLS // n)):
            D = euclidean_distances(X[rows], prototypes, squared=True)
            D *= -gamma
            top = segment_max(D, np.clip(offsets[a : b + 1], rows.start, rows.stop) - rows.start)
            np.maximum(out[a:b], top, out=out[a:b])  # a large bag comes in parts
            advance(rows.stop - rows.start)
    return np.exp(out, out=out)


def select_prototypes(y, S, penalty, positive_cost):
    """Solve the linear programme of one label: columns, weights, intercept, minimum, number of programmes."""
    signs = np.where(y > 0, 1.0, -1.0)
    costs = np.where(y > 0, positive_cost, 1.0 - positive_cost)
    chosen, turns = _promising(S, signs, costs, penalty)
    more = chosen
    while True:
        w, b, prices, objective = _solve(S[:, chosen], signs, costs, penalty)
        turns += 1
        if len(more):  # where no similarity is promising, none is worth another look
            more = _more(S, prices * signs, penalty, chosen)
        if len(more) == 0:
            kept = np.abs(w) > _KEPT
            return chosen[kept], w[kept], b, objective, turns
        chosen = np.concatenate([chosen, more])


def _promising(S, signs, costs, penalty):
    """Similarities to begin with, none where zero weights are the minimum; how many programmes that took.

    Zero weights are the minimum if some prices, of the same sum on both sides, make no similarity worth more
    than the penalty. There are many such prices then, and a programme that knows a few similarities takes one
    after the other that the rest rule out. Prices in the middle, as far as can be from all limits that the
    known similarities set, settle it in a few rounds.
    """
    n, sums = len(signs), np.where(signs > 0, costs[signs > 0].sum(), costs[signs < 0].sum())
    least = sums.min()
    prices, chosen, turns = costs * least / sums, np.empty(0, np.int64), 0
    sides = np.column_stack([np.vstack([signs > 0, signs < 0]), np.zeros(2)])
    bounds = np.vstack([np.column_stack([np.zeros(n), costs]), [-np.inf, np.inf]])
    while True:
        more = _more(S, prices * signs, penalty, chosen)
        if len(more) == 0:
            return np.empty(0, np.int64), turns
        chosen, turns = np.concatenate([chosen, more]), turns + 1
        A = (signs[:, None] * S[:, chosen]).T
        lengths = np.sqrt(np.einsum("ij,ij->i", A, A))[:, None]
        left = np.hstack([np.vstack([A, -A]), np.vstack([lengths, lengths])])
        found = _minimum(
            -np.eye(1, n + 1, n)[0], left, np.full(len(left), penalty), sides, [least] * 2, bounds
        )
        prices, distance = found.x[:n], found.x[n]
        if distance < 0:  # no prices are inside all limits
            return chosen, turns


def _more(S, signed_prices, penalty, chosen):
    """Numbers of some similarities that are worth more than the penalty and not much like one another."""
    gains = np.abs(signed_prices @ S) - penalty
    gains[chosen] = -np.inf
    best = np.argsort(-gains, kind="stable")[:_LOOKED_AT]
    best = best[gains[best] > _SLACK * max(1.0, penalty)]
    return best[_unlike(S[:, best])] if len(best) else best


def _unlike(S):
    """Numbers of some columns, the first ones that are not much like one taken before.

    Neighbours among instances gain alike, and one of them stands for all.
    """
    Z = S - S.mean(axis=0)
    lengths = np.sqrt(np.einsum("ij,ij->j", Z, Z))
    Z /= np.where(lengths > 0, lengths, 1.0)
    taken = [0]
    for column in range(1, Z.shape[1]):
        if len(taken) == _AT_A_TIME:
            break
        if (Z[:, taken].T @ Z[:, column]).max() < _ALIKE:
            taken.append(column)
    return taken


def _solve(S, signs, costs, penalty):
    """Weights, constant, what a unit of each bag's margin is worth, and the minimum, from the dual programme.

    Prices of bags are at most their costs, those of positive and of negative bags add up to the same, and no
    similarity is worth more than the penalty. This has a row or two per similarity, of which few are chosen,
    where the programme of the weights has one per bag.
    """
    n, k = S.shape
    A = (signs[:, None] * S).T
    bounds = np.column_stack([np.zeros(n), costs])
    result = _minimum(
        np.full(n, -1.0), np.vstack([A, -A]), np.full(2 * k, penalty), signs[None], [0.0], bounds
    )
    multipliers = -result.ineqlin.marginals
    return multipliers[:k] - multipliers[k:], -float(result.eqlin.marginals[0]), result.x, -float(result.fun)


def _minimum(cost, left, right, equal, to, bounds):
    """What `scipy.optimize.linprog` finds; an error where there is no solution."""
    result = linprog(cost, left, right, equal, to, bounds, method="highs", options=_OPTIONS)
    if result.x is None:
        raise RuntimeError(f"the linear programme has no solution: {result.message}")
    if result.status != 0:
        warn(f"the linear programme ended early: {result.message}", ConvergenceWarning)
    return result
