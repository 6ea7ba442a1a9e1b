"""Latent values of new bags under a fitted model, and probabilities from them."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import linalg
from scipy.special import expit, ndtri
from scipy.stats import qmc

from bagwise.bags import runs
from bagwise.compute.aligned import frozen
from bagwise.compute.threads import in_threads
from bagwise.models.gp.fit_features import FeatureMap
from bagwise.models.gp.kernels import largest_of_draws, mean_logistic_of_max
from bagwise.models.gp.kernels_gaussian import InstanceKernel, take_bags

CELLS = 4_000_000  # kernel values, features or draws held at a time
LARGEST = 256  # instances up to which the latent values of a bag are drawn themselves
_WORTH_A_THREAD = 100  # instances whose draws take some milliseconds
_SEED = "rng" if "rng" in inspect.signature(qmc.Sobol).parameters else "seed"  # renamed in SciPy 1.15


class Predictor:
    """What a fitted `MIMLGP` says of transformed instances and their bags."""

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
            own = standard_draws(self.model.rank_, self.model.n_draws)
            self.step = max(1, min(self.step, CELLS // own.shape[1]))
            weights = [drawn_weights(w, S, own) for w, S in zip(self.model.weights_.T, self._covariances())]
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
            _, P, left = self.explained(rows, np.arange(rows.shape[0] + 1))
            means = P @ self.model.weights_
            for s, (covariance, variance) in enumerate(zip(self._covariances(), self.variances)):
                found = integrate_maxima(means[:, s], P, covariance, left * variance, cut, draws)
                yes[small[a:b], s], no[small[a:b], s] = found
        return yes, no

    def _covariances(self) -> Iterable[np.ndarray]:
        """Covariance of each label's weights, whole or its diagonal."""
        S = self.model.weight_covariance_
        return S.T if S.ndim == 2 else S


# ---------------------------------------------------------------------- the largest latent value, Eq. (45)
# The latent values of a bag of n instances are jointly Gaussian. Up to `LARGEST` instances they are drawn
# themselves, from quasi-random points in n dimensions: few dimensions, and the first of them belong to
# the instances that are likeliest to be the largest, which is where such points are best. For larger bags
# the weights are drawn instead, so that neither n x n matrices nor all values of a bag are ever held.


@lru_cache(maxsize=2)  # always the same, and most of the time of a prediction for a hundred small bags
def standard_draws(dimension: int, n_draws: int) -> np.ndarray:
    """Standard normal draws (dimension, n_draws): a scrambled Sobol sequence of fixed seed and its mirror."""
    half = max(1, (n_draws + 1) // 2)
    engine = qmc.Sobol(dimension, scramble=True, **{_SEED: np.random.default_rng(0)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numbers that are no power of two are fine here
        points = engine.random(half)
    normal = ndtri(np.clip(points, 1e-12, 1.0 - 1e-12)).T
    draws = np.hstack([normal, -normal])
    draws.flags.writeable = False  # everybody's
    return draws


def integrate_maxima(
    mean: np.ndarray,
    P: np.ndarray,
    covariance: np.ndarray,
    noise: np.ndarray,
    offsets: np.ndarray,
    draws: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Means of sigma(max f) and sigma(-max f) of bags of up to `LARGEST` instances, one label.

    ``mean`` (n,) of the latent values, features ``P`` (n, m), ``covariance`` of the weights, (m, m) or its
    diagonal (m,), and ``noise`` (n,), the variance of what features leave unexplained; ``draws`` come from
    `standard_draws`, as many rows as the largest bag at least.
    """
    T = P * covariance if covariance.ndim == 1 else P @ covariance
    variance = np.einsum("ik,ik->i", T, P) + noise
    # one order whatever the order of instances: the likeliest to be large first
    bag = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    order = np.lexsort((-(mean + np.sqrt(np.maximum(variance, 0.0))), bag))
    mean, P, T, noise, Z, cut = (
        frozen(a) for a in (mean[order], P[order], T[order], noise[order], draws, offsets)
    )
    yes, no = np.empty((2, len(offsets) - 1))
    in_threads(
        lambda a, b: mean_logistic_of_max(a, b, mean, P, T, noise, cut, Z, yes, no),
        len(yes),
        -1,
        work=offsets,
        smallest=_WORTH_A_THREAD,
    )
    return yes, no


def drawn_weights(weights: np.ndarray, covariance: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Draws of one label's weights, (m, n_draws), from its mean and covariance (whole, or its diagonal)."""
    if covariance.ndim == 1:
        return weights[:, None] + np.sqrt(np.maximum(covariance, 0.0))[:, None] * draws
    # the symmetric root, so that a small change of the covariance changes the draws little
    values, vectors = linalg.eigh(covariance)
    return weights[:, None] + (vectors * np.sqrt(np.maximum(values, 0.0))) @ (vectors.T @ draws)


def integrate_large_bag(
    blocks: Iterable[tuple[np.ndarray, np.ndarray]], weights: list[np.ndarray], variances: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Means of sigma(max f) and sigma(-max f) of one bag that comes in blocks, all labels.

    A block has the features of some instances and what they leave of k(x, x); ``weights`` hold what
    `drawn_weights` gives, (m, n_draws) per label, ``variances`` the diagonal of K_f.
    """
    top = np.full((len(weights), weights[0].shape[1]), -np.inf)
    row = 0
    for P, left in blocks:
        for s, w in enumerate(weights):
            F = frozen(w.T @ P.T)
            spread, largest = frozen(np.sqrt(left * variances[s])), top[s]

            def raise_top(a, b, F=F, spread=spread, row=row, largest=largest):
                largest_of_draws(a, b, F, spread, row, largest)

            in_threads(raise_top, len(largest), -1)
        row += len(P)
    return expit(top).mean(axis=1), expit(-top).mean(axis=1)
