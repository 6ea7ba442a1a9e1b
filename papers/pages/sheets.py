"""Grids cut to a width; reports as plain text and for rich consoles."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

from bagwise.utils.tables import table
from papers.pages.parts import Grid, Piece, Report

_NAME = 12  # letters below which a title is not broken
_GAP = 2
_COLOURS = {"inside": "green", "better": "bold cyan", "worse": "bold red", "published": "dim", "ours": "bold"}


@dataclass(frozen=True)
class Sheet:
    """Lines of a table that fits; groups are the lines of one row of the grid."""

    header: tuple[str, ...]
    groups: tuple[tuple[tuple[Piece, ...], ...], ...]
    align: str

    @property
    def stacked(self) -> bool:
        """Whether a row of the grid takes several lines."""
        return any(len(group) > 1 for group in self.groups)

    @property
    def header_lines(self) -> list[list[str]]:
        """Titles broken into lines; they end on the same line, just above the figures."""
        titles = [_broken(title, w) for title, w in zip(self.header, _widths(self))]
        height = max(map(len, titles))
        padded = [[""] * (height - len(lines)) + lines for lines in titles]
        return [list(line) for line in zip(*padded)]


def sheets(grid: Grid, width: int) -> list[Sheet]:
    """Lay a grid out in as few tables as fit the width.

    With room for it, an entry's lines stand side by side, so that a data set is one line. Else they stand
    below each other, and where that is still too wide, columns go on in a further table.
    """
    flat = _flat(grid)
    if len(grid.lines) == 1 or _width(flat) <= width:
        return _cut(flat, width, fixed=1)
    return _cut(_stacked(grid), width, fixed=2)


def noted(grid: Grid, i: int, j: int) -> Piece:
    """First line of an entry with the numbers of its footnotes."""
    piece, notes = grid.entries[i][j][0], grid.notes[i][j]
    return Piece(f"{piece.text} [{','.join(map(str, notes))}]" if notes else piece.text, piece.kind)


def _flat(grid: Grid) -> Sheet:
    header = [grid.corner]
    for name in grid.columns:
        # under a method's name stands what is ours; what follows belongs to it
        ours = grid.lines[0] in ("", "ours")
        header += [name, *grid.lines[1:]] if ours else [f"{name} {line}" for line in grid.lines]
    groups = []
    for i, name in enumerate(grid.rows):
        row = [Piece(name)]
        for j in range(len(grid.columns)):
            row += [noted(grid, i, j), *grid.entries[i][j][1:]]
        groups.append((tuple(row),))
    # verdicts are words and begin at one place
    one = "".join("l" if line == "verdict" else "r" for line in grid.lines)
    return Sheet(tuple(header), tuple(groups), "l" + one * len(grid.columns))


def _stacked(grid: Grid) -> Sheet:
    groups = []
    for i, name in enumerate(grid.rows):
        lines = []
        for k, label in enumerate(grid.lines):
            pieces = [entry[k] if k else noted(grid, i, j) for j, entry in enumerate(grid.entries[i])]
            if k == 0 or any(piece.text for piece in pieces):
                lines.append((Piece(name if k == 0 else ""), Piece(label, "published"), *pieces))
        groups.append(tuple(lines))
    return Sheet((grid.corner, "", *grid.columns), tuple(groups), "ll" + "l" * len(grid.columns))


def _widths(sheet: Sheet) -> list[int]:
    rows = [row for group in sheet.groups for row in group]
    cells = [max((len(row[k].text) for row in rows), default=0) for k in range(len(sheet.header))]
    return [max([w, *map(len, _broken(title, w))]) for title, w in zip(sheet.header, cells)]


def _broken(title: str, width: int) -> list[str]:
    """A title over several lines, none wider than the cells below, a short name or its longest word."""
    return textwrap.wrap(title, max(width, _NAME), break_long_words=False, break_on_hyphens=False) or [""]


def _width(sheet: Sheet) -> int:
    widths = _widths(sheet)
    return sum(widths) + _GAP * (len(widths) - 1)


def _cut(sheet: Sheet, width: int, fixed: int) -> list[Sheet]:
    """Parts of a sheet, each with the first ``fixed`` columns and as many others as fit, at least one."""
    widths = _widths(sheet)
    parts: list[list[int]] = [[]]
    used = base = sum(widths[:fixed]) + _GAP * (fixed - 1)
    for k in range(fixed, len(widths)):
        if parts[-1] and used + _GAP + widths[k] > width:
            parts.append([])
            used = base
        parts[-1].append(k)
        used += _GAP + widths[k]
    found = []
    for part in parts:
        keep = [*range(fixed), *part]
        groups = tuple(tuple(tuple(row[k] for k in keep) for row in group) for group in sheet.groups)
        found.append(
            Sheet(tuple(sheet.header[k] for k in keep), groups, "".join(sheet.align[k] for k in keep))
        )
    return found


# ---------------------------------------------------------------------- plain text


def text(report: Report, width: int) -> str:
    """The report as plain text."""
    head = f"{report.id}  {report.title}"
    parts = [_wrap(head, width) + "\n" + "=" * min(width, len(head))]
    parts += [_wrap(line, width) for line in (*report.opening, report.legend) if line]
    for grid in report.grids:
        title = f"{_wrap(grid.title, width)}\n{'-' * min(width, len(grid.title))}\n"
        title += f"{_wrap(grid.lead, width)}\n\n" if grid.lead else ""
        parts.append(title + "\n\n".join(_text_sheet(sheet) for sheet in sheets(grid, width)))
        if grid.footnotes:
            parts.append("\n".join(_footnotes(grid, width)))
    parts += [_wrap(line, width) for line in report.statistics]
    parts += [_wrap(f"- {line}", width, "  ") for line in report.remarks]
    return "\n\n".join(parts) + "\n"


def _footnotes(grid: Grid, width: int) -> list[str]:
    return [_wrap(f"[{k}] {line}", width, "    ") for k, line in enumerate(grid.footnotes, 1)]


def _wrap(line: str, width: int, indent: str = "") -> str:
    return textwrap.fill(line, width, subsequent_indent=indent, break_on_hyphens=False)


def _text_sheet(sheet: Sheet) -> str:
    head = sheet.header_lines
    rows: list[list[str]] = [*head[1:]]
    for i, group in enumerate(sheet.groups):
        if i and sheet.stacked:
            rows.append([""] * len(sheet.header))
        rows += [[piece.text for piece in row] for row in group]
    return str(table(head[0], rows, align=sheet.align))


# ---------------------------------------------------------------------- rich


def rich(report: Report, width: int) -> Any:
    """The report as something that a rich console prints, in colours where it has them."""
    from rich.console import Group  # needed on a terminal only
    from rich.padding import Padding
    from rich.text import Text

    def paragraph(line: str, style: str = "", indent: int = 0) -> Any:
        return Padding(Text(_wrap(line, width - indent), style=style), (1, 0, 0, indent))

    parts: list[Any] = [Text(_wrap(f"{report.id}  {report.title}", width), style="bold underline")]
    parts += [paragraph(line) for line in report.opening]
    parts += [paragraph(report.legend, "dim")] if report.legend else []
    for grid in report.grids:
        parts.append(paragraph(grid.title, "bold magenta"))
        parts += [paragraph(grid.lead)] if grid.lead else []
        for k, sheet in enumerate(sheets(grid, width)):
            parts.append(Padding(_rich_sheet(sheet), (1 if k else 0, 0, 0, 0)))
        if grid.footnotes:
            parts.append(Padding(Text("\n".join(_footnotes(grid, width)), style="yellow"), (1, 0, 0, 0)))
    parts += [paragraph(line) for line in report.statistics]
    parts += [paragraph(f"- {line}", "italic") for line in report.remarks]
    return Group(*parts)


def _rich_sheet(sheet: Sheet) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    result = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, _GAP - 1, 0, 0),
        collapse_padding=True,
    )
    for title, w, a in zip(sheet.header, _widths(sheet), sheet.align):
        shown = Text("\n".join(_broken(title, w)))
        result.add_column(shown, justify="right" if a == "r" else "left", no_wrap=True, vertical="bottom")
    for i, group in enumerate(sheet.groups):
        for k, row in enumerate(group):
            end = sheet.stacked and k == len(group) - 1 and i < len(sheet.groups) - 1
            # Text, not str: a method called "[red]" is no markup
            result.add_row(*(Text(p.text, style=_COLOURS.get(p.kind, "")) for p in row), end_section=end)
    return result
