"""Clusters: the only place that knows Dask.

The scheduler places tasks, no future is tied to a worker and no data are scattered: a part is loaded from
storage by a task with a key of its own, so that a lost worker costs a reload and no more. Statistics are
added in the order of the parts, by the tree of `ordered_sum`, by tasks where there are many, so that the
result has the bits of a fit on one machine.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from threadpoolctl import threadpool_limits

from bagwise.errors import BagwiseError, OptionalDependencyError
from bagwise.parallel.aligned import Carried, aligned
from bagwise.parallel.parts import FAN_IN, Combine, Parts, Step, current_engine, report_part

__all__ = ["Cluster", "on_cluster"]

RETRIES = 10  # of a task whose worker died or whose storage failed
_SHARE = 0.5  # of the workers' memory that parts may take to be kept there between passes
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


class Cluster:
    """Steps over parts as Dask tasks.

    Parameters
    ----------
    client : distributed.Client
        The connection to the scheduler.
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        self._held: dict[str, list[Any]] = {}  # futures of loaded parts, of the last data that were used

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
        self._held = {}

    def each(self, step: Step, params: Any, parts: Parts) -> Iterator[Any]:
        """Results of all parts, in order."""
        futures = self._submit(step, params, parts)
        for k in range(len(futures)):
            yield self._result(futures[k]).value
            futures[k] = None
            report_part(step, k + 1, len(futures))

    def total(self, step: Step, params: Any, parts: Parts, combine: Combine) -> Any:
        """Results of all parts put together in the order of `ordered_sum`."""
        values, n = self._submit(step, params, parts), len(parts)
        level = 0
        while len(values) > 1:
            level += 1
            runs = [values[k : k + FAN_IN] for k in range(0, len(values), FAN_IN)]
            if len(runs) == 1:
                break
            name = self._name(f"sum-{level}")
            values = [
                self.client.submit(_sum, combine, run, key=f"{name}-{k}", retries=RETRIES, pure=False)
                for k, run in enumerate(runs)
            ]
        found = None
        for k, future in enumerate(values):
            value = self._result(future).value
            found = value if k == 0 else combine(found, value)
            report_part(step, min(n, (k + 1) * FAN_IN ** (level - (level > 0))), n)
        return found

    # ------------------------------------------------------------------ tasks

    def _submit(self, step: Step, params: Any, parts: Parts) -> list[Any]:
        name, submit = self._name(getattr(step, "__name__", "step")), self.client.submit
        common = {"retries": RETRIES, "pure": False}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # parameters are as large as they are
            told = submit(Carried, params, key=f"params-{name}", **common)
            if not self._fits(parts):
                return [
                    submit(_load_and_step, step, told, part, key=f"{name}-{k}", **common)
                    for k, part in enumerate(parts.items)
                ]
            if parts.key not in self._held:
                self._held = {}  # what another pass worked on makes room first
                self._held[parts.key] = [
                    submit(_load, part, key=f"part-{part.key}", **common) for part in parts.items
                ]
            return [
                submit(_step, step, told, data, key=f"{name}-{k}", **common)
                for k, data in enumerate(self._held[parts.key])
            ]

    def _fits(self, parts: Parts) -> bool:
        """Whether workers can keep all parts between passes."""
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        memory = sum(worker.get("memory_limit") or 0 for worker in workers)
        return 2.0 * sum(part.n_bytes for part in parts.items) < _SHARE * memory

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


def _load(part: Any) -> Carried:
    _one_thread()
    return Carried(aligned(part.load()))


def _step(step: Step, told: Carried, data: Carried) -> Carried:
    _one_thread()
    return Carried(step(told.value, data.value))


def _load_and_step(step: Step, told: Carried, part: Any) -> Carried:
    return _step(step, told, _load(part))


def _sum(combine: Combine, run: list[Carried]) -> Carried:
    total = run[0].value
    for item in run[1:]:
        total = combine(total, item.value)
    return Carried(total)
