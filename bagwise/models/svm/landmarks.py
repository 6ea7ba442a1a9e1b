"""Functions of a kernel in the span of a few instances, chosen so that they miss little of all others.

Pivoted Cholesky takes, one after the other, the instance that lies farthest from the span of those taken, so
``G G' = K`` up to ``error``. With at least as many landmarks as distinct instances it is the whole kernel.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import eigh, solve_triangular

from bagwise.compute.threads import small_products
from bagwise.models._shared.svm import gram
from bagwise.utils.arrays import check_memory

__all__ = ["Span", "landmark_span"]

_NEGLIGIBLE = 1e-8  # squared distance from the span, over the largest squared length, that counts as inside
_SMALLEST = 1e-10  # eigenvalue over the largest that is kept


class Span(NamedTuple):
    """Landmarks, and the kernel matrix of all instances in the span of their functions.

    Attributes
    ----------
    rows : ndarray of shape (n_landmarks,)
        Numbers of the instances that are landmarks.
    U, eigenvalues : ndarray of shape (n_instances, rank), (rank,)
        Kernel matrix ``U diag(eigenvalues) U'`` with orthonormal columns U.
    to_landmarks : ndarray of shape (n_landmarks, rank)
        ``k(x, landmarks) @ to_landmarks`` is the row of U of any x, so that ``f = U c`` is
        ``k(x, landmarks) @ (to_landmarks @ c)`` everywhere.
    error : float
        Largest squared distance of an instance from the span, over the largest squared length.
    """

    rows: np.ndarray
    U: np.ndarray
    eigenvalues: np.ndarray
    to_landmarks: np.ndarray
    error: float


def landmark_span(X: Any, kernel: str, gamma: float, most: int, advice: str) -> Span:
    """Choose at most so many landmarks among instances and decompose the kernel in their span.

    Parameters
    ----------
    X : array or CSR of shape (n_instances, n_features)
        Instances.
    kernel, gamma : str, float
        As of `gram`.
    most : int
        Limit on landmarks.
    advice : str
        What the error says to do where the matrix does not fit into memory.

    Notes
    -----
    ``n_instances * most**2`` operations and ``3 * n_instances * most`` numbers.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [1.0], [3.0]])
    >>> span = landmark_span(X, "rbf", 1.0, 10, "")
    >>> span.rows.tolist(), span.error  # the copy of 1 adds nothing
    ([0, 3, 1], 0.0)
    >>> K = (span.U * span.eigenvalues) @ span.U.T
    >>> bool(np.allclose(K, gram("rbf", 1.0, X, X)))
    True
    """
    n, most = X.shape[0], min(most, X.shape[0])
    check_memory(24.0 * n * most, f"the kernel of {n:,} instances and {most:,} landmarks", advice)
    with small_products(float(n) * most):
        rows, G, error = _pivoted_cholesky(X, kernel, gamma, most)
    with small_products(float(n) * len(rows) ** 2):
        eigenvalues, V = eigh(G.T @ G)
        keep = eigenvalues > _SMALLEST * eigenvalues[-1]
        eigenvalues, V = eigenvalues[keep], V[:, keep] / np.sqrt(eigenvalues[keep])
        U = G @ V
        to_landmarks = solve_triangular(G[rows], V, lower=True, trans="T")
    return Span(rows, U, eigenvalues, to_landmarks, error)


def _pivoted_cholesky(X: Any, kernel: str, gamma: float, most: int) -> tuple[np.ndarray, np.ndarray, float]:
    n = X.shape[0]
    far = np.ones(n) if kernel == "rbf" else _squares(X)  # squared distance from the span
    longest = float(far.max(initial=0.0)) or 1.0
    G = np.zeros((n, most), order="F")
    rows: list[int] = []
    while len(rows) < most and far.max() > _NEGLIGIBLE * longest:
        p, k = int(far.argmax()), len(rows)
        column = gram(kernel, gamma, X, X[p : p + 1])[:, 0]
        column -= G[:, :k] @ G[p, :k]
        column /= np.sqrt(far[p])
        column[rows] = 0.0  # exactly, as in a triangle
        G[:, k] = column
        far -= column * column
        np.maximum(far, 0.0, out=far)
        far[p] = 0.0
        rows.append(p)
    if not rows:  # products of features that are all 0: a function that is as good as 0 everywhere
        rows, G[0, 0] = [0], 1e-6
    return np.array(rows), G[:, : len(rows)], float(far.max()) / longest


def _squares(X: Any) -> np.ndarray:
    if sparse.issparse(X):
        return np.asarray(X.multiply(X).sum(axis=1), dtype=np.float64).ravel()
    return np.einsum("ij,ij->i", X, X)
