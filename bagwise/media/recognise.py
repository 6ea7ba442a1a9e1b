"""Which medium lies in a folder, by the suffixes of the files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from bagwise.errors import DataError
from bagwise.media._base import ToBags
from bagwise.media._sources import Source, find_files
from bagwise.media.recipe import MEDIA, transformer_class, transformers

_MAJORITY = 10  # a medium with so many times the files of all others together is meant
Paths = str | PathLike[str] | Sequence[str | PathLike[str]]


class Found(NamedTuple):
    """The files of one medium, how they were recognised, and in one line what lay there."""

    medium: str
    files: list[Source]
    said: str


def recognise(
    folders: Paths,
    medium: str | type[ToBags] | None = None,
    *,
    leave_out: Iterable[str | PathLike[str]] = (),
) -> Found:
    """Find the files of a medium in folders (or among files).

    Parameters
    ----------
    folders : path or sequence of paths
        Folders, which are searched to their depths, or files.
    medium : str or subclass of ToBags, optional
        The medium; by default what nearly all files are. A notice among recordings does not matter, as many
        texts as recordings do.
    leave_out : paths
        Files that are none of them, such as the table of labels.

    Raises
    ------
    DataError
        If there are no files of any medium (or of this one), or several media and no clear majority.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("a.wav", "b.flac", "c.wav", "cover.svg"):
    ...     (folder / name).touch()
    >>> recognise(folder).said
    'found 3 audio files (2 .wav, 1 .flac); passed over 1 other file (1 .svg)'
    """
    all_files = find_files(folders, leave_out=leave_out)
    where = _names(folders)
    if medium is None:
        medium = _by_majority(all_files, where)
    cls = transformer_class(medium) if isinstance(medium, str) else medium
    medium = cls.medium
    files = _with(all_files, cls.suffixes)
    if not files and cls.also:
        files = _with(all_files, cls.also)
    given = [] if isinstance(folders, (str, PathLike)) else [p for p in folders if Path(p).is_file()]
    if not files and given:
        files = [file for file in all_files if file.path in map(str, given)]  # what was named is taken
    if not files:
        raise DataError(
            f"no {medium} files there ({' '.join((*cls.suffixes, *cls.also))}); found {_counted(all_files)}",
            path=where,
        )
    return Found(medium, files, _said(medium, files, all_files))


def _by_majority(files: list[Source], where: str) -> str:
    counts = {cls.medium: len(_with(files, cls.suffixes)) for cls in transformers()}
    counts = {medium: n for medium, n in counts.items() if n}
    if not counts:  # tables may hold texts or embeddings
        kinds = [cls.medium for cls in transformers() if _with(files, cls.also)]
        kinds = _by_looking(files, kinds) if len(kinds) > 1 else kinds
        if len(kinds) == 1:
            return kinds[0]
        advice = f"name it with medium=...: {' or '.join(kinds or MEDIA)}"
        raise DataError(f"cannot tell which medium this is (found {_counted(files)}); {advice}", path=where)
    best = max(counts, key=lambda medium: counts[medium])
    others = sum(counts.values()) - counts[best]
    if others and counts[best] < _MAJORITY * others:
        there = ", ".join(f"{n} {medium} files" for medium, n in counts.items())
        raise DataError(f"holds {there}; say which are meant with medium=...", path=where)
    return best


def _by_looking(files: list[Source], kinds: list[str]) -> list[str]:
    """Which of these media can read the first table that all of them could hold; all if none can."""
    classes = [transformer_class(kind) for kind in kinds]
    common = [file for file in files if all(_with([file], cls.also) for cls in classes)]
    able = []
    for cls in classes:
        try:
            if common and cls()._parts(common[0].path):
                able.append(cls.medium)
        except Exception:  # whatever is wrong with it for this medium
            continue
    return able or kinds


def _with(files: list[Source], suffixes: Sequence[str]) -> list[Source]:
    return [file for file in files if file.name.lower().endswith(tuple(suffixes))] if suffixes else []


def _said(medium: str, files: list[Source], all_files: list[Source]) -> str:
    one = "file" if len(files) == 1 else "files"
    others = len(all_files) - len(files)
    taken = set(files)
    rest = [file for file in all_files if file not in taken]
    passed = (
        f"; passed over {others} other {'file' if others == 1 else 'files'} ({_counted(rest)})"
        if rest
        else ""
    )
    return f"found {len(files)} {medium} {one} ({_counted(files)}){passed}"


def _counted(files: list[Source]) -> str:
    """Suffixes and how many files have them, such as "90 .wav, 10 .flac"."""
    if not files:
        return "no files at all"
    counts = Counter(Path(file.name).suffix.lower() or "without suffix" for file in files).most_common()
    more = f", {len(counts) - 5} other kinds" if len(counts) > 5 else ""
    return ", ".join(f"{n} {suffix}" for suffix, n in counts[:5]) + more


def _names(folders: Paths) -> str:
    given = [folders] if isinstance(folders, (str, PathLike)) else list(folders)
    return ", ".join(map(str, given[:3])) + (", ..." if len(given) > 3 else "")
