"""MIMLNN: distances to medoid bags, then a regularised linear layer."""

from __future__ import annotations

import numpy as np
from scipy import linalg
from sklearn.utils import check_random_state

from bagwise.base import Traits
from bagwise.base.parameters import Number
from bagwise.models.distance.base import MEDOIDS, DistanceClassifier, k_medoids, n_medoids


class MIMLNN(DistanceClassifier):
    """Describe a bag by its maximum Hausdorff distances to medoid bags and learn labels by ridge regression.

    Parameters
    ----------
    ratio : float, default=0.4
        Share of the training bags that become medoids, rounded down.
    alpha : float, default=1.0
        Weight of the squared coefficients; 0 gives the least-squares solution of least norm.
    scaling : {"minmax", "l2", "none"}, default="minmax"
        What is done to instances before distances: each feature divided by its range in the training
        instances (a constant one is ignored), each instance divided by its length (for counts of words), or
        nothing.
        There is no intercept, so scores depend on the size of distances, and scaling matters.
    device : {"auto", "cpu", "cuda", "cuda:0", ...}, default="auto"
        Where distances are computed; "auto" takes a GPU if there is one and pairs of instances are many.
    random_state : int, RandomState instance or None, default=None
        Seed of the medoids.

    Attributes
    ----------
    bags_ : Bags
        The medoids.
    medoids_ : ndarray of shape (n_medoids,)
        Their numbers among the training bags.
    coef_ : ndarray of shape (n_medoids, n_labels)
        Weights of the distances.
    constant_scores_ : ndarray of shape (n_labels,)
        1 for a label that all training bags carry, -1 for one that none does, NaN for others. It is the
        score of such a label in every bag.
    n_iter_ : int
        Rounds of k-medoids.

    Notes
    -----
    Symbols: with phi(X) the distances of a bag to the medoids, Phi their matrix for the training bags and T
    the labels as -1 and 1, ``coef_`` is ``W = (Phi' Phi + lambda I)^-1 Phi' T`` with lambda = ``alpha``, and
    ``decision_function`` is ``phi(X) W``.

    A label is predicted at a score of 0 or more; a score of exactly 0 is returned as the smallest positive
    number, so that ``decision_function > 0`` means predicted here, too.

    *Differences from* [1]_. Features are scaled by the training instances alone.

    References
    ----------
    .. [1] Z.-H. Zhou, M.-L. Zhang, S.-J. Huang, Y.-F. Li: Multi-instance multi-label learning. Artificial
       Intelligence 176(1), 2012.

    Examples
    --------
    >>> from bagwise.datasets import make_miml
    >>> data = make_miml(n_bags=120, random_state=0)
    >>> model = MIMLNN(random_state=0).fit(data.bags, data.Y)
    >>> model.coef_.shape[0]
    48
    >>> bool((model.predict(data.bags) == data.Y).mean() > 0.8)
    True
    """

    traits = Traits(instances="singleton", device=("cpu", "cuda"))

    _parameters = {**MEDOIDS, "alpha": Number(0)}

    def __init__(self, ratio=0.4, *, alpha=1.0, scaling="minmax", device="auto", random_state=None):
        self.ratio = ratio
        self.alpha = alpha
        self.scaling = scaling
        self.device = device
        self.random_state = random_state

    def _learn(self, D, Y):
        rng = check_random_state(self.random_state)
        self.medoids_, self.n_iter_ = k_medoids(D, n_medoids(self.ratio, len(D)), rng)
        self.coef_ = ridge(D[:, self.medoids_], 2.0 * Y - 1.0, self.alpha)
        return self.medoids_

    def _score(self, D):
        return D @ self.coef_


def ridge(Phi: np.ndarray, T: np.ndarray, alpha: float) -> np.ndarray:
    """Minimise ``|Phi W - T|^2 + alpha |W|^2``, without intercept.

    Examples
    --------
    >>> ridge(np.array([[1.0], [2.0]]), np.array([[1.0], [2.0]]), 5.0)
    array([[0.5]])
    """
    if alpha > 0:
        try:
            gram = Phi.T @ Phi
            gram[np.diag_indices_from(gram)] += alpha
            return linalg.solve(gram, Phi.T @ T, assume_a="pos")
        except linalg.LinAlgError:  # alpha below the rounding of the matrix
            pass
    return np.linalg.lstsq(Phi, T, rcond=None)[0]
