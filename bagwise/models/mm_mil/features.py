"""Fixed features of MM-MIL: standardised instances, or coordinates in the span of a kernel's landmarks."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances

from bagwise.parallel import small_products
from bagwise.utils.memo import remembered

N_PAIRS = 2000  # pairs of instances from which the median distance is taken


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


def landmark_features(
    X: Any, n_landmarks: int, width_scale: float, rng: np.random.RandomState
) -> dict[str, Any]:
    """Coordinates ``Phi`` in the span of the kernel's landmarks, and what gives others the same."""
    sigma2 = width_scale * median_distance(X, rng)
    chosen = np.arange(X.shape[0])
    if n_landmarks < X.shape[0]:
        chosen = np.sort(rng.choice(X.shape[0], n_landmarks, replace=False))
    landmarks = X[chosen]
    with small_products(X.shape[0] * len(chosen) * X.shape[1]):
        R = whitening(gaussian_kernel(landmarks, landmarks, sigma2))
        Phi = gaussian_kernel(X, landmarks, sigma2) @ R
    return {"landmarks": landmarks, "sigma2": sigma2, "whitening": R, "Phi": Phi}


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
