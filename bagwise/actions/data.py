"""Data for a verb: opened by file or name, in memory or as shards, fit for a model, with labels in its order.

`open_for` is what the verbs call. Data stay shards where they are such, to be gone over part by part; a model
that remembers how raw files became bags takes such files as well.
"""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from bagwise.bags import Bags, MultiViewBags
from bagwise.bags.dataset import UNKNOWN, Dataset
from bagwise.datasets import is_registered, load_dataset
from bagwise.errors import BagwiseError, DataError
from bagwise.inspection import last_estimator
from bagwise.io import read
from bagwise.media.base import ToBags
from bagwise.media.gathering import collect
from bagwise.media.recipe import recognise
from bagwise.shards import ShardedBags, is_shards
from bagwise.utils.arrays import check_memory

File = str | PathLike[str]
Data = File | Sequence[File]
_MAY_BE_DATA = (".parquet", ".pq", ".npz", ".csv")  # suffixes of data sets that media have as well


# ---------------------------------------------------------------------- data sets


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
        if is_registered(str(data)):
            dataset = load_dataset(str(data), **options)
        elif (shards := open_shards(data, format=format, options=options)) is not None:
            if not shards.is_sparse:
                n_bytes = 2.0 * shards.n_instances * shards.n_features * shards.dtype.itemsize
                advice = "fit, predict, annotate and score read it in parts"
                check_memory(n_bytes, f"{data} as a whole", advice)
            dataset = shards.load()
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
        dataset = dataset[_known(part, dataset.splits, "part", data)]
    if view is None:
        return dataset
    if not isinstance(dataset.bags, MultiViewBags):
        raise DataError(f"has one view without a name; leave out the view {view!r}", path=data)
    known = dataset.instance_Y.get(view) if isinstance(dataset.instance_Y, Mapping) else None
    one = dataset.bags[_known(view, dataset.bags.view_names, "view", data)]
    return replace(dataset, bags=one, instance_Y=known)


