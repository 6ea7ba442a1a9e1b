"""What was tried where a cell lies outside the published figures: changed methods, data or protocols.

A note of a suite may list ``changes``. Each is run like any other fit, for every data set and method that
the note names, and shown beside the table: a reason that figures stand behind, which anybody can run again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from bagwise.errors import DataError
from papers.suites import Experiment, Suite, overlaid, shortened
from papers.tasks import Task, tasks_of

_OF_CHANGES = {"name", "model", "data", "split", "named", "measures"}
_TAKEN = {"published", "unchanged"}  # rows that every grid of trials has


@dataclass(frozen=True)
class Trial:
    """One change to what stands behind a cell.

    Parameters
    ----------
    dataset, method : str
        Names in the suite.
    change : str
        What was changed, for people.
    experiment : Experiment
        The table as it would be with this data set, this method and the change alone.
    why : str
        What the note says.
    """

    dataset: str
    method: str
    change: str
    experiment: Experiment
    why: str


def trials_of(
    suite: Suite,
    experiment: Experiment,
    *,
    methods: Collection[str] | None = None,
    datasets: Collection[str] | None = None,
) -> Iterator[Trial]:
    """All changes that notes list for cells of an experiment, in the order of the notes."""
    spec = shortened(experiment.spec, True)
    if experiment.is_figure:
        return
    for note in suite.notes:
        if experiment.name not in note.get("experiments", [experiment.name]):
            continue
        changes = _checked(experiment, note)
        for dataset in _named(note, "datasets", spec, datasets):
            for method in _named(note, "methods", spec, methods, _shown(suite)):
                for change in changes:
                    changed = _changed(experiment, note, change, dataset, method)
                    trial = Trial(dataset, method, change["name"], changed, note["text"])
                    _has_effect(suite, trial)
                    yield trial


def tasks_of_trial(suite: Suite, trial: Trial) -> list[Task]:
    """Fits behind a trial; what it leaves alone is that of the short run."""
    return tasks_of(suite, trial.experiment, short=True)


def _named(
    note: Mapping[str, Any],
    key: str,
    spec: Mapping[str, Any],
    asked: Collection[str] | None,
    shown: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """What a note and a user ask for; notes may call methods by the names that tables show."""
    return [
        name
        for name in spec.get(key, ())
        if {name, shown.get(name, name)} & set(note.get(key, [name])) and (asked is None or name in asked)
    ]


def _shown(suite: Suite) -> dict[str, str]:
    return {name: spec.get("shown_as", name) for name, spec in suite.methods.items()}


def _measures(experiment: Experiment, note: Mapping[str, Any], change: Mapping[str, Any]) -> list[str]:
    """Measures that a trial shows; a note about several tables may name some that one of them lacks."""
    known = experiment.spec["measures"]
    asked = change.get("measures", note.get("tried", note.get("measures", known)))
    return [name for name in asked if name in experiment.spec["measures"]]


def _checked(experiment: Experiment, note: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The changes of a note, or an error that names the table and the key."""
    changes = note.get("changes", [])
    where = f"a note of {experiment.id}"
    if not isinstance(changes, list) or not all(isinstance(one, Mapping) for one in changes):
        raise DataError(f"changes of {where} are a list of tables, each with a name")
    seen: set[str] = set()
    for change in changes:
        name = change.get("name")
        if not isinstance(name, str) or not name.strip():
            raise DataError(f"a change of {where} needs a name, in words; it is {dict(change)}")
        if name in seen or name in _TAKEN:
            raise DataError(f"two rows of {where} would be called {name!r}; give the change another name")
        seen.add(name)
        _known(change, _OF_CHANGES, f"the change {name!r} of {experiment.id}")
    _known(note.get("shared", {}), _OF_CHANGES - {"name"}, f"shared of {where}")
    for part in (note.get("shared", {}), *changes):
        wrong = sorted(k for k in set(part) - {"name", "measures"} if not isinstance(part[k], Mapping))
        if wrong:
            raise DataError(
                f"{wrong[0]} in {where} is a table such as {{ params = {{ ... }} }}, not {part[wrong[0]]!r}"
            )
        _known(part.get("named", {}), set(experiment.spec["measures"]), f"named in {where}")
    for names in (note.get("tried", ()), *(one.get("measures", ()) for one in changes)):
        strange = [name for name in names if name not in experiment.spec["measures"]]
        if strange and changes:
            raise DataError(
                f"{where} tries {strange[0]!r}, which is no measure of the table; "
                f"it has {', '.join(experiment.spec['measures'])}"
            )
    return changes


def _known(part: Mapping[str, Any], keys: Collection[str], where: str) -> None:
    unknown = sorted(set(part) - set(keys))
    if unknown:
        raise DataError(f"{where} has no key {unknown[0]!r}; keys are {', '.join(sorted(keys))}")


def _has_effect(suite: Suite, trial: Trial) -> None:
    """What a method tries anyway wins over a change of that parameter, which then would change nothing."""
    asked = trial.experiment.spec["points"][0].get("model", {})
    for task in tasks_of_trial(suite, trial)[:1]:
        grid = task.model.get("search", {}).get("grid", {})
        searched = {name for part in (grid if isinstance(grid, list) else [grid]) for name in part}
        for name, value in asked.get("params", {}).items():
            where = "search.grid" if name in searched else "settings"
            if name in searched or task.model["params"].get(name) != value:
                raise DataError(
                    f"the change {trial.change!r} of {trial.experiment.id} sets {name}, of which "
                    f"{trial.method} tries values of its own: change model.{where} instead of model.params"
                )


def _changed(
    experiment: Experiment, note: Mapping[str, Any], change: Mapping[str, Any], dataset: str, method: str
) -> Experiment:
    whole = overlaid(note.get("shared", {}), change)
    spec = dict(experiment.spec) | {
        "datasets": [dataset],
        "methods": [method],
        "measures": _measures(experiment, note, change),
        "named": dict(experiment.spec.get("named", {})) | whole.get("named", {}),
        "points": [{key: whole[key] for key in ("model", "data", "split") if key in whole}],
    }
    return replace(experiment, spec=spec)


# ----------------------------------------------------------------------
# How much of a paper's own protocol was run, beyond what the short run does


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
