"""MIMLSVM: distances to medoid bags, then a support vector machine per label."""

from __future__ import annotations

from sklearn.utils import check_random_state

from bagwise.base import Traits
from bagwise.models.distance.base import MEDOIDS, DistanceClassifier, k_medoids, n_medoids
from bagwise.models.svm.base import MACHINES, THRESHOLD_RULE, gram, labels_by_rule, machines_on, resolve_gamma


class MIMLSVM(DistanceClassifier):
    """Describe a bag by its maximum Hausdorff distances to medoid bags and learn each label by an SVM.

    Parameters
    ----------
    ratio : float, default=0.2
        Share of the training bags that become medoids, rounded down.
    kernel : {"rbf", "linear"}, default="rbf"
        Kernel between vectors of distances.
    gamma : float or "scale", default=0.2
        Of the kernel "rbf", ``exp(-gamma |phi - phi'|^2)``. The default suits features in [0, 1]; "scale" is
        one over the number of medoids and the variance of the distances.
    C : float, default=1.0
        Penalty of errors.
    threshold_rule : {"t-criterion", "zero"}, default="t-criterion"
        Labels with a score above 0 are predicted and, with "t-criterion", the best label of a bag where there
        is none.
    scaling : {"minmax", "l2", "none"}, default="minmax"
        What is done to instances before distances: each feature divided by its range in the training
        instances (a constant one is ignored), each instance divided by its length (for counts of words), or
        nothing.
    device : {"auto", "cpu", "cuda", "cuda:0", ...}, default="auto"
        Where distances are computed; "auto" takes a GPU if there is one and pairs of instances are many.
    n_jobs : int, optional
        Labels learned at a time.
    random_state : int, RandomState instance or None, default=None
        Seed of the medoids.

    Attributes
    ----------
    bags_ : Bags
        The medoids.
    medoids_ : ndarray of shape (n_medoids,)
        Their numbers among the training bags.
    support_ : ndarray of shape (n_support,)
        Numbers of the training bags that are support vectors of some label.
    support_features_ : ndarray of shape (n_support, n_medoids)
        Their distances to the medoids.
    dual_coef_ : ndarray of shape (n_support, n_labels)
        Their weights.
    intercept_ : ndarray of shape (n_labels,)
        Constants of the machines.
    gamma_ : float
        The gamma that was used.
    constant_scores_ : ndarray of shape (n_labels,)
        1 for a label that all training bags carry, -1 for one that none does, NaN for others. It is the
        score of such a label in every bag.
    n_iter_ : int
        Rounds of k-medoids.

    Notes
    -----
    With phi(X) the distances of a bag to the medoids, ``decision_function`` is
    ``k(phi(X), support_features_) dual_coef_ + intercept_``. A bag that carries several labels is a positive
    example for each of them.

    Under the T-criterion ``predict`` adds a label of score at most 0 where no score is above 0, so there, and
    only there, ``predict`` is not ``decision_function > 0``: scores are those of the machines, and can be
    compared between bags. With a single label the rule would always predict it, and is not applied.

    *Differences from* [1]_. (1) Features are scaled by the training instances alone. (2) The kernel matrix is
    computed once and shared by all labels.

    References
    ----------
    .. [1] Z.-H. Zhou, M.-L. Zhang: Multi-instance multi-label learning with application to scene
       classification. NIPS 2006.
    .. [2] M. R. Boutell, J. Luo, X. Shen, C. M. Brown: Learning multi-label scene classification. Pattern
       Recognition 37(9), 2004. The T-criterion.

    Examples
    --------
    >>> from bagwise.datasets import make_miml
    >>> data = make_miml(n_bags=120, random_state=0)
    >>> model = MIMLSVM(gamma="scale", random_state=0).fit(data.bags, data.Y)
    >>> len(model.medoids_)
    24
    >>> bool((model.predict(data.bags) == data.Y).mean() > 0.8)
    True
    """

    traits = Traits(instances="singleton", device=("cpu", "cuda"))
    _zero_counts = False
    _parameters = {**MACHINES, **MEDOIDS, "threshold_rule": THRESHOLD_RULE}

    def __init__(
        self,
        ratio=0.2,
        *,
        kernel="rbf",
        gamma=0.2,
        C=1.0,
        threshold_rule="t-criterion",
        scaling="minmax",
        device="auto",
        n_jobs=None,
        random_state=None,
    ):
        self.ratio = ratio
        self.kernel = kernel
        self.gamma = gamma
        self.C = C
        self.threshold_rule = threshold_rule
        self.scaling = scaling
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _learn(self, D, Y):
        rng = check_random_state(self.random_state)
        self.medoids_, self.n_iter_ = k_medoids(D, n_medoids(self.ratio, len(D)), rng)
        phi = D[:, self.medoids_]
        self.gamma_ = resolve_gamma(self.gamma, phi, whole=True)
        K = gram(self.kernel, self.gamma_, phi, phi)
        self.support_, self.dual_coef_, self.intercept_ = machines_on(K, Y, self.C, self.n_jobs)
        self.support_features_ = phi[self.support_]
        return self.medoids_

    def _score(self, D):
        return gram(self.kernel, self.gamma_, D, self.support_features_) @ self.dual_coef_ + self.intercept_

    def _predict(self, bags, scores):
        return labels_by_rule(self.threshold_rule, scores, self.constant_scores_)
