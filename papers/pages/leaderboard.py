"""The page of a leaderboard: every estimator at its defaults, with ranks, critical difference, CPU time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from bagwise.utils.tables import table
from papers.pages.cells import NOT_RUN, Cell, ResultTable
from papers.pages.layout import sentence
from papers.pages.parts import title_of
from papers.pages.plots import critical_difference, svg
from papers.pages.statistics import overall

_NONE = "–"


def leaderboard(
    tables: Sequence[ResultTable], rows: Sequence[Mapping[str, Any]], folder: str, opening: str = ""
) -> tuple[str, dict[str, str]]:
    """Text of the page, and the pictures that it shows, by file name.

    Parameters
    ----------
    tables : sequence of ResultTable
        One per kind of data.
    rows : sequence of mapping
        The fits behind them, for their CPU seconds.
    folder : str
        Where the pictures will lie, as the page sees it.
    opening : str, optional
        Paragraphs under the title.
    """
    parts = ["# Leaderboard: every estimator at its defaults", opening, _READING]
    pictures: dict[str, str] = {}
    for found in tables:
        parts += [f"## {found.title.partition(': ')[2] or found.title}", found.protocol]
        first = found.measures[0]
        one = overall(found, first)
        if one.friedman is not None and one.cd is not None:
            name = f"{found.id.replace(':', '-')}.svg"
            drawn = critical_difference(one.ranks, one.cd, str(one.reference), _title(found, first))
            pictures[name] = svg(drawn)
            parts += [f"![Average ranks]({folder}/{name})", sentence(one, found.direction(first))]
            parts += _without_rank(one.left_out, found.datasets)
        order = _order(found, one.ranks)
        parts += [_grid(found, measure, order) for measure in found.measures]
        parts.append(_times(found, order, rows))
        parts += _reasons(found)
    return "\n\n".join(part.strip() for part in parts if part) + "\n", pictures


_READING = (
    "Mean over ten fits; bold is the best of a column. Estimators stand in the order of their average rank "
    "in the first measure, those without a rank below. pooled forest is 200 extra-trees on mean, spread, "
    "minimum, maximum and quantiles of the instances; pooled mean + logistic is logistic regression on "
    "means. A dash: not run, or the measure does not apply."
)


def _title(found: ResultTable, measure: str) -> str:
    return f"{title_of(measure, found.direction(measure))}: average ranks"


def _order(found: ResultTable, ranks: Mapping[str, float]) -> list[str]:
    return sorted(found.methods, key=lambda method: (ranks.get(method, math.inf), method))


def _grid(found: ResultTable, measure: str, order: Sequence[str]) -> str:
    cells = {(c.method, c.dataset): c for c in found.cells if c.measure == measure and c.mean is not None}
    datasets = [name for name in found.datasets if any((m, name) in cells for m in order)]
    methods = [m for m in order if any((m, name) in cells for name in datasets)]
    if not datasets:
        return ""
    lower = found.direction(measure) == "lower"
    pick = min if lower else max
    best = {d: pick(float(cells[m, d].mean or 0.0) for m in methods if (m, d) in cells) for d in datasets}
    lines = [[m, *(_shown(cells.get((m, d)), best[d]) for d in datasets)] for m in methods]
    heading = title_of(measure, found.direction(measure))
    return f"### {heading}\n\n" + _markdown(datasets, lines)


def _shown(cell: Cell | None, best: float) -> str:
    if cell is None or cell.mean is None:
        return _NONE
    text = f"{cell.mean:.3f}"
    partial = f" ({cell.missing})" if cell.missing else ""
    return (f"**{text}**" if text == f"{best:.3f}" else text) + partial


def _times(found: ResultTable, order: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    seconds: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row["fit_cpu_seconds"] is not None and not row["error"]:
            seconds.setdefault((row["method"], row["dataset"]), []).append(row["fit_cpu_seconds"])
    lines = [
        [m, *(f"{fmean(seconds[m, d]):.2f}" if (m, d) in seconds else _NONE for d in found.datasets)]
        for m in order
        if any((m, d) in seconds for d in found.datasets)
    ]
    return "### CPU seconds of a fit\n\n" + _markdown(found.datasets, lines)


def _markdown(datasets: Sequence[str], lines: list[list[str]]) -> str:
    return table(["estimator", *datasets], lines, style="markdown", align="l" + "r" * len(datasets))


def _without_rank(left_out: Mapping[str, Sequence[str]], datasets: Sequence[str]) -> list[str]:
    """Who has no rank, and where a value is missing for it; those without any value by name alone."""
    missing: dict[str, list[str]] = {}
    for method, names in left_out.items():
        if len(names) < len(datasets):
            missing.setdefault(", ".join(names), []).append(method)
    some = [f"{', '.join(methods)} (no value on {names})" for names, methods in missing.items()]
    none = [m for m, d in left_out.items() if len(d) == len(datasets)]
    lines = [f"Without a rank: {'; '.join(some)}."] if some else []
    return lines + ([f"Not run on any of these data sets: {', '.join(none)}."] if none else [])


def _reasons(found: ResultTable) -> list[str]:
    """Why cells are empty, each reason once; where no reason but that is known, the dash says enough."""
    first = found.measures[0]
    reasons: dict[str, dict[str, list[str]]] = {}
    for cell in found.cells:
        if cell.measure == first and cell.mean is None and cell.reason and cell.reason != NOT_RUN:
            reasons.setdefault(cell.reason, {}).setdefault(cell.method, []).append(cell.dataset)
    said = {
        r: "; ".join(f"{m} on {', '.join(d)}" for m, d in places.items()) for r, places in reasons.items()
    }
    return [f"Not run: {places}: {reason}." for reason, places in said.items()]
