"""Tables of labels as rows of text: comma, tab or semicolon between cells, or an .xlsx sheet.

Cells stay text (``007``, ``NA`` and ``True`` are words), so that names of files and labels survive.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from bagwise.errors import DataError
from bagwise.io._source import delimiter_of, records
from bagwise.media.labels._parts import MAX_BYTES, number_in, text_of, xml_of

_CLOCK = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{1,2}(?:\.\d*)?)")
_MOST_COLUMNS = 16_384  # of a sheet
_MOST_CELLS = 50_000_000


class Row(NamedTuple):
    """Cells of one line by column."""

    cells: list[str]
    line: int


class Table:
    """A header and rows of text, with columns by lower-case name."""

    def __init__(self, path: Path, header: list[str], rows: list[Row]) -> None:
        self.path, self.rows = path, rows
        self.header = [name.strip() for name in header]
        self.place: dict[str, int] = {}
        for k, name in enumerate(self.header):
            self.place.setdefault(name.lower(), k)

    def has(self, *names: str) -> bool:
        """Whether all these columns are there."""
        return all(name in self.place for name in names)

    def first(self, *names: str) -> str | None:
        """The first of these columns that is there."""
        return next((name for name in names if name in self.place), None)

    def title(self, name: str) -> str:
        """A column's name as the table writes it."""
        return self.header[self.place[name]]

    def cell(self, row: Row, name: str) -> str:
        """A cell; empty where the row is too short or there is no such column."""
        k = self.place.get(name, len(row.cells))
        return row.cells[k].strip() if k < len(row.cells) else ""

    def file(self, row: Row, name: str) -> str:
        """The name of a file, which must be there."""
        file = self.cell(row, name)
        if not file:
            raise self.wrong(row, f"no file in column {self.title(name)!r}")
        return file

    def number(self, row: Row, name: str) -> float | None:
        """A number; None for an empty cell, or without such a column."""
        cell = self.cell(row, name)
        if not cell or cell.lower() == "nan":
            return None
        return number_in(cell, f"column {self.title(name)!r}", self.path, row.line)

    def seconds(self, row: Row, name: str) -> float | None:
        """Seconds: 12.5, or a clock such as 0:01:05; None for an empty cell."""
        clock = _CLOCK.fullmatch(self.cell(row, name))
        if clock is None:
            return self.number(row, name)
        hours, minutes, seconds = (float(part or 0) for part in clock.groups())
        return 3600 * hours + 60 * minutes + seconds

    def wrong(self, row: Row, problem: str) -> DataError:
        """The error for a row."""
        return DataError(problem, path=self.path, line=row.line)


def read_table(path: Path, text: str | None = None) -> Table:
    """Cut a file into a header and rows; blank lines are left out."""
    if path.suffix.lower() in (".xlsx", ".xlsm"):
        rows = list(_sheet(path))
    else:
        rows = list(_records(path, text_of(path) if text is None else text))
    if not rows:
        raise DataError("holds no rows", path=path)
    return Table(path, rows[0].cells, rows[1:])


def _records(path: Path, text: str) -> Iterator[Row]:
    first = text[: text.find("\n")] if "\n" in text else text
    delimiter = delimiter_of(path, first[:100_000])
    # In tables with tabs a quote is part of a label; only comma tables are quoted.
    quoting: Any = csv.QUOTE_NONE if delimiter == "\t" and '"' not in first else csv.QUOTE_MINIMAL
    style = {"quoting": quoting, "skipinitialspace": True}
    count = 0
    for line, cells in records(io.StringIO(text, newline=""), delimiter, path, len(text) + 1, **style):
        count += len(cells)
        if count > _MOST_CELLS:
            raise DataError(f"holds more than {_MOST_CELLS:,} cells", path=path, line=line)
        if any(cell.strip() for cell in cells):
            yield Row(cells, line)


# ---------------------------------------------------------------------- .xlsx


