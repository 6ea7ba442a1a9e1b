"""Parts of a page before any style, and the words for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from bagwise.report import measure_title
from papers.pages.cells import Cell, ResultFigure, ResultTable
from papers.pages.statistics import Overall

NONE = "–"
SYMBOL = {"inside": "✓", "better": "▲", "worse": "▼"}
MARK = {"": "", "worse": " •", "better": " ◦"}
_ARROW = {"higher": " ↑", "lower": " ↓", "none": ""}
_UNITS = {"percent": "%", "s": "s", "min": "min", "mb": "MB"}
_WORDS = {"auc": "AUC", "norm": "(normalised)", "mb": "MB", "gb": "GB"}


class Piece(NamedTuple):
    """A few letters and what they are: "ours", "published", "inside", "better", "worse" or "" (plain)."""

    text: str
    kind: str = ""


@dataclass(frozen=True)
class Grid:
    """Rows x columns of entries; every entry has the same number of lines, such as ours, published, verdict.

    ``notes[i][j]`` are the numbers (from 1) of the footnotes that the first line of an entry refers to;
    ``best`` are the places (i, j) of the best figure of ours in each row; ``lead`` is a paragraph between the
    title and the table.
    """

    title: str
    corner: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    lines: tuple[str, ...]
    entries: tuple[tuple[tuple[Piece, ...], ...], ...]
    notes: tuple[tuple[tuple[int, ...], ...], ...]
    footnotes: tuple[str, ...] = ()
    best: frozenset[tuple[int, int]] = frozenset()
    lead: str = ""


@dataclass(frozen=True)
class Report:
    """All that a page says about one table or figure."""

    id: str
    title: str
    opening: tuple[str, ...]
    legend: str
    grids: tuple[Grid, ...]
    statistics: tuple[str, ...]
    comparisons: tuple[Overall, ...]
    remarks: tuple[str, ...]


class Footnotes:
    """Numbers for sentences, the same number for the same sentence."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}

    def number(self, *texts: str) -> tuple[int, ...]:
        """Numbers of these sentences; empty ones have none."""
        return tuple(
            self.texts.setdefault(text, len(self.texts) + 1) for text in dict.fromkeys(texts) if text
        )


def title_of(measure: str, direction: str = "none") -> str:
    """Words for a measure as published, with its unit and an arrow that points to better values.

    Examples
    --------
    >>> title_of("hamming_loss_percent", "lower"), title_of("auc", "higher"), title_of("train_time_s")
    ('Hamming loss, % ↓', 'AUC ↑', 'Train time, s')
    """
    stem, _, last = measure.rpartition("_")
    unit = f", {_UNITS[last]}" if stem and last in _UNITS else ""
    words = measure_title(stem if unit else measure).rstrip(" ↑↓").split(" ")
    title = " ".join(_WORDS.get(word, word) for word in words)
    return title[:1].upper() + title[1:] + unit + _ARROW[direction]


def figure_text(mean: float | None, std: float | None, decimals: int) -> str:
    """Mean and standard deviation with so many decimals, or a dash.

    Examples
    --------
    >>> figure_text(0.15, 0.0184, 3), figure_text(12.0, None, 1), figure_text(None, None, 1)
    ('0.150±0.018', '12.0', '–')
    """
    if mean is None:
        return NONE
    return _number(mean, decimals) + ("" if std is None else f"±{_number(std, decimals)}")


def _number(x: float, decimals: int) -> str:
    text = f"{x:.{decimals}f}"
    # A second is published, a millisecond measured: "0" would say nothing.
    return f"{x:.2g}" if decimals == 0 and x != 0 and float(text) == 0 else text


def count(n: int, noun: str) -> str:
    """So many of a thing."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def p_value(p: float) -> str:
    """What stands behind the letter p."""
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"


def listed(names: Iterable[str]) -> str:
    """Names with commas and a last "and"."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


# ----------------------------------------------------------------------
# What the names on a page stand for


_MEASURES = {
    "accuracy": "share of bags whose class is found",
    "auc": "area under the ROC curve: how often a bag with the label scores higher than one without",
    "average_precision": "mean over a bag's labels of the share of right ones among labels ranked as high",
    "coverage_raw": "how far down a bag's ranking of labels one must go to meet all of its own",
    "coverage_norm": "coverage divided by the number of labels",
    "hamming_loss": "share of all pairs of bag and label that are predicted wrongly",
    "hamming_loss_top": "Hamming loss when each bag gets as many labels as training bags have on average",
    "instance_accuracy": "share of instances whose label is found",
    "instance_accuracy_inductive": "share of instances whose label is found without knowing the bag's labels",
    "instance_accuracy_transductive": "share of instances whose label is found, the bag's labels being known",
    "instance_accuracy_given_labels": "share of instances whose label is found, the bag's labels being known",
    "key_instance_accuracy": "how often the best instance of a bag for one of its labels really carries it",
    "macro_f1": "harmonic mean of precision and recall of each label, averaged over labels",
    "mean_average_precision": "average precision of each label's ranking of bags, averaged over labels",
    "one_error": "share of bags whose highest ranked label is not one of theirs",
    "one_minus_average_precision": "one minus the average precision, so that lower is better",
    "ranking_loss": "share of pairs of a bag's own label and another in the wrong order",
    "train_time": "time of one fit",
    "test_time": "time of predicting the test bags",
}
_GLOSSARY_UNITS = ("_percent", "_s", "_min", "_mb")
_STATISTICS = {
    "std": "standard deviation over repeats",
    "p": "probability of a difference at least as large if the methods were equal",
    "CD": "critical difference (Bonferroni-Dunn): average ranks further apart than this differ",
    "Friedman χ², Iman–Davenport F": "tests whether average ranks over data sets differ at all",
}


def terms_of(results: Sequence[ResultTable | ResultFigure]) -> dict[str, str]:
    """Terms and explanations: methods as the results explain them, measures, words of statistics.

    Examples
    --------
    >>> figure = ResultFigure("p:fig1", "T", "bags", "AUC", glossary=(("MLR", "logistic regression"),))
    >>> list(terms_of([figure])), terms_of([figure])["MLR"]
    (['MLR', 'std', 'p', 'CD', 'Friedman χ², Iman–Davenport F'], 'logistic regression')
    """
    found: dict[str, str] = {}
    for result in results:
        found.update((term, text) for term, text in result.glossary if term not in found)
    for result in results:
        if not isinstance(result, ResultTable):
            continue
        for measure in result.measures:
            text = _explained(measure)
            if text:
                found.setdefault(title_of(measure, result.direction(measure)), text)
    return found | _STATISTICS


def _explained(measure: str) -> str:
    for unit in _GLOSSARY_UNITS:
        if measure.endswith(unit) and measure not in _MEASURES:
            measure = measure.removesuffix(unit)
    return _MEASURES.get(measure, "")


# ----------------------------------------------------------------------
# Whether the published order of methods is found again, counted pair by pair, for the head of a table


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
