"""Three ways to minimise Eq. (7) of MM-MIL; each keeps the best point it meets, its start included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from bagwise.compute.optim import minimise
from bagwise.compute.threads import small_products
from bagwise.models.mm_mil.objective import (
    activations,
    log_expert,
    objective,
    sp1,
    sp2,
    sp2_tight,
    tight_weights,
    witnesses,
)
from bagwise.models.mm_mil.problem import Problem
from bagwise.models.mm_mil.start import starting_points

SHARPNESS = (1.0, 3.0, 10.0, 30.0)
_MEMORY = 20  # corrections kept by L-BFGS
_TRIAL, _FINISH = 20, 2  # iterations of a start on trial; how many starts are brought to an end
_INNER = 10  # alternations of SP1 and SP2 for one choice of instances
_SUB_ITERATIONS = 50  # of L-BFGS in one sub-problem


class Solution(NamedTuple):
    """Best parameters met, Eq. (7) there, and how the solver came to them.

    ``history`` is Eq. (7) at the start, after every iteration, and at ``P``; ``at_rest`` says whether the
    solver stopped by itself.
    """

    P: np.ndarray
    value: float
    history: list[float]
    at_rest: bool


def solve(problem: Any, starts: list[np.ndarray], solver: str, max_iter: int, tol: float) -> Solution:
    """Minimise Eq. (7) from several starts by the solver of this name."""
    if solver == "smooth":
        return solve_smooth(problem, starts, max_iter, tol)
    runs = [solve_em(problem, P, max_iter, tol, printed=solver == "paper") for P in starts]
    return min(runs, key=lambda run: run.value)


def learn_label(labels: np.ndarray, Phi: Any, offsets: np.ndarray, settings: dict[str, Any]) -> Solution:
    """Start and solve for one label in memory."""
    labels = labels.astype(np.float64)
    problem = Problem(Phi, offsets, labels, settings["n_clusters"], settings["lam"], settings["beta"])
    with small_products(Phi.shape[0] * Phi.shape[1] * 2 * problem.n_clusters):
        return start_and_solve(problem, settings)


def start_and_solve(problem: Any, settings: dict[str, Any]) -> Solution:
    """Start and solve for one label; the same settings and seed give the same model."""
    rng = np.random.RandomState(settings["seed"])
    starts = starting_points(problem, settings["n_init"], rng)
    return solve(problem, starts, settings["solver"], settings["max_iter"], settings["tol"])


def solve_smooth(problem: Any, starts: list[np.ndarray], max_iter: int, tol: float) -> Solution:
    """Soft maximum of growing sharpness, L-BFGS over all parameters at once.

    All starts go through some iterations with the softest maxima; those with the lowest Eq. (7) go on.
    """
    runs = [_Descent(problem, P) for P in starts]
    on_trial = len(runs) > _FINISH
    if on_trial:
        problem.each([partial(run.stages, SHARPNESS[:2], min(max_iter, _TRIAL), tol) for run in runs])
    else:
        problem.each([run.begin for run in runs])
    runs = sorted(runs, key=lambda run: run.objective.best_value)[:_FINISH]
    # the first stage of those on trial is behind them
    problem.each([partial(run.stages, SHARPNESS[on_trial:], max_iter, tol) for run in runs])
    best = min(runs, key=lambda run: run.objective.best_value)
    value, x = best.objective.best_value, best.objective.best
    assert x is not None  # every run has looked at its start
    return Solution(x.reshape(best.objective.shape), value, [*best.history, value], best.at_rest)


class _Descent:
    """L-BFGS in stages from one start."""

    def __init__(self, problem: Any, P: np.ndarray) -> None:
        self.objective = problem.smooth()
        self.x = P.ravel()
        self.history: list[float] = []
        self.at_rest = False

    def begin(self) -> None:
        """Look at the start."""
        self.objective(self.x)
        self.history = [self.objective.hard]

    def stages(self, sharpness: Sequence[float], max_iter: int, tol: float) -> None:
        """Descend at one sharpness after the other."""
        if not self.history:
            self.begin()
        for v in sharpness:
            self.descend(v, max_iter, tol)

    def descend(self, sharpness: float, max_iter: int, tol: float) -> None:
        self.objective.sharpness = sharpness
        found = minimise(
            self.objective,
            self.x,
            max_iter=max_iter,
            memory=_MEMORY,
            least_fall=tol,
            tol=1e-6,
            tries=40,
            watch=lambda: self.history.append(self.objective.hard),
        )
        self.x, self.at_rest = found.x, found.at_rest


def solve_em(problem: Problem, P: np.ndarray, max_iter: int, tol: float, *, printed: bool) -> Solution:
    """Hard E-step, Eq. (8), then SP1 and SP2 in turn on the chosen instances.

    Parameters
    ----------
    problem : Problem
        What to solve.
    P : array
        Start.
    max_iter : int
        Limit on the choices of instances.
    tol : float
        Relative change of the sub-problems below which their alternation stops.
    printed : bool
        Eqs. (11) and (12) as they stand, weights the gate's probabilities; otherwise the weights for which
        the bound touches Eq. (9), which makes SP2 a softmax regression.
    """
    Phi, offsets, labels, _, lam, beta = problem
    best, value = P, objective(P, Phi, offsets, labels, lam, beta)
    history = [value]
    seen: set[bytes] = set()
    at_rest = False
    for _ in range(max_iter):
        rows = witnesses(activations(Phi, P), offsets)
        at_rest = rows.tobytes() in seen  # a fixed point, or a cycle of choices
        if at_rest:
            break
        seen.add(rows.tobytes())
        chosen = Phi[rows].toarray() if hasattr(Phi, "indptr") else Phi[rows]
        Z = np.column_stack([chosen, np.ones(len(rows))])
        P = _m_step(P, Z, labels, lam, beta, tol, printed)
        history.append(objective(P, Phi, offsets, labels, lam, beta))
        if history[-1] < value:
            best, value = P, history[-1]
    return Solution(best, value, [*history, value], at_rest)


def _m_step(
    P: np.ndarray, Z: np.ndarray, labels: np.ndarray, lam: float, beta: float, tol: float, printed: bool
) -> np.ndarray:
    """SP1 and SP2 in turn until their sum rests; ``Z`` are the chosen instances with a constant column."""
    T, W = np.hsplit(P, 2)
    before = np.inf
    for _ in range(_INNER):
        F = Z @ np.hstack([T, W])
        if printed:
            T, _ = _minimise(sp1, T, Z, labels, softmax(F[:, T.shape[1] :], axis=1), beta)
            W, now = _minimise(sp2, W, Z, log_expert(Z @ T, labels), lam)
        else:
            q = tight_weights(F, labels)
            T, of_experts = _minimise(sp1, T, Z, labels, q, beta)
            W, now = _minimise(sp2_tight, W, Z, q, lam)
            now += of_experts
        if abs(before - now) <= tol * max(abs(now), 1.0):
            break
        before = now
    return np.hstack([T, W])


def _minimise(
    function: Callable[..., tuple[float, np.ndarray]], start: np.ndarray, *arguments: Any
) -> tuple[np.ndarray, float]:
    """L-BFGS over a matrix, the first argument of the function; point and value."""
    found = minimise(lambda x: function(x, *arguments), start, max_iter=_SUB_ITERATIONS)
    return found.x, found.value
