"""What learners from distances between bags share: scaling, blocks of bags, constant labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.base import MIMLClassifier
from bagwise.base.parameters import Choice, Device, Number
from bagwise.compute.scaling import apply_scaling, learn_scaling
from bagwise.models.distance.hausdorff import KINDS, hausdorff_distances
from bagwise.models.svm.base import constant_scores, put_constants

# what the parameters of the family may be, for the tables of the estimators
DISTANCE = Choice(*KINDS)
DEVICE = Device()
RATIO = Number(above=0, high=1)
SCALING = Choice("minmax", "l2", "none")
_CELLS = 1 << 22  # distances computed at a time in prediction


class DistanceClassifier(MIMLClassifier):
    """Learns from the distances between training bags; scores a bag by its distances to some of them.

    A subclass writes ``_learn(D, Y)``, which returns the numbers of the bags that later ones are compared
    with, and ``_score(D)``.
    """

    # Whether a score of exactly 0 means predicted, as in the original programs of most of these methods; it
    # is then given as the smallest positive number, which keeps `decision_function > 0` the rule.
    _zero_counts = True

    scaling: str
    device: str
    bags_: Bags

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"random_state": 0} if "random_state" in cls._parameters else {}

    def _kind(self) -> str:
        return "max"

    def _learn(self, D: np.ndarray, Y: np.ndarray) -> Any:
        raise NotImplementedError

    def _score(self, D: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def _fit(self, bags: Bags, Y: np.ndarray) -> None:
        self._scaling = learn_scaling(bags.X, self.scaling)
        X = apply_scaling(bags.X, self._scaling)
        D = hausdorff_distances(X, bags.offsets, kind=self._kind(), device=self.device)
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
            D = hausdorff_distances(
                X, part.offsets, own, self.bags_.offsets, kind=self._kind(), device=self.device
            )
            scores.append(self._score(D))
        S = put_constants(np.concatenate(scores), self.constant_scores_)
        return np.where(S == 0, np.finfo(np.float64).tiny, S) if self._zero_counts else S
