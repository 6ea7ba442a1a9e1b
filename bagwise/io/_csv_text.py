"""Comma-separated text to columns: Arrow's fast reader, and a slow careful one that knows every line."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from bagwise.bags.arrow import first_null
from bagwise.bags.columns import EMPTY, NUMBER, TEXT
from bagwise.errors import DataError
from bagwise.io._source import records

_SAMPLE = 100  # rows by which a column is taken for numbers or text
_BLOCK = 1 << 22  # bytes that Arrow parses at once; a row must fit
_NUMBER = re.compile(r"\s*[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf|infinity)\s*", re.ASCII | re.IGNORECASE)
is_number = _NUMBER.fullmatch  # as other programs write it: 1_000 is none
_COMMA = re.compile(r"\s*[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+(e[+-]?\d+)?\s*", re.ASCII | re.IGNORECASE)
_THOUSANDS = re.compile(r"\s*[+-]?\d{1,3}([,' ]\d{3})+(\.\d*)?\s*", re.ASCII)
_MISSING = {"", "na", "n/a", "#n/a", "nan", "null", "none", "?", "-", "--", ".", "missing"}


def what_is_wrong(field: str, column: str) -> str:
    """What to say of a field that should be a number.

    Examples
    --------
    >>> what_is_wrong("0,5", "f1")
    "holds '0,5', a number with a decimal comma; read it with decimal=',' or write 0.5"
    """
    shown = f"holds {field[:40]!r}"
    plain = field.strip()
    if _THOUSANDS.fullmatch(plain):
        bare = re.sub("[,' ]", "", plain)
        return (
            f"{shown}: write {bare} if the mark separates thousands; if it is a decimal comma, read it with "
            "decimal=','"
        )
    if _COMMA.fullmatch(plain):
        return (
            f"{shown}, a number with a decimal comma; read it with decimal=',' or write "
            f"{plain.replace('.', '').replace(',', '.')}"
        )
    if plain.lower() in _MISSING:
        what = "is empty" if not plain else f"{shown}, a missing value"
        return f"{what}; fill or drop such rows first, or keep the column as a fact with info=[{column!r}]"
    return f"{shown}, expected a number"


class CsvText:
    """The text of a CSV file (UTF-8 without byte order mark), cut in records on demand."""

    def __init__(self, content: bytes, path: Path, delimiter: str = ",", decimal: str = ".") -> None:
        if decimal not in (".", ","):
            raise ValueError(f"decimal must be '.' or ',', got {decimal!r}")
        self.decimal = decimal
        self.quoted = b'"' in content
        if not self.quoted and b"\r" in content:
            content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self.content, self.path, self.delimiter = content, path, delimiter
        self.names = next(self.records(), (1, [""]))[1]  # of the columns
        self.n_heads = 1
        self.lines = np.empty(0, dtype=np.int64)

    @property
    def title(self) -> str:
        """What to call a column in messages, to be formatted with its name."""
        return "column {!r}" if self.n_heads else "column {}"

    def records(self) -> Iterator[tuple[int, list[str]]]:
        """Line on which each record begins, and its fields; blank lines are left out."""
        text = io.TextIOWrapper(io.BytesIO(self.content), encoding="utf-8", newline="")
        return records(text, self.delimiter, self.path)

    def kinds(self) -> dict[str, str]:
        """What each column holds, judged by most of the values in the first rows: some may be broken.

        Missing values tell nothing, and a number with a decimal comma is meant to be a number: both are
        reported by line when the column is read.
        """
        if len(set(self.names)) != len(self.names):
            twice = next(name for k, name in enumerate(self.names) if name in self.names[:k])
            raise DataError(f"two columns are called {twice!r}", line=1)
        sample = islice(self.records(), self.n_heads, _SAMPLE + self.n_heads)
        rows = [row for _, row in sample if len(row) == len(self.names)]
        return {name: kind_of([row[k] for row in rows]) for k, name in enumerate(self.names)}

    def parse(self, numbers: Iterable[str], texts: Iterable[str]) -> pa.Table:
        """Columns by name: float64 without gaps for ``numbers``, strings for ``texts``."""
        kinds = dict.fromkeys(numbers, pa.float64()) | dict.fromkeys(texts, pa.string())
        if self.quoted:
            lines = [line for line, _ in self.records()]
        else:
            lines = [k for k, text in enumerate(self.content.split(b"\n"), 1) if text]
        self.lines = np.array(lines[self.n_heads :], dtype=np.int64)
        if not len(self.lines):
            raise DataError("holds no instance")
        # One block is parsed no faster by threads. They may still hold the text when a short program ends,
        # and to give it back to Python then ends the process with a signal.
        reading = arrow_csv.ReadOptions(
            column_names=self.names,
            skip_rows=int(self.lines[0]) - 1,
            block_size=_BLOCK,
            use_threads=len(self.content) > _BLOCK,
        )
        parsing = arrow_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=self.quoted)
        converting = arrow_csv.ConvertOptions(
            column_types=kinds,
            include_columns=list(kinds),
            null_values=[""],
            strings_can_be_null=False,
            decimal_point=self.decimal,
        )
        try:
            content = pa.BufferReader(self.content)
            table = arrow_csv.read_csv(content, reading, parsing, converting).combine_chunks()
        except (pa.ArrowException, UnicodeError):
            table = self._careful(kinds)
        if len(table) != len(self.lines):
            table = self._careful(kinds)  # the two readers disagree over odd quotes or line ends
        for name, column in zip(table.column_names, table.columns):
            if column.null_count:
                self.wrong(first_null(column), name, what_is_wrong("", name))
        return table

    def check_text(self, table: pa.Table, name: str) -> bool:
        """Whether a column whose first rows are empty is text; refuses numbers with gaps between them."""
        kind = kind_of(pc.unique(table.column(name)).to_pylist())
        if kind == NUMBER:
            fields = table.column(name).to_pylist()
            row = next(row for row, field in enumerate(fields) if not self._number(field))
            self.wrong(row, name, what_is_wrong(fields[row], name))
        return kind == TEXT

    def _number(self, field: str) -> str | None:
        """A field as Python writes numbers; None if it is none."""
        if self.decimal == ",":
            field = field.replace(",", ".") if "." not in field else ""
        return field if is_number(field) else None

    def wrong(self, row: int, column: str, problem: str) -> NoReturn:
        """Raise the error for a field, by row of data and column."""
        problem = f"{self.title.format(column)} {problem}"
        raise DataError(problem, line=int(self.lines[row]))

    def _careful(self, kinds: dict[str, pa.DataType]) -> pa.Table:
        """Read field by field; finds the line that is wrong, and also numbers that Arrow does not know."""
        places = [(k, name) for k, name in enumerate(self.names) if name in kinds]
        values: dict[str, list] = {name: [] for name in kinds}
        lines = []
        for line, fields in islice(self.records(), self.n_heads, None):
            lines.append(line)
            if len(fields) != len(self.names):
                raise DataError(f"expected {len(self.names)} columns, found {len(fields)}", line=line)
            for k, name in places:
                if kinds[name] == pa.string():
                    values[name].append(fields[k])
                    continue
                plain = self._number(fields[k])
                if plain is None:
                    problem = f"{self.title.format(name)} {what_is_wrong(fields[k], name)}"
                    raise DataError(problem, line=line)
                values[name].append(float(plain))
        self.lines = np.array(lines, dtype=np.int64)
        return pa.table({name: pa.array(column, kinds[name]) for name, column in values.items()})


def kind_of(fields: list[str]) -> str:
    """What a column with these fields holds: numbers, text, or nothing at all.

    Examples
    --------
    >>> kind_of(["NA", "1.5", "NA"]), kind_of(["1,000"]), kind_of(["a", "b", "1"]), kind_of(["", "NA"])
    ('number', 'number', 'text', 'empty')
    """
    others = [field for field in fields if not is_number(field)]
    if not others and fields:
        return NUMBER
    present = [field for field in others if field.strip().lower() not in _MISSING]
    numbers = len(fields) - len(others)
    meant = sum(bool(_COMMA.fullmatch(field) or _THOUSANDS.fullmatch(field)) for field in present)
    if not numbers and not present:
        return EMPTY
    return NUMBER if 2 * (numbers + meant) >= numbers + len(present) else TEXT
