"""MIMLRBF: a network of radial basis functions whose centres are bags."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state

from bagwise.base import Traits
from bagwise.base.parameters import Number
from bagwise.models.distance.base import MEDOIDS, DistanceClassifier, k_medoids, n_medoids


class MIMLRBF(DistanceClassifier):
    """Fit labels by least squares over Gaussians of the average Hausdorff distance to each label's medoids.

    Parameters
    ----------
    ratio : float, default=0.1
        Share of the bags of each label that become medoids, rounded up.
    width_scale : float, default=0.6
        The width of the Gaussians is this times the mean distance between two medoids.
    scaling : {"minmax", "l2", "none"}, default="minmax"
        What is done to instances before distances: each feature divided by its range in the training
        instances (a constant one is ignored), each instance divided by its length (for counts of words), or
        nothing.
    device : {"auto", "cpu", "cuda", "cuda:0", ...}, default="auto"
        Where distances are computed; "auto" takes a GPU if there is one and pairs of instances are many.
    random_state : int, RandomState instance or None, default=None
        Seed of the medoids.

    Attributes
    ----------
    bags_ : Bags
        The medoids, each once.
    medoids_ : ndarray of shape (n_centres,)
        Numbers of the medoids among the training bags, label after label; a bag may stand for several labels.
    medoid_labels_ : ndarray of shape (n_centres,)
        The label that each of them stands for.
    width_ : float
        Width of the Gaussians.
    coef_ : ndarray of shape (n_centres, n_labels)
        Weights of the Gaussians.
    intercept_ : ndarray of shape (n_labels,)
        Constants.
    constant_scores_ : ndarray of shape (n_labels,)
        1 for a label that all training bags carry, -1 for one that none does, NaN for others. It is the
        score of such a label in every bag.

    Notes
    -----
    Symbols of [1]_: alpha is ``ratio``, mu is ``width_scale``, sigma is ``width_``. With D the average
    Hausdorff distance and C_j the medoids, ``decision_function`` is
    ``intercept_ + sum over j of coef_[j] exp(-D(X, C_j)^2 / (2 width_^2))``, fitted to labels -1 and 1 by the
    least-squares solution of least norm. Medoids of a label are chosen among its own bags.

    A label is predicted at a score of 0 or more; a score of exactly 0 is returned as the smallest positive
    number, so that ``decision_function > 0`` means predicted here, too.

    *Differences from* [1]_. (1) Features are scaled by the training instances alone. (2) Every label draws
    its start of k-medoids from the same seed, so that the order of labels does not matter. (3) Where all
    medoids coincide, or there is one, the width follows the mean distance of the training bags.

    As many medoids as bags or more reproduce the training labels, noise included.

    References
    ----------
    .. [1] M.-L. Zhang, Z.-J. Wang: MIMLRBF: RBF neural networks for multi-instance multi-label learning.
       Neurocomputing 72(16-18), 2009.

    Examples
    --------
    >>> from bagwise.datasets import make_miml
    >>> data = make_miml(n_bags=120, random_state=0)
    >>> model = MIMLRBF(random_state=0).fit(data.bags, data.Y)
    >>> len(model.medoids_) == sum(np.ceil(0.1 * data.Y.sum(axis=0)).astype(int).tolist())
    True
    >>> bool((model.predict(data.bags) == data.Y).mean() > 0.8)
    True
    """

    distance = "average"
    traits = Traits(instances="singleton", device=("cpu", "cuda"))

    _parameters = {**MEDOIDS, "width_scale": Number(above=0)}

    def __init__(self, ratio=0.1, *, width_scale=0.6, scaling="minmax", device="auto", random_state=None):
        self.ratio = ratio
        self.width_scale = width_scale
        self.scaling = scaling
        self.device = device
        self.random_state = random_state

    def _learn(self, D, Y):
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        chosen, labels = [], []
        for label in range(Y.shape[1]):
            positive = np.flatnonzero(Y[:, label])
            if len(positive) == 0:
                continue
            k = n_medoids(self.ratio, len(positive), up=True)
            own = D[np.ix_(positive, positive)]
            chosen.append(positive[k_medoids(own, k, np.random.RandomState(seed))[0]])
            labels.append(np.full(k, label))
        # no label occurs at all: one bag, whose weight will be 0, spares a case of its own
        self.medoids_ = np.concatenate(chosen) if chosen else np.zeros(1, dtype=np.int64)
        self.medoid_labels_ = np.concatenate(labels) if labels else np.full(1, -1)
        self.width_ = self.width_scale * mean_distance(D, self.medoids_)
        kept, self._column = np.unique(self.medoids_, return_inverse=True)
        Phi = self._features(D[:, kept])
        W = np.linalg.lstsq(np.column_stack([np.ones(len(D)), Phi]), 2.0 * Y - 1.0, rcond=None)[0]
        self.intercept_, self.coef_ = W[0], W[1:]
        return kept

    def _features(self, D):
        return np.exp(D**2 / (-2.0 * self.width_**2))[:, self._column]

    def _score(self, D):
        return self._features(D) @ self.coef_ + self.intercept_


def mean_distance(D: np.ndarray, medoids: np.ndarray) -> float:
    """Mean distance over pairs of medoids; of all bags, or 1, where that is 0 or there is no pair.

    Examples
    --------
    >>> D = np.array([[0.0, 1.0, 3.0], [1.0, 0.0, 2.0], [3.0, 2.0, 0.0]])
    >>> [mean_distance(D, np.array(which)) for which in ([0, 1], [1], [0, 2, 2])]
    [1.0, 2.0, 2.0]
    """
    for which in (medoids, np.arange(len(D))):
        n = len(which)
        total = float(D[np.ix_(which, which)].sum())  # every pair twice, and zeros
        if n > 1 and total > 0:
            return total / (n * (n - 1))
    return 1.0
