"""One JSON object per line: doccano, Prodigy, and plain ``{"file": ..., "labels": [...]}``.

doccano: ``label`` is a list of names (of the document) or of spans; ``entities`` the same with ids. Prodigy:
``spans`` of accepted tasks; ``accept`` holds the choices. A rejected task says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bagwise.errors import DataError
from bagwise.io._source import json_lines
from bagwise.media.labels._parts import Node, check_order, is_label
from bagwise.media.labels.plain_table import own_rows
from bagwise.media.labels.span import Notes, Span

_FILES = ("file", "filename", "file_name", "path", "name", "source", "audio", "image", "id")
_LABELS = ("labels", "label", "entities", "tags", "topics", "categories")


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
        for key in _FILES:
            value = about.get(key)
            if isinstance(value, (str, int)) and not isinstance(value, bool) and value != "":
                return str(value)
    raise node.wrong('names no file; give it as "file"')


def _labelled(notes: Notes, node: Node) -> None:
    file = _file(node)
    key = next((key for key in _LABELS if node.value.get(key) is not None), None)
    if key is None:
        return
    notes.look(file)
    listed = node[key]
    for entry in [listed] if isinstance(listed.value, str) else listed.items():
        if isinstance(entry.value, (str, int)):
            if is_label(entry.text()):
                notes.spans.append(Span(file, entry.text()))
            continue
        parts = list(_span_parts(entry))
        if is_label(parts[2].text()):
            notes.spans.append(_characters(file, *parts))


def _span_parts(entry: Node) -> Iterator[Node]:
    if isinstance(entry.value, dict):
        names = ("start_offset", "end_offset") if "start_offset" in entry.value else ("start", "end")
        yield from (entry[name] for name in (*names, "label"))
        return
    parts = list(entry.items())
    if len(parts) != 3:
        raise entry.wrong("expected [start, end, label]")
    yield from parts


def _characters(file: str, start: Node, end: Node, label: Node) -> Span:
    first, last = int(start.number()), int(end.number())
    check_order(first, last, start.where or "a span", start.path, start.line)
    return Span(file, label.text(), start_char=first, end_char=last)


def _prodigy(notes: Notes, node: Node) -> None:
    if node.value.get("answer", "accept") != "accept":
        return
    file = _file(node)
    notes.look(file)
    chosen = node.get("accept")
    for name in chosen.items() if chosen is not None else ():
        notes.spans.append(Span(file, name.text()))
    if chosen is None and isinstance(node.value.get("label"), str):
        notes.spans.append(Span(file, node["label"].text()))
    for key in ("spans", "audio_spans"):
        listed = node.get(key)
        for span in listed.items() if listed is not None else ():
            label = span["label"]
            if key == "audio_spans":
                start, end = span["start"].number(), span["end"].number()
                check_order(start, end, span.where, span.path, span.line)
                notes.spans.append(Span(file, label.text(), start=start, end=end))
            else:
                notes.spans.append(_characters(file, span["start"], span["end"], label))
