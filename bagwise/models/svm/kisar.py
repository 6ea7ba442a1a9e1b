"""KISAR: bags as similarities to prototypes, of which related labels use the same ones."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state

from bagwise.base import Traits
from bagwise.base.parameters import Choice, Number, Seed, Whole
from bagwise.compute.segment import segment_max
from bagwise.compute.threads import small_products
from bagwise.models._shared.svm import gram, labels_by_rule
from bagwise.models.svm.base import SCALING, ScaledClassifier
from bagwise.models.svm.shared_prototypes import mean_distance, prototypes, relations, share_prototypes

RELATIONS = ("off_diagonal_mean", "mean", "conditional", "identity", "all")


class KISAR(ScaledClassifier):
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
    >>> from bagwise.datasets.synthetic import make_miml
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
        "threshold_rule": Choice("t-criterion", "zero"),
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
        self.prototypes_ = prototypes(X, self.n_prototypes, rng)
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

    @property
    def _width(self):
        return len(self.prototypes_)

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

    def _instance_scores(self, bags):
        return self._in_blocks(self._instance_score, bags)
