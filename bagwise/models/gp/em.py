"""Learning the covariance of labels: the EM of MIML-GP in weight space, accelerated."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy import linalg

from bagwise.models.gp.posterior import (
    DENSE_LIMIT,
    Curvature,
    Mode,
    block_curvature,
    dense_curvature,
    find_mode,
    is_dense,
)
from bagwise.models.gp.sums import Problem

_ASTRAY = 10.0  # growth of the change that sends an extrapolation back
_LONGEST = 16.0  # longest extrapolation, in plain steps


@dataclass
class Learned:
    """K_f and the posterior that belongs to it.

    Parameters
    ----------
    K : ndarray of shape (Q, Q)
        Covariance of labels.
    root : ndarray of shape (Q, Q)
        Its symmetric square root L.
    mode : Mode
        Polished.
    residuals : list of float
        |M step(K) - K| / |K| after each M step.
    """

    K: np.ndarray
    root: np.ndarray
    mode: Mode
    residuals: list[float] = field(default_factory=list)


def symmetric_root(K: np.ndarray) -> np.ndarray:
    """Symmetric square root; unlike a Cholesky factor it does not depend on the order of labels."""
    if np.count_nonzero(K - np.diag(np.diag(K))) == 0:
        return np.diag(np.sqrt(np.diag(K)))
    values, vectors = linalg.eigh(K)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T


def learn_label_covariance(
    problems: list[Problem],
    K: np.ndarray,
    structure: str,
    *,
    tol: float,
    max_iter: int,
    n_probes: int,
    mode_tol: float,
    b: np.ndarray | None = None,
) -> Learned:
    """Alternate mode and M step until the undamped M step changes K_f by less than ``tol``.

    Parameters
    ----------
    problems : list of Problem
        The likelihood, preceded by easier ones whose modes lead to it (annealing).
    K : ndarray of shape (Q, Q)
        Where to start.
    structure : "full", "diagonal", "scalar" or "fixed"
        What K_f may be.
    """
    problem = problems[-1]
    m, n_labels = problem.m, len(K)
    b = np.zeros((m, n_labels)) if b is None else b
    # the same signs in every round: noise that changed from round to round would keep K_f from settling
    signs = np.random.default_rng(0).integers(0, 2, (n_probes, m, n_labels)) * 2.0 - 1.0
    root = symmetric_root(K)
    for easier in problems[:-1]:
        b = find_mode(easier, root, b, 1e-3).b
    residuals: list[float] = []

    def m_step(K, b, old_root):
        root = symmetric_root(K)
        b = _better_start(problem, b, old_root, root)
        # no more exact than the steps of K_f are long
        mode = find_mode(problem, root, b, max(0.05 * tol, min(1e-3, 0.02 * (residuals or [1.0])[-1])))
        if is_dense(problem, root):
            curvature = dense_curvature(problem, mode.point, root)
        else:
            curvature = block_curvature(problem, mode.point, root, signs)
        w = mode.b @ root
        new = (w.T @ w + root @ curvature.traces @ root) / m  # fixed points of Eq. (32): K H K = 0
        new = constrained(new, structure)
        residuals.append(float(linalg.norm(new - K) / max(linalg.norm(K), 1e-300)))
        return new, mode.b, root

    before, plain = np.inf, K
    while structure != "fixed" and len(residuals) < max_iter:
        first, b, root = m_step(K, b, root)
        if (
            residuals[-1] > _ASTRAY * before
        ):  # the extrapolation went astray: back to where plain steps had led
            K, before = plain, np.inf
            continue
        before = residuals[-1]
        if residuals[-1] > tol:
            plain, b, root = m_step(first, b, root)
        if residuals[-1] <= tol:
            K = first if before <= tol else plain
            break
        K = constrained(extrapolated(K, first, plain), structure)
    old_root, root = root, symmetric_root(K)
    mode = find_mode(problem, root, _better_start(problem, b, old_root, root), mode_tol)
    return Learned(K, root, mode, residuals)


def _better_start(problem: Problem, b, old_root, root):
    """Whitened weights for a new K_f: the old ones, or those that keep the latent values as they are."""
    if not b.any() or np.array_equal(old_root, root):
        return b
    values, vectors = linalg.eigh(root)
    inverse = (vectors / np.maximum(values, 1e-3 * values[-1])) @ vectors.T
    starts = (b, (b @ old_root) @ inverse)
    values = problem.values([x @ root for x in starts])
    kept, moved = (value - 0.5 * np.vdot(x, x) for value, x in zip(values, starts))
    return starts[int(moved > kept)]


def final_curvature(problem: Problem, learned: Learned, limit: int) -> Curvature:
    """Exact curvature with covariances where the system is small enough, blocks otherwise."""
    point, root = learned.mode.point, learned.root
    if is_dense(problem, root, max(limit, DENSE_LIMIT)):
        return dense_curvature(problem, point, root, covariance=True)
    return block_curvature(problem, point, root)


def constrained(K: np.ndarray, structure: str) -> np.ndarray:
    """The M step within a smaller family of matrices."""
    if structure == "diagonal":
        return np.diag(np.diag(K))
    if structure == "scalar":
        return np.eye(len(K)) * np.trace(K) / len(K)
    return (K + K.T) / 2.0


def extrapolated(K0: np.ndarray, K1: np.ndarray, K2: np.ndarray) -> np.ndarray:
    """SQUAREM on the symmetric root: K_f stays positive semi-definite, labels stay exchangeable.

    On roots a direction that dies out moves little; on logarithms it would take over the step length.
    """
    x0, x1, x2 = (symmetric_root(K) for K in (K0, K1, K2))
    r = x1 - x0
    v = (x2 - x1) - r
    bend = linalg.norm(v)
    length = 1.0 if bend == 0 else min(max(linalg.norm(r) / bend, 1.0), _LONGEST)
    x = x0 + 2.0 * length * r + length**2 * v
    return x @ x.T
