"""Three ways to descend, all by L-BFGS: from one start, from many, and many whose values are one pass.

- `minimise` is SciPy's, with options that mean the same wherever it is called.
- `minimise_many` goes from many starts at once, all values and gradients from one call of the function.
  SciPy takes one start at a time; with some hundred bags and a few hundred starts nearly all of its time is
  spent between calls.
- `Lockstep` lets functions that call `minimise` wait for each other: where a value is a pass over all data,
  ten of them (one per label, say) would make ten times as many passes.

MM-MIL on shards takes the third and not the second: with `minimise_many` its objectives were as low (18 fits
on 7 sets: .6 % higher to 11 % lower, with 5 % more calls), but no published figure of it would stay.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar, copy_context
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from bagwise.compute.aligned import frozen
from bagwise.compute.compiled import kernel, part
from bagwise.compute.numeric import reordered_dot

__all__ = ["Lockstep", "Minima", "Minimum", "minimise", "minimise_many"]


class Minimum(NamedTuple):
    """Where `minimise` ended, in the shape of the start, and how it came there."""

    x: np.ndarray
    value: float
    at_rest: bool  # whether it stopped by itself, and not at max_iter
    history: list[float]  # value at the start and after every iteration


def minimise(
    function: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    *,
    max_iter: int = 15_000,
    max_calls: int = 15_000,
    tol: float = 1e-5,
    least_fall: float = 2.2204460492503131e-09,
    memory: int = 10,
    tries: int = 20,
    unit: float = 1.0,
    bounds: Any = None,
    watch: Callable[[], Any] = lambda: None,
) -> Minimum:
    """Minimise a function of an array by SciPy's L-BFGS.

    Parameters
    ----------
    function : callable
        Value and gradient at an array of the shape of ``start``.
    start : ndarray
        Where to begin.
    max_iter, max_calls : int
        Limits on iterations, and on calls of the function.
    tol : float
        Largest component of the gradient that counts as none.
    least_fall : float
        Relative decrease of the value in an iteration below which it rests.
    memory : int
        Corrections that are kept.
    tries : int
        Calls in one line search.
    unit : float
        What value and gradient are divided by before ``tol`` is applied, such as the number of bags.
    bounds : list of pairs, optional
        Least and largest value of every number of the array; None for no limit.
    watch : callable
        Called after every iteration.

    Examples
    --------
    >>> found = minimise(lambda W: (float(((W - 3.0) ** 2).sum()), 2.0 * (W - 3.0)), np.zeros((2, 1)))
    >>> found.x.round(3).tolist(), found.history[0], found.at_rest
    ([[3.0], [3.0]], 18.0, True)
    """
    history: list[float] = []

    def flat(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = function(x.reshape(start.shape))
        if not history:
            history.append(value)
        return value / unit, gradient.ravel() / unit

    def after_iteration(intermediate_result: Any) -> None:
        history.append(float(intermediate_result.fun) * unit)
        watch()

    limits = {"maxiter": max_iter, "maxfun": max_calls, "maxls": tries}
    found = minimize(
        flat,
        start.ravel(),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        callback=after_iteration,
        options={**limits, "gtol": tol, "ftol": least_fall, "maxcor": memory},
    )
    return Minimum(found.x.reshape(start.shape), float(found.fun) * unit, found.nit < max_iter, history)


# ---------------------------------------------------------------------- many starts, one call for all

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

    Every start has its own memory, step and end. One whose step was too long shortens it while the others
    move on. What is done between two calls is one compiled loop over the starts, in few words: the first fit
    waits for its compiler.

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


# ---------------------------------------------------------------------- many functions, one pass for all


_path: ContextVar[tuple[int, ...]] = ContextVar("bagwise_lockstep", default=())


class _Stopped(BaseException):
    """Ends a thread that waits for an answer which will not come."""


class _Asked:
    """A question and the lock that its thread waits at; without an answer there is none to come."""

    __slots__ = ("answer", "answered", "question", "ready")

    def __init__(self, question: Any) -> None:
        self.question, self.answer, self.answered = question, None, False
        self.ready = threading.Lock()
        self.ready.acquire()


class _Family:
    """Functions that one `Lockstep.each` runs: who waits for them, and what they came to."""

    def __init__(self, n: int, nested: bool) -> None:
        self.left, self.nested = n, nested
        self.results: list[Any] = [None] * n
        self.done = threading.Event()


class Lockstep:
    """Functions that ask, and one that answers the questions of all.

    Parameters
    ----------
    answer : callable
        Takes the list of questions of all functions that wait, in the order of the functions whatever the
        timing, and returns the list of answers.

    Examples
    --------
    >>> passes = []
    >>> def squares(questions):
    ...     passes.append(questions)
    ...     return [x * x for x in questions]
    >>> steps = Lockstep(squares)
    >>> steps.each([lambda: steps.ask(2) + steps.ask(3), lambda: steps.ask(10)])
    [13, 100]
    >>> passes
    [[2, 10], [3]]
    """

    def __init__(self, answer: Callable[[list[Any]], list[Any]]) -> None:
        self._answer = answer
        self._lock = threading.Condition()  # only the thread that answers waits for it
        self._running = 0  # threads that neither wait for an answer nor for functions of their own
        self._asked: dict[tuple[int, ...], _Asked] = {}
        self._error: BaseException | None = None

    def ask(self, question: Any) -> Any:
        """Wait for the answer to a question; called by functions inside `each`."""
        asked = _Asked(question)
        with self._lock:
            if self._error is not None:
                raise _Stopped
            self._asked[_path.get()] = asked
            self._running -= 1
            if not self._running:
                self._lock.notify()
        # each waits at a lock of its own: with one for all, every answer would wake hundreds of threads
        asked.ready.acquire()
        if not asked.answered:
            raise _Stopped
        return asked.answer

    def each(self, functions: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run functions side by side and return what they return; functions may call this themselves."""
        if not functions:
            return []
        path = _path.get()
        family = _Family(len(functions), nested=bool(path))
        threads = [
            threading.Thread(
                target=copy_context().run, args=(self._run, family, k, (*path, k), function), daemon=True
            )
            for k, function in enumerate(functions)
        ]
        with self._lock:
            self._running += len(threads) - family.nested
        for thread in threads:
            thread.start()
        if family.nested:
            family.done.wait()
            if self._error is not None:
                raise _Stopped
        else:
            try:
                self._serve(family)
            except BaseException as error:  # of the answer, or an interrupt while waiting: nobody waits on
                with self._lock:
                    self._fail(error)
            for thread in threads:
                thread.join()
            if self._error is not None:
                raise self._error
        return family.results

    def _run(self, family: _Family, k: int, path: tuple[int, ...], function: Callable[[], Any]) -> None:
        _path.set(path)
        try:
            family.results[k] = function()
        except _Stopped:
            pass
        except BaseException as error:
            with self._lock:
                self._fail(error)
        with self._lock:
            family.left -= 1
            if family.left or not family.nested:
                self._running -= 1  # else who waits for the family goes on in its place
            if not family.left:
                family.done.set()
            if not self._running:
                self._lock.notify()

    def _fail(self, error: BaseException) -> None:
        """End all threads: who waits gets no answer; called with the lock held."""
        self._error = self._error or error
        for asked in self._asked.values():
            asked.ready.release()
        self._asked.clear()
        self._lock.notify()

    def _serve(self, family: _Family) -> None:
        """Answer questions, in the thread that called first, until all functions are done."""
        while True:
            with self._lock:
                while self._error is None and self._running and family.left:
                    self._lock.wait()
                if self._error is not None or not family.left:
                    return
                paths = sorted(self._asked)
                asked = [self._asked[path] for path in paths]
            answers = self._answer([each.question for each in asked])
            with self._lock:
                self._running += len(asked)
                for each, answer in zip(asked, answers):
                    each.answer, each.answered = answer, True
                for path in paths:
                    self._asked.pop(path).ready.release()
