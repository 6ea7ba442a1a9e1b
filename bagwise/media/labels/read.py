"""Labels of files from whatever people keep them in: the door of this room.

What a file holds is recognised by its content, not by its name; a folder is read file by file and
everything in it must be of one kind. The names of files are matched as `bagwise.media.labels.matching`
says.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path, PurePosixPath

from bagwise.errors import DataError, in_one_line, listed
from bagwise.media.labels._parts import json_of, text_of, xml_of
from bagwise.media.labels.label_studio import is_tasks, read_tasks
from bagwise.media.labels.matching import match_files
from bagwise.media.labels.picture_tools import (
    VIA_COLUMNS,
    is_coco,
    is_via,
    read_coco,
    read_via,
    read_via_table,
)
from bagwise.media.labels.plain import plain_table, read_lines, read_mapping
from bagwise.media.labels.slide_tools import is_geojson, read_geojson, read_xml
from bagwise.media.labels.sound_tables import sound_table
from bagwise.media.labels.sound_tools import is_track, read_selections, read_track
from bagwise.media.labels.span import Labels, Notes, Span
from bagwise.media.labels.table import Row, Table, read_table

FOLDERS = "folders"  # given in place of a path: the folder of a file is its label
SUFFIXES = (".csv", ".tsv", ".tab", ".txt", ".xlsx", ".xlsm", ".json", ".jsonl", ".geojson", ".xml", ".gz")
_SHEETS = (".xlsx", ".xlsm")
_MOST_FOLDERS = 1000  # more labels than that are hardly meant by names of folders


def read_labels(
    path: str | PathLike[str] | None,
    files: Sequence[str],
    medium: str | None = None,
    *,
    root: str | PathLike[str] | None = None,
    file_column: str | None = None,
    label_columns: Sequence[str] | None = None,
    separator: str | None = None,
    min_score: float | None = None,
) -> Labels:
    r"""Read labels and match them to files.

    Parameters
    ----------
    path : path, "folders" or None
        A table (``.csv``, ``.tsv``, ``.xlsx``), a file of Raven, Audacity, BirdNET, Label Studio, COCO,
        QuPath, ASAP, VIA, Pascal VOC, doccano or Prodigy, or a folder of such files. "folders" takes the
        folder of each file as its label; None does so if all files lie in folders, and says it.
    files : sequence of str
        Files at hand, relative to the gathered folder, with ``/`` between folders.
    medium : {"audio", "image", "text", "slide", "embeddings"}, optional
        What the files are.
    root : path, optional
        The gathered folder, whose name many tables write before the names of files.
    file_column : str, optional
        Column of a plain table that names the files; found by its name by default.
    label_columns : sequence of str, optional
        Columns of a plain table (or the column of a selection table) that hold labels; found by default.
    separator : str, optional
        What stands between labels in one cell; by default ``;``, else ``|``, else a comma.
    min_score : float, optional
        Labels that come with a lower score or confidence (BirdNET, predictions) are left out; their files
        count as looked at.

    Returns
    -------
    Labels
        See there. A label of a place counts for its file, too.

    Examples
    --------
    >>> import tempfile
    >>> table = Path(tempfile.mkdtemp()) / "species.csv"
    >>> _ = table.write_text("file,species\na.wav,wren;robin\nb.wav,wren\nc.wav,gull\n")
    >>> found = read_labels(table, ["a.wav", "b.wav", "d.wav"])
    >>> found.bag_labels
    {'a.wav': ['robin', 'wren'], 'b.wav': ['wren']}
    >>> found.unknown_files, found.files_without
    (['c.wav'], ['d.wav'])
    >>> print(found.said)
    species.csv: table, file in 'file', labels in 'species' separated by ';'
    """
    files = list(files)
    if path is None or str(path) == FOLDERS:
        return _by_folder(files, asked=path is not None)
    path = Path(path)
    options = {"file_column": file_column, "label_columns": label_columns, "separator": separator}
    try:
        if path.is_dir():
            notes = _folder(path, files, medium, options)
        elif path.exists():
            notes = _one(path, None, files, medium, options)
        else:
            raise DataError("no such file or folder of labels", path=path)
        place = None if root is None else Path(root).resolve().name
        if min_score is not None:  # a label of a lower score still says that somebody looked
            kept = [s if s.score is None or s.score >= min_score else Span(s.file, None) for s in notes.spans]
            gone = sum(a is not b for a, b in zip(kept, notes.spans))
            notes = Notes(f"{notes.kind}; {gone} labels with a score below {min_score:g} left out", kept)
        return _matched(notes, files, path.name, place)
    except DataError as error:  # one line, also if a spoiled file makes it quote half of itself
        raise DataError(in_one_line(error.message, 400), path=error.path or path, line=error.line) from None


def _matched(notes: Notes, files: list[str], name: str, root: str | None) -> Labels:
    spans = [span for span in notes.spans if span.label is None or span.label.strip()]
    found, unknown = match_files((span.file for span in spans), files, root)
    if spans and not found:
        first = listed(unknown, 1, show=repr, also="more files")
        here = f"none of the {len(files)} files at hand is called so" if files else "there are no files"
        example = f"; the first is {files[0]!r}" if files else ""
        raise DataError(f"{notes.kind}: names {first}, but {here}{example}")
    labels: dict[str, set[str]] = {}
    places = []
    for span in spans:
        file = found.get(span.file)
        if file is None:
            continue
        carried = labels.setdefault(file, set())
        if span.label is not None:
            carried.add(span.label.strip())
            if span.is_place:
                places.append(span.of(file))
    known = {file: sorted(labels[file]) for file in files if file in labels}
    without = [file for file in files if file not in labels]
    return Labels(known, places, unknown, without, f"{name}: {notes.kind}")


def _by_folder(files: list[str], asked: bool) -> Labels:
    """Labels from the folder in which each file lies."""
    parents = {file: PurePosixPath(file).parent.name for file in files}
    loose = [file for file, parent in parents.items() if not parent]
    names = sorted({parent for parent in parents.values() if parent})
    if not asked and (loose or not files or not 1 < len(names) <= _MOST_FOLDERS):
        return Labels({}, [], [], files, "no labels given")
    if asked and not names:
        raise DataError("labels by folder need files in folders, one folder per label; all lie in one place")
    known = {file: [parent] for file, parent in parents.items() if parent}
    how = "as asked" if asked else "no labels were given, and all files lie in folders"
    return Labels(known, [], [], loose, f"names of folders as labels ({how}): {listed(names, 5)}")


# ---------------------------------------------------------------------- one file, many files


def _folder(path: Path, files: list[str], medium: str | None, options: dict) -> Notes:
    """Everything in a folder, which must be of one kind, so that nothing is mixed by accident."""
    inside = sorted(
        p
        for p in path.rglob("*")
        if p.is_file() and not p.name.startswith(".") and p.name.lower().endswith(SUFFIXES)
    )
    own = set(files)  # texts and tables that are themselves the gathered files
    inside = [p for p in inside if medium != "text" or p.relative_to(path).as_posix() not in own]
    if not inside:
        raise DataError(f"a folder without files of labels ({', '.join(SUFFIXES)})", path=path)
    found = [(p, _one(p, path, files, medium, options)) for p in inside]
    kinds = list(dict.fromkeys(notes.kind for _, notes in found))
    if len(kinds) > 1:
        shown = [
            f"{next(p for p, notes in found if notes.kind == kind).name} is {kind}" for kind in kinds[:2]
        ]
        raise DataError(
            f"holds labels of different kinds: {' and '.join(shown)}; keep them in folders of their own",
            path=path,
        )
    kind = kinds[0]
    merged = Notes(f"{kind} ({len(found)} files)" if len(found) > 1 else kind)
    for _, notes in found:
        merged.spans.extend(notes.spans)
    return merged


def _one(path: Path, root: Path | None, files: list[str], medium: str | None, options: dict) -> Notes:
    name = path.name.lower().removesuffix(".gz")
    if name.endswith(_SHEETS):
        return _table(read_table(path), root, files, options)
    if name.endswith(".xml"):
        return read_xml(path, xml_of(path), root)
    text = text_of(path)
    if name.endswith(".jsonl") or (name.endswith(".json") and _is_lines(text)):
        return read_lines(path, text, files)
    if name.endswith((".json", ".geojson")):
        return _json(path, json_of(path, text), root, medium)
    if not text.strip():
        if medium == "audio" and name.endswith(".txt"):
            return read_track(path, "", root)
        raise DataError("is empty", path=path)
    if name.endswith(".txt") and is_track(text):
        return read_track(path, text, root)
    if text.lstrip()[:1] in "[{" and name.endswith(".txt"):
        return _json(path, json_of(path, text), root, medium)
    return _table(read_table(path, text), root, files, options)


def _is_lines(text: str) -> bool:
    """Whether a ``.json`` file holds one object per line."""
    lines = [line for line in text[:1_000_000].split("\n", 3)[:2] if line.strip()]
    return len(lines) > 1 and all(line[0] == "{" and line.rstrip()[-1] == "}" for line in lines)


def _json(path: Path, value: object, root: Path | None, medium: str | None) -> Notes:
    if is_tasks(value):
        return read_tasks(path, value, medium)
    if is_coco(value):
        return read_coco(path, value)
    if is_geojson(value):
        return read_geojson(path, value, root)
    if is_via(value):
        return read_via(path, value)
    first = value[0] if isinstance(value, list) and value else None
    if isinstance(first, dict) and "category_id" in first:
        raise DataError("a bare list of COCO results names no files; give the data set's JSON", path=path)
    if value == []:
        if medium in ("slide", "embeddings"):
            return read_geojson(path, value, root)
        raise DataError("an empty list, no labels", path=path)
    if isinstance(value, dict) and isinstance(value.get("recordings"), list):
        return _xeno_canto(path, value["recordings"])
    if isinstance(value, dict) and all(isinstance(v, (str, list)) for v in value.values()):
        return read_mapping(path, value)
    raise DataError(
        "JSON of no known kind: expected Label Studio tasks, COCO, QuPath GeoJSON, VIA, or an object from "
        "files to lists of labels",
        path=path,
    )


def _xeno_canto(path: Path, records: list) -> Notes:
    """Xeno-canto's answer, as the table that its records would be."""
    names = ["id", "gen", "sp", "file-name", "also"]
    rows = []
    for k, record in enumerate(records):
        if not isinstance(record, dict):
            raise DataError(f"recordings[{k}]: expected an object", path=path)
        cells = [record.get(name, "") for name in names]
        rows.append(
            Row([repr(c) if isinstance(c, list) else "" if c is None else str(c) for c in cells], k + 1)
        )
    notes = sound_table(Table(path, names, rows))
    assert notes is not None
    return notes


def _table(table: Table, root: Path | None, files: list[str], options: dict) -> Notes:
    chosen = options["label_columns"]
    if table.has("begin time (s)", "end time (s)"):
        return read_selections(table, root, chosen[0] if chosen else None)
    if table.has(*VIA_COLUMNS) and table.first("filename", "#filename") is not None:
        return read_via_table(table)
    if not options["file_column"] and not chosen:
        notes = sound_table(table)
        if notes is not None:
            return notes
    return plain_table(table, files, **options)
