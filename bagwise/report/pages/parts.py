"""Parts of a page before any style, and the words for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from bagwise.report.pages.statistics import Overall
from bagwise.report.tables import measure_title

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
