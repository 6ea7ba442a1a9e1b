"""What models share that give every instance one class by a softmax over linear scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import log_softmax

from bagwise.bags import Bags
from bagwise.base import NO_LABEL, MIMLClassifier
from bagwise.compute.calibration import Calibration, calibrate
from bagwise.compute.segment import segment_max, segment_sum
from bagwise.models._shared.held_out import held_out_scores
from bagwise.models._shared.scores import margins

NEVER = -700.0  # logit of a class without any training instance: probability 0 to double precision


class InstanceSoftmaxClassifier(MIMLClassifier):
    """Base of models with class probabilities ``softmax(coef_ @ x + intercept_)`` for every instance.

    Rows of ``coef_`` and ``intercept_`` are the labels, followed by the background (an instance that
    carries no label) where ``has_background_`` is true.

    The score of a label at an instance is its margin over the best other class, so it is positive
    exactly if the instance is given that label; the score of a bag is the largest of its instances, so
    it is positive exactly if the label is in the union of the instances' labels.

    Where ``bag_probability_`` is "score", a bag is judged by its largest class score instead, calibrated, and
    instances by their class scores: what other labels say of an instance does not count against it.

    A subclass may learn a calibration of the bags' log-odds (`_learn_decision`). Then a bag carries the
    labels of probability above one half, and the scores rank as before. With one label there is nothing to
    rank, and the calibrated log-odds are the score.
    """

    coef_: Any
    intercept_: Any
    has_background_: bool
    decision_slope_: np.ndarray | None = None  # None: no calibration, the union decides
    decision_intercept_: np.ndarray | None = None
    bag_probability = "max"

    @property
    def _kind(self) -> str:
        """How a bag is judged: "noisy_or", "max" or "score"."""
        return str(getattr(self, "bag_probability_", self.bag_probability))

    def _logits(self, bags: Bags) -> np.ndarray:
        return np.asarray(bags.X @ self.coef_.T) + self.intercept_

    @property
    def _n_labels(self) -> int:
        return len(self.intercept_) - self.has_background_

    def _instance_logits(self, bags: Bags) -> np.ndarray:
        """Logits by which single instances are labelled."""
        return self._logits(bags)

    def _margins(self, logits: np.ndarray) -> np.ndarray:
        if logits.shape[1] == 1:
            return np.ones_like(logits)  # the only class is always the best
        return margins(logits)[:, : self._n_labels]

    def _instance_scores(self, bags: Bags) -> np.ndarray:
        logits = self._instance_logits(bags)
        return logits[:, : self._n_labels] if self._kind == "score" else self._margins(logits)

    def _scores(self, bags: Bags) -> np.ndarray:
        if self._calibrated is not None and (self._n_labels == 1 or self._kind == "score"):
            return self._calibrated.log_odds(self._log_odds(bags))
        return segment_max(self._margins(self._logits(bags)), bags.offsets)

    def _predict(self, bags: Bags, scores: np.ndarray) -> np.ndarray:
        return scores > 0 if self._calibrated is None else self._probabilities(bags) > 0.5

    def _probabilities(self, bags: Bags) -> np.ndarray:
        if self._calibrated is None:
            return self._own_probabilities(bags)
        return self._calibrated.probabilities(self._log_odds(bags))

    def _own_probabilities(self, bags: Bags) -> np.ndarray:
        """The model's probability that a bag carries a label, as ``bag_probability`` says."""
        log_p = log_softmax(self._logits(bags), axis=1)[:, : self._n_labels]
        if self._kind == "max":
            return segment_max(np.exp(log_p), bags.offsets)
        # 1 - prod(1 - p), from logarithms so that many small p do not vanish
        absent = segment_sum(log1mexp(log_p), bags.offsets)
        return -np.expm1(absent)

    def _log_odds(self, bags: Bags, kind: str | None = None) -> np.ndarray:
        """Log-odds of `_own_probabilities`, finite; of the kind "score" the largest class score of a bag."""
        kind = kind or self._kind
        logits = self._logits(bags)
        if kind == "score":
            return segment_max(np.ascontiguousarray(logits[:, : self._n_labels]), bags.offsets)
        log_p = log_softmax(logits, axis=1)[:, : self._n_labels]
        if kind == "max":
            present = segment_max(log_p, bags.offsets)
            absent = log1mexp(present)
        else:
            absent = segment_sum(log1mexp(log_p), bags.offsets)
            present = log1mexp(absent)
        return np.clip(present, NEVER, None) - np.clip(absent, NEVER, None)

    @property
    def _calibrated(self) -> Calibration | None:
        if self.decision_slope_ is None or self.decision_intercept_ is None:
            return None
        return Calibration(self.decision_slope_, self.decision_intercept_)

    def _learn_decision(self, bags: Bags, Y: np.ndarray, weights: np.ndarray | None, refit: Any) -> None:
        """Learn from held-out bags when a bag carries a label; ``refit(train)`` is a model of these bags."""

        def score(train: np.ndarray, test: np.ndarray) -> np.ndarray:
            model = refit(train)
            return np.full((len(test), Y.shape[1]), np.nan) if model is None else model._log_odds(bags[test])

        scores = held_out_scores(score, Y, weights)
        self.decision_slope_, self.decision_intercept_ = calibrate(scores, Y, weights)

    def _annotate(self, bags: Bags, Y: np.ndarray | None) -> np.ndarray:
        if Y is not None:
            return super()._annotate(bags, Y)
        labels = self._instance_logits(bags).argmax(axis=1)
        return np.where(labels < self._n_labels, labels, NO_LABEL)

    def _instance_probabilities(self, bags: Bags, Y: np.ndarray | None) -> np.ndarray:
        logits = self._instance_logits(bags)
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
        return np.where(log_p > -np.log(2.0), np.log(-np.expm1(log_p)), np.log1p(-np.exp(log_p)))
