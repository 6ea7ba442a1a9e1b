"""Laplace approximation in weight space: the mode by Newton steps, and the curvature around it.

Latent values are ``F = Z w`` with ``w = b L`` (m x Q), ``L L = K_f`` symmetric and ``b`` standard normal.
With whitened weights the matrix of every system is ``A = I + sum_s l_s l_s' (x) Z' C_s Z``, B_1 of Eq. (33),
whose eigenvalues are at least 1 whatever the kernel and K_f.

All that is asked of the bags at given weights are sums over parts (`Problem`), of which bags in memory are
one; ``Z`` is never asked for whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

from bagwise.compute.parts import Held, Parts, map_reduce

DENSE_LIMIT = 600  # unknowns up to which the matrix of the system is built and factored
DENSE_LIMIT_OF_PARTS = 3000  # the same where bags come in several parts
DENSE_PRODUCTS = 5e9  # multiplications that building it may take


class Rows:
    """Features (rows, m) of the rows of a part and the likelihood of their latent values.

    What was found at the last weights is kept, since the solvers ask several things of one point.
    """

    def __init__(self, Z: np.ndarray, likelihood: Any) -> None:
        self.Z, self.likelihood = Z, likelihood
        self._last: Any = None
        self._single: np.ndarray | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"Z": self.Z, "likelihood": self.likelihood, "_last": None, "_single": None}

    def at(self, w: np.ndarray) -> tuple[float, np.ndarray, Any]:
        """Log-likelihood, gradient by the latent values, and the curvature's state at weights ``w``."""
        if self._last is None or not np.array_equal(self._last[0], w):
            self._last = (w.copy(), self.likelihood.slopes(self.Z @ w))
        return self._last[1]

    def values(self, weights: list[np.ndarray]) -> list[float]:
        """Log-likelihoods alone, at several weights."""
        return [self.at(w)[0] for w in weights]

    def slopes(self, w: np.ndarray, curved: bool) -> tuple[float, np.ndarray, np.ndarray | None]:
        """Log-likelihood, Z'd, and `grams` if they will be asked for, too."""
        return self.at(w)[0], self.pull(w), self.grams(w) if curved else None

    def gradient(self, w: np.ndarray) -> np.ndarray:
        """Gradient by the latent values."""
        return self.at(w)[1]

    def pull(self, w: np.ndarray) -> np.ndarray:
        """Z'd."""
        return self.Z.T @ self.at(w)[1]

    def grams(self, w: np.ndarray) -> np.ndarray:
        """Z' C_s Z of every label, (Q, m, m)."""
        return np.stack([self.gram(w, s) for s in range(w.shape[1])])

    def gram(self, w: np.ndarray, s: int) -> np.ndarray:
        """Z' C_s Z of one label."""
        return self.likelihood.gram(self.at(w)[2], self.Z, s)

    def diagonals(self, w: np.ndarray) -> np.ndarray:
        """Diagonals of these for all labels, (m, Q)."""
        return self.likelihood.gram_diagonal(self.at(w)[2], self.Z)

    def bend(self, w: np.ndarray, V: np.ndarray, single: bool = True) -> np.ndarray:
        """Z' C Z v of directions (r, m, Q), in single precision where they need not be exact."""
        state, Z = self.at(w)[2], self.Z
        if single:
            if self._single is None:
                self._single = Z.astype(np.float32)
            Z = self._single
            state = state.astype(np.float32) if isinstance(state, np.ndarray) else state
        # all right sides in one product: Z is large and Q small, so reading Z is what takes the time
        r, m, n_labels = V.shape
        F = Z @ np.ascontiguousarray(V.transpose(1, 0, 2), dtype=Z.dtype).reshape(m, r * n_labels)
        for i in range(r):
            part = slice(i * n_labels, (i + 1) * n_labels)
            F[:, part] = self.likelihood.bend(state, F[:, part])
        return (Z.T @ F).reshape(m, r, n_labels).transpose(1, 0, 2).astype(np.float64)


def said_by_rows(params: Any, rows: Rows) -> Any:
    """What a method of the rows of one part says, found by name in other processes."""
    what, *given = params
    return getattr(rows, what)(*given)


class Point(NamedTuple):
    """The likelihood at some weights: its value, Z'd, and Z' C_s Z of all labels where that was asked for."""

    w: np.ndarray
    value: float
    pull: np.ndarray
    grams: np.ndarray | None = None


