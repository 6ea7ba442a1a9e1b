"""Fixed features of MM-MIL: standardised instances, or coordinates in the span of a kernel's landmarks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances

from bagwise.parallel import small_products
from bagwise.utils.memo import remembered

N_PAIRS = 2000  # pairs of instances from which the median distance is taken


class Kernel(NamedTuple):
    """What a kernel's features are made of."""

    landmarks: Any
    sigma2: float
    whitening: Any


def median_distance(X: Any, rng: np.random.RandomState) -> float:
    """Median squared distance between instances, from a sample of pairs; 1 if all instances are alike."""
    return median_of_pairs(X, *rng.randint(X.shape[0], size=(2, N_PAIRS)))


def median_of_pairs(X: Any, first: np.ndarray, second: np.ndarray) -> float:
    """Median squared distance of these pairs of rows, without rows to themselves; 1 if all are alike."""
    D = X[first] - X[second]
    squares = np.asarray(D.multiply(D).sum(axis=1)).ravel() if hasattr(D, "multiply") else (D * D).sum(axis=1)
    squares = squares[first != second]
    median = float(np.median(squares)) if squares.size else 0.0
    return median if median > 0 else 1.0


def kernel_of(
    rows_of: Callable[[np.ndarray], Any], pairs: np.ndarray, chosen: np.ndarray, width_scale: float
) -> Kernel:
    """The kernel whose width comes from pairs of instances, with the landmarks chosen; both by number."""
    numbers = np.unique(np.concatenate([pairs.ravel(), chosen]))
    X = rows_of(numbers)
    sigma2 = width_scale * median_of_pairs(X, *np.searchsorted(numbers, pairs))
    landmarks = X[np.searchsorted(numbers, chosen)]
    return Kernel(landmarks, sigma2, whitening(gaussian_kernel(landmarks, landmarks, sigma2)))


def landmark_kernel(
    rows_of: Callable[[np.ndarray], Any],
    n: int,
    n_landmarks: int,
    width_scale: float,
    rng: np.random.RandomState,
) -> Kernel:
    """A kernel with landmarks drawn from ``n`` instances in memory; ``rows_of`` gives scaled ones."""
    pairs = rng.randint(n, size=(2, N_PAIRS))
    chosen = np.arange(n)
    if n_landmarks < n:
        chosen = np.sort(rng.choice(n, n_landmarks, replace=False))
    return kernel_of(rows_of, pairs, chosen, width_scale)


def landmark_features(
    X: Any, n_landmarks: int, width_scale: float, rng: np.random.RandomState
) -> dict[str, Any]:
    """Coordinates ``Phi`` in the span of the kernel's landmarks, and what gives others the same."""
    n = X.shape[0]
    with small_products(n * min(n, n_landmarks) * X.shape[1]):
        kernel = landmark_kernel(lambda rows: X[rows], n, n_landmarks, width_scale, rng)
        Phi = gaussian_kernel(X, kernel.landmarks, kernel.sigma2) @ kernel.whitening
    return kernel._asdict() | {"Phi": Phi}


@remembered
def gaussian_kernel(X: Any, rows: Any, sigma2: float) -> np.ndarray:
    """``exp(-|x - x'|^2 / (2 sigma2))`` for every pair of rows."""
    K = euclidean_distances(X, rows, squared=True)
    K /= -2.0 * sigma2
    return np.exp(K, out=K)


@remembered
def whitening(K: np.ndarray) -> np.ndarray:
    """Matrix R with ``R R' = K^-1`` (pseudo-inverse): weights t of features ``k(x) R`` are ``alpha = R t``.

    Then ``|t|^2 = alpha' K alpha``, the penalty of Eqs. (14) and (17). Directions below the noise of single
    precision are left out: they would blow up rounding errors.

    Examples
    --------
    >>> K = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> R = whitening(K)
    >>> np.allclose(R @ R.T, np.linalg.inv(K))
    True
    """
    values, vectors = np.linalg.eigh(K)
    kept = values > 1e-7 * values[-1]
    return vectors[:, kept] / np.sqrt(values[kept])
