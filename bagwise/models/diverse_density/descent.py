"""L-BFGS from many starts at once: one call of the function for all of them.

SciPy's `minimize` takes one start at a time; with some hundred bags and a few hundred starts nearly all of
its time is spent between calls. Here every start has its own memory, step and end, but the values and
gradients of all come from one call. A start whose step was too long shortens it while the others move on.
What is done between two calls is one compiled loop over the starts, in few words: the first fit waits for
its compiler.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bagwise.compute.compiled import kernel, part
from bagwise.compute.numeric import frozen, reordered_dot

Function = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]

_MEMORY = 10  # corrections that are kept
_ENOUGH = 1e-4  # share of the decrease that the slope promises
_LEAST, _MOST = 0.1, 0.5  # factor on a step that was too long
_TRIES = 25  # steps shortened before a start counts as at rest
_GRADIENT = 1e-6  # largest component of a gradient that counts as none
_CURVED = 1e-12  # cosine of step and change of gradient below which a correction says nothing


class Minima(NamedTuple):
    """Where the starts ended, the values there, iterations, and whether each stopped by itself."""

    x: np.ndarray
    values: np.ndarray
    n_iter: np.ndarray
    at_rest: np.ndarray


class _Search(NamedTuple):
    """Where every start is, and the last corrections that it remembers, in a ring."""

    x: np.ndarray  # (n_starts, n)
    values: np.ndarray  # (n_starts,)
    G: np.ndarray  # gradients
    moves: np.ndarray  # directions of descent
    steps: np.ndarray  # how far along them the next trial is
    tries: np.ndarray  # steps shortened since the last success
    n_iter: np.ndarray
    at_rest: np.ndarray
    S: np.ndarray  # (n_starts, _MEMORY, n): steps of the corrections
    D: np.ndarray  # changes of the gradient
    weights: np.ndarray  # (n_starts, _MEMORY): one over the inner product of both; 0 in an empty place
    sizes: np.ndarray  # of the inverse Hessian; 0 while nothing is known
    newest: np.ndarray  # place of the last correction


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
    x = np.clip(np.asarray(starts, dtype=np.float64), -limit, limit)
    (k, n), live = x.shape, np.arange(len(x))
    values, G = function(x, live)
    counts, corrections = np.zeros((3, k), np.int64), np.zeros((2, k, _MEMORY, n))
    search = _Search(
        *(x, np.full(k, np.inf), np.zeros_like(x), np.zeros_like(x), np.ones(k), counts[0], counts[1]),
        *(np.zeros(k, np.bool_), *corrections, np.zeros((k, _MEMORY)), np.zeros(k), counts[2]),
    )
    limit, room, trial = frozen(np.asarray(limit, dtype=np.float64)), np.empty((2, max(n, _MEMORY))), x.copy()
    while True:
        _advance(live, trial, values, G, limit, float(tol), search, room)
        going = ~search.at_rest[live] & (search.n_iter[live] <= max_iter)  # the start counts as one
        if not going.all():
            live, trial = live[going], trial[going]
        if live.size == 0:
            return Minima(x, search.values, np.maximum(search.n_iter - 1, 0), search.at_rest)
        values, G = function(trial, live)


@kernel(error_model="numpy")
def _advance(live, trial, new, new_G, limit, tol, search, room):
    """Take the trials that came down far enough and shorten the other steps; fill in the next trials.

    The values before the first call are infinite: where a search starts is taken like a step.
    """
    x, G, n = search.x, search.G, limit.size
    for i in range(live.size):
        k = live[i]
        slope = 0.0
        for j in range(n):
            room[0, j] = trial[i, j] - x[k, j]
            room[1, j] = new_G[i, j] - G[k, j]
            slope += room[0, j] * G[k, j]
        fall = search.values[k] - new[i]
        if fall >= -_ENOUGH * slope:
            search.values[k] = new[i]
            search.n_iter[k] += 1
            search.at_rest[k] = fall <= tol * max(abs(new[i]), 1.0)
            search.steps[k] = 1.0
            search.tries[k] = 0
            _remember(k, room[0], room[1], n, search)
            for j in range(n):
                x[k, j] = trial[i, j]
                G[k, j] = new_G[i, j]
            _turn(k, limit, room[0], room[1], search)
        else:
            shorter = 0.5 * slope / (fall + slope)
            shorter = shorter if shorter > _LEAST else _LEAST  # also where it is not a number
            search.steps[k] *= shorter if shorter < _MOST else _MOST
            search.tries[k] += 1
            search.at_rest[k] = search.tries[k] > _TRIES
        for j in range(n):
            value = x[k, j] + search.steps[k] * search.moves[k, j]
            value = value if value < limit[j] else limit[j]
            trial[i, j] = value if value > -limit[j] else -limit[j]


@part(error_model="numpy")
def _remember(k, step, change, n, search):
    """Keep a correction, unless it says nothing about the curvature."""
    curvature, squares = reordered_dot(step, change, n), reordered_dot(change, change, n)
    if curvature > _CURVED * math.sqrt(reordered_dot(step, step, n) * squares):
        place = (search.newest[k] + 1) % _MEMORY
        search.newest[k] = place
        search.weights[k, place] = 1.0 / curvature
        search.sizes[k] = curvature / squares
        for j in range(n):
            search.S[k, place, j] = step[j]
            search.D[k, place, j] = change[j]


@part(error_model="numpy")
def _turn(k, limit, wanted, shares, search):
    """Set the direction of a start, and whether it is at rest since its gradient is 0.

    What stands at its limit and wants beyond it stays there. ``wanted`` and ``shares`` are room to write.
    """
    x, G, move, n = search.x[k], search.G[k], search.moves[k], limit.size
    largest = 0.0
    for j in range(n):
        stuck = x[j] >= limit[j] if G[j] < 0.0 else x[j] <= -limit[j]
        wanted[j] = 0.0 if stuck else G[j]
        largest = max(largest, abs(wanted[j]))
        move[j] = -wanted[j]
    if largest <= _GRADIENT:
        search.at_rest[k] = True
    unknown = 1.0 / max(math.sqrt(reordered_dot(wanted, wanted, n)), 1.0)
    _two_loops(k, move, search.sizes[k] if search.sizes[k] > 0.0 else unknown, shares, n, search)
    slope = 0.0
    for j in range(n):
        move[j] = 0.0 if wanted[j] == 0.0 else move[j]
        slope += move[j] * wanted[j]
    if not slope < 0.0:  # uphill: begin again
        search.sizes[k] = 0.0
        for j in range(_MEMORY):
            search.weights[k, j] = 0.0
        for j in range(n):
            move[j] = -wanted[j] * unknown


@part(error_model="numpy")
def _two_loops(k, move, size, shares, n, search):
    """The two loops of L-BFGS: what comes as minus the gradient leaves as a direction."""
    place = search.newest[k]
    for _ in range(_MEMORY):
        shares[place] = search.weights[k, place] * reordered_dot(search.S[k, place], move, n)
        for j in range(n):
            move[j] -= shares[place] * search.D[k, place, j]
        place = place - 1 if place > 0 else _MEMORY - 1
    for j in range(n):
        move[j] *= size
    for _ in range(_MEMORY):  # the oldest first
        place = place + 1 if place + 1 < _MEMORY else 0
        share = shares[place] - search.weights[k, place] * reordered_dot(search.D[k, place], move, n)
        for j in range(n):
            move[j] += share * search.S[k, place, j]
