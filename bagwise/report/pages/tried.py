"""What was tried where cells lie outside the published figures: grids, and sentences for single cells."""

from __future__ import annotations

from collections.abc import Iterable

from bagwise.report.pages.cells import Cell, ResultTable, Tried
from bagwise.report.pages.parts import NONE, SYMBOL, Grid, Piece, figure_text, title_of

_PUBLISHED, _OURS = "published", "in the table"

Place = tuple[str, str]  # data set, measure


def tried_grids(table: ResultTable) -> list[Grid]:
    """One grid for all data sets of a method on which the same was tried; figures with their verdicts.

    Changes are rows and data sets columns, or the other way round where data sets are more.
    """
    by_change: dict[tuple[str, tuple[str, ...]], list[Tried]] = {}
    places = dict.fromkeys((one.cell.dataset, one.cell.method) for one in table.tried)
    for dataset, method in places:
        found = [one for one in table.tried if (one.cell.dataset, one.cell.method) == (dataset, method)]
        changes = tuple(dict.fromkeys(one.change for one in found))
        by_change.setdefault((method, changes), []).extend(found)
    return [_grid(table, method, changes, found) for (method, changes), found in by_change.items()]


def tried_sentence(table: ResultTable, cell: Cell) -> str:
    """What was tried for one cell, in a sentence; "" where nothing was."""
    place = cell.dataset, cell.method, cell.measure
    found = [one for one in table.tried if (one.cell.dataset, one.cell.method, one.cell.measure) == place]
    return (
        f"Tried: {'; '.join(f'{one.change} {_text(one.cell, with_std=False)}' for one in found)}."
        if found
        else ""
    )


def _grid(table: ResultTable, method: str, changes: Iterable[str], found: list[Tried]) -> Grid:
    places: list[Place] = list(dict.fromkeys((one.cell.dataset, one.cell.measure) for one in found))
    cells = {(one.change, one.cell.dataset, one.cell.measure): one.cell for one in found}
    one_measure = len({measure for _, measure in places}) == 1
    titles = [title_of(measure, table.direction(measure)) for _, measure in places]
    names = [dataset if one_measure else f"{dataset}, {title}" for (dataset, _), title in zip(places, titles)]
    lines = {
        _PUBLISHED: [_published(table.cell(d, method, m)) for d, m in places],
        _OURS: [Piece(_text(table.cell(d, method, m)), "ours") for d, m in places],
    }
    for change in changes:
        lines[change] = [_piece(cells.get((change, *place))) for place in places]
    rows, columns, entries = [*lines], names, [*lines.values()]
    if len(names) > len(lines):
        rows, columns, entries = columns, rows, [list(row) for row in zip(*entries)]
    return Grid(
        title=f"Tried with {method}" + (f": {titles[0]}" if one_measure else ""),
        corner="change" if rows[0] == _PUBLISHED else "data set",
        rows=tuple(rows),
        columns=tuple(columns),
        lines=("",),
        entries=tuple(tuple((piece,) for piece in row) for row in entries),
        notes=tuple(tuple(() for _ in columns) for _ in rows),
    )


def _published(cell: Cell) -> Piece:
    return Piece(figure_text(cell.published_mean, cell.published_std, cell.shown_decimals), "published")


def _piece(cell: Cell | None) -> Piece:
    return Piece(NONE) if cell is None else Piece(_text(cell), cell.inside)


def _text(cell: Cell, with_std: bool = True) -> str:
    """The figure, how many of its fits there are if not all, and the sign of its verdict."""
    figure = figure_text(cell.mean, cell.std if with_std else None, cell.shown_decimals)
    part = f" ({cell.count[0]} of {cell.count[1]})" if cell.count else ""
    return figure + part + (f" {SYMBOL[cell.inside]}" if cell.inside else "")
