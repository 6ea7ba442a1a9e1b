"""MIMLkNN: labels of the nearest bags, and of the bags to which this one is near."""

from __future__ import annotations

import numpy as np

from bagwise.base import Traits
from bagwise.models.distance.base import (
    NEIGHBOURS,
    DistanceClassifier,
    citing_distances,
    nearest,
    neighbours,
    to_others,
)


class MIMLKNN(DistanceClassifier):
    """Count labels among a bag's references and citers and map the counts to labels by least squares.

    Parameters
    ----------
    n_references : int, default=10
        Number of nearest training bags: the references of a bag.
    n_citers : int, default=10
        A training bag cites a bag that is among its own ``n_citers`` nearest.
    distance : {"average", "max", "min"}, default="average"
        Which Hausdorff distance between bags.
    scaling : {"minmax", "l2", "none"}, default="minmax"
        What is done to instances before distances: each feature divided by its range in the training
        instances (a constant one is ignored), each instance divided by its length (for counts of words), or
        nothing.
    device : {"auto", "cpu", "cuda", "cuda:0", ...}, default="auto"
        Where distances are computed; "auto" takes a GPU if there is one and pairs of instances are many.

    Attributes
    ----------
    bags_ : Bags
        The training bags.
    labels_ : ndarray of shape (n_bags, n_labels)
        Their labels.
    citing_distance_ : ndarray of shape (n_bags,)
        Below this distance a training bag cites a new one; infinite where ``n_citers`` exceeds the number of
        other training bags.
    coef_ : ndarray of shape (n_labels, n_labels)
        Map from counts to scores; after a single label (2, 1), see Notes.
    constant_scores_ : ndarray of shape (n_labels,)
        1 for a label that all training bags carry, -1 for one that none does, NaN for others. It is the
        score of such a label in every bag.

    Notes
    -----
    With r = ``n_references`` and c = ``n_citers``, the count of a label is the number of references plus the
    number of citers with that label: a bag that is both counts twice. A training bag is no neighbour of
    itself. ``coef_`` is the least-squares solution of least norm of ``counts W = T`` with labels T of -1 and
    1, without intercept, and ``decision_function`` is ``counts W``.

    Bags at equal distance are taken in the order of training. Distances are compared in single precision,
    and a new bag must be nearer than ``citing_distance_`` by a hundred-thousandth to be cited, so that the
    last bits of a distance, which depend on the order of instances and on their number type, decide nothing.

    A label is predicted at a score of 0 or more; a score of exactly 0 (as of a bag whose neighbours have no
    label at all) is returned as the smallest positive number, so that ``decision_function > 0`` means
    predicted here, too.

    *Differences from* [1]_. (1) Features are scaled by the training instances alone. (2) With a single label
    the counts of bags *without* it are a second column: a multiple of one count cannot change its sign.

    References
    ----------
    .. [1] M.-L. Zhang: A k-nearest neighbor based multi-instance multi-label learning algorithm. ICTAI 2010.

    Examples
    --------
    >>> from bagwise.datasets import make_miml
    >>> data = make_miml(n_bags=120, random_state=0)
    >>> model = MIMLKNN(5, 5).fit(data.bags, data.Y)
    >>> bool((model.predict(data.bags) == data.Y).mean() > 0.8)
    True
    """

    traits = Traits(instances="singleton", device=("cpu", "cuda"))

    _parameters = NEIGHBOURS

    def __init__(self, n_references=10, n_citers=10, *, distance="average", scaling="minmax", device="auto"):
        self.n_references = n_references
        self.n_citers = n_citers
        self.distance = distance
        self.scaling = scaling
        self.device = device

    def _learn(self, D, Y):
        self.labels_ = Y.copy()
        others = to_others(D)
        references, _ = nearest(others, min(self.n_references, len(D) - 1))
        near, self.citing_distance_ = citing_distances(others, self.n_citers)
        A = self._counts(references) + self._counts(near.T)  # b is cited by j if near[j, b]
        self.coef_ = np.linalg.lstsq(A, 2.0 * Y - 1.0, rcond=None)[0]
        return slice(None)

    def _counts(self, neighbours):
        """Labels among the neighbours of each bag; sums of ones are exact in single precision."""
        votes = self.labels_.astype(np.float32)
        if votes.shape[1] == 1:
            votes = np.column_stack([votes, 1.0 - votes])
        return (neighbours.astype(np.float32) @ votes).astype(np.float64)

    def _score(self, D):
        references, citers = neighbours(D, self.n_references, self.citing_distance_)
        return (self._counts(references) + self._counts(citers)) @ self.coef_
