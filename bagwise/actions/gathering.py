"""Making data sets: gathered from raw files, or converted from another format; either may become shards."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from bagwise.actions.data import Data, File, check_target, open_data, open_shards, wants_shards
from bagwise.bags.dataset import Dataset
from bagwise.errors import BagwiseError, DataError
from bagwise.io import formats, write
from bagwise.media.gathering import Gathered, cache_place, collect
from bagwise.media.pieces import Pieces
from bagwise.media.recipe import describe
from bagwise.shards import PART_BYTES, ShardedBags, ShardWriter, convert_parquet, write_shards
from bagwise.shards.manifest import MANIFEST
from bagwise.shards.place import Place


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
        Called with what was found, and after every file.

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
        raise _only_shards_are_packed(out)
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
        "unreadable": [list(file) for file in found.unreadable],
        "empty": found.empty,
        "without_labels": found.without_labels,
        "without_files": found.without_files,
    }


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


# ---------------------------------------------------------------------- from one format to another


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
    parts of ``part_bytes``, ``packed`` where room is dear; ``advance(steps, total=...)`` is
    called as parts are written.
    """
    if not wants_shards(target, to):
        if packed:
            raise _only_shards_are_packed(target)
        check_target(target)
        dataset = open_data(source, **where)
        write(dataset, target, to)
        return {"out": str(target), "n_bags": len(dataset), "n_instances": dataset.bags.n_instances}
    # Parquet and shards are read as a stream, other files at once
    how: dict[str, Any] = {"part_bytes": part_bytes or PART_BYTES, "flat": not packed}
    shards, path = open_shards(source, **where), Path(source)
    names = (file.name for file in path.rglob("*")) if path.is_dir() else [path.name]
    if shards is not None:

        def counted() -> Iterator[Dataset]:
            for part in shards:
                yield part  # which returns when it is written
                if advance is not None:
                    advance(1, total=shards.n_parts)

        write_shards(counted(), target, label_names=shards.label_names, **how)
    elif (
        where.get("part") is None
        and where.get("view") is None
        and where.get("format") in (None, "parquet")
        and ("://" in os.fspath(source) or any(name.lower().endswith((".parquet", ".pq")) for name in names))
    ):
        convert_parquet(source, target, advance=advance, **how, **(where.get("options") or {}))
    else:
        write_shards(open_data(source, **where), target, **how)
    done = ShardedBags.open(target)
    counts = {"n_bags": len(done), "n_instances": done.n_instances, "n_parts": done.n_parts}
    return {"out": os.fspath(target), **counts, "labels": list(done.label_names)}


def _only_shards_are_packed(target: File) -> BagwiseError:
    """What to say to whoever wants another file packed."""
    return BagwiseError(
        f"{os.fspath(target)} is a file, which its format packs or not; packed is for shards: name a folder"
    )
