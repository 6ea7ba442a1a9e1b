"""Words for instances: centres of k-means, and the nearest one of each instance."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin
from sklearn.utils import check_random_state

from bagwise.compute.memo import remembered
from bagwise.compute.threads import openmp_threads

__all__ = ["learn_codebook", "nearest_word"]


def learn_codebook(
    X: Any,
    n_words: int,
    random_state: Any,
    *,
    n_init: int = 1,
    max_iter: int = 300,
    n_jobs: int | None = None,
) -> tuple[np.ndarray, int]:
    """Centres of k-means that are the nearest of some instance, and the iterations it took.

    Examples
    --------
    >>> X = np.array([[0.0], [0.2], [5.0], [5.2]])
    >>> words, _ = learn_codebook(X, 2, 0)
    >>> sorted(words.ravel().round(1).tolist())
    [0.1, 5.1]
    """
    seed = random_state
    if not isinstance(seed, int):
        seed = int(check_random_state(seed).randint(2**31 - 1))
    with openmp_threads(n_jobs):
        words, n_iter = _centres(X, min(n_words, X.shape[0]), n_init, max_iter, seed)
    return words[np.unique(nearest_word(X, words, n_jobs))], n_iter


@remembered
def _centres(X: Any, n_words: int, n_init: int, max_iter: int, seed: int) -> tuple[np.ndarray, int]:
    """Centres of k-means, and its iterations."""
    k_means = KMeans(n_words, n_init=n_init, max_iter=max_iter, random_state=seed)
    with warnings.catch_warnings():
        # fewer distinct instances than words: the words that nobody needs go later
        warnings.filterwarnings("ignore", "Number of distinct clusters", ConvergenceWarning)
        k_means.fit(X)
    return k_means.cluster_centers_, k_means.n_iter_


def nearest_word(X: Any, words: np.ndarray, n_jobs: int | None = None) -> np.ndarray:
    """Number of the nearest centre of every instance."""
    with openmp_threads(n_jobs):
        return pairwise_distances_argmin(X, words)
