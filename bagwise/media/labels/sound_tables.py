"""Tables that tools and collections of sound write, each known by its columns.

BirdNET's results (CSV, for R, Kaleidoscope), Perch and hoplite, Cornell's soundscapes, BirdCLEF, Xeno-canto,
DCASE and DESED, FSD50K, AudioSet. What a program found (BirdNET, Perch inference) counts as a label of the
whole file only: nobody has looked at the places.
"""

from __future__ import annotations

from collections.abc import Callable

from bagwise.media.labels._parts import beside, check_order, is_label, split_labels
from bagwise.media.labels.span import Notes, Span
from bagwise.media.labels.table import Row, Table

Reader = Callable[[Table, Notes], None]


def sound_table(table: Table) -> Notes | None:
    """What a table of one of these tools says; None if it is none of them."""
    for kind, columns, reader in _STYLES:
        if table.has(*columns):
            notes = Notes(kind)
            reader(table, notes)
            return notes
    return None


def _span(table: Table, notes: Notes, row: Row, file: str, label: str, start: str, end: str) -> None:
    """A label from one column's time to another's; of the whole file where both are empty."""
    first, last = table.seconds(row, start), table.seconds(row, end)
    score = table.number(row, "confidence") if table.has("confidence") else None
    if first is None or last is None:
        if first is not last:
            raise table.wrong(row, f"only one of {table.title(start)!r} and {table.title(end)!r} is given")
        notes.spans.append(Span(file, label, score=score))
        return
    check_order(first, last, "a span", table.path, row.line)
    notes.spans.append(Span(file, label, start=first, end=last, score=score))


def _file(table: Table, row: Row, name: str) -> str:
    file = table.cell(row, name)
    if not file:
        raise table.wrong(row, f"no file in column {table.title(name)!r}")
    return file


# ---------------------------------------------------------------------- programs that listen


def _birdnet(table: Table, notes: Notes) -> None:
    """``Start (s),End (s),Scientific name,Common name,Confidence,File``, cells not always quoted."""
    by_name = table.first("file", "filepath") or ""
    for row in table.rows:
        file = table.cell(row, by_name) if by_name else beside(table.path, None, [r"\.birdnet\.results"])
        extra = len(row.cells) - len(table.header)
        if extra > 0 and by_name:  # a comma in a path that was not quoted
            k = table.place[by_name]
            file = ",".join(row.cells[k : k + 1 + extra]).strip()
        label = table.cell(
            row, table.first("common name", "common_name", "scientific name", "scientific_name") or ""
        )
        if not file:
            raise table.wrong(row, "no file")
        _weak(table, notes, row, file, label)


def _kaleidoscope(table: Table, notes: Notes) -> None:
    name = table.first("common_name", "top1match", "scientific_name") or ""
    for row in table.rows:
        parts = (table.cell(row, part).replace("\\", "/").strip("/") for part in ("folder", "in file"))
        _weak(table, notes, row, "/".join(part for part in parts if part), table.cell(row, name))


def _perch(table: Table, notes: Notes) -> None:
    for row in table.rows:
        _weak(table, notes, row, _file(table, row, "filename"), table.cell(row, "label"))


def _weak(table: Table, notes: Notes, row: Row, file: str, label: str) -> None:
    score = table.number(row, "confidence") if table.has("confidence") else None
    notes.spans.append(Span(file, label if is_label(label) else None, score=score))


# ---------------------------------------------------------------------- people who listened


def _perch_annotations(table: Table, notes: Notes) -> None:
    for row in table.rows:
        file = _file(table, row, "filename")
        notes.look(file)
        for label in split_labels(table.cell(row, "label"), " "):
            if label != "unknown":
                _span(table, notes, row, file, label, "start_time_s", "end_time_s")


def _hoplite(table: Table, notes: Notes) -> None:
    for row in table.rows:
        file, kind = _file(table, row, "recording"), table.cell(row, "label_type").lower()
        if kind not in ("positive", "negative", "uncertain"):
            raise table.wrong(row, f"label_type is positive, negative or uncertain, found {kind!r}")
        notes.look(file)
        if kind == "positive":
            label = table.cell(row, "label")
            _span(table, notes, row, file, label, "start_offset_s", "end_offset_s")


def _cornell(table: Table, notes: Notes) -> None:
    for row in table.rows:
        file, label = _file(table, row, "filename"), table.cell(row, "species ebird code")
        notes.look(file)
        if not is_label(label):
            continue
        first, last = table.seconds(row, "start time (s)"), table.seconds(row, "end time (s)")
        if first is None or last is None:
            raise table.wrong(row, "a time is missing")
        check_order(first, last, "a span", table.path, row.line)
        low, high = table.number(row, "low freq (hz)"), table.number(row, "high freq (hz)")
        notes.spans.append(Span(file, label, start=first, end=last, low=low, high=high))


