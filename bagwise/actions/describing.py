"""The verbs that describe and convert data, and describe models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bagwise.actions.gathering import media_step
from bagwise.actions.matching import File, check_target, open_data
from bagwise.actions.sharding import (
    convert_to_shards,
    only_shards_are_packed,
    open_shards,
    shards_info,
    wants_shards,
)
from bagwise.bags import Bags, MultiViewBags
from bagwise.bags.dataset import UNKNOWN, Dataset
from bagwise.inspection import label_names, last_estimator
from bagwise.io import write
from bagwise.media.recipe import describe
from bagwise.persistence import load, model_facts
from bagwise.shards import PART_BYTES


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
    if (shards := open_shards(data, **where)) is not None:
        return shards_info(shards, data)
    dataset = open_data(data, **where)
    bags = dataset.bags
    views = bags.views if isinstance(bags, MultiViewBags) else {"": bags}
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
        "cardinality": dataset.cardinality if dataset.has_labels else None,
        "labels": [
            {"name": name, "bags": int(count), "share": float(count / max(len(bags), 1))}
            for name, count in zip(dataset.label_names, dataset.label_counts)
        ],
        "instance_labels": _instance_label_info(dataset),
        "parts": {name: len(which) for name, which in dataset.splits.items()},
        "n_groups": None if dataset.groups is None else len(np.unique(dataset.groups)),
        "columns": columns_taken(dataset),
        "recipe": None if dataset.recipe is None else describe(dataset.recipe),
    }


def convert(
    source: File,
    target: File,
    *,
    to: str | None = None,
    part_bytes: int | None = None,
    packed: bool = False,
    advance: Callable[..., None] | None = None,
    **where: Any,
) -> dict[str, Any]:
    """Read a data set and write it in another format, by the suffix of ``target`` or by ``to``.

    A ``target`` that is a folder (``birds/``) or an address becomes shards, see `bagwise.ShardedBags`, in
    parts of ``part_bytes``, ``packed`` where room is dear; ``advance(steps, total=...)`` is told how far it
    is.
    """
    if wants_shards(target, to):
        how: dict[str, Any] = {"part_bytes": part_bytes or PART_BYTES, "packed": packed, "advance": advance}
        return convert_to_shards(source, target, **how, **where)
    if packed:
        raise only_shards_are_packed(target)
    check_target(target)
    dataset = open_data(source, **where)
    write(dataset, target, to)
    return {"out": str(target), "n_bags": len(dataset), "n_instances": dataset.bags.n_instances}


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


def columns_taken(dataset: Dataset) -> str | None:
    """What the columns of a table were taken for, in one line; None for other files."""
    return None if dataset.roles is None else str(dataset.roles)


def _instance_label_info(dataset: Dataset) -> str:
    given = dataset.instance_Y
    if given is None:
        return "unknown"
    values = np.concatenate(list(given.values())) if isinstance(given, Mapping) else given
    known = int((values != UNKNOWN).sum())
    return (
        "known for all instances" if known == len(values) else f"known for {known} of {len(values)} instances"
    )


def _model_info(path: File) -> dict[str, Any]:
    model = load(path)
    inner, media = last_estimator(model), media_step(model)
    return {
        "model": type(inner).__name__,
        "params": inner.get_params(deep=False),
        "labels": list(label_names(model)),
        "n_features": getattr(inner, "n_features_in_", None),
        "takes": None
        if media is None
        else f"{media.medium} files ({' '.join(media.suffixes)}) and gathered data",
        "recipe": None if media is None else describe({"medium": media.medium, "params": media.get_params()}),
        "written_by": model_facts(path).get("versions", {}),
    }
