"""Comma-separated text to columns: Arrow's fast reader, and a slow careful one that knows every line."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from bagwise.errors import DataError
from bagwise.utils.arrow import to_numpy

_SAMPLE = 100  # rows by which a column is taken for numbers or text
_BLOCK = 1 << 22  # bytes that Arrow parses at once; a row must fit
_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"
_NUMBER = re.compile(r"\s*[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf|infinity)\s*", re.ASCII | re.IGNORECASE)


def is_number(text: str) -> bool:
    """Whether a field is a number as other programs write it (``1_000`` is not)."""
    return _NUMBER.fullmatch(text) is not None


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
    """

    def __init__(self, content: bytes, path: Path, delimiter: str = ",") -> None:
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

    def numeric(self) -> list[bool]:
        """Which columns hold numbers, judged by most of the first rows: one may be broken."""
        rows = [row for row in self.sample() if len(row) == len(self.first)]
        votes = np.array([[is_number(field) for field in row] for row in rows]).reshape(-1, len(self.first))
        return (2 * votes.sum(axis=0) >= max(len(votes), 1)).tolist()

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
                self.wrong(
                    pc.index(column.is_null(), True).as_py(), k, "is empty; fill or drop such rows first"
                )
        return columns

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
            read_options=arrow_csv.ReadOptions(column_names=names, skip_rows=begin, block_size=_BLOCK),
            parse_options=arrow_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=self.quoted),
            convert_options=arrow_csv.ConvertOptions(
                column_types={str(k): kind for k, kind in kinds.items()},
                include_columns=[str(k) for k in kinds],
                null_values=[""],
                strings_can_be_null=False,
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
                    if field and not is_number(field):
                        raise DataError(
                            f"{self.title(k)} holds {field[:40]!r}, expected a number",
                            path=self.path,
                            line=line,
                        )
                    column.append(float(field) if field else None)
                else:
                    column.append(field)
        self.lines = np.array(lines, dtype=np.int64)
        return {k: pa.array(column, kinds[k]) for k, column in values.items()}


def natural(column: pa.Array) -> np.ndarray:
    """Text as what it looks like: whole numbers, numbers, True and False, or text."""
    if len(column) and pc.all(pc.match_substring_regex(column, _INTEGER)).as_py():
        return column.cast(pa.int64()).to_numpy()
    if set(pc.unique(column).to_pylist()) <= {"True", "False", "true", "false"}:
        return column.cast(pa.bool_()).to_numpy(zero_copy_only=False)
    try:
        return column.cast(pa.float64()).to_numpy()
    except pa.ArrowInvalid:
        return to_numpy(column)
