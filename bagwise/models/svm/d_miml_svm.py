"""D-MIMLSVM: machines of all labels at once, over bags and their instances together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import sparse

from bagwise.base import Traits
from bagwise.base.parameters import Number, Whole
from bagwise.compute.segment import segment_max, segment_mean
from bagwise.models.svm.base import MACHINE, SCALING, InstanceClassifier, gram, resolve_gamma
from bagwise.models.svm.kernels_landmarks import Coupled, Solution, landmark_span, maximise


class DMIMLSVM(InstanceClassifier):
    r"""Learn functions of bags and instances whose value for a bag agrees with its best instance.

    A bag is compared with others by all pairs of their instances (the averaged set kernel), an instance is a
    bag by itself, and functions of related labels may have a part in common.

    Parameters
    ----------
    alignment : float, default=0.1
        How much it costs that the value of a bag differs from that of its best instance.
    sharing : float, default=0.0
        How much it costs that the mean of the functions of all labels is not 0. A small value lets labels
        have much in common, and a large one drives them apart.
    kernel : {"rbf", "linear"}, default="rbf"
        Kernel between instances; "linear" is the product of features plus 1, which stands for an intercept.
    gamma : float or "scale", default="scale"
        Of the kernel "rbf", ``exp(-gamma |x - x'|^2)``; "scale" is one over the number of features and the
        variance of their scaled values.
    C : float, default=10.0
        Penalty of errors. Averaged kernels are small, and want a large one; try 1 to 1000.
    n_landmarks : int, default=2000
        With more instances than this, functions are sought in the span of so many of them, those that miss
        least of the others. With fewer, nothing is left out.
    scaling : {"standard", "minmax", "l2", "none"}, default="standard"
        What is done to instances first: features with mean 0 and variance 1 over the training instances
        (sparse ones are divided by one spread, not moved), features divided by their range, instances
        divided by their length, or nothing.
    tol : float, default=1e-3
        Learning ends when the objective is proven to be this close, over its size, to the lowest.
    max_iter : int, default=5000
        Limit on the rounds of the solver.

    Attributes
    ----------
    landmarks_ : ndarray or CSR of shape (n_landmarks, n_features)
        Scaled instances whose kernels the functions add up.
    coef_ : ndarray of shape (n_landmarks, n_labels)
        Their weights.
    kernel_error_ : float
        Largest squared distance of a training instance from the span of the landmarks, over the largest
        squared length; 0 with all of them.
    objective_ : float
        The objective in the end.
    gap_ : float
        How much lower it could be at most, over its size.
    gamma_ : float
        The gamma that was used.
    constant_scores_ : ndarray of shape (n_labels,)
        1 for a label that all training bags carry, -1 for one that none does, NaN for others. It is the
        score of such a label everywhere; it takes no part in learning.
    n_iter_ : int
        Rounds of the solver.

    Notes
    -----
    With :math:`T_{bl} = \pm 1` and functions :math:`f_l` of one kernel space,

    .. math:: \frac 1 2 \sum_l |f_l|^2 + \frac{\mu L}{2} \Big|\frac 1 L \sum_l f_l\Big|^2
        + C \sum_{bl} \Big[ \max(0, 1 - T_{bl} f_l(B_b)) + \lambda \,\big| f_l(B_b) - \max_{x \in B_b} f_l(x)
        \big| \Big]

    is minimised; :math:`\mu` is ``sharing``, :math:`\lambda` is ``alignment``, and :math:`C` is
    :math:`\gamma / (2 n)` of [1]_ for n bags. The score of a bag is :math:`f_l(B)`.

    With the averaged set kernel the value of a bag is the mean of those of its instances. The mean is never
    above the largest, so that the last term is :math:`\max f_l(x) - f_l(B)`, which is convex: no sequence of
    approximations (CCCP) is needed, and the minimum is the global one. Its dual problem has the form of a
    support vector machine whose kernel is that of instances times
    :math:`I - \frac{\mu}{(1 + \mu) L} 1 1'` between labels, and variables that lie in boxes and simplices.

    *Complexity.* :math:`N m^2` operations once and :math:`2 N m L` per round of the solver, with N instances
    and m landmarks (at most N); some hundred rounds. Memory: 3 N m numbers. The quadratic programs of [1]_
    are cubic in the number of bags and instances times labels.

    *Differences from* [1]_, which has no intercept either. (1) The global minimum of the same objective, by
    another method. (2) Above ``n_landmarks`` instances, the span of some of them. (3) Labels that are
    constant in training are not learned. (4) Features are scaled by training instances.

    References
    ----------
    .. [1] Z.-H. Zhou, M.-L. Zhang, S.-J. Huang, Y.-F. Li: Multi-instance multi-label learning. Artificial
       Intelligence 176(1), 2012.

    Examples
    --------
    >>> from bagwise.datasets import make_miml
    >>> data = make_miml(n_bags=60, random_state=0)
    >>> model = DMIMLSVM().fit(data.bags, data.Y)
    >>> bool((model.predict(data.bags) == data.Y).mean() > 0.8)
    True
    >>> model.gap_ <= 1e-3
    True
    """

    traits = Traits(instances="model")

    _parameters = {
        "alignment": Number(0),
        "sharing": Number(0),
        **MACHINE,
        "n_landmarks": Whole(1),
        "scaling": SCALING,
        "tol": Number(above=0),
        "max_iter": Whole(1),
    }

    def __init__(
        self,
        alignment=0.1,
        sharing=0.0,
        *,
        kernel="rbf",
        gamma="scale",
        C=10.0,
        n_landmarks=2000,
        scaling="standard",
        tol=1e-3,
        max_iter=5000,
    ):
        self.alignment = alignment
        self.sharing = sharing
        self.kernel = kernel
        self.gamma = gamma
        self.C = C
        self.n_landmarks = n_landmarks
        self.scaling = scaling
        self.tol = tol
        self.max_iter = max_iter

    def _scaled(self, X):
        X = super()._scaled(X)
        if self.kernel != "linear":
            return X
        one = np.ones((X.shape[0], 1))  # a feature more, for the intercept
        return sparse.hstack([X, one], format="csr") if sparse.issparse(X) else np.hstack([X, one])

    def _learn(self, X, offsets, Y):
        self.gamma_ = resolve_gamma(self.gamma, X)
        varies = np.isnan(self.constant_scores_)
        advice = "lower n_landmarks, or use MIMLFast or BagClassifier"
        span = landmark_span(X, self.kernel, self.gamma_, self.n_landmarks, advice)
        self.landmarks_, self.kernel_error_, self._width = X[span.rows], span.error, len(span.rows)
        self.coef_ = np.zeros((len(span.rows), Y.shape[1]))
        self.objective_, self.gap_, self.n_iter_ = 0.0, 0.0, 0
        if not varies.any():
            return
        n_labels = int(varies.sum())
        # the inverse of the penalty I + sharing / n_labels, the second a matrix of equal numbers
        P = np.eye(n_labels) - self.sharing / (1.0 + self.sharing) / n_labels
        problem = Coupled.of(span, P)
        found = self._solve(problem, offsets, Y[:, varies])
        self.coef_[:, varies] = span.to_landmarks @ problem.coefficients(found.B)
        self.objective_, self.gap_, self.n_iter_ = found.objective, max(found.gap, 0.0), found.n_iter

    def _solve(self, problem: Coupled, offsets, Y) -> Solution:
        sizes = np.diff(offsets)
        T = np.where(Y > 0, 1.0, -1.0)

        def primal(F, penalty):
            means = segment_mean(F, offsets)
            slack = np.maximum(0.0, 1.0 - T * means).sum()
            apart = (segment_max(F, offsets) - means).sum()
            return penalty + self.C * float(slack + self.alignment * apart)

        project = dual_set(T, offsets, self.C, self.C * self.alignment)
        settings = {"balanced": False, "tol": self.tol, "max_iter": self.max_iter}
        return maximise(problem, np.repeat(T, sizes, axis=0), project, primal, **settings)

    def _instance_score(self, X, offsets):
        return gram(self.kernel, self.gamma_, X, self.landmarks_) @ self.coef_

    def _score(self, X, offsets):
        return segment_mean(self._instance_score(X, offsets), offsets)


def dual_set(
    T: np.ndarray, offsets: np.ndarray, cost: float, pull: float
) -> Callable[[np.ndarray], np.ndarray]:
    """Projection onto the dual variables of bags: ``(T a + pull) / n - pull g`` for each bag and label.

    ``a`` is between 0 and ``cost``, ``g`` has one entry per instance of the bag; these are at least 0 and
    add up to 1. The first part is the same for all instances, so that each part is found without the other.
    """
    sizes = np.diff(offsets)
    groups = []  # bags of one size are one array
    for size in np.unique(sizes):
        bags = np.flatnonzero(sizes == size)
        groups.append((int(size), offsets[:-1][bags][:, None] + np.arange(size)))
    low, high = np.minimum(T * cost, 0.0), np.maximum(T * cost, 0.0)

    def project(V: np.ndarray) -> np.ndarray:
        level = np.clip(segment_mean(V, offsets) * sizes[:, None], low, high) / sizes[:, None]
        out = np.repeat(level, sizes, axis=0)
        if pull > 0:
            for size, rows in groups:
                if size > 1:  # the only instance of a bag is its best
                    out[rows] += pull * (1.0 / size - simplex(V[rows] / -pull))
        return out

    return project


def simplex(V: np.ndarray) -> np.ndarray:
    """Nearest points, along the second of three axes, with entries of at least 0 that add up to 1."""
    down = -np.sort(-V, axis=1)
    excess = np.cumsum(down, axis=1) - 1.0
    counts = np.arange(1, V.shape[1] + 1)[:, None]
    last = (down * counts > excess).sum(axis=1, keepdims=True) - 1
    return np.maximum(V - np.take_along_axis(excess, last, axis=1) / (last + 1), 0.0)
