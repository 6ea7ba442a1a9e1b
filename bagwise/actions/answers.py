"""What a model found, written: as tables, the way the tools of people expect it, and drawn.

For tools and pictures a part is marked with the label that `annotate` finds for it, if the model also decides
that the whole file carries that label, and, with a threshold, if it is at least that probable.
"""

from __future__ import annotations

import json
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.special import expit

from bagwise import report
from bagwise.actions.data import File, Opened, check_target, wants_shards
from bagwise.actions.running import runs
from bagwise.bags import Bags, MultiViewBags
from bagwise.bags.labels import label_sets
from bagwise.base import MIMLClassifier
from bagwise.errors import BagwiseError, DataError
from bagwise.inspection import annotate as annotate_instances
from bagwise.inspection import instance_scores, last_estimator, scores_and_labels
from bagwise.media.labels import KINDS, Found, Options, check_kind, write_answers
from bagwise.media.labels.answers import targets
from bagwise.media.places import medium_of
from bagwise.media.recipe import places_of
from bagwise.report.results import check_suffix, plain, write_tables
from bagwise.shards.manifest import part_name
from bagwise.shards.place import Place
from bagwise.utils.files import replacing
from bagwise.utils.progress import track

TABLE = "csv"
_RENAMED = ("score.bag_id", "score.labels")  # labels called like the first columns of a table
_DPI = 110


# ---------------------------------------------------------------------- tables


def check_table(out: File, kind: str | None = None, *, json: bool = False) -> None:
    """Refuse a table that cannot be written, before any work is done; only predictions may be JSON."""
    if json and kind not in (None, TABLE, "json"):
        raise BagwiseError(f"predictions are written as csv or json; got {kind!r}")
    if _is_folder(out):
        place = Place(out)
        strange = [name for name in place.names() if not name.startswith(("part-", "."))]
        if strange:
            raise DataError(f"holds other files ({strange[0]}); give the name of a new folder", path=out)
        return
    check_target(out)
    is_json = json and Path(out).suffix.lower() == ".json"
    if json and kind is not None and is_json != (kind == "json"):
        raise DataError(f"the suffix does not fit --as {kind}", path=out)
    if not is_json:
        check_suffix(out)


def write_answer_table(tables: Iterable[pa.Table], out: File) -> int:
    """One file for the tables of all blocks, or a folder with one each; a file appears when it is whole."""
    if Path(out).suffix.lower() == ".json":
        return _write_json(tables, out)
    if not _is_folder(out):
        return write_tables(tables, out)
    place, rows = Place(out), 0
    for k, table in enumerate(tables):
        place.write(part_name(k), partial(pq.write_table, table))
        rows += table.num_rows
    return rows


def _is_folder(out: File) -> bool:
    return wants_shards(out) or not Path(out).suffix


def _write_json(tables: Iterable[pa.Table], out: File) -> int:
    """Predictions as a list, an object per bag."""
    count = 0
    with replacing(out) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as handle:
        handle.write("[")
        for table in tables:
            names = [name.removeprefix("score.") if name in _RENAMED else name for name in table.column_names]
            for row in zip(*(column.to_pylist() for column in table.columns)):
                entry = {"bag_id": row[0], "labels": row[1], "scores": plain(dict(zip(names[2:], row[2:])))}
                mark = ",\n" if count else "\n"
                handle.write(mark + json.dumps(entry, ensure_ascii=False, allow_nan=False))
                count += 1
        handle.write("\n]\n")
    return count


# ---------------------------------------------------------------------- tools and pictures


def knows_probabilities(model: Any) -> bool:
    """Whether ``annotate`` can give them; a model that annotates in its own way always can."""
    if not isinstance(model, MIMLClassifier):
        return False
    return model.traits.probabilities or type(model)._annotations is not MIMLClassifier._annotations


def check_answers(kind: str, source: Any, out: File) -> None:
    """Refuse what the tool cannot show; asked of the model before any work, then of the bags.

    ``source`` is the transformer of a model that takes raw files, None for any other model, or the bags.
    """
    if kind not in KINDS:
        raise BagwiseError(f"answers are written as {TABLE}, {', '.join(KINDS)}; got {kind!r}")
    one_file = kind in ("label-studio", "coco") and Path(out).suffix.lower() == ".json"
    check_target(out if one_file else Path(out) / "x")
    if source is None:
        return
    if isinstance(source, Bags):
        check_kind(kind, medium_of(source.instance_info), out)
    elif isinstance(source, MultiViewBags):
        raise DataError(f"{kind} is for one view; pick one with view=...")
    elif places_of(source.medium) != "slide":  # bags of tiles may come without coordinates
        check_kind(kind, places_of(source.medium), out)


def check_marks(is_plain_table: bool, threshold: float | None, originals: File | None) -> None:
    """Refuse what a table alone has no use for, and a probability that is none."""
    if is_plain_table and threshold is not None:
        raise BagwiseError("threshold is for pictures and tools; a table holds every part with its score")
    if is_plain_table and originals is not None:
        raise BagwiseError("originals are for pictures and tools; a table needs none")
    if threshold is not None and not 0 <= threshold <= 1:
        raise BagwiseError(f"threshold is a probability between 0 and 1, got {threshold:g}")


