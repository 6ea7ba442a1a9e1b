"""Tables of text: plain for pipes, Markdown for pages, rich for terminals."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal

Style = Literal["text", "markdown", "rich"]
_NAME = 34  # letters of a name up to which it is never broken


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
    whole = [list(header), *cells]
    widths = [max(len(row[k]) for row in whole) for k in range(len(header))]
    padded = [
        [c.rjust(w) if a == "r" else c.ljust(w) for c, w, a in zip(row, widths, align)] for row in whole
    ]
    return "\n".join("  ".join(row).rstrip() for row in padded)


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
        if a == "r":  # over several lines, none wider than its longest word or the column
            name = name.replace(" ↑", "\u00a0↑").replace(" ↓", "\u00a0↓")  # the arrow stays with its word
            lines = textwrap.wrap(name, max(width, 1, *map(len, name.split(" "))))
            name = "\n".join(lines).replace("\u00a0", " ")
        result.add_column(Text(name), justify="right" if a == "r" else "left", overflow="fold", no_wrap=whole)
    for i, row in enumerate(cells):
        # Text, not str: a label called "[red]" is no markup
        result.add_row(*(Text(cell, style="bold" if (i, k) in bold else "") for k, cell in enumerate(row)))
    return result
