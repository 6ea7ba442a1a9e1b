"""Functions of a kernel in the span of a few instances, chosen so that they miss little of all others.

Pivoted Cholesky takes, one after the other, the instance that lies farthest from the span of those taken, so
``G G' = K`` up to ``error``. With at least as many landmarks as distinct instances it is the whole kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import eigh, solve_triangular
from sklearn.exceptions import ConvergenceWarning

from bagwise.compute.threads import small_products
from bagwise.errors import warn
from bagwise.models.svm.base import gram, row_squares
from bagwise.utils.arrays import check_memory

_NEGLIGIBLE = 1e-8  # squared distance from the span, over the largest squared length, that counts as inside
_SMALLEST = 1e-10  # eigenvalue over the largest that is kept


class Span(NamedTuple):
    """Landmarks, and the kernel matrix ``U diag(eigenvalues) U'`` of all instances in the span of theirs.

    ``k(x, landmarks) @ to_landmarks`` is the row of U of any x, so that ``f = U c`` is
    ``k(x, landmarks) @ (to_landmarks @ c)`` everywhere.
    """

    rows: np.ndarray  # (n_landmarks,): numbers of the instances that are landmarks
    U: np.ndarray  # (n_instances, rank), with orthonormal columns
    eigenvalues: np.ndarray
    to_landmarks: np.ndarray  # (n_landmarks, rank)
    error: float  # largest squared distance of an instance from the span, over the largest squared length


def landmark_span(X: Any, kernel: str, gamma: float, most: int, advice: str) -> Span:
    """Choose at most so many landmarks among instances and decompose the kernel in their span.

    ``n_instances * most**2`` operations and ``3 * n_instances * most`` numbers; ``advice`` says what to do
    where these do not fit into memory. A copy of a landmark adds nothing, and becomes none.
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
    far = np.ones(n) if kernel == "rbf" else row_squares(X)  # squared distance from the span
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


# ----------------------------------------------------------------------
# Support vector machines of all labels at once, whose kernel is a product over instances and labels
#
# The problem is: maximise ``<T, B> - <B, K B P> / 2`` over matrices B (n_instances, n_labels) in a convex
# set, with K the kernel of instances and P that of labels. Machines have the values ``F = K B P``. The
# method of multipliers splits it into a linear system, which the eigenvectors of K and P solve at the
# price of a product with K, and a projection onto the set. Tens of rounds suffice, and the duality gap
# says when.


_EVERY = 10  # rounds between looks at the gap
_RELAXED = 1.6  # step of the multipliers; between 1 and 2
_UNEVEN = 4.0  # residuals this far apart change the penalty


Primal = Callable[[np.ndarray, float], float]


class Coupled(NamedTuple):
    """Eigenvectors of the kernel of instances (in a span of landmarks) and of labels."""

    U: np.ndarray
    V: np.ndarray
    eigenvalues: np.ndarray

    @staticmethod
    def of(span: Span, P: np.ndarray) -> Coupled:
        """Product of the kernel in a span with a positive definite kernel of labels."""
        p, V = np.linalg.eigh(P)
        return Coupled(span.U, V, span.eigenvalues[:, None] * np.maximum(p, 0.0))

    def coefficients(self, B: np.ndarray) -> np.ndarray:
        """C with ``U C = K B P``."""
        return ((self.U.T @ B) @ self.V * self.eigenvalues) @ self.V.T

    def values(self, B: np.ndarray) -> np.ndarray:
        """``K B P``."""
        return self.U @ self.coefficients(B)

    def shrink(self, R: np.ndarray, rho: float) -> np.ndarray:
        """Solution B of ``K B P + rho B = R``."""
        inside = (self.U.T @ R) @ self.V
        inside *= self.eigenvalues / (self.eigenvalues + rho)
        return (R - self.U @ (inside @ self.V.T)) / rho


class Solution(NamedTuple):
    """What `maximise` found."""

    B: np.ndarray  # on its way into the set; its values are what counts
    values: np.ndarray  # K B P
    objective: float  # value of the primal problem at these values
    gap: float  # how much lower it could be at most, over its size
    n_iter: int
    state: tuple[np.ndarray, np.ndarray, float]  # to go on from, for a problem nearby


def maximise(
    problem: Coupled,
    T: np.ndarray,
    project: Callable[[np.ndarray], np.ndarray],
    primal: Primal,
    *,
    balanced: bool,
    tidy: Callable[[np.ndarray], np.ndarray] | None = None,
    start: tuple[np.ndarray, np.ndarray, float] | None = None,
    tol: float,
    max_iter: int,
) -> Solution:
    """Maximise ``<T, B> - <B, K B P> / 2`` over a convex set by the alternating method of multipliers.

    ``project`` gives the nearest matrix of the set. Where ``balanced``, entries of B must add up to 0, too,
    as with an intercept, and ``tidy`` gives the nearest matrix with that condition. ``primal(F, penalty)`` is
    the value of the primal problem for values F, ``penalty`` being <B, K B P> / 2. ``tol`` is the gap, over
    the size of the objective, at which to stop; ``start`` the ``state`` of an earlier solution.
    """
    tidy = project if tidy is None else tidy
    Z, W, rho = (np.zeros_like(T), np.zeros_like(T), 0.3) if start is None else start
    ones = np.ones_like(T)
    flat = problem.shrink(ones, rho) if balanced else ones
    best, n_iter = None, 0
    while n_iter < max_iter:
        n_iter += 1
        X = problem.shrink(T + rho * (Z - W), rho)
        if balanced:
            X -= flat * (X.sum() / flat.sum())
        relaxed = _RELAXED * X + (1.0 - _RELAXED) * Z
        before, Z = Z, project(relaxed + W)
        W = W + relaxed - Z
        if n_iter % _EVERY and n_iter < max_iter:
            continue
        found = _look(problem, T, X, tidy(Z), primal)
        best = found if best is None or found.gap < best.gap else best
        if best.gap <= tol:
            break
        # a factor on the penalty that brings the residuals of the two problems closer together
        of_primal, of_dual = float(np.linalg.norm(X - Z)), rho * float(np.linalg.norm(Z - before))
        factor = 2.0 if of_primal > _UNEVEN * of_dual else 0.5 if of_dual > _UNEVEN * of_primal else 1.0
        if factor != 1.0:
            rho, W = rho * factor, W / factor
            flat = problem.shrink(ones, rho) if balanced else ones
    assert best is not None  # max_iter is at least 1
    if best.gap > tol:
        warn(
            f"stopped at max_iter={max_iter} with an objective that may be {best.gap:.2g} of its size above "
            f"the lowest, not {tol:g}; raise max_iter, or lower C",
            ConvergenceWarning,
        )
    return best._replace(n_iter=n_iter, state=(Z, W, rho))


def _look(problem: Coupled, T: np.ndarray, X: np.ndarray, Z: np.ndarray, primal: Primal) -> Solution:
    """Primal value of X, which need not lie in the set, against the dual value of Z, which does.

    X is the better of the two long before they meet.
    """
    F = problem.values(X)
    above = primal(F, 0.5 * float((X * F).sum()))
    below = float((T * Z).sum()) - 0.5 * float((Z * problem.values(Z)).sum())
    return Solution(X, F, above, (above - below) / max(abs(above), 1e-300), 0, (X, Z, 1.0))
