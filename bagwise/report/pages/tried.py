"""What was tried where cells lie outside the published figures: grids, and sentences for single cells."""

from __future__ import annotations

from collections.abc import Iterable

from bagwise.report.pages.cells import Cell, ResultTable, Tried
from bagwise.report.pages.parts import NONE, SYMBOL, Footnotes, Grid, Piece, count, figure_text, title_of

_PUBLISHED, _UNCHANGED = "published", "unchanged"

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
        f"Tried: {'; '.join(f'{one.change} {_text(one.cell, one.inside, with_std=False)}' for one in found)}."
        if found
        else ""
    )


def _grid(table: ResultTable, method: str, changes: Iterable[str], found: list[Tried]) -> Grid:
    places: list[Place] = list(dict.fromkeys((one.cell.dataset, one.cell.measure) for one in found))
    first = {(one.cell.dataset, one.cell.measure): one for one in reversed(found)}
    tried = {(one.change, one.cell.dataset, one.cell.measure): one for one in found}
    one_measure = len({measure for _, measure in places}) == 1
    titles = [title_of(measure, table.direction(measure)) for _, measure in places]
    names = [dataset if one_measure else f"{dataset}, {title}" for (dataset, _), title in zip(places, titles)]
    footnotes = Footnotes()
    lines: dict[str, list[Piece]] = {
        _PUBLISHED: [_published(first[place].unchanged) for place in places],
        _UNCHANGED: [_piece(first[place].unchanged, first[place].unchanged.inside) for place in places],
    }
    notes: list[list[tuple[int, ...]]] = [[() for _ in places] for _ in lines]
    for change in changes:
        row = [tried.get((change, *place)) for place in places]
        lines[change] = [Piece(NONE) if one is None else _changed(one) for one in row]
        notes.append([() if one is None else footnotes.number(one.cell.missing) for one in row])
    rows, columns, entries = [*lines], names, [*lines.values()]
    if len(names) > len(lines):
        rows, columns = columns, rows
        entries, notes = [list(row) for row in zip(*entries)], [list(row) for row in zip(*notes)]
    return Grid(
        title=f"Tried with {method}" + (f": {titles[0]}" if one_measure else ""),
        corner="change" if rows[0] == _PUBLISHED else "data set",
        rows=tuple(rows),
        columns=tuple(columns),
        lines=("",),
        entries=tuple(tuple((piece,) for piece in row) for row in entries),
        notes=tuple(map(tuple, notes)),
        footnotes=tuple(footnotes.texts),
        lead=" ".join(dict.fromkeys(one.why for one in found if one.why)),
    )


def _published(cell: Cell) -> Piece:
    return Piece(figure_text(cell.published_mean, cell.published_std, cell.shown_decimals), "published")


def _piece(cell: Cell, inside: str, repeats: str = "") -> Piece:
    return Piece(_text(cell, inside) + repeats, inside)


def _changed(one: Tried) -> Piece:
    n = len(one.cell.values)
    other = n not in (0, len(one.unchanged.values))
    return _piece(one.cell, one.inside, f" ({count(n, 'repeat')})" if other and not one.cell.count else "")


def _text(cell: Cell, inside: str, with_std: bool = True) -> str:
    """The figure, how many of its fits there are if not all, and the sign of its verdict."""
    figure = figure_text(cell.mean, cell.std if with_std else None, cell.shown_decimals)
    part = f" ({cell.count[0]} of {cell.count[1]})" if cell.count else ""
    failed = " (failed)" if cell.mean is None and cell.missing.startswith("failed") else ""
    return figure + part + failed + (f" {SYMBOL[inside]}" if inside else "")
