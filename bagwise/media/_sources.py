"""What a bag is made from: a file under a name, found in folders, or a thing in memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from bagwise.errors import DataError

_FOLDERS_AS_FILES = (".zarr",)  # a format whose "file" is a folder


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
            here = [(path, name) for path, name in here if _fits(name, suffixes)]
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


def _fits(name: str, suffixes: Sequence[str] | None) -> bool:
    return suffixes is None or name.lower().endswith(tuple(suffixes))


def _refuse(error: OSError) -> None:
    """A folder that cannot be looked into is not passed over in silence."""
    raise DataError(f"cannot be looked into: {error.strerror or error}", path=error.filename)


def _walk(root: Path) -> list[Path]:
    """All files, and folders that are files to their format; nothing hidden, no folder twice by links."""
    found, seen = [], {os.path.realpath(root)}
    for folder, inner, files in os.walk(root, followlinks=True, onerror=_refuse):
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
