"""Comparisons over data sets: a grid of average ranks, and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from bagwise.report.pages.cells import ResultTable
from bagwise.report.pages.parts import MARK, NONE, Footnotes, Grid, Piece, count, listed, p_value, title_of
from bagwise.report.pages.statistics import Overall, overall


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
