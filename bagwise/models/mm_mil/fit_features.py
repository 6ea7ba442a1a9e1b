"""Fixed features of MM-MIL: standardised instances, or coordinates in the span of a kernel's landmarks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances

from bagwise.base.blocks import Blocks, rows_at
from bagwise.compute.memo import remembered
from bagwise.compute.scaling import Scaling, apply_scaling, learn_scaling
from bagwise.compute.threads import small_products

N_PAIRS = 2000  # pairs of instances from which the median distance is taken


class Kernel(NamedTuple):
    """What a kernel's features are made of."""

    landmarks: Any
    sigma2: float
    whitening: Any


def median_distance(X: Any, first: np.ndarray, second: np.ndarray) -> float:
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
    sigma2 = width_scale * median_distance(X, *np.searchsorted(numbers, pairs))
    landmarks = X[np.searchsorted(numbers, chosen)]
    return Kernel(landmarks, sigma2, whitening(gaussian_kernel(landmarks, landmarks, sigma2)))


def drawn_landmarks(
    blocks: Blocks, scaling: Scaling, n_landmarks: int, width_scale: float, rng: np.random.RandomState
) -> Kernel:
    """Landmarks drawn from all instances, and the width from pairs of them, in one pass."""
    n = int(blocks.part_rows.sum())
    draw = np.random.default_rng(rng.randint(2**31 - 1))
    pairs = draw.integers(n, size=(2, N_PAIRS))
    chosen = np.sort(draw.choice(n, min(n, n_landmarks), replace=False, shuffle=False))
    with small_products(0.0):
        return kernel_of(
            lambda numbers: apply_scaling(rows_at(blocks, numbers), scaling), pairs, chosen, width_scale
        )


def drawn_numbers(n: int, n_landmarks: int, rng: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of instances for the width, and landmarks."""
    pairs = rng.randint(n, size=(2, N_PAIRS))
    chosen = np.arange(n)
    if n_landmarks < n:
        chosen = np.sort(rng.choice(n, n_landmarks, replace=False))
    return pairs, chosen


@remembered
def features_of(
    X: Any, kind: str, pairs: np.ndarray, chosen: np.ndarray, width_scale: float
) -> tuple[Scaling, Kernel, np.ndarray]:
    """Scaling, kernel and coordinates in its landmarks' span, which settings of the same width share."""
    with small_products(X.shape[0] * len(chosen) * X.shape[1]):
        scaling = learn_scaling(X, kind)
        X = apply_scaling(X, scaling)
        kernel = kernel_of(lambda rows: X[rows], pairs, chosen, width_scale)
        return scaling, kernel, gaussian_kernel(X, kernel.landmarks, kernel.sigma2) @ kernel.whitening


@remembered
def similarities(X: Any, scaling: Scaling, landmarks: Any, sigma2: float) -> np.ndarray:
    """Kernel of new instances with the landmarks."""
    return gaussian_kernel(apply_scaling(X, scaling), landmarks, sigma2)


def gaussian_kernel(X: Any, rows: Any, sigma2: float) -> np.ndarray:
    """``exp(-|x - x'|^2 / (2 sigma2))`` for every pair of rows."""
    K = euclidean_distances(X, rows, squared=True)
    K /= -2.0 * sigma2
    return np.exp(K, out=K)


def whitening(K: np.ndarray) -> np.ndarray:
    """Matrix R with ``R R' = K^-1`` (pseudo-inverse): weights t of features ``k(x) R`` are ``alpha = R t``.

    Then ``|t|^2 = alpha' K alpha``, the penalty of Eqs. (14) and (17). Directions below the noise of single
    precision are left out: they would blow up rounding errors.
    """
    values, vectors = np.linalg.eigh(K)
    kept = values > 1e-7 * values[-1]
    return vectors[:, kept] / np.sqrt(values[kept])
