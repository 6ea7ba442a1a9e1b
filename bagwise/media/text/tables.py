"""Texts in a table: one bag per row of a CSV, TSV or JSON Lines file."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bagwise.bags.columns import check_columns, column_for, first_of
from bagwise.errors import DataError
from bagwise.io._source import delimiter_of, json_lines, records
from bagwise.media.text.decode import clean, decode

__all__ = ["SUFFIXES", "rows_of_table"]

SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson")
_TEXT_COLUMNS = ("text", "body", "content", "document", "article", "abstract", "review", "comment", "message")
_ID_COLUMNS = ("id", "bag_id", "doc_id", "document_id", "uid")


def rows_of_table(
    name: str,
    content: bytes,
    *,
    column: str | None = None,
    id_column: str | None = None,
    encoding: str | None = None,
) -> tuple[list[tuple[str, str]], str | None]:
    """Id and text of every row of a table, known by the suffix of its name, and what was guessed to read it.

    Rows that no column names are numbered from 1.
    """
    text, _, note = decode(content, encoding)
    kind = Path(name.lower().removesuffix(".gz")).suffix
    found = json_lines(text) if kind in (".jsonl", ".ndjson") else _csv_rows("table" + kind, text)
    columns: list[str] | None = None
    text_column = ""
    rows: list[tuple[str, str]] = []
    seen: set[str] = set()
    for line, row in found:
        if columns is None:
            columns = list(row)
            which = "which column holds the text? Give column="
            text_column = column_for(columns, column, _TEXT_COLUMNS, which)
            if id_column is None:
                id_column = first_of(columns, _ID_COLUMNS)
            else:
                check_columns(columns, [id_column])
        value = row.get(text_column)
        if not isinstance(value, str) and value is not None:
            raise DataError(f"column {text_column!r} holds {type(value).__name__}, not text", line=line)
        key = str(len(rows) + 1) if id_column is None else str(row.get(id_column, ""))
        if not key or key in seen:
            what = "is empty" if not key else f"{key!r} comes twice"
            raise DataError(f"id {what} in column {id_column!r}; choose another by id_column=", line=line)
        seen.add(key)
        rows.append((key, clean(value or "")))
    if columns is None:
        raise DataError("holds no rows")
    return rows, note


def _csv_rows(name: str, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    delimiter = delimiter_of(name, text.partition("\n")[0], ",;|")
    header: list[str] | None = None
    for line, cells in records(io.StringIO(text, newline=""), delimiter, longest=len(text) + 1):
        if not any(cells):
            continue
        if header is None:
            header = [cell.strip() for cell in cells]
            if len(set(header)) < len(header):
                twice = next(c for c in header if header.count(c) > 1)
                raise DataError(f"two columns are called {twice!r}", line=line)
            continue
        if len(cells) > len(header):
            raise DataError(
                f"expected {len(header)} cells, found {len(cells)}; "
                f"texts that hold {delimiter!r} need quotes",
                line=line,
            )
        yield line, dict(zip(header, cells))
