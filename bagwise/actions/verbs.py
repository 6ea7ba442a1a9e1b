"""The verbs that learn and answer; a program or the page calls the same functions as the command line.

Each takes paths and names, does one thing, and returns a plain dict of what it did. ``data`` is always a
file, or the name of a registered data set; labels go by name, so data and model need not agree on an order.
Questions to a model are asked block by block: data in memory are cut into runs of bags, shards come part by
part, here or on a cluster.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.pipeline import Pipeline

from bagwise.actions.answers import (
    TABLE,
    answer,
    check_answers,
    check_marks,
    check_table,
    found_in,
    knows_probabilities,
    with_originals,
    write_answer_table,
)
from bagwise.actions.data import (
    Data,
    File,
    Opened,
    align_instance_labels,
    bags_for,
    check_target,
    in_columns,
    label_columns,
    media_step,
    open_for,
)
from bagwise.actions.running import Running
from bagwise.bags import Bags, MultiViewBags
from bagwise.bags.dataset import Dataset
from bagwise.bags.labels import unknown_label
from bagwise.base import MIMLClassifier
from bagwise.base.blocks import Block
from bagwise.errors import BagwiseError, DataError
from bagwise.inspection import annotate as annotate_instances
from bagwise.inspection import instance_scores, label_names, last_estimator, scores_and_labels
from bagwise.media.recipe import describe, transformer_of
from bagwise.metrics import evaluate, instance_accuracy
from bagwise.persistence import load, save
from bagwise.registry import get_estimator, suggestion
from bagwise.report.results import annotation_table, prediction_table
from bagwise.shards import ShardedBags

# ---------------------------------------------------------------------- learning


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

    On shards, see `bagwise.ShardedBags`, ``running`` may hold a ``cluster`` and a folder ``checkpoint``. With
    ``out``, what the passes over them came to is kept beside it in ``<out>.checkpoint`` until the model is
    saved: the same call after a kill goes on from there.

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
    estimator = make_model(model, params)  # mistakes in the name or the parameters show before data are read
    opened = open_for(estimator, data, **where)
    bags, how = opened.data, dict(running or {})
    sharded = isinstance(bags, ShardedBags)
    if sharded and out is not None and how.get("checkpoint") is None:
        how["checkpoint"] = f"{out}.checkpoint"
    start = time.perf_counter()
    with Running(f"fitting {model}", bags, **how) as run:
        _learn(estimator, bags, params)
    seconds = time.perf_counter() - start
    if out is not None:
        whole, several = estimator, bags.view_names if sharded else not isinstance(bags.bags, Bags)
        if bags.recipe is not None and not several:  # behind the transformer that made its bags
            whole = Pipeline([("media", transformer_of(bags.recipe)), ("model", estimator)])
        save(whole, out)
    if how.get("checkpoint") is not None:
        shutil.rmtree(how["checkpoint"], ignore_errors=True)
    roles = None if sharded else bags.roles
    return {
        "model": type(estimator).__name__,
        "params": estimator.get_params(deep=False),
        "data": _named(data, bags),
        "n_bags": len(bags),
        "n_instances": bags.n_instances if sharded else bags.bags.n_instances,
        **({"n_parts": bags.n_parts, "n_passes": run.n_passes or None} if sharded else {}),
        "labels": list(bags.label_names),
        "columns": None if roles is None else str(roles),
        "recipe": None if bags.recipe is None else describe(bags.recipe),
        "empty": opened.empty,
        "seconds": seconds,
        "out": None if out is None else str(out),
    }


def train(dataset: Dataset, name: str, params: Mapping[str, Any] | None = None) -> MIMLClassifier:
    """Fit a model by name to a data set in memory; it then knows the names of the labels."""
    model = make_model(name, params)
    _learn(model, dataset, params)
    return model


def make_model(name: str, params: Mapping[str, Any] | None = None) -> MIMLClassifier:
    """Make an unfitted model by name; a wrong name or parameter is an error that lists the right ones."""
    try:
        cls = get_estimator(name)
    except ValueError as error:
        raise BagwiseError(str(error)) from None
    valid = cls._get_param_names()
    for key in params or ():
        if key not in valid:
            known = suggestion(key, valid).replace("known", "its parameters") if valid else "it has none"
            raise BagwiseError(f"{cls.__name__} has no parameter {key!r}; {known}")
    return cls(**(params or {}))


def _learn(model: MIMLClassifier, data: Dataset | ShardedBags, params: Mapping[str, Any] | None) -> None:
    """Fit a model, and say what is wrong in terms of what the caller gave."""
    if not data.has_labels:
        advice = "say which columns hold them, such as labels=..."
        if data.recipe is not None:  # made of raw files, whose labels stand elsewhere
            advice = "gather them again with their labels (gather --labels)"
        raise DataError(f"the data hold no labels to learn from; {advice}")
    try:
        if isinstance(data, ShardedBags):
            model.fit(data)
            return
        bags = bags_for(model, data)
        if model.traits.instance_labels:
            if data.instance_Y is None or isinstance(bags, MultiViewBags):
                raise DataError(
                    f"{type(model).__name__} learns from instance labels, which are not known here"
                )
            bags = data.labelled_bags(fact=getattr(model, "instance_labels", "label"))
        model.fit(bags, data.Y)
        model.label_names_ = data.label_names
    except BagwiseError:
        raise
    except (ValueError, TypeError) as error:
        if isinstance(data, ShardedBags):
            raise BagwiseError(str(error)) from error  # what a method cannot do with shards is no fault
        if isinstance(error, TypeError) and not params:
            raise  # nothing that the caller wrote can be the reason
        given = ", ".join(f"{key}={value!r}" for key, value in (params or {}).items()) or "its defaults"
        raise BagwiseError(f"{type(model).__name__} cannot be fitted with {given}: {error}") from error


# ---------------------------------------------------------------------- answering


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
        to write (``.parquet``, ``.csv`` or ``.json``; a folder gets one table per part). A file in which
        nothing was found to judge has no labels and no scores.
    kind : {"csv", "json"}, optional
        How to write; by default by the suffix.
    progress : bool, default=False
        Whether to draw a progress bar on a terminal.
    running : mapping, optional
        For shards ``cluster``, and ``say``, which is called with its address; ``step`` moves a bar.
    **where
        Part, view, format and options of a data set; ``labels``, ``n_jobs``, ``cache``, ``say`` and ``step``
        for raw files; see `open_for`.
    """
    check_table(out, kind, json=True)
    fitted = load(model)
    opened = open_for(fitted, data, **where)
    names = label_names(fitted)
    params = (fitted, names, bool(opened.empty))
    with Running("predicting", opened.data, progress=progress, **(running or {})) as run:
        sets = [opened.whole]
        if opened.empty and isinstance(opened.whole, Dataset):  # what gave nothing stands at the end
            sets = [opened.data, opened.whole[opened.whole.bags.sizes == 0]]
        rows = write_answer_table(run.over(_predictions, params, *sets, labels=False), out)
    return {"out": str(out), "rows": rows, "labels": list(names), **_not_read(opened)}


