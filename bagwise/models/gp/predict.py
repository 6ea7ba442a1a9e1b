"""Latent values of new bags under a fitted model, and probabilities from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bagwise.bags import runs
from bagwise.models.gp.covariances import InstanceKernel
from bagwise.models.gp.maxima import (
    LARGEST,
    drawn_weights,
    integrate_large_bag,
    integrate_maxima,
    standard_draws,
)
from bagwise.models.gp.training import FeatureMap, take_bags

CELLS = 4_000_000  # kernel values, features or draws held at a time


class Predictor:
    """What a fitted `MIMLGP` says of transformed instances and their bags.

    Parameters
    ----------
    model : MIMLGP
        Fitted.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.kernel = InstanceKernel(model.kernel, model.width_, model.constant_, model.device)
        landmarks = model.landmarks_
        self.features = FeatureMap(
            self.kernel,
            model.projection_,
            model.intercept_,
            None if landmarks is None else landmarks.X,
            None if landmarks is None else landmarks.offsets,
        )
        self.variances = np.diag(model.label_covariance_)
        training = model.training_bags_
        width = max(len(model.projection_), model.rank_, 0 if training is None else len(training))
        self.step = max(LARGEST, CELLS // width)  # rows of such matrices held at a time

    def explained(self, X: Any, offsets: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray]:
        """What features are linear in, the features, and what they leave unexplained of each bag's k."""
        base = self.features.base(X, offsets)
        P = base @ self.model.projection_ + self.model.intercept_
        left = np.maximum(self.kernel.with_itself(X, offsets) - np.einsum("ik,ik->i", P, P), 0.0)
        return base, P, left

    def latent(self, X: Any, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of the mean latent value of each bag, per label; Eqs. (18) and (24)."""
        found = [self._latent(*part) for part in self._parts(X, offsets)]
        mean, variance = (np.vstack(rows) for rows in zip(*found))
        return mean, variance

    def _parts(self, X: Any, offsets: np.ndarray) -> Iterator[tuple[Any, np.ndarray]]:
        for a in range(0, len(offsets) - 1, self.step):
            cut = offsets[a : a + self.step + 1]
            yield X[cut[0] : cut[-1]], cut - cut[0]

    def _latent(self, X: Any, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        model = self.model
        base, P, left = self.explained(X, offsets)
        if model.training_bags_ is not None:
            base = self.kernel.between(X, offsets, model.training_bags_.X, model.training_bags_.offsets)
        mean = base @ model.dual_coef_ + model.dual_intercept_
        S = model.weight_covariance_
        if S.ndim == 2:
            variance = P**2 @ S
        else:
            variance = np.stack([np.einsum("ik,ik->i", P @ S[s], P) for s in range(len(S))], axis=1)
        return mean, np.maximum(variance, 0.0) + left[:, None] * self.variances

    # ------------------------------------------------------------------ the standard assumption

    def of_maxima(self, X: Any, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means of sigma(max f) and sigma(-max f) of each bag, per label; Eq. (45)."""
        yes, no = np.empty((2, len(offsets) - 1, len(self.variances)))
        large = np.diff(offsets) > LARGEST
        small = np.flatnonzero(~large)
        if large.any():
            weights = self._drawn()
            for b in np.flatnonzero(large).tolist():
                rows = X[offsets[b] : offsets[b + 1]]
                blocks = (
                    self.explained(*part)[1:] for part in self._parts(rows, np.arange(rows.shape[0] + 1))
                )
                yes[b], no[b] = integrate_large_bag(blocks, weights, self.variances)
            X, offsets = take_bags(X, offsets, small)
        draws = standard_draws(LARGEST, self.model.n_draws)
        for a, b in runs(offsets, self.step):
            cut = offsets[a : b + 1] - offsets[a]
            rows = X[offsets[a] : offsets[b]]
            for s, found in enumerate(self._of_run(rows, cut, draws)):
                yes[small[a:b], s], no[small[a:b], s] = found
        return yes, no

    def _of_run(self, X: Any, offsets: np.ndarray, draws: np.ndarray) -> Iterator[Any]:
        _, P, left = self.explained(X, np.arange(X.shape[0] + 1))
        means, S = P @ self.model.weights_, self.model.weight_covariance_
        for s, variance in enumerate(self.variances):
            covariance = S[:, s] if S.ndim == 2 else S[s]
            yield integrate_maxima(means[:, s], P, covariance, left * variance, offsets, draws)

    def _drawn(self) -> list[np.ndarray]:
        S, weights = self.model.weight_covariance_, self.model.weights_
        draws = standard_draws(self.model.rank_, self.model.n_draws)
        self.step = max(1, min(self.step, CELLS // draws.shape[1]))
        return [
            drawn_weights(weights[:, s], S[:, s] if S.ndim == 2 else S[s], draws)
            for s in range(weights.shape[1])
        ]
