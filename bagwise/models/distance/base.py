"""What learners from distances between bags share: scaling, blocks of bags, constant labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.base import MIMLClassifier
from bagwise.models._shared.scaling import apply_scaling, learn_scaling
from bagwise.models.distance.hausdorff import KINDS, hausdorff_distances

SCALINGS = ("minmax", "l2", "none")
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
    bags_: Bags

    def _kind(self) -> str:
        return "max"

    def _check_parameters(self) -> None:
        check_choice("scaling", self.scaling, SCALINGS)

    def _learn(self, D: np.ndarray, Y: np.ndarray) -> Any:
        raise NotImplementedError

    def _score(self, D: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def _fit(self, bags: Bags, Y: np.ndarray) -> None:
        self._check_parameters()
        self._scaling = learn_scaling(bags.X, self.scaling)
        X = apply_scaling(bags.X, self._scaling)
        D = hausdorff_distances(X, bags.offsets, kind=self._kind())
        first = np.where(Y[0] > 0, 1.0, -1.0)
        self.constant_scores_ = np.where(Y.min(axis=0) < Y.max(axis=0), np.nan, first)
        kept = bags[self._learn(D, Y)]
        self.bags_ = Bags(kept.X, kept.offsets)  # as they came; facts about instances are not needed

    def _scores(self, bags: Bags) -> np.ndarray:
        own = apply_scaling(self.bags_.X, self._scaling)
        step = max(1, _CELLS // max(len(self.bags_), 1))
        scores = []
        for start in range(0, len(bags), step):
            part = bags[start : start + step]
            X = apply_scaling(part.X, self._scaling)
            D = hausdorff_distances(X, part.offsets, own, self.bags_.offsets, kind=self._kind())
            scores.append(self._score(D))
        S = np.concatenate(scores)
        S = np.where(np.isnan(self.constant_scores_), S, self.constant_scores_)
        return np.where(S == 0, np.finfo(np.float64).tiny, S) if self._zero_counts else S


def check_choice(name: str, value: Any, allowed: Any) -> None:
    """Refuse a word that is none of those allowed."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")


def check_distance(value: Any) -> None:
    """Refuse what is no kind of Hausdorff distance."""
    check_choice("distance", value, KINDS)


def check_ratio(value: Any) -> None:
    """Refuse a share of bags outside (0, 1]."""
    if isinstance(value, str) or not 0 < value <= 1:
        raise ValueError(f"ratio must be above 0 and at most 1, got {value!r}")


def check_positive(name: str, value: Any, *, zero: bool = False) -> None:
    """Refuse a number that is negative, or zero where that has no meaning."""
    if isinstance(value, str) or not (value > 0 or (zero and value == 0)) or not np.isfinite(value):
        raise ValueError(f"{name} must be {'at least' if zero else 'above'} 0, got {value!r}")


def check_count(name: str, value: Any) -> None:
    """Refuse what is not a whole number of at least one."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
