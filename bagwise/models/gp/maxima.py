"""Probabilities under the standard assumption: sigma of the largest latent value, integrated."""

from __future__ import annotations

import warnings

import numpy as np
from scipy import linalg
from scipy.stats import norm, qmc

from bagwise.models.gp.logistic_kernels import mean_logistic_of_max


def standard_draws(rank: int, n_draws: int) -> np.ndarray:
    """Standard normal draws (rank, n_draws): a scrambled Sobol sequence of fixed seed and its mirror."""
    half = max(1, (n_draws + 1) // 2)
    engine = qmc.Sobol(rank, scramble=True, rng=np.random.default_rng(0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numbers that are no power of two are fine here
        points = engine.random(half)
    normal = norm.ppf(np.clip(points, 1e-12, 1.0 - 1e-12)).T
    return np.hstack([normal, -normal])


def drawn_weights(weights: np.ndarray, covariance: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Draws of one label's weights, (m, n_draws), from its mean and covariance (whole, or its diagonal)."""
    if covariance.ndim == 1:
        return weights[:, None] + np.sqrt(np.maximum(covariance, 0.0))[:, None] * draws
    # the symmetric root, so that a small change of the covariance changes the draws little
    values, vectors = linalg.eigh(covariance)
    return weights[:, None] + (vectors * np.sqrt(np.maximum(values, 0.0))) @ (vectors.T @ draws)


def integrate_maxima(
    P: np.ndarray, w: np.ndarray, spread: np.ndarray, offsets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Means of sigma(max f) and sigma(-max f) of each bag, Eq. (45), one label.

    Parameters
    ----------
    P : ndarray of shape (n_instances, m)
        Features.
    w : ndarray of shape (m, n_draws)
        Draws of the weights.
    spread : ndarray of shape (n_instances,)
        Standard deviation of what features leave unexplained.
    offsets : ndarray of shape (n_bags + 1,)
        Bags.
    """
    nodes, weights = np.polynomial.legendre.leggauss(32)
    heights = (nodes + 1.0) / 2.0  # even in sigma(t): its density is what P(max > t) is weighted with
    nodes, weights = np.log(heights) - np.log1p(-heights), weights / 2.0
    yes, no = np.empty(len(offsets) - 1), np.empty(len(offsets) - 1)
    mean_logistic_of_max(P @ w, spread, offsets, nodes, weights, yes, no)
    return yes, no
