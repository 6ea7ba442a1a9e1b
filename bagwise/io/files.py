"""One door for all formats: `read` looks at the content, `write` at the suffix."""

from __future__ import annotations

import zlib
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from bagwise.bags import views_of
from bagwise.bags.dataset import Dataset
from bagwise.errors import DataError, DataWarning, warn
from bagwise.io._source import MAX_BYTES, blame, check_finite, check_unique_ids
from bagwise.utils.files import check_file, replacing

_HEAD = 1 << 16  # bytes of unpacked content by which a format is recognised


class Format(NamedTuple):
    """What a format is called, which suffixes it has, and whether it can be read and written."""

    name: str
    suffixes: tuple[str, ...]
    reads: bool
    writes: bool
    description: str


# By module of bagwise.io, in the order in which they are asked whether a file is theirs: formats with a
# signature first, those that any comma could be last; before all, those whose suffix the file has. They are
# imported when their turn comes: pyarrow and SciPy are slow to import.
# fmt: off
_FORMATS = {
    "parquet": Format(
        "parquet", (".parquet", ".pq"), True, True,
        "Parquet, the native format: one row per bag, instances as lists; opens in pandas, polars and others",
    ),
    "npz": Format(
        "npz", (".npz",), True, True,
        "NumPy archive (npz) with every fact of a data set and no pickled object",
    ),
    "matlab": Format(
        "matlab", (".mat",), True, True,
        "MATLAB 5 file: cells of bags with a label matrix, partial labels, or a table",
    ),
    "arff_pair": Format(
        "arff-pair", ("_1.arff", "_2.arff"), True, False,
        "Pair of ARFF files: <stem>_1.arff lists instances, <stem>_2.arff bags",
    ),
    "arff": Format(
        "arff", (".arff",), True, True,
        "ARFF with a relational attribute, one line per bag (Weka, Mulan, MIML library)",
    ),
    "sentences": Format(
        "sentences", ("-data.dat",), True, False,
        "Folder of documents as bags of sentences: S-data.dat, S-label.dat, vocabs.txt (MLTM)",
    ),
    "c45": Format(
        "c45", (".data",), True, False,
        "C4.5 text: rows of bag, instance, features, label; column names in a .names file",
    ),
    "csv": Format(
        "csv", (".csv",), True, True,
        "Long CSV: one row per instance, with a header, or without one as ``label,bag,f1,f2,...``",
    ),
}
# fmt: on


def formats() -> list[Format]:
    """List the formats that `read` and `write` know.

    Examples
    --------
    >>> [f.suffixes for f in formats() if f.name == "parquet"]
    [('.parquet', '.pq')]
    """
    return list(_FORMATS.values())


def read(
    path: str | PathLike[str], format: str | None = None, *, max_bytes: int = MAX_BYTES, **options: Any
) -> Dataset:
    r"""Read a data set from a file or folder.

    Parameters
    ----------
    path : path
        A file, plain or gzip, or a folder for the formats that are folders.
    format : str, optional
        Name of the format, see `formats`. By default the content decides, and where the content does
        not tell, the suffix.
    max_bytes : int
        Refuse files that hold more than this when unpacked.
    **options
        Options of the format's own ``read``.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "birds.csv"
    >>> _ = path.write_text("bag_id,labels,f1,f2\nx,wren;robin,0.5,1\nx,wren;robin,0.25,3\ny,wren,2,2\n")
    >>> read(path).label_sets
    [['robin', 'wren'], ['wren']]
    """
    path = Path(path)
    module = import_module(f"bagwise.io.{_find(path) if format is None else _by_name(format)}")
    return module.read(path, max_bytes=max_bytes, **options)


def write(dataset: Dataset, path: str | PathLike[str], format: str | None = None) -> None:
    """Write a data set; the file appears, or replaces an older one, only when it is complete.

    What the format has no place for is left out, and a warning names it; Parquet and npz keep everything.

    Parameters
    ----------
    dataset : Dataset
        What to write.
    path : path
        Where to; its suffix chooses the format.
    format : str, optional
        Name of the format, see `formats`, whatever the suffix.

    Examples
    --------
    >>> import tempfile
    >>> from bagwise import Bags
    >>> path = Path(tempfile.mkdtemp()) / "birds.parquet"
    >>> write(Dataset(Bags.from_list([[[1.0]], [[2.0], [3.0]]]), [["wren"], []]), path)
    >>> read(path)
    Dataset(Bags(2 bags, 3 instances, 1 features, dense float64), 1 labels)
    """
    path = Path(path)
    if not isinstance(dataset, Dataset):
        raise TypeError(f"write takes a Dataset, got {type(dataset).__name__}; Dataset(bags, Y) makes one")
    name = _by_name(format) if format is not None else next(iter(_with_suffix(path)), None)
    if name is None or not _FORMATS[name].writes:
        what = f"format {format!r}" if format is not None else f"suffix {path.suffix!r}"
        problem = f"no writer for the {what}; formats that can be written: {_known('writes')}"
        raise DataError(problem, path=path)
    module = import_module(f"bagwise.io.{name}")
    for bags in views_of(dataset.bags).values():  # what `read` would refuse is not written
        check_finite(bags.X, bags.offsets, bags.bag_ids, path, feature_names=bags.feature_names)
    check_unique_ids(dataset.bags.bag_ids, path)
    with blame(path), replacing(path) as temporary:
        gone = module.write(dataset, temporary)
    if gone:
        places = "; ".join(gone)
        warn(f"{path}: {name} has no place for {places}: left out. A .parquet file keeps all", DataWarning)


def _by_name(name: str) -> str:
    for module, format in _FORMATS.items():
        if name == format.name:
            return module
    raise DataError(f"unknown format {name!r}; known are {', '.join(f.name for f in formats())}")


def _with_suffix(path: Path) -> list[str]:
    """Modules whose files may end like this one, in the order in which they are asked."""
    name = path.name.lower().removesuffix(".gz")
    return [module for module, format in _FORMATS.items() if name.endswith(format.suffixes)]


def _find(path: Path) -> str:
    """The module that reads a file."""
    if not path.is_dir():
        check_file(path)
    head = b""
    if path.is_file():  # a pair of files may go by a stem that is no file
        try:
            with open(path, "rb") as handle:
                head = handle.read(_HEAD)
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror or error}", path=path) from None
    if head.startswith(b"\x1f\x8b"):  # unpacked as far as it can be; the reader will report damage
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, _HEAD)
        except zlib.error:
            head = b""
    likely = _with_suffix(path)
    for name in (*likely, *(name for name in _FORMATS if name not in likely)):
        if import_module(f"bagwise.io.{name}").recognises(path, head):
            return name
    if not path.exists():
        raise DataError("no such file or folder", path=path)
    if path.is_dir() or not likely:
        known = f"known are {_known('reads')}. Name one with read(path, format=...)"
        raise DataError(f"not in a format known here; {known}", path=path)
    return likely[0]


def _known(what: str) -> str:
    return ", ".join(f"{f.name} ({', '.join(f.suffixes)})" for f in formats() if getattr(f, what))
