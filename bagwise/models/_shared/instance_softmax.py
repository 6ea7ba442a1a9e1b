"""What models share that give every instance one class by a softmax over linear scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import log_softmax

from bagwise.bags import Bags
from bagwise.base import NO_LABEL, MIMLClassifier
from bagwise.kernels.segment import segment_max, segment_sum
from bagwise.models._shared.margins import margins

NEVER = -700.0  # logit of a class without any training instance: probability 0 to double precision


class InstanceSoftmaxClassifier(MIMLClassifier):
    """Base of models with class probabilities ``softmax(coef_ @ x + intercept_)`` for every instance.

    Rows of ``coef_`` and ``intercept_`` are the labels, followed by the background (an instance that
    carries no label) where ``has_background_`` is true.

    The score of a label at an instance is its margin over the best other class, so it is positive
    exactly if the instance is given that label; the score of a bag is the largest of its instances, so
    it is positive exactly if the label is in the union of the instances' labels.
    """

    coef_: Any
    intercept_: Any
    has_background_: bool
    bag_probability = "max"

    def _logits(self, bags: Bags) -> np.ndarray:
        return np.asarray(bags.X @ self.coef_.T) + self.intercept_

    @property
    def _n_labels(self) -> int:
        return len(self.intercept_) - self.has_background_

    def _instance_scores(self, bags: Bags) -> np.ndarray:
        logits = self._logits(bags)
        if logits.shape[1] == 1:
            return np.ones_like(logits)  # the only class is always the best
        return margins(logits)[:, : self._n_labels]

    def _scores(self, bags: Bags) -> np.ndarray:
        return segment_max(self._instance_scores(bags), bags.offsets)

    def _probabilities(self, bags: Bags) -> np.ndarray:
        log_p = log_softmax(self._logits(bags), axis=1)[:, : self._n_labels]
        if self.bag_probability == "max":
            return segment_max(np.exp(log_p), bags.offsets)
        # 1 - prod(1 - p), from logarithms so that many small p do not vanish
        absent = segment_sum(log1mexp(log_p), bags.offsets)
        return -np.expm1(absent)

    def _annotate(self, bags: Bags, Y: np.ndarray | None) -> np.ndarray:
        if Y is not None:
            return super()._annotate(bags, Y)
        labels = self._logits(bags).argmax(axis=1)
        return np.where(labels < self._n_labels, labels, NO_LABEL)

    def _instance_probabilities(self, bags: Bags, Y: np.ndarray | None) -> np.ndarray:
        logits = self._logits(bags)
        if Y is not None:
            outside = Y[bags.index] == 0
            logits[:, : self._n_labels][outside] = -np.inf
            nothing = np.isneginf(logits).all(axis=1)
            logits[nothing] = 0.0
            P = np.exp(log_softmax(logits, axis=1))
            P[nothing] = 0.0
        else:
            P = np.exp(log_softmax(logits, axis=1))
        return P[:, : self._n_labels]


def log1mexp(log_p: np.ndarray) -> np.ndarray:
    """log(1 - exp(log_p)) without loss where p is near 0 or near 1; -inf where p is 1."""
    log_p = np.minimum(log_p, 0.0)
    with np.errstate(divide="ignore"):
        near_one = np.log(-np.expm1(log_p))
    return np.where(log_p > -np.log(2.0), near_one, np.log1p(-np.exp(log_p)))


def product_size(X: Any, n_classes: int) -> float:
    """Multiplications in one product of the features with the weights."""
    return n_classes * float(X.nnz if sparse.issparse(X) else X.size)
