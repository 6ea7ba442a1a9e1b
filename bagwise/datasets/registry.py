"""Every set by name: public ones, found or fetched, and generated ones."""

from __future__ import annotations

import difflib
import inspect
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module, resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bagwise.bags.dataset import Dataset
from bagwise.datasets.algorithmic import make_absence_trap, make_counting_trap, make_order_trap
from bagwise.datasets.digits import make_digits
from bagwise.datasets.mimlmix_like import make_mimlmix_like
from bagwise.datasets.msra_like import make_msra_like
from bagwise.datasets.multi_view import make_multi_view
from bagwise.datasets.places import PublicFile
from bagwise.datasets.synthetic import make_correlated_labels, make_miml, make_multi_target, make_sub_concepts
from bagwise.errors import DataError, DownloadError

GENERATORS: Mapping[str, Callable[..., Dataset]] = MappingProxyType(
    {
        "digits": make_digits,
        "miml": make_miml,
        "sub_concepts": make_sub_concepts,
        "correlated_labels": make_correlated_labels,
        "multi_view": make_multi_view,
        "multi_target": make_multi_target,
        "msra_like": make_msra_like,
        "mimlmix_like": make_mimlmix_like,
        "absence_trap": make_absence_trap,
        "counting_trap": make_counting_trap,
        "order_trap": make_order_trap,
    }
)


@dataclass(frozen=True)
class Entry:
    """What is known about a public set without opening it.

    Parameters
    ----------
    name, title, kind, origin, licence, citation : str
        What it is and where it comes from; ``kind`` is "MIML", "MIL" or "single instance".
    bags, instances, features, labels : int
        Its size when read with default options.
    cardinality : float
        Mean number of labels per bag.
    instance_labels : bool
        Whether the labels of instances are known.
    reader : str
        Name of its loader.
    files : tuple of PublicFile
        Its files, those of sets that it is built from included.
    """

    name: str
    title: str
    kind: str
    origin: str
    licence: str
    citation: str
    bags: int
    instances: int
    features: int
    labels: int
    cardinality: float
    instance_labels: bool
    reader: str
    files: tuple[PublicFile, ...]

    @property
    def loader(self) -> Callable[..., Dataset]:
        """Function that reads its files; the readers are imported when first needed."""
        return import_module("bagwise.datasets.loaders").LOADERS[self.reader]

    def status(self, data_home: str | Path | None = None) -> str:
        """Whether its files are "at hand", or to be had by "download" or "by hand"."""
        missing = [f for f in self.files if not f.optional and f.at_hand(data_home) is None]
        if not missing:
            return "at hand"
        return "download" if all(f.url for f in missing) else "by hand"

    def obtain(self, data_home: str | Path | None, download: bool, verify: bool) -> dict[str, Path]:
        """Paths of the files by name, downloaded if need be; optional ones only where they can be had."""
        paths, fetched = {}, False
        for file in sorted(self.files, key=lambda f: f.optional):
            absent = file.at_hand(data_home) is None
            if file.optional and absent and not fetched:
                continue  # whoever has the set without it is spared the wait
            try:
                paths[file.name] = file.obtain(data_home, download=download, verify=verify)
                fetched |= absent
            except DownloadError:
                if not file.optional:
                    raise
        return paths


@cache
def entries() -> Mapping[str, Entry]:
    """All public sets by name."""
    text = resources.files("bagwise.datasets").joinpath("public.toml").read_text(encoding="utf-8")
    found: dict[str, Entry] = {}
    for folder, table in tomllib.loads(text).items():
        topics = table.pop("topics", None)
        if topics is None:
            found[folder] = _entry(folder, folder, table, found)
        else:
            for topic, more in topics.items():
                found[f"{folder}/{topic}"] = _entry(f"{folder}/{topic}", folder, table | more, found)
    return MappingProxyType(found)


def _entry(name: str, folder: str, table: dict[str, Any], known: Mapping[str, Entry]) -> Entry:
    facts = dict(table)
    base, by_hand, needs = facts.pop("base", ""), facts.pop("by_hand", ""), facts.pop("needs", ())
    own = [
        PublicFile(folder, by_hand=by_hand, **({"url": base and base + file["name"]} | file))
        for file in facts.pop("files")
    ]
    files = (*own, *(file for other in needs for file in known[other].files))
    return Entry(name=name, files=files, **facts)


