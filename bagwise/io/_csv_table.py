"""Comma-separated text to columns: Arrow's fast reader, and a slow careful one that knows every line."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from bagwise.bags.arrow import to_numpy
from bagwise.errors import DataError

_SAMPLE = 100  # rows by which a column is taken for numbers or text
_BLOCK = 1 << 22  # bytes that Arrow parses at once; a row must fit
_INTEGER = r"^(0|-?[1-9][0-9]{0,19})$"
_LEADING_ZERO = r"^[+-]?0[0-9]"  # a code, not a number
_NUMBER = re.compile(r"\s*[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf|infinity)\s*", re.ASCII | re.IGNORECASE)
_COMMA = re.compile(r"\s*[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+(e[+-]?\d+)?\s*", re.ASCII | re.IGNORECASE)
_THOUSANDS = re.compile(r"\s*[+-]?\d{1,3}([,' ]\d{3})+(\.\d*)?\s*", re.ASCII)
_MISSING = {"", "na", "n/a", "#n/a", "nan", "null", "none", "?", "-", "--", ".", "missing"}
NUMBER, TEXT, EMPTY = "number", "text", "empty"  # what a column may hold


def is_number(text: str) -> bool:
    """Whether a field is a number as other programs write it (``1_000`` is not)."""
    return _NUMBER.fullmatch(text) is not None


def is_missing(text: str) -> bool:
    """Whether a field says that there is no value.

    Examples
    --------
    >>> is_missing("NA"), is_missing(""), is_missing("0")
    (True, True, False)
    """
    return text.strip().lower() in _MISSING


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
    if is_missing(field):
        what = "is empty" if not plain else f"{shown}, a missing value"
        return f"{what}; fill or drop such rows first, or keep the column as a fact with info=[{column!r}]"
    return f"{shown}, expected a number"


class CsvText:
    """The text of a CSV file, cut in records on demand.

    Parameters
    ----------
    content : bytes
        UTF-8 text without byte order mark.
    path : path
        The file, for messages.
    delimiter : str
        One character.
    decimal : str
        What stands before the decimals of a number, a point or a comma.
    """

    def __init__(self, content: bytes, path: Path, delimiter: str = ",", decimal: str = ".") -> None:
        if decimal not in (".", ","):
            raise ValueError(f"decimal must be '.' or ',', got {decimal!r}")
        self.decimal = decimal
        self.quoted = b'"' in content
        if not self.quoted and b"\r" in content:
            content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self.content, self.path, self.delimiter = content, path, delimiter
        self.first = next(self.records(), (1, [""]))[1]
        self.has_header = True
        self.lines = np.empty(0, dtype=np.int64)

    def records(self) -> Iterator[tuple[int, list[str]]]:
        """Line on which each record begins, and its fields; blank lines are left out."""
        text = io.TextIOWrapper(io.BytesIO(self.content), encoding="utf-8", newline="")
        reader = csv.reader(text, delimiter=self.delimiter)
        line = 1
        while True:
            try:
                fields = next(reader, None)
            except csv.Error as error:
                raise DataError(f"cannot be cut into fields ({error})", path=self.path, line=line) from None
            if fields is None:
                return
            if fields:
                yield line, fields
            line = reader.line_num + 1

    def sample(self) -> list[list[str]]:
        """The first rows of data."""
        rows = (fields for _, fields in self.records())
        return list(islice(rows, int(self.has_header), _SAMPLE + int(self.has_header)))

    def kinds(self) -> list[str]:
        """What each column holds, judged by most of the values in the first rows: some may be broken.

        Missing values tell nothing, and a number with a decimal comma is meant to be a number: both are
        reported by line when the column is read.
        """
        rows = [row for row in self.sample() if len(row) == len(self.first)]
        return [kind_of([row[k] for row in rows]) for k in range(len(self.first))]

    def parse(self, numbers: Iterable[int], texts: Iterable[int]) -> dict[int, pa.Array]:
        """Columns by position: float64 without gaps for ``numbers``, strings for ``texts``."""
        kinds = {k: pa.float64() for k in numbers} | {k: pa.string() for k in texts}
        begin = self._find_lines()
        if not len(self.lines):
            raise DataError("holds no instance", path=self.path)
        try:
            columns = self._fast(kinds, begin)
        except (pa.ArrowException, UnicodeError):
            columns = self._careful(kinds)
        if len(next(iter(columns.values()))) != len(self.lines):
            columns = self._careful(kinds)  # the two readers disagree over odd quotes or line ends
        for k, column in columns.items():
            if column.null_count:
                row = pc.index(column.is_null(), True).as_py()
                self.wrong(row, k, what_is_wrong("", self.first[k]))
        return columns

    def check_text(self, position: int, column: pa.Array) -> bool:
        """Whether a column whose first rows are empty is text; refuses numbers with gaps between them."""
        values = pc.unique(column).to_pylist()
        kind = kind_of(values)
        if kind == NUMBER:
            fields = column.to_pylist()
            row = next(row for row, field in enumerate(fields) if not self._number(field))
            self.wrong(row, position, what_is_wrong(fields[row], self.first[position]))
        return kind == TEXT

    def _number(self, field: str) -> str | None:
        """A field as Python writes numbers; None if it is none."""
        if self.decimal == ",":
            field = field.replace(",", ".") if "." not in field else ""
        return field if is_number(field) else None

    def wrong(self, row: int, column: int, problem: str) -> None:
        """Raise the error for a field, by row of data and column."""
        raise DataError(f"{self.title(column)} {problem}", path=self.path, line=int(self.lines[row]))

    def title(self, column: int) -> str:
        """What to call a column in messages."""
        return f"column {self.first[column]!r}" if self.has_header else f"column {column + 1}"

    def _find_lines(self) -> int:
        """Set the line of every row of data; return how many lines come before them."""
        if self.quoted:
            lines = [line for line, _ in self.records()]
        else:
            lines = [k for k, text in enumerate(self.content.split(b"\n"), 1) if text]
        self.lines = np.array(lines[int(self.has_header) :], dtype=np.int64)
        return int(self.lines[0]) - 1 if len(self.lines) else 0

    def _fast(self, kinds: dict[int, pa.DataType], begin: int) -> dict[int, pa.Array]:
        names = [str(k) for k in range(len(self.first))]
        table = arrow_csv.read_csv(
            pa.BufferReader(self.content),
            # One block is parsed no faster by threads. They may still hold the text when a short program
            # ends, and to give it back to Python then ends the process with a signal.
            read_options=arrow_csv.ReadOptions(
                column_names=names, skip_rows=begin, block_size=_BLOCK, use_threads=len(self.content) > _BLOCK
            ),
            parse_options=arrow_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=self.quoted),
            convert_options=arrow_csv.ConvertOptions(
                column_types={str(k): kind for k, kind in kinds.items()},
                include_columns=[str(k) for k in kinds],
                null_values=[""],
                strings_can_be_null=False,
                decimal_point=self.decimal,
            ),
        )
        return {k: table.column(str(k)).combine_chunks() for k in kinds}

    def _careful(self, kinds: dict[int, pa.DataType]) -> dict[int, pa.Array]:
        """Read field by field; finds the line that is wrong, and also numbers that Arrow does not know."""
        values: dict[int, list] = {k: [] for k in kinds}
        numbers = {k for k, kind in kinds.items() if kind == pa.float64()}
        lines = []
        for line, fields in islice(self.records(), int(self.has_header), None):
            lines.append(line)
            if len(fields) != len(self.first):
                raise DataError(
                    f"expected {len(self.first)} columns, found {len(fields)}", path=self.path, line=line
                )
            for k, column in values.items():
                field = fields[k]
                if k in numbers:
                    plain = self._number(field)
                    if plain is None:
                        problem = what_is_wrong(field, self.first[k])
                        raise DataError(f"{self.title(k)} {problem}", path=self.path, line=line)
                    column.append(float(plain))
                else:
                    column.append(field)
        self.lines = np.array(lines, dtype=np.int64)
        return {k: pa.array(column, kinds[k]) for k, column in values.items()}


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
    present = [field for field in others if not is_missing(field)]
    numbers = len(fields) - len(others)
    meant = sum(
        _COMMA.fullmatch(field) is not None or _THOUSANDS.fullmatch(field) is not None for field in present
    )
    if not numbers and not present:
        return EMPTY
    return NUMBER if 2 * (numbers + meant) >= numbers + len(present) else TEXT


def natural(column: pa.Array) -> np.ndarray:
    """Text as what it looks like: whole numbers, numbers, True and False, or text (``007`` is text)."""
    if len(column) and pc.all(pc.match_substring_regex(column, _INTEGER)).as_py():
        for kind in (pa.int64(), pa.uint64()):
            with suppress(pa.ArrowInvalid):
                return column.cast(kind).to_numpy()
        return to_numpy(column)
    if len(column) and pc.any(pc.match_substring_regex(column, _LEADING_ZERO)).as_py():
        return to_numpy(column)
    if set(pc.unique(column).to_pylist()) <= {"True", "False", "true", "false"}:
        return column.cast(pa.bool_()).to_numpy(zero_copy_only=False)
    try:
        return column.cast(pa.float64()).to_numpy()
    except pa.ArrowInvalid:
        return to_numpy(column)
