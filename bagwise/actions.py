"""One function per verb of the command line; a program or a web page calls the same functions.

Each takes paths and names, does one thing, and returns a plain dict of what it did. ``data`` is always a
file, or the name of a registered data set; labels go by name, so data and model need not agree on an order.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

import bagwise
from bagwise.bags import Bags, MultiViewBags
from bagwise.base import MIMLClassifier
from bagwise.dataset import UNKNOWN, Dataset
from bagwise.datasets import dataset_names
from bagwise.errors import BagwiseError, DataError
from bagwise.inspection import annotate as annotate_instances
from bagwise.inspection import instance_scores
from bagwise.io import formats
from bagwise.labels import unknown_label
from bagwise.metrics import evaluate, instance_accuracy
from bagwise.persistence import load, model_facts, save
from bagwise.registry import all_estimators, get_estimator
from bagwise.report.plots import plot_bags
from bagwise.report.results import annotation_table, check_suffix, prediction_table, write_tables
from bagwise.utils.files import replacing
from bagwise.utils.progress import track

File = str | PathLike[str]
_BLOCK = 200_000  # instances scored at a time, which bounds memory and moves the progress bar


# ---------------------------------------------------------------------- looking


def list_all() -> dict[str, Any]:
    """List estimators with their traits, data sets by name, and file formats."""
    estimators = [
        {"name": name, "summary": _summary(cls), "traits": asdict(cls.traits)} for name, cls in all_estimators()
    ]
    return {
        "estimators": estimators,
        "datasets": dataset_names(),
        "formats": [
            {**f._asdict(), "description": f.description.rstrip(".")} for f in formats()
        ],
    }


def info(data: File, **where: Any) -> dict[str, Any]:
    """Say what a data set (or a model file, ``*.skops``) holds.

    Parameters
    ----------
    data : path or name
        The data set.
    **where
        Part, view, format and options; see `open_data`.

    Examples
    --------
    >>> found = info("digits", options={"n_bags": 20})
    >>> found["n_bags"], found["labels"][0]["name"], found["instance_labels"]
    (20, '0', 'known for all instances')
    """
    if Path(data).suffix.lower() == ".skops":
        return _model_info(data)
    dataset = open_data(data, **where)
    bags = dataset.bags
    views = bags.views if isinstance(bags, MultiViewBags) else {"": bags}
    counts = dataset.Y.sum(axis=0)
    return {
        "name": dataset.name or str(data),
        "description": dataset.description,
        "citation": dataset.citation,
        "licence": dataset.licence,
        "n_bags": len(bags),
        "n_instances": bags.n_instances,
        "n_features": bags.shape[1],
        "views": [_view_info(name, view) for name, view in views.items()],
        "n_labels": len(dataset.label_names),
        "cardinality": dataset.cardinality,
        "labels": [
            {"name": name, "bags": int(count), "share": float(count / max(len(bags), 1))}
            for name, count in zip(dataset.label_names, counts)
        ],
        "instance_labels": _instance_label_info(dataset),
        "parts": {name: len(which) for name, which in dataset.splits.items()},
        "n_groups": None if dataset.groups is None else len(np.unique(dataset.groups)),
    }


def convert(source: File, target: File, *, to: str | None = None, **where: Any) -> dict[str, Any]:
    """Read a data set and write it in another format, by the suffix of ``target`` or by ``to``."""
    _check_target(target)
    dataset = open_data(source, **where)
    bagwise.write(dataset, target, to)
    return {"out": str(target), "n_bags": len(dataset), "n_instances": dataset.bags.n_instances}


# ---------------------------------------------------------------------- learning and predicting


def fit(
    data: File, model: str, params: Mapping[str, Any] | None = None, out: File | None = None, **where: Any
) -> dict[str, Any]:
    """Fit a model by name to a data set and, with ``out``, save it.

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
        _check_target(out)
    make_model(model, params)  # mistakes in the name or the parameters show before the data are read
    dataset = open_data(data, **where)
    start = time.perf_counter()
    fitted = train(dataset, model, params)
    seconds = time.perf_counter() - start
    if out is not None:
        save(fitted, out)
    return {
        "model": type(fitted).__name__,
        "params": fitted.get_params(deep=False),
        "data": dataset.name or str(data),
        "n_bags": len(dataset),
        "n_instances": dataset.bags.n_instances,
        "labels": list(dataset.label_names),
        "seconds": seconds,
        "out": None if out is None else str(out),
    }


