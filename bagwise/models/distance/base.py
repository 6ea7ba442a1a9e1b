"""What learners from distances between bags share: scaling, blocks of bags, constant labels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.base import MIMLClassifier
from bagwise.base.parameters import Choice, Device, Number, Rules, Seed, Whole
from bagwise.compute.scaling import apply_scaling, learn_scaling
from bagwise.models._shared.scores import constant_scores, put_constants
from bagwise.models.distance.kernels import KINDS, hausdorff_distances

# what the parameters of the family may be, for the tables of the estimators
_SHARED: Rules = {"scaling": Choice("minmax", "l2", "none"), "device": Device()}
NEIGHBOURS: Rules = {
    "n_references": Whole(1),
    "n_citers": Whole(1),
    "distance": Choice(*KINDS),
    **_SHARED,
}
MEDOIDS: Rules = {"ratio": Number(above=0, high=1), **_SHARED, "random_state": Seed()}
_CELLS = 1 << 22  # distances computed at a time in prediction


class DistanceClassifier(MIMLClassifier):
    """Learns from the distances between training bags; scores a bag by its distances to some of them.

    A subclass writes ``_learn(D, Y)``, which returns the numbers of the bags that later ones are compared
    with, and ``_score(D)``. Where ``distance`` is no parameter, it is an attribute of the class.
    """

    # Whether a score of exactly 0 means predicted, as in the original programs of most of these methods; it
    # is then given as the smallest positive number, which keeps `decision_function > 0` the rule.
    _zero_counts = True

    distance = "max"
    scaling: str
    device: str
    bags_: Bags
    _learn: Callable[..., Any]
    _score: Callable[..., np.ndarray]

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"random_state": 0} if "random_state" in cls._parameters else {}

    def _fit(self, bags: Bags, Y: np.ndarray) -> None:
        self._scaling = learn_scaling(bags.X, self.scaling)
        X = apply_scaling(bags.X, self._scaling)
        D = hausdorff_distances(X, bags.offsets, kind=self.distance, device=self.device)
        self.constant_scores_ = constant_scores(Y)
        kept = bags[self._learn(D, Y)]
        self.bags_ = Bags(kept.X, kept.offsets)  # as they came; facts about instances are not needed

    def _scores(self, bags: Bags) -> np.ndarray:
        own = apply_scaling(self.bags_.X, self._scaling)
        step = max(1, _CELLS // max(len(self.bags_), 1))
        scores = []
        for start in range(0, len(bags), step):
            part = bags[start : start + step]
            X = apply_scaling(part.X, self._scaling)
            known = own, self.bags_.offsets
            D = hausdorff_distances(X, part.offsets, *known, kind=self.distance, device=self.device)
            scores.append(self._score(D))
        S = put_constants(np.concatenate(scores), self.constant_scores_)
        return np.where(S == 0, np.finfo(np.float64).tiny, S) if self._zero_counts else S


# ----------------------------------------------------------------------
# Which training bags are near a bag, and to which it is near
#
# Bags at equal distance are taken in the order of training. Distances are compared in single precision,
# and a new bag must be nearer than the limit by a hundred-thousandth to be cited, so that the last bits
# of a distance, which depend on the order of instances and on their number type, decide nothing.


_SLACK = 1e-5  # relative; a distance this close to the limit counts as equal to it


def nearest(D: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Mark the ``k`` smallest numbers of each row, the first among equals, and give the largest of them."""
    if k == 0:
        return np.zeros(D.shape, dtype=bool), np.full(len(D), np.inf, dtype=D.dtype)
    limit = np.partition(D, k - 1, axis=1)[:, k - 1]
    mask, equal = np.less(D, limit[:, None]), np.equal(D, limit[:, None])
    room = k - mask.sum(axis=1)
    many = np.flatnonzero(equal.sum(axis=1) > room)
    equal[many] &= equal[many].cumsum(axis=1) <= room[many, None]
    return mask | equal, limit


def to_others(D: np.ndarray) -> np.ndarray:
    """Distances between training bags in single precision, infinite on the diagonal: none is near itself."""
    D = D.astype(np.float32)
    np.fill_diagonal(D, np.inf)
    return D


def citing_distances(D: np.ndarray, n_citers: int) -> tuple[np.ndarray, np.ndarray]:
    """Which training bags each training bag has among its ``n_citers`` nearest, and the distance to the last.

    ``D`` comes from `to_others`. The distance is infinite where ``n_citers`` exceeds the number of other
    training bags: every bag is cited.

    Examples
    --------
    >>> D = to_others(np.abs(np.subtract.outer([0.0, 1.0, 5.0], [0.0, 1.0, 5.0])))
    >>> citing_distances(D, 1)[1]
    array([1., 1., 4.], dtype=float32)
    """
    near, limit = nearest(D, min(n_citers, len(D) - 1))
    return near, limit if n_citers < len(D) else np.full(len(D), np.inf, np.float32)


def neighbours(D: np.ndarray, n_references: int, citing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """References and citers of new bags, each a mask (n_new_bags, n_training_bags).

    Examples
    --------
    >>> references, citers = neighbours(np.array([[0.4, 0.6, 4.6]]), 1, np.array([1.0, 1.0, 4.0], np.float32))
    >>> references.astype(int), citers.astype(int)
    (array([[1, 0, 0]]), array([[1, 1, 0]]))
    """
    D = D.astype(np.float32)
    references, _ = nearest(D, min(n_references, D.shape[1]))
    return references, np.less(D, citing * np.float32(1.0 - _SLACK))


# ----------------------------------------------------------------------
# k-medoids: bags that stand for the bags around them, from distances alone


_ROUNDING = 1e-9  # a share such as .29 of 100 is 29, although the product of floats is a little less


def n_medoids(ratio: float, n_bags: int, *, up: bool = False) -> int:
    """Number of medoids for a share of the bags, rounded down or up, at least one."""
    if up:
        return max(1, math.ceil(ratio * n_bags - _ROUNDING))
    return max(1, math.floor(ratio * n_bags + _ROUNDING))


def k_medoids(
    D: np.ndarray, k: int, rng: np.random.RandomState, max_iter: int = 100
) -> tuple[np.ndarray, int]:
    """Choose ``k`` medoids by alternating assignment and choice: their numbers, ascending, and the rounds.

    k bags drawn at random begin a cluster each and the others join one at random. The medoid of a cluster is
    its member with the least sum of distances to the members. Then every bag goes to its nearest medoid (a
    medoid stays in its own cluster, even if another one is at distance 0) and medoids are chosen anew, until
    their set no longer changes. The first index wins a tie.
    """
    cluster = rng.randint(k, size=len(D))
    cluster[rng.choice(len(D), k, replace=False)] = np.arange(k)
    medoids = _centres(D, cluster, k)
    n_iter = 0
    while n_iter < max_iter:
        n_iter += 1
        cluster = D[:, medoids].argmin(axis=1)
        cluster[medoids] = np.arange(k)
        before, medoids = medoids, _centres(D, cluster, k)
        if np.array_equal(np.sort(before), np.sort(medoids)):
            break
    return np.sort(medoids), n_iter


def _centres(D: np.ndarray, cluster: np.ndarray, k: int) -> np.ndarray:
    """Member of each cluster with the least sum of distances to the members."""
    order = np.argsort(cluster, kind="stable")  # members in ascending order, which settles ties
    ends = np.searchsorted(cluster[order], np.arange(1, k))
    return np.array([m[D[np.ix_(m, m)].sum(axis=1).argmin()] for m in np.split(order, ends)])
