"""Embeddings that another program wrote, joined to windows or calls by the recording's name and by time."""

from __future__ import annotations

from functools import lru_cache
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from bagwise.errors import DataError
from bagwise.media.audio.vectors import SUFFIXES, TIMED, Vectors, read_vectors


class ExportedEmbeddings:
    r"""Vectors of other programs for windows of recordings, found by the recording's name and by time.

    Parameters
    ----------
    path : path
        One table for many recordings, or a folder of files, each called after its recording.

    Notes
    -----
    An instance gets the vector of the window that covers most of it; where several cover it equally,
    as when the windows are shorter than the instance, their mean. Names match if they end alike:
    ``rec/a.wav`` in the table is the recording ``/data/rec/a.wav``; a name without suffix matches any.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> folder = tempfile.TemporaryDirectory()
    >>> table = pathlib.Path(folder.name) / "emb.csv"
    >>> _ = table.write_text('file_path,start,end,embedding\nrec/a.wav,0,3,"1,2"\nrec/a.wav,3,6,"3,5"\n')
    >>> ExportedEmbeddings(table).rows("rec/a.wav", [3.0, 0.0], [6.0, 6.0])
    array([[3. , 5. ],
           [2. , 3.5]], dtype=float32)
    >>> folder.cleanup()
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)

    def rows(self, source: Any, start: Any, end: Any) -> np.ndarray:
        """Vectors of the instances of one recording, given their times in seconds.

        Raises
        ------
        DataError
            If there are no vectors for the recording, or for one of the instances.
        """
        if isinstance(source, tuple):
            raise DataError(
                "exported embeddings are joined by the names of files; samples in memory have none"
            )
        start, end = np.asarray(start, dtype=np.float64), np.asarray(end, dtype=np.float64)
        found = self._of(PurePosixPath(Path(source).as_posix()))
        out = np.empty((len(start), found.X.shape[1]), dtype=np.float32)
        for k in range(len(start)):
            shared = np.minimum(end[k], found.end) - np.maximum(start[k], found.start)
            most = shared.max(initial=-1.0)
            if most <= 0:
                raise DataError(
                    f"no embedding overlaps the part from {start[k]:.2f} to {end[k]:.2f} s", path=source
                )
            out[k] = found.X[shared >= most - 1e-3].mean(axis=0)  # times are written to few decimals
        return out

    def _of(self, source: PurePosixPath) -> Vectors:
        if not self.path.exists():
            raise DataError("no such file or folder of embeddings", path=self.path)
        files = [self.path]
        if self.path.is_dir():
            every = sorted(
                p for p in self.path.rglob("*") if p.name.lower().endswith(SUFFIXES) and p.is_file()
            )
            own = [p for p in every if _called_after(p, source)]
            files = own or [p for p in every if not p.name.endswith(".txt")]
        tables = [_read_cached(str(p), p.stat().st_mtime_ns, p.stat().st_size) for p in files]
        chosen = [one for p, t in zip(files, tables) if (one := _rows_of(t, p, source)) is not None]
        if not chosen:
            raise DataError(f"there are no embeddings of {source.name!r} in {self.path}")
        widths = {t.X.shape[1] for t in chosen}
        if len(widths) > 1:
            raise DataError(
                f"embeddings of {source.name!r} have {sorted(widths)} numbers; expected one length"
            )
        return Vectors(None, *(np.concatenate([t[k] for t in chosen]) for k in (1, 2, 3)))


def _called_after(path: Path, source: PurePosixPath) -> bool:
    rest = path.name.removeprefix(source.name) if path.name.startswith(source.name) else None
    if rest is None and path.name.startswith(source.stem):
        rest = path.name[len(source.stem) :]
    return rest is not None and (rest.startswith(".") or TIMED.fullmatch(rest) is not None)


def _rows_of(vectors: Vectors, path: Path, source: PurePosixPath) -> Vectors | None:
    """The rows of one recording."""
    if vectors.file is None:
        return vectors if _called_after(path, source) else None
    names, which = np.unique(vectors.file, return_inverse=True)
    agree = np.array([_agreement(name, source) for name in names])
    if agree.max(initial=0) == 0:
        return None
    best = np.flatnonzero(agree == agree.max())
    if len(best) > 1:
        raise DataError(
            f"embeddings of both {names[best[0]]!r} and {names[best[1]]!r} may be those of {source.name!r}; "
            "give a table whose names tell them apart",
            path=path,
        )
    keep = which == best[0]
    return Vectors(None, vectors.start[keep], vectors.end[keep], vectors.X[keep])


def _agreement(name: str, source: PurePosixPath) -> int:
    """Number of parts of a path, from its end, that agree with those of the recording's."""
    theirs = [part for part in str(name).replace("\\", "/").split("/") if part not in ("", ".")]
    if not theirs or theirs[-1] not in (source.name, source.stem):
        return 0
    count = 1
    for a, b in zip(reversed(theirs[:-1]), reversed(source.parts[:-1])):
        if a != b:
            break
        count += 1
    return count


@lru_cache(maxsize=4)
def _read_cached(path: str, changed: int, size: int) -> Vectors:
    return read_vectors(path)