def _sheet(path: Path) -> Iterator[Row]:
    """Rows of the first sheet of a workbook; the line is the row's number there."""
    try:
        with zipfile.ZipFile(path) as book:
            names = set(book.namelist())
            sheet = _first_sheet(path, book, names)
            texts = []
            if "xl/sharedStrings.xml" in names:
                root = xml_of(path, _member(path, book, "xl/sharedStrings.xml"))
                texts = [_text(item) for item in root if _local(item) == "si"]
            root = xml_of(path, _member(path, book, sheet))
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, KeyError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"no readable .xlsx workbook ({error}); save the table as .csv", path=path) from None
    except FileNotFoundError:
        raise DataError("no such file", path=path) from None
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", path=path) from None
    number = 0
    for row in root.iter():
        if _local(row) != "row":
            continue
        given = row.get("r", "")
        number = int(given) if given.isascii() and given.isdigit() and len(given) < 9 else number + 1
        cells = _cells(path, row, texts, number)
        if any(cell.strip() for cell in cells):
            yield Row(cells, number)


def _first_sheet(path: Path, book: zipfile.ZipFile, names: set[str]) -> str:
    """The first sheet in the order of the tabs."""
    rels = "xl/_rels/workbook.xml.rels"
    if "xl/workbook.xml" in names and rels in names:
        tabs = [
            node
            for node in xml_of(path, _member(path, book, "xl/workbook.xml")).iter()
            if _local(node) == "sheet"
        ]
        targets = {node.get("Id"): node.get("Target", "") for node in xml_of(path, _member(path, book, rels))}
        for tab in tabs[:1]:
            key = next((value for name, value in tab.attrib.items() if name.endswith("}id")), None)
            target = str(targets.get(key, "")).lstrip("/")
            target = target if target.startswith("xl/") else f"xl/{target}"
            if target in names:
                return target
    sheets = sorted(name for name in names if re.fullmatch(r"xl/worksheets/[^/]+\.xml", name))
    if not sheets:
        raise DataError("an .xlsx workbook without sheets; save the table as .csv", path=path)
    return sheets[0]


def _member(path: Path, book: zipfile.ZipFile, name: str) -> bytes:
    with book.open(name) as member:
        limit = MAX_BYTES // 4
        content = member.read(limit + 1)
    if len(content) > limit:
        raise DataError("an .xlsx workbook that is too large when unpacked; save it as .csv", path=path)
    return content


def _cells(path: Path, row: ElementTree.Element, texts: list[str], line: int) -> list[str]:
    cells: list[str] = []
    for cell in row:
        if _local(cell) != "c":
            continue
        column = _column(cell.get("r", ""), len(cells))
        if not len(cells) <= column < _MOST_COLUMNS:
            raise DataError(f"cell {cell.get('r')!r} is out of order", path=path, line=line)
        cells.extend([""] * (column - len(cells)))
        kind = cell.get("t", "n")
        value = next((part.text or "" for part in cell if _local(part) == "v"), "")
        if kind == "s":
            if not (value.isascii() and value.isdigit() and int(value[:12]) < len(texts)):
                raise DataError(f"cell {cell.get('r')!r} points to no text", path=path, line=line)
            value = texts[int(value)]
        elif kind == "inlineStr":
            value = _text(cell)
        elif kind == "b":
            value = "TRUE" if value == "1" else "FALSE"
        cells.append(value)
    return cells


def _column(reference: str, after: int) -> int:
    letters = re.match(r"[A-Z]{1,3}(?=\d)", reference)
    if letters is None:
        return after
    number = 0
    for letter in letters[0]:
        number = 26 * number + ord(letter) - 64
    return number - 1


def _text(node: ElementTree.Element) -> str:
    return "".join(part.text or "" for part in node.iter() if _local(part) == "t")


def _local(node: ElementTree.Element) -> str:
    return node.tag.rpartition("}")[2] if isinstance(node.tag, str) else ""
