"""Whether the published order of methods is found again, counted pair by pair, for the head of a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from bagwise.report.pages.cells import Cell, ResultTable
from bagwise.report.pages.parts import count, title_of

_NAMED = 6  # pairs that a sentence names


@dataclass(frozen=True)
class Order:
    """Pairs of methods with figures on both sides.

    Parameters
    ----------
    n_pairs, n_same : int
        Pairs that differ in print, and those of them that stand in the same order with us.
    n_clear, n_clear_same : int
        The same for pairs whose published means differ by more than either standard deviation: the published
        ones, or ours where none is published.
    turned : tuple of (Cell, Cell)
        Clear pairs that are the other way round with us: the published better one first.
    """

    n_pairs: int
    n_same: int
    n_clear: int
    n_clear_same: int
    turned: tuple[tuple[Cell, Cell], ...]


def order_of(table: ResultTable) -> Order:
    """Compare all pairs of methods of a table within each measure and data set.

    A pair whose published means are equal has no order; one of ours that is equal as shown agrees with
    either. Times are left out: they are those of programs and machines.

    Examples
    --------
    >>> def cell(method, ours, published):
    ...     return Cell("X", method, "auc", "higher", ours, published_mean=published, published_std=0.01)
    >>> cells = cell("A", 0.9, 0.8), cell("B", 0.7, 0.75), cell("C", 0.8, 0.7)
    >>> found = order_of(ResultTable("p:1", "", "", "A", ("X",), ("A", "B", "C"), ("auc",), cells))
    >>> found.n_pairs, found.n_same, [(a.method, b.method) for a, b in found.turned]
    (3, 2, [('B', 'C')])
    """
    n_pairs = n_same = n_clear = n_clear_same = 0
    turned = []
    for first, second in _pairs(table):
        higher = first.direction == "higher"
        if (first.published_mean > second.published_mean) != higher:  # type: ignore[operator]
            first, second = second, first  # the published better one is first
        ours = round(first.mean, first.shown_decimals) - round(second.mean, second.shown_decimals)  # type: ignore
        same = ours == 0 or (ours > 0) == higher
        apart = abs(first.published_mean - second.published_mean)  # type: ignore[operator]
        clear = apart > max(_spread(first), _spread(second))
        n_pairs, n_same = n_pairs + 1, n_same + same
        n_clear, n_clear_same = n_clear + clear, n_clear_same + (clear and same)
        if clear and not same:
            turned.append((first, second))
    return Order(n_pairs, n_same, n_clear, n_clear_same, tuple(turned))


def _spread(cell: Cell) -> float:
    return cell.published_std if cell.published_std is not None else cell.std or 0.0


def _pairs(table: ResultTable) -> Iterator[tuple[Cell, Cell]]:
    """Cells of two methods on one data set and measure, with whole figures that differ in print."""
    for measure in table.measures:
        if table.direction(measure) == "none" or "_time_" in measure:
            continue
        for dataset in table.datasets:
            cells = [table.cell(dataset, method, measure) for method in table.methods]
            known = [c for c in cells if c.inside]
            for first, second in combinations(known, 2):
                if first.published_mean != second.published_mean:
                    yield first, second


def order_sentence(table: ResultTable) -> str:
    """What became of the published order of methods; empty where no two methods can be compared."""
    found = order_of(table)
    if found.n_pairs == 0:
        return ""
    if found.n_same == found.n_pairs:
        return f"The published order of methods is found again in all {count(found.n_pairs, 'pair')} of them."
    text = (
        f"The published order of methods is found again in {found.n_same} of {count(found.n_pairs, 'pair')}, "
        f"and in {found.n_clear_same} of the {found.n_clear} that differ by more than a standard deviation."
    )
    if not found.turned:
        return text
    named = "; ".join(map(_words, found.turned[:_NAMED]))
    more = len(found.turned) - _NAMED
    return f"{text} Not found again: {named}{f'; and {more} more' if more > 0 else ''}."


def _words(pair: tuple[Cell, Cell]) -> str:
    better, worse = pair
    return f"{better.method} before {worse.method} on {better.dataset} ({title_of(better.measure)})"
