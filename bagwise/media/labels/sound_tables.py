"""Tables that tools and collections of sound write, each known by its columns.

BirdNET's results (CSV, for R, Kaleidoscope), Perch and hoplite, Cornell's soundscapes, BirdCLEF, Xeno-canto,
DCASE and DESED, FSD50K, AudioSet. What a program found (BirdNET, Perch inference) counts as a label of the
whole file only: nobody has looked at the places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bagwise.media.labels._parts import beside, check_order, is_label, split_labels
from bagwise.media.labels.span import Notes, Span
from bagwise.media.labels.table import Row, Table

Said = tuple[str, Iterable[Span]]  # the file that a row is about, and its labels
Reader = Callable[[Table, Row], Said]


def sound_table(table: Table) -> Notes | None:
    """What a table of one of these tools says; None if it is none of them."""
    for kind, columns, reader in _STYLES:
        if table.has(*columns):
            notes = Notes(kind)
            for row in table.rows:
                file, spans = reader(table, row)
                notes.look(file)
                notes.spans.extend(spans)
            if reader is _birdclef_soundscapes:  # the published table has rows twice
                notes.spans = list(dict.fromkeys(notes.spans))
            return notes
    return None


def _span(table: Table, row: Row, file: str, label: str, start: str, end: str) -> Span:
    """A label from one column's time to another's; of the whole file where both are empty."""
    first, last, score = table.seconds(row, start), table.seconds(row, end), table.number(row, "confidence")
    if first is None or last is None:
        if first is not last:
            raise table.wrong(row, f"only one of {table.title(start)!r} and {table.title(end)!r} is given")
        return Span(file, label, score=score)
    check_order(first, last, "a span", table.path, row.line)
    return Span(file, label, start=first, end=last, score=score)


# ---------------------------------------------------------------------- programs that listen


def _birdnet(table: Table, row: Row) -> Said:
    """``Start (s),End (s),Scientific name,Common name,Confidence,File``, cells not always quoted."""
    by_name = table.first("file", "filepath") or ""
    file = table.cell(row, by_name) if by_name else beside(table.path, None, [r"\.birdnet\.results"])
    extra = len(row.cells) - len(table.header)
    if extra > 0 and by_name:  # a comma in a path that was not quoted
        k = table.place[by_name]
        file = ",".join(row.cells[k : k + 1 + extra]).strip()
    names = ("common name", "common_name", "scientific name", "scientific_name")
    label = table.cell(row, table.first(*names) or "")
    if not file:
        raise table.wrong(row, "no file")
    return _weak(table, row, file, label)


def _kaleidoscope(table: Table, row: Row) -> Said:
    parts = (table.cell(row, part).replace("\\", "/").strip("/") for part in ("folder", "in file"))
    name = table.first("common_name", "top1match", "scientific_name") or ""
    return _weak(table, row, "/".join(part for part in parts if part), table.cell(row, name))


def _perch(table: Table, row: Row) -> Said:
    return _weak(table, row, table.file(row, "filename"), table.cell(row, "label"))


def _weak(table: Table, row: Row, file: str, label: str) -> Said:
    return file, [Span(file, label if is_label(label) else None, score=table.number(row, "confidence"))]


# ---------------------------------------------------------------------- people who listened


def _perch_annotations(table: Table, row: Row) -> Said:
    file, labels = table.file(row, "filename"), split_labels(table.cell(row, "label"), " ")
    times = ("start_time_s", "end_time_s")
    return file, [_span(table, row, file, label, *times) for label in labels if label != "unknown"]


def _hoplite(table: Table, row: Row) -> Said:
    file, kind = table.file(row, "recording"), table.cell(row, "label_type").lower()
    if kind not in ("positive", "negative", "uncertain"):
        raise table.wrong(row, f"label_type is positive, negative or uncertain, found {kind!r}")
    if kind != "positive":
        return file, []
    return file, [_span(table, row, file, table.cell(row, "label"), "start_offset_s", "end_offset_s")]


def _cornell(table: Table, row: Row) -> Said:
    file, label = table.file(row, "filename"), table.cell(row, "species ebird code")
    if not is_label(label):
        return file, []
    first, last = table.seconds(row, "start time (s)"), table.seconds(row, "end time (s)")
    if first is None or last is None:
        raise table.wrong(row, "a time is missing")
    check_order(first, last, "a span", table.path, row.line)
    low, high = table.number(row, "low freq (hz)"), table.number(row, "high freq (hz)")
    return file, [Span(file, label, start=first, end=last, low=low, high=high)]


def _birdclef(table: Table, row: Row) -> Said:
    file, labels = table.file(row, "filename"), split_labels(table.cell(row, "primary_label"), ";")
    labels += split_labels(table.cell(row, "secondary_labels"), None)
    return file, [Span(file, label) for label in dict.fromkeys(labels)]


def _birdclef_soundscapes(table: Table, row: Row) -> Said:
    file, labels = table.file(row, "filename"), split_labels(table.cell(row, "primary_label"), ";")
    return file, [_span(table, row, file, label, "start", "end") for label in dict.fromkeys(labels)]


def _birdclef_2021(table: Table, row: Row) -> Said:
    """``seconds`` is where a window of five seconds ends; ``audio_id`` begins the name of the file."""
    file, site = table.file(row, "audio_id"), table.cell(row, "site")
    file = table.cell(row, "row_id").rpartition("_")[0] or (f"{file}_{site}" if site else file)
    end = table.number(row, "seconds")
    if end is None or end < 5:
        raise table.wrong(row, "expected the end of a 5 s window in 'seconds'")
    labels = split_labels(table.cell(row, "birds"), " ")
    return file, [Span(file, label, start=end - 5, end=end) for label in labels]


def _xeno_canto(table: Table, row: Row) -> Said:
    """The species, and those in the background; the file by its name, or ``XC`` and its number."""
    file = table.cell(row, table.first("file-name", "file_name", "filename") or "")
    file = file or f"XC{table.file(row, 'id')}"
    label = " ".join(part for part in (table.cell(row, "gen"), table.cell(row, "sp")) if part)
    names = [label, *split_labels(table.cell(row, "also"), ",")]
    return file, [Span(file, name) for name in names if is_label(name)]


def _weak_labels(file: str, labels: str) -> Reader:
    def read(table: Table, row: Row) -> Said:
        name = table.file(row, file)
        return name, [Span(name, label) for label in split_labels(table.cell(row, labels), ",")]

    return read


def _strong_labels(file: str, start: str, end: str, label: str) -> Reader:
    def read(table: Table, row: Row) -> Said:
        name, what = table.file(row, file), table.cell(row, label)
        return name, [_span(table, row, name, what, start, end)] if is_label(what) else []

    return read


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
    ("DCASE strong labels", _DCASE, _strong_labels(*_DCASE)),
    ("AudioSet strong labels", _AUDIOSET, _strong_labels(*_AUDIOSET)),
    ("DCASE weak labels", ("filename", "event_labels"), _weak_labels("filename", "event_labels")),
    ("FSD50K labels", ("fname", "labels", "mids"), _weak_labels("fname", "labels")),
]
