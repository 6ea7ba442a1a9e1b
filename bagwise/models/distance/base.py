"""What learners from distances between bags share: scaling, blocks of bags, constant labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from bagwise.bags import Bags
from bagwise.base import MIMLClassifier
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
        self._scale = learn_scale(bags.X, self.scaling)
        X = apply_scale(bags.X, self.scaling, self._scale)
        D = hausdorff_distances(X, bags.offsets, kind=self._kind())
        first = np.where(Y[0] > 0, 1.0, -1.0)
        self.constant_scores_ = np.where(Y.min(axis=0) < Y.max(axis=0), np.nan, first)
        kept = bags[self._learn(D, Y)]
        self.bags_ = Bags(kept.X, kept.offsets)  # as they came; facts about instances are not needed

    def _scores(self, bags: Bags) -> np.ndarray:
        own = apply_scale(self.bags_.X, self.scaling, self._scale)
        step = max(1, _CELLS // max(len(self.bags_), 1))
        scores = []
        for start in range(0, len(bags), step):
            part = bags[start : start + step]
            X = apply_scale(part.X, self.scaling, self._scale)
            D = hausdorff_distances(X, part.offsets, own, self.bags_.offsets, kind=self._kind())
            scores.append(self._score(D))
        S = np.concatenate(scores)
        S = np.where(np.isnan(self.constant_scores_), S, self.constant_scores_)
        return np.where(S == 0, np.finfo(np.float64).tiny, S) if self._zero_counts else S


def learn_scale(X: Any, scaling: str) -> np.ndarray | None:
    """Reciprocal range of every column for "minmax"; nothing for the others.

    Distances see differences alone, so columns need not be moved to begin at 0.

    Examples
    --------
    >>> learn_scale(np.array([[1.0, 7.0], [5.0, 7.0]]), "minmax")
    array([0.25, 0.  ])
    """
    if scaling != "minmax":
        return None
    low, high = X.min(axis=0), X.max(axis=0)
    if sparse.issparse(X):
        low, high = low.toarray(), high.toarray()
    low, high = low.astype(np.float64).ravel(), high.astype(np.float64).ravel()
    spread = high - low
    # a constant column is 0.5 for all instances, later ones included: no difference, which a factor 0 gives
    return np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > np.finfo(np.float64).tiny)


def apply_scale(X: Any, scaling: str, factor: np.ndarray | None) -> Any:
    """Scaled instances in double precision; CSR stays CSR.

    Examples
    --------
    >>> apply_scale(np.array([[3.0, 9.0]]), "minmax", np.array([0.25, 0.0]))
    array([[0.75, 0.  ]])
    >>> apply_scale(np.array([[3.0, 4.0], [0.0, 0.0]]), "l2", None)
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    X = X.astype(np.float64, copy=False)
    if factor is not None:
        if not sparse.issparse(X):
            return X * factor
        scaled = X.copy()
        scaled.data *= factor[X.indices]
        return scaled
    if scaling == "none":
        return X
    if not sparse.issparse(X):
        lengths = np.sqrt(np.einsum("ij,ij->i", X, X))
        return X / np.where(lengths > 0, lengths, 1.0)[:, None]
    scaled = X.copy()
    lengths = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    scaled.data /= np.repeat(np.where(lengths > 0, lengths, 1.0), np.diff(X.indptr))
    return scaled


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
