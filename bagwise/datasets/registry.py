"""Every set by name: public ones, found, fetched or refused with advice, and generated ones."""

from __future__ import annotations

import difflib
import gzip
import hashlib
import inspect
import os
import tomllib
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module, resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bagwise.bags.dataset import Dataset
from bagwise.datasets.download import fetch
from bagwise.errors import DataError, DownloadError

# ----------------------------------------------------------------------
# Files: in a folder of the user's, in the cache, or on the net


@dataclass(frozen=True)
class PublicFile:
    """One file of a public set, described by its original, uncompressed bytes.

    Parameters
    ----------
    folder, name : str
        It is looked for as ``<folder>/<name>``, or with ``.gz``.
    sha256 : str
        Checksum.
    size : int
        Length in bytes.
    url : str, optional
        Where it can be fetched; empty if it cannot.
    optional : bool, default=False
        Whether the set can be read without it.
    by_hand : str, optional
        How to get a file that has no address of its own.
    """

    folder: str
    name: str
    sha256: str
    size: int
    url: str = ""
    optional: bool = False
    by_hand: str = ""

    def at_hand(self, data_home: str | Path | None = None) -> Path | None:
        """The file in the user's folder or, failing that, in the cache; None if in neither.

        Parameters
        ----------
        data_home : path, optional
            The user's folder; by default the environment variable ``BAGWISE_DATA``.
        """
        home = data_home or os.environ.get("BAGWISE_DATA")
        if home:
            plain = Path(home).expanduser() / self.folder / self.name
            for path in (plain, plain.with_name(plain.name + ".gz")):
                if path.is_file():
                    return path
        cached = self.cached
        return cached if cached.is_file() else None

    @property
    def cached(self) -> Path:
        """Where a download is kept."""
        return cache_folder() / self.folder / self.name

    def obtain(
        self, data_home: str | Path | None = None, *, download: bool = True, verify: bool = False
    ) -> Path:
        """Path of the file, downloaded if need be.

        Parameters
        ----------
        data_home : path, optional
            See `at_hand`.
        download : bool, default=True
            Whether the net may be used.
        verify : bool, default=False
            Whether to check the checksum of a file in the user's folder. Cached files are always checked.
        """
        path = self.at_hand(data_home)
        if path is not None:
            checked = verify or path == self.cached
            if not checked or checksum(path) == self.sha256:
                return path
            if path != self.cached:
                raise DataError("is not the published file: its checksum differs", path=path)
        if not self.url:
            how = f"{self.by_hand} " if self.by_hand else ""
            raise DownloadError(f"{self.folder}/{self.name} cannot be downloaded. {how}{self._instead}")
        if not download:
            raise DownloadError(
                f"{self.folder}/{self.name} is not at hand; allow download=True to fetch {self.url}. "
                f"{self._instead}"
            )
        return fetch(self.url, self.cached, self.sha256, self.size, instead=self._instead)

    @property
    def _instead(self) -> str:
        return (
            f"If you have the file {self.name}, put it (or {self.name}.gz) in the folder {self.folder} of a "
            "folder of your choice, and name that folder in the environment variable BAGWISE_DATA"
        )


def cache_folder() -> Path:
    """Folder that keeps downloads: ``BAGWISE_CACHE``, or the system's place for caches."""
    chosen = os.environ.get("BAGWISE_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    import platformdirs  # where pooch asks, too; pooch itself brings network libraries, too slow for a look

    return Path(platformdirs.user_cache_dir("bagwise"))


def checksum(path: str | Path) -> str:
    """SHA-256 of a file's content, of the unpacked content if its name ends in ``.gz``.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "empty"
    >>> path.touch()
    >>> checksum(path)[:8]
    'e3b0c442'
    """
    try:
        with gzip.open(path, "rb") if str(path).endswith(".gz") else open(path, "rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()  # type: ignore[arg-type]
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot be read ({error})", path=path) from None


# ----------------------------------------------------------------------
# Names


class _Generators(Mapping[str, Callable[..., Dataset]]):
    """Functions by name, imported when they are first asked for: they bring scikit-learn and more."""

    names = (
        *("digits", "miml", "sub_concepts", "correlated_labels", "multi_view", "multi_target", "msra_like"),
        *("mimlmix_like", "absence_trap", "counting_trap", "order_trap"),
    )

    def __getitem__(self, name: str) -> Callable[..., Dataset]:
        if name not in self.names:
            raise KeyError(name)
        return getattr(import_module("bagwise.datasets"), f"make_{name}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


GENERATORS = _Generators()


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
        return getattr(import_module("bagwise.datasets.loaders"), f"load_{self.reader}")

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
