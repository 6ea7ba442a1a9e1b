"""Labels for gathered files: read, matched to the files by name, put on bags and parts."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise.bags import Bags
from bagwise.bags.dataset import Dataset
from bagwise.errors import BagwiseError, DataError
from bagwise.media._sources import find_files
from bagwise.media.recipe import medium_named, places_of
from bagwise.media.recognise import Paths

if TYPE_CHECKING:
    from bagwise.media.labels import Labels

FOLDERS = "folders"  # in place of a table of labels: the names of the folders that files lie in
_NAMED = 5  # files that a warning names
_TABLES = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".xml", ".xlsx", ".geojson")


def check_strictly(without: Sequence[str], known: Labels, labels: Any) -> None:
    """Refuse files without labels and labels without files."""
    if without or known.unknown_files:
        problem = (
            f"no labels for {some_names(without)}"
            if without
            else f"no file for {some_names(known.unknown_files)}"
        )
        raise DataError(problem, path=labels)


def read_for(
    labels: Any, files: list[str], medium: str, root: Any, options: Mapping[str, Any] | None
) -> Labels:
    """Labels of files by their names."""
    from bagwise.media.labels import read_labels

    where = root if root is not None and os.path.isdir(root) else None
    try:
        return read_labels(labels, files, places_of(medium), root=where, **(options or {}))
    except TypeError as error:
        if not options:
            raise
        raise BagwiseError(f"labels cannot be read with the options {dict(options)}: {error}") from None


def labelled(bags: Bags, found: Labels, path: Any) -> Dataset:
    """The bags that the labels speak of, with them."""
    from bagwise.media.labels import instance_labels

    names = [str(name) for name in bags.bag_ids]
    known = np.array([name in found.bag_labels for name in names])
    if not known.any():
        raise DataError(
            f"has no labels for any of the files that could be read ({some_names(names)})", path=path
        )
    if not found.label_names:
        raise DataError("there is no label in it, for any of the files", path=path)
    bags = bags if known.all() else bags[known]
    sets: Any = [found.bag_labels[str(name)] for name in bags.bag_ids]
    label_names = tuple(found.label_names)
    places = instance_labels(found.spans, bags, label_names) if found.spans else None
    return Dataset(bags, sets, label_names, instance_Y=places)


def advise(bags: Bags, say: Callable[[str], None]) -> None:
    """Say that folders could be labels, where they look so; nothing is taken that was not asked for."""
    from bagwise.media.labels import read_labels

    names = read_labels(None, [str(name) for name in bags.bag_ids]).label_names
    if names:
        shown = some_names(names)
        say(f"no labels given; --labels folders would take the names of the folders: {shown}")


def label_tables(
    labels: str | PathLike[str] | None, medium: str | None, folders: Paths
) -> list[str | PathLike[str]]:
    """Files that hold labels and are no media themselves, wherever they lie."""
    if labels is None or str(labels) == FOLDERS:
        return []
    given = [folders] if isinstance(folders, (str, PathLike)) else folders
    if any(os.path.realpath(path) == os.path.realpath(labels) for path in given):
        return []  # a table of texts with a column of labels is both
    if not os.path.isdir(labels):
        return [labels]
    if medium is not None and medium_named(medium) == "text":
        return []  # texts and tables of labels look alike
    return [file.path for file in find_files(labels, _TABLES)]


def some_names(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
