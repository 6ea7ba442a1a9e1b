"""Probabilities under the standard assumption: sigma of the largest latent value, integrated (Eq. (45)).

The latent values of a bag of n instances are jointly Gaussian. Up to `LARGEST` instances they are drawn
themselves, from quasi-random points in n dimensions: few dimensions, and the first of them belong to the
instances that are likeliest to be the largest, which is where such points are best. For larger bags the
weights are drawn instead, so that neither n x n matrices nor all values of a bag are ever held.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from scipy import linalg
from scipy.special import expit, ndtri
from scipy.stats import qmc

from bagwise.compute.numeric import frozen
from bagwise.compute.threads import in_threads
from bagwise.models.gp.maximum_kernels import largest_of_draws, mean_logistic_of_max

LARGEST = 256  # instances up to which the latent values of a bag are drawn themselves
_WORTH_A_THREAD = 100  # instances whose draws take some milliseconds
_SEED = "rng" if "rng" in inspect.signature(qmc.Sobol).parameters else "seed"  # renamed in SciPy 1.15


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

    Parameters
    ----------
    mean : ndarray of shape (n_instances,)
        Of the latent values.
    P : ndarray of shape (n_instances, m)
        Features.
    covariance : ndarray of shape (m, m) or (m,)
        Of the weights, or its diagonal.
    noise : ndarray of shape (n_instances,)
        Variance of what features leave unexplained.
    offsets : ndarray of shape (n_bags + 1,)
        Bags.
    draws : ndarray of shape (at least the largest bag, n_draws)
        From `standard_draws`.
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

    Parameters
    ----------
    blocks : iterable of (P, left)
        Features of some instances and what they leave of k(x, x).
    weights : list of ndarrays of shape (m, n_draws)
        From `drawn_weights`, one per label.
    variances : ndarray of shape (n_labels,)
        Diagonal of K_f.
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
