"""The verbs that learn and answer; a program or a web page calls the same functions as the command line.

Each takes paths and names, does one thing, and returns a plain dict of what it did. ``data`` is always a
file, or the name of a registered data set; labels go by name, so data and model need not agree on an order.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from os import PathLike
from typing import Any

import numpy as np

from bagwise.actions.answering import (
    TABLE,
    answer,
    check_answers,
    check_marks,
    found_in,
    json_wanted,
    knows_probabilities,
    table_target,
    with_originals,
    write_predictions,
)
from bagwise.actions.describing import columns_taken
from bagwise.actions.gathering import Data, Opened, filled_bags, media_step, open_for, with_recipe
from bagwise.actions.learning import make_model, measure, train
from bagwise.actions.matching import (
    File,
    align_labels,
    bags_for,
    blocks,
    check_target,
    open_data,
)
from bagwise.actions.streaming import annotate_shards, fit_shards, predict_shards, score_shards, shards_of
from bagwise.bags import Bags
from bagwise.bags.labels import unknown_label
from bagwise.errors import BagwiseError, DataError
from bagwise.inspection import annotate as annotate_instances
from bagwise.inspection import instance_scores, label_names, last_estimator, scores_and_labels
from bagwise.media.recipe import describe
from bagwise.persistence import load, save
from bagwise.report.results import annotation_table, check_suffix, prediction_table, write_tables
from bagwise.utils.progress import track


def fit(
    data: File,
    model: str = "BagClassifier",
    params: Mapping[str, Any] | None = None,
    out: File | None = None,
    *,
    running: Mapping[str, Any] | None = None,
    **where: Any,
) -> dict[str, Any]:
    """Fit a model by name to a data set and, with ``out``, save it.

    On shards, see `bagwise.ShardedBags`, ``running`` may hold a ``cluster`` and a folder ``checkpoint``.

    A model of data that `gather` made is saved behind the transformer that made them, so that it takes raw
    files. Bags without instances are left out where the model cannot take them, and named in the result.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> small = {"n_bags": 60}
    >>> done = fit("digits", "MIMLDummy", out=f"{folder}/dummy.skops", part="train", options=small)
    >>> done["n_bags"]
    42
    >>> found = predict(f"{folder}/dummy.skops", "digits", f"{folder}/found.csv", part="test", options=small)
    >>> found["rows"]
    18
    """
    if out is not None:
        check_target(out)
    running = dict(running or {})
    make_model(model, params)  # mistakes in the name or the parameters show before the data are read
    if (shards := shards_of(data, where)) is not None:
        return fit_shards(shards, model, params, out, **running)
    if any(value is not None for name, value in running.items() if name in ("cluster", "checkpoint")):
        raise BagwiseError(
            "a cluster and a checkpoint are for shards: bagwise convert DATA shards/ makes them"
        )
    dataset, empty = filled_bags(open_data(data, **where), make_model(model, params))
    start = time.perf_counter()
    fitted = train(dataset, model, params)
    seconds = time.perf_counter() - start
    if out is not None:
        save(with_recipe(fitted, dataset), out)
    return {
        "model": type(fitted).__name__,
        "params": fitted.get_params(deep=False),
        "data": dataset.name or str(data),
        "n_bags": len(dataset),
        "n_instances": dataset.bags.n_instances,
        "labels": list(dataset.label_names),
        "columns": columns_taken(dataset),
        "recipe": None if dataset.recipe is None else describe(dataset.recipe),
        "empty": empty,
        "seconds": seconds,
        "out": None if out is None else str(out),
    }


def predict(
    model: File,
    data: Data,
    out: File,
    *,
    kind: str | None = None,
    progress: bool = False,
    running: Mapping[str, Any] | None = None,
    **where: Any,
) -> dict[str, Any]:
    """Predict the labels of bags; write a table with the labels and all scores of every bag.

    Parameters
    ----------
    model, data, out
        Model file; data set, or folders and files of the medium that the model was fitted to; and the table
        to write (``.parquet``, ``.csv`` or ``.json``). A file in which nothing was found to judge has no
        labels and no scores.
    kind : {"csv", "json"}, optional
        How to write; by default by the suffix.
    progress : bool, default=False
        Whether to draw a progress bar on a terminal.
    **where
        Part, view, format and options of a data set; ``n_jobs``, ``cache``, ``say`` and ``step`` for raw
        files; see `open_for`.
    """
    if (shards := shards_of(data, where)) is not None:
        return predict_shards(load(model), shards, out, **(running or {}))
    check_target(out)
    as_json = json_wanted(kind, out)
    fitted = load(model)
    opened = open_for(fitted, data, **where)
    bags = bags_for(fitted, opened.dataset)
    names = label_names(fitted)

    def answers() -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
        for a, b in track(blocks(bags), "predicting", enabled=progress):
            yield (bags.bag_ids[a:b], *scores_and_labels(fitted, bags[a:b]))
        if opened.empty:
            nothing = np.full((len(opened.empty), len(names)), np.nan)
            yield opened.empty, nothing, nothing > 0

    if as_json:
        rows = write_predictions(answers(), names, out)
    else:
        rows = write_tables((prediction_table(*three, names) for three in answers()), out)
    return {"out": str(out), "rows": rows, "labels": list(names), **_not_read(opened)}


def annotate(
    model: File,
    data: Data,
    out: File,
    *,
    kind: str | None = None,
    pictures: File | None = None,
    threshold: float | None = None,
    originals: File | None = None,
    style: Mapping[str, Any] | None = None,
    use_labels: bool = False,
    proba: bool = False,
    progress: bool = False,
    running: Mapping[str, Any] | None = None,
    **where: Any,
) -> dict[str, Any]:
    """Find the label of every instance; write a table with a row per instance, or what a tool expects.

    Parameters
    ----------
    model, data, out
        Model file; data set, or folders and files of the medium that the model was fitted to; and the table
        to write (``.parquet`` or ``.csv``), or the folder for a tool.
    kind : {"csv", "raven", "audacity", "label-studio", "coco", "geojson"}, optional
        What to write; a table by default. For a tool, a part is marked with its label if the model decides
        that the whole file carries it; see `bagwise.media.labels.write`.
    pictures : path, optional
        Folder for a picture of every file with what was found in it.
    threshold : float, optional
        Probability below which a part is not marked, in pictures and for tools.
    originals : path, optional
        Folder of the files that data were gathered from, for pictures and sizes; raw files need none.
    style : mapping, optional
        How a tool's files are written: ``merge``, ``scores``, ``address``; see
        `bagwise.media.labels.Options`.
    use_labels : bool, default=False
        Whether to choose among the labels that each bag is known to carry.
    proba : bool, default=False
        Whether to write the probability of the label found, instead of its score.
    progress : bool, default=False
        Whether to draw a progress bar on a terminal.
    **where
        Part, view, format and options of a data set; ``labels``, ``n_jobs``, ``cache``, ``say`` and ``step``
        for raw files; see `open_for`.
    """
    as_table = kind in (None, TABLE)
    check_marks(as_table and pictures is None, threshold, originals)
    if (shards := shards_of(data, where)) is not None:
        if not as_table or pictures is not None:
            raise BagwiseError("of shards a table is written; leave out the kind and pictures")
        more = dict(running or {})
        return annotate_shards(load(model), shards, out, use_labels=use_labels, proba=proba, **more)
    if as_table:
        out = table_target(kind, out)
        check_target(out)
        check_suffix(out)
    fitted = load(model)
    if not as_table:
        check_answers(str(kind), media_step(fitted), out)
    if proba and not knows_probabilities(last_estimator(fitted)):
        raise BagwiseError(f"{type(last_estimator(fitted)).__name__} gives no probabilities; ask for scores")
    opened = open_for(fitted, data, **where)
    dataset = opened.dataset
    bags = bags_for(fitted, dataset)
    names = label_names(fitted)
    Y = None
    if use_labels:
        if not dataset.has_labels:
            raise DataError(f"{_named(data)}: holds no labels to choose among; leave out use_labels=True")
        Y, unknown, _ = align_labels(dataset, names)
        if unknown:
            raise unknown_label(unknown[0], names)
    shown: dict[str, Any] = {}
    if not as_table or pictures is not None:
        opened = with_originals(opened, originals)
        found = found_in(fitted, opened, names, known=Y, threshold=threshold, progress=progress)
        tool = None if as_table else str(kind)
        shown = answer(tool, out, pictures, found, opened, names, style)
        if not as_table:
            return {**shown, "labels": list(names), **_not_read(opened)}

    def tables() -> Iterator[Any]:
        for a, b in track(blocks(bags), "annotating", enabled=progress):
            block, known = bags[a:b], None if Y is None else Y[a:b]
            if proba:
                labels, values = annotate_instances(fitted, block, known, return_proba=True)
            else:
                labels = annotate_instances(fitted, block, known)
                values = instance_scores(fitted, block)
            title = "probability" if proba else "score"
            if isinstance(block, Bags):
                yield annotation_table(block, labels, values, names, title)
                continue
            for view, part in block.views.items():
                about = {"view": view, "bag_ids": block.bag_ids}
                yield annotation_table(part, labels[view], values[view], names, title, **about)

    rows = write_tables(tables(), out)
    return {"out": str(out), "rows": rows, "labels": list(names), **shown, **_not_read(opened)}


def score(
    model: File, data: Data, *, running: Mapping[str, Any] | None = None, **where: Any
) -> dict[str, Any]:
    """Measure how well a model predicts bags and, where their labels are known, instances.

    Labels are matched by name. The result names the labels of the data that the model never learned
    ("not_learned": they are left out of every measure) and those of the model that the data do not list
    ("not_in_data": no bag counts as carrying them).
    """
    fitted = load(model)
    if (shards := shards_of(data, where)) is not None:
        return score_shards(fitted, shards, **(running or {}))
    opened = open_for(fitted, data, **where)
    dataset = opened.dataset
    measures, unknown, missing = measure(fitted, dataset)
    return {
        "model": type(last_estimator(fitted)).__name__,
        "data": dataset.name or _named(data),
        "n_bags": len(dataset),
        "measures": measures,
        "not_learned": unknown,
        "not_in_data": missing,
        **_not_read(opened),
    }


# ---------------------------------------------------------------------- parts of info and list


def _not_read(opened: Opened) -> dict[str, Any]:
    """Files that gave no answer, and why."""
    return {"empty": opened.empty, "unreadable": [list(file) for file in opened.unreadable]}


def _named(data: Data) -> str:
    return str(data) if isinstance(data, (str, PathLike)) else ", ".join(map(str, data))
