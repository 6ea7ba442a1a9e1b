"""What of the papers' own protocols was run beyond the short run, and which verdicts that changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bagwise.utils.tables import table
from papers.pages.cells import Cell, ResultTable
from papers.pages.parts import NONE, SYMBOL, count, figure_text, listed, title_of
from papers.pages.styles import escape


def beyond_short(extents: Sequence[Any], whole: Sequence[ResultTable], short: Sequence[ResultTable]) -> str:
    """Two sections of Markdown: what was run in full, and what it changes.

    Parameters
    ----------
    extents : sequence of Extent
        Of all experiments, those that the page leaves out included.
    whole, short : sequence of ResultTable
        The same tables by both protocols.
    """
    longer = [one for one in extents if one.n_beyond]
    finished = [one for one in longer if one.is_whole]
    begun = [one for one in longer if one.is_begun and not one.is_whole]
    shown = {one.experiment for one in longer if one.is_begun}
    left_out = dict.fromkeys(one.experiment for one in longer if one.experiment not in shown)
    none = len(longer) - len(finished) - len(begun)
    text = (
        "The papers' own protocols have more repeats or larger grids than the short run for "
        f"{count(len(longer), 'pair')} of method and data set, counted once per table. Of these "
        f"{len(finished)} were run in full, {len(begun)} in part and {none} not at all. The page shows the "
        "data sets of the first two kinds; of other methods there, cells with a figure are those of the "
        "short run, whose protocol already is the whole one. A line below is run by `python -m papers TABLE "
        "--datasets 'DATA SET' --methods METHOD`; `--merge` brings folders of several runs together."
    )
    parts = ["## What was run in full", text, _run(longer, shown)]
    if left_out:
        parts.append(f"Nothing beyond the short run was run of {listed(left_out)}: not on this page.")
    return "\n\n".join([*parts, "## What it changes", *_changes(finished, whole, short)])


def _run(longer: Sequence[Any], shown: Iterable[str]) -> str:
    """A line per experiment and data set, with the methods in full, in part and not run."""
    lines: dict[tuple[str, str], list[list[str]]] = {}
    for one in longer:
        if one.experiment in shown:
            line = lines.setdefault((one.experiment, one.dataset), [[], [], []])
            part = f" ({one.n_done} of {one.n_fits} fits)" if one.is_begun and not one.is_whole else ""
            line[0 if one.is_whole else 1 if one.is_begun else 2].append(one.method + part)
    rows = [
        [*map(escape, place), *(escape(", ".join(names)) or NONE for names in line)]
        for place, line in lines.items()
        if line[0] or line[1]
    ]
    header = ["table", "data set", "in full", "in part, no verdict", "not run in full"]
    return str(table(header, rows, style="markdown", align="lllll"))


def _changes(
    finished: Sequence[Any], whole: Sequence[ResultTable], short: Sequence[ResultTable]
) -> Iterator[str]:
    """How many verdicts are others, and all figures that have one in both runs and changed it."""
    places = {(one.experiment, one.dataset, one.method) for one in finished}
    cells_before = {(found.id, *_place(cell)): cell for found in short for cell in found.cells}
    judged = [
        (found.id, before, cell)
        for found in whole
        for cell in found.cells
        if (found.id, cell.dataset, cell.method) in places and cell.inside
        if (before := cells_before.get((found.id, *_place(cell)))) is not None and before.inside
    ]
    other = [(id, before, cell) for id, before, cell in judged if before.inside != cell.inside]
    if not judged:
        yield "No cell has a verdict in both runs."
        return
    good = [sum(cell.inside != "worse" for cell in cells) for cells in list(zip(*judged))[1:]]
    text = (
        f"{count(len(judged), 'cell')} run in full have a verdict in both runs: {good[0]} are inside or "
        f"better in the short run, {good[1]} in full. "
    )
    if not other:
        yield text + "No verdict changes."
        return
    yield text + f"{count(len(other), 'verdict')} {'changes' if len(other) == 1 else 'change'}:"
    rows = [
        [
            *map(escape, (id, cell.dataset, cell.method, title_of(cell.measure, cell.direction))),
            figure_text(cell.published_mean, cell.published_std, cell.shown_decimals),
            _figure(before),
            _figure(cell),
            escape(cell.note) or NONE,
        ]
        for id, before, cell in other
    ]
    yield str(
        table(
            ["table", "data set", "method", "measure", "published", "short", "in full", "note"],
            rows,
            style="markdown",
            align="llllllll",
        )
    )


def _place(cell: Cell) -> tuple[str, str, str]:
    return cell.dataset, cell.method, cell.measure


def _figure(cell: Cell) -> str:
    return f"{figure_text(cell.mean, cell.std, cell.shown_decimals)} {SYMBOL[cell.inside]} {cell.inside}"
