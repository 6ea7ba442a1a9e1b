"""Clusters: the only place that knows Dask.

The scheduler places tasks, no future is tied to a worker and no data are scattered: a part is loaded from
storage by a task with a key of its own, so that a lost worker costs a reload and no more. A task works on a
run of parts, as many as keep the scheduler from being the bottleneck, and adds them up; sums of runs are
added by further tasks. All of it are branches of the tree of `ordered_sum`, so the result has the bits of a
fit on one machine, whatever the length of the runs.
"""

from __future__ import annotations

import hashlib
import itertools
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

from threadpoolctl import threadpool_limits

from bagwise.errors import BagwiseError, OptionalDependencyError
from bagwise.parallel.ahead import read_ahead
from bagwise.parallel.aligned import Carried, aligned
from bagwise.parallel.parts import Combine, Parts, Step, current_engine, ordered_sum, report_part, steps

__all__ = ["Cluster", "on_cluster"]

RETRIES = 10  # of a task whose worker died or whose storage failed
GATHERED = 32  # sums that the driver adds up itself; more are added by tasks, as many each
_SHARE = 0.5  # of the workers' memory that parts may take to be kept there between passes
_TASK_SECONDS = 5e-3  # that the scheduler takes for a task, see benchmarks/scale.py simulate
_BYTE_SECONDS = 1.5e-9  # that a step takes for a byte of a part, roughly
_LONGEST = 30.0  # seconds of a task: what a worker's death may cost
_MOST_READERS = 64  # threads of a worker that read ahead, at most
_numbers = itertools.count()


@contextmanager
def on_cluster(client: Any, *, loops: bool = True) -> Iterator[Cluster]:
    """Inside the block, fits on shards and the loops of searches run on a Dask cluster.

    Parameters
    ----------
    client : Client, cluster, or str
        A ``distributed.Client``; a cluster that one can be made of (``LocalCluster``, ``SLURMCluster``,
        ``KubeCluster``, ...); the address of a scheduler (``"tcp://scheduler:8786"``); or ``"local:4"`` for
        four processes on this machine.
    loops : bool, default=True
        Whether the loops that take ``n_jobs`` (searches, one label against the rest, folds, suites) go
        there too.

    Yields
    ------
    Cluster
        With ``dashboard_link`` and ``n_workers``.

    Examples
    --------
    >>> import bagwise  # doctest: +SKIP
    >>> with bagwise.on_cluster("local:2"):  # doctest: +SKIP
    ...     model.fit(shards)
    """
    from joblib import parallel_config

    made, client = _client(client)
    cluster = Cluster(client)
    token = current_engine.set(cluster)
    try:
        if loops:
            with parallel_config(backend="dask", client=client, wait_for_workers_timeout=60):
                yield cluster
        else:
            yield cluster
    finally:
        current_engine.reset(token)
        cluster.forget()
        for thing in made:
            thing.close()


def _client(given: Any) -> tuple[list[Any], Any]:
    """A client, and what has to be closed afterwards because it was made here."""
    try:
        import dask
        from distributed import Client, LocalCluster
    except ImportError:
        raise OptionalDependencyError("clusters need Dask: pip install 'bagwise[dask]'") from None
    if isinstance(given, Client):
        return [], given
    if isinstance(given, str) and given.startswith("local"):
        number = given.partition(":")[2]
        if not number.isdigit() or int(number) < 1:
            raise BagwiseError(f"{given!r} is no cluster; write local:4 for four processes on this machine")
        # a part whose worker was killed is not to blame for it
        with dask.config.set({"distributed.scheduler.allowed-failures": 100}):
            local = LocalCluster(n_workers=int(number), threads_per_worker=1, dashboard_address=":0")
        return [client := Client(local), local], client
    try:
        client = Client(given, timeout=30)
    except (OSError, ValueError, TypeError) as error:
        raise BagwiseError(f"no Dask scheduler at {given!r}: {error}") from None
    return [client], client


class _Plan(NamedTuple):
    """How the parts of some data go to the workers."""

    key: str  # of the data
    length: int  # of a run
    runs: list[Any]  # parts, or futures of them where workers keep them
    keep: bool


