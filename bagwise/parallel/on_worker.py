"""What the workers of a cluster do: load runs of parts, make steps over them, add up."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from bagwise.parallel.ahead import read_ahead
from bagwise.parallel.aligned import Carried, aligned, memory_used_again
from bagwise.parallel.blas import blas_threads
from bagwise.parallel.parts import Combine, Step, ordered_sum, steps

__all__ = ["load_run", "made_run", "same", "step_run", "stream_run", "sum_run"]

_MOST_READERS = 64  # threads of a worker that read ahead, at most
_limited: list[Any] = []


def _one_thread() -> None:
    """Keep matrix products of this process on one thread, for good: tasks may run side by side."""
    if not _limited:
        _limited.append(blas_threads(1))


def same(params: Carried) -> Carried:
    """Parameters, kept here for others to fetch."""
    return params


def _loaded(part: Any) -> Any:
    return aligned(part.load())


def load_run(run: list[Any]) -> Carried:
    """A run of parts from storage, to be kept here."""
    _one_thread()
    return Carried([_loaded(part) for part in run])


def made_run(data: Carried, run: list[Any]) -> Carried:
    """Parts made from others that this worker keeps."""
    _one_thread()
    return Carried([aligned(part.function(value)) for part, value in zip(run, data.value)])


def step_run(data: Carried, *, step: Step, told: Carried, combine: Combine | None) -> Carried:
    """Steps over a run of parts that this worker keeps."""
    return _put_together(step, told, data.value, combine)


def stream_run(run: list[Any], *, step: Step, told: Carried, combine: Combine | None) -> Carried:
    """Steps over a run of parts, of which two are in memory."""
    with memory_used_again():
        return _put_together(step, told, read_ahead(_loaded, run, min(1, len(run) - 1), _pool()), combine)


@cache
def _pool() -> ThreadPoolExecutor:
    """Threads that stay: Dask's profiler hangs Pythons up to 3.11.7 in which threads come and go."""
    return ThreadPoolExecutor(_MOST_READERS, thread_name_prefix="bagwise-ahead")


def _put_together(step: Step, told: Carried, loaded: Iterable[Any], combine: Combine | None) -> Carried:
    _one_thread()
    values = steps(step, told.value, loaded)
    return Carried(list(values) if combine is None else ordered_sum(values, combine))


def sum_run(run: list[Carried], *, combine: Combine) -> Carried:
    """Sum of neighbouring sums."""
    return Carried(ordered_sum((item.value for item in run), combine))
