"""Whether rows are still what the present version gives: one fit of each cell again, beside its row.

The hash of a fit covers what a suite says, not the source that ran. After a change to a method, or on another
machine, this tells which rows would come out otherwise, for the price of one repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bagwise.bench.execute import execute
from bagwise.bench.run import unavailable_data
from bagwise.bench.store import Store
from bagwise.bench.tasks import Task
from bagwise.compute.threads import stream

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
