"""From rows to cells: what was measured beside what was published. Only rows are read, nothing is run."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from string import ascii_lowercase
from typing import Any

from bagwise.registry import get_estimator
from papers.pages.cells import Cell, Curve, ResultFigure, ResultTable, Tried
from papers.pages.parts import title_of
from papers.rows import NOT_RUN, Fits, Row, direction_of, fit_time
from papers.suites import Experiment, Published, Suite, overlaid, shortened
from papers.tasks import NO_METHOD, Task, tasks_of
from papers.trials import trials_of

_UNEXPLAINED = "No detail of protocol or data is known that would explain it."


def results_of(
    suite: Suite,
    experiment: Experiment,
    rows: Mapping[str, Row],
    *,
    short: bool = False,
    methods: Collection[str] | None = None,
    datasets: Collection[str] | None = None,
    unavailable: Mapping[str, str] | None = None,
) -> list[ResultTable | ResultFigure]:
    """Table of an experiment, or its figures, one per panel.

    Parameters
    ----------
    suite, experiment : Suite, Experiment
        What is shown.
    rows : mapping of hash to row
        What was run so far.
    short, methods, datasets
        As in the run.
    unavailable : mapping of data set to reason, optional
        Sets that could not be loaded.
    """
    view = _view(suite, experiment, rows, short, methods, datasets, unavailable or {})
    if not view.datasets or not view.methods:
        return []  # nothing of this experiment was asked for
    if "points" in view.spec:
        return [*view.figures()]
    return [replace(view.table(), tried=tuple(view.tried()))]


def _view(
    suite: Suite,
    experiment: Experiment,
    rows: Mapping[str, Row],
    short: bool,
    methods: Collection[str] | None,
    datasets: Collection[str] | None,
    unavailable: Mapping[str, str],
) -> _View:
    spec = shortened(experiment.spec, short)
    chosen = [name for name in spec["datasets"] if datasets is None or name in datasets]
    columns = [name for name in spec.get("methods", [NO_METHOD]) if methods is None or name in methods]
    grouped: dict[tuple[str, str], list[Task]] = defaultdict(list)
    for task in tasks_of(suite, experiment, short=short, methods=columns, datasets=chosen):
        grouped[task.dataset, task.method].append(task)
    return _View(suite, experiment, spec, short, chosen, columns, grouped, Fits(rows, spec), unavailable)


@dataclass(frozen=True)
class _View:
    """Everything that tables and figures of one experiment are made from."""

    suite: Suite
    experiment: Experiment
    spec: Mapping[str, Any]
    short: bool
    datasets: Sequence[str]
    methods: Sequence[str]
    tasks: Mapping[tuple[str, str], Sequence[Task]]
    fits: Fits
    unavailable: Mapping[str, str]

    def table(self) -> ResultTable:
        cells = [
            self.cell(name, method, measure)
            for measure in self.spec["measures"]
            for name in self.datasets
            for method in self.methods
        ]
        table = ResultTable(
            id=self.experiment.id,
            title=f"{self.suite.title}, {self._place()}: {self.spec['title']}",
            protocol=self._protocol(),
            reference=self.reference(),
            datasets=tuple(self.datasets),
            methods=tuple(self.shown(method) for method in self.methods),
            measures=tuple(self.spec["measures"]),
            cells=tuple(cell for cell in cells if cell is not None),
            remarks=self.remarks(),
            alpha=self.spec.get("alpha", 0.05),
            glossary=self.glossary(),
        )
        # Only now is it known with how many decimals cells are compared.
        return replace(table, cells=tuple(self.explained(cell) for cell in table.cells))

    def tried(self) -> Iterator[Tried]:
        """What changes gave that notes list, as far as they were run."""
        here: Any = self.methods, self.datasets, self.unavailable
        plain = self if self.short else _view(self.suite, self.experiment, self.fits.rows, True, *here)
        for trial in trials_of(self.suite, self.experiment, methods=self.methods, datasets=self.datasets):
            changed = _view(self.suite, trial.experiment, self.fits.rows, True, None, None, {})
            for measure in changed.spec["measures"]:
                cell, unchanged = (v.cell(trial.dataset, trial.method, measure) for v in (changed, plain))
                if cell is None or unchanged is None:
                    continue
                if cell.mean is not None or cell.missing.startswith("failed"):
                    yield Tried(trial.change, cell, unchanged, trial.why)

    def figures(self) -> list[ResultFigure]:
        by_dataset = self.spec.get("curves") == "datasets"
        outer, inner = (self.methods, self.datasets) if by_dataset else (self.datasets, self.methods)
        outer = [name for name in outer if self._has_tasks(name)] or list(outer[:1])
        reasons = [self.absence(name, method) for name in self.datasets for method in self.methods]
        absent = [_sentence(reason) for reason in dict.fromkeys(reasons) if reason]
        left_out = sum(
            len(self._unfinished(name, method)) for name in self.datasets for method in self.methods
        )
        if left_out:
            absent.append(f"Left out, because some of their fits are missing: {left_out} points.")
        panels = []
        for name in outer:
            for measure in self.spec["measures"]:
                curves = []
                for other in inner:
                    pair = (other, name) if by_dataset else (name, other)
                    curve = self.curve(*pair, measure, other if by_dataset else self.shown(other))
                    if curve is not None:
                        curves.append(curve)
                panels.append((name, measure, tuple(curves)))
        return [
            ResultFigure(
                id=self.experiment.id + (ascii_lowercase[k] if len(panels) > 1 else ""),
                title=f"{self.suite.title}, {self._place()}: {self.spec['title']} ({name})",
                x_label=self.spec["x_label"],
                y_label=title_of(measure),
                x_log=self.spec.get("x_log", False),
                y_log=self.spec.get("y_log", False),
                curves=curves,
                remarks=(self._protocol(), *absent, *self.remarks()),
                glossary=self.glossary(),
            )
            for k, (name, measure, curves) in enumerate(panels)
        ]

    # ------------------------------------------------------------------ cells

    def cell(self, dataset: str, method: str, measure: str) -> Cell | None:
        published = self.published(dataset, method, measure)
        direction = published.direction if published else direction_of(measure)
        if method == NO_METHOD:
            direction = "none"  # more bags are no better than fewer
        shown = self.shown(method)
        cell = Cell(dataset, shown, measure, direction, decimals=self._decimals(measure))  # type: ignore[arg-type]
        if published is not None:
            cell = replace(
                cell,
                published_mean=published.mean,
                published_std=published.std,
                published_mark=published.mark if self.reference() else "",  # type: ignore[arg-type]
            )
        reason = self.absence(dataset, method)
        if reason:
            return replace(cell, missing=reason)
        settings: dict[str, list[Task]] = defaultdict(list)
        for task in self.tasks.get((dataset, method), ()):
            settings[task.setting].append(task)
        chosen, count = self.fits.chosen(settings, measure)
        pooled: dict[str, list[float]] = defaultdict(list)
        for task in chosen:
            value = self.fits.value(task, measure)
            if value is not None:
                pooled[self.fits.unit(task)].append(value)
        reason = "" if count is None and pooled else self.fits.failure(settings)
        if reason == NOT_RUN:
            reason = self.unavailable.get(dataset, reason)
        if count is not None and count[0] > 0:
            more = f"; {reason}" if reason.startswith("failed") else ""
            reason = f"{count[0]} of {count[1]} fits, so no verdict{more}"
        values, done = [fmean(parts) for parts in pooled.values()], [self.fits.rows[t.digest] for t in chosen]
        return replace(
            cell,
            values=tuple(values),
            keys=tuple(pooled),
            mean=fmean(values) if values else None,
            std=stdev(values) if len(values) > 1 else self.fits.error_of_share(chosen, values, measure),
            count=count,
            missing=reason,
            fit_seconds=_mean([{"fit_seconds": fit_time(row)} for row in done], "fit_seconds"),
            predict_seconds=_mean(done, "predict_seconds"),
            peak_mb=_mean(done, "peak_mb"),
        )

    def curve(self, dataset: str, method: str, measure: str, name: str) -> Curve | None:
        points: dict[float, list[float]] = defaultdict(list)
        unfinished = self._unfinished(dataset, method)
        for task in self.tasks.get((dataset, method), ()):
            value = self.fits.value(task, measure)
            if value is not None and task.x is not None and task.x not in unfinished:
                points[task.x].append(value)
        if not points:
            return None
        x = sorted(points)
        return Curve(
            name,
            tuple(float(v) for v in x),
            tuple(fmean(points[v]) for v in x),
            tuple(stdev(points[v]) if len(points[v]) > 1 else None for v in x),
        )

    def _unfinished(self, dataset: str, method: str) -> set[float]:
        """Places on the axis of which some fits, but not all, are there."""
        fits: dict[float, list[bool]] = defaultdict(list)
        for task in self.tasks.get((dataset, method), ()):
            if task.x is not None:
                fits[task.x].append(task.digest in self.fits.rows)
        return {x for x, there in fits.items() if any(there) and not all(there)}

    def reference(self) -> str | None:
        """The proposed method, which others are tested against; None where it was not asked for."""
        proposed = self.spec.get("methods", [NO_METHOD])[0]
        return self.shown(proposed) if proposed != NO_METHOD and proposed in self.methods else None

    def published(self, dataset: str, method: str, measure: str) -> Published | None:
        name = self.suite.datasets[dataset].get("stands_for", dataset)
        column = self.spec.get("column", NO_METHOD) if method == NO_METHOD else self.shown(method)
        return self.suite.published.get((self.experiment.name, name, column, measure))

    def _decimals(self, measure: str) -> int | None:
        """As many as the paper prints for this measure."""
        printed = [
            cell.decimals
            for (table, _, _, name), cell in self.suite.published.items()
            if (table, name) == (self.experiment.name, measure) and cell.mean is not None
        ]
        return max(printed, default=None)

    def shown(self, method: str) -> str:
        return method if method == NO_METHOD else self.suite.methods[method].get("shown_as", method)

    def absence(self, dataset: str, method: str) -> str:
        data = self.suite.datasets[dataset]
        if "absent" in data:
            return f"{dataset}: {data['absent']}"
        model = {} if method == NO_METHOD else self.suite.methods[method]
        model = overlaid(model, shortened(data, self.short).get("models", {}).get(method, {}))
        return f"{method}: {model['absent']}" if "absent" in model else ""

    def explained(self, cell: Cell) -> Cell:
        """The cell with a sentence, if it lies outside what was published."""
        if cell.inside not in ("better", "worse"):
            return cell
        method = next((m for m in self.methods if self.shown(m) == cell.method), NO_METHOD)
        place = {"dataset": cell.dataset, "method": cell.method, "measure": cell.measure}
        sentences = []
        for note in self.suite.notes:
            if self.experiment.name not in note.get("experiments", [self.experiment.name]):
                continue
            if all(place[key] in note[f"{key}s"] for key in place if f"{key}s" in note):
                sentences.append(note["text"])
        if not sentences:
            for spec in (self.suite.datasets[cell.dataset], self.suite.methods.get(method, {})):
                if "note" in shortened(spec, self.short):
                    sentences.append(_sentence(shortened(spec, self.short)["note"]))
        return replace(cell, note=" ".join(sentences) or _UNEXPLAINED)

    def _has_tasks(self, name: str) -> bool:
        return any(name in pair for pair in self.tasks)

    # ------------------------------------------------------------------ words

    def _place(self) -> str:
        name = self.experiment.name
        return f"Figure {name[3:]}" if self.experiment.is_figure else f"Table {name}"

    def _protocol(self) -> str:
        protocol = shortened(self.suite.protocols[self.spec["protocol"]], self.short)
        return _sentence(protocol.get("title", self.spec["protocol"]))

    def glossary(self) -> tuple[tuple[str, str], ...]:
        """The estimator behind each method of the paper, and what it does."""
        found = []
        for name in self.methods:
            estimator = self.suite.methods.get(name, {}).get("estimator")
            if estimator is not None:
                summary = (get_estimator(estimator).__doc__ or "").strip().partition("\n")[0]
                found.append((self.shown(name), f"our {estimator}: {summary[:1].lower()}{summary[1:]}"))
        return tuple(dict(found).items())

    def remarks(self) -> tuple[str, ...]:
        """What a reader must know of data and methods, and which source made the rows."""
        found = []
        for name, known in [(n, self.suite.datasets) for n in self.datasets] + [
            (n, self.suite.methods) for n in self.methods if n != NO_METHOD
        ]:
            part = shortened(known[name], self.short)
            if "note" in part and "absent" not in part:
                found.append(f"{name}: {part['note'].removesuffix('.')}.")  # names keep their small letters
        parts = [
            self.suite.protocols[self.spec["protocol"]],
            *(self.suite.datasets[n] for n in self.datasets),
        ]
        parts += [self.suite.methods[name] for name in self.methods if name != NO_METHOD]
        if "intervals" in self.spec:
            found.append(
                "Published stds follow, by Student's t, from the 95 % intervals that the paper prints of "
                f"means of {self.spec['intervals']} repeats."
            )
        if self.short and any("short" in part for part in parts):
            found.append("Short run: fewer repeats or a smaller grid than in the paper, as the notes say.")
        versions = set()
        for tasks in self.tasks.values():
            for task in tasks:
                row = self.fits.rows.get(task.digest)
                if row is not None and row.get("versions"):
                    versions.add(json.loads(row["versions"])["bagwise"])
        if len(versions) > 1:
            found.append(f"Rows come from several versions of bagwise: {', '.join(sorted(versions))}.")
        return tuple(found)


def _mean(rows: Sequence[Row], name: str) -> float | None:
    values = [row[name] for row in rows if row[name] is not None]
    return fmean(values) if values else None


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")
