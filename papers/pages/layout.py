"""What a page says, before any style: grids with footnotes, ranks, what was tried, sentences, remarks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isfinite

from papers.pages.cells import Cell, Curve, Mark, ResultFigure, ResultTable, Tried
from papers.pages.parts import (
    MARK,
    NONE,
    SYMBOL,
    Footnotes,
    Grid,
    Piece,
    Report,
    count,
    figure_text,
    listed,
    order_sentence,
    p_value,
    title_of,
)
from papers.pages.statistics import Overall, marks, overall


def comparisons_of(table: ResultTable) -> tuple[Overall, ...]:
    """Every measure that has a better direction, ours and published."""
    ranked = [measure for measure in table.measures if table.direction(measure) != "none"]
    return tuple(overall(table, m, source=source) for m in ranked for source in ("ours", "published"))


def sentences(table: ResultTable, comparisons: Sequence[Overall]) -> tuple[str, ...]:
    """What the comparisons found; also that there was nothing of ours to compare."""
    said = tuple(
        sentence(one, table.direction(one.measure)) for one in comparisons if one.friedman is not None
    )
    ours = [one for one in comparisons if one.source == "ours"]
    if ours and not any(one.friedman for one in ours):
        n, k = max((len(one.datasets), len(one.ranks)) for one in ours)
        said += (
            "No comparison of our ranks: Friedman's test needs two methods with figures on the same two data "
            f"sets, here {count(k, 'method')} on {count(n, 'data set')}.",
        )
    return said


def sentence(one: Overall, direction: str = "none") -> str:
    """A comparison over data sets in words; its ranks stand in their own grid."""
    test = one.friedman
    if test is None:
        return ""
    text = (
        f"{_of(one, direction)}: Friedman χ² = {test.chi2:.2f} (p {p_value(test.p_chi2)})"
        # where all sets rank the methods alike, the other statistic is infinite however few they are
        + (f", Iman–Davenport F = {test.F:.2f} (p {p_value(test.p_F)})" if isfinite(test.F) else "")
    )
    if one.cd is None:
        return f"{text}."
    others = [name for name in one.ranks if name != one.reference]
    groups = {
        "significantly better than": [m for m in others if one.different.get(m) == "worse"],
        "significantly worse than": [m for m in others if one.different.get(m) == "better"],
        "not significantly different from": [m for m in others if m not in one.different],
    }
    found = "; ".join(f"{words} {listed(names)}" for words, names in groups.items() if names)
    return f"{text}. Critical difference {one.cd:.2f}: {one.reference} ranks {found}."


def _of(one: Overall, direction: str) -> str:
    return f"{title_of(one.measure, direction)}, {one.source}, {count(len(one.datasets), 'data set')}"


def ranks_grid(table: ResultTable, comparisons: Sequence[Overall]) -> Grid | None:
    """Average ranks, a row per measure and source."""
    shown = [one for one in comparisons if one.friedman is not None]
    methods = tuple(m for m in table.methods if any(m in one.ranks for one in shown))
    if not shown:
        return None
    footnotes = Footnotes()

    def notes(one: Overall, method: str) -> tuple[int, ...]:
        sets = one.left_out.get(method, ())
        if not sets:
            return ()
        where = "any of these data sets" if len(sets) == len(one.datasets) else listed(sets)
        return footnotes.number(f"left out: no figure of {one.source} on {where}")

    def piece(one: Overall, method: str) -> Piece:
        rank = f"{one.ranks[method]:.2f}" if method in one.ranks else NONE
        return Piece(rank + MARK[one.different.get(method, "")], one.source)

    title = "Average ranks over data sets"
    if table.reference is not None:
        title += f" (• worse, ◦ better than {table.reference} by Bonferroni–Dunn, α = {table.alpha:g})"
    return Grid(
        title=title,
        corner="measure",
        rows=tuple(_of(one, table.direction(one.measure)) for one in shown),
        columns=methods,
        lines=("",),
        entries=tuple(tuple((piece(one, m),) for m in methods) for one in shown),
        notes=tuple(tuple(notes(one, m) for m in methods) for one in shown),
        footnotes=tuple(footnotes.texts),
    )


# ----------------------------------------------------------------------
# What was tried where cells lie outside the published figures: grids, and sentences for single cells


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
    return [_tried_grid(table, method, changes, found) for (method, changes), found in by_change.items()]


def tried_sentence(table: ResultTable, cell: Cell) -> str:
    """What was tried for one cell, in a sentence; "" where nothing was."""
    place = cell.dataset, cell.method, cell.measure
    found = [one for one in table.tried if (one.cell.dataset, one.cell.method, one.cell.measure) == place]
    return (
        f"Tried: {'; '.join(f'{one.change} {_text(one.cell, one.inside, with_std=False)}' for one in found)}."
        if found
        else ""
    )


def _tried_grid(table: ResultTable, method: str, changes: Iterable[str], found: list[Tried]) -> Grid:
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


# ----------------------------------------------------------------------
# What a page says, before any style: grids of figures with footnotes, sentences, remarks


def report(result: ResultTable | ResultFigure) -> Report:
    """Work out what a page says about a table or a figure."""
    return _of_table(result) if isinstance(result, ResultTable) else _of_figure(result)


STATES = ("inside", "better", "worse", "without comparison", "unfinished", "missing")


def tally(table: ResultTable) -> dict[str, int]:
    """Number of cells "inside", "better", "worse", with nothing to compare, "unfinished", and "missing"."""
    counts = dict.fromkeys(STATES, 0)
    for cell in table.cells:
        if cell.count is not None:
            counts["unfinished"] += 1
        else:
            counts["missing" if cell.mean is None else cell.inside or "without comparison"] += 1
    return counts


# ---------------------------------------------------------------------- tables


def _of_table(table: ResultTable) -> Report:
    found = marks(table)
    grids = _measure_grids(table, found)
    times = _times_grid(table)
    comparisons = comparisons_of(table)
    ranks = ranks_grid(table, comparisons)
    return Report(
        id=table.id,
        title=table.title,
        opening=tuple(line for line in (table.protocol, _summary(table), order_sentence(table)) if line),
        legend=_legend(table),
        grids=tuple(grid for grid in (*grids, *tried_grids(table), times, ranks) if grid is not None),
        statistics=sentences(table, comparisons),
        comparisons=tuple(one for one in comparisons if one.cd is not None),
        remarks=table.remarks,
    )


def _measure_grids(table: ResultTable, found: dict[tuple[str, str, str], Mark]) -> list[Grid]:
    """One grid per measure with a column per method; measures side by side where there is one method."""
    titles = {measure: title_of(measure, table.direction(measure)) for measure in table.measures}
    if len(table.methods) == 1:
        columns = [(titles[measure], table.methods[0], measure) for measure in table.measures]
        name = table.methods[0]
        return [_grid(table, "Counts" if name == "-" else name, columns, found)]
    return [
        _grid(table, titles[measure], [(method, method, measure) for method in table.methods], found)
        for measure in table.measures
    ]


def _grid(
    table: ResultTable,
    title: str,
    columns: list[tuple[str, str, str]],
    found: dict[tuple[str, str, str], Mark],
) -> Grid:
    """Data sets x columns, each with its heading, method and measure."""
    footnotes = Footnotes()
    cells = [[table.cell(d, method, measure) for _, method, measure in columns] for d in table.datasets]
    flat = [cell for row in cells for cell in row]
    shown = ["ours"]
    if any(cell.published_mean is not None for cell in flat):
        shown.append("published")
    if any(cell.inside for cell in flat):
        shown.append("verdict")

    def pieces(cell: Cell) -> tuple[Piece, ...]:
        mark = found.get((cell.dataset, cell.method, cell.measure), "")
        decimals = cell.shown_decimals
        part = f" ({cell.count[0]} of {cell.count[1]})" if cell.count else ""
        ours = Piece(figure_text(cell.mean, cell.std, decimals) + part + MARK[mark], "ours")
        theirs = figure_text(cell.published_mean, cell.published_std, decimals) + MARK[cell.published_mark]
        verdict = Piece(f"{SYMBOL[cell.inside]} {cell.inside}", cell.inside) if cell.inside else Piece("")
        return (ours, Piece(theirs, "published"), verdict)[: len(shown)]

    return Grid(
        title=title,
        corner="data set",
        rows=table.datasets,
        columns=tuple(heading for heading, _, _ in columns),
        lines=tuple(shown),
        entries=tuple(tuple(pieces(cell) for cell in row) for row in cells),
        notes=tuple(tuple(footnotes.number(cell.reason, cell.note) for cell in row) for row in cells),
        footnotes=tuple(footnotes.texts),
        best=frozenset((i, j) for i, row in enumerate(cells) for j in _best(row)),
    )


def _best(row: Sequence[Cell]) -> list[int]:
    """Places of the best complete figures of ours among methods that are compared in one measure."""
    known = [
        (j, round(cell.mean, cell.shown_decimals))
        for j, cell in enumerate(row)
        if cell.mean is not None and cell.count is None and cell.direction != "none"
    ]
    if len({cell.measure for cell in row}) != 1 or len(known) < 2:
        return []
    best = (max if row[0].direction == "higher" else min)(value for _, value in known)
    return [j for j, value in known if value == best]


def _times_grid(table: ResultTable) -> Grid | None:
    """Seconds and memory of every data set and method; the same whatever the measure."""

    def first(dataset: str, method: str, name: str) -> float | None:
        cells = (table.cell(dataset, method, measure) for measure in table.measures)
        return next((x for cell in cells if (x := getattr(cell, name)) is not None), None)

    names: dict[str, Callable[[float], str]] = {
        "fit_seconds": _seconds,
        "predict_seconds": _seconds,
        "peak_mb": lambda x: f"{x:.0f}",
    }
    found = {(d, m, n): first(d, m, n) for d in table.datasets for m in table.methods for n in names}
    rows = tuple(
        d for d in table.datasets if any(found[d, m, n] is not None for m in table.methods for n in names)
    )
    columns = tuple(m for m in table.methods if any(found[d, m, n] is not None for d in rows for n in names))
    if not rows:
        return None

    def text(dataset: str, method: str, name: str) -> str:
        x = found[dataset, method, name]
        return NONE if x is None else names[name](x)

    return Grid(
        title="Time and memory of ours, means over repeats",
        corner="data set",
        rows=rows,
        columns=columns,
        lines=("fit, s", "predict, s", "peak, MB"),
        entries=tuple(tuple(tuple(Piece(text(d, m, n)) for n in names) for m in columns) for d in rows),
        notes=tuple(tuple(() for _ in columns) for _ in rows),
    )


def _seconds(x: float) -> str:
    if x < 0.001:
        return "<0.001"
    return f"{x:.{0 if x >= 100 else 1 if x >= 10 else 2 if x >= 1 else 3}f}"


def _summary(table: ResultTable) -> str:
    counts = tally(table)
    compared = sum(counts[name] for name in ("inside", "better", "worse"))
    parts = []
    if compared:
        parts.append(
            f"{count(compared, 'cell')} with figures on both sides: {counts['inside']} of ours inside the "
            f"published mean ± std, {counts['better']} better, {counts['worse']} worse."
        )
    if counts["without comparison"]:
        verb = "has a figure" if counts["without comparison"] == 1 else "have figures"
        parts.append(f"{count(counts['without comparison'], 'cell')} {verb} of ours and nothing to compare.")
    if counts["unfinished"]:
        verb = "is" if counts["unfinished"] == 1 else "are"
        parts.append(
            f"{count(counts['unfinished'], 'cell')} {verb} unfinished; brackets say how many fits there are."
        )
    if counts["missing"]:
        verb = "has" if counts["missing"] == 1 else "have"
        parts.append(f"{count(counts['missing'], 'cell')} {verb} no figure of ours; footnotes say why.")
    return " ".join(parts)


def _legend(table: ResultTable) -> str:
    parts = []
    if any(cell.inside for cell in table.cells):
        parts.append(
            f"{', '.join(f'{symbol} {word}' for word, symbol in SYMBOL.items())}: our mean against the "
            "published mean ± std"
        )
        if any(cell.inside and cell.published_std is None for cell in table.cells):
            parts[-1] += " (where no std is published, against the published mean ± our own std)"
    if table.reference is not None and len(table.methods) > 1:
        parts.append(
            f"• significantly worse, ◦ significantly better than {table.reference} (ours: two-tailed paired "
            "t-test over repeats, 95 %; published: as marked in the paper)"
        )
    if table.tried:
        parts.append(
            "tried: one change each to the protocol of the short run, whose own figures are called "
            "unchanged; judged on the same test bags, changes explain and do not recommend"
        )
    parts.append(f"{NONE} no figure")
    return "; ".join(parts) + "."


# ---------------------------------------------------------------------- figures


def _of_figure(figure: ResultFigure) -> Report:
    curves: list[tuple[str, Curve, str]] = [(curve.name, curve, "ours") for curve in figure.curves]
    curves += [(f"{curve.name} (published)", curve, "published") for curve in figure.published]
    xs = sorted({x for _, curve, _ in curves for x in curve.x})
    points = [dict(zip(c.x, zip(c.mean, c.std or (None,) * len(c.x)))) for _, c, _ in curves]

    def entry(k: int, x: float) -> tuple[Piece, ...]:
        if x not in points[k]:
            return (Piece(NONE, curves[k][2]),)
        mean, std = points[k][x]
        text = f"{mean:.4g}" + ("" if std is None else f"±{std:.2g}")
        return (Piece(text, curves[k][2]),)

    grid = Grid(
        title=f"{figure.y_label} by {figure.x_label}",
        corner=figure.x_label,
        rows=tuple(f"{x:g}" for x in xs),
        columns=tuple(name for name, _, _ in curves),
        lines=("",),
        entries=tuple(tuple(entry(k, x) for k in range(len(curves))) for x in xs),
        notes=tuple(tuple(() for _ in curves) for _ in xs),
    )
    opening = () if figure.curves else ("No curve of ours: the experiment was not run.",)
    legend = f"{NONE} no figure." if any(len(p) < len(xs) for p in points) else ""
    return Report(figure.id, figure.title, opening, legend, (grid,) if xs else (), (), (), figure.remarks)
