"""What a transformer of media takes and makes: sources, and parts, of which bags are stacked and some kept.

A source is a file under a name, found in folders, or a thing in memory. A part is one bag as a medium makes
it.

Parts may be kept on disk, found by the SHA-256 of their file's bytes, the parameters and the versions: a
stopped run goes on, and a new file costs only itself. Moving or renaming a file changes nothing, changing it
or a parameter makes a new part. An entry that is damaged is made again; where nothing can be written, parts
are made and not kept, and a note says so. The folder may be removed at any time.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from bagwise.bags import checked_csr
from bagwise.datasets.registry import cache_folder
from bagwise.errors import DataError, DataWarning, listed, warn
from bagwise.utils.store import Entries, file_hash

NAMED = 5  # files that a message names
_FOLDERS_AS_FILES = (".zarr",)  # a format whose "file" is a folder
_LAYOUT = 2  # of what is kept of a part


class Part(NamedTuple):
    """One bag: its instances, and where each lies.

    Notes say what was guessed or left out in reading, as the rest of a sentence about the file: "is not
    UTF-8; read as Windows-1252". Files with the same note are named together in one warning.
    """

    X: Any  # descriptions of the instances, float32 array or CSR (n_instances, n_features)
    places: dict[str, np.ndarray]  # columns of `bagwise.media.places` but ``file``, which the base adds
    notes: tuple[str, ...] = ()


class NamedPart(NamedTuple):
    """A part under the name of its bag, and the file it was cut from: "" for things in memory."""

    name: str
    file: str
    part: Part


class Unreadable(NamedTuple):
    """A file that gave no bag, and why."""

    path: str
    reason: str


# ---------------------------------------------------------------------- sources


@dataclass(frozen=True)
class Source:
    """A file and the name that its bag gets: its path relative to the folder in which it was found.

    Parameters
    ----------
    path : str
        Where the file lies.
    name : str
        With ``/`` between folders on every system.

    Examples
    --------
    >>> source = Source("recordings/may/a.wav", "may/a.wav")
    >>> str(source), os.fspath(source)
    ('may/a.wav', 'recordings/may/a.wav')
    """

    path: str
    name: str

    def __fspath__(self) -> str:
        return self.path

    def __str__(self) -> str:
        return self.name


def find_files(
    folders: str | PathLike[str] | Iterable[str | PathLike[str]],
    suffixes: Sequence[str] | None = None,
    *,
    leave_out: Iterable[str | PathLike[str]] = (),
) -> list[Source]:
    """Files with these suffixes (any, by default) in folders and their folders, sorted by name.

    Hidden files and folders are passed over. A file may be given in place of a folder and is then taken
    whatever its suffix; its name is that of the file alone.

    Parameters
    ----------
    folders : path or sequence of paths
        Where to look.
    suffixes : sequence of str, optional
        Such as ``(".wav", ".flac")``, in lower case; those of files may be in upper case.
    leave_out : paths
        Files and folders to pass over, such as a table of labels that lies among them.

    Raises
    ------
    DataError
        If there is no such folder, or two files would have the same name.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("b.wav", "a.WAV", "notes.txt"):
    ...     (folder / name).touch()
    >>> [source.name for source in find_files(folder, [".wav"])]
    ['a.WAV', 'b.wav']
    """
    given = [folders] if isinstance(folders, (str, PathLike)) else list(folders)
    unwanted = {os.path.realpath(path) for path in leave_out}
    folders_out = tuple(f"{path}{os.sep}" for path in unwanted if os.path.isdir(path))
    found: dict[str, str] = {}
    for place in given:
        root = Path(place)
        if not root.exists():
            raise DataError("no such file or folder", path=place)
        if root.is_dir() and root.suffix.lower() not in _FOLDERS_AS_FILES:
            here = [(path, path.relative_to(root).as_posix()) for path in _walk(root)]
            if suffixes is not None:
                here = [(path, name) for path, name in here if name.lower().endswith(tuple(suffixes))]
        else:
            here = [(root, root.name)]
        for path, name in here:
            real = os.path.realpath(path)
            if real in unwanted or real.startswith(folders_out):
                continue
            if found.setdefault(name, str(path)) != str(path):
                raise DataError(
                    f"two files are called {name!r}: {found[name]} and {path}; gather the folder above both"
                )
    return [Source(found[name], name) for name in sorted(found)]


def _walk(root: Path) -> list[Path]:
    """All files, and folders that are files to their format; nothing hidden, no folder twice by links."""

    def refuse(error: OSError) -> None:  # a folder that cannot be looked into is not passed over in silence
        raise DataError(f"cannot be looked into: {error.strerror or error}", path=error.filename)

    found, seen = [], {os.path.realpath(root)}
    for folder, inner, files in os.walk(root, followlinks=True, onerror=refuse):
        here = Path(folder)
        found += [here / name for name in files if not name.startswith(".")]
        deeper = []
        for name in sorted(inner):
            if name.startswith("."):
                continue
            if name.lower().endswith(_FOLDERS_AS_FILES):
                found.append(here / name)
            elif (real := os.path.realpath(here / name)) not in seen:
                seen.add(real)
                deeper.append(name)
        inner[:] = deeper
    return found


# ---------------------------------------------------------------------- parts to bags


def stacked(matrices: list[Any], width: int) -> Any:
    """The instances of all parts in one matrix, sparse if any of them is."""
    filled = [X for X in matrices if X.shape[0]]
    if any(sparse.issparse(X) for X in matrices):
        if not filled:
            return sparse.csr_array((0, width), dtype=np.float32)
        return sparse.vstack([sparse.csr_array(X) for X in filled], format="csr")
    # half precision becomes single while it is copied
    kind = np.result_type(np.float32, *(X.dtype for X in filled))
    if len(filled) == 1:
        return np.ascontiguousarray(filled[0], dtype=kind)
    out = np.empty((sum(len(X) for X in filled), width), dtype=kind)
    start = 0
    for X in filled:
        out[start : start + len(X)] = X
        start += len(X)
    return out


def say_notes(named: Sequence[NamedPart]) -> None:
    """One warning per kind of note, with the files that it is about."""
    about: dict[str, list[str]] = {}
    for one in named:
        for note in one.part.notes:
            about.setdefault(note, []).append(one.name)
    for note, names in about.items():
        warn(f"{listed(names, NAMED)}: {note}", DataWarning)


def stacked_places(names: Sequence[str], parts: Sequence[Part]) -> dict[str, np.ndarray]:
    """Columns of all parts; they must be the same, but a bag without instances may have none."""
    filled = [(name, part) for name, part in zip(names, parts) if part.X.shape[0]]
    filled = filled or [(names[0], parts[0])]
    first, columns = filled[0][0], list(filled[0][1].places)
    for name, part in filled:
        if list(part.places) != columns:
            raise DataError(
                f"the instances of {name} come with {', '.join(part.places) or 'no place'}, those of {first} "
                f"with {', '.join(columns) or 'no place'}; gather them apart"
            )
    return {c: np.concatenate([np.asarray(part.places[c]) for _, part in filled]) for c in columns}


# ---------------------------------------------------------------------- parts that are kept


def default_cache() -> Path:
    """Folder for parts of this user: ``media`` beside the downloads of bagwise.

    That is ``~/.cache/bagwise/media`` on Linux (or below ``$XDG_CACHE_HOME``), below ``~/Library/Caches`` on
    macOS and below ``%LOCALAPPDATA%`` on Windows. The variable ``BAGWISE_CACHE`` names another folder.
    """
    return cache_folder() / "media"


def kept_or_made(
    folder: str | PathLike[str], path: str, settings: str, make: Callable[[], list[tuple[str, Part]]]
) -> list[tuple[str, Part]]:
    """Parts of a file: those kept in a folder, or those that ``make`` makes, which are then kept."""
    entries = Entries(folder, durable=False)
    key = hashlib.sha256(f"{_LAYOUT}\n{file_hash(path)}\n{settings}".encode()).hexdigest()
    key = f"{key[:2]}/{key[2:]}"  # no folder gets too many files
    kept = entries.get(key)
    if kept is not None:
        return [(name, _restored(**part)) for name, part in kept]
    parts = make()
    try:
        entries.put(key, [(name, _plain(part)) for name, part in parts])
    except OSError as error:
        note = f"made, but not kept in the cache {os.fspath(folder)} ({error.strerror or error})"
        return [(name, part._replace(notes=(*part.notes, note))) for name, part in parts]
    return parts


def _plain(part: Part) -> dict[str, Any]:
    """A part as numbers, texts and arrays of numbers."""
    X = sparse.csr_array(part.X) if sparse.issparse(part.X) else part.X
    places = {name: np.asarray(values) for name, values in part.places.items()}
    return {
        "X": (X.data, X.indices, X.indptr, X.shape[1]) if sparse.issparse(X) else np.ascontiguousarray(X),
        "places": {k: v.tolist() if v.dtype.kind in "OU" else v for k, v in places.items()},
        "notes": part.notes,
    }


def _restored(X: Any, places: dict[str, Any], notes: tuple[str, ...]) -> Part:
    places = {k: np.array(v, dtype=object) if isinstance(v, list) else v for k, v in places.items()}
    return Part(checked_csr(*X) if isinstance(X, tuple) else X, places, notes)
