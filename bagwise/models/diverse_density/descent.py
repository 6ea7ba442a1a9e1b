"""L-BFGS from many starts at once: one call of the function for all of them.

SciPy's `minimize` takes one start at a time; with some hundred bags and a few hundred starts nearly all of
its time is spent between calls. Here every start has its own memory, step and end, but the values and
gradients of all come from one call. A start whose step was too long shortens it while the others move on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Function = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]

_MEMORY = 10  # corrections that are kept
_ENOUGH = 1e-4  # share of the decrease that the slope promises
_SHORTEN = (0.1, 0.5)  # least and largest factor on a step that was too long
_TRIES = 25  # steps shortened before a start counts as at rest
_GRADIENT = 1e-6  # largest component of a gradient that counts as none
_CURVED = 1e-12  # cosine of step and change of gradient below which a correction says nothing


class Minima(NamedTuple):
    """Where the starts ended, the values there, iterations, and whether each stopped by itself."""

    x: np.ndarray
    values: np.ndarray
    n_iter: np.ndarray
    at_rest: np.ndarray


class _Memory:
    """The last corrections of every start, newest last; empty places have the weight 0."""

    def __init__(self, n_starts: int, n: int) -> None:
        self.steps = np.zeros((_MEMORY, n_starts, n))
        self.changes = np.zeros((_MEMORY, n_starts, n))
        self.weights = np.zeros((_MEMORY, n_starts))
        self.size = np.zeros(n_starts)  # of the inverse Hessian; 0 while nothing is known

    def add(self, which: np.ndarray, step: np.ndarray, change: np.ndarray) -> None:
        curvature = _dot(step, change)
        squares = _dot(change, change)
        with np.errstate(invalid="ignore"):
            useful = curvature > _CURVED * np.sqrt(_dot(step, step) * squares)
        which, step, change = which[useful], step[useful], change[useful]
        for room, new in (
            (self.steps, step),
            (self.changes, change),
            (self.weights, 1.0 / curvature[useful]),
        ):
            room[:-1, which] = room[1:, which]
            room[-1, which] = new
        self.size[which] = curvature[useful] / squares[useful]

    def forget(self, which: np.ndarray) -> None:
        self.weights[:, which] = 0.0
        self.size[which] = 0.0

    def direction(self, which: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Minus the inverse Hessian times the gradient, by the two loops of L-BFGS."""
        S, D, weights = self.steps[:, which], self.changes[:, which], self.weights[:, which]
        r, shares = gradient.copy(), np.empty_like(weights)
        for k in range(_MEMORY - 1, -1, -1):
            shares[k] = weights[k] * _dot(S[k], r)
            r -= shares[k][:, None] * D[k]
        size = self.size[which]
        r *= np.where(size > 0, size, 1.0 / np.maximum(np.sqrt(_dot(gradient, gradient)), 1.0))[:, None]
        for k in range(_MEMORY):
            r += (shares[k] - weights[k] * _dot(D[k], r))[:, None] * S[k]
        return -r


def minimise_many(
    function: Function, starts: np.ndarray, limit: np.ndarray, *, max_iter: int, tol: float
) -> Minima:
    """Minimise one function from many starts, each by L-BFGS within ``-limit <= x <= limit``.

    Parameters
    ----------
    function : callable
        ``function(x, which)`` gives values (k,) and gradients (k, n) at the rows of x; ``which`` are the
        numbers of the starts that the rows belong to.
    starts : ndarray of shape (n_starts, n)
        Where to begin.
    limit : ndarray of shape (n,)
        Largest absolute value of each variable; infinity for none.
    max_iter : int
        Limit on the iterations of each start.
    tol : float
        Relative decrease of the value at which a start rests.

    Examples
    --------
    >>> def bowl(x, which):
    ...     return ((x - 3.0) ** 2).sum(axis=1), 2.0 * (x - 3.0)
    >>> found = minimise_many(bowl, np.zeros((2, 2)), np.array([np.inf, 1.0]), max_iter=50, tol=1e-9)
    >>> found.x.round(6).tolist(), found.values.round(6).tolist()
    ([[3.0, 1.0], [3.0, 1.0]], [4.0, 4.0])
    """
    x = np.clip(starts, -limit, limit)
    n_starts = len(x)
    every = np.arange(n_starts)
    values, G = function(x, every)
    memory = _Memory(*x.shape)
    n_iter, tries = np.zeros(n_starts, np.int64), np.zeros(n_starts, np.int64)
    steps, moves, at_rest = np.ones(n_starts), np.zeros_like(x), np.zeros(n_starts, bool)
    at_rest[:] = np.abs(_free(x, G, limit)).max(axis=1, initial=0.0) <= _GRADIENT
    live = every[~at_rest]
    moves[live] = _moves(memory, live, x[live], G[live], limit)
    while live.size:
        trial = np.clip(x[live] + steps[live, None] * moves[live], -limit, limit)
        new, new_G = function(trial, live)
        change = trial - x[live]
        slope = _dot(G[live], change)
        good = new <= values[live] + _ENOUGH * slope
        # those that came down
        won = live[good]
        fall = values[won] - new[good]
        memory.add(won, change[good], new_G[good] - G[won])
        x[won], values[won], G[won] = trial[good], new[good], new_G[good]
        n_iter[won] += 1
        tries[won], steps[won] = 0, 1.0
        flat = np.abs(_free(x[won], G[won], limit)).max(axis=1, initial=0.0) <= _GRADIENT
        at_rest[won] = flat | (fall <= tol * np.maximum(np.abs(values[won]), 1.0))
        # those that went too far
        lost = live[~good]
        tries[lost] += 1
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            shorter = -0.5 * slope[~good] / (new[~good] - values[lost] - slope[~good])
        steps[lost] *= np.clip(np.where(np.isfinite(shorter), shorter, 0.0), *_SHORTEN)
        at_rest[lost] = tries[lost] > _TRIES
        won = won[~at_rest[won]]
        moves[won] = _moves(memory, won, x[won], G[won], limit)
        live = live[~at_rest[live] & (n_iter[live] < max_iter)]
    return Minima(x, values, n_iter, at_rest)


def _moves(memory: _Memory, which: np.ndarray, x: np.ndarray, G: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Directions of descent; what stands at its limit and wants beyond it stays there."""
    wanted = _free(x, G, limit)
    moves = np.where(wanted != 0.0, memory.direction(which, wanted), 0.0)
    slope = _dot(moves, wanted)
    uphill = ~(slope < 0.0)
    if uphill.any():
        memory.forget(which[uphill])
        moves[uphill] = np.where(wanted[uphill] != 0.0, memory.direction(which[uphill], wanted[uphill]), 0.0)
    return moves


def _free(x: np.ndarray, G: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """The gradient, 0 where a variable stands at its limit and would go beyond."""
    stuck = ((x >= limit) & (G < 0.0)) | ((x <= -limit) & (G > 0.0))
    return np.where(stuck, 0.0, G)


def _dot(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ij->i", A, B)
