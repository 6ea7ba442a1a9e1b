"""Which finished fits stand behind a cell, and what they measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean
from typing import Any

from bagwise.bench.measures import express
from bagwise.bench.tasks import Task
from bagwise.metrics import HIGHER_IS_BETTER

__all__ = ["NOT_RUN", "Fits", "Row", "direction_of", "fit_time"]

Row = Mapping[str, Any]
NOT_RUN = "not run"


@dataclass(frozen=True)
class Fits:
    """Rows of finished fits, read as an experiment asks for."""

    rows: Mapping[str, Row]  # by hash
    spec: Mapping[str, Any]  # of the experiment

    def value(self, task: Task, measure: str) -> float | None:
        """What a fit measured; None if it failed, was not run, or gives no such measure."""
        row = self.rows.get(task.digest)
        if row is None or row["error"]:
            return None
        taken = {"fit_seconds": fit_time(row), "predict_seconds": row["predict_seconds"]}
        times = {name: value for name, value in taken.items() if value is not None}
        value = express(measure, {**row["measures"], **times}, self.spec.get("named"))
        return value if value is not None and value == value else None

    def chosen(
        self, settings: Mapping[str, Sequence[Task]], measure: str
    ) -> tuple[Sequence[Task], tuple[int, int] | None]:
        """Finished fits behind a cell and, where some are missing, how many there are of how many.

        Of several settings the paper reports the one with the best mean on the test bags. They compete when
        every fit of every setting was run; those of which one has failed are out. Before that no setting is
        chosen: with one fold done, the luckiest would win. A single setting shows the fits that it has.
        """
        whole = [tasks for tasks in settings.values() if all(map(self.is_done, tasks))]
        every = [task for tasks in settings.values() for task in tasks]
        if whole and all(task.digest in self.rows for task in every):
            return max(whole, key=lambda tasks: self._judged(tasks, measure)), None
        done = [task for task in every if self.is_done(task)]
        return (done if len(settings) == 1 else []), ((len(done), len(every)) if done else None)

    def is_done(self, task: Task) -> bool:
        """Whether the fit was run and did not fail."""
        row = self.rows.get(task.digest)
        return row is not None and not row["error"]

    def _judged(self, tasks: Sequence[Task], measure: str) -> float:
        """Mean of what settings are chosen by, larger for better ones."""
        judge = self.spec.get("best", "each")
        judge = measure if judge == "each" else judge
        known = [value for task in tasks if (value := self.value(task, judge)) is not None]
        if not known:
            return float("-inf")
        return -fmean(known) if direction_of(judge) == "lower" else fmean(known)

    def unit(self, task: Task) -> str:
        """What one value of a cell stands for: a split, or all folds of one seed."""
        return f"seed {task.repeat['seed']}" if self.spec.get("unit") == "seed" else task.key

    def error_of_share(self, chosen: Sequence[Task], values: Sequence[float], measure: str) -> float | None:
        """Standard error of the share of instances that a single run annotates right.

        A run on all bags with known label sets has no repeats to take a spread from.
        """
        if len(values) != 1 or len(chosen) != 1 or not measure.startswith("instance_accuracy"):
            return None
        n = self.rows[chosen[0].digest]["measures"].get("n_annotated")
        unit = 100.0 if measure.endswith("_percent") else 1.0
        share = values[0] / unit
        return unit * sqrt(share * (1.0 - share) / n) if n else None

    def failure(self, settings: Mapping[str, Sequence[Task]]) -> str:
        """Why a cell is empty."""
        errors = [
            self.rows[task.digest]["error"]
            for tasks in settings.values()
            for task in tasks
            if task.digest in self.rows
        ]
        failed = [error for error in errors if error]
        if failed:
            return f"failed: {failed[0]}"
        return "this method gives no such measure" if errors else NOT_RUN


def fit_time(row: Row) -> float | None:
    """Seconds of a fit by the clock, or of the processor where other work on the machine stretched the clock.

    Examples
    --------
    >>> fit_time({"fit_seconds": 9.0, "fit_cpu_seconds": 2.0})
    2.0
    """
    clock, processor = row["fit_seconds"], row["fit_cpu_seconds"]
    return clock if clock is None or processor is None else min(clock, processor)


def direction_of(measure: str) -> str:
    """Where better values lie, for names of ours and of published tables."""
    stem = measure.removesuffix("_percent")
    if stem.startswith(("n_", "labels_per", "classes_per", "instances_per", "min_", "max_")):
        return "none"
    for name, higher in HIGHER_IS_BETTER.items():
        if stem.startswith(name):
            return "higher" if higher else "lower"
    return "higher" if stem in ("auc", "accuracy") else "lower"
