"""Loops over processes by joblib, loops over ranges by threads.

A joblib backend (Dask, Ray) moves every loop of `run` and `stream` to a cluster. Compiled loops release the
interpreter's lock and take a range ``first, last``; `in_threads` cuts it, and is all they know of threads. No
compiled loop is parallel by itself: its threads would not survive a fork, and it takes longer to compile.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs

__all__ = ["cores", "forced_threads", "in_threads", "run", "stream", "threads"]

_forced = [0]  # runs of `in_threads` inside `forced_threads`


def run(function: Callable[..., Any], tasks: Iterable[tuple], n_jobs: int | None = None) -> list[Any]:
    """Call a function once per tuple of arguments and return the results in order.

    Examples
    --------
    >>> run(pow, [(2, 3), (3, 2)])
    [8, 9]
    """
    return list(Parallel(n_jobs=n_jobs)(delayed(function)(*task) for task in tasks))


def stream(function: Callable[..., Any], tasks: Iterable[tuple], n_jobs: int | None = None) -> Iterator[Any]:
    """Call a function once per tuple of arguments and yield each result as soon as it is there, in any order.

    Examples
    --------
    >>> sorted(stream(pow, [(2, 3), (3, 2)]))
    [8, 9]
    """
    yield from Parallel(n_jobs=n_jobs, return_as="generator_unordered")(
        delayed(function)(*task) for task in tasks
    )


def threads(n_jobs: int | None = None) -> int:
    """Number of threads that ``n_jobs`` stands for: None is 1, -1 all cores, as everywhere in scikit-learn.

    Examples
    --------
    >>> threads(None), threads(3), threads(-1) >= 1
    (1, 3, True)
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # joblib's advice to whoever starts Dask workers
        return effective_n_jobs(n_jobs)


@lru_cache(maxsize=1)
def cores() -> int:
    """Cores for a loop that nobody gave a number for: all, or what NUMBA_NUM_THREADS allows.

    joblib sets that variable in its worker processes, which share the cores.

    Examples
    --------
    >>> cores() >= 1
    True
    """
    allowed = os.environ.get("NUMBA_NUM_THREADS", "")
    return min(threads(-1), int(allowed)) if allowed.isdigit() and int(allowed) > 0 else threads(-1)


@contextmanager
def forced_threads(n: int) -> Iterator[None]:
    """Inside the block `in_threads` makes ``n`` runs however little there is to do: for checks.

    Examples
    --------
    >>> with forced_threads(2):
    ...     in_threads(lambda first, last: (first, last), 4, smallest=1000)
    [(0, 2), (2, 4)]
    """
    before, _forced[0] = _forced[0], n
    try:
        yield
    finally:
        _forced[0] = before


def in_threads(
    function: Callable[[int, int], Any],
    n: int,
    n_jobs: int | None = None,
    *,
    work: np.ndarray | None = None,
    smallest: int = 1,
) -> list[Any]:
    """Call ``function(first, last)`` on runs that cover ``range(n)``; results in the order of the runs.

    The function must not depend on where the cuts lie, so that the answer is the same for any ``n_jobs``.
    With one thread, or too little to share, it is called once, without a pool.

    Parameters
    ----------
    function : callable
        Takes the first number of a run and the one after its last; releases the interpreter's lock.
    n : int
        Length of the range.
    n_jobs : int, optional
        Threads; None is 1.
    work : ndarray of shape (n + 1,), optional
        Accumulated work before each number (the offsets of bags, say), so that runs cost about the same.
    smallest : int, default=1
        Work below which a run is not worth a thread.

    Examples
    --------
    >>> in_threads(lambda first, last: (first, last), 10, 2)
    [(0, 5), (5, 10)]
    >>> in_threads(lambda first, last: (first, last), 3, 2, work=np.array([0, 8, 9, 10]))
    [(0, 1), (1, 3)]
    """
    total = float(n if work is None else work[-1] - work[0])
    most = min(n, int(total // max(smallest, 1)))
    n_runs = min(threads(n_jobs), most) if most > 1 else 1  # asking for the cores takes time of its own
    n_runs = max(1, min(_forced[0], n)) if _forced[0] else n_runs
    if n_runs == 1:
        return [function(0, n)]
    shares = np.arange(1, n_runs) / n_runs
    if work is None:
        cuts = np.round(shares * n).astype(np.int64)
    else:
        cuts = np.searchsorted(work, work[0] + shares * total)
    edges = [0, *(int(c) for c in np.unique(cuts) if 0 < c < n), n]
    with ThreadPoolExecutor(len(edges) - 1) as pool:
        return list(pool.map(function, edges[:-1], edges[1:]))
