"""Texts in a table: one bag per row of a CSV, TSV or JSON Lines file."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bagwise.errors import DataError
from bagwise.media.text.decode import clean, decode

__all__ = ["SUFFIXES", "rows_of_table"]

SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson")
_TEXT_COLUMNS = ("text", "body", "content", "document", "article", "abstract", "review", "comment", "message")
_ID_COLUMNS = ("id", "bag_id", "doc_id", "document_id", "uid")
_SHOWN = 12


def rows_of_table(
    name: str,
    content: bytes,
    *,
    column: str | None = None,
    id_column: str | None = None,
    encoding: str | None = None,
) -> tuple[list[tuple[str, str]], str | None]:
    r"""Id and text of every row, and what was guessed about the encoding.

    Parameters
    ----------
    name : str
        Name of the file; its suffix tells the kind of table.
    content : bytes
        The whole file.
    column : str, optional
        Column of the text; by default the first of "text", "body", "content", ... that is there.
    id_column : str, optional
        Column that names the rows; by default "id", "bag_id", "doc_id", "document_id" or "uid", else rows are
        numbered from 1.
    encoding : str, optional
        As in `decode`.

    Examples
    --------
    >>> rows_of_table("a.csv", b"id,text\n7,One bird.\n8,Two birds.\n")
    ([('7', 'One bird.'), ('8', 'Two birds.')], None)
    """
    text, _, note = decode(content, encoding)
    kind = Path(name.lower().removesuffix(".gz")).suffix
    found = _json_lines(text) if kind in (".jsonl", ".ndjson") else _csv_rows(text, kind)
    columns: list[str] | None = None
    text_column = ""
    rows: list[tuple[str, str]] = []
    seen: set[str] = set()
    for line, row in found:
        if columns is None:
            columns = list(row)
            text_column = _chosen(column, columns, _TEXT_COLUMNS, "column")
            if id_column is not None or any(c.lower() in _ID_COLUMNS for c in columns):
                id_column = _chosen(id_column, columns, _ID_COLUMNS, "id_column")
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


def _csv_rows(text: str, kind: str) -> Iterator[tuple[int, dict[str, Any]]]:
    head = text[: text.find("\n")] if "\n" in text else text
    delimiter = "\t" if kind == ".tsv" else max(",;\t|", key=head.count)
    limit = csv.field_size_limit(len(text) + 1)  # a cell may be a book
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        header: list[str] | None = None
        for cells in reader:
            if not any(cells):
                continue
            if header is None:
                header = [cell.strip() for cell in cells]
                if len(set(header)) < len(header):
                    twice = next(c for c in header if header.count(c) > 1)
                    raise DataError(f"two columns are called {twice!r}", line=1)
                continue
            if len(cells) > len(header):
                raise DataError(
                    f"expected {len(header)} cells, found {len(cells)}; "
                    f"texts that hold {delimiter!r} need quotes",
                    line=reader.line_num,
                )
            yield reader.line_num, dict(zip(header, cells))
    except csv.Error as error:
        raise DataError(f"is no table ({error})", line=reader.line_num) from None
    finally:
        csv.field_size_limit(limit)


def _json_lines(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
            raise DataError(f"is not JSON ({reason[:100]})", line=number) from None
        if not isinstance(row, dict):
            raise DataError(
                f"expected an object {{...}} in every line, found {type(row).__name__}", line=number
            )
        yield number, row


def _chosen(given: str | None, columns: list[str], usual: tuple[str, ...], parameter: str) -> str:
    if given is not None:
        if given not in columns:
            raise DataError(f"there is no column {given!r}; the columns are {_some(columns)}")
        return given
    by_name = {column.lower(): column for column in reversed(columns)}
    found = next((by_name[name] for name in usual if name in by_name), None)
    if found is None:
        raise DataError(f"which column holds the text? Give {parameter}=; the columns are {_some(columns)}")
    return found


def _some(columns: list[str]) -> str:
    shown = ", ".join(repr(column[:40]) for column in columns[:_SHOWN])
    return shown if len(columns) <= _SHOWN else f"{shown} and {len(columns) - _SHOWN} more"
