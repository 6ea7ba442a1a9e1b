"""Rows of finished tasks in one Parquet file, safe against being stopped at any moment.

A finished task first becomes a file of its own, written under another name and then renamed, so that it is
there whole or not at all. From time to time these files are gathered into ``rows.parquet``, again by a
rename, and only then removed. A kill between the two leaves a row in both places; rows are told apart by
their hash, so it counts once.

Both carry a checksum of what they say. A finished task whose file is damaged runs again; a table that is
damaged, or that somebody else wrote, is never touched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bagwise.errors import BagwiseError, DataError, quoted, warn
from bagwise.metrics import HIGHER_IS_BETTER
from bagwise.utils.files import replacing
from bagwise.utils.store import Entries, json_hash, locked
from papers.execute import express
from papers.tasks import Task

__all__ = ["NOT_RUN", "Fits", "Row", "direction_of", "fit_time"]


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
        self.finished = Entries(self.folder / "finished", ".json")
        self.predictions = self.folder / "predictions"

    def put(self, row: dict[str, Any], predictions: dict[str, np.ndarray] | None = None) -> None:
        """Keep a finished task; predictions come first, so that a row never lacks its own."""
        if predictions:
            with replacing(self.predictions / f"{row['hash']}.npz") as path, open(path, "wb") as file:
                np.savez_compressed(file, **predictions)  # type: ignore[arg-type]
        self.finished.put(row["hash"], row)

    def rows(self) -> dict[str, dict[str, Any]]:
        """All rows by hash."""
        found = {}
        for row in self._gathered():
            row["measures"] = dict(row["measures"] or ())
            found[row["hash"]] = row
        keys = self.finished.keys()
        for key in keys:
            row = self.finished.get(key)
            if row is not None and row.get("hash") and isinstance(row.get("measures"), dict):
                found.setdefault(row["hash"], row)
            else:
                warn(f"{self.finished.path(key)} is damaged; its fit will run again")
        return found

    def gather(self) -> None:
        """Bring all finished rows into the Parquet file."""
        keys = self.finished.keys()
        if not keys:
            return
        self._write([_as_columns(row) for row in self.rows().values()])
        for key in keys:
            self.finished.drop(key)

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
        busy = f"another run is at work in {self.folder}; wait for it, or give another folder with --out"
        with locked(self.folder, busy):
            # what a killed run has left half written
            for folder in (self.folder, self.finished.folder, self.predictions):
                for left in folder.glob(".*-*") if folder.exists() else ():
                    if left.is_dir():
                        shutil.rmtree(left, ignore_errors=True)
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
        if kept is not None and kept.decode() != json_hash(rows):
            raise DataError(f"{self.table} is damaged: its checksum differs; move it away to begin anew")
        return rows

    def _write(self, rows: list[dict[str, Any]]) -> None:
        table = pa.Table.from_pylist(rows, schema=SCHEMA)
        table = table.replace_schema_metadata({_SUM: json_hash(table.to_pylist())})
        with replacing(self.table) as path:
            pq.write_table(table, path, compression="zstd")


def _as_columns(row: dict[str, Any]) -> dict[str, Any]:
    """A row with every column of the table, measures as pairs."""
    return {**dict.fromkeys(SCHEMA.names), **row, "measures": list(row["measures"].items())}


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


# ----------------------------------------------------------------------
# Which finished fits stand behind a cell, and what they measured


Row = Mapping[str, Any]
NOT_RUN = "not run"


@dataclass(frozen=True)
class Fits:
    """Rows of finished fits, read as an experiment asks for."""

    rows: Mapping[str, Row]  # by hash
    spec: Mapping[str, Any]  # of the experiment

    def value(self, task: Task, measure: str) -> float | None:
        """What a fit measured; None if it failed, was not run, or gives no such measure."""
        row = self.rows.get(task.digest)
        if row is None or row["error"]:
            return None
        taken = {"fit_seconds": fit_time(row), "predict_seconds": row["predict_seconds"]}
        times = {name: value for name, value in taken.items() if value is not None}
        value = express(measure, {**row["measures"], **times}, self.spec.get("named"))
        return value if value is not None and value == value else None

    def chosen(
        self, settings: Mapping[str, Sequence[Task]], measure: str
    ) -> tuple[Sequence[Task], tuple[int, int] | None]:
        """Finished fits behind a cell and, where some are missing, how many there are of how many.

        Of several settings the paper reports the one with the best mean on the test bags. They compete when
        every fit of every setting was run; those of which one has failed are out. Before that no setting is
        chosen: with one fold done, the luckiest would win. A single setting shows the fits that it has.
        """
        whole = [tasks for tasks in settings.values() if all(map(self.is_done, tasks))]
        every = [task for tasks in settings.values() for task in tasks]
        if whole and all(task.digest in self.rows for task in every):
            return max(whole, key=lambda tasks: self._judged(tasks, measure)), None
        done = [task for task in every if self.is_done(task)]
        return (done if len(settings) == 1 else []), ((len(done), len(every)) if done else None)

    def is_done(self, task: Task) -> bool:
        """Whether the fit was run and did not fail."""
        row = self.rows.get(task.digest)
        return row is not None and not row["error"]

    def _judged(self, tasks: Sequence[Task], measure: str) -> float:
        """Mean of what settings are chosen by, larger for better ones."""
        judge = self.spec.get("best", "each")
        judge = measure if judge == "each" else judge
        known = [value for task in tasks if (value := self.value(task, judge)) is not None]
        if not known:
            return float("-inf")
        return -fmean(known) if direction_of(judge) == "lower" else fmean(known)

    def unit(self, task: Task) -> str:
        """What one value of a cell stands for: a split, or all folds of one seed."""
        return f"seed {task.repeat['seed']}" if self.spec.get("unit") == "seed" else task.key

    def error_of_share(self, chosen: Sequence[Task], values: Sequence[float], measure: str) -> float | None:
        """Standard error of the share of instances that a single run annotates right.

        A run on all bags with known label sets has no repeats to take a spread from.
        """
        if len(values) != 1 or len(chosen) != 1 or not measure.startswith("instance_accuracy"):
            return None
        n = self.rows[chosen[0].digest]["measures"].get("n_annotated")
        unit = 100.0 if measure.endswith("_percent") else 1.0
        share = values[0] / unit
        return unit * sqrt(share * (1.0 - share) / n) if n else None

    def failure(self, settings: Mapping[str, Sequence[Task]]) -> str:
        """Why a cell is empty."""
        errors = [
            self.rows[task.digest]["error"]
            for tasks in settings.values()
            for task in tasks
            if task.digest in self.rows
        ]
        failed = [error for error in errors if error]
        if failed:
            return f"failed: {failed[0]}"
        return "this method gives no such measure" if errors else NOT_RUN


def fit_time(row: Row) -> float | None:
    """Seconds of a fit by the clock, or of the processor where other work on the machine stretched the clock.

    Examples
    --------
    >>> fit_time({"fit_seconds": 9.0, "fit_cpu_seconds": 2.0})
    2.0
    """
    clock, processor = row["fit_seconds"], row["fit_cpu_seconds"]
    return clock if clock is None or processor is None else min(clock, processor)


def direction_of(measure: str) -> str:
    """Where better values lie, for names of ours and of published tables."""
    stem = measure.removesuffix("_percent")
    if stem.startswith(("n_", "labels_per", "classes_per", "instances_per", "min_", "max_")):
        return "none"
    for name, higher in HIGHER_IS_BETTER.items():
        if stem.startswith(name):
            return "higher" if higher else "lower"
    return "higher" if stem in ("auc", "accuracy") else "lower"
