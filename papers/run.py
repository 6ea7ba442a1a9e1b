"""Running tasks: what is finished is skipped, every result is kept at once, any stop can be resumed."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bagwise.compute.threads import stream, threads
from bagwise.errors import BagwiseError
from papers.execute import environment, execute
from papers.problems import load_problem
from papers.rows import Store, source_commit
from papers.tasks import Task

_GATHER_AFTER = 60.0  # seconds between two gatherings of finished rows


@dataclass
class Outcome:
    """What a run did.

    Parameters
    ----------
    n_run, n_known, n_failed : int
        Tasks run now, finished before, and failed among those of now.
    unavailable : dict of str to str
        Data sets that could not be loaded, with the reason.
    """

    n_run: int = 0
    n_known: int = 0
    n_failed: int = 0
    unavailable: dict[str, str] = field(default_factory=dict)


def run_tasks(
    tasks: Sequence[Task],
    store: Store,
    *,
    n_jobs: int | None = None,
    retry: bool = False,
    renew: Collection[str] = (),
    needs: Mapping[str, Collection[str]] | None = None,
    step: Callable[..., None] | None = None,
) -> Outcome:
    """Run all tasks that have no row yet.

    Parameters
    ----------
    tasks : sequence of Task
        Equal ones run once.
    store : Store
        Where rows are kept.
    n_jobs : int, optional
        Tasks at the same time.
    retry : bool, default=False
        Whether to run failed tasks again.
    renew : collection of hashes
        Finished tasks to run again, too.
    needs : mapping of hash to names, optional
        Measures without which a finished task is run again: rows of an older source lack the newer ones.
    step : callable, optional
        Called as ``step(n_new, text, n_all)`` at first and after every task; the text says what is left.
    """
    outcome = Outcome()
    with store.locked():
        rows = store.rows()
        wanted = {task.digest: task for task in tasks}
        context = {"versions": json.dumps(environment()), "commit": source_commit()}
        again = {hash for hash in wanted if retry and rows.get(hash, {}).get("error")}
        again |= {
            hash
            for hash, names in (needs or {}).items()
            if hash in rows and not rows[hash]["error"] and not set(names) <= rows[hash]["measures"].keys()
            if rows[hash].get("commit") != context["commit"]  # else the method gives no such measure
        }
        again |= rows.keys() & wanted.keys() & set(renew)
        if again:
            store.forget(again)
            rows = store.rows()
        outcome.n_known = sum(hash in rows for hash in wanted)
        pending = [task for hash, task in wanted.items() if hash not in rows]
        missing = unavailable_data(pending)
        outcome.unavailable = {
            task.dataset: missing[task.data_key] for task in pending if task.data_key in missing
        }
        pending = [task for task in pending if task.data_key not in missing]
        estimate = _Estimate(pending, wanted, rows, n_jobs)
        last = time.monotonic()

        def show(n_new: int) -> None:
            if step is not None:
                done = outcome.n_known + outcome.n_run
                step(n_new, f"{done} of {len(wanted)} fits, {estimate.left()} left", len(wanted))

        show(outcome.n_known)
        try:
            for digest, seconds, failed_now in stream(
                _work, ((task, store.folder, context) for task in pending), n_jobs=n_jobs
            ):
                outcome.n_run += 1
                outcome.n_failed += failed_now
                estimate.finish(digest, seconds)
                show(1)
                if time.monotonic() - last > _GATHER_AFTER:
                    store.gather()
                    last = time.monotonic()
        finally:
            store.gather()
    return outcome


def _work(task: Task, folder: Any, context: dict[str, str]) -> tuple[str, float, bool]:
    start = time.perf_counter()
    row, predictions = execute(task)
    Store(folder).put(row | context, predictions)
    return task.digest, time.perf_counter() - start, bool(row["error"])


def unavailable_data(tasks: Iterable[Task]) -> dict[str, str]:
    """Data that cannot be loaded here, each with the reason; they are tried once, before the work."""
    found: dict[str, str] = {}
    tried = set()
    for task in tasks:
        if task.data_key in tried:
            continue
        tried.add(task.data_key)
        try:
            load_problem(task.data, task.repeat["seed"])
        except (BagwiseError, OSError, TypeError) as error:
            found[task.data_key] = " ".join(str(error).split())
    return found


class _Estimate:
    """Seconds left, from the mean of finished tasks of the same data set and method."""

    def __init__(
        self, pending: list[Task], wanted: dict[str, Task], rows: dict[str, Any], n_jobs: int | None
    ) -> None:
        self.pending = {task.digest: (task.dataset, task.method) for task in pending}
        self.n_jobs = threads(n_jobs)
        self.seen: dict[tuple[str, str], list[float]] = defaultdict(list)
        for digest, row in rows.items():
            if digest in wanted and row["fit_seconds"] is not None:
                key = wanted[digest].dataset, wanted[digest].method
                self.seen[key].append(row["fit_seconds"] + (row["predict_seconds"] or 0.0))

    def finish(self, digest: str, seconds: float) -> None:
        """Count a task as done."""
        self.seen[self.pending.pop(digest)].append(seconds)

    def left(self) -> str:
        """Time that the rest will take, in words."""
        known = [s for values in self.seen.values() for s in values]
        if self.pending and not known:
            return "an unknown time"
        typical = sum(known) / len(known) if known else 0.0
        total = 0.0
        for key in self.pending.values():
            values = self.seen.get(key)
            total += sum(values) / len(values) if values else typical
        return in_words(total / self.n_jobs)


def in_words(seconds: float) -> str:
    """Seconds as people say them.

    Examples
    --------
    >>> in_words(42), in_words(600), in_words(3 * 3600)
    ('about 42 s', 'about 10 min', 'about 3.0 h')
    """
    if seconds < 90:
        return f"about {seconds:.0f} s"
    if seconds < 5400:
        return f"about {seconds / 60:.0f} min"
    return f"about {seconds / 3600:.1f} h"


# ----------------------------------------------------------------------
# Whether rows are still what the present version gives: one fit of each cell again, beside its row
#
# The hash of a fit covers what a suite says, not the source that ran. After a change to a method, or on
# another machine, this tells which rows would come out otherwise, for the price of one repeat.


_ROUNDING = 1e-6  # relative difference of a measure that counts as none


@dataclass
class Change:
    """A cell that comes out otherwise now.

    Parameters
    ----------
    task : Task
        The fit that was run again.
    measures : dict of str to pair of float
        Measures that differ: what the row says, and what came out now (NaN where there is none).
    error : str
        What went wrong now.
    hashes : set of str
        Rows of the cell, which all are in doubt.
    """

    task: Task
    measures: dict[str, tuple[float, float]]
    error: str
    hashes: set[str]


@dataclass
class Verdict:
    """What a verification found.

    Parameters
    ----------
    n_cells : int
        Fits that were run again, one for each cell.
    changed : list of Change
        Those that came out otherwise.
    """

    n_cells: int = 0
    changed: list[Change] = field(default_factory=list)


def verify(
    tasks: Sequence[Task],
    store: Store,
    *,
    n_jobs: int | None = None,
    step: Callable[..., None] | None = None,
) -> Verdict:
    """Run the first finished fit of every cell again, and compare its measures with those of its row.

    Parameters
    ----------
    tasks : sequence of Task
        Those without a row, or with one that says what failed, are left out.
    store : Store
        Nothing in it is changed.
    n_jobs : int, optional
        Fits at the same time.
    step : callable, optional
        Called as ``step(n_new, text, n_all)`` at first and after every fit.
    """
    rows = store.rows()
    cells: dict[str, list[Task]] = {}
    for task in {task.digest: task for task in tasks}.values():
        if task.digest in rows and not rows[task.digest]["error"]:
            cells.setdefault(task.cell, []).append(task)
    missing = unavailable_data([several[0] for several in cells.values()])
    chosen = {several[0].digest: several for several in cells.values() if several[0].data_key not in missing}
    verdict = Verdict()

    def show(n_new: int) -> None:
        if step is not None:
            text = f"{verdict.n_cells} of {len(chosen)} cells fitted again, {len(verdict.changed)} changed"
            step(n_new, text, len(chosen))

    show(0)
    for again in stream(_again, ((several[0],) for several in chosen.values()), n_jobs=n_jobs):
        several = chosen[again["hash"]]
        found = differences(rows[again["hash"]]["measures"], again["measures"])
        verdict.n_cells += 1
        if found or again["error"]:
            hashes = {task.digest for task in several}
            verdict.changed.append(Change(several[0], found, again["error"], hashes))
        show(1)
    return verdict


def differences(kept: Mapping[str, float], now: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """Measures of a row that differ by more than rounding, each with both values; new ones are no difference.

    Examples
    --------
    >>> differences({"auc": 0.75, "one_error": 0.1}, {"auc": 0.75 + 1e-9, "one_error": 0.2, "new": 1.0})
    {'one_error': (0.1, 0.2)}
    """
    pairs = {name: (value, now.get(name, np.nan)) for name, value in kept.items()}
    return {
        name: pair
        for name, pair in pairs.items()
        if not np.isclose(*pair, rtol=_ROUNDING, atol=1e-9, equal_nan=True)
    }


def _again(task: Task) -> dict[str, Any]:
    """The row alone: predictions need not travel between processes."""
    return execute(task)[0]
