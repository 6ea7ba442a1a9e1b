"""Answers beside the files, as the tools of people expect them; every file appears whole or not at all.

=============  ======================  =====================================================================
raven          audio                   ``<recording>.Table.1.selections.txt`` for each, also where nothing was
                                       found (a header alone)
audacity       audio                   ``<recording>.txt`` for each
label-studio   audio, image, text      one JSON of tasks and the config that they need, ``.xml``
coco           image, slide            one JSON, and ``..._results.json`` for evaluation
geojson        slide, image            ``<slide>.geojson`` for each, for QuPath
=============  ======================  =====================================================================
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from bagwise.errors import BagwiseError, DataError
from bagwise.media.labels import label_studio
from bagwise.media.labels import picture_tools as coco
from bagwise.media.labels.answers import (
    Found,
    extent,
    full_text,
    picture_size,
    sound_length,
    spans_of,
    targets,
)
from bagwise.media.labels.slide_tools import tile
from bagwise.media.labels.sound_tools import selections, track
from bagwise.media.labels.span import parse_points
from bagwise.utils.colours import label_colours
from bagwise.utils.files import replacing

KINDS = ("raven", "audacity", "label-studio", "coco", "geojson")
_MEDIA = {
    "raven": ("audio",),
    "audacity": ("audio",),
    "label-studio": ("audio", "image", "text"),
    "coco": ("image", "slide"),
    "geojson": ("slide", "image"),
}
_FOLDER = ("raven", "audacity", "geojson")  # one file per recording or slide
_ADDRESS = "/data/local-files/?d="  # under which Label Studio serves a folder of this machine


class Options(NamedTuple):
    """How to write.

    Attributes
    ----------
    merge : bool
        Whether neighbouring parts with the same label are joined (sound, text, tiles in COCO).
    scores : bool
        Whether Audacity's labels carry the probability in their text, ``wren (0.91)``.
    address : str
        What Label Studio finds before the names of files.
    """

    merge: bool = True
    scores: bool = False
    address: str = _ADDRESS


class _Order(NamedTuple):
    """What `write_answers` was asked for."""

    kind: str
    out: Path
    found: Iterable[Found]
    files: Sequence[str]
    names: list[str]
    medium: str
    options: Options


def check_kind(kind: str, medium: str | None, out: str | PathLike[str]) -> None:
    """Refuse a tool that does not know the medium, or a target of the wrong sort, before any work is done."""
    if kind not in KINDS:
        raise BagwiseError(f"answers are written as csv, {', '.join(KINDS)}; got {kind!r}")
    if medium is None:
        raise DataError(
            f"{kind} needs to know where in files the parts lie, and these data do not say; gather them from "
            "files with bagwise gather, or write a table (csv)"
        )
    if medium not in _MEDIA[kind]:
        other = ", ".join(["csv", *(name for name in KINDS if medium in _MEDIA[name])])
        raise BagwiseError(
            f"{kind} is for {' and '.join(_MEDIA[kind])}, these files are {medium}; choose {other}"
        )
    out = Path(out)
    if kind in _FOLDER and out.suffix.lower() in (".txt", ".csv", ".json", ".geojson", ".parquet"):
        raise DataError(
            f"{kind} is written as a folder with a file for each original; give a folder", path=out
        )
    if out.exists() and not out.is_dir() and (kind in _FOLDER or out.suffix.lower() != ".json"):
        raise DataError("is a file; give the name of a folder", path=out)


def write_answers(
    kind: str,
    out: str | PathLike[str],
    found: Iterable[Found],
    files: Sequence[str],
    names: Sequence[str],
    medium: str,
    options: Options | None = None,
) -> dict[str, Any]:
    """Write what was found for a tool.

    Parameters
    ----------
    kind : {"raven", "audacity", "label-studio", "coco", "geojson"}
        The tool.
    out : path
        A folder; for Label Studio and COCO also a ``.json`` file.
    found : iterable of Found
        Answers file by file; taken once.
    files : sequence of str
        Names of all files, by which the files to write are named.
    names : sequence of str
        Names of all labels.
    medium : str
        What the files are.
    options : Options, optional
        How to write.

    Returns
    -------
    dict
        "files": what was written; "places": number of labelled places; "notes": what is not as it should be.
    """
    check_kind(kind, medium, out)
    options = options or Options()
    writer = {"label-studio": _label_studio, "coco": _coco}.get(kind, _one_by_one)
    return writer(_Order(kind, Path(out), found, files, list(names), medium, options))


# ---------------------------------------------------------------------- a file for each original


def _one_by_one(order: _Order) -> dict[str, Any]:
    kind, names, options = order.kind, order.names, order.options
    endings = {"raven": ".Table.1.selections.txt", "audacity": ".txt", "geojson": ".geojson"}
    name, written, count = targets(order.files, endings[kind]), [], 0
    colours = label_colours(names)
    for answer in order.found:
        if kind == "geojson":
            text, n = _tiles(answer, names, colours)
        else:
            spans = spans_of(answer, names, order.medium, merge=options.merge)
            n = len(spans)
            if kind == "raven":
                text = selections(spans, answer.file)
            else:  # a window that hears all frequencies has no band worth a line of its own
                bands = set(zip(answer.places.get("low", ()), answer.places.get("high", ())))
                text = track(spans, scores=options.scores, bands=len(bands) > 1)
        written.append(_kept(order.out / name(answer.file), text))
        count += n
    return {"files": written, "places": count, "notes": []}


def _kept(target: Path, text: str) -> str:
    """Write a file in one step; its name."""
    with replacing(target) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    return str(target)


def _tiles(answer: Found, names: list[str], colours: dict[str, tuple[int, int, int]]) -> tuple[str, int]:
    places, features = answer.places, []
    for k in range(len(answer.labels)):
        label = names[answer.labels[k]] if answer.labels[k] >= 0 else None
        outline = parse_points(str(places["polygon"][k])) if "polygon" in places else None
        box = tuple(float(places[side][k]) for side in ("x", "y", "width", "height"))
        values = {name: float(v) for name, v in zip(names, answer.values[k])}
        colour = None if label is None else colours[label]
        features.append(json.dumps(tile(answer.file, k, box, outline, label, colour, values)))  # type: ignore
    body = ",\n".join(features)
    text = f'{{"type": "FeatureCollection", "features": [\n{body}\n]}}\n'
    return text, int((answer.labels >= 0).sum())


# ---------------------------------------------------------------------- one file for all


@contextmanager
def _json_list(path: Path) -> Iterator[Callable[[Any], None]]:
    """Write a JSON list entry by entry."""
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as handle:
        handle.write("[")
        first = True

        def add(entry: Any) -> None:
            nonlocal first
            handle.write(("\n" if first else ",\n") + json.dumps(entry, ensure_ascii=False, allow_nan=False))
            first = False

        yield add
        handle.write("\n]\n")


def _label_studio(order: _Order) -> dict[str, Any]:
    out, names, medium, options = order.out, order.names, order.medium, order.options
    target = out if out.suffix.lower() == ".json" else out / "label_studio.json"
    count, outlines, guessed = 0, False, 0
    with _json_list(target) as add:
        for answer in order.found:
            spans = spans_of(answer, names, medium, merge=options.merge and medium != "image")
            about: dict[str, Any] = {"address": options.address + quote(answer.file)}
            if medium == "image":
                size = picture_size(answer.path)
                guessed += size is None
                about["size"] = size or extent(answer.places)
                outlines |= "polygon" in answer.places
            elif medium == "audio":
                about["length"] = sound_length(answer.path)
            else:
                about["text"], original = full_text(answer.path, answer.places)
                guessed += not original
            add(label_studio.task(answer.file, medium, spans, answer.whole, **about))
            count += len(spans)
    config = target.with_suffix(".xml") if out.suffix else out / "labels.xml"
    written = [str(target), _kept(config, label_studio.config(medium, names, outlines=outlines))]
    what = {"image": "sizes of pictures", "text": "texts"}.get(medium, "")
    return {"files": written, "places": count, "notes": _guesses(guessed, what)}


def _coco(order: _Order) -> dict[str, Any]:
    target = order.out if order.out.suffix.lower() == ".json" else order.out / "coco.json"
    results = target.with_name(f"{target.stem}_results.json")
    images: list[dict] = []
    annotations: list[dict] = []
    guessed = 0
    category = {name: k for k, name in enumerate(order.names, 1)}
    for number, answer in enumerate(order.found, 1):
        size = picture_size(answer.path) if order.medium == "image" else None
        guessed += size is None
        images.append(coco.image(number, answer.file, size or extent(answer.places), answer.whole))
        for span in spans_of(answer, order.names, order.medium, merge=order.options.merge):
            annotations.append(coco.annotation(len(annotations) + 1, number, category[str(span.label)], span))
    whole = {
        "info": {"description": "written by bagwise"},
        "licenses": [],
        "images": images,
        "categories": [{"id": k, "name": name, "supercategory": ""} for name, k in category.items()],
        "annotations": annotations,
    }
    written = [_kept(target, json.dumps(whole, ensure_ascii=False, allow_nan=False))]
    notes = _guesses(guessed, "sizes of pictures")
    if annotations:
        with _json_list(results) as add:
            for entry in annotations:
                add({key: entry[key] for key in ("image_id", "category_id", "bbox", "score")})
        written.append(str(results))
    else:
        notes.append("nothing was found, so there are no results to evaluate")
    return {"files": written, "places": len(annotations), "notes": notes}


def _guesses(n: int, what: str) -> list[str]:
    if not n:
        return []
    return [f"{what} of {n} files are taken from their parts, since the originals are not at hand"]
