"""MI-SVM and mi-SVM: support vector machines that choose which instances make a bag positive."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from bagwise.base import Traits
from bagwise.base.parameters import Choice, Number, Whole
from bagwise.compute.segment import segment_argmax, segment_mean
from bagwise.compute.threads import small_products
from bagwise.errors import warn
from bagwise.models._shared.scores import each_label
from bagwise.models.svm.base import (
    MACHINES,
    InstanceClassifier,
    bag_matrix,
    gram,
    kernel_products,
    resolve_gamma,
    weights_of,
)


class MISVM(InstanceClassifier):
    r"""Support vector machine over instances whose labels, or witnesses, are learned along.

    A bag is positive if its best instance is. With ``margin="bag"`` (MI-SVM) each positive bag is represented
    by its best instance; with ``margin="instance"`` (mi-SVM) every instance of a positive bag gets a label of
    its own, at least one of them positive. All instances of negative bags are negative examples. Several
    labels are learned one against the rest.

    Parameters
    ----------
    margin : {"bag", "instance"}, default="bag"
        MI-SVM or mi-SVM.
    kernel : {"rbf", "linear"}, default="rbf"
        Kernel between instances.
    gamma : float or "scale", default="scale"
        Of the kernel "rbf", ``exp(-gamma |x - x'|^2)``; "scale" is one over the number of features and the
        variance of their scaled values. Try it times 1/8 to 8.
    C : float, default=1.0
        Penalty of errors; try 1/8 to 128.
    positive_weight : float or "balanced", default=1.0
        Factor on C for positive examples. "balanced" is negative over positive examples as counted before
        the first round; it is worth trying where few bags are positive.
    scaling : {"standard", "minmax", "l2", "none"}, default="standard"
        What is done to instances first: features with mean 0 and variance 1 over the training instances
        (sparse ones are divided by one spread, not moved), features divided by their range, instances
        divided by their length, or nothing.
    max_iter : int, default=50
        Limit on rounds.
    n_jobs : int, optional
        Labels learned at a time.

    Attributes
    ----------
    support_vectors_ : ndarray or CSR of shape (n_support, n_features)
        Scaled instances, or means of bags, that support some label; with ``kernel="rbf"``.
    dual_coef_ : ndarray of shape (n_support, n_labels)
        Their weights; with ``kernel="rbf"``.
    coef_ : ndarray of shape (n_labels, n_features)
        Weights of scaled features; with ``kernel="linear"``.
    intercept_ : ndarray of shape (n_labels,)
        Constants of the machines.
    gamma_ : float
        The gamma that was used.
    witnesses_ : list of ndarray
        For every label the numbers of the training instances that are positive examples of the machine that
        was kept; -1 stands for the mean of a bag, which only a first round has. Empty for a constant label.
    objective_ : list of ndarray
        For every label the value of the objective after each round.
    constant_scores_ : ndarray of shape (n_labels,)
        1 for a label that all training bags carry, -1 for one that none does, NaN for others. It is the
        score of such a label everywhere.
    n_iter_ : int
        Most rounds that a label took.

    Notes
    -----
    With bags :math:`B_I` of labels :math:`Y_I \in \{-1, 1\}`, both minimise
    :math:`\frac 1 2 |w|^2 + C \sum_i \xi_i` with :math:`\xi_i = \max(0, 1 - y_i f(x_i))` over
    :math:`f(x) = w \cdot \phi(x) + b`, and

    - MI-SVM over the choice of one instance per positive bag: those and all instances of negative bags are
      the examples. It starts from the means of the bags.
    - mi-SVM over the labels :math:`y_i` of the instances of positive bags, at least one positive in each. It
      starts from all positive.

    Each round learns a machine, then chooses anew with it: the best instance of each positive bag, or the
    sign of f and the best instance where no sign is positive. That is the best choice for a given machine,
    so the objective never rises (in MI-SVM from the second round on: means are not instances; in mi-SVM
    with ``positive_weight=1``), and rounds end when the choice stays. Should they end otherwise, the machine
    with the lowest objective is kept.

    *Differences from* [1]_. (1) Means of bags are kept as vectors, also with a kernel. (2) The machine with
    the lowest objective is returned, where rounding makes choices alternate. (3) ``positive_weight``.

    References
    ----------
    .. [1] S. Andrews, I. Tsochantaridis, T. Hofmann: Support vector machines for multiple-instance learning.
       NIPS 2002.

    Examples
    --------
    >>> from bagwise.datasets import make_miml
    >>> data = make_miml(n_bags=120, random_state=0)
    >>> model = MISVM(C=10.0).fit(data.bags, data.Y)
    >>> bool((model.predict(data.bags) == data.Y).mean() > 0.9)
    True
    >>> len(model.witnesses_[0]) == int(data.Y[:, 0].sum())  # one for each positive bag
    True
    """

    traits = Traits(instances="model")

    _parameters = {
        "margin": Choice("bag", "instance"),
        **MACHINES,
        "positive_weight": (Choice("balanced"), Number(above=0)),
        "max_iter": Whole(1),
    }

    def __init__(
        self,
        margin="bag",
        *,
        kernel="rbf",
        gamma="scale",
        C=1.0,
        positive_weight=1.0,
        scaling="standard",
        max_iter=50,
        n_jobs=None,
    ):
        self.margin = margin
        self.kernel = kernel
        self.gamma = gamma
        self.C = C
        self.positive_weight = positive_weight
        self.scaling = scaling
        self.max_iter = max_iter
        self.n_jobs = n_jobs

    def _learn(self, X, offsets, Y):
        self.gamma_ = resolve_gamma(self.gamma, X)
        Z = X
        if self.margin == "bag":
            if sparse.issparse(X):
                means = bag_matrix(offsets, 1.0 / np.repeat(np.diff(offsets), np.diff(offsets))) @ X
                Z = sparse.vstack([X, means], format="csr")
            else:
                Z = np.concatenate([X, segment_mean(X, offsets)])
        settings = {name: getattr(self, name) for name in ("margin", "kernel", "C", "max_iter")}
        settings |= {"gamma": self.gamma_, "positive_weight": self.positive_weight}
        found = each_label(learn_label, Y, self.n_jobs, Z, offsets, settings)
        rows, weights, self.intercept_ = weights_of(
            [None if f is None else f["machine"] for f in found], Z.shape[0]
        )
        self._width = 1 if self.kernel == "linear" else len(rows)
        if self.kernel == "linear":
            self.coef_ = np.asarray((Z[rows].T @ weights).T)
        else:
            self.support_vectors_, self.dual_coef_ = Z[rows], weights
        none = np.empty(0, np.int64)
        self.witnesses_ = [none if f is None else f["witnesses"] for f in found]
        self.objective_ = [np.empty(0) if f is None else np.array(f["objective"]) for f in found]
        self.n_iter_ = max(len(history) for history in self.objective_)
        restless = sum(f is not None and not f["at_rest"] for f in found)
        if restless:
            warn(
                f"{restless} of {len(found)} labels stopped at max_iter={self.max_iter} with choices still "
                "changing; raise it, or lower C",
                ConvergenceWarning,
            )

    def _instance_score(self, X, offsets):
        if self.kernel == "linear":
            return np.asarray(X @ self.coef_.T) + self.intercept_
        return gram("rbf", self.gamma_, X, self.support_vectors_) @ self.dual_coef_ + self.intercept_


def learn_label(y, Z, offsets, settings):
    """Rounds of learning and choosing for one label.

    ``Z`` holds the instances and, with margins of bags, the means of the bags after them.
    """
    n = int(offsets[-1])
    sizes = np.diff(offsets)
    positive = np.flatnonzero(y > 0)
    inside = np.repeat(y > 0, sizes)  # instances of positive bags
    rows_inside, rows_outside = np.flatnonzero(inside), np.flatnonzero(~inside)
    starts = np.concatenate([[0], np.cumsum(sizes[positive])])  # their bags among rows_inside
    by_bag = settings["margin"] == "bag"
    if by_bag:
        # a bag of one instance is its own mean: no second round for it
        chosen = np.where(sizes[positive] == 1, offsets[:-1][positive], n + positive)
    else:
        chosen = rows_inside
    weight = settings["positive_weight"]
    if weight == "balanced":
        weight = len(rows_outside) / len(chosen)
    elif weight == "rarity":  # of the label among the bags, see `CSMISVM`
        n_bags, n_without = len(y), len(y) - len(positive)
        settings = settings | {"C": settings["C"] * n_bags / n_without}
        weight = n_without / len(positive)
    lowest, best, objective, seen, at_rest = np.inf, {}, [], set(), False
    for turn in range(settings["max_iter"]):
        negative = (
            rows_outside if by_bag else np.setdiff1d(np.concatenate([rows_outside, rows_inside]), chosen)
        )
        machine, value = _machine(Z, chosen, negative, weight, settings)
        objective.append(value)
        # the first round of MI-SVM has means among its examples: its value says nothing about instances
        if value < lowest or (by_bag and turn == 1):
            lowest, best = value, {"machine": machine, "witnesses": np.where(chosen < n, chosen, -1)}
        F = _outputs(Z[rows_inside], Z, machine, settings)
        top = segment_argmax(F, starts)
        if by_bag:
            new = rows_inside[top]
        else:
            above = F > 0
            above[top] = True  # a positive bag keeps a positive instance
            new = rows_inside[above]
        at_rest = np.array_equal(new, chosen)
        if at_rest or new.tobytes() in seen:
            at_rest = True
            break
        seen.add(chosen.tobytes())
        chosen = new
    return best | {"objective": objective, "at_rest": at_rest}


def _machine(Z, positive, negative, weight, settings):
    """Support rows of Z, their weights and the intercept; and the objective, from the support alone."""
    rows = np.concatenate([positive, negative])
    y = np.repeat([1, 0], [len(positive), len(negative)])
    svm = SVC(
        kernel=settings["kernel"],
        gamma=settings["gamma"],
        C=settings["C"],
        class_weight={1: weight, 0: 1.0},
        cache_size=500,
    ).fit(Z[rows], y)
    dual = svm.dual_coef_.toarray() if sparse.issparse(svm.dual_coef_) else svm.dual_coef_
    support, dual, b = rows[svm.support_], np.asarray(dual)[0], float(svm.intercept_[0])
    f = _outputs(Z[support], Z, (support, dual, b), settings)
    signs = np.where(svm.support_ < len(positive), 1.0, -1.0)
    costs = settings["C"] * np.where(signs > 0, weight, 1.0)
    # |w|^2 = sum of dual times (f - b); examples that are no support have no slack
    value = 0.5 * float(dual @ (f - b)) + float(costs @ np.maximum(0.0, 1.0 - signs * f))
    return (support, dual, b), value


def _outputs(X, Z, machine, settings):
    """Machine's values at rows of X."""
    support, dual, b = machine
    if settings["kernel"] == "linear":
        with small_products(X.shape[0] * len(support) * X.shape[1]):
            return np.asarray(X @ (Z[support].T @ dual)).ravel() + b
    return kernel_products("rbf", settings["gamma"], X, Z[support], dual) + b
