"""Diverse density: the point that some instance of every positive bag is near, and no negative one."""

from __future__ import annotations

import numpy as np

from bagwise.base import Traits
from bagwise.compute.optim import Minima, minimise_many
from bagwise.compute.threads import small_products
from bagwise.models._shared.scores import each_label
from bagwise.models.diverse_density.base import CONCEPTS, ConceptClassifier, starting_rows
from bagwise.models.diverse_density.kernels import NoisyOr, log_odds, noisy_or
from bagwise.models.svm.base import CELLS

_AT_A_TIME = 256  # starts; more gain nothing


class DiverseDensity(ConceptClassifier):
    r"""Learn a point and a scale per feature that all positive bags come near to and negative ones do not.

    Several labels are learned one against the rest.

    Parameters
    ----------
    n_starts : int or "all", default=100
        Instances of positive bags that the search for the point starts from: those of random positive bags,
        bag after bag, or all. The best result is kept; more starts find better ones.
    init_scale : float or "auto", default="auto"
        Scale of every feature at the start. "auto" is one over the root of the number of features; 0.1 and 1
        are used elsewhere.
    max_scale : float, default=10.0
        Limit on the scales, which would grow without end where a feature alone tells all bags apart.
    max_iter : int, default=200
        Limit on the iterations of L-BFGS from each start.
    tol : float, default=1e-6
        Relative decrease of the objective at which a start rests.
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
    concepts_ : list of ndarray of shape (1, n_features)
        For every label its point, in scaled features; without a row for a constant label.
    scales_ : list of ndarray of shape (1, n_features)
        Its scales; near 0 for a feature that does not matter.
    objective_ : list of ndarray
        For every label what each start came to, the lowest first.
    offset_ : ndarray of shape (n_labels,)
        Log-odds above which a label is predicted; 0 is a probability of one half.
    constant_scores_ : ndarray of shape (n_labels,)
        1 for a label that all training bags carry, -1 for one that none does, NaN for others. It is the
        score of such a label everywhere.
    n_iter_ : int
        Most iterations that a start took.

    Notes
    -----
    With :math:`p(x) = \exp(-\sum_k s_k^2 (x_k - h_k)^2)` and
    :math:`P(B) = 1 - \prod_{x \in B} (1 - p(x))`, h and s minimise

    .. math:: -\sum_{+} \log P(B) - \sum_{-} \sum_{x \in B} \log(1 - p(x)) .

    The score of a bag is the log-odds of P(B), that of an instance the log-odds of p(x), each less
    ``offset_``, which makes the fewest errors on the training bags.

    A start costs O(iterations * n_instances * n_features); starts share matrix products and go through
    L-BFGS together.

    *Differences from* [1]_. (1) L-BFGS in place of gradient ascent. (2) By default not all instances of
    positive bags are starts. (3) Scales are bounded. (4) The threshold is chosen by errors in training.

    References
    ----------
    .. [1] O. Maron, T. Lozano-Pérez: A framework for multiple-instance learning. NIPS 1997.

    Examples
    --------
    >>> from bagwise.datasets import make_miml
    >>> data = make_miml(n_bags=120, random_state=0)
    >>> model = DiverseDensity(n_starts=20, random_state=0).fit(data.bags, data.Y)
    >>> bool((model.predict(data.bags) == data.Y).mean() > 0.9)
    True
    >>> model.concepts_[0].shape == model.scales_[0].shape == (1, data.bags.n_features)
    True
    """

    traits = Traits(instances="model")
    _parameters = {**CONCEPTS}

    def __init__(
        self,
        n_starts=100,
        *,
        init_scale="auto",
        max_scale=10.0,
        max_iter=200,
        tol=1e-6,
        scaling="standard",
        n_jobs=None,
        random_state=None,
    ):
        self.n_starts = n_starts
        self.init_scale = init_scale
        self.max_scale = max_scale
        self.max_iter = max_iter
        self.tol = tol
        self.scaling = scaling
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _concepts(self, X, offsets, Y):
        settings = self._settings(X, "n_starts", "max_scale", "max_iter", "tol")
        found = each_label(learn_densest, Y, self.n_jobs, X, offsets, settings)
        self._keep(found, densest_point)

    def _bag_log_odds(self, Q, offsets):
        log_P, u = noisy_or(Q, offsets)
        return (log_P + u)[:, 0]

    def _instance_log_odds(self, Q):
        return log_odds(Q[:, 0])


def densest_point(found: Minima) -> tuple[np.ndarray, np.ndarray]:
    """The lowest of the minima: a point and its scales."""
    point, scale = np.hsplit(found.x[[found.values.argmin()]], 2)
    return point.copy(), np.abs(scale)


def learn_densest(y, X, offsets, settings) -> Minima:
    """Local maxima of the diverse density for one label, from all its starts."""
    rng = np.random.RandomState(settings["seed"])
    points = X[starting_rows(y, offsets, settings["n_starts"], rng)]
    return densest(y, X, offsets, points, settings)


def densest(y, X, offsets, points, settings) -> Minima:
    """Where the search ends from each of some points."""
    n, d = X.shape
    scale = min(settings["init_scale"], settings["max_scale"])
    starts = np.hstack([points, np.full_like(points, scale)])
    limit = np.repeat([np.inf, settings["max_scale"]], d)
    function = NoisyOr(X, offsets, y)
    at_a_time = max(1, min(_AT_A_TIME, CELLS // (40 * d)))  # by what L-BFGS keeps of each
    with small_products(float(n) * 2 * d * min(len(starts), at_a_time)):
        parts = [
            minimise_many(
                function,
                starts[a : a + at_a_time],
                limit,
                max_iter=settings["max_iter"],
                tol=settings["tol"],
            )
            for a in range(0, len(starts), at_a_time)
        ]
    return Minima(*(np.concatenate(column) for column in zip(*parts)))
