"""What was tried where a cell lies outside the published figures: changed methods, data or protocols.

A note of a suite may list ``changes``. Each is run like any other fit, for every data set and method that
the note names, and shown beside the table: a reason that figures stand behind, which anybody can run again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bagwise.bench.suites import Experiment, Suite, overlaid, shortened
from bagwise.bench.tasks import Task, tasks_of
from bagwise.errors import DataError

_OF_CHANGES = {"name", "model", "data", "split", "named"}


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
    """

    dataset: str
    method: str
    change: str
    experiment: Experiment


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
        for dataset in _named(note, "datasets", spec, datasets):
            for method in _named(note, "methods", spec, methods):
                for change in note.get("changes", ()):
                    yield Trial(
                        dataset, method, change["name"], _changed(experiment, note, change, dataset, method)
                    )


def tasks_of_trial(suite: Suite, trial: Trial) -> list[Task]:
    """Fits behind a trial; what it leaves alone is that of the short run."""
    return tasks_of(suite, trial.experiment, short=True)


def _named(
    note: Mapping[str, Any], key: str, spec: Mapping[str, Any], asked: Collection[str] | None
) -> list[str]:
    return [
        name
        for name in spec.get(key, ())
        if name in note.get(key, [name]) and (asked is None or name in asked)
    ]


def _changed(
    experiment: Experiment, note: Mapping[str, Any], change: Mapping[str, Any], dataset: str, method: str
) -> Experiment:
    unknown = sorted(set(change) - _OF_CHANGES)
    if unknown:
        raise DataError(
            f"the change {change['name']!r} of {experiment.id} has no key {unknown[0]!r}; "
            f"keys are {', '.join(sorted(_OF_CHANGES))}"
        )
    strange = [name for name in note.get("tried", ()) if name not in experiment.spec["measures"]]
    if strange:
        raise DataError(
            f"a note of {experiment.id} tries {strange[0]!r}, which is no measure of the table; "
            f"it has {', '.join(experiment.spec['measures'])}"
        )
    whole = overlaid(note.get("shared", {}), change)
    spec = dict(experiment.spec) | {
        "datasets": [dataset],
        "methods": [method],
        "measures": note.get("tried", note.get("measures", experiment.spec["measures"])),
        "named": dict(experiment.spec.get("named", {})) | whole.get("named", {}),
        "points": [{key: whole[key] for key in ("model", "data", "split") if key in whole}],
    }
    return replace(experiment, spec=spec)
