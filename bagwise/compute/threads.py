"""Loops over processes by joblib, loops over ranges by threads.

A joblib backend (Dask, Ray) moves every loop of `run` and `stream` to a cluster. Compiled loops release the
interpreter's lock and take a range ``first, last``; `in_threads` cuts it, and is all they know of threads. No
compiled loop is parallel by itself: its threads would not survive a fork, and it takes longer to compile.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import lru_cache
from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from scipy import sparse
from threadpoolctl import ThreadpoolController

__all__ = ["Workers", "cores", "forced_threads", "in_threads", "read_ahead", "run", "stream", "threads"]


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


# ----------------------------------------------------------------------
# Threads of libraries: matrix products on one core where more would only wait, OpenMP as asked for


# Below this many multiplications a product is done before a second thread has woken up; on a busy machine
# threads that wait for each other made small fits thirty times slower.
_WORTH_A_THREAD = 2e8


def small_products(multiplications: float) -> AbstractContextManager[Any]:
    """Keep BLAS on one thread inside the block if its products are small.

    Parameters
    ----------
    multiplications : float
        Of one typical product inside the block.
    """
    if multiplications >= _WORTH_A_THREAD:
        return nullcontext()
    return libraries().limit(limits=1, user_api="blas")


def product_size(X: Any, n_classes: int) -> float:
    """Multiplications in one product of the features with the weights."""
    return n_classes * float(X.nnz if sparse.issparse(X) else X.size)


def blas_threads(n: int) -> AbstractContextManager[Any]:
    """Keep BLAS on so many threads, from now to the end of the block."""
    return libraries().limit(limits=n, user_api="blas")


@contextmanager
def torch_threads(multiplications: float) -> Iterator[None]:
    """Keep torch on one core inside the block if its products are small, for the same reason."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1 if multiplications < _WORTH_A_THREAD else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def openmp_threads(n_jobs: int | None) -> AbstractContextManager[Any]:
    """Keep OpenMP, as k-means of scikit-learn uses it, on so many threads inside the block; None is 1.

    A process that was forked from one whose OpenMP had several threads hangs in its own first loop.
    """
    return libraries().limit(limits=threads(n_jobs), user_api="openmp")


_libraries: tuple[int, Any] = (0, None)


def libraries() -> ThreadpoolController:
    """Libraries in memory that have threads of their own.

    Looking for them takes as long as a small fit, and only imports bring new ones.
    """
    global _libraries
    if _libraries[0] != len(sys.modules):
        _libraries = len(sys.modules), ThreadpoolController()
    return _libraries[1]


# ----------------------------------------------------------------------
# Threads that stay for the length of a fit, each with matrix products of its own


class Workers:
    """A few threads for many short rounds of work, such as the batches of a training.

    Inside the ``with`` block the matrix library is kept to one thread per call: several products side by side
    are faster than one product spread over all cores. With one thread there is no pool at all.

    Parameters
    ----------
    n_jobs : int, optional
        Threads, as for `threads`; None takes as many as the matrix library would have used.
    most : int, optional
        Threads beyond which there is nothing to share.

    Examples
    --------
    >>> with Workers(2) as workers:
    ...     workers.map(lambda x: x * x, range(4))
    [0, 1, 4, 9]
    """

    def __init__(self, n_jobs: int | None = None, most: int | None = None) -> None:
        if n_jobs is None:
            known = libraries().info()
            wanted = max((lib["num_threads"] for lib in known if lib["user_api"] == "blas"), default=1)
        else:
            wanted = threads(n_jobs)
        self.n_threads = max(1, wanted if most is None else min(wanted, most))
        self._pool: ThreadPoolExecutor | None = None
        self._open = ExitStack()

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """Results in the order of the items."""
        items = list(items)
        if self._pool is None or len(items) == 1:
            return [function(item) for item in items]
        return list(self._pool.map(function, items))

    def __enter__(self) -> Workers:
        self._open.enter_context(blas_threads(1))
        if self.n_threads > 1:
            self._pool = self._open.enter_context(ThreadPoolExecutor(self.n_threads))
        return self

    def __exit__(self, *error: Any) -> None:
        self._pool = None
        self._open.close()


# ----------------------------------------------------------------------
# The next thing is made in a thread of its own while the last is worked on


def read_ahead(
    make: Callable[[Any], Any],
    items: Iterable[Any],
    ahead: int = 1,
    pool: ThreadPoolExecutor | None = None,
) -> Iterator[Any]:
    """Yield ``make(item)`` of every item in order, ``ahead`` of them being made meanwhile.

    Parameters
    ----------
    make : callable
        Takes an item; releases the interpreter's lock while it reads or decodes.
    items : iterable
        The items.
    ahead : int, default=1
        How many are made beyond the one that was given out; 0 makes each when it is asked for.
    pool : ThreadPoolExecutor, optional
        Threads to make them in, which stay; by default threads of its own, which end with it.

    Examples
    --------
    >>> list(read_ahead(str.upper, "abc"))
    ['A', 'B', 'C']
    """
    if ahead < 1:
        yield from map(make, items)
        return
    threads = pool or ThreadPoolExecutor(ahead, thread_name_prefix="bagwise-ahead")
    waiting: deque[Future[Any]] = deque()
    try:
        for item in items:
            waiting.append(threads.submit(make, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        wait([future for future in waiting if not future.cancel()])
        if pool is None:
            threads.shutdown(wait=True)
