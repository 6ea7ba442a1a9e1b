"""Small problems for the tests of MIML-GP, and the paper's matrices written out."""

import numpy as np
from scipy.special import expit

from bagwise import Bags
from bagwise.models.gp.fit_features import Training


def problem(n=12, n_labels=3, d=3, seed=0, sizes=None):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, n) if sizes is None else np.asarray(sizes)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    X = rng.normal(size=(offsets[-1], d))
    F = np.tanh(X @ rng.normal(size=(d, n_labels))) * 3
    means = np.add.reduceat(F, offsets[:-1]) / sizes[:, None]
    Y = (rng.random(means.shape) < expit(2 * means)).astype(np.int8)
    return Bags(X, offsets), Y


def training_of(bags):
    return Training.of(bags.X, bags.offsets, np.zeros((len(bags), 1), np.int8))


def gaussian(A, B, width):
    return np.exp(-((A[:, None, :] - B[None, :, :]) ** 2).sum(axis=2) / width**2)


def averaging(bags):
    E = np.zeros((len(bags), bags.n_instances))
    E[bags.index, np.arange(bags.n_instances)] = 1.0 / bags.sizes[bags.index]
    return E


def spd(n_labels, seed=1):
    A = np.random.default_rng(seed).normal(size=(n_labels, n_labels))
    return A @ A.T + 0.5 * np.eye(n_labels)


def sampled(P, w, S, noise, n=1 << 19, seed=1):
    """E sigma(max f) of one bag by brute force."""
    rng = np.random.default_rng(seed)
    top = np.full(n, -np.inf)
    drawn = (
        rng.multivariate_normal(w, S, n, method="cholesky")
        if S.ndim == 2
        else w + rng.normal(size=(n, len(w))) * np.sqrt(S)
    )
    for i in range(len(P)):
        top = np.maximum(top, drawn @ P[i] + np.sqrt(noise[i]) * rng.normal(size=n))
    return expit(top).mean()
