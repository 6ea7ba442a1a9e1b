"""The only place that knows joblib; a joblib backend (Dask, Ray) moves every loop here to a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from joblib import Parallel, delayed, effective_n_jobs

__all__ = ["effective_n_jobs", "run", "stream"]


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
