"""What a data set, in memory or in shards, or a model file holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bagwise.actions.data import File, media_step, open_data, open_shards
from bagwise.bags import MultiViewBags
from bagwise.bags.dataset import UNKNOWN, Dataset
from bagwise.inspection import label_names, last_estimator
from bagwise.media.recipe import describe
from bagwise.persistence import load, model_facts
from bagwise.shards import ShardedBags


def info(data: File, **where: Any) -> dict[str, Any]:
    """Say what a data set (or a model file, ``*.skops``) holds; of shards no instance is read.

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
    shards = open_shards(data, **where)
    found: Any = open_data(data, **where) if shards is None else shards
    own = _in_memory(found) if shards is None else _in_shards(shards)
    n_bags = max(len(found), 1)
    return {
        "name": found.name or str(data),
        **{key: own["about"].get(key, "") for key in ("description", "citation", "licence")},
        "n_bags": len(found),
        **own["size"],
        "views": own["views"],
        "n_labels": len(found.label_names),
        "cardinality": found.cardinality if found.has_labels else None,
        "labels": [
            {"name": name, "bags": int(count), "share": float(count / n_bags)}
            for name, count in zip(found.label_names, found.label_counts)
        ],
        "instance_labels": own["instance_labels"],
        "parts": own["parts"],
        "n_groups": None if found.groups is None else len(np.unique(found.groups)),
        "columns": own["columns"],
        "recipe": None if found.recipe is None else describe(found.recipe),
    }


def _in_memory(dataset: Dataset) -> dict[str, Any]:
    bags, given = dataset.bags, dataset.instance_Y
    instance_labels = "unknown"
    if given is not None:
        values = np.concatenate(list(given.values())) if isinstance(given, Mapping) else given
        known = int((values != UNKNOWN).sum())
        how_many = "all" if known == len(values) else f"{known} of {len(values)}"
        instance_labels = f"known for {how_many} instances"
    views = bags.views if isinstance(bags, MultiViewBags) else {"": bags}
    return {
        "about": vars(dataset),
        "size": {"n_instances": bags.n_instances, "n_features": bags.shape[1]},
        "views": [
            _view(
                name, one.n_instances, one.n_features, one.is_sparse, one.dtype, one.sizes, one.instance_info
            )
            for name, one in views.items()
        ],
        "instance_labels": instance_labels,
        "parts": {name: len(which) for name, which in dataset.splits.items()},
        "columns": None if dataset.roles is None else str(dataset.roles),
    }


def _in_shards(shards: ShardedBags) -> dict[str, Any]:
    """From the manifest and the sizes of bags."""
    manifest, sizes = shards.manifest, shards.sizes if len(shards) else np.zeros(0, dtype=np.int64)
    size = {"n_instances": shards.n_instances, "n_features": shards.n_features, "n_files": shards.n_parts}
    return {
        "about": manifest.about,
        "size": size | {"n_bytes": sum(part.n_bytes for part in manifest.parts)},
        "views": [
            _view(
                view if manifest.several_views else "",
                sum(part.rows[view] for part in manifest.parts),
                about["n_features"],
                about["sparse"],
                about["dtype"],
                sizes,
                about["info"] or (),
            )
            for view, about in manifest.views.items()
        ],
        "instance_labels": "known in part or all" if manifest.has_instance_labels else "unknown",
        "parts": {name: len(shards[name]) for name in manifest.splits},
        "columns": None,
    }


def _view(name: str, n: int, d: int, is_sparse: bool, dtype: Any, sizes: Any, facts: Any) -> dict[str, Any]:
    some = sizes if len(sizes) else np.zeros(1, dtype=np.int64)
    return {
        "name": name,
        "n_instances": n,
        "n_features": d,
        "storage": f"{'sparse' if is_sparse else 'dense'} {dtype}",
        "sizes": {"min": int(some.min()), "median": float(np.median(some)), "max": int(some.max())},
        "empty_bags": int((sizes == 0).sum()),
        "facts": sorted(facts),
    }


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