def run_length(n_parts: int, part_bytes: float, n_threads: int) -> int:
    """Parts per task, a power of two: the shortest pass, with what tasks cost and workers wait for the last.

    Examples
    --------
    >>> run_length(76, 128 << 20, 2), run_length(76, 1000, 2)
    (2, 64)
    >>> run_length(29_800, 128 << 20, 1000)  # 4 TB
    32
    """
    each = part_bytes * _BYTE_SECONDS

    def seconds(length: int) -> float:
        n_tasks = -(-n_parts // length)
        return -(-n_tasks // n_threads) * length * each + n_tasks * _TASK_SECONDS

    lengths = [2**k for k in range(n_parts.bit_length()) if k == 0 or 2**k * each <= _LONGEST]
    return min(lengths, key=seconds)


class Cluster:
    """Steps over parts as Dask tasks.

    Parameters
    ----------
    client : distributed.Client
        The connection to the scheduler.
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        self._plan: _Plan | None = None  # of the last data that were used

    @property
    def dashboard_link(self) -> str:
        """Where the cluster can be watched."""
        return str(self.client.dashboard_link)

    @property
    def n_workers(self) -> int:
        """Number of workers there are now."""
        return len(self.client.scheduler_info(n_workers=-1)["workers"])

    def forget(self) -> None:
        """Let go of parts that workers keep."""
        self._plan = None

    def each(self, step: Step, params: Any, parts: Parts) -> Iterator[Any]:
        """Results of all parts, in order."""
        futures, done = self._submit(step, params, parts, None), 0
        for k in range(len(futures)):
            for value in self._result(futures[k]).value:
                done += 1
                yield value
            futures[k] = None
            report_part(step, done, len(parts))

    def total(self, step: Step, params: Any, parts: Parts, combine: Combine) -> Any:
        """Results of all parts put together in the order of `ordered_sum`."""
        values = self._submit(step, params, parts, combine)
        while len(values) > GATHERED:
            runs = [values[k : k + GATHERED] for k in range(0, len(values), GATHERED)]
            values = self._map("sum", _sum, runs, combine=combine)

        def results() -> Iterator[Any]:
            for k, future in enumerate(values):
                yield self._result(future).value
                report_part(step, len(parts) * (k + 1) // len(values), len(parts))

        return ordered_sum(results(), combine)

    # ------------------------------------------------------------------ tasks

    def _submit(self, step: Step, params: Any, parts: Parts, combine: Combine | None) -> list[Any]:
        """Futures of the runs of parts: sums, or lists of results if nothing puts them together."""
        plan = self._planned(parts)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # parameters are as large as they are
            # arrays that Dask itself sends begin anywhere, even amid a number
            name = self._name("params")
            told = self.client.submit(_told, Carried(params), key=name, retries=RETRIES, pure=False)
            name = getattr(getattr(step, "func", step), "__name__", "step")
            over = _step_run if plan.keep else _stream_run
            return self._map(name, over, plan.runs, step=step, told=told, combine=combine)

    def _map(self, name: str, function: Any, items: list[Any], **common: Any) -> list[Any]:
        """One task per item, in one message to the scheduler."""
        name = self._name(name)
        keys = [f"{name}-{k}" for k in range(len(items))]
        return list(
            self.client.map(function, items, key=keys, retries=RETRIES, pure=False, batch_size=None, **common)
        )

    def _planned(self, parts: Parts) -> _Plan:
        """Runs of parts, kept on the workers where there is room for them."""
        threads = max(1, sum(self.client.nthreads().values()))
        n_bytes = sum(part.n_bytes for part in parts.items)
        length = run_length(len(parts), n_bytes / len(parts), threads)
        known = self._plan
        # workers come and go; only many more of them are worth loading the parts in other runs
        if known is not None and known.key == parts.key and length > known.length // 4:
            return known
        self._plan = known = None  # what another pass worked on makes room first
        runs: list[Any] = [parts.items[k : k + length] for k in range(0, len(parts), length)]
        keep = 2.0 * n_bytes < _SHARE * self._memory()
        if keep:
            keys = ["run-" + "".join(p.key for p in run) for run in runs]
            keys = [f"run-{hashlib.sha256(key.encode()).hexdigest()}" for key in keys]
            runs = list(self.client.map(_load_run, runs, key=keys, retries=RETRIES, pure=False))
        self._plan = _Plan(parts.key, length, runs, keep)
        return self._plan

    def _memory(self) -> float:
        """Bytes that all workers may take."""
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        return float(sum(worker.get("memory_limit") or 0 for worker in workers))

    def _result(self, future: Any) -> Any:
        """The result of a task; one whose workers died too often for the scheduler is asked for again."""
        from distributed import KilledWorker

        for attempt in range(RETRIES + 1):
            try:
                return future.result()
            except KilledWorker:
                if attempt == RETRIES:
                    raise BagwiseError(
                        f"{future.key} lost its worker {RETRIES} times over; the parts may be too large for "
                        "the workers' memory: write smaller ones (part_bytes), or give workers more"
                    ) from None
                future.retry()
        raise AssertionError("not reached")

    @staticmethod
    def _name(what: str) -> str:
        import os

        return f"{what}-{os.getpid()}-{next(_numbers)}"


# ---------------------------------------------------------------------- on the workers

_limited: list[Any] = []


def _one_thread() -> None:
    """Keep matrix products of this process on one thread, for good: tasks may run side by side."""
    if not _limited:
        _limited.append(threadpool_limits(1, user_api="blas"))


def _told(params: Carried) -> Carried:
    return params


def _loaded(part: Any) -> Any:
    return aligned(part.load())


def _load_run(run: list[Any]) -> Carried:
    _one_thread()
    return Carried([_loaded(part) for part in run])


def _step_run(data: Carried, *, step: Step, told: Carried, combine: Combine | None) -> Carried:
    """Steps over a run of parts that this worker keeps."""
    return _put_together(step, told, data.value, combine)


def _stream_run(run: list[Any], *, step: Step, told: Carried, combine: Combine | None) -> Carried:
    """Steps over a run of parts, of which two are in memory."""
    return _put_together(step, told, read_ahead(_loaded, run, min(1, len(run) - 1), _pool()), combine)


@cache
def _pool() -> ThreadPoolExecutor:
    """Threads that stay: Dask's profiler hangs Pythons up to 3.11.7 in which threads come and go."""
    return ThreadPoolExecutor(_MOST_READERS, thread_name_prefix="bagwise-ahead")


def _put_together(step: Step, told: Carried, loaded: Iterable[Any], combine: Combine | None) -> Carried:
    _one_thread()
    values = steps(step, told.value, loaded)
    return Carried(list(values) if combine is None else ordered_sum(values, combine))


def _sum(run: list[Carried], *, combine: Combine) -> Carried:
    return Carried(ordered_sum((item.value for item in run), combine))
