"""Data by file or name, labels by name, and any model's scores in one shape: what the actions share."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from bagwise.actions.sharding import open_shards
from bagwise.bags import MultiViewBags
from bagwise.bags.dataset import UNKNOWN, Dataset
from bagwise.datasets import list_datasets, load_dataset
from bagwise.errors import BagwiseError, DataError
from bagwise.inspection import last_estimator
from bagwise.io import read
from bagwise.media.recipe import recognise
from bagwise.shards import ShardedBags
from bagwise.utils.arrays import check_memory

File = str | PathLike[str]
_BLOCK = 200_000  # instances scored at a time, which bounds memory and moves the progress bar


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
        if any(str(data) == row["name"] for row in list_datasets()):
            dataset = load_dataset(str(data), **options)
        elif (shards := open_shards(data, format=format, options=options)) is not None:
            dataset = _loaded(shards, data)
        elif Path(data).exists():
            dataset = read(data, format, **options)
        elif Path(data).suffix:
            raise DataError("no such file or folder", path=data)
        else:
            raise _unknown_set(data)
    except BagwiseError:
        _refuse_raw(data)
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


def _loaded(shards: ShardedBags, data: File) -> Dataset:
    """Shards as one data set, where they fit into memory."""
    n_bytes = shards.n_instances * shards.n_features * shards.dtype.itemsize
    if not shards.is_sparse:
        check_memory(2.0 * n_bytes, f"{data} as a whole", "fit, predict, annotate and score read it in parts")
    return shards.load()


def _refuse_raw(data: File) -> None:
    """Say of a folder of recordings, pictures or the like what it is, where a data set is expected."""
    if not Path(data).is_dir():
        return
    try:
        said = recognise(data).said
    except BagwiseError:
        return
    raise DataError(
        f"{said}; that is no data set yet: make one with bagwise gather. (A model of gathered data takes "
        "such files as they are.)",
        path=data,
    )


def _unknown_set(data: File) -> DataError:
    """The registry's advice on a name that it does not know, for someone who may have meant a file."""
    try:
        load_dataset(str(data))
    except DataError as error:
        advice = error.message.replace("list_datasets()", "`bagwise list`")
        return DataError(f"no such file, and {advice}", path=data)
    raise AssertionError(f"{data} is registered after all")


def align_labels(dataset: Dataset, names: Sequence[str]) -> tuple[np.ndarray, list[str], list[str]]:
    """Bag labels in the order of ``names``; labels in use that are not among them; names not in the data.

    Examples
    --------
    >>> from bagwise.bags import Bags
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
    carried = dataset.Y.sum(axis=0)
    unknown = [name for name, k in column.items() if name not in names and carried[k] > 0]
    return Y, unknown, missing


def align_instance_labels(dataset: Dataset, names: Sequence[str]) -> np.ndarray | None:
    """Instance labels by the model's label order; None where they are not known for one view."""
    if dataset.instance_Y is None or isinstance(dataset.instance_Y, Mapping):
        return None
    place = {name: k for k, name in enumerate(names)}
    number = np.array([place.get(name, UNKNOWN) for name in dataset.label_names] + [UNKNOWN])
    return number[dataset.instance_Y]  # UNKNOWN, -1, picks the last


def _one_view(dataset: Dataset, view: str, data: File) -> Dataset:
    if not isinstance(dataset.bags, MultiViewBags):
        raise DataError(f"has one view without a name; leave out the view {view!r}", path=data)
    if view not in dataset.bags.views:
        raise DataError(f"no view {view!r}; its views: {', '.join(dataset.bags.view_names)}", path=data)
    known = dataset.instance_Y.get(view) if isinstance(dataset.instance_Y, Mapping) else None
    return replace(dataset, bags=dataset.bags[view], instance_Y=known)


def bags_for(model: Any, dataset: Dataset) -> Any:
    """The bags, unless they have several views and the model takes one."""
    traits = getattr(last_estimator(model), "traits", None)
    if isinstance(dataset.bags, MultiViewBags) and not (traits and traits.views):
        name, views = type(last_estimator(model)).__name__, ", ".join(dataset.bags.view_names)
        raise DataError(f"{name} takes one view of {views}; pick one with view=...")
    return dataset.bags


def blocks(bags: Any) -> list[tuple[int, int]]:
    """Runs of bags with about `_BLOCK` instances each."""
    ends = np.cumsum(bags.sizes)
    cuts = np.searchsorted(ends, np.arange(_BLOCK, ends[-1] if len(ends) else 0, _BLOCK))
    cuts = np.unique(np.concatenate([[0], cuts, [len(bags)]]))
    return [(int(a), int(b)) for a, b in zip(cuts[:-1], cuts[1:])] or [(0, 0)]


def check_target(path: File) -> None:
    """Refuse a target that cannot be written, before any work is done."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder; give the name of a file", str(path))
    parent = path.absolute().parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "is no folder", str(parent))
    if not os.access(parent, os.W_OK):
        raise PermissionError(errno.EACCES, "no permission to write there", str(parent))
