"""Embeddings that other programs write (BirdNET, Perch), joined to windows or calls by recording and time.

A file holds one vector per window:

- ``*.birdnet.embeddings.txt``: lines ``start TAB end TAB v1,v2,...`` of one recording; or one line
  ``v1,v2,...`` in a file ``<stem>_<start>_<end>.birdnet.embeddings.txt``.
- ``.csv``, ``.tsv``, Parquet: one row per window, with a column of file names unless the table is called
  after its recording, columns of start and end in seconds, and the vector either in one column (a list; in
  CSV numbers with commas or blanks between) or in all other columns.
- ``.npz``: arrays ``embeddings`` (n, d), ``start``, ``end``, and ``filename`` under the same condition.
"""

from __future__ import annotations

import re
import zipfile
from functools import lru_cache
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bagwise.errors import DataError, listed
from bagwise.io._csv_text import CsvText
from bagwise.io._source import MAX_BYTES, damaged, numbered_lines, read_text
from bagwise.io.npz import _arrays as npz_arrays

_NAMES = {
    "file": ("file_path", "file", "filename", "filepath", "path", "recording", "source_id", "begin_file"),
    "start": ("start", "start_s", "window_start", "start_time", "start_time_s", "offset", "offset_s")
    + ("timestamp_s",),
    "end": ("end", "end_s", "window_end", "end_time", "end_time_s"),
    "vector": ("embedding", "embeddings", "features", "x"),
}
_NOT_VALUES = {"", "unnamed: 0", "idx", "id", "index", "window_id", "label", "logits"}
_NOT_VALUES |= {"project", "dataset", "channel"}
SUFFIXES = (".txt", ".csv", ".tsv", ".parquet", ".npz")
TIMED = re.compile(r"_(\d+(?:\.\d+)?)_(\d+(?:\.\d+)?)\.birdnet\.embeddings\.txt$")


class Vectors(NamedTuple):
    """Vectors of windows, their times, and their recordings (None: the one that the file is called after)."""

    file: np.ndarray | None
    start: np.ndarray
    end: np.ndarray
    X: np.ndarray


def read_vectors(path: str | PathLike[str]) -> Vectors:
    """All vectors of one file."""
    path = Path(path)
    suffix = path.suffix.lower()
    with damaged(path, "embeddings of sound"):
        if suffix == ".txt":
            found = _from_txt(path)
        elif suffix in (".csv", ".tsv"):
            found = _from_columns(_csv_columns(path), path)
        elif suffix == ".npz":
            with zipfile.ZipFile(path) as archive:
                found = _from_columns(npz_arrays(archive, MAX_BYTES, path), path)
        elif suffix == ".parquet":
            found = _from_columns(_parquet_columns(path), path)
        else:
            raise DataError(f"embeddings are read from {' '.join(SUFFIXES)}, not {suffix!r}", path=path)
    if found.X.ndim != 2 or found.X.shape[1] == 0 or len(found.X) != len(found.start):
        raise DataError(
            f"expected one vector per window, found {found.X.shape} for {len(found.start)}", path=path
        )
    if not (np.isfinite(found.X).all() and np.isfinite(found.start).all() and np.isfinite(found.end).all()):
        raise DataError("holds values that are not finite numbers", path=path)
    return found


def _from_txt(path: Path) -> Vectors:
    timed = TIMED.search(path.name)
    rows: list[list[float]] = []
    times = []
    for line, text in numbered_lines(path):
        fields = text.split("\t")
        if len(fields) == 1 and timed:
            fields = [timed[1], timed[2], text]
        if len(fields) != 3:
            raise DataError("expected start, end and numbers with tabs between", path=path, line=line)
        times.append(_numbers(" ".join(fields[:2]), path, line))
        _add_vector(rows, fields[2], path, line)
    if not rows:
        raise DataError("holds no embeddings", path=path)
    start, end = np.array(times).T
    return Vectors(None, start, end, np.array(rows, dtype=np.float32))


def _numbers(text: str, path: Path, line: int) -> list[float]:
    try:
        return [float(word) for word in text.strip("[]() ").replace(",", " ").split()]
    except ValueError:
        raise DataError(f"{text[:40]!r} is not a list of numbers", path=path, line=line) from None


