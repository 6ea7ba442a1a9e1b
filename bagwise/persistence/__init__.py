"""Saving models so that loading never runs code from the file.

What a file claims about itself is checked before anything of that size is made: zip entries say how large
they will be, array files say how many numbers they hold.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import tempfile
import zipfile
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import scipy
import sklearn

from bagwise.errors import DataError, UnsafeFileError, in_one_line, warn
from bagwise.persistence._places import STATE, renamed, skops, trusted
from bagwise.persistence._structures import check_answers, check_parts
from bagwise.utils.files import replacing
from bagwise.utils.version import __version__

__all__ = ["load", "model_facts", "save"]

_SCHEMA, _FACTS = "schema.json", "bagwise.json"
_FLOOR = 256 << 20  # bytes that any file may take unpacked
_TEXT_FLOOR = 16 << 20  # the same for descriptions, which take many times that as Python objects
_TIMES = 4  # and else so many times the size of the file: our own are stored as they are
_MOST_FACTS = 1 << 20
_BLOCK = 1 << 20
_ARRAY, _ZIP = b"\x93NUMPY", b"PK"

_VERSIONS = {
    "bagwise": __version__,
    "numpy": np.__version__,
    "python": platform.python_version(),
    "scikit-learn": sklearn.__version__,
    "scipy": scipy.__version__,
    "skops": skops.__version__,
}

# Classes without a public place of their own, found here by the names that files use.
globals().update(STATE)


def save(model: Any, path: str | PathLike[str]) -> None:
    """Write a fitted model (or pipeline, or search) to a file.

    The file is a zip of plain arrays and a description of the objects that hold them, in the format of
    skops, with the versions that wrote it and a fingerprint. Classes are named by their public place. It
    appears whole or not at all.

    Parameters
    ----------
    model : estimator
        Made of bagwise and scikit-learn parts.
    path : path
        Where to write; by convention ``*.skops``.

    Examples
    --------
    >>> import tempfile
    >>> from bagwise.models import MIMLDummy
    >>> model = MIMLDummy().fit([[[1.0]], [[2.0], [3.0]]], [[1, 0], [1, 1]])
    >>> file = tempfile.mkdtemp() + "/dummy.skops"
    >>> save(model, file)
    >>> load(file).predict([[[5.0]]])
    array([[1, 0]])
    """
    with replacing(path) as temporary:
        raw = temporary.with_name("raw.skops")
        try:
            skops.io.dump(model, raw)
        except Exception as error:
            raise DataError(f"cannot save {type(model).__name__}: {error}") from None
        with zipfile.ZipFile(raw) as source, zipfile.ZipFile(temporary, "w") as archive:
            schema = json.loads(source.read(_SCHEMA))
            renamed(schema)
            _copy_parts(source, archive, schema)
        raw.unlink()
        with _open_file(temporary) as file:
            try:
                _refuse_foreign(file)  # what cannot be loaded again must not be written
            except UnsafeFileError as error:
                raise UnsafeFileError(f"cannot save {type(model).__name__}: it {error}") from None
        with zipfile.ZipFile(temporary, "a") as archive:
            facts = {"model": type(model).__name__, "versions": _VERSIONS, "sha256": _fingerprint(archive)}
            archive.writestr(_FACTS, json.dumps(facts))


def load(path: str | PathLike[str], *, max_bytes: int | None = None) -> Any:
    """Read a model that `save` wrote.

    Nothing in the file is executed. A file that holds any type beside those of bagwise and the numeric types
    and estimators of scikit-learn is refused by name; so is one that would take far more memory than its size
    explains, whose contents are not those that were saved, or whose parts do not fit together.

    Parameters
    ----------
    path : path
        The file.
    max_bytes : int, optional
        Memory that its parts may take; by default four times the size of the file, at least 256 MiB.

    Warns
    -----
    UserWarning
        If another version of scikit-learn or bagwise wrote the file.

    Raises
    ------
    UnsafeFileError
        If the file holds a foreign type.
    DataError
        If it is not a model file, or is damaged.
    """
    with _open_file(path) as file:
        try:
            facts, model = _read(file, max_bytes)
            check_parts(model)
            check_answers(model)
        except DataError as error:
            raise error.at(path) from None
        except UnsafeFileError as error:
            raise UnsafeFileError(f"{path}: {error}") from None
    written = facts.get("versions", {})
    other = [
        f"{name} {written[name]} (here {_VERSIONS[name]})"
        for name in ("bagwise", "scikit-learn")  # of all packages the two that its meaning hangs on
        if name in written and written[name] != _VERSIONS[name]
    ]
    if other:
        said = " and ".join(other)
        warn(f"{path} was written by {said}; its answers may differ: fit it anew if in doubt")
    return model


def model_facts(path: str | PathLike[str]) -> dict[str, Any]:
    """Read what a model file says about itself: the class and the versions that wrote it."""
    with _open_file(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                return _read_facts(archive)
        except DataError as error:
            raise error.at(path) from None
        except Exception as error:  # a damaged archive fails in many ways
            raise DataError(f"not a model file ({error})", path=path) from None


def _read(file: BinaryIO, max_bytes: int | None) -> tuple[dict[str, Any], Any]:
    """Facts and model; every check that needs nothing brought to life comes first."""
    try:
        with zipfile.ZipFile(file) as archive:
            _check_sizes(archive, os.fstat(file.fileno()).st_size, max_bytes)
            facts = _read_facts(archive)
            if "sha256" in facts and facts["sha256"] != _fingerprint(archive):
                raise DataError(
                    "its contents are not those that were saved; fit the model anew or find a copy"
                )
            schema = json.loads(archive.read(_SCHEMA))
            if renamed(schema):  # go on with a copy that names classes by their public places
                file = tempfile.TemporaryFile()  # noqa: SIM115  # goes away with the last reference
                with zipfile.ZipFile(file, "w") as copy:
                    _copy_parts(archive, copy, schema)
    except DataError:
        raise
    except Exception as error:  # a damaged archive fails in many ways
        raise DataError(f"not a model file, or damaged ({in_one_line(error, 300, named=True)})") from None
    names = _refuse_foreign(file)
    try:
        # the names in this file, not all that may be in one: skops goes through them for every word of a list
        return facts, skops.io.load(file, trusted=names)
    except Exception as error:
        written_by = facts.get("versions") or "unknown versions"
        raise DataError(
            f"cannot be loaded (written by {written_by}): {in_one_line(error, 300, named=True)}"
        ) from None


def _refuse_foreign(content: BinaryIO) -> list[str]:
    """Names in the file that skops does not trust by itself; all of them are ours to trust."""
    try:
        names = skops.io.get_untrusted_types(file=content)  # type: ignore[arg-type]
    except Exception as error:
        raise DataError(f"not a model file of bagwise ({in_one_line(error, 300, named=True)})") from None
    if foreign := set(names) - trusted():
        raise UnsafeFileError(f"holds foreign types, refused: {', '.join(sorted(foreign))}")
    return names


# ---------------------------------------------------------------------- the archive


def _open_file(path: str | PathLike[str]) -> BinaryIO:
    """Open what must be a plain file."""
    if not Path(path).exists():
        raise DataError("no such file", path=path)
    if not Path(path).is_file():
        raise DataError("not a model file, but a folder or a device", path=path)
    return open(path, "rb")


def _check_sizes(archive: zipfile.ZipFile, size: int, max_bytes: int | None) -> None:
    """Refuse a file that would take far more memory than its size on disk explains."""
    limit = max(_FLOOR, _TIMES * size) if max_bytes is None else max_bytes
    total = sum(entry.file_size for entry in archive.infolist())
    if total <= limit:
        for entry in archive.infolist():
            with archive.open(entry) as part:
                head = part.read(len(_ARRAY))
            if head == _ARRAY:
                _check_array(archive, entry)
            elif head.startswith(_ZIP):  # a sparse matrix is an archive of its own
                total += _inner_size(archive.read(entry), entry.filename)
    if total > limit:
        raise DataError(
            f"would take {total / 1e9:.1f} GB of memory, though the file has {size / 1e6:.1f} MB, and the "
            f"limit is {limit / 1e9:.1f} GB; if you trust it, load it with max_bytes={total}"
        )
    if max_bytes is None:
        for name in (_SCHEMA, _FACTS):
            if name in archive.namelist() and archive.getinfo(name).file_size > max(_TEXT_FLOOR, size):
                raise DataError(f"its {name} is larger than the whole file")


def _inner_size(content: bytes, name: str) -> int:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as inner:
            total = sum(entry.file_size for entry in inner.infolist())
            if total > max(_FLOOR, 100 * len(content)):
                return total  # refused by the caller, without looking further
            for entry in inner.infolist():
                _check_array(inner, entry)
            return total
    except zipfile.BadZipFile as error:
        raise DataError(f"its part {name} is damaged ({error})") from None


def _check_array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
    """An array must hold as many numbers as it says: it is made before its numbers are read."""
    with archive.open(entry) as part:
        try:
            version = np.lib.format.read_magic(part)
            read = (
                np.lib.format.read_array_header_1_0
                if version == (1, 0)
                else np.lib.format.read_array_header_2_0
            )
            shape, _, dtype = read(part)
        except ValueError as error:
            raise DataError(f"its array {entry.filename} is damaged ({error})") from None
        held = entry.file_size - part.tell()
    needed = int(np.prod([int(n) for n in shape], dtype=object)) * dtype.itemsize
    if dtype.hasobject or needed != held or any(n < 0 for n in shape):
        raise DataError(f"its array {entry.filename} says shape {shape} of {dtype}, but holds {held} bytes")


def _fingerprint(archive: zipfile.ZipFile) -> str:
    """SHA-256 over names and contents of all parts but the facts, whatever their order."""
    whole = hashlib.sha256()
    for entry in sorted(archive.infolist(), key=lambda entry: entry.filename):
        if entry.filename == _FACTS:
            continue
        part = hashlib.sha256(entry.filename.encode())
        with archive.open(entry) as content:
            while block := content.read(_BLOCK):
                part.update(block)
        whole.update(part.digest())
    return whole.hexdigest()


def _copy_parts(source: zipfile.ZipFile, target: zipfile.ZipFile, schema: dict[str, Any]) -> None:
    """Copy all parts, with another description, and sparse matrices stored as they are."""
    for entry in source.infolist():
        if entry.filename in (_SCHEMA, _FACTS):
            continue
        if entry.filename.endswith(".npz"):
            plain = io.BytesIO()
            with (
                zipfile.ZipFile(io.BytesIO(source.read(entry))) as packed,
                zipfile.ZipFile(plain, "w") as out,
            ):
                for part in packed.infolist():
                    out.writestr(part.filename, packed.read(part))
            target.writestr(entry.filename, plain.getvalue())
            continue
        with source.open(entry) as content, target.open(entry.filename, "w", force_zip64=True) as out:
            while block := content.read(_BLOCK):
                out.write(block)
    target.writestr(_SCHEMA, json.dumps(schema))


def _read_facts(archive: zipfile.ZipFile) -> dict[str, Any]:
    """What the file says about itself, or nothing if it does not say it in the form that we write."""
    if _FACTS not in archive.namelist():
        return {}
    if archive.getinfo(_FACTS).file_size > _MOST_FACTS:
        raise DataError(f"its {_FACTS} is larger than any that bagwise writes")
    try:
        facts = json.loads(archive.read(_FACTS))
    except RecursionError:
        raise DataError(f"its {_FACTS} is nested too deeply") from None
    except ValueError as error:
        raise DataError(f"its {_FACTS} is not JSON ({error})") from None
    versions = facts.get("versions", {}) if isinstance(facts, dict) else None
    if not isinstance(versions, dict) or not all(isinstance(v, str) for v in versions.values()):
        raise DataError(f"its {_FACTS} should name the model and the versions that wrote it, and does not")
    return facts
