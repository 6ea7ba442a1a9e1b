"""Parquet, the native format: one row per bag, instances as lists; opens in pandas, polars and others.

=========================  ==================================================================================
column                     holds
=========================  ==================================================================================
``bag_id``                 name of the bag, or its position
``instances``              list of instances, each a ``fixed_size_list`` of numbers or, if sparse, a list of
                           ``(index, value)``; with several views one such column per view, under its name
``labels``                 list of the names of the bag's labels; no such column without labels
``instance_labels``        list of the names of the instances' labels, null where unknown (optional)
``instance_info``          list of structs: the facts about each instance (optional)
``group``                  group of the bag (optional)
``splits``                 list of the published parts that hold the bag (optional)
=========================  ==================================================================================

With several views, ``instance_labels:rgb`` and ``instance_info:rgb`` belong to the view ``rgb``. The schema's
metadata hold, under the key ``bagwise``, one JSON text with label names, widths, feature names and the like.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bagwise.bags import views_of
from bagwise.bags.dataset import Dataset
from bagwise.errors import DataError
from bagwise.io._facts import loads
from bagwise.io._parquet_pages import claimed_bytes, row_groups
from bagwise.io._parquet_tables import KEY, dataset_of_tables, foreign_facts, table_of
from bagwise.io._source import MAX_BYTES, check_size, damaged, read_bytes
from bagwise.utils.files import check_file

_GROUP_BYTES = 32 << 20  # of instances in a row group: several can be decoded at once, few are in flight


def recognises(path: Path, head: bytes) -> bool:
    """Whether the file begins like a Parquet file."""
    return head.startswith(b"PAR1")


def write(
    dataset: Dataset,
    path: str | Path,
    *,
    compression: str = "zstd",
    beside: dict[str, Any] | None = None,
) -> None:
    """Write one row per bag.

    Parameters
    ----------
    dataset : Dataset
        What to write.
    path : path
        Where to.
    compression : str, default="zstd"
        Of the pages: "zstd" packs best, "lz4" is decoded three times as fast.
    beside : mapping of str to array, optional
        Further columns, one value per bag, that `read` passes over.

    Examples
    --------
    >>> import tempfile
    >>> from bagwise import Bags
    >>> path = Path(tempfile.mkdtemp()) / "birds.parquet"
    >>> write(Dataset(Bags.from_list([[[1.0, 2.0]], [[3.0, 4.0]]]), [["wren"], []]), path)
    >>> pq.read_table(path).column_names
    ['bag_id', 'instances', 'labels']
    >>> read(path).label_sets
    [['wren'], []]
    """
    table, floats, texts = table_of(dataset)
    for name, values in (beside or {}).items():
        table = table.append_column(name, pa.array(values))
    n_bytes = sum(bags.X.data.nbytes for bags in views_of(dataset.bags).values())
    rows = max(1, _GROUP_BYTES * max(len(dataset), 1) // max(n_bytes, 1))
    pq.write_table(
        table,
        path,
        row_group_size=min(rows, max(len(dataset), 1)),
        compression=compression,
        use_dictionary=texts,
        use_byte_stream_split=floats,  # like bytes of floats stand together, and so compress
        write_statistics=False,  # nobody filters bags by the smallest feature value
    )


def read(
    path: str | Path,
    *,
    max_bytes: int = MAX_BYTES,
    labels: str = "labels",
    bag: str = "bag_id",
    label_names: Sequence[str] | None = None,
) -> Dataset:
    """Read one row per bag, also from a table that other software wrote in this layout.

    Parameters
    ----------
    path : path
        The file.
    max_bytes : int
        Refuse a file that takes more than this when unpacked.
    labels, bag : str
        Columns of label names and of bag ids. A table without bag ids has bags named by position, one
        without ``labels`` bags to be predicted.
    label_names : sequence of str, optional
        The labels in order, for tables of other software; by default the sorted names that occur.
    """
    path = Path(path)
    with damaged(path, "a Parquet file"):
        check_file(path)
        with open(path, "rb") as handle:
            packed = handle.read(2) == b"\x1f\x8b"
            source: Any = io.BytesIO(read_bytes(path, max_bytes)) if packed else handle
            _check_claims(source, max_bytes, path)
            content = source.getvalue() if packed else path
        schema, groups = row_groups(content)
        stored = (schema.metadata or {}).get(KEY)
        if stored is None:
            facts, table = foreign_facts(pa.concat_tables(groups), path, bag, labels, label_names)
            groups = iter([table])
        else:
            facts = loads(stored)
        return dataset_of_tables(groups, facts, path, max_bytes)


def _check_claims(source: Any, max_bytes: int, path: Path) -> None:
    """Refuse a file whose own directory says that it unpacks to more than allowed."""
    size = source.seek(0, 2)
    source.seek(max(size - 8, 0))
    tail = source.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != b"PAR1" or length + 8 > size:
        raise DataError("not a Parquet file, or damaged (it does not end like one)")
    check_size(length, max_bytes, path, "has a directory of")
    source.seek(size - 8 - length)
    check_size(claimed_bytes(source.read(length)), max_bytes, path)
    source.seek(0)