def _add_vector(rows: list[list[float]], text: str, path: Path, line: int) -> None:
    rows.append(_numbers(text, path, line))
    if len(rows[-1]) != len(rows[0]):
        raise DataError(f"expected {len(rows[0])} numbers, found {len(rows[-1])}", path=path, line=line)


def _csv_columns(path: Path) -> dict[str, np.ndarray]:
    text = CsvText(read_text(path).encode(), path, "\t" if path.suffix.lower() == ".tsv" else ",")
    records = list(text.records())
    if len(records) < 2:
        raise DataError("expected a header and at least one row", path=path)
    header = [name.strip() for name in records[0][1]]
    vector, file = _column(header, "vector"), _column(header, "file")
    columns: dict[str, list] = {name: [] for name in header}
    for line, fields in records[1:]:
        if len(fields) != len(header):
            raise DataError(f"expected {len(header)} fields, found {len(fields)}", path=path, line=line)
        for name, field in zip(header, fields):
            if name == vector:
                _add_vector(columns[name], field, path, line)
            elif name == file or name.lower() in _NOT_VALUES:
                columns[name].append(field.strip())
            else:
                numbers = _numbers(field, path, line)
                if len(numbers) != 1:
                    raise DataError(f"expected a number, found {field[:40]!r}", path=path, line=line)
                columns[name] += numbers
    return {name: np.array(values) for name, values in columns.items()}


def _parquet_columns(path: Path) -> dict[str, np.ndarray]:
    table = pq.read_table(path)
    columns = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        column = column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)
        if pa.types.is_nested(column.type):
            lists = [np.asarray(row, dtype=np.float32) for row in column.to_pylist()]
            if len({row.shape for row in lists}) > 1:
                raise DataError(f"vectors in column {name!r} differ in length", path=path)
            columns[name] = np.array(lists)
        else:
            columns[name] = column.to_numpy(zero_copy_only=False)
    return columns


def _column(names: list[str], role: str) -> str | None:
    plain = {re.sub("[ _]+", "_", re.sub(r"[ _]*\(s\)$", "", n.strip().lower())): n for n in names}
    return next((plain[name] for name in _NAMES[role] if name in plain), None)


def _from_columns(columns: dict[str, np.ndarray], path: Path) -> Vectors:
    names = list(columns)
    roles = {role: _column(names, role) for role in _NAMES}
    if roles["start"] is None:
        raise DataError(
            f"expected a column of starts in seconds (start, start_s, window_start, ...), "
            f"found {listed(names)}",
            path=path,
        )
    start = np.asarray(columns[roles["start"]], dtype=np.float64).ravel()
    file = None if roles["file"] is None else np.asarray(columns[roles["file"]]).astype(str).ravel()
    if roles["vector"] is not None:
        X = np.asarray(columns[roles["vector"]], dtype=np.float32)
    else:
        taken = {name for name in roles.values() if name}
        values = [n for n in names if n not in taken and n.lower() not in _NOT_VALUES]
        none = np.zeros((len(start), 0), dtype=np.float32)
        X = np.column_stack([none, *(np.asarray(columns[n], dtype=np.float32) for n in values)])
    if roles["end"] is not None:
        end = np.asarray(columns[roles["end"]], dtype=np.float64).ravel()
    else:
        end = _ends(start, file, path)
    if file is not None and len(file) == 1 and len(start) > 1:
        file = np.repeat(file, len(start))
    return Vectors(file, start, end, X.reshape(len(X), -1).astype(np.float32, copy=False))


def _ends(start: np.ndarray, file: np.ndarray | None, path: Path) -> np.ndarray:
    """Windows without an end last until the next begins; the last one as long as the one before."""
    end = np.empty_like(start)
    for name in np.unique(file) if file is not None else [None]:
        rows = np.flatnonzero(file == name) if name is not None else np.arange(len(start))
        rows = rows[np.argsort(start[rows])]
        if len(rows) < 2:
            raise DataError("windows have no end, and a single one does not tell its length", path=path)
        lengths = np.diff(start[rows])
        end[rows] = start[rows] + np.append(lengths, lengths[-1])
    return end


# ---------------------------------------------------------------------- by recording and time


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
