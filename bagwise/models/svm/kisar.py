"""KISAR: bags as similarities to prototypes, of which related labels use the same ones."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import check_random_state

from bagwise.base import Traits
from bagwise.base.parameters import Choice, Number, Seed, Whole
from bagwise.compute.segment import segment_max
from bagwise.compute.threads import small_products
from bagwise.models.svm.base import SCALING, THRESHOLD_RULE, InstanceClassifier, gram, k_means, labels_by_rule

RELATIONS = ("off_diagonal_mean", "mean", "conditional", "identity", "all")


class KISAR(InstanceClassifier):
    r"""Describe a bag by its similarity to prototypes and let related labels share the ones they need.

    Parameters
    ----------
    n_prototypes : int, default=1000
        Centres of k-means over the training instances; at most as many as there are instances.
    C : float, default=500.0
        Penalty of errors.
    relation : {"off_diagonal_mean", "mean", "conditional", "identity", "all"}, default="off_diagonal_mean"
        Which labels are related: those that occur together in more bags than two labels do on average, the
        same with a label and itself in the average, those whose share of bags together is above a tenth of
        that of the rarer one, none, or all.
    bandwidth : float, default=1.0
        Width of the similarity in mean distances between instances.
    instance_rule : {"sum", "prototype"}, default="sum"
        What scores an instance: all prototypes, as if it were a bag of its own, or the prototype that speaks
        most for the label among those to which it is the most similar instance of its bag.
    threshold_rule : {"t-criterion", "zero"}, default="t-criterion"
        Labels with a score above 0 are predicted and, with "t-criterion", the best label of a bag where there
        is none.
    scaling : {"standard", "minmax", "l2", "none"}, default="standard"
        What is done to instances first: features with mean 0 and variance 1 over the training instances
        (sparse ones are divided by one spread, not moved), features divided by their range, instances
        divided by their length, or nothing.
    max_iter : int, default=20
        Limit on rounds; the default is that of the paper. More of them lower the objective by about a
        percent, and let labels do with a tenth of the prototypes.
    tol : float, default=1e-3
        Rounds end when the objective falls by less than this share.
    random_state : int, RandomState instance or None, default=None
        Seed of k-means.

    Attributes
    ----------
    prototypes_ : ndarray of shape (n_prototypes, n_features)
        Centres, in scaled features.
    width_ : float
        Width of the similarity.
    coef_ : ndarray of shape (n_labels, n_prototypes)
        Weights of similarities; 0 for prototypes that a label does without.
    intercept_ : ndarray of shape (n_labels,)
        Constants.
    relation_ : ndarray of shape (n_labels, n_labels)
        1 for related labels, 0 for others.
    objective_ : ndarray of shape (n_iter_,)
        The objective after each round.
    constant_scores_ : ndarray of shape (n_labels,)
        1 for a label that all training bags carry, -1 for one that none does, NaN for others. It is the
        score of such a label everywhere; it takes no part in learning.
    n_iter_ : int
        Rounds.

    Notes
    -----
    The similarity of a bag to prototype k is :math:`s_k(B) = \max_{x \in B} \exp(-|x - c_k|^2 / \delta^2)`.
    With relations :math:`R_{tu}` (1 or 0, and 1 for t = u) and :math:`T = \pm 1`,

    .. math:: \sum_{tu} R_{tu} \Big(\sum_k \sqrt{w_{tk}^2 + w_{uk}^2}\Big)^2
        + C \sum_{bt} \max(0, 1 - T_{bt} (w_t \cdot s(B_b) + b_t))^2

    is minimised. The first term has few prototypes at work, the same ones for related labels. It is the
    minimum over shares :math:`\eta^{tu}`, which add up to 1, of
    :math:`\sum_{tuk} R_{tu} (w_{tk}^2 + w_{uk}^2) / \eta^{tu}_k`. Rounds alternate between the shares, which
    have a closed form, and the weights, one machine per label; neither step raises the objective.

    Under the T-criterion ``predict`` adds a label of score at most 0 where no score is above 0. With a single
    label the rule would always predict it, and is not applied.

    *Complexity.* N K d per round of k-means and for similarities (N instances, K prototypes, d features);
    per round and label some Newton steps of n K min(n, K) operations for n bags; :math:`L^2 K` for shares.

    *Differences from* [1]_, whose text leaves details open: squared hinge loss with an intercept without
    penalty; each machine is solved by Newton's method, not to the tolerance of a general solver; the
    bandwidth is a parameter; features are scaled by training instances.

    References
    ----------
    .. [1] Y.-F. Li, J.-H. Hu, Y. Jiang, Z.-H. Zhou: Towards discovering what patterns trigger what labels.
       AAAI 2012.

    Examples
    --------
    >>> from bagwise.datasets import make_miml
    >>> data = make_miml(n_bags=120, random_state=0)
    >>> model = KISAR(n_prototypes=50, random_state=0).fit(data.bags, data.Y)
    >>> bool((model.predict(data.bags) == data.Y).mean() > 0.8)
    True
    >>> bool((np.diff(model.objective_) <= 1e-9 * model.objective_[0]).all())  # never rises
    True
    """

    traits = Traits(instances="model")

    _parameters = {
        "n_prototypes": Whole(1),
        "C": Number(above=0),
        "relation": Choice(*RELATIONS),
        "bandwidth": Number(above=0),
        "instance_rule": Choice("sum", "prototype"),
        "threshold_rule": THRESHOLD_RULE,
        "scaling": SCALING,
        "max_iter": Whole(1),
        "tol": Number(0),
        "random_state": Seed(),
    }

    def __init__(
        self,
        n_prototypes=1000,
        *,
        C=500.0,
        relation="off_diagonal_mean",
        bandwidth=1.0,
        instance_rule="sum",
        threshold_rule="t-criterion",
        scaling="standard",
        max_iter=20,
        tol=1e-3,
        random_state=None,
    ):
        self.n_prototypes = n_prototypes
        self.C = C
        self.relation = relation
        self.bandwidth = bandwidth
        self.instance_rule = instance_rule
        self.threshold_rule = threshold_rule
        self.scaling = scaling
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    @classmethod
    def _test_params(cls):
        return {"n_prototypes": 20, "max_iter": 5, "random_state": 0}

    def _learn(self, X, offsets, Y):
        rng = check_random_state(self.random_state)
        centres, nearest, _ = k_means(X, self.n_prototypes, rng, max_iter=100)
        self.prototypes_ = centres[np.unique(nearest)]  # without those that no instance needs
        self._width = len(self.prototypes_)
        self.width_ = self.bandwidth * mean_distance(X, rng)
        self.relation_ = relations(Y, self.relation)
        varies = np.isnan(self.constant_scores_)
        self.coef_ = np.zeros((Y.shape[1], len(self.prototypes_)))
        self.intercept_, self.objective_, self.n_iter_ = np.zeros(Y.shape[1]), np.empty(0), 0
        if varies.any():
            S = segment_max(self._similarities(X), offsets)
            T = np.where(Y[:, varies] > 0, 1.0, -1.0)
            R = self.relation_[np.ix_(varies, varies)]
            settings = {"C": self.C, "max_iter": self.max_iter, "tol": self.tol}
            with small_products(float(S.size) * min(S.shape)):
                W, self.intercept_[varies], history = share_prototypes(S, T, R, **settings)
            self.coef_[varies], self.objective_, self.n_iter_ = W, np.array(history), len(history)

    def _similarities(self, X):
        return gram("rbf", self.width_**-2, X, self.prototypes_)

    def _score(self, X, offsets):
        return segment_max(self._similarities(X), offsets) @ self.coef_.T + self.intercept_

    def _predict(self, bags, scores):
        return labels_by_rule(self.threshold_rule, scores, self.constant_scores_)

    def _instance_score(self, X, offsets):
        Q = self._similarities(X)
        if self.instance_rule == "sum":
            return Q @ self.coef_.T + self.intercept_
        most = np.repeat(segment_max(Q, offsets), np.diff(offsets), axis=0)
        # what others of the bag are more similar to is not theirs; equal instances differ by rounding
        Q = np.where(most * (1.0 - 1e-9) <= Q, Q, 0.0)
        F = np.empty((len(Q), len(self.coef_)))
        for label, w in enumerate(self.coef_):
            F[:, label] = (Q * w).max(axis=1)
        return F


# ----------------------------------------------------------------------
# Weights over prototypes that related labels share: the alternating minimisation of KISAR


_SAMPLE = 3000  # instances whose distances give the bandwidth
_FLOOR = 1e-10  # share of a prototype below which labels do without it
_STEPS = 100  # of Newton's method; it takes about ten


def mean_distance(X, rng: np.random.RandomState) -> float:
    """Mean distance of two instances, of some thousand where there are more; 1 where all are equal."""
    if X.shape[0] > _SAMPLE:
        X = X[np.sort(rng.choice(X.shape[0], _SAMPLE, replace=False))]
    n = X.shape[0]
    D = euclidean_distances(X)
    np.fill_diagonal(D, 0.0)
    mean = float(D.sum()) / max(n * (n - 1), 1)
    return mean if mean > 1e-12 else 1.0


def relations(Y: np.ndarray, kind: str) -> np.ndarray:
    """Which labels are related; every label is to itself."""
    n_labels = Y.shape[1]
    if kind in ("identity", "all"):
        return np.eye(n_labels) if kind == "identity" else np.ones((n_labels, n_labels))
    together = (Y > 0).T.astype(np.float64) @ (Y > 0)
    own = together.diagonal()
    if kind == "conditional":
        related = together > 0.1 * np.minimum(own[:, None], own)
    elif kind == "mean" or n_labels == 1:
        related = together > together.mean()
    else:
        related = together > (together.sum() - own.sum()) / (n_labels * (n_labels - 1))
    return (related | np.eye(n_labels, dtype=bool)).astype(np.float64)


def share_prototypes(
    S: np.ndarray, T: np.ndarray, R: np.ndarray, *, C: float, max_iter: int, tol: float
) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """Weights (n_labels, n_prototypes), intercepts and the objective after each round.

    ``S`` are similarities (n_bags, n_prototypes), ``T`` labels of 1 and -1, ``R`` relations.
    """
    n_labels, k = T.shape[1], S.shape[1]
    W, b = np.zeros((n_labels, k)), np.zeros(n_labels)
    costs = np.repeat(R.sum(axis=1)[:, None] * k, k, axis=1)  # all shares equal
    history: list[float] = []
    while len(history) < max_iter:
        for t in range(n_labels):
            used = np.flatnonzero(np.isfinite(costs[t]))
            # a penalty of sum cost w^2 is |v|^2 / 2 in features divided by the root of twice the cost
            root = np.sqrt(4.0 * costs[t, used])
            v, b[t] = squared_hinge(S[:, used] / root, T[:, t], C, W[t, used] * root, b[t])
            W[t] = 0.0
            W[t, used] = v / root
        size, costs = _penalty(W, R)
        slack = np.maximum(0.0, 1.0 - T * (S @ W.T + b))
        history.append(size + C * float(np.square(slack).sum()))
        if len(history) > 1 and history[-2] - history[-1] <= tol * history[-2]:
            break
    return W, b, history


def _penalty(W: np.ndarray, R: np.ndarray) -> tuple[float, np.ndarray]:
    """Value of the penalty, and the cost of each squared weight at the best shares; inf where it is to go."""
    squares, total = np.square(W), 0.0
    costs = np.zeros_like(W)
    for t in range(len(W)):
        for u in np.flatnonzero(R[t]):
            lengths = np.sqrt(squares[t] + squares[u])
            whole = float(lengths.sum())
            total += R[t, u] * whole**2
            share = lengths / whole if whole > 0 else np.full(len(lengths), 1.0 / len(lengths))
            costs[t] += np.divide(R[t, u], share, out=np.full(len(share), np.inf), where=share > _FLOOR)
    return total, costs


def squared_hinge(
    S: np.ndarray, y: np.ndarray, C: float, v: np.ndarray, b: float
) -> tuple[np.ndarray, float]:
    """Minimise ``|v|^2 / 2 + C sum max(0, 1 - y (S v + b))^2`` from a start, by Newton's method.

    The system of a step has as many unknowns as there are bags at work, or features if these are fewer.
    """

    def value(f: np.ndarray, v: np.ndarray) -> float:
        return 0.5 * float(v @ v) + C * float(np.square(np.maximum(0.0, 1.0 - y * f)).sum())

    f = S @ v + b
    now = value(f, v)
    for _ in range(_STEPS):
        slack = np.maximum(0.0, 1.0 - y * f)
        at_work = slack > 0
        gradient, slope = v - 2.0 * C * (S.T @ (y * slack)), -2.0 * C * float(y @ slack)
        step, move = _newton_step(S[at_work], gradient, slope, 2.0 * C)
        descent = float(gradient @ step) + slope * move
        if descent >= -1e-10 * max(now, 1e-300):
            break
        change, length = S @ step + move, 1.0
        while length > 1e-8:
            new = value(f + length * change, v + length * step)
            if new <= now + 1e-4 * length * descent:
                break
            length *= 0.5
        else:
            break  # rounding is all that is left
        v, b, now = v + length * step, b + length * move, new
        f = S @ v + b
    return v, b


def _newton_step(A: np.ndarray, gradient: np.ndarray, slope: float, c: float) -> tuple[np.ndarray, float]:
    """Solve ``(I + c A'A) p + c A'1 q = -gradient`` and ``c 1'A p + (c n + tiny) q = -slope``."""
    n, k = A.shape
    if n == 0:
        return -gradient, 0.0
    right = np.column_stack([-gradient, A.sum(axis=0)])
    if k <= n:
        solved = cho_solve(cho_factor(np.eye(k) + c * (A.T @ A)), right)
    else:  # the inverse is I - A' (I / c + A A')^-1 A
        solved = right - A.T @ cho_solve(cho_factor(np.eye(n) / c + A @ A.T), A @ right)
    column = A.sum(axis=0)
    q = (-slope - c * float(column @ solved[:, 0])) / max(
        c * n - c * c * float(column @ solved[:, 1]), 1e-12 * c * n
    )
    return solved[:, 0] - c * q * solved[:, 1], q
