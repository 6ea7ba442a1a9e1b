"""Plain tables (files in a column, labels in one cell, in several columns, or one row each), and JSON lines.

What is taken for what is decided by the names of the columns (lists below); a table without a header is known
by a first cell that names a file. Nothing is guessed in silence: the kind of the notes says every choice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from bagwise.errors import DataError, listed
from bagwise.io._source import json_lines
from bagwise.media.labels._parts import Node, check_order, is_label, plain_name, split_labels
from bagwise.media.labels.matching import match_files
from bagwise.media.labels.span import Notes, Span
from bagwise.media.labels.table import Row, Table

_FILES = (
    "file", "filename", "file_name", "file name", "fname", "filepath", "file_path", "path", "relative_path",
    "recording", "audio", "sound", "clip", "image", "image_name", "picture", "photo", "img", "document",
    "doc", "article", "text_file",
    "slide", "slide_id", "wsi", "bag", "bag_id", "audio_id", "image_id", "name", "id", "key",
)  # fmt: skip
_LABELS = (
    "labels", "label", "tags", "tag", "classes", "class", "species", "topics", "topic", "categories",
    "category", "diagnosis", "diagnoses", "annotation",
    "annotations", "keywords", "target", "targets", "genres", "genre",
    "common name", "common_name", "y",
)  # fmt: skip
_STARTS = ("start", "start_s", "start (s)", "begin", "start_time", "onset", "begin time (s)")
_ENDS = ("end", "end_s", "end (s)", "stop", "end_time", "offset", "end time (s)")
_LOW = ("low", "low freq (hz)", "freq_min", "low_freq", "min_freq", "f_min")
_HIGH = ("high", "high freq (hz)", "freq_max", "high_freq", "max_freq", "f_max")
_SCORES = ("score", "probability", "confidence")
_FLAGS = {"1": True, "1.0": True, "true": True, "yes": True, "x": True, "0": False, "0.0": False,
          "false": False, "no": False, "": False}  # fmt: skip
_ROW = "(row)"  # a column of our own
_SUFFIX = re.compile(r"\.\w{2,5}$")
_LONGEST = 500  # letters of the name of a file
_NUMBERED = re.compile(r"(label|tag|class|species|topic|category|diagnosis)s?[ _.-]?\d+")


def plain_table(
    table: Table,
    files: Sequence[str],
    *,
    file_column: str | None = None,
    label_columns: Sequence[str] | None = None,
    separator: str | None = None,
) -> Notes:
    """What a plain table says; see `read_labels` for the arguments."""
    table, headless = _with_header(table, files)
    rows = {} if file_column or table.has("id") else own_rows(table.path, files)
    if rows:  # their names, as a first column
        named = [Row([rows.get(k, f"#{k}"), *row.cells], row.line) for k, row in enumerate(table.rows, 1)]
        table = Table(table.path, [_ROW, *table.header], named)
    file = _asked(table, file_column) if file_column else _ROW if rows else _file_column(table, files)
    place = _place_columns(table)
    taken = {file, *place.values(), *(name for name in _SCORES if table.has(name))}
    if label_columns:
        columns, kind = [_asked(table, name) for name in label_columns], "several"
        if len(columns) > 1 and all(_is_flag(table, name) for name in columns):
            kind = "flags"
    else:
        columns, kind = _label_columns(table, taken)
    notes = Notes("")
    shown = listed([repr(table.title(name)) for name in columns])
    if kind == "flags":
        choice = f"labels are the {len(columns)} columns of 0 and 1"
    else:
        if not separator:  # ``;``, else ``|``, else a comma, else one label in each cell
            every = (table.cell(row, name) for row in table.rows for name in columns)
            cells = [cell for cell in every if cell[:1] != "["]
            separator = next((mark for mark in ";|," if any(mark in cell for cell in cells)), None)
        between = f" separated by {separator!r}" if separator else ""
        choice = f"labels in {shown}{between}"
    for row in table.rows:
        name = table.file(row, file)
        notes.look(name)
        where = _place(table, row, place)
        if kind == "flags":
            labels = [table.title(column) for column in columns if _flag(table, row, column)]
        else:
            found = (split_labels(table.cell(row, column), separator) for column in columns)
            labels = [label for label in dict.fromkeys(chain(*found)) if is_label(label)]
        notes.spans.extend(Span(name, label, **where) for label in labels)
    left = [
        table.header[k]
        for name, k in table.place.items()
        if name and name not in columns and name not in taken
    ]
    first = "the first column" if headless else repr(table.title(file))
    notes.kind = f"table of the texts themselves, {choice}" if rows else f"table, file in {first}, {choice}"
    if place:
        notes.kind += f", places in {listed([table.title(name) for name in place.values()])}"
    if left:
        notes.kind += f"; left out: {listed(left)}"
    return notes


def _with_header(table: Table, files: Sequence[str]) -> tuple[Table, bool]:
    """The table; if its first row already names a file and its labels, with a header of our own."""
    first = table.header[0] if table.header else ""
    if len(table.header) < 2 or first.lower() in _FILES:
        return table, False
    try:
        # a file at hand, or what looks like one of the same kind, such as another ``.wav``
        suffixes = {found[0].lower() for file in files[:1000] if (found := _SUFFIX.search(file))}
        known = bool(match_files([first], files)[0]) or plain_name(first).lower().endswith(tuple(suffixes))
    except DataError:  # it could mean several files
        known = True
    if not known:
        return table, False
    header = ["file", "labels"] if len(table.header) == 2 else ["file"]
    header += [f"label_{k}" for k in range(1, len(table.header))][: len(table.header) - len(header)]
    return Table(table.path, header, [Row(table.header, 1), *table.rows]), True


def _asked(table: Table, name: str) -> str:
    if name.lower() not in table.place:
        raise DataError(f"no column {name!r}; the columns are {listed(table.header)}", path=table.path)
    return name.lower()


def _file_column(table: Table, files: Sequence[str]) -> str:
    known = [name for name in _FILES if table.has(name)]
    by_content = [name for name in known if _names_files(table, name, files)]
    if known:  # of "id" and "document", the one that names files, not the one that holds their text
        return (by_content or known)[0]
    hits = [name for name in table.place if _names_files(table, name, files)]
    if len(hits) == 1:
        return hits[0]
    raise DataError(
        f"no column names the files; the columns are {listed(table.header)}. Call one 'file', or name it",
        path=table.path,
        line=1,
    )


def _names_files(table: Table, column: str, files: Sequence[str]) -> bool:
    """Whether the first cells of a column name files at hand."""
    cells = [cell for row in table.rows[:50] if (cell := table.cell(row, column)) and len(cell) < _LONGEST]
    try:
        return bool(match_files(cells, files)[0])
    except DataError:  # a name that could mean several
        return True


def own_rows(path: Path, files: Sequence[str]) -> dict[int, str]:
    """Bags that are the numbered rows of this very file (``table.csv#1``); none where rows have ids."""
    parts = [(file, *file.partition("#")[::2]) for file in files if "#" in file]
    own = {key: file for file, whole, key in parts if whole.rpartition("/")[2] == path.name}
    numbers = {
        int(key): file for key, file in own.items() if key.isascii() and key.isdigit() and len(key) < 10
    }
    return numbers if len(numbers) == len(own) and set(numbers) == set(range(1, len(own) + 1)) else {}


def _is_flag(table: Table, name: str) -> bool:
    cells = {table.cell(row, name).lower() for row in table.rows}
    crosses = "x" not in cells or cells == {"x", ""}
    return cells <= set(_FLAGS) and cells != {""} and crosses


def _label_columns(table: Table, taken: set[str]) -> tuple[list[str], str]:
    """Columns that hold labels, and how: "one" cell, "several" columns of names, "flags" of 0 and 1."""
    free = [name for name in table.place if name and name not in taken]
    numbered = [name for name in free if _NUMBERED.fullmatch(name)]
    named = [name for name in _LABELS if name in free]
    if numbered and not any(_is_flag(table, name) for name in numbered):
        return [*(name for name in named if f"{name}_" in numbered[0]), *numbered], "several"
    words = [name for name in named if not _is_flag(table, name)]
    if words:
        return words[:1], "one"
    flags = [name for name in free if _is_flag(table, name)]
    if len(flags) > 1:
        return flags, "flags"
    if named or (len(free) == 1 and not flags):  # "label" with 0 and 1 names two classes
        return named[:1] or free, "one"
    if flags:
        return flags, "flags"
    raise DataError(
        f"no column of labels among {listed(table.header)}; call it 'labels', or name it",
        path=table.path,
        line=1,
    )


def _flag(table: Table, row: Row, name: str) -> bool:
    cell = table.cell(row, name).lower()
    if cell not in _FLAGS:
        raise table.wrong(row, f"column {table.title(name)!r} holds {cell!r}, expected 0 or 1")
    return _FLAGS[cell]


# ---------------------------------------------------------------------- places


def _place_columns(table: Table) -> dict[str, str]:
    """Field of a place -> column."""
    if table.has("start_char", "end_char"):
        return {"start_char": "start_char", "end_char": "end_char"}
    if table.has("x", "y", "width", "height"):
        return {name: name for name in ("x", "y", "width", "height")}
    if table.has("xmin", "ymin", "xmax", "ymax"):
        return {name: name for name in ("xmin", "ymin", "xmax", "ymax")}
    start, end = table.first(*_STARTS), table.first(*_ENDS)
    if start is None or end is None:
        return {}
    low, high = table.first(*_LOW), table.first(*_HIGH)
    found = {"start": start, "end": end, "low": low, "high": high}
    return {name: column for name, column in found.items() if column is not None}


def _place(table: Table, row: Row, columns: dict[str, str]) -> dict[str, Any]:
    """Fields of a span; none where the cells are empty: a label of the whole file."""
    values = {name: table.seconds(row, column) for name, column in columns.items()}
    score = table.first(*_SCORES)
    found = {"score": table.number(row, score)} if score and columns else {}
    must = {name: value for name, value in values.items() if name not in ("low", "high")}
    if not columns or all(value is None for value in must.values()):
        return found
    if any(value is None for value in must.values()):
        raise table.wrong(row, f"a place needs {listed([table.title(columns[name]) for name in must])}")
    if "xmin" in values:
        x0, y0, x1, y1 = (float(values[name] or 0) for name in ("xmin", "ymin", "xmax", "ymax"))
        values = {"x": x0, "y": y0, "width": x1 - x0, "height": y1 - y0}
    if "x" not in values:
        first, last = (values[name] or 0 for name in list(must)[:2])
        check_order(first, last, "a span", table.path, row.line)
    if "start_char" in values:
        values = {name: int(value or 0) for name, value in values.items()}
    elif "x" in values and min(values["width"] or 0, values["height"] or 0) < 0:
        raise table.wrong(row, "a box with a negative side")
    return {**found, **values}


# ----------------------------------------------------------------------
# One JSON object per line: doccano, Prodigy, and plain ``{"file": ..., "labels": [...]}``
#
# doccano: ``label`` is a list of names (of the document) or of spans; ``entities`` the same with ids.
# Prodigy: ``spans`` of accepted tasks; ``accept`` holds the choices. A rejected task says nothing.


_FILE_KEYS = ("file", "filename", "file_name", "path", "name", "source", "audio", "image", "id")
_LABEL_KEYS = ("labels", "label", "entities", "tags", "topics", "categories")


def read_lines(path: Path, text: str, files: Sequence[str] = ()) -> Notes:
    """What a file of JSON lines says."""
    notes, own = Notes("JSON lines"), own_rows(path, files)
    for number, (line, row) in enumerate(json_lines(text, path), 1):
        node = Node(row, path, line=line)
        if own:
            node.value["file"] = own.get(number, f"#{number}")
        if "spans" in node.value or "answer" in node.value or "accept" in node.value:
            notes.kind = "Prodigy annotations"
            _prodigy(notes, node)
        else:
            if "text" in node.value:
                notes.kind = "doccano annotations"
            _labelled(notes, node)
    if not notes.spans:
        raise DataError("holds no labelled line", path=path)
    return notes


def read_mapping(path: Path, value: Any) -> Notes:
    """A plain object from files to labels, such as ``{"a.wav": ["wren"], "b.wav": "robin"}``."""
    notes = Notes("JSON object from files to labels")
    for file, node in Node(value, path).pairs():
        notes.look(file)
        labels = [node] if isinstance(node.value, str) else list(node.items())
        notes.spans.extend(Span(file, label.text()) for label in labels if is_label(label.text()))
    return notes


def _file(node: Node) -> str:
    meta = node.value.get("meta")
    for about in (node.value, meta if isinstance(meta, dict) else {}):
        for key in _FILE_KEYS:
            value = about.get(key)
            if isinstance(value, (str, int)) and not isinstance(value, bool) and value != "":
                return str(value)
    raise node.wrong('names no file; give it as "file"')


def _labelled(notes: Notes, node: Node) -> None:
    file = _file(node)
    key = next((key for key in _LABEL_KEYS if node.value.get(key) is not None), None)
    if key is None:
        return
    notes.look(file)
    given = node[key]
    for entry in [given] if isinstance(given.value, str) else given.items():
        if isinstance(entry.value, (str, int)):
            if is_label(entry.text()):
                notes.spans.append(Span(file, entry.text()))
            continue
        if isinstance(entry.value, dict):
            names = ("start_offset", "end_offset") if "start_offset" in entry.value else ("start", "end")
            parts = [entry[name] for name in (*names, "label")]
        else:
            parts = list(entry.items())
        if len(parts) != 3:
            raise entry.wrong("expected [start, end, label]")
        if is_label(parts[2].text()):
            notes.spans.append(_characters(file, *parts))


def _characters(file: str, start: Node, end: Node, label: Node) -> Span:
    first, last = int(start.number()), int(end.number())
    check_order(first, last, start.where or "a span", start.path, start.line)
    return Span(file, label.text(), start_char=first, end_char=last)


def _prodigy(notes: Notes, node: Node) -> None:
    if node.value.get("answer", "accept") != "accept":
        return
    file = _file(node)
    notes.look(file)
    notes.spans.extend(Span(file, chosen.text()) for chosen in node.each("accept"))
    if node.get("accept") is None and isinstance(node.value.get("label"), str):
        notes.spans.append(Span(file, node["label"].text()))
    for span in node.each("spans"):
        notes.spans.append(_characters(file, *(span[key] for key in ("start", "end", "label"))))
    for span in node.each("audio_spans"):
        name, begin, end = span["label"].text(), span["start"].number(), span["end"].number()
        check_order(begin, end, span.where, span.path, span.line)
        notes.spans.append(Span(file, name, start=begin, end=end))
