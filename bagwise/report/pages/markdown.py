"""Reports as Markdown."""

from __future__ import annotations

import re

from bagwise.report.pages.parts import NONE, Grid, Piece, Report
from bagwise.utils.tables import table

_SPECIAL = re.compile(r"([\\`*_\[\]~$])")
_SIDE_BY_SIDE = 2  # columns up to which an entry's lines become columns of their own


def escape(line: str) -> str:
    r"""Make text that Markdown shows as it is; bars are left to the table that they would break.

    Examples
    --------
    >>> escape("a_b <c> & d*")
    'a\\_b &lt;c&gt; &amp; d\\*'
    """
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", " ".join(line.split()))


def markdown(report: Report, level: int = 2, image: str = "") -> str:
    """The report as Markdown under a heading of that level, with a picture below it if one is named."""
    parts = [f"{'#' * level} {escape(report.title)} ({escape(report.id)})"]
    parts += [escape(line) for line in (*report.opening, report.legend) if line]
    parts += [f"![{escape(report.title)}]({image})"] if image else []
    for grid in report.grids:
        parts.append(f"{'#' * (level + 1)} {escape(grid.title)}")
        parts += [escape(grid.lead)] if grid.lead else []
        parts.append(_side_by_side(grid) if len(grid.columns) <= _SIDE_BY_SIDE else _broken(grid))
        if grid.footnotes:
            notes = (f"<sup>{k}</sup> {escape(line)}" for k, line in enumerate(grid.footnotes, 1))
            parts.append("<br>\n".join(notes))
    parts += [escape(line) for line in report.statistics]
    if report.remarks:
        parts.append("\n".join(f"- {escape(line)}" for line in report.remarks))
    return "\n\n".join(parts) + "\n"


def _side_by_side(grid: Grid) -> str:
    header = [grid.corner]
    for name in grid.columns:
        header += [name] if len(grid.lines) == 1 else [f"{name} {line}" for line in grid.lines]
    rows = [
        [escape(name), *(text for j in range(len(grid.columns)) for text in _texts(grid, i, j))]
        for i, name in enumerate(grid.rows)
    ]
    one = "".join("l" if line == "verdict" else "r" for line in grid.lines)
    return str(table(_header(header), rows, style="markdown", align="l" + one * len(grid.columns)))


def _broken(grid: Grid) -> str:
    """Lines of an entry below each other, and their names in a column of their own."""
    several = len(grid.lines) > 1
    labels = ["<br>".join(map(escape, grid.lines))] if several else []
    rows = [
        [f"**{escape(name)}**", *labels, *("<br>".join(_texts(grid, i, j)) for j in range(len(grid.columns)))]
        for i, name in enumerate(grid.rows)
    ]
    header = _header([grid.corner, *([""] if several else []), *grid.columns])
    return str(table(header, rows, style="markdown"))


def _header(names: list[str]) -> list[str]:
    return [escape(name).replace("|", "\\|") for name in names]


def _texts(grid: Grid, i: int, j: int) -> list[str]:
    texts = [_text(piece) for piece in grid.entries[i][j]]
    notes = ",".join(map(str, grid.notes[i][j]))
    return [texts[0] + (f" <sup>{notes}</sup>" if notes else ""), *texts[1:]]


def _text(piece: Piece) -> str:
    text = escape(piece.text)
    if text in ("", NONE) or piece.kind not in ("ours", "better", "worse"):
        return text
    # the mark of significance stays outside of the bold figure
    figure, space, mark = text.partition(" ") if piece.kind == "ours" else (text, "", "")
    return f"**{figure}**{space}{mark}"