def with_originals(opened: Opened, folder: File | None) -> Opened:
    """The same data with the places of their files, where a folder holds them."""
    if folder is None:
        return opened
    if not Path(folder).is_dir():
        raise DataError("no such folder of originals", path=folder)
    bags = opened.data.bags
    info = bags.instance_info if isinstance(bags, Bags) else {}
    names = dict.fromkeys([*map(str, info.get("file", ())), *opened.empty])
    here = {name: str(Path(folder) / name) for name in names if (Path(folder) / name).is_file()}
    return replace(opened, paths={**opened.paths, **here})


def found_in(
    model: Any,
    opened: Opened,
    names: Sequence[str],
    *,
    known: np.ndarray | None = None,
    threshold: float | None = None,
    progress: bool = False,
) -> Iterator[Found]:
    """Answers about every bag, file by file; files without any part come last.

    Parameters
    ----------
    model : fitted model
        Any that annotates.
    opened : Opened
        The bags and where their files lie.
    names : sequence of str
        Labels of the model.
    known : array of shape (n_bags, n_labels), optional
        Labels that the bags are known to carry, in place of the model's decision.
    threshold : float, optional
        Probability below which a part is not marked.
    progress : bool, default=False
        Whether to draw a progress bar on a terminal.
    """
    bags = opened.data.bags
    if not isinstance(bags, Bags):
        raise DataError("answers for tools and pictures are of one view; pick one with view=...")
    proba = knows_probabilities(last_estimator(model))
    for a, b in track(runs(bags), "annotating", enabled=progress):
        block = bags[a:b]
        chosen = scores_and_labels(model, block)[1] if known is None else known[a:b] > 0
        given = None if known is None else known[a:b]
        if proba:
            labels, values = annotate_instances(model, block, given, return_proba=True)
        else:
            labels = annotate_instances(model, block, given)
            values = expit(instance_scores(model, block))
        labels = _decided(np.asarray(labels), np.asarray(values), chosen[block.index], threshold)
        for i, whole in enumerate(label_sets(chosen, names)):
            rows = slice(int(block.offsets[i]), int(block.offsets[i + 1]))
            places = {name: column[rows] for name, column in block.instance_info.items()}
            file = str(block.bag_ids[i])
            yield Found(file, places, labels[rows], values[rows], whole, _path(opened, places, file))
    nothing = {name: column[:0] for name, column in bags.instance_info.items()}
    for file in opened.empty:
        empty = np.zeros((0, len(names)))
        yield Found(file, nothing, np.zeros(0, dtype=int), empty, [], _path(opened, {}, file))


def _decided(
    labels: np.ndarray, values: np.ndarray, chosen: np.ndarray, threshold: float | None
) -> np.ndarray:
    """Labels that the bag's decision, and the threshold if there is one, let pass; -1 for the others."""
    if not len(labels):
        return labels
    rows, place = np.arange(len(labels)), np.maximum(labels, 0)
    passes = (labels >= 0) & chosen[rows, place]
    if threshold is not None:
        passes &= values[rows, place] >= threshold
    return np.where(passes, labels, -1)


def _path(opened: Opened, places: Any, file: str) -> str | None:
    own = str(places["file"][0]) if "file" in places and len(places["file"]) else file
    return opened.paths.get(own)


def answer(
    kind: str | None,
    out: File,
    pictures: File | None,
    found: Iterator[Found],
    opened: Opened,
    names: Sequence[str],
    style: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Write answers for a tool (if ``kind`` is one) and draw them (if there is a folder for that)."""
    bags = opened.data.bags
    if not isinstance(bags, Bags):
        raise DataError("answers for tools and pictures are of one view; pick one with view=...")
    if kind is not None:
        check_answers(kind, bags, out)
    drawn = None if pictures is None else Pictures(pictures, opened, names)
    found = found if drawn is None else drawn.through(found)
    done: dict[str, Any] = {}
    if kind is None:
        deque(found, maxlen=0)
    else:
        files = [*map(str, bags.bag_ids), *opened.empty]
        medium = str(medium_of(bags.instance_info))
        written = write_answers(kind, out, found, files, names, medium, Options(**(style or {})))
        done = {"out": str(out), "rows": written["places"], **written}
    shown = {} if drawn is None else {"pictures": drawn.written, "not_drawn": drawn.notes}
    return {**done, **shown}


class Pictures:
    """Draws every answer that passes, a picture per file, and remembers what could not be shown as it is."""

    def __init__(self, folder: str | PathLike[str], opened: Opened, names: Sequence[str]) -> None:
        check_target(Path(folder) / "x")
        bags = opened.data.bags
        self.folder, self.names = Path(folder), names
        self.target = targets([*map(str, bags.bag_ids), *opened.empty], ".png")
        self.written: list[str] = []
        self.notes: list[str] = []

    def through(self, found: Iterable[Found]) -> Iterator[Found]:
        """The same answers, each drawn on its way."""
        for answer in found:
            figure, note = report.draw_found(answer, self.names)
            if note:
                self.notes.append(f"{answer.file}: {note}")
            target = self.folder / self.target(answer.file)
            with replacing(target) as temporary, warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Glyph")  # a letter that the font lacks is a box
                figure.savefig(temporary, dpi=_DPI)
            self.written.append(str(target))
            yield answer