def _birdclef(table: Table, notes: Notes) -> None:
    for row in table.rows:
        file = _file(table, row, "filename")
        labels = split_labels(table.cell(row, "primary_label"), ";")
        labels += split_labels(table.cell(row, "secondary_labels"), None)
        notes.look(file)
        notes.spans.extend(Span(file, label) for label in dict.fromkeys(labels))


def _birdclef_soundscapes(table: Table, notes: Notes) -> None:
    for row in table.rows:
        file = _file(table, row, "filename")
        notes.look(file)
        for label in dict.fromkeys(split_labels(table.cell(row, "primary_label"), ";")):
            _span(table, notes, row, file, label, "start", "end")
    notes.spans = list(dict.fromkeys(notes.spans))  # the published table has rows twice


def _birdclef_2021(table: Table, notes: Notes) -> None:
    """``seconds`` is where a window of five seconds ends; ``audio_id`` begins the name of the file."""
    for row in table.rows:
        file, site = _file(table, row, "audio_id"), table.cell(row, "site")
        file = table.cell(row, "row_id").rpartition("_")[0] or (f"{file}_{site}" if site else file)
        end = table.number(row, "seconds")
        if end is None or end < 5:
            raise table.wrong(row, "expected the end of a 5 s window in 'seconds'")
        notes.look(file)
        for label in split_labels(table.cell(row, "birds"), " "):
            notes.spans.append(Span(file, label, start=end - 5, end=end))


def _xeno_canto(table: Table, notes: Notes) -> None:
    """The species, and those in the background; the file by its name, or ``XC`` and its number."""
    by_name = table.first("file-name", "file_name", "filename")
    for row in table.rows:
        file = table.cell(row, by_name) if by_name else ""
        file = file or f"XC{_file(table, row, 'id')}"
        label = " ".join(part for part in (table.cell(row, "gen"), table.cell(row, "sp")) if part)
        notes.look(file)
        for name in [label, *split_labels(table.cell(row, "also"), ",")]:
            if is_label(name):
                notes.spans.append(Span(file, name))


def _weak_labels(table: Table, notes: Notes, file: str, labels: str) -> None:
    for row in table.rows:
        name = _file(table, row, file)
        notes.look(name)
        notes.spans.extend(Span(name, label) for label in split_labels(table.cell(row, labels), ","))


def _strong_labels(table: Table, notes: Notes, columns: tuple[str, str, str, str]) -> None:
    file, start, end, label = columns
    for row in table.rows:
        name, what = _file(table, row, file), table.cell(row, label)
        notes.look(name)
        if is_label(what):
            _span(table, notes, row, name, what, start, end)


_DCASE = ("filename", "onset", "offset", "event_label")
_AUDIOSET = ("segment_id", "start_time_seconds", "end_time_seconds", "label")
_WEAK = "as labels of whole files"
_STYLES: list[tuple[str, tuple[str, ...], Reader]] = [
    (f"Kaleidoscope table of detections, {_WEAK}", ("in file", "offset", "duration"), _kaleidoscope),
    (f"BirdNET results, {_WEAK}", ("start (s)", "end (s)", "confidence"), _birdnet),
    (
        f"BirdNET results for R, {_WEAK}",
        ("filepath", "start", "end", "scientific_name", "confidence"),
        _birdnet,
    ),
    (f"Perch detections, {_WEAK}", ("filename", "window_start", "label", "logits"), _perch),
    (f"Perch detections, {_WEAK}", ("filename", "timestamp_s", "label", "logit"), _perch),
    ("Perch annotations", ("filename", "start_time_s", "end_time_s", "label"), _perch_annotations),
    ("hoplite annotations", ("recording", "label", "start_offset_s", "end_offset_s", "label_type"), _hoplite),
    ("Cornell soundscape annotations", ("filename", "start time (s)", "species ebird code"), _cornell),
    ("BirdCLEF soundscape labels", ("filename", "start", "end", "primary_label"), _birdclef_soundscapes),
    ("BirdCLEF soundscape labels of 2021", ("row_id", "audio_id", "seconds", "birds"), _birdclef_2021),
    ("BirdCLEF clips", ("filename", "primary_label"), _birdclef),
    ("Xeno-canto records", ("id", "gen", "sp"), _xeno_canto),
    ("DCASE strong labels", _DCASE, lambda table, notes: _strong_labels(table, notes, _DCASE)),
    ("AudioSet strong labels", _AUDIOSET, lambda table, notes: _strong_labels(table, notes, _AUDIOSET)),
    (
        "DCASE weak labels",
        ("filename", "event_labels"),
        lambda table, notes: _weak_labels(table, notes, "filename", "event_labels"),
    ),
    (
        "FSD50K labels",
        ("fname", "labels", "mids"),
        lambda table, notes: _weak_labels(table, notes, "fname", "labels"),
    ),
]
