"""A data set from folders of files and a table of labels, with the recipe by which it was made."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.bags.dataset import Dataset
from bagwise.errors import BagwiseError, DataError, DataWarning, listed, warn
from bagwise.media.base import ToBags
from bagwise.media.labels import Labels, instance_labels, read_labels
from bagwise.media.labels.read import FOLDERS
from bagwise.media.parts import NAMED, NamedPart, Unreadable, default_cache, find_files
from bagwise.media.recipe import Found, Paths, make_transformer, medium_named, places_of, recipe_of, recognise

_TABLES = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".xml", ".xlsx", ".geojson")
Cache = str | PathLike[str] | bool | None


@dataclass(frozen=True)
class Gathered:
    """What was gathered, and what was not.

    Attributes
    ----------
    dataset : Dataset
        Bags in the order of the files' names, with places, labels and recipe.
    said : list of str
        What was found, in a line or two.
    unreadable : list of Unreadable
        Files that could not be read, with the reason.
    without_labels : list of str
        Files that the labels do not speak of; they are not in the data set.
    without_files : list of str
        Files that the labels speak of, but that are not there.
    empty : list of str
        Bags without instances (a recording in which nothing calls); they are in the data set.
    paths : dict of str to str
        Where files lie, by the ``file`` of their instances.
    """

    dataset: Dataset
    said: list[str]
    unreadable: list[Unreadable] = field(default_factory=list)
    without_labels: list[str] = field(default_factory=list)
    without_files: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    paths: dict[str, str] = field(default_factory=dict)


def gather(
    folders: Paths,
    labels: str | PathLike[str] | None = None,
    *,
    medium: str | None = None,
    params: Mapping[str, Any] | None = None,
    n_jobs: int | None = None,
    strict: bool = False,
    cache: Cache = True,
    options: Mapping[str, Any] | None = None,
) -> Dataset:
    """Make a data set from folders of recordings, pictures, documents or embeddings.

    What could not be read, files without labels and labels without files are named in warnings; `collect`
    returns them as lists.

    Parameters
    ----------
    folders : path or sequence of paths
        Folders, searched to their depths, or files.
    labels : path, optional
        Labels of the files, of places in them, or both: a table, Raven selections, Audacity tracks, Label
        Studio, COCO, ...; see `bagwise.media.labels`. The word "folders" takes the names of the folders that
        files lie in. Files that it does not speak of are left out. Without it the data set has no labels.
    medium : {"audio", "image", "text", "embeddings"}, optional
        By default what nearly all files are.
    params : mapping, optional
        Parameters of `AudioToBags`, `ImagesToBags`, `TextToBags` or `EmbeddingsToBags`.
    n_jobs : int, optional
        Files read at once.
    strict : bool, default=False
        Whether to stop at the first file that cannot be read, and at files without labels or labels without
        files.
    cache : path or bool, default=True
        Folder for parts already made, so that a stopped run goes on and a new file costs only itself; True
        is the user's cache folder (see `bagwise.media.parts.default_cache`), False keeps nothing.
    options : mapping, optional
        How to read the labels: ``file_column``, ``label_columns`` and ``separator`` of
        `bagwise.media.labels.read_labels`.

    Returns
    -------
    Dataset
        Its bags are named by their files, ``bags.instance_info`` says where each instance lies, ``recipe``
        how they were made.

    Examples
    --------
    >>> import tempfile
    >>> from bagwise.datasets import make_documents
    >>> folder = tempfile.mkdtemp()
    >>> _ = make_documents(f"{folder}/articles", 4, labels=f"{folder}/topics.csv")
    >>> data = gather(f"{folder}/articles", f"{folder}/topics.csv", cache=False)
    >>> data.bags.bag_ids.tolist()[:2], data.recipe["medium"]
    (['document_000.txt', 'document_001.txt'], 'text')
    """
    found = collect(
        folders,
        labels,
        medium=medium,
        params=params,
        n_jobs=n_jobs,
        strict=strict,
        cache=cache,
        options=options,
    )
    reasons = [f"{path} ({reason})" for path, reason in found.unreadable]
    for what, names in (
        ("could not be read and are left out", reasons),
        ("have no labels and are left out", found.without_labels),
        ("have labels, but are not there", found.without_files),
        ("gave no instances: bags without any", found.empty),
    ):
        if names:
            warn(f"{len(names)} files {what}: {listed(names, NAMED)}", DataWarning)
    return found.dataset


def collect(
    folders: Paths,
    labels: str | PathLike[str] | None = None,
    *,
    strict: bool = False,
    options: Mapping[str, Any] | None = None,
    transformer: ToBags | None = None,
    say: Callable[[str], None] = lambda line: None,
    step: Callable[..., None] | None = None,
    **how: Any,
) -> Gathered:
    """Do the work of `gather`, and return what could not be gathered beside what could.

    A fitted transformer, as a model keeps it, may stand in place of ``medium`` and ``params``. ``say`` is
    called with each line that says what was found, before the work begins, ``step(1, file, total)`` after
    each file; the rest is for `begin`.
    """
    found, maker = begin(folders, labels, transformer, **how)
    said = [found.said]
    say(found.said)
    total = len(found.files)
    advance = None if step is None else (lambda steps, name: step(steps, name, total))
    named, unreadable = maker.read(found.files, step=advance, strict=strict)
    if not named:
        raise none_readable(found, unreadable)
    if transformer is None:
        learn(maker, named)
    bags = maker.bags_of(named)
    paths = {file.name: file.path for file in found.files}
    recipe = recipe_of(maker) if transformer is None else None
    if labels is None:
        # folders could be labels, where they look so; nothing is taken that was not asked for
        names = (
            [] if transformer is not None else read_labels(None, [str(i) for i in bags.bag_ids]).label_names
        )
        if names:
            words = "no labels given; --labels folders would take the names of the folders"
            say(f"{words}: {listed(names, NAMED)}")
        return Gathered(Dataset(bags, recipe=recipe), said, unreadable, [], [], _empty(bags), paths)
    failed = [file.path for file in unreadable]
    names = [*map(str, bags.bag_ids), *failed]
    known = read_for(labels, names, found.medium, folders, options)
    without = [name for name in known.files_without if name not in set(failed)]
    if strict:
        check_strictly(without, known, labels)
    said.append(known.said)
    say(known.said)
    dataset = replace(labelled(bags, known, labels), recipe=recipe)
    strange = list(known.unknown_files)
    return Gathered(dataset, said, unreadable, without, strange, _empty(dataset.bags), paths)


def begin(
    folders: Paths,
    labels: Any,
    transformer: ToBags | None = None,
    *,
    medium: str | None = None,
    params: Mapping[str, Any] | None = None,
    n_jobs: int | None = None,
    cache: Cache = True,
    leave_out: Sequence[str | PathLike[str]] = (),
) -> tuple[Found, ToBags]:
    """The files, and what makes bags from them; left out are such as the file that is to be written."""
    more = {"n_jobs": n_jobs, "cache": cache_place(cache)}
    wanted = medium if transformer is None else type(transformer)
    tables = label_tables(labels, medium if transformer is None else transformer.medium, folders)
    found = recognise(folders, wanted, leave_out=[*tables, *leave_out])
    if transformer is not None:
        return found, transformer.set_params(**more)
    maker = make_transformer(found.medium, params, **more)
    recipe_of(maker)  # what cannot be kept is refused before the work
    return found, maker


def none_readable(found: Found, unreadable: Sequence[Unreadable]) -> DataError:
    """What to say if no file gave a bag."""
    first = unreadable[0]
    return DataError(
        f"none of the {len(found.files)} {found.medium} files could be read; the first: {first.path}: "
        f"{first.reason}"
    )


def learn(maker: ToBags, named: Sequence[NamedPart]) -> None:
    """Learn from parts, and say that what is learned has seen all files."""
    maker.fit_parts(named)
    if maker._learns():
        warn(
            f"{maker.medium}: what these parameters learn is learned from all files together; to judge a "
            "model by cross-validation, use make_pipeline(transformer, model) on the files instead",
            DataWarning,
        )


def _empty(bags: Any) -> list[str]:
    return [str(i) for i in bags.bag_ids[bags.sizes == 0]]


def cache_place(cache: Cache) -> str | None:
    """The folder that ``cache`` of `gather` stands for, or None."""
    if cache is None or cache is False:
        return None
    return str(default_cache() if cache is True else cache)


# ---------------------------------------------------------------------- labels


def check_strictly(without: Sequence[str], known: Labels, labels: Any) -> None:
    """Refuse files without labels and labels without files."""
    if without or known.unknown_files:
        problem, names = ("no labels", without) if without else ("no file", known.unknown_files)
        raise DataError(f"{problem} for {listed(names, NAMED)}", path=labels)


def read_for(
    labels: Any, files: list[str], medium: str, folders: Paths, options: Mapping[str, Any] | None
) -> Labels:
    """Labels of files by their names."""
    root = folders if isinstance(folders, (str, PathLike)) else folders[0] if len(folders) == 1 else None
    where = root if root is not None and os.path.isdir(root) else None
    try:
        return read_labels(labels, files, places_of(medium), root=where, **(options or {}))
    except TypeError as error:
        if not options:
            raise
        raise BagwiseError(f"labels cannot be read with the options {dict(options)}: {error}") from None


def labelled(bags: Bags, found: Labels, path: Any) -> Dataset:
    """The bags that the labels speak of, with them."""
    names = [str(name) for name in bags.bag_ids]
    known = np.array([name in found.bag_labels for name in names])
    if not known.any():
        raise DataError(
            f"has no labels for any of the files that could be read ({listed(names, NAMED)})", path=path
        )
    if not found.label_names:
        raise DataError("there is no label in it, for any of the files", path=path)
    bags = bags if known.all() else bags[known]
    sets: Any = [found.bag_labels[str(name)] for name in bags.bag_ids]
    label_names = tuple(found.label_names)
    places = instance_labels(found.spans, bags, label_names) if found.spans else None
    return Dataset(bags, sets, label_names, instance_Y=places)


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
