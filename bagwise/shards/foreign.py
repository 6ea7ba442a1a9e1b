"""Parquet of other software as shards: a file or a folder of files, read once, a few megabytes at a time.

Three layouts are known: one row per bag with a column of lists of instances (ours, and what data frames
write), and one row per instance, where the rows of a bag stand together.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bagwise.bags.arrow import is_list, is_number, to_numpy
from bagwise.bags.dataset import Dataset
from bagwise.errors import DataError, DataWarning
from bagwise.io._facts import loads
from bagwise.io._parquet_tables import KEY, dataset_of_tables, foreign_facts
from bagwise.io._source import damaged
from bagwise.shards.place import Place
from bagwise.shards.sharded import ShardedBags
from bagwise.shards.writer import PART_BYTES, write_shards

__all__ = ["convert_parquet", "parquet_files"]

_SHARE = 16  # pieces per part
Advance = Callable[..., None]


def convert_parquet(
    source: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    bag: str = "bag_id",
    features: str | Sequence[str] | None = None,
    labels: Any = None,
    instance_label: str | None = None,
    info: Sequence[str] = (),
    label_names: Sequence[str] | None = None,
    part_bytes: int = PART_BYTES,
    flat: bool = True,
    advance: Advance | None = None,
) -> ShardedBags:
    """Turn a Parquet file, or a folder of them in the order of their names, into shards.

    A piece of a sixteenth of a part is read at a time, so two parts are the most that is ever in memory (or
    the largest bag, if that is more). Run again after a stop, it goes on.

    Parameters
    ----------
    source : path or address
        A ``.parquet`` file, or a folder with such files in it, at any depth.
    folder : path or address
        Where the shards go.
    bag, features, labels, instance_label, info
        Columns of a table with one row per instance, as in `Dataset.from_frame`. In a table with one row per
        bag ``bag`` and ``labels`` are the columns of ids and of label names.
    label_names : sequence of str, optional
        The labels in order; by default all that occur, sorted.
    part_bytes : int, default=128 MiB
        Size of a part.
    flat : bool, default=True
        Whether dense instances lie as in memory or are packed; see `ShardWriter`.
    advance : callable, optional
        Told ``advance(steps, total=...)`` in rows as they are read.

    Returns
    -------
    ShardedBags
    """
    files = parquet_files(source)
    columns = {"bag": bag, "features": features, "labels": labels, "instance_label": instance_label}
    reader = _Reader({**columns, "info": tuple(info)}, label_names, part_bytes // _SHARE, advance)
    settings = {"part_bytes": part_bytes, "label_names": label_names, "flat": flat}
    write_shards(reader.pieces(files), folder, **settings)
    return ShardedBags.open(folder)


def parquet_files(source: str | os.PathLike[str]) -> list[tuple[Place, str]]:
    """Parquet files of a source, in order: the folder of each, and its name.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "b.parquet").touch(), (folder / "a.pq").touch(), (folder / "note.txt").touch()
    >>> [name for _, name in parquet_files(folder)]
    ['a.pq', 'b.parquet']
    """
    text = os.fspath(source)
    suffixes = (".parquet", ".pq")
    if "://" in text:
        place = Place(text)
        fs, root = place._remote
        if fs.isfile(root):
            return [(Place(text.rsplit("/", 1)[0]), text.rsplit("/", 1)[1])]
        found = sorted(p[len(root) :].lstrip("/") for p in fs.find(root) if p.endswith(suffixes))
        return [(place, name) for name in found if not name.startswith((".", "_"))]
    path = Path(text)
    if path.is_file():
        return [(Place(path.parent), path.name)]
    found = sorted(
        str(p.relative_to(path))
        for p in path.rglob("*")
        if p.name.lower().endswith(suffixes) and not p.name.startswith((".", "_"))
    )
    if not found:
        raise DataError("no Parquet file there" if path.exists() else "no such file or folder", path=path)
    return [(Place(path), name) for name in found]


class _Reader:
    """Pieces of some thousand bags from files of any size."""

    def __init__(self, columns: dict[str, Any], label_names: Any, piece_bytes: int, advance: Any) -> None:
        self.columns, self.label_names, self.advance = columns, label_names, advance
        self.piece_bytes = max(1, piece_bytes)
        self.widths: dict[str, int] = {}  # features of each view, once known
        self.features = columns["features"]

    def pieces(self, files: list[tuple[Place, str]]) -> Iterator[Dataset]:
        rest: pa.Table | None = None
        for place, name in files:
            path = place.join(name)
            # pages are read as they are wanted, not a row group at once
            paged = {"pre_buffer": False, "buffer_size": 1 << 20}
            with (
                damaged(path, "a Parquet file"),
                place.open(name) as handle,
                pq.ParquetFile(handle, **paged) as file,
            ):
                schema = file.schema_arrow
                stored = (schema.metadata or {}).get(KEY)
                per_bag = stored is not None or any(_holds_instances(field.type) for field in schema)
                for table in self._batches(file):
                    if per_bag:
                        yield self._bags(table, stored, Path(name))
                        continue
                    table = table if rest is None else pa.concat_tables([rest, table], promote_options="none")
                    whole, rest = self._whole_bags(table)
                    if whole is not None:
                        yield self._rows(whole)
        if rest is not None:
            yield self._rows(rest)

    def _batches(self, file: pq.ParquetFile) -> Iterator[pa.Table]:
        meta = file.metadata
        total = sum(meta.row_group(k).total_byte_size for k in range(meta.num_row_groups))
        rows = max(1, int(self.piece_bytes * max(meta.num_rows, 1) // max(total, 1)))
        for batch in file.iter_batches(batch_size=rows, use_threads=False):
            yield pa.Table.from_batches([batch])
            if self.advance is not None:
                self.advance(batch.num_rows)

    # ------------------------------------------------------------------ one row per bag

    def _bags(self, table: pa.Table, stored: bytes | None, path: Path) -> Dataset:
        if stored is None:
            labels = self.columns["labels"] or "labels"
            facts, table = foreign_facts(table, path, self.columns["bag"], labels, self.label_names)
        else:
            facts = loads(stored)
            facts.pop("ordered_splits", None)
        facts["views"] = {view: dict(about) for view, about in facts["views"].items()}
        for view, about in facts["views"].items():
            about.pop("n_instances", None)
            if about["n_features"] is None:
                about["n_features"] = self.widths.get(view)
        data = dataset_of_tables(iter([table]), facts, path, 1 << 62)
        for view in facts["views"]:
            bags: Any = data.bags[view] if facts["several_views"] else data.bags
            if bags.n_instances:
                self.widths.setdefault(view, bags.n_features)
        return data

    # ------------------------------------------------------------------ one row per instance

    def _whole_bags(self, table: pa.Table) -> tuple[pa.Table | None, pa.Table]:
        """Rows of bags that are complete, and those of the last one, of which more may come."""
        bag = self.columns["bag"]
        if bag not in table.column_names:
            found = ", ".join(map(repr, table.column_names[:10]))
            raise DataError(
                f"no column {bag!r} that says to which bag a row belongs; columns are {found}. "
                "Name it with bag=..."
            )
        ids = to_numpy(table.column(bag))
        others = np.flatnonzero(ids != ids[-1])
        if not others.size:
            return None, table
        end = int(others[-1]) + 1
        return table.slice(0, end), table.slice(end).combine_chunks()

    def _rows(self, table: pa.Table) -> Dataset:
        first = self.features is None
        if first:
            lists = [f.name for f in table.schema if is_list(f.type) and is_number(f.type.value_type)]
            self.features = lists[0] if len(lists) == 1 else None
        with warnings.catch_warnings():
            if not first:
                warnings.simplefilter("ignore", DataWarning)  # said about the first rows
            data = Dataset.from_frame(table, **{**self.columns, "features": self.features})
        if self.features is None:  # what the first rows settled holds for all
            self.features = list(data.bags.feature_names or ())  # type: ignore[union-attr]
        return data


def _holds_instances(kind: pa.DataType) -> bool:
    """Whether a column has a list of lists of numbers (or of index and value) in every row."""
    if not is_list(kind) or not is_list(kind.value_type):
        return False
    inner = kind.value_type.value_type
    return is_number(inner) or pa.types.is_struct(inner)
