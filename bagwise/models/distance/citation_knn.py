"""Citation-kNN: a vote of the nearest bags and of the bags to which this one is near."""

from __future__ import annotations

import numpy as np

from bagwise.base import Traits
from bagwise.models.distance.base import (
    NEIGHBOURS,
    DistanceClassifier,
    citing_distances,
    neighbours,
    to_others,
)


class CitationKNN(DistanceClassifier):
    r"""Let the references and citers of a bag vote on each label.

    References are the nearest training bags; citers are the training bags that have this one among their own
    nearest. A label is predicted if more than half of them carry it. Made for one label per data set (is the
    molecule active?); with several, each is voted on by itself.

    Parameters
    ----------
    n_references : int, default=2
        Number R of nearest training bags.
    n_citers : int, default=4
        Rank C: a training bag cites a bag that is among its own C nearest.
    distance : {"min", "max", "average"}, default="min"
        Which Hausdorff distance between bags; "min" is the distance of the closest pair of instances. It
        serves one label; where bags carry several, any that they share makes them near, and "average" is
        the better choice.
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
    constant_scores_ : ndarray of shape (n_labels,)
        1 for a label that all training bags carry, -1 for one that none does, NaN for others. It is the
        score of such a label in every bag.

    Notes
    -----
    With :math:`R_p` of the R references and :math:`C_p` of the :math:`C_p + C_n` citers carrying the label,
    it is predicted if :math:`R_p + C_p > R_n + C_n` [1]_; a bag that is both votes twice, a tie is negative.
    The score is the share of votes, less one half. Scores of instances are those of bags of one instance.

    A new bag is cited by a training bag if it is nearer to it than the C-th nearest of the *training* bags:
    every new bag is judged by itself, whatever other bags are predicted with it.

    Training computes all distances between training bags, :math:`O(N^2 d)` for N instances of d features, and
    keeps the bags; a new bag of n instances costs :math:`O(n N d)`.

    *Differences from* [1]_. (1) Features are scaled. (2) Labels that never change in training get a constant
    score. (3) The k-th ranked Hausdorff distance is offered for the first rank ("min") and the last ("max").

    References
    ----------
    .. [1] J. Wang, J.-D. Zucker: Solving the multiple-instance problem: a lazy learning approach. ICML 2000.

    Examples
    --------
    Molecules of one instance at 0 and 1 are active, that at 5 is not; one at 0.4 has the reference 0 and the
    citers 0 and 1:

    >>> model = CitationKNN(1, 1, scaling="none").fit([[[0.0]], [[1.0]], [[5.0]]], ["yes", "yes", "no"])
    >>> model.predict([[[0.4]]]), model.decision_function([[[0.4]]])
    (array(['yes'], dtype='<U3'), array([0.5]))
    """

    traits = Traits(instances="singleton", device=("cpu", "cuda"))

    _zero_counts = False  # a tie is negative

    _parameters = NEIGHBOURS

    def __init__(self, n_references=2, n_citers=4, *, distance="min", scaling="minmax", device="auto"):
        self.n_references = n_references
        self.n_citers = n_citers
        self.distance = distance
        self.scaling = scaling
        self.device = device

    @classmethod
    def _expected_failed_checks(cls):
        reason = "made for one label: bags that share any label have a close pair of instances"
        return {"check_bags_beats_chance": reason}

    def _learn(self, D, Y):
        self.labels_ = Y.copy()
        others = to_others(D)
        _, self.citing_distance_ = citing_distances(others, self.n_citers)
        return slice(None)

    def _score(self, D):
        references, citers = neighbours(D, self.n_references, self.citing_distance_)
        votes = references.astype(np.float32) + citers  # whole numbers: sums are exact
        carried = (votes @ self.labels_.astype(np.float32)).astype(np.float64)
        return carried / votes.sum(axis=1, dtype=np.float64)[:, None] - 0.5
