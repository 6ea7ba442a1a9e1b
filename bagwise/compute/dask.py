"""Clusters: the only place that knows Dask.

No data are scattered: a part is loaded from storage by a task with a key of its own, so that a lost worker
costs a reload and no more. A task works on a run of parts, as many as keep the scheduler from being the
bottleneck, and adds them up; sums of runs are added by further tasks. All of it are branches of the tree of
`ordered_sum`, so the result has the bits of a fit on one machine, whatever the length of the runs.

Runs that stay on workers are loaded evenly, each by a worker that is asked for and may be passed over; all
else goes where its data are. Dask would wait for a worker that was asked for when all of them went at once:
then the pass is made again.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from joblib import parallel_config

from bagwise.compute.aligned import Carried, aligned, memory_used_again
from bagwise.compute.parts import Combine, Parts, Step, current_engine, ordered_sum, report_part, steps
from bagwise.compute.threads import blas_threads, read_ahead
from bagwise.errors import BagwiseError, OptionalDependencyError

__all__ = ["Cluster", "load_run", "made_run", "on_cluster", "same", "step_run", "stream_run", "sum_run"]


RETRIES = 10  # of a task whose worker died or whose storage failed
GATHERED = 32  # sums that the driver adds up itself; more are added by tasks, as many each
_SHARE = 0.5  # of the workers' memory that parts may take to be kept there between passes
_TASK_SECONDS = 5e-3  # that the scheduler takes for a task, see benchmarks/scale.py simulate
_BYTE_SECONDS = 1.5e-9  # that a step takes for a byte of a part, roughly
_LONGEST = 30.0  # seconds of a task: what a worker's death may cost
_PATIENCE = 10.0  # seconds after which to look whether a task still can be done
_SMALL = 5e4  # bytes of parameters that go with every task
_numbers = itertools.count()
_LOCAL = {  # settings of processes on this machine
    "distributed.deploy.lost-worker-timeout": "1 day",  # one that was killed may take a while to start again
    "distributed.scheduler.allowed-failures": 100,  # a part whose worker was killed is not to blame for it
    "distributed.worker.profile.enabled": False,  # it interrupts steps a hundred times a second
    # Dask has memory given back at once, and a step that asks for as much again waits for cleared pages
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 1 << 28,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 1 << 25,
}


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
    with ExitStack() as stack:
        client = _client(client, stack)
        cluster = Cluster(client)
        token = current_engine.set(cluster)
        stack.callback(cluster.forget)
        stack.callback(current_engine.reset, token)
        if loops:
            stack.enter_context(parallel_config(backend="dask", client=client, wait_for_workers_timeout=60))
        yield cluster


def _client(given: Any, stack: ExitStack) -> Any:
    """A client; what is made here is closed with the stack."""
    try:
        import dask
        from distributed import Client, LocalCluster
    except ImportError:
        raise OptionalDependencyError("clusters need Dask: pip install 'bagwise[dask]'") from None
    if isinstance(given, Client):
        return given
    if isinstance(given, str) and given.startswith("local"):
        number = given.partition(":")[2]
        if not number.isdigit() or int(number) < 1:
            raise BagwiseError(f"{given!r} is no cluster; write local:4 for four processes on this machine")
        stack.enter_context(dask.config.set(_LOCAL))
        local = LocalCluster(n_workers=int(number), threads_per_worker=1, dashboard_address=":0")
        return stack.enter_context(Client(stack.enter_context(local)))
    try:
        return stack.enter_context(Client(given, timeout=30))
    except (OSError, ValueError, TypeError) as error:
        raise BagwiseError(f"no Dask scheduler at {given!r}: {error}") from None


class _Plan(NamedTuple):
    """How the parts of some data go to the workers."""

    key: str  # of the data
    length: int  # of a run
    runs: list[Any]  # parts, or futures of them where workers keep them
    owners: list[str] | None  # workers that were asked to keep them, None where each pass loads them


def run_length(part_bytes: Any, n_threads: int) -> int:
    """Parts per task, a power of two: the shortest pass, with what tasks cost and workers wait for the last.

    Examples
    --------
    >>> run_length([128 << 20] * 76, 2), run_length([1000] * 76, 2)
    (2, 64)
    >>> run_length([128 << 20] * 22 + [50 << 20], 2)  # longer runs would leave one less to do
    1
    >>> run_length([128 << 20] * 29_800, 1000)  # 4 TB
    32
    """
    each = np.asarray(part_bytes, dtype=float) * _BYTE_SECONDS

    def seconds(length: int) -> float:
        runs = np.add.reduceat(each, np.arange(0, len(each), length))
        turns = np.append(runs, np.zeros(-len(runs) % n_threads)).reshape(-1, n_threads)
        return float(turns.sum(axis=0).max() + len(runs) * _TASK_SECONDS)

    lengths = [2**k for k in range(len(each).bit_length()) if k == 0 or 2**k * each.mean() <= _LONGEST]
    return min(lengths, key=seconds)


def _runs(parts: Parts, length: int) -> list[list[Any]]:
    return [parts.items[k : k + length] for k in range(0, len(parts), length)]


class _Waiting(Exception):
    """A task waits for a worker that does not come back."""


class Cluster:
    """Steps over parts as Dask tasks.

    Parameters
    ----------
    client : distributed.Client
        The connection to the scheduler.
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        self._plans: list[_Plan] = []  # of the last data that were used, after those that they are made from

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
        self._plans = []

    def each(self, step: Step, params: Any, parts: Parts) -> Iterator[Any]:
        """Results of all parts, in order."""
        done = 0
        while done < len(parts):
            try:
                for value in self._each(step, params, parts, done):
                    done += 1
                    yield value
            except _Waiting:
                self.forget()

    def _each(self, step: Step, params: Any, parts: Parts, first: int) -> Iterator[Any]:
        futures, done = self._submit(step, params, parts, None), 0
        for k in range(len(futures)):
            for value in self._result(futures[k]).value:
                done += 1
                if done > first:
                    yield value
            futures[k] = None
            report_part(step, done, len(parts))

    def total(self, step: Step, params: Any, parts: Parts, combine: Combine) -> Any:
        """Results of all parts put together in the order of `ordered_sum`."""
        while True:
            try:
                return self._total(step, params, parts, combine)
            except _Waiting:
                self.forget()

    def _total(self, step: Step, params: Any, parts: Parts, combine: Combine) -> Any:
        values = self._submit(step, params, parts, combine)
        while len(values) > GATHERED:
            runs = [values[k : k + GATHERED] for k in range(0, len(values), GATHERED)]
            values = self._map("sum", sum_run, runs, combine=combine)

        def results() -> Iterator[Any]:
            for k, future in enumerate(values):
                yield self._result(future).value
                report_part(step, len(parts) * (k + 1) // len(values), len(parts))

        return ordered_sum(results(), combine)

    # ------------------------------------------------------------------ tasks

    def _submit(self, step: Step, params: Any, parts: Parts, combine: Combine | None) -> list[Any]:
        """Futures of the runs of parts: sums, or lists of results if nothing puts them together."""
        plan = self._planned(parts)
        name = getattr(getattr(step, "func", step), "__name__", "step")
        over = stream_run if plan.owners is None else step_run
        about = {"step": step, "params": self._sent(params), "combine": combine}
        return self._map(name, over, plan.runs, **about)

    def _sent(self, params: Any) -> Any:
        """Parameters for all tasks: inside each, or, if they are large, on a worker to fetch them from."""
        carried = Carried(params)  # arrays that Dask itself sends begin anywhere, even amid a number
        if carried.n_bytes <= _SMALL:
            return carried
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # parameters are as large as they are
            return self.client.submit(same, carried, key=self._name("params"), retries=RETRIES, pure=False)

    def _map(
        self, name: str, function: Any, *items: list[Any], owners: Sequence[str] = (), **common: Any
    ) -> list[Any]:
        """One task per item, in one message to the scheduler; ``owners`` are workers to ask for."""
        import dask

        name = self._name(name)
        keys = [f"{name}-{k}" for k in range(len(items[0]))]
        settings = {"key": keys, "retries": RETRIES, "pure": False, "batch_size": None}
        asked = {"workers": dict(zip(keys, owners)).get, "allow_other_workers": True} if owners else {}
        with dask.annotate(**asked):
            return list(self.client.map(function, *items, **settings, **common))

    # ------------------------------------------------------------------ plans

    def _planned(self, parts: Parts) -> _Plan:
        """Runs of parts, kept on the workers where there is room for them."""
        workers = dict(sorted(self.client.nthreads().items()))
        each = [part.n_bytes for part in parts.items]
        n_bytes = float(sum(each))
        length = run_length(each, max(1, sum(workers.values())))
        known = self._known(parts)
        # workers come and go; only many more of them are worth loading the parts in other runs
        if known is not None and length > known.length // 4:
            self._plans[self._plans.index(known)] = found = self._moved(known, parts, workers)
            return found
        before = None if known is not None or parts.before is None else self._known(parts.before)
        if before is not None and (before.owners is None or before.length < length):
            before = None
        self._plans = [] if before is None else [before]  # what other passes worked on makes room first
        length = length if before is None else before.length
        plan = _Plan(parts.key, length, _runs(parts, length), None)
        room = _SHARE * self._memory()
        if 2.0 * n_bytes < room and workers:
            plan = self._loaded(plan, before, workers)
        if 3.0 * n_bytes >= room:
            self._plans = []
        self._plans.append(plan)
        return plan

    def _known(self, parts: Parts) -> _Plan | None:
        key = parts.key
        return next((plan for plan in self._plans if plan.key == key), None)

    def _loaded(self, plan: _Plan, before: _Plan | None, workers: dict[str, int]) -> _Plan:
        """The plan with its runs on the workers, made from those of the plan ``before`` that are there."""
        if before is not None:
            return plan._replace(
                runs=self._map("run", made_run, before.runs, plan.runs), owners=before.owners
            )
        slots = [worker for worker, n in workers.items() for _ in range(n)]
        owners = [slots[k % len(slots)] for k in range(len(plan.runs))]
        return plan._replace(runs=self._map("run", load_run, plan.runs, owners=owners), owners=owners)

    def _moved(self, plan: _Plan, parts: Parts, workers: dict[str, int]) -> _Plan:
        """The plan with the runs of workers that are gone loaded anew, evenly among those that are here."""
        if plan.owners is None or not workers or all(owner in workers for owner in plan.owners):
            return plan
        runs, owners = list(plan.runs), list(plan.owners)
        load = {worker: owners.count(worker) / n for worker, n in workers.items()}
        lost = [k for k, owner in enumerate(owners) if owner not in workers]
        for k in lost:
            owners[k] = min(load, key=load.__getitem__)
            load[owners[k]] += 1.0 / workers[owners[k]]
        again = [_runs(parts, plan.length)[k] for k in lost]
        for k, future in zip(lost, self._map("run", load_run, again, owners=[owners[k] for k in lost])):
            runs[k] = future
        return plan._replace(runs=runs, owners=owners)

    def _memory(self) -> float:
        """Bytes that all workers may take."""
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        return float(sum(worker.get("memory_limit") or 0 for worker in workers))

    def _result(self, future: Any) -> Any:
        """The result of a task; one whose workers died too often for the scheduler is asked for again."""
        from distributed import KilledWorker, TimeoutError

        attempts = 0
        while True:
            try:
                return future.result(timeout=_PATIENCE)
            except TimeoutError:
                if future.done():  # it is what the task itself came to
                    raise
                if self._waits_in_vain():
                    raise _Waiting from None
            except KilledWorker:
                attempts += 1
                if attempts > RETRIES:
                    raise BagwiseError(
                        f"{future.key} lost its worker {RETRIES} times over; the parts may be too large for "
                        "the workers' memory: write smaller ones (part_bytes), or give workers more"
                    ) from None
                future.retry()

    def _waits_in_vain(self) -> bool:
        """Whether a worker that was asked for is gone, and the others have nothing of ours to do."""
        workers = self.client.nthreads()
        owners = {owner for plan in self._plans for owner in plan.owners or ()}
        if not workers or owners <= set(workers):
            return False
        mine = f"-{os.getpid()}-"
        return not any(mine in str(key) for keys in self.client.processing().values() for key in keys)

    @staticmethod
    def _name(what: str) -> str:
        return f"{what}-{os.getpid()}-{next(_numbers)}"


# ----------------------------------------------------------------------
# What the workers of a cluster do: load runs of parts, make steps over them, add up


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


def step_run(data: Carried, *, step: Step, params: Carried, combine: Combine | None) -> Carried:
    """Steps over a run of parts that this worker keeps."""
    return _put_together(step, params, data.value, combine)


def stream_run(run: list[Any], *, step: Step, params: Carried, combine: Combine | None) -> Carried:
    """Steps over a run of parts, of which two are in memory."""
    with memory_used_again():
        return _put_together(step, params, read_ahead(_loaded, run, min(1, len(run) - 1), _pool()), combine)


@cache
def _pool() -> ThreadPoolExecutor:
    """Threads that stay: Dask's profiler hangs Pythons up to 3.11.7 in which threads come and go."""
    return ThreadPoolExecutor(_MOST_READERS, thread_name_prefix="bagwise-ahead")


def _put_together(step: Step, params: Carried, loaded: Iterable[Any], combine: Combine | None) -> Carried:
    _one_thread()
    values = steps(step, params.value, loaded)
    return Carried(list(values) if combine is None else ordered_sum(values, combine))


def sum_run(run: list[Carried], *, combine: Combine) -> Carried:
    """Sum of neighbouring sums."""
    return Carried(ordered_sum((item.value for item in run), combine))
