"""Data sets from raw files, and raw files for models that remember how they were fed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

from sklearn.base import clone
from sklearn.pipeline import Pipeline

from bagwise.actions.matching import File, bags_for, check_target, open_data
from bagwise.actions.sharding import only_shards_are_packed, wants_shards
from bagwise.bags import Bags
from bagwise.bags.dataset import Dataset
from bagwise.errors import BagwiseError, DataError
from bagwise.inspection import last_estimator
from bagwise.io import formats, write
from bagwise.media.base import ToBags
from bagwise.media.gathering import Gathered, cache_place, collect
from bagwise.media.pieces import Pieces
from bagwise.media.recipe import describe, transformer_of
from bagwise.shards import PART_BYTES, ShardedBags, ShardWriter
from bagwise.shards.manifest import MANIFEST
from bagwise.shards.place import Place

Data = File | Sequence[File]
_MAY_BE_DATA = (".parquet", ".pq", ".npz", ".csv")  # suffixes of data sets that media have as well


def gather(
    folders: Data,
    out: File,
    labels: File | None = None,
    *,
    medium: str | None = None,
    params: Mapping[str, Any] | None = None,
    n_jobs: int | None = None,
    strict: bool = False,
    cache: str | PathLike[str] | bool | None = True,
    options: Mapping[str, Any] | None = None,
    part_bytes: int = PART_BYTES,
    packed: bool = False,
    say: Callable[[str], None] = lambda line: None,
    step: Callable[..., None] | None = None,
) -> dict[str, Any]:
    """Make a data set from folders of files and write it; see `bagwise.media.gather`.

    A folder (``birds/``) or an address as ``out`` becomes shards, see `bagwise.ShardedBags`: files are read
    and written as a stream, and a call that was stopped goes on where it was.

    Parameters
    ----------
    folders : path or sequence of paths
        Folders or files.
    out : path
        The data set, by its suffix; Parquet, npz and shards keep the recipe.
    labels, medium, params, n_jobs, strict, cache, options
        As in `bagwise.media.gather`.
    part_bytes : int, default=128 MiB
        Size of a part of shards.
    packed : bool, default=False
        Whether instances in shards are packed rather than flat; see `bagwise.shards.ShardWriter`.
    say, step : callable, optional
        Told what was found, and of every file done.

    Returns
    -------
    dict
        Sizes, recipe, and what was not gathered: "unreadable" (pairs of file and reason), "without_labels",
        "without_files", "empty".
    """
    how: dict[str, Any] = {"medium": medium, "params": params, "n_jobs": n_jobs, "strict": strict}
    how |= {"cache": cache, "options": options, "leave_out": [out], "say": say, "step": step}
    if wants_shards(out):
        return _gather_shards(folders, out, labels, {"part_bytes": part_bytes, "flat": not packed}, how)
    if packed:
        raise only_shards_are_packed(out)
    check_target(out)
    _check_writer(out)
    found = collect(folders, labels, **how)
    dataset = found.dataset
    write(dataset, out)
    return _gathered(out, dataset.recipe, found, dataset.bags, dataset.label_names, cache)


def _gather_shards(
    folders: Data, out: File, labels: File | None, settings: dict[str, Any], how: dict[str, Any]
) -> dict[str, Any]:
    """The same as a stream: some files at a time, parts that stay when it is stopped."""
    if Place(out).exists(MANIFEST):
        raise DataError("holds shards already; give the name of a new folder", path=out)
    pieces = Pieces(folders, labels, **how)
    with ShardWriter(out, label_names=pieces.label_names or None, **settings) as writer:
        if writer.n_written:
            how["say"](f"going on: {writer.n_written} bags stand in {out} already")
        for piece in pieces:
            writer.add(piece)
    done = ShardedBags.open(out)
    facts = _gathered(out, pieces.recipe, pieces, done, done.label_names, how["cache"])
    return {**facts, "n_parts": done.n_parts}


def _gathered(
    out: File, recipe: Any, found: Gathered | Pieces, bags: Any, label_names: Iterable[str], cache: Any
) -> dict[str, Any]:
    return {
        "out": str(out),
        "medium": recipe["medium"],
        "recipe": describe(recipe),
        "found": found.said,
        "n_bags": len(bags),
        "n_instances": bags.n_instances,
        "n_features": bags.n_features,
        "labels": list(label_names),
        "cache": cache_place(cache),
        **_left_out(found),
        "without_labels": found.without_labels,
        "without_files": found.without_files,
    }


def _left_out(found: Gathered | Pieces) -> dict[str, Any]:
    return {"unreadable": [list(file) for file in found.unreadable], "empty": found.empty}


def _check_writer(out: File) -> None:
    """Refuse a suffix that no format has, before any work is done."""
    name = Path(out).name.lower()
    if not any(name.endswith(tuple(f.suffixes)) for f in formats() if f.writes):
        known = ", ".join(suffix for f in formats() if f.writes for suffix in f.suffixes)
        folder = f"{Path(out).stem}/"
        raise DataError(
            f"no writer for the suffix {Path(out).suffix!r}; known are {known}; "
            f"a folder ({folder}) becomes shards",
            path=out,
        )


# ---------------------------------------------------------------------- models that remember


def media_step(model: Any) -> ToBags | None:
    """The transformer from raw files at the head of a pipeline (or search over one), if there is one."""
    while hasattr(model, "best_estimator_"):
        model = model.best_estimator_
    first = model.steps[0][1] if isinstance(model, Pipeline) else None
    return first if isinstance(first, ToBags) else None


def with_recipe(model: Any, data: Dataset | ShardedBags) -> Any:
    """The fitted model behind the transformer that made its bags, where the data remember it."""
    several = data.view_names if isinstance(data, ShardedBags) else not isinstance(data.bags, Bags)
    if data.recipe is None or several:
        return model
    return Pipeline([("media", transformer_of(data.recipe)), ("model", model)])


@dataclass(frozen=True)
class Opened:
    """Data for a model: bags of a file, or made from raw files just now.

    Attributes
    ----------
    dataset : Dataset
        The bags, without those that hold no instances.
    empty : list of str
        Names of bags without instances.
    unreadable : list
        Pairs of file and reason.
    paths : dict of str to str
        Where raw files lie, by the ``file`` of their instances; empty for data that were gathered before.
    """

    dataset: Dataset
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
    **where: Any,
) -> Opened:
    """Open a data set for a fitted model; raw files where the model remembers how it was fed.

    Parameters
    ----------
    model : fitted model
        With a transformer of `bagwise.media` before it, folders and files of its medium are taken as well.
    data : path, name, or sequence of paths
        A data set as for `open_data`, or folders and files.
    labels : path, optional
        Labels of raw files.
    n_jobs, cache, say, step
        As in `gather`.
    **where
        Part, view, format and options; see `open_data`. They are for data sets alone.
    """
    transformer = media_step(model)
    several = [data] if isinstance(data, (str, PathLike)) else list(data)
    if transformer is None or (len(several) == 1 and not _is_raw(several[0], transformer, where)):
        if len(several) != 1:
            raise BagwiseError(
                f"{several[0]}, {several[1]}, ...: several files or folders are for models that were fitted "
                "to gathered data; give one data set"
            )
        if labels is not None:
            raise BagwiseError("labels are given for raw files; a data set holds its own")
        return _without_empty(open_data(several[0], **where), model)
    found = collect(
        several,
        labels,
        transformer=clone_fitted(transformer),
        n_jobs=n_jobs,
        cache=cache,
        options=where.get("options"),
        say=say,
        step=step,
    )
    opened = _without_empty(found.dataset, model)
    return replace(opened, unreadable=found.unreadable, paths=found.paths)


def clone_fitted(transformer: ToBags) -> ToBags:
    """A copy with parameters of its own and the same learned state."""
    copy = clone(transformer)
    copy.__dict__.update({k: v for k, v in vars(transformer).items() if k.endswith("_")})
    return copy


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
        return not (isinstance(dataset.bags, Bags) and _fits(dataset.bags, transformer))
    except (BagwiseError, OSError):
        return True


def _fits(bags: Bags, transformer: ToBags) -> bool:
    try:
        transformer.transform(bags)
    except BagwiseError:
        return False
    return True


def _without_empty(dataset: Dataset, model: Any) -> Opened:
    """Bags with instances, and the names of those without, unless the model takes them."""
    bags = bags_for(model, dataset)
    traits = getattr(last_estimator(model), "traits", None)
    if (traits is not None and traits.empty_bags) or (bags.sizes > 0).all():
        return Opened(dataset)
    filled = bags.sizes > 0
    if not filled.any():
        raise DataError("all bags are without instances: nothing was found in any of the files")
    return Opened(dataset[filled], empty=[str(i) for i in bags.bag_ids[~filled]])


def filled_bags(dataset: Dataset, model: Any) -> tuple[Dataset, list[str]]:
    """Bags that a model can learn from, and the names of those without instances."""
    opened = _without_empty(dataset, model)
    return opened.dataset, opened.empty
