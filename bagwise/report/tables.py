"""Tables of text: plain for pipes, Markdown for pages, rich for terminals."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

from bagwise.metrics import HIGHER_IS_BETTER

Style = Literal["text", "markdown", "rich"]
_ARROW = {True: " ↑", False: " ↓", None: ""}
_NO_VALUE = "–"
_NAME = 34  # letters of a name up to which it is never broken


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


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    style: Style = "text",
    align: str | None = None,
    bold: Collection[tuple[int, int]] = (),
) -> Any:
    """Lay out cells as text, as Markdown or for a rich console, which fits it to its width.

    Parameters
    ----------
    header : sequence of str
        Titles of the columns.
    rows : iterable of sequences
        Cells; shown with ``str``.
    style : {"text", "markdown", "rich"}
        What to return.
    align : str, optional
        One letter per column, "l" or "r"; left by default.
    bold : collection of (row, column), optional
        Cells to set in bold, where the style can.

    Examples
    --------
    >>> print(table(["label", "bags"], [["wren", 12], ["robin", 7]], align="lr"))
    label  bags
    wren     12
    robin     7
    """
    align = align or "l" * len(header)
    cells = [[str(cell) for cell in row] for row in rows]
    if style == "rich":
        return _rich(header, cells, align, bold)
    if style == "markdown":
        cells = [[cell.replace("|", "\\|") for cell in row] for row in cells]
        cells = [
            [f"**{cell}**" if (i, k) in bold else cell for k, cell in enumerate(row)]
            for i, row in enumerate(cells)
        ]
        marks = ["---:" if a == "r" else ":---" for a in align]
        lines = [f"| {' | '.join(row)} |" for row in [list(header), *cells]]
        return "\n".join([lines[0], f"|{'|'.join(marks)}|", *lines[1:]])
    widths = [max(len(row[k]) for row in [list(header), *cells]) for k in range(len(header))]
    return "\n".join(_line(row, widths, align) for row in [list(header), *cells])


def _line(row: Sequence[str], widths: Sequence[int], align: str) -> str:
    padded = (cell.rjust(w) if a == "r" else cell.ljust(w) for cell, w, a in zip(row, widths, align))
    return "  ".join(padded).rstrip()


def _rich(
    header: Sequence[str], cells: list[list[str]], align: str, bold: Collection[tuple[int, int]]
) -> Any:
    from rich import box  # needed on a terminal only
    from rich.table import Table
    from rich.text import Text

    result = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for k, (name, a) in enumerate(zip(header, align)):
        width = max((len(row[k]) for row in cells), default=0)
        # Names and numbers stay whole; titles of numbers break between words; the rest wraps.
        whole = a == "r" or (k == 0 and width <= _NAME)
        shown = Text(_stacked(name, width) if a == "r" else name)
        result.add_column(shown, justify="right" if a == "r" else "left", overflow="fold", no_wrap=whole)
    for i, row in enumerate(cells):
        # Text, not str: a label called "[red]" is no markup
        result.add_row(*(Text(cell, style="bold" if (i, k) in bold else "") for k, cell in enumerate(row)))
    return result


def _stacked(title: str, width: int) -> str:
    """The title over several lines, none wider than its longest word or the width given."""
    title = title.replace(" ↑", "\u00a0↑").replace(" ↓", "\u00a0↓")  # the arrow stays with its word
    lines = textwrap.wrap(title, max(width, 1, *map(len, title.split(" "))))
    return "\n".join(lines).replace("\u00a0", " ")


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