def make_model(name: str, params: Mapping[str, Any] | None = None) -> MIMLClassifier:
    """Make an unfitted model by name; a wrong name or parameter is an error that lists the right ones."""
    try:
        cls = get_estimator(name)
    except ValueError as error:
        raise BagwiseError(str(error)) from None
    params = dict(params or {})
    valid = list(cls._get_param_names())
    for key in params:
        if key not in valid:
            known = f"its parameters are {', '.join(valid)}" if valid else "it has none"
            raise BagwiseError(f"{cls.__name__} has no parameter {key!r}; {known}")
    return cls(**params)


def train(dataset: Dataset, name: str, params: Mapping[str, Any] | None = None) -> MIMLClassifier:
    """Fit a model by name to a data set in memory; it then knows the names of the labels."""
    model = make_model(name, params)
    bags = _bags_for(model, dataset)
    if model.traits.instance_labels:
        if dataset.instance_Y is None or isinstance(bags, MultiViewBags):
            raise DataError(f"{type(model).__name__} learns from instance labels, which are not known here")
        bags = dataset.labelled_bags(fact=getattr(model, "instance_labels", "label"))
    try:
        model.fit(bags, dataset.Y)
    except BagwiseError:
        raise
    except (ValueError, TypeError) as error:
        if isinstance(error, TypeError) and not params:
            raise  # nothing that the caller wrote can be the reason
        given = ", ".join(f"{key}={value!r}" for key, value in (params or {}).items()) or "its defaults"
        raise BagwiseError(f"{type(model).__name__} cannot be fitted with {given}: {error}") from error
    model.label_names_ = dataset.label_names
    return model


def predict(model: File, data: File, out: File, *, progress: bool = False, **where: Any) -> dict[str, Any]:
    """Predict the labels of bags; write a table with the labels and all scores of every bag."""
    _check_target(out)
    check_suffix(out)
    fitted = load(model)
    bags = _bags_for(fitted, open_data(data, **where))
    names = label_names(fitted)

    def tables() -> Iterator[Any]:
        for a, b in track(_blocks(bags), "predicting", enabled=progress):
            scores = _scores(fitted, bags[a:b])
            yield prediction_table(bags.bag_ids[a:b], scores, _chosen(fitted, scores), names)

    return {"out": str(out), "rows": write_tables(tables(), out), "labels": list(names)}


def annotate(
    model: File,
    data: File,
    out: File,
    *,
    use_labels: bool = False,
    proba: bool = False,
    progress: bool = False,
    **where: Any,
) -> dict[str, Any]:
    """Find the label of every instance; write a table with a row per instance.

    Parameters
    ----------
    model, data, out
        Model file, data set, and the table to write (``.parquet`` or ``.csv``).
    use_labels : bool, default=False
        Whether to choose among the labels that each bag is known to carry.
    proba : bool, default=False
        Whether to write the probability of the label found, instead of its score.
    progress : bool, default=False
        Whether to draw a progress bar on a terminal.
    **where
        Part, view, format and options; see `open_data`.
    """
    _check_target(out)
    check_suffix(out)
    fitted = load(model)
    if proba and not _last(fitted).traits.probabilities:
        raise BagwiseError(f"{type(_last(fitted)).__name__} gives no probabilities; ask for scores")
    dataset = open_data(data, **where)
    bags = _bags_for(fitted, dataset)
    if not isinstance(bags, Bags):
        raise BagwiseError(f"annotation takes one view; pick one of {', '.join(bags.view_names)}")
    names = label_names(fitted)
    Y = None
    if use_labels:
        Y, unknown, _ = align_labels(dataset, names)
        if unknown:
            raise unknown_label(unknown[0], names)

    def tables() -> Iterator[Any]:
        for a, b in track(_blocks(bags), "annotating", enabled=progress):
            block, known = bags[a:b], None if Y is None else Y[a:b]
            if proba:
                labels, values = annotate_instances(fitted, block, known, return_proba=True)
            else:
                labels = annotate_instances(fitted, block, known)
                values = instance_scores(fitted, block)
            yield annotation_table(block, labels, values, names, "probability" if proba else "score")

    return {"out": str(out), "rows": write_tables(tables(), out), "labels": list(names)}


def score(model: File, data: File, **where: Any) -> dict[str, Any]:
    """Measure how well a model predicts bags and, where their labels are known, instances.

    Labels are matched by name. The result names the labels of the data that the model never learned
    ("not_learned": they are left out of every measure) and those of the model that the data do not list
    ("not_in_data": no bag counts as carrying them).
    """
    fitted = load(model)
    dataset = open_data(data, **where)
    measures, unknown, missing = measure(fitted, dataset)
    return {
        "model": type(_last(fitted)).__name__,
        "data": dataset.name or str(data),
        "n_bags": len(dataset),
        "measures": measures,
        "not_learned": unknown,
        "not_in_data": missing,
    }