def open_shards(
    data: File,
    *,
    part: str | None = None,
    view: str | None = None,
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> ShardedBags | None:
    """Open shards, or return None where the data are something else; see `open_data` for the arguments."""
    if format not in (None, "shards") or not is_shards(data):
        return None
    if options:
        raise BagwiseError(f"shards have no options, got {', '.join(options)}")
    shards = ShardedBags.open(data)
    if part is not None:
        shards = shards[_known(part, shards.manifest.splits, "part", data)]
    return shards if view is None else shards.view(_known(view, shards.view_names, "view", data))


def _known(name: str, names: Iterable[str], what: str, data: File) -> str:
    if name not in names:
        raise DataError(f"no {what} {name!r}; its {what}s: {', '.join(names) or 'none'}", path=data)
    return name


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


# ---------------------------------------------------------------------- data for a model


@dataclass(frozen=True)
class Opened:
    """Data for a model: those of a file, in memory or as shards, or made from raw files just now.

    Attributes
    ----------
    data : Dataset or ShardedBags
        The bags, without those that hold no instances where the model cannot take them.
    whole : Dataset or ShardedBags
        All bags.
    empty : list of str
        Names of the bags left out.
    unreadable : list
        Pairs of file and reason.
    paths : dict of str to str
        Where raw files lie, by the ``file`` of their instances; empty for data that were gathered before.
    """

    data: Any
    whole: Any
    empty: list[str] = field(default_factory=list)
    unreadable: list[Any] = field(default_factory=list)
    paths: dict[str, str] = field(default_factory=dict)


def open_for(
    model: Any,
    data: Data,
    *,
    labels: File | None = None,
    n_jobs: int | None = None,
    cache: str | PathLike[str] | bool | None = True,
    say: Callable[[str], None] = lambda line: None,
    step: Callable[..., None] | None = None,
    in_memory: bool = False,
    **where: Any,
) -> Opened:
    """Open a data set for a model; raw files where the model remembers how it was fed.

    Parameters
    ----------
    model : model
        With a transformer of `bagwise.media` before it, folders and files of its medium are taken as well.
    data : path, name, or sequence of paths
        A data set as for `open_data`, or folders and files.
    labels : path, optional
        Labels of raw files.
    n_jobs, cache, say, step
        As in `gather`.
    in_memory : bool, default=False
        Whether to load shards as a whole.
    **where
        Part, view, format and options; see `open_data`. They are for data sets alone.
    """
    transformer = media_step(model)
    several = [data] if isinstance(data, (str, PathLike)) else list(data)
    if transformer is not None and (len(several) != 1 or _is_raw(several[0], transformer, where)):
        copy = clone(transformer)  # with the state that it learned, if any
        copy.__dict__.update({k: v for k, v in vars(transformer).items() if k.endswith("_")})
        how: dict[str, Any] = {"n_jobs": n_jobs, "cache": cache, "say": say, "step": step}
        found = collect(several, labels, transformer=copy, options=where.get("options"), **how)
        opened = without_empty(found.dataset, model)
        return replace(opened, unreadable=found.unreadable, paths=found.paths)
    if len(several) != 1:
        raise BagwiseError(
            f"{several[0]}, {several[1]}, ...: several files or folders are for models that were fitted "
            "to gathered data; give one data set"
        )
    if labels is not None:
        raise BagwiseError("labels are given for raw files; a data set holds its own")
    shards = None if in_memory else open_shards(several[0], **where)
    return without_empty(open_data(several[0], **where) if shards is None else shards, model)


def without_empty(data: Dataset | ShardedBags, model: Any) -> Opened:
    """Bags with instances, and the names of those without, unless the model takes them."""
    if isinstance(data, ShardedBags):
        about: Any = data
        none_empty = not any(part.n_empty for part in data.manifest.parts)
    else:
        about, none_empty = bags_for(model, data), False
    traits = getattr(last_estimator(model), "traits", None)
    if none_empty or (traits is not None and traits.empty_bags) or (filled := about.sizes > 0).all():
        return Opened(data, data)
    if not filled.any():
        raise DataError("all bags are without instances: nothing was found in any of the files")
    return Opened(data[filled], data, [str(i) for i in about.bag_ids[~filled]])


def bags_for(model: Any, dataset: Dataset) -> Any:
    """The bags, unless they have several views and the model takes one."""
    traits = getattr(last_estimator(model), "traits", None)
    if isinstance(dataset.bags, MultiViewBags) and not (traits and traits.views):
        name, views = type(last_estimator(model)).__name__, ", ".join(dataset.bags.view_names)
        raise DataError(f"{name} takes one view of {views}; pick one with view=...")
    return dataset.bags


def media_step(model: Any) -> ToBags | None:
    """The transformer from raw files at the head of a pipeline (or search over one), if there is one."""
    while hasattr(model, "best_estimator_"):
        model = model.best_estimator_
    first = model.steps[0][1] if isinstance(model, Pipeline) else None
    return first if isinstance(first, ToBags) else None


def _is_raw(data: File, transformer: ToBags, where: Mapping[str, Any]) -> bool:
    """Whether a path is raw material of this transformer rather than a data set."""
    path = Path(data)
    if not path.exists() or where.get("format") or where.get("part"):
        return False
    if path.is_dir() and path.suffix.lower() not in (".zarr",):
        return not (path / "manifest.json").exists()  # a data set in parts
    name = path.name.lower()
    if not name.endswith((*transformer.suffixes, *transformer.also)):
        return False
    if not name.endswith(_MAY_BE_DATA):
        return True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said when it is opened as what it is
            dataset = open_data(data, **where)
        if not isinstance(dataset.bags, Bags):
            return True
        transformer.transform(dataset.bags)
    except (BagwiseError, OSError):
        return True
    return False


# ---------------------------------------------------------------------- labels by name


def label_columns(data: Any, names: Sequence[str]) -> tuple[np.ndarray, list[str], list[str]]:
    """Column of the data for each of ``names``; labels in use that are not among them; names not in the data.

    Where the data do not list a name its column is -1.
    """
    place = {name: k for k, name in enumerate(data.label_names)}
    missing = [name for name in names if name not in place]
    if len(missing) == len(names):
        raise DataError(
            f"data and model have no label in common: {', '.join(data.label_names[:5]) or 'none'}, ... "
            f"in the data, {', '.join(names[:5])}, ... in the model"
        )
    counts = data.label_counts
    unknown = [name for name, k in place.items() if name not in names and counts[k] > 0]
    return np.array([place.get(name, -1) for name in names]), unknown, missing


def in_columns(Y: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Labels of bags in the order of `label_columns`; nobody carries those that the data do not list."""
    return np.where(columns >= 0, Y[:, columns], 0).astype(np.int8)


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
    columns, unknown, missing = label_columns(dataset, names)
    return in_columns(dataset.Y, columns), unknown, missing


def align_instance_labels(dataset: Dataset, names: Sequence[str]) -> np.ndarray | None:
    """Instance labels by the model's label order; None where they are not known for one view."""
    if dataset.instance_Y is None or isinstance(dataset.instance_Y, Mapping):
        return None
    place = {name: k for k, name in enumerate(names)}
    number = np.array([place.get(name, UNKNOWN) for name in dataset.label_names] + [UNKNOWN])
    return number[dataset.instance_Y]  # UNKNOWN, -1, picks the last


# ---------------------------------------------------------------------- where answers go


def wants_shards(target: File, to: str | None = None) -> bool:
    """Whether a target stands for shards: a folder, an address, or the format "shards".

    Examples
    --------
    >>> wants_shards("birds/"), wants_shards("birds.parquet"), wants_shards("s3://calls/birds")
    (True, False, True)
    """
    if to is not None:
        return to == "shards"
    text = os.fspath(target)
    return text.endswith(("/", os.sep)) or "://" in text or Path(text).is_dir()


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
