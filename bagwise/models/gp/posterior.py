"""Laplace approximation in weight space: the mode by Newton steps, and the curvature around it.

Latent values are ``F = Z w`` with ``w = b L`` (m x Q), ``L L = K_f`` symmetric and ``b`` standard normal.
With whitened weights the matrix of every system is ``A = I + sum_s l_s l_s' (x) Z' C_s Z``, B_1 of Eq. (33),
whose eigenvalues are at least 1 whatever the kernel and K_f.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg

from bagwise.models.gp.sums import Point, Problem

DENSE_LIMIT = 600  # unknowns up to which the matrix of the system is built and factored
DENSE_LIMIT_OF_PARTS = 3000  # the same where bags come in several parts
DENSE_PRODUCTS = 5e9  # multiplications that building it may take


@dataclass
class Curvature:
    """What the M step, the evidence and predictions need of ``A`` at the mode.

    Parameters
    ----------
    traces : ndarray of shape (Q, Q)
        Traces of the Q x Q grid of m x m blocks of the inverse of ``A``: T.
    log_det : float
        Log-determinant of ``A``; from the diagonal blocks it is an upper bound.
    covariance : ndarray of shape (Q, m, m) or (m, Q), or None
        Posterior covariance of each label's weights, whole or its diagonal.
    """

    traces: np.ndarray
    log_det: float
    covariance: np.ndarray | None = None


def is_diagonal(L: np.ndarray) -> bool:
    """Whether labels do not talk to each other, so that each has a system of its own."""
    return bool(np.count_nonzero(L - np.diag(np.diag(L))) == 0)


def is_dense(problem: Problem, L: np.ndarray, limit: int | None = None) -> bool:
    """Whether the systems are small enough to be built and factored."""
    m = problem.m
    unknowns = m if is_diagonal(L) else m * len(L)
    limit = DENSE_LIMIT if limit is None else limit
    if len(problem.parts) > 1:  # a product with the matrix is a pass over all parts, building it is one, too
        return unknowns <= max(limit, DENSE_LIMIT_OF_PARTS)
    return unknowns <= limit and float(problem.n_rows) * m * m * len(L) <= DENSE_PRODUCTS


# ---------------------------------------------------------------------- small systems: Cholesky


def _whole_matrix(problem: Problem, point: Point, L):
    """``A`` as a (Q m, Q m) matrix, label by label."""
    grams = problem.grams(point)
    n_labels, m, _ = grams.shape
    pairs = (L[:, :, None] * L[:, None, :]).reshape(n_labels, -1)  # l_sa l_sb
    A = (pairs.T @ grams.reshape(n_labels, -1)).reshape(n_labels, n_labels, m, m).transpose(0, 2, 1, 3)
    A = np.ascontiguousarray(A).reshape(n_labels * m, n_labels * m)
    A[np.diag_indices_from(A)] += 1.0
    return A


def _label_matrix(problem: Problem, point: Point, L, s):
    A = L[s, s] ** 2 * problem.gram(point, s)
    A[np.diag_indices_from(A)] += 1.0
    return A


def _dense_direction(problem: Problem, point: Point, L, gradient):
    m, n_labels = gradient.shape
    if not is_diagonal(L):
        A = _whole_matrix(problem, point, L)
        x = linalg.cho_solve(linalg.cho_factor(A, lower=True, overwrite_a=True), gradient.T.ravel())
        return x.reshape(n_labels, m).T
    out = np.empty_like(gradient)
    for s in range(n_labels):
        A = _label_matrix(problem, point, L, s)
        out[:, s] = linalg.cho_solve(linalg.cho_factor(A, lower=True, overwrite_a=True), gradient[:, s])
    return out


def _inverse(A):
    """Inverse and log-determinant of a positive definite matrix."""
    C = linalg.cholesky(A, lower=True, overwrite_a=True)
    log_det = 2.0 * np.log(np.diag(C)).sum()
    inverse, _ = linalg.lapack.dpotri(C, lower=1, overwrite_c=1)
    inverse = np.tril(inverse)
    return inverse + np.tril(inverse, -1).T, log_det


def dense_curvature(problem: Problem, point: Point, L, covariance=False) -> Curvature:
    """Exact traces, log-determinant and covariances, by factoring ``A``."""
    m, n_labels = point.w.shape
    S = np.empty((n_labels, m, m)) if covariance else None
    if is_diagonal(L):
        traces, log_det = np.zeros((n_labels, n_labels)), 0.0
        for s in range(n_labels):
            inverse, part = _inverse(_label_matrix(problem, point, L, s))
            traces[s, s] = np.trace(inverse)
            log_det += part
            if S is not None:
                S[s] = L[s, s] ** 2 * inverse
        return Curvature(traces, log_det, S)
    inverse, log_det = _inverse(_whole_matrix(problem, point, L))
    blocks = inverse.reshape(n_labels, m, n_labels, m)
    if S is not None:
        for s in range(n_labels):
            S[s] = np.einsum("a,akbj,b->kj", L[s], blocks, L[s], optimize=True)
    return Curvature(np.einsum("akbk->ab", blocks), log_det, S)


# ---------------------------------------------------------------------- large systems: diagonal blocks


def block_curvature(problem: Problem, point: Point, L: np.ndarray, probes: Any = None) -> Curvature:
    """Traces, log-determinant and variances from the diagonal blocks of ``A``.

    With probes (r, m, Q) of random signs, the traces are corrected by z'(A^{-1} - M^{-1})z, whose mean is
    what the blocks miss.
    """
    T, log_det, variances, missing = problem.traces(point, L, probes)
    if missing is not None:
        values, vectors = linalg.eigh(T + (missing + missing.T) / 2.0)
        # the blocks of an inverse are at least the inverses of the blocks: noise cannot go below that much
        T = (vectors * np.maximum(values, 0.5 * linalg.eigvalsh(T)[0])) @ vectors.T
    return Curvature(T, log_det, variances)


# ---------------------------------------------------------------------- the mode


@dataclass
class Mode:
    """The most probable whitened weights.

    Parameters
    ----------
    b : ndarray of shape (m, Q)
        Whitened weights; ``b @ L`` are the weights.
    objective : float
        Log-likelihood less half the squared length of ``b``.
    point : Point
        The likelihood at these weights.
    error : float
        Relative size of the gradient: |b - L Z'd| / |b|.
    n_steps : int
        Newton steps taken.
    """

    b: np.ndarray
    objective: float
    point: Point
    error: float
    n_steps: int


def find_mode(problem: Problem, L: np.ndarray, b: np.ndarray, tol: float, max_steps: int = 100) -> Mode:
    """Newton's method with step halving, Eq. (35) in weight space.

    Large systems are solved only as well as the step needs, in single precision; the gradient, which
    decides where the mode is, is always in double precision.
    """
    dense = is_dense(problem, L)
    inverses = None
    here = problem.at(b @ L, dense)
    for n_steps in range(max_steps + 1):
        pull = here.pull @ L
        gradient = pull - b
        objective = here.value - 0.5 * np.vdot(b, b)
        size = max(float(np.linalg.norm(b)), float(np.linalg.norm(pull)), 1e-300)
        error = float(np.linalg.norm(gradient)) / size
        if error <= tol or n_steps == max_steps:
            break
        if dense:
            x = _dense_direction(problem, here, L, gradient)
        else:
            if inverses is None or n_steps % 4 == 0:  # a preconditioner of the last steps will do
                inverses = problem.preconditioner(here, L)[0]
            rtol = min(0.1, max(0.3 * tol / error, 1e-3))
            x = problem.solve(here, L, gradient[None], inverses, rtol)[0]
        ascent = np.vdot(gradient, x)
        t = 1.0
        slack = 1e-13 * (1.0 + abs(objective))  # at the end the objective no longer shows the progress
        while t > 1e-6:
            new = b + t * x
            there = problem.at(new @ L, dense)
            if there.value - 0.5 * np.vdot(new, new) >= objective + 1e-4 * t * ascent - slack:
                break
            t *= 0.5
        else:  # no step goes up: rounding, or a direction that is none
            break
        b, here = new, there
    return Mode(b, objective, here, error, n_steps)
