"""Rows of finished tasks in one Parquet file, safe against being stopped at any moment.

A finished task first becomes a file of its own, written under another name and then renamed, so that it is
there whole or not at all. From time to time these files are gathered into ``rows.parquet``, again by a
rename, and only then removed. A kill between the two leaves a row in both places; rows are told apart by
their hash, so it counts once.

Both carry a checksum of what they say. A finished task whose file is damaged runs again; a table that is
damaged, or that somebody else wrote, is never touched.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bagwise.errors import BagwiseError, DataError, quoted, warn
from bagwise.utils.files import replacing

SCHEMA = pa.schema(
    [
        ("hash", pa.string()),
        ("dataset", pa.string()),
        ("method", pa.string()),
        ("parameters", pa.string()),
        ("data", pa.string()),
        ("split", pa.string()),
        ("repeat", pa.string()),
        ("chosen", pa.string()),
        ("measures", pa.map_(pa.string(), pa.float64())),
        ("fit_seconds", pa.float64()),
        ("fit_cpu_seconds", pa.float64()),
        ("predict_seconds", pa.float64()),
        ("peak_mb", pa.float64()),
        ("versions", pa.string()),
        ("commit", pa.string()),
        ("error", pa.string()),
    ]
)


_SUM = "checksum"


class Store:
    """A folder with the rows of finished tasks and their predictions.

    Parameters
    ----------
    folder : path
        Made when the first row is written.

    Examples
    --------
    >>> import tempfile
    >>> store = Store(tempfile.mkdtemp())
    >>> store.put({"hash": "a1", "measures": {"ranking_loss": 0.25}})
    >>> store.gather()
    >>> store.rows()["a1"]["measures"]
    {'ranking_loss': 0.25}
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.table = self.folder / "rows.parquet"
        self.finished = self.folder / "finished"
        self.predictions = self.folder / "predictions"

    def put(self, row: dict[str, Any], predictions: dict[str, np.ndarray] | None = None) -> None:
        """Keep a finished task; predictions come first, so that a row never lacks its own."""
        if predictions:
            with replacing(self.predictions / f"{row['hash']}.npz") as path, open(path, "wb") as file:
                np.savez_compressed(file, **predictions)  # type: ignore[arg-type]
        with replacing(self.finished / f"{row['hash']}.json") as path:
            path.write_text(json.dumps({**row, _SUM: _checksum(row)}), encoding="utf-8")

    def rows(self) -> dict[str, dict[str, Any]]:
        """All rows by hash."""
        found = {}
        for row in self._gathered():
            row["measures"] = dict(row["measures"] or ())
            found[row["hash"]] = row
        for path in self._files():
            finished = _finished_row(path)
            if finished is not None:
                found.setdefault(finished["hash"], finished)
        return found

    def gather(self) -> None:
        """Bring all finished rows into the Parquet file."""
        files = self._files()
        if not files:
            return
        rows = self.rows()
        self._write([_as_columns(row) for row in rows.values()])
        for file in files:
            file.unlink(missing_ok=True)

    def forget(self, hashes: set[str]) -> None:
        """Drop rows, so that their tasks run again."""
        self.gather()
        self._write([row for row in self._gathered() if row["hash"] not in hashes])

    def export(self, folder: str | os.PathLike[str], hashes: Iterable[str]) -> Path:
        """Write some rows, without predictions, where `merge` can take them from; the file."""
        there, rows = Store(folder), self.rows()
        there._write([_as_columns(rows[digest]) for digest in sorted(set(hashes)) if digest in rows])
        return there.table

    def merge(self, other: str | os.PathLike[str]) -> int:
        """Take over the rows of another folder, with their predictions; tell how many were new.

        A fit that both have is kept as it is here, unless it has failed here and not there.
        """
        theirs = Store(other)
        if not theirs.folder.is_dir():
            raise BagwiseError(f"no folder {quoted(str(theirs.folder))} to take rows from")
        with self.locked():
            self.gather()
            ours = self.rows()
            new = {
                digest: row
                for digest, row in theirs.rows().items()
                if digest not in ours or (ours[digest]["error"] and not row["error"])
            }
            for digest in new:
                source = theirs.predictions / f"{digest}.npz"
                if source.exists():
                    with replacing(self.predictions / source.name) as path:
                        shutil.copyfile(source, path)
            if new:
                self._write([_as_columns(row) for row in (ours | new).values()])
        return len(new)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep a second run out of the folder; a killed run lets go of it by itself."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / ".lock", "w") as file:
            try:
                import fcntl  # not on Windows, where two runs at a time are the user's own care

                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except ImportError:
                pass
            except OSError:
                raise BagwiseError(
                    f"another run is at work in {self.folder}; wait for it, or give another folder with --out"
                ) from None
            self._sweep()
            yield

    def _gathered(self) -> list[dict[str, Any]]:
        if not self.table.exists():
            return []
        try:
            table = pq.read_table(self.table)
            if table.schema.names == SCHEMA.names:
                rows = table.cast(SCHEMA).to_pylist()
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DataError(f"{self.table} cannot be read: {error}; move it away to begin anew") from None
        if table.schema.names != SCHEMA.names:
            columns = ", ".join(table.schema.names[:5])
            raise DataError(
                f"{self.table} is no table of finished fits (its columns: {columns}); "
                "move it away, or give another folder with --out"
            )
        kept = (table.schema.metadata or {}).get(_SUM.encode())
        if kept is not None and kept.decode() != _checksum(rows):
            raise DataError(f"{self.table} is damaged: its checksum differs; move it away to begin anew")
        return rows

    def _write(self, rows: list[dict[str, Any]]) -> None:
        table = pa.Table.from_pylist(rows, schema=SCHEMA)
        table = table.replace_schema_metadata({_SUM: _checksum(table.to_pylist())})
        with replacing(self.table) as path:
            pq.write_table(table, path, compression="zstd")

    def _files(self) -> list[Path]:
        return sorted(self.finished.glob("*.json")) if self.finished.exists() else []

    def _sweep(self) -> None:
        """Take away what a killed run has left half written."""
        for folder in (self.folder, self.finished, self.predictions):
            if folder.exists():
                for left in folder.glob(".*-*"):
                    if left.is_dir():
                        shutil.rmtree(left, ignore_errors=True)


def _as_columns(row: dict[str, Any]) -> dict[str, Any]:
    """A row with every column of the table, measures as pairs."""
    return {**dict.fromkeys(SCHEMA.names), **row, "measures": list(row["measures"].items())}


def _finished_row(path: Path) -> dict[str, Any] | None:
    """The row of a finished task, or None with a warning where its file is damaged."""
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
        kept = row.pop(_SUM, None)
        if (kept is None or kept == _checksum(row)) and row["hash"] and isinstance(row["measures"], dict):
            return row
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OSError):
        pass
    warn(f"{path} is damaged; its fit will run again")
    return None


def _checksum(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def source_commit() -> str:
    """Commit of the source that runs, where it runs from a checkout."""
    here = Path(__file__).parent
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=here,
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""
