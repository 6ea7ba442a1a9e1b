"""Shards by file or name: what the actions do where data need not fit into memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bagwise.bags.dataset import Dataset
from bagwise.errors import BagwiseError, DataError
from bagwise.media.recipe import describe
from bagwise.shards import PART_BYTES, ShardedBags, convert_parquet, is_shards, write_shards

__all__ = ["convert_to_shards", "only_shards_are_packed", "open_shards", "shards_info", "wants_shards"]

File = str | os.PathLike[str]


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
        if part not in shards.manifest.splits:
            known = ", ".join(shards.manifest.splits) or "none"
            raise DataError(f"no part {part!r}; its parts: {known}", path=data)
        shards = shards[part]
    if view is not None:
        if view not in shards.view_names:
            known = ", ".join(shards.view_names) or "none with a name"
            raise DataError(f"no view {view!r}; its views: {known}", path=data)
        shards = shards.view(view)
    return shards


def convert_to_shards(
    source: File,
    target: File,
    *,
    part_bytes: int = PART_BYTES,
    packed: bool = False,
    advance: Callable[..., None] | None = None,
    **where: Any,
) -> dict[str, Any]:
    """Write a data set as shards; Parquet and shards are read as a stream, other files at once."""
    from bagwise.actions.matching import open_data

    options = dict(where.get("options") or {})
    how: dict[str, Any] = {"part_bytes": part_bytes, "flat": not packed}
    shards = open_shards(source, **where)
    plain = where.get("part") is None and where.get("view") is None
    if shards is not None:
        write_shards(_told(shards, advance), target, label_names=shards.label_names, **how)
    elif plain and where.get("format") in (None, "parquet") and _is_parquet(source):
        convert_parquet(source, target, advance=advance, **how, **options)
    else:
        write_shards(open_data(source, **where), target, **how)
    done = ShardedBags.open(target)
    counts = {"n_bags": len(done), "n_instances": done.n_instances, "n_parts": done.n_parts}
    return {"out": os.fspath(target), **counts, "labels": list(done.label_names)}


def _told(shards: ShardedBags, advance: Callable[..., None] | None) -> Iterator[Dataset]:
    """The parts, with a word to whoever watches after each."""
    for part in shards:
        yield part
        if advance is not None:
            advance(1, total=shards.n_parts)


def only_shards_are_packed(target: File) -> BagwiseError:
    """What to say to whoever wants another file packed."""
    return BagwiseError(
        f"{os.fspath(target)} is a file, which its format packs or not; packed is for shards: name a folder"
    )


def _is_parquet(source: File) -> bool:
    """Whether a source is a Parquet file, or a folder of such files that is not in a format of its own."""
    path = Path(source)
    if path.is_dir():
        return any(p.name.lower().endswith((".parquet", ".pq")) for p in path.rglob("*"))
    return "://" in os.fspath(source) or path.name.lower().endswith((".parquet", ".pq"))


def shards_info(shards: ShardedBags, data: File) -> dict[str, Any]:
    """What shards hold, from the manifest and the sizes of bags; instances are not read."""
    manifest = shards.manifest
    sizes = shards.sizes if len(shards) else np.zeros(1, dtype=np.int64)
    views = [
        {
            "name": view if manifest.several_views else "",
            "n_instances": sum(part.rows[view] for part in manifest.parts),
            "n_features": about["n_features"],
            "storage": f"{'sparse' if about['sparse'] else 'dense'} {about['dtype']}",
            "sizes": {"min": int(sizes.min()), "median": float(np.median(sizes)), "max": int(sizes.max())},
            "empty_bags": int((sizes == 0).sum()),
            "facts": sorted(about["info"] or ()),
        }
        for view, about in manifest.views.items()
    ]
    n_bags = max(len(shards), 1)
    return {
        "name": shards.name or os.fspath(data),
        "description": manifest.about.get("description", ""),
        "citation": manifest.about.get("citation", ""),
        "licence": manifest.about.get("licence", ""),
        "n_bags": len(shards),
        "n_instances": shards.n_instances,
        "n_features": shards.n_features,
        "n_files": shards.n_parts,
        "n_bytes": sum(part.n_bytes for part in manifest.parts),
        "views": views,
        "n_labels": len(shards.label_names),
        "cardinality": shards.cardinality if shards.has_labels else None,
        "labels": [
            {"name": name, "bags": int(count), "share": float(count / n_bags)}
            for name, count in zip(shards.label_names, shards.label_counts)
        ],
        "instance_labels": "known in part or all" if manifest.has_instance_labels else "unknown",
        "parts": {name: len(shards[name]) for name in manifest.splits},
        "n_groups": None if shards.groups is None else len(np.unique(shards.groups)),
        "columns": None,
        "recipe": None if shards.recipe is None else describe(shards.recipe),
    }