class Problem:
    """All rows, in parts that load as `Rows`, with ``m`` features."""

    def __init__(self, parts: Parts, n_rows: int, m: int) -> None:
        self.parts, self.n_rows, self.m = parts, n_rows, m

    @classmethod
    def of(cls, Z: np.ndarray, likelihood: Any) -> Problem:
        """The problem of rows in memory."""
        return cls(Held(Rows(Z, likelihood)), *Z.shape)

    def _sum(self, what: str, *given: Any) -> Any:
        """Sum over all parts of what this method of `Rows` says."""
        return map_reduce(said_by_rows, (what, *given), self.parts)

    def values(self, weights: list[np.ndarray]) -> list[float]:
        """Log-likelihoods alone, at several weights."""
        return self._sum("values", weights)

    def at(self, w: np.ndarray, curved: bool = False) -> Point:
        """Value and gradient; ``curved``: `grams` will be asked for, too, which saves a pass on shards."""
        grams = curved and self.parts.one_thread
        return Point(w, *self._sum("slopes", w, grams))

    def grams(self, point: Point) -> np.ndarray:
        """Z' C_s Z of every label, (Q, m, m)."""
        return self._sum("grams", point.w) if point.grams is None else point.grams

    def gram(self, point: Point, s: int) -> np.ndarray:
        """The same of one label."""
        return self._sum("gram", point.w, s) if point.grams is None else point.grams[s]

    def diagonals(self, point: Point) -> np.ndarray:
        """Diagonals of these, (m, Q)."""
        return self._sum("diagonals", point.w)

    def bend(self, point: Point, V: np.ndarray, single: bool = True) -> np.ndarray:
        """Z' C Z v of directions V of shape (r, m, Q), in single precision unless told otherwise."""
        return self._sum("bend", point.w, V, single)

    def preconditioner(self, point: Point, L: np.ndarray) -> tuple[Any, float]:
        """Inverses of the diagonal blocks of ``A``, for `solve`, and their log-determinant."""
        return block_preconditioner(self.diagonals(point), L)

    def solve(self, point: Point, L: np.ndarray, right: np.ndarray, inverses: Any, rtol: float) -> np.ndarray:
        """Solutions of ``A x = right`` for right sides (r, m, Q)."""
        return solve_many(partial(self.bend, point), L, right, inverses, rtol)

    def traces(self, point: Point, L: np.ndarray, probes: Any = None) -> tuple[Any, float, Any, Any]:
        """What the diagonal blocks of ``A`` tell; see `block_traces`."""
        return block_traces(self.diagonals(point), L, partial(self.bend, point), probes)


# ---------------------------------------------------------------------- large systems: conjugate gradients
# Written once for arrays and for tensors: ``xp`` is NumPy or torch, which call these operations by the same
# names.


def block_preconditioner(diagonals: Any, L: Any, xp: Any = np) -> tuple[Any, float]:
    """Inverses of the diagonal blocks M_k = I + L diag(Z' C_s Z)_kk L of ``A``, and their log-determinant."""
    M = xp.matmul(L[None] * diagonals[:, None, :], L) + xp.diag(0.0 * L[0] + 1.0)
    C = xp.linalg.cholesky(M)
    log_det = 2.0 * float(xp.log(xp.einsum("kaa->ka", C)).sum())
    return xp.linalg.inv(M), log_det


def solve_many(
    bend: Any, L: Any, right: Any, inverses: Any, rtol: float, max_steps: int = 200, xp: Any = np
) -> Any:
    """Preconditioned conjugate gradients on ``A x = right`` for right sides of shape (r, m, Q).

    ``bend`` gives Z' C Z v of directions of that shape.
    """

    def product(x: Any) -> Any:
        return x + bend(x @ L) @ L

    def precondition(x: Any) -> Any:
        return xp.matmul(inverses, x[..., None])[..., 0]

    def dots(x: Any, y: Any) -> Any:
        return xp.einsum("rkq,rkq->r", x, y)[:, None, None]

    def ratio(a: Any, b: Any) -> Any:
        return xp.where(b > 0, a, 0.0 * a) / xp.where(b > 0, b, 0.0 * b + 1.0)

    x = precondition(right)
    residual = right - product(x)
    z = precondition(residual)
    step, rho = z, dots(residual, z)
    goal = rtol**2 * dots(right, right)
    for _ in range(max_steps):
        if bool((dots(residual, residual) <= goal).all()):
            break
        A_step = product(step)
        alpha = ratio(rho, dots(step, A_step))
        x = x + alpha * step
        residual = residual - alpha * A_step
        z = precondition(residual)
        rho, old = dots(residual, z), rho
        step = z + ratio(rho, old) * step
    return x


def block_traces(
    diagonals: Any, L: Any, bend: Any = None, probes: Any = None, xp: Any = np
) -> tuple[Any, float, Any, Any]:
    """Sum of the inverse blocks, log-determinant, variances, and what probes say that the blocks miss."""
    inverses, log_det = block_preconditioner(diagonals, L, xp)
    missing = None
    if probes is not None and len(probes):
        x = solve_many(bend, L, probes, inverses, rtol=0.05, max_steps=10, xp=xp)
        x = x - xp.matmul(inverses, probes[..., None])[..., 0]
        missing = xp.einsum("rka,rkb->ab", x, probes) / len(probes)
    variances = (xp.matmul(L, inverses) * L).sum(-1)
    return inverses.sum(0), log_det, variances, missing


# ---------------------------------------------------------------------- curvature


@dataclass
class Curvature:
    """What the M step, the evidence and predictions need of ``A`` at the mode."""

    traces: np.ndarray  # T: of the Q x Q grid of m x m blocks of the inverse of ``A``
    log_det: float  # of ``A``; from the diagonal blocks it is an upper bound
    covariance: np.ndarray | None = None  # of each label's weights, (Q, m, m), or its diagonal, (m, Q)


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
    """The most probable whitened weights."""

    b: np.ndarray  # (m, Q); ``b @ L`` are the weights
    objective: float  # log-likelihood less half the squared length of ``b``
    point: Point  # the likelihood at these weights
    error: float  # relative size of the gradient: |b - L Z'd| / |b|
    n_steps: int  # Newton steps taken


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
