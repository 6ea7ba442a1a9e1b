"""Threads that stay for the length of a fit, each with matrix products of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from bagwise.parallel.blas import blas_threads, libraries
from bagwise.parallel.local import threads

__all__ = ["Workers"]


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
