"""MC-EMDD: EM-DD with several concepts, any of which makes a bag positive."""

from __future__ import annotations

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bagwise.base import Traits
from bagwise.base.parameters import Whole
from bagwise.compute.segment import segment_max
from bagwise.models._shared.scores import each_label
from bagwise.models.diverse_density.base import CONCEPTS, ConceptClassifier, best_run, dense, learn_by_em
from bagwise.models.diverse_density.kernels import distances, log_odds


class MCEMDD(ConceptClassifier):
    r"""Learn several points, each with a scale per feature; a bag is positive if it comes near to any.

    EM-DD for labels with many faces. Several labels are learned one against the rest.

    Parameters
    ----------
    n_concepts : int, default=3
        Number of points of a label; 1 is `EMDD`. Try 1 to 15.
    n_starts : int, default=20
        Runs. The first starts from k-means centres of the instances of positive bags, half of the others from
        instances of positive bags that together cost least, the rest from random ones. With one concept, see
        `EMDD`.
    init_scale : float or "auto", default="auto"
        Scale of every feature at the start. "auto" is one over the root of the number of features; 0.1 and 1
        are used elsewhere.
    max_scale : float, default=10.0
        Limit on the scales, which would grow without end where a feature alone tells all bags apart.
    max_iter : int, default=50
        Limit on the rounds of a run.
    tol : float, default=1e-4
        Relative decrease of the objective at which a run ends.
    scaling : {"standard", "minmax", "l2", "none"}, default="standard"
        What is done to instances first: features with mean 0 and variance 1 over the training instances
        (sparse ones are divided by one spread, not moved), features divided by their range, instances
        divided by their length, or nothing.
    n_jobs : int, optional
        Labels learned at a time.
    random_state : int, RandomState instance or None, default=None
        Seed of the starts. Every label starts from the same seed.

    Attributes
    ----------
    concepts_ : list of ndarray of shape (n_concepts, n_features)
        For every label its points, in scaled features; without a row for a constant label.
    scales_ : list of ndarray of shape (n_concepts, n_features)
        Their scales; near 0 for a feature that does not matter.
    objective_ : list of ndarray
        For every label what each run came to, the lowest first.
    offset_ : ndarray of shape (n_labels,)
        Log-odds above which a label is predicted; 0 is a probability of one half.
    constant_scores_ : ndarray of shape (n_labels,)
        1 for a label that all training bags carry, -1 for one that none does, NaN for others. It is the
        score of such a label everywhere.
    n_iter_ : int
        Most rounds that a run took.

    Notes
    -----
    With :math:`p_t(x) = \exp(-\sum_k s_{tk}^2 (x_k - h_{tk})^2)`, the points and scales minimise

    .. math:: -\sum_{+} \log \max_{x \in B, t} p_t(x) - \sum_{-} \sum_t \log(1 - \max_{x \in B} p_t(x)) .

    The E-step takes of every positive bag the pair of instance and concept with the largest probability, of
    every negative bag the nearest instance to each concept. The M-step moves every concept by L-BFGS, as in
    `EMDD`, with the bags that chose it and all negative ones. A concept that no positive bag chose is set
    anew to the positive bag that is explained worst. The score of a bag is the log-odds of
    :math:`\max_{x, t} p_t(x)`, less ``offset_``, which makes the fewest errors on the training bags.

    It costs ``n_concepts`` times as much as `EMDD` with as many starts.

    *Differences from* [1]_, which says in one line that concepts are added to EM-DD. (1) A negative bag
    counts for every concept, not for the nearest alone: a concept without negative bags would grow until it
    covers all. (2) What is not said there (starts, concepts that run empty, bounded scales) is as above.

    References
    ----------
    .. [1] Q. Wang, L. Si, D. Zhang: A discriminative data-dependent mixture-model approach for multiple
       instance learning in image classification. ECCV 2012.

    Examples
    --------
    >>> from bagwise.datasets import make_sub_concepts
    >>> data = make_sub_concepts(n_bags=200, n_labels=1, n_sub=3, cardinality=0.5, noise=0.5)
    >>> model = MCEMDD(n_concepts=3, random_state=0).fit(data.bags, data.Y[:, 0])
    >>> bool((model.predict(data.bags) == data.Y[:, 0]).mean() > 0.9)
    True
    >>> model.nearest_concepts(data.bags).shape == (data.bags.n_instances, 1)
    True
    """

    traits = Traits(instances="model")
    _parameters = {**CONCEPTS, "n_concepts": Whole(1), "n_starts": Whole(1)}

    def __init__(
        self,
        n_concepts=3,
        *,
        n_starts=20,
        init_scale="auto",
        max_scale=10.0,
        max_iter=50,
        tol=1e-4,
        scaling="standard",
        n_jobs=None,
        random_state=None,
    ):
        self.n_concepts = n_concepts
        self.n_starts = n_starts
        self.init_scale = init_scale
        self.max_scale = max_scale
        self.max_iter = max_iter
        self.tol = tol
        self.scaling = scaling
        self.n_jobs = n_jobs
        self.random_state = random_state

    @classmethod
    def _test_params(cls):
        return {"n_concepts": 2, "n_starts": 2, "max_iter": 10, "random_state": 0}

    def _concepts(self, X, offsets, Y):
        settings = self._settings(X, "n_concepts", "n_starts", "max_scale", "max_iter", "tol")
        found = each_label(learn_by_em, Y, self.n_jobs, X, offsets, settings)
        self._keep(found, best_run)

    def _bag_log_odds(self, Q, offsets):
        return log_odds(-segment_max(-Q.min(axis=1), offsets))

    def _instance_log_odds(self, Q):
        return log_odds(Q.min(axis=1))

    def nearest_concepts(self, X):
        """Say which concept of every label each instance is nearest to.

        Returns
        -------
        int ndarray of shape (n_instances, n_labels)
            -1 for a label that was constant in training.
        """
        check_is_fitted(self)
        bags = self._as_bags(X, reset=False)
        Z = dense(self._scaled(bags.X))
        found = np.full((bags.n_instances, len(self.concepts_)), -1)
        for label, (points, scales) in enumerate(zip(self.concepts_, self.scales_)):
            if len(points):
                found[:, label] = distances(Z, points, scales).argmin(axis=1)
        return found