def _predictions(params: Any, block: Block) -> pa.Table:
    model, names, some_empty = params
    bags = block.bags
    if not some_empty or (filled := bags.sizes > 0).all():
        return prediction_table(bags.bag_ids, *scores_and_labels(model, bags), names)
    scores = np.full((len(bags), len(names)), np.nan)  # a bag in which there is nothing to judge
    chosen = scores > 0
    if filled.any():
        scores[filled], chosen[filled] = scores_and_labels(model, bags[filled])
    return prediction_table(bags.bag_ids, scores, chosen, names)


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
        to write (``.parquet`` or ``.csv``; a folder gets one table per part), or the folder for a tool.
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
    progress, running, **where
        As in `predict`.
    """
    as_table = kind in (None, TABLE)
    check_marks(as_table and pictures is None, threshold, originals)
    if as_table:
        if kind == TABLE and (Path(out).is_dir() or not Path(out).suffix):
            out = Path(out) / "annotations.csv"
        check_table(out)
    fitted = load(model)
    inner = last_estimator(fitted)
    if not as_table:
        check_answers(str(kind), media_step(fitted), out)
    if proba and not knows_probabilities(inner):
        raise BagwiseError(f"{type(inner).__name__} gives no probabilities; ask for scores")
    opened = open_for(fitted, data, **where)
    found_data, names, columns = opened.data, label_names(fitted), None
    if use_labels:
        if not found_data.has_labels:
            raise DataError(f"{_named(data)}: holds no labels to choose among; leave out use_labels=True")
        columns, unknown, _ = label_columns(found_data, names)
        if unknown:
            raise unknown_label(unknown[0], names)
    shown: dict[str, Any] = {}
    if not as_table or pictures is not None:
        if isinstance(found_data, ShardedBags):
            raise BagwiseError("of shards a table is written; leave out the kind and pictures")
        opened = with_originals(opened, originals)
        known = None if columns is None else in_columns(found_data.Y, columns)
        found = found_in(fitted, opened, names, known=known, threshold=threshold, progress=progress)
        shown = answer(None if as_table else str(kind), out, pictures, found, opened, names, style)
        if not as_table:
            return {**shown, "labels": list(names), **_not_read(opened)}
    with Running("annotating", found_data, progress=progress, **(running or {})) as run:
        params = (fitted, names, columns, proba)
        rows = write_answer_table(run.over(_annotations, params, found_data, labels=use_labels), out)
    return {"out": str(out), "rows": rows, "labels": list(names), **shown, **_not_read(opened)}


def _annotations(params: Any, block: Block) -> pa.Table:
    model, names, columns, proba = params
    bags, known = block.bags, None if columns is None else in_columns(block.Y, columns)
    if proba:
        labels, values = annotate_instances(model, bags, known, return_proba=True)
    else:
        labels, values = annotate_instances(model, bags, known), instance_scores(model, bags)
    title = "probability" if proba else "score"
    if isinstance(bags, Bags):
        return annotation_table(bags, labels, values, names, title)
    about = {"bag_ids": bags.bag_ids}
    return pa.concat_tables(
        annotation_table(part, labels[view], values[view], names, title, view=view, **about)
        for view, part in bags.views.items()
    )


def score(
    model: File, data: Data, *, running: Mapping[str, Any] | None = None, **where: Any
) -> dict[str, Any]:
    """Measure how well a model predicts bags and, where their labels are known, instances.

    Labels are matched by name. The result names the labels of the data that the model never learned
    ("not_learned": they are left out of every measure) and those of the model that the data do not list
    ("not_in_data": no bag counts as carrying them). Of shards, bags alone are measured.
    """
    fitted = load(model)
    opened = open_for(fitted, data, **where)
    bags, names, inner = opened.data, label_names(fitted), last_estimator(fitted)
    if not bags.has_labels:
        raise DataError("the data hold no labels to compare with; prediction needs none")
    columns, unknown, missing = label_columns(bags, names)
    parts = None
    if isinstance(bags, Dataset) and isinstance(bags.bags, Bags) and hasattr(inner, "annotate"):
        parts = align_instance_labels(bags, names)
    with Running("scoring", bags, **(running or {})) as run:
        found = list(run.over(_scored, (fitted, columns, parts is not None), bags))
    Y, scores, chosen, *more = (np.concatenate(values) for values in zip(*found))
    known: dict[str, Any] = {}
    if parts is not None:
        known = {"instance_Y": parts, "instance_predictions": more[0], "instance_scores": more[1]}
        known["offsets"] = bags.bags.offsets
    measures = dict(evaluate(Y, scores, chosen, **known))
    if parts is not None:
        measures["instance_accuracy_given_labels"] = instance_accuracy(parts, more[2])
    return {
        "model": type(inner).__name__,
        "data": _named(data, bags),
        "n_bags": len(bags),
        "measures": measures,
        "not_learned": unknown,
        "not_in_data": missing,
        **_not_read(opened),
    }


def _scored(params: Any, block: Block) -> tuple[np.ndarray, ...]:
    """Labels, scores and predictions of bags; also those of instances where they can be compared."""
    model, columns, instances = params
    Y, bags = in_columns(block.Y, columns), block.bags
    found = (Y, *scores_and_labels(model, bags))
    if not instances:
        return found
    given = annotate_instances(model, bags, Y)
    return (*found, annotate_instances(model, bags), instance_scores(model, bags), given)


def _not_read(opened: Opened) -> dict[str, Any]:
    """Files that gave no answer, and why."""
    return {"empty": opened.empty, "unreadable": [list(file) for file in opened.unreadable]}


def _named(data: Data, found: Any = None) -> str:
    if found is not None and found.name:
        return found.name
    if isinstance(found, ShardedBags):
        return found.place.folder
    return str(data) if isinstance(data, (str, PathLike)) else ", ".join(map(str, data))