def load_dataset(
    name: str,
    *,
    data_home: str | Path | None = None,
    download: bool = True,
    verify: bool = False,
    **options: Any,
) -> Dataset:
    """Load a public or generated set by name.

    The files of a public set are looked for in ``data_home``, then in the cache; what is in neither is
    downloaded into the cache, with its checksum checked.

    Parameters
    ----------
    name : str
        One of `list_datasets`.
    data_home : path, optional
        Folder with the files at hand, as ``<name>/<file>`` or ``<name>/<file>.gz``; nothing is ever
        written there. By default the environment variable ``BAGWISE_DATA``.
    download : bool, default=True
        Whether files may be fetched. They are kept in the folder named by the environment variable
        ``BAGWISE_CACHE`` or, without it, in the system's place for caches.
    verify : bool, default=False
        Whether to compare files in ``data_home`` with the published checksums.
    **options
        Options of the set: arguments of the generator for a generated one; ``random_state`` draws the
        letters of "letter_frost" and "letter_carroll" anew; ``bags="runs"`` reads "msrcv2" without the
        reconstructed borders of images; ``part="train"`` reads one part of "mltm_dbpedia" and "mltm_reuters".

    Returns
    -------
    Dataset

    Examples
    --------
    >>> load_dataset("digits", n_bags=20, max_size=3).name
    'digits'
    >>> load_dataset("must1")
    Traceback (most recent call last):
        ...
    bagwise.errors.DataError: no data set 'must1'; did you mean 'musk1'? list_datasets() names all
    """
    if name in GENERATORS:
        _check_options(name, GENERATORS[name], options)
        return GENERATORS[name](**options)
    entry = entries().get(name)
    if entry is None:
        raise _unknown(name)
    _check_options(name, entry.loader, options)
    data = entry.loader(entry.obtain(data_home, download, verify), **options)
    return replace(
        data,
        name=name,
        description=f"{entry.title} From {entry.origin}.",
        citation=entry.citation,
        licence=entry.licence,
    )


def is_registered(name: str) -> bool:
    """Whether `load_dataset` knows a set of this name."""
    return name in GENERATORS or name in entries()


def list_datasets(data_home: str | Path | None = None) -> list[dict[str, Any]]:
    """List all sets with their sizes, licences, and whether they are at hand.

    Parameters
    ----------
    data_home : path, optional
        See `load_dataset`.

    Returns
    -------
    list of dict
        With name, kind, bags, instances, features, labels, instance_labels, licence and status: "at hand",
        "download" (fetched when first loaded), "by hand" (loading says how to get it) or "generated",
        whose sizes are up to the caller and therefore None.

    Examples
    --------
    >>> row = next(row for row in list_datasets() if row["name"] == "musk1")
    >>> row["bags"], row["instances"], row["licence"]
    (92, 476, 'CC BY 4.0')
    """
    sizes = ("bags", "instances", "features", "labels")
    public = [
        {"name": entry.name, "kind": entry.kind}
        | {size: getattr(entry, size) for size in sizes}
        | {"instance_labels": entry.instance_labels, "licence": entry.licence}
        | {"status": entry.status(data_home)}
        for entry in entries().values()
    ]
    generated = [
        {"name": name, "kind": "generated"}
        | dict.fromkeys(sizes)
        | {"instance_labels": True, "licence": "none needed", "status": "generated"}
        for name in GENERATORS
    ]
    return public + generated


def _unknown(name: str) -> DataError:
    known = [*entries(), *GENERATORS]
    close = difflib.get_close_matches(str(name), known, n=1)
    inside = [other for other in known if other.startswith(f"{name}/")]
    hint = f"did you mean {close[0]!r}? " if close else ""
    if inside:
        hint = f"there are {len(inside)} of them: {inside[0]!r}, {inside[1]!r}, ...; "
    return DataError(f"no data set {name!r}; {hint}list_datasets() names all")


def _check_options(name: str, function: Callable[..., Dataset], options: dict[str, Any]) -> None:
    known = [option for option in inspect.signature(function).parameters if option != "files"]
    for option in options:
        if option not in known:
            its = f"its options are {', '.join(known)}" if known else "it has none"
            raise TypeError(f"{name!r} has no option {option!r}; {its}")