def measure(model: Any, dataset: Dataset) -> tuple[dict[str, float], list[str], list[str]]:
    """Every measure that the data allow; labels unknown to the model; labels missing in the data."""
    bags, names = _bags_for(model, dataset), label_names(model)
    Y, unknown, missing = align_labels(dataset, names)
    scores = _scores(model, bags)
    known: dict[str, Any] = {}
    instance_Y = _aligned_instance_labels(dataset, names)
    if instance_Y is not None and isinstance(bags, Bags) and hasattr(_last(model), "annotate"):
        known = {
            "instance_Y": instance_Y,
            "instance_predictions": annotate_instances(model, bags),
            "instance_scores": instance_scores(model, bags),
            "offsets": bags.offsets,
        }
    measures = dict(evaluate(Y, scores, _chosen(model, scores), **known))
    if known:
        given = annotate_instances(model, bags, Y)
        measures["instance_accuracy_given_labels"] = instance_accuracy(instance_Y, given)
    return measures, unknown, missing


# ---------------------------------------------------------------------- data and labels


def open_data(
    data: File,
    *,
    part: str | None = None,
    view: str | None = None,
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Dataset:
    """Open a data set by file or by registered name (write ``./name`` for a file that is called alike).

    Parameters
    ----------
    data : path or name
        What to open.
    part : str, optional
        Only this published part, such as "train".
    view : str, optional
        Only this view of several.
    format : str, optional
        Format of the file; recognised by default.
    options : mapping, optional
        Options of the reader or of `bagwise.load_dataset`.
    """
    options = dict(options or {})
    try:
        if str(data) in dataset_names():
            dataset = bagwise.load_dataset(str(data), **options)
        elif not Path(data).exists():
            raise DataError("no such file, and no data set of this name; see `bagwise list`", path=data)
        else:
            dataset = bagwise.read(data, format, **options)
    except BagwiseError:
        raise
    except (TypeError, ValueError) as error:
        if not options:
            raise
        raise BagwiseError(f"{data} cannot be opened with the options {options}: {error}") from error
    if part is not None:
        if part not in dataset.splits:
            known = ", ".join(dataset.splits) or "none"
            raise DataError(f"no part {part!r}; its parts: {known}", path=data)
        dataset = dataset[part]
    return dataset if view is None else _one_view(dataset, view, data)


def label_names(model: Any) -> tuple[str, ...]:
    """Names of the labels that a fitted model, pipeline or search predicts, in its order."""
    inner = _last(model)
    if hasattr(inner, "label_names_"):
        return tuple(inner.label_names_)
    classes = np.asarray(inner.classes_)
    if classes.ndim == 2:
        return tuple(f"label_{k}" for k in range(len(classes)))  # as for data without names
    return tuple(str(name) for name in (classes[1:] if len(classes) == 2 else classes))


def align_labels(dataset: Dataset, names: Sequence[str]) -> tuple[np.ndarray, list[str], list[str]]:
    """Bag labels in the order of ``names``; labels in use that are not among them; names not in the data.

    Examples
    --------
    >>> data = Dataset(Bags.from_list([[[1.0]], [[2.0]]]), [["wren"], ["gull", "wren"]])
    >>> Y, unknown, missing = align_labels(data, ["robin", "wren"])
    >>> Y.tolist(), unknown, missing
    ([[0, 1], [0, 1]], ['gull'], ['robin'])
    """
    column = {name: k for k, name in enumerate(dataset.label_names)}
    missing = [name for name in names if name not in column]
    if len(missing) == len(names):
        raise DataError(
            f"data and model have no label in common: {', '.join(dataset.label_names[:5]) or 'none'}, ... "
            f"in the data, {', '.join(names[:5])}, ... in the model"
        )
    Y = np.zeros((len(dataset), len(names)), dtype=np.int8)
    for k, name in enumerate(names):
        if name in column:
            Y[:, k] = dataset.Y[:, column[name]]
    carried = dataset.Y.any(axis=0)
    unknown = [name for name, k in column.items() if name not in names and carried[k]]
    return Y, unknown, missing


def _aligned_instance_labels(dataset: Dataset, names: Sequence[str]) -> np.ndarray | None:
    if dataset.instance_Y is None or isinstance(dataset.instance_Y, Mapping):
        return None
    place = {name: k for k, name in enumerate(names)}
    number = np.array([place.get(name, UNKNOWN) for name in dataset.label_names] + [UNKNOWN])
    return number[dataset.instance_Y]  # UNKNOWN, -1, picks the last


def _one_view(dataset: Dataset, view: str, data: File) -> Dataset:
    from dataclasses import replace

    if not isinstance(dataset.bags, MultiViewBags):
        raise DataError(f"has one view without a name; leave out the view {view!r}", path=data)
    if view not in dataset.bags.views:
        raise DataError(f"no view {view!r}; its views: {', '.join(dataset.bags.view_names)}", path=data)
    known = dataset.instance_Y.get(view) if isinstance(dataset.instance_Y, Mapping) else None
    return replace(dataset, bags=dataset.bags[view], instance_Y=known)


def _bags_for(model: Any, dataset: Dataset) -> Any:
    """The bags, unless they have several views and the model takes one."""
    traits = getattr(_last(model), "traits", None)
    if isinstance(dataset.bags, MultiViewBags) and not (traits and traits.views):
        raise DataError(
            f"{type(_last(model)).__name__} takes one view; pick one of {', '.join(dataset.bags.view_names)}"
        )
    return dataset.bags


def _last(model: Any) -> Any:
    """The classifier at the end of searches and pipelines."""
    while True:
        if hasattr(model, "best_estimator_"):
            model = model.best_estimator_
        elif isinstance(model, Pipeline):
            model = model.steps[-1][1]
        else:
            return model


def _scores(model: Any, bags: Any) -> np.ndarray:
    if not hasattr(model, "decision_function"):
        raise BagwiseError(f"{type(model).__name__} has no decision_function and cannot score labels")
    scores = np.asarray(model.decision_function(bags))
    return scores[:, None] if scores.ndim == 1 else scores


def _chosen(model: Any, scores: np.ndarray) -> np.ndarray:
    """Predicted label sets; of several classes exactly one."""
    classes = np.asarray(_last(model).classes_)
    if classes.ndim == 1 and len(classes) > 2:
        return scores.argmax(axis=1)[:, None] == np.arange(scores.shape[1])
    return scores > 0


def _blocks(bags: Any) -> list[tuple[int, int]]:
    """Runs of bags with about `_BLOCK` instances each."""
    ends = np.cumsum(bags.sizes)
    cuts = np.searchsorted(ends, np.arange(_BLOCK, ends[-1] if len(ends) else 0, _BLOCK))
    cuts = np.unique(np.concatenate([[0], cuts, [len(bags)]]))
    return [(int(a), int(b)) for a, b in zip(cuts[:-1], cuts[1:])] or [(0, 0)]


def _check_target(path: File) -> None:
    """Refuse a target that cannot be written, before any work is done."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(21, "is a folder; give the name of a file", str(path))
    parent = path.absolute().parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise NotADirectoryError(20, "is no folder", str(parent))
    if not os.access(parent, os.W_OK):
        raise PermissionError(13, "no permission to write there", str(parent))


# ---------------------------------------------------------------------- parts of info and list


def _view_info(name: str, bags: Bags) -> dict[str, Any]:
    sizes = bags.sizes if len(bags) else np.zeros(1, dtype=np.int64)
    return {
        "name": name,
        "n_instances": bags.n_instances,
        "n_features": bags.n_features,
        "storage": f"{'sparse' if bags.is_sparse else 'dense'} {bags.dtype}",
        "sizes": {"min": int(sizes.min()), "median": float(np.median(sizes)), "max": int(sizes.max())},
        "empty_bags": int((bags.sizes == 0).sum()),
        "facts": sorted(bags.instance_info),
    }


def _instance_label_info(dataset: Dataset) -> str:
    given = dataset.instance_Y
    if given is None:
        return "unknown"
    values = np.concatenate(list(given.values())) if isinstance(given, Mapping) else given
    known = int((values != UNKNOWN).sum())
    return "known for all instances" if known == len(values) else f"known for {known} of {len(values)} instances"


def _model_info(path: File) -> dict[str, Any]:
    model = load(path)
    inner = _last(model)
    return {
        "model": type(inner).__name__,
        "params": inner.get_params(deep=False),
        "labels": list(label_names(model)),
        "n_features": getattr(inner, "n_features_in_", None),
        "written_by": model_facts(path).get("versions", {}),
    }


def _summary(cls: type) -> str:
    return (cls.__doc__ or "").strip().partition("\n")[0].rstrip(".")
