"""Generalised EM for the union model: one gradient step on the surrogate per iteration, as in the paper.

Logits are linear in the parameters, so an iteration needs them only along the gradient. `Weights` holds the
parameters themselves. `Rows` holds ``A`` with ``W = A' X``: gradients are combinations of rows of X, so one
product with ``X X'`` takes the place of one with X and one with its transpose. With a kernel, where X has as
many columns as rows, that halves the work of the hundreds of steps that the paper takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from bagwise.models.ored.predict import log_normaliser

if TYPE_CHECKING:
    from bagwise.models.ored.fit import UnionLikelihood


def climb_em(
    problem: UnionLikelihood, *, max_iter: int, tol: float, subset: float, rng: np.random.RandomState
) -> tuple[np.ndarray, list[float]]:
    """Maximise by generalised EM from zero: a gradient step with backtracking on the surrogate each time.

    Each iteration draws the share ``subset`` of the bags. The path holds the objective before each step and,
    unless bags are drawn, after the last.
    """
    history: list[float] = []
    point = (Rows if rows_are_cheaper(problem, max_iter) else Weights)(problem)
    weights, usable, halvings = problem.weights, np.flatnonzero(problem.weights > 0), 0
    n_drawn = max(1, round(subset * len(usable)))
    for _ in range(max_iter):
        if subset < 1:
            weights = np.zeros_like(problem.weights)
            chosen = rng.choice(usable, n_drawn, replace=False)
            weights[chosen] = problem.weights[chosen]
        value, R = problem.residual(point.logits, weights)  # expectation step
        history.append(value - point.penalty())
        slope = point.look(R)
        if slope <= tol**2 * max(float(weights.sum()), 1.0) ** 2:
            break
        halvings = _halvings(Surrogate(problem, point, R, weights), slope, halvings)
        point.move(0.5**halvings)
    else:
        if subset == 1:
            history.append(problem.residual(point.logits)[0] - point.penalty())
    return point.parameters(), history


def rows_are_cheaper(problem: UnionLikelihood, max_iter: int) -> bool:
    """Whether the products with ``X X'``, and making it, cost less than those with X."""
    if sparse.issparse(problem.X):
        return False
    (n, d), n_classes = problem.X.shape, problem.Y.shape[1]
    return n * n * (d + 2 * n_classes * max_iter) < 4 * n * d * n_classes * max_iter


class Weights:
    """Parameters ``W``, their logits, and the gradient ``G`` with its logits ``D``."""

    def __init__(self, problem: UnionLikelihood) -> None:
        self.problem = problem
        self.W = np.zeros(problem.shape)
        self.logits = problem.logits(self.W)

    def look(self, R: np.ndarray) -> float:
        """Gradient at the residual R of the logits; its squared length."""
        self.G = self.problem.gradient(R, self.W)
        self.D = self.problem.logits(self.G)
        free = self.G[:, :-1]
        self.along, self.bend = float(np.vdot(self.W[:, :-1], free)), float(np.vdot(free, free))
        return self.bend + float(np.square(self.G[:, -1]).sum())

    def move(self, step: float) -> None:
        """Go some way along the gradient."""
        self.W = self.W + step * self.G
        self.logits = self.logits + step * self.D

    def penalty(self) -> float:
        """Penalty at the parameters."""
        return 0.5 * self.problem.alpha * float(np.square(self.W[:, :-1]).sum())

    def parameters(self) -> np.ndarray:
        """The parameters."""
        return self.W


class Rows:
    """The same with ``W = A' X``: never more than the products ``K A`` with ``K = X X'``."""

    def __init__(self, problem: UnionLikelihood) -> None:
        self.problem = problem
        self.K = problem.X @ problem.X.T
        self.A = np.zeros((len(self.K), problem.shape[0]))
        self.KA = np.zeros_like(self.A)
        self.intercept = np.zeros(problem.shape[0])

    @property
    def logits(self) -> np.ndarray:
        """Logits of the instances."""
        return self.KA + self.intercept

    def look(self, R: np.ndarray) -> float:
        """Gradient at the residual R of the logits; its squared length."""
        self.B = R - self.problem.alpha * self.A if self.problem.alpha else R
        self.KB = np.asarray(self.K @ self.B.astype(self.K.dtype, copy=False), dtype=np.float64)
        self.rise = R.sum(axis=0) if self.problem.fit_intercept else np.zeros(R.shape[1])
        self.D = self.KB + self.rise
        self.along, self.bend = float(np.vdot(self.KA, self.B)), float(np.vdot(self.KB, self.B))
        return self.bend + float(np.vdot(self.rise, self.rise))

    def move(self, step: float) -> None:
        """Go some way along the gradient."""
        self.A += step * self.B
        self.KA += step * self.KB
        self.intercept = self.intercept + step * self.rise

    def penalty(self) -> float:
        """Penalty at the parameters."""
        return 0.5 * self.problem.alpha * float(np.vdot(self.A, self.KA))

    def parameters(self) -> np.ndarray:
        """The parameters."""
        return np.column_stack([self.A.T @ self.problem.X, self.intercept])


class Surrogate:
    """What EM climbs, Eq. (10) of the paper, along the gradient: its gain after a step of a given length.

    The surrogate is ``sum_i w_i (Q_i . f_i - log sum_c exp f_ic)`` less the penalty. The logits ``f`` are
    linear in the length, so one product with the features serves all trials.
    """

    def __init__(self, problem: UnionLikelihood, point: Any, R: np.ndarray, weights: np.ndarray) -> None:
        self.logits, self.D = point.logits, point.D
        self.row_weights = np.repeat(weights, np.diff(problem.offsets))
        log_z = log_normaliser(self.logits)
        p = np.exp(self.logits - log_z[:, None])
        # sum_i w_i Q_i . D_i, from the residual R = w (Q - p)
        self.linear = float(np.vdot(R, self.D) + self.row_weights @ np.einsum("ic,ic->i", p, self.D))
        self.linear -= problem.alpha * point.along
        self.start = float(self.row_weights @ log_z)
        self.bend = 0.5 * problem.alpha * point.bend

    def gain(self, step: float) -> float:
        """How much a step of this length gains."""
        log_z = log_normaliser(self.logits + step * self.D)
        return step * self.linear - step * step * self.bend - float(self.row_weights @ log_z) + self.start


def _halvings(surrogate: Surrogate, slope: float, guess: int, most: int = 60) -> int:
    """How often backtracking from 1 halves the step until it gains enough (Boyd and Vandenberghe, 0.3).

    The surrogate is concave along the step, so all steps up to the longest accepted one are accepted:
    looking up or down from the previous answer finds the same one with fewer trials.
    """

    def accepted(halvings: int) -> bool:
        step = 0.5**halvings
        return surrogate.gain(step) >= 0.3 * step * slope

    if accepted(guess):
        while guess > 0 and accepted(guess - 1):
            guess -= 1
        return guess
    while guess < most:
        guess += 1
        if accepted(guess):
            break
    return guess
