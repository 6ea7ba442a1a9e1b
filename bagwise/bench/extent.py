"""How much of a paper's own protocol was run, beyond what the short run does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from bagwise.bench.suites import Experiment, Suite
from bagwise.bench.tasks import tasks_of


@dataclass(frozen=True)
class Extent:
    """Fits of one method on one data set by the paper's own protocol.

    Parameters
    ----------
    experiment, dataset, method : str
        Names as tables show them.
    n_fits, n_done : int
        Fits that the protocol asks for, and those that were run.
    n_beyond, n_beyond_done : int
        Those of them that the short run does without.
    """

    experiment: str
    dataset: str
    method: str
    n_fits: int
    n_done: int
    n_beyond: int
    n_beyond_done: int

    @property
    def is_whole(self) -> bool:
        """Whether all was run of a protocol that is longer than the short one."""
        return self.n_beyond > 0 and self.n_done == self.n_fits

    @property
    def is_begun(self) -> bool:
        """Whether anything was run that the short run does without."""
        return self.n_beyond_done > 0


def extents_of(
    suite: Suite,
    experiment: Experiment,
    rows: Mapping[str, Any],
    *,
    methods: Collection[str] | None = None,
    datasets: Collection[str] | None = None,
) -> list[Extent]:
    """Extent of every data set and method of an experiment that can be run, in the order of its tasks."""
    only: dict[str, Any] = {"methods": methods, "datasets": datasets}
    short = {task.digest for task in tasks_of(suite, experiment, short=True, **only)}
    fits: dict[tuple[str, str], set[str]] = defaultdict(set)
    for task in tasks_of(suite, experiment, **only):
        fits[task.dataset, task.method].add(task.digest)
    found = []
    for (dataset, method), all_fits in fits.items():
        beyond, shown = all_fits - short, suite.methods.get(method, {}).get("shown_as", method)
        counts = (len(all_fits), len(all_fits & rows.keys()), len(beyond), len(beyond & rows.keys()))
        found.append(Extent(experiment.id, dataset, shown, *counts))
    return found
