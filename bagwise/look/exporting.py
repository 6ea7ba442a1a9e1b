"""What a model found and people said, as files for other tools; people stand before the model."""

from __future__ import annotations

import csv
import io
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bagwise.errors import BagwiseError
from bagwise.media.labels import KINDS, Found, check_kind, write_answers
from bagwise.media.places import medium_of, place_columns

if TYPE_CHECKING:
    from bagwise.look.session import Session


TITLES = {
    "csv": "CSV",
    "raven": "Raven",
    "audacity": "Audacity",
    "label-studio": "Label Studio",
    "coco": "COCO",
    "geojson": "GeoJSON",
}


class Export(NamedTuple):
    """A file to hand out."""

    content: bytes
    name: str
    kind: str


def export_kinds(session: Session) -> list[tuple[str, str]]:
    """Kinds of files that can be made of these data, each with its title."""
    found = [("csv", TITLES["csv"])]
    medium = medium_of(session.bags.instance_info)
    for kind in KINDS:
        try:
            check_kind(kind, medium, "answers")
        except BagwiseError:
            continue
        found.append((kind, TITLES[kind]))
    return found


def export(session: Session, kind: str) -> Export:
    """Everything that is shown, in the form of a tool; several files come as a zip.

    Parameters
    ----------
    session : Session
        What to write.
    kind : {"csv", "raven", "audacity", "label-studio", "coco", "geojson"}
        The tool.

    Examples
    --------
    >>> from bagwise.look import open_session
    >>> session = open_session("digits", options={"n_bags": 10}, corrections="none.jsonl")
    >>> export(session, "csv").content.decode().splitlines()[0]
    'bag_id,part,label,probability,answer,author,time'
    """
    stem = Path(session.corrections.data).stem
    if kind == "csv":
        return Export(_table(session), f"{stem}.csv", "text/csv; charset=utf-8")
    medium = medium_of(session.bags.instance_info)
    check_kind(kind, medium, "answers")
    with tempfile.TemporaryDirectory() as folder:
        single = kind in ("label-studio", "coco")
        out = Path(folder) / ("answers.json" if single else "answers")
        write_answers(kind, out, found(session), session.ids, session.names, str(medium))
        if out.is_file():
            return Export(out.read_bytes(), f"{stem}.{kind}.json", "application/json")
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(out.rglob("*")):
                if path.is_file():
                    archive.write(path, path.relative_to(out).as_posix())
        return Export(packed.getvalue(), f"{stem}.{kind}.zip", "application/zip")


def found(session: Session) -> Iterator[Found]:
    """Answers about every bag: what people said of a part, else what the model says within the bag's set."""
    truth = session.truth
    for number, bag in enumerate(session.ids):
        labels, values = part_answers(session, number)
        rows = slice(int(session.bags.offsets[number]), int(session.bags.offsets[number]) + len(labels))
        places = {name: column[rows] for name, column in session.bags.instance_info.items()}
        shown = session.shown(truth[number : number + 1], slice(number, number + 1))[0]
        whole = [name for name, held in zip(session.names, shown) if held]
        path = session.originals.path(number)
        yield Found(bag, places, labels, values, whole, None if path is None else str(path))


def part_answers(session: Session, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Label of every part as it is shown (-1: none), and values over all labels; an answer counts as sure."""
    labels, own = session.explainer.answers_of(number)
    values = np.zeros((len(labels), len(session.names)))
    values[:, : own.shape[1]] = own
    one = slice(number, number + 1)
    shown = session.shown(session.truth[one], one)[0]
    labels = np.where((labels >= 0) & shown[np.maximum(labels, 0)], labels, -1) if len(shown) else labels
    for part, said in session.corrections.parts(session.ids[number]).items():
        if part >= len(labels):
            continue
        if said.label in session.column:
            labels[part] = session.column[said.label]
            values[part, labels[part]] = 1.0
        elif said.none or (labels[part] >= 0 and session.names[labels[part]] in said.not_labels):
            labels[part] = -1
    return labels, values


def _table(session: Session) -> bytes:
    """One row per part, and one per answer about a whole bag (there the part is empty)."""
    medium = medium_of(session.bags.instance_info)
    places = [] if medium is None else [n for n in place_columns(medium) if n in session.bags.instance_info]
    said: dict[tuple[str, int | None], Any] = {}
    for entry in session.corrections.standing():
        said[entry["bag"], entry["part"]] = entry
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["bag_id", "part", "label", "probability", "answer", "author", "time", *places])
    for number, bag in enumerate(session.ids):
        for entry in session.corrections.of(bag):
            if entry["part"] is None:
                after = entry["after"]
                about = after["label"] or ";".join(after.get("labels") or [])
                signed = [after["answer"], entry["author"], entry["time"]]
                table.writerow([_plain(v) for v in (bag, "", about, "", *signed, *[""] * len(places))])
        labels, values = part_answers(session, number)
        start = int(session.bags.offsets[number])
        for part, label in enumerate(labels):
            name = session.names[label] if label >= 0 else ""
            sure = f"{values[part, label]:.4f}" if label >= 0 and session.answers is not None else ""
            last = said.get((bag, part))
            signed = ["", "", ""] if last is None else [last["after"]["answer"], last["author"], last["time"]]
            at = [session.bags.instance_info[column][start + part] for column in places]
            table.writerow([_plain(v) for v in (bag, part, name, sure, *signed, *at)])
    return out.getvalue().encode()


def _plain(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula."""
    if isinstance(value, str) and value[:1] in "=+-@\t\r" and value[:1]:
        return "'" + value
    return value
