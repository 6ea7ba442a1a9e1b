r"""Tools for sound: Raven's selection tables and Audacity's label tracks, read and written.

Raven, ``<sound>.Table.1.selections.txt``. Read: tables of one sound (named as the table is) and of several
(``Begin File`` or ``Begin Path`` with ``File Offset (s)``); each selection once, though Raven saves it for
the waveform and for the spectrogram; short rows; a header alone, which says that somebody looked and found
nothing. BirdNET's tables are known by their columns and count as labels of whole files, its ``nocall`` as
none. Written: the seven standard columns, the file and its offset (so that the table opens both as selection
table and as sound selection table), the label and its score.

Audacity, lines ``start TAB end TAB text``, one file per sound. A second line ``\ TAB low TAB high`` gives the
band, -1 where it is open. A label has no score of its own; we write it into the text as ``wren (0.91)`` when
asked, and take it out again on reading. An empty file says that somebody looked and found nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bagwise.errors import DataError
from bagwise.media.labels._parts import beside, check_order, is_label, number_in
from bagwise.media.labels.span import Notes, Span
from bagwise.media.labels.table import Row, Table

_RAVEN_NAMES = [
    r"\.table\.\d+\.selections\.txt$",
    r"\.birdnet\.selection\.table\.txt$",
    r"\.selections?(\.table)?\.txt$",
]
COLUMNS = (
    "Selection", "View", "Channel", "Begin Time (s)", "End Time (s)", "Low Freq (Hz)", "High Freq (Hz)",
    "Begin File", "File Offset (s)", "Annotation", "Confidence",
)  # fmt: skip
_ANNOTATIONS = (
    "annotation", "annotations", "label", "labels", "species", "class", "common name",
    "scientific name", "species code", "call", "call type", "id", "type", "notes",
)  # fmt: skip
_STANDARD = {"selection", "view", "channel", "confidence", "score"}
_STANDARD |= {"begin file", "end file", "begin path", "end path"}
_MEASURED = re.compile(
    r".*\((s|hz|khz|ms|db.*|u|bits|kpa|%)\)|.*(time|date|freq|samples?|frame|power|energy).*"
)


def read_selections(table: Table, root: Path | None = None, label_column: str | None = None) -> Notes:
    """What a selection table says."""
    weak = table.has("common name", "confidence") and table.first("species code", "begin path") is not None
    weak = weak and not table.has("annotation")
    notes = Notes("BirdNET selection tables, as labels of whole files" if weak else "Raven selection tables")
    own = beside(table.path, root, _RAVEN_NAMES)
    column = _label_column(table, label_column)
    by_file = table.first("begin file", "begin path")
    if by_file is None:
        notes.look(own)
    # Raven saves a selection for the spectrogram and again for the waveform
    views = [(row, table.cell(row, "view").lower(), table.cell(row, "selection")) for row in table.rows]
    seen = {number for _, view, number in views if view.startswith("spectrogram")}
    for row, view, number in views:
        if view.startswith("waveform") and number in seen:
            continue
        file = (table.cell(row, by_file) if by_file else "") or own
        label = table.cell(row, column) if column else ""
        if not is_label(label):
            notes.look(file)
            continue
        span = _selection(table, row, file, label, by_file is not None)
        notes.spans.append(span.whole() if weak else span)
    if by_file and not table.rows:
        notes.look(own)
    return notes


def _label_column(table: Table, asked: str | None) -> str | None:
    if asked is not None:
        if not table.has(asked.lower()):
            raise DataError(f"no column {asked!r} in the selection table", path=table.path, line=1)
        return asked.lower()
    known = table.first(*_ANNOTATIONS)
    if known is not None:
        return known
    others = [n for n in table.place if n and n not in _STANDARD and not _MEASURED.fullmatch(n)]
    if len(others) == 1 or not table.rows:
        return others[0] if others else None
    found = ", ".join(table.title(name) for name in others) or "none"
    raise DataError(
        f"no column of labels (Annotation, Species); candidates: {found}", path=table.path, line=1
    )


def _selection(table: Table, row: Row, file: str, label: str, several: bool) -> Span:
    begin, end = table.seconds(row, "begin time (s)"), table.seconds(row, "end time (s)")
    if begin is None or end is None:
        raise table.wrong(row, "a selection without begin or end")
    check_order(begin, end, "a selection", table.path, row.line)
    offset = table.number(row, "file offset (s)")
    if several and offset is not None:  # times count from the start of the whole sequence of files
        begin, end = offset, offset + (end - begin)
    names = (table.first("low freq (hz)"), table.first("high freq (hz)"), table.first("confidence", "score"))
    low, high, score = (table.number(row, name) if name else None for name in names)
    return Span(file, label, start=begin, end=end, low=low, high=high, score=score)


def selections(spans: Sequence[Span], file: str) -> str:
    """The text of a selection table for one recording."""
    lines = ["\t".join(COLUMNS)]
    for k, span in enumerate(spans, 1):
        begin, end = f"{span.start:.6f}", f"{span.end:.6f}"
        band = [f"{value or 0.0:.1f}" for value in (span.low, span.high)]
        score = "" if span.score is None else f"{span.score:.4f}"
        name = file.rpartition("/")[2]
        cells = [str(k), "Spectrogram 1", "1", begin, end, *band, name, begin, one_line(span.label), score]
        lines.append("\t".join(cells))
    return "\n".join(lines) + "\n"


def one_line(label: str | None) -> str:
    """A label without tabs and line ends, which tables of tabs cannot escape."""
    return " ".join(re.split(r"[\t\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+", str(label)))


# ---------------------------------------------------------------------- Audacity


_TRACK_NAMES = [r"\.birdnet\.results\.txt$", r"[._ -]labels?\.txt$", r"\.txt$"]
_SCORE = re.compile(r"(.*\S)\s+\(([01]?\.\d+|[01])\)")
_NUMBER = re.compile(r"-?\d+(\.\d*)?([eE][+-]?\d+)?")


def is_track(text: str) -> bool:
    """Whether the first line of a text is one of a label track."""
    tokens = text.lstrip("\n").split("\n", 1)[0].split("\t")
    return len(tokens) >= 2 and _NUMBER.fullmatch(tokens[0].strip()) is not None


def read_track(path: Path, text: str, root: Path | None = None) -> Notes:
    """What a label track says of the sound whose name it bears."""
    weak = ".birdnet.results" in path.name.lower()
    notes = Notes("BirdNET results for Audacity, as labels of whole files" if weak else "Audacity labels")
    file = beside(path, root, _TRACK_NAMES)
    notes.look(file)
    for line, row in enumerate(text.split("\n"), 1):
        if not row.strip():
            continue
        tokens = row.split("\t")
        if tokens[0] == "\\":
            if len(tokens) < 3:
                raise DataError("expected a backslash, a low and a high frequency", path=path, line=line)
            band = [number_in(token, "a frequency", path, line) for token in tokens[1:3]]
            low, high = (None if value < 0 else value for value in band)
            if notes.spans[-1].start is not None and not weak:
                notes.spans[-1] = replace(notes.spans[-1], low=low, high=high)
            continue
        if tokens[0].startswith("\\"):
            continue  # of a later version
        span = _label(tokens, file, path, line)
        if span is not None and weak:  # the common name, as in the other results of BirdNET
            name = re.split(r"_|, ", str(span.label), maxsplit=1)[-1]
            scored = len(tokens) > 3 and _NUMBER.fullmatch(tokens[3].strip())
            span = Span(span.file, name, score=float(tokens[3]) if scored else None)
        if span is not None:
            notes.spans.append(span)
    return notes


def _label(tokens: list[str], file: str, path: Path, line: int) -> Span | None:
    start = number_in(tokens[0], "the start", path, line)
    if len(tokens) < 2:
        raise DataError("expected start, end and text with tabs between them", path=path, line=line)
    if _NUMBER.fullmatch(tokens[1].strip()) or len(tokens) > 2:
        end, text = number_in(tokens[1], "the end", path, line), tokens[2] if len(tokens) > 2 else ""
    else:
        end, text = start, tokens[1]  # the old form, a moment
    check_order(start, end, "a label", path, line)
    score, found = None, _SCORE.fullmatch(text.strip())
    if found:
        text, score = found[1], float(found[2])
    if not is_label(text):
        return None
    return Span(file, text.strip(), start=start, end=end, score=score)


def track(spans: Sequence[Span], *, scores: bool = False, bands: bool = True) -> str:
    """The text of a label track."""
    lines = []
    for span in spans:
        text = one_line(span.label)
        if scores and span.score is not None:
            text += f" ({min(max(span.score, 0.0), 1.0):.2f})"
        lines.append(f"{span.start:.6f}\t{span.end:.6f}\t{text}\n")
        if bands and span.low is not None and span.high is not None:
            lines.append(f"\\\t{span.low:.6f}\t{span.high:.6f}\n")
    return "".join(lines)
