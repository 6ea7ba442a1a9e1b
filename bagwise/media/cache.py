"""Parts already made, kept by the content of their file: a stopped run goes on, a new file costs only itself.

A part is found by the SHA-256 of the file's bytes, the parameters and the versions; moving or renaming a file
changes nothing, changing it or a parameter makes a new part. Entries are written under another name and then
renamed, so that a kill leaves nothing half written; one that is damaged all the same is made again. Where
nothing can be written, parts are made and not kept, and a note says so. An entry holds arrays and text,
nothing that is ever executed. The folder may be removed at any time.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from bagwise.bags import checked_csr
from bagwise.datasets.places import cache_folder
from bagwise.media.parts import Part
from bagwise.utils.version import __version__

_LAYOUT = 1  # of the entries themselves
_BLOCK = 1 << 20
_UNFINISHED = ".new"
_OLD = 3600.0  # seconds after which an entry that is not finished never will be


def default_cache() -> Path:
    """Folder for parts of this user: ``media`` beside the downloads of bagwise.

    That is ``~/.cache/bagwise/media`` on Linux (or below ``$XDG_CACHE_HOME``), below ``~/Library/Caches`` on
    macOS and below ``%LOCALAPPDATA%`` on Windows. The variable ``BAGWISE_CACHE`` names another folder.
    """
    return cache_folder() / "media"


def settings_text(name: str, version: int, params: dict[str, Any]) -> str | None:
    """Class, versions and parameters in one text; None where a parameter is no plain value.

    Examples
    --------
    >>> settings_text("AudioToBags", 1, {"window": print}) is None
    True
    """
    try:
        text = json.dumps([name, version, __version__, params], sort_keys=True, allow_nan=True)
    except (TypeError, ValueError):
        return None
    return text


def content_hash(path: str | PathLike[str]) -> str:
    """SHA-256 of a file's bytes; of a folder (zarr), of names and bytes of all files in it.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "empty"
    >>> path.touch()
    >>> content_hash(path)[:8]
    'e3b0c442'
    """
    whole = hashlib.sha256()
    if not os.path.isdir(path):
        _add(whole, path)
        return whole.hexdigest()
    for folder, inner, files in os.walk(path):
        inner.sort()
        for name in sorted(files):
            place = os.path.join(folder, name)
            whole.update(os.path.relpath(place, path).encode() + b"\0")
            whole.update(str(os.path.getsize(place)).encode() + b"\0")
            _add(whole, place)
    return whole.hexdigest()


def _add(whole: Any, path: str | PathLike[str]) -> None:
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            whole.update(block)


class Cache:
    """A folder of parts.

    Parameters
    ----------
    folder : path
        Made when first needed.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = os.fspath(folder)

    def get_or_make(self, path: str, settings: str, make: Callable[[], Any]) -> Any:
        """Parts of a file: those kept, or those that ``make`` makes, which are then kept."""
        key = hashlib.sha256(f"{_LAYOUT}\n{content_hash(path)}\n{settings}".encode()).hexdigest()
        place = Path(self.folder) / key[:2] / f"{key[2:]}.npz"
        kept = self._read(place)
        if kept is not None:
            return kept
        parts = make()
        try:
            self._write(place, parts)
        except OSError as error:
            note = f"made, but not kept in the cache {self.folder} ({error.strerror or error})"
            return [(name, part._replace(notes=(*part.notes, note))) for name, part in parts]
        return parts

    def _read(self, place: Path) -> Any:
        try:
            with zipfile.ZipFile(place) as archive:  # every entry carries a checksum
                facts = json.loads(archive.read("facts.json"))
                return [(name, Part(*_unpacked(archive, k, fact))) for k, (name, fact) in enumerate(facts)]
        except Exception:  # not there, or damaged in whatever way: it is made again
            return None

    def _write(self, place: Path, parts: Any) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        _sweep(place.parent)
        temporary = place.with_name(f"{place.name}.{secrets.token_hex(4)}{_UNFINISHED}")
        try:
            with zipfile.ZipFile(temporary, "w") as archive:
                facts = [(name, _packed(archive, k, part)) for k, (name, part) in enumerate(parts)]
                archive.writestr("facts.json", json.dumps(facts))
            os.replace(temporary, place)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary)
            raise


def _sweep(folder: Path) -> None:
    """Remove what killed runs left behind."""
    for name in os.listdir(folder):
        if name.endswith(_UNFINISHED):
            with suppress(OSError):
                if time.time() - os.path.getmtime(folder / name) > _OLD:
                    os.unlink(folder / name)


def _packed(archive: zipfile.ZipFile, k: int, part: Any) -> dict[str, Any]:
    """Write the arrays of one part; what is needed to put them together again."""
    X, fact = part.X, {"sparse": sparse.issparse(part.X), "width": int(part.X.shape[1]), "places": []}
    fact["notes"] = list(part.notes)
    if fact["sparse"]:
        X = sparse.csr_array(X)
        for name in ("data", "indices", "indptr"):
            _save(archive, f"{k}.{name}", getattr(X, name))
    else:
        _save(archive, f"{k}.X", np.ascontiguousarray(X))
    for name, values in part.places.items():
        values = np.asarray(values)
        text = values.dtype.kind in "OU"
        fact["places"].append([name, text])
        if text:
            archive.writestr(f"{k}.{name}.json", json.dumps(values.tolist()))
        else:
            _save(archive, f"{k}.{name}", values)
    return fact


def _unpacked(archive: zipfile.ZipFile, k: int, fact: dict[str, Any]) -> tuple[Any, ...]:
    if fact["sparse"]:
        data, indices, indptr = (_load(archive, f"{k}.{name}") for name in ("data", "indices", "indptr"))
        X: Any = checked_csr(data, indices, indptr, fact["width"])
    else:
        X = _load(archive, f"{k}.X")
    places = {}
    for name, text in fact["places"]:
        if text:
            places[name] = np.array(json.loads(archive.read(f"{k}.{name}.json")), dtype=object)
        else:
            places[name] = _load(archive, f"{k}.{name}")
    return X, places, tuple(fact["notes"])


def _save(archive: zipfile.ZipFile, name: str, array: np.ndarray) -> None:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    archive.writestr(f"{name}.npy", buffer.getbuffer())


def _load(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    return np.load(io.BytesIO(archive.read(f"{name}.npy")), allow_pickle=False)
