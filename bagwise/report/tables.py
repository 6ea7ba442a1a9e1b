"""Measures of several models side by side, as tables of text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from bagwise.metrics import HIGHER_IS_BETTER
from bagwise.utils.tables import Style, table

_ARROW = {True: " ↑", False: " ↓", None: ""}
_NO_VALUE = "–"


def comparison_table(
    rows: Mapping[str, Mapping[str, float]],
    measures: Iterable[str] | None = None,
    *,
    style: Style = "text",
    decimals: int = 3,
    mark_best: bool = False,
    transpose: bool = False,
) -> Any:
    """Measures of several models side by side; an arrow tells where better values lie.

    Parameters
    ----------
    rows : mapping of str to mapping of str to float
        Name of a model -> measures, such as the results of `bagwise.metrics.evaluate`.
    measures : sequence of str, optional
        Columns in order; by default every measure that occurs. A measure that a row lacks is a dash.
    style : {"text", "markdown", "rich"}
        What to return: aligned text, a Markdown table, or a `rich.table.Table`.
    decimals : int, default=3
        Digits after the point.
    mark_best : bool, default=False
        Whether to set the best value of each measure in bold (not in plain text).
    transpose : bool, default=False
        Whether models are columns and measures rows.

    Examples
    --------
    >>> rows = {"dummy": {"ranking_loss": 0.5}, "ours": {"ranking_loss": 0.125, "average_precision": 0.75}}
    >>> print(comparison_table(rows))
    model  ranking loss ↓  average precision ↑
    dummy           0.500                    –
    ours            0.125                0.750
    >>> print(comparison_table(rows, ["ranking_loss"], style="markdown", mark_best=True))
    | model | ranking loss ↓ |
    |:---|---:|
    | dummy | 0.500 |
    | ours | **0.125** |
    """
    if measures is None:
        measures = list(dict.fromkeys(name for row in rows.values() for name in row))
    measures = list(measures)
    best = {name: _best(name, rows) if mark_best else math.nan for name in measures}

    def cell(row: Mapping[str, float], name: str) -> str:
        value = row.get(name)
        return _NO_VALUE if value is None or math.isnan(value) else f"{value:.{decimals}f}"

    cells = [[cell(row, name) for name in measures] for row in rows.values()]
    bold = {
        (i, k)
        for i, row in enumerate(rows.values())
        for k, name in enumerate(measures)
        if row.get(name) == best[name]
    }
    first, titles, others = "model", list(rows), [measure_title(name) for name in measures]
    if transpose:
        cells, bold = [list(column) for column in zip(*cells)], {(k, i) for i, k in bold}
        first, titles, others = "measure", others, titles
    lines = [[title, *line] for title, line in zip(titles, cells)]
    align = "l" + "r" * len(others)
    return table([first, *others], lines, style=style, align=align, bold={(i, k + 1) for i, k in bold})


def measure_title(name: str) -> str:
    """Words for a measure, with an arrow that points to better values.

    Examples
    --------
    >>> measure_title("hamming_loss")
    'Hamming loss ↓'
    """
    words = name.replace("_", " ").replace("hamming", "Hamming").replace("roc auc", "ROC AUC")
    return words.replace("macro f1", "macro F1") + _ARROW[_higher_is_better(name)]


def _higher_is_better(name: str) -> bool | None:
    """Direction of a measure; "instance_accuracy_given_labels" runs like "instance_accuracy"."""
    known = [measure for measure in HIGHER_IS_BETTER if name == measure or name.startswith(f"{measure}_")]
    return HIGHER_IS_BETTER[max(known, key=len)] if known else None


def _best(name: str, rows: Mapping[str, Mapping[str, float]]) -> float:
    values = [row[name] for row in rows.values() if name in row and not math.isnan(row[name])]
    direction = _higher_is_better(name)
    if not values or direction is None:
        return math.nan  # which equals no value
    return max(values) if direction else min(values)
