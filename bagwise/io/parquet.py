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
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

from bagwise.bags import Bags
from bagwise.bags.arrow import RaggedBuilder, ragged_to_arrow, to_numpy
from bagwise.bags.dataset import Dataset
from bagwise.errors import DataError
from bagwise.io import _facts
from bagwise.io._parquet_pages import claimed_bytes, row_groups
from bagwise.io._parquet_tables import (
    foreign_facts,
    info_from_lists,
    info_to_lists,
    names_from_lists,
    names_to_lists,
    to_column,
)
from bagwise.io._source import (
    MAX_BYTES,
    check_finite,
    check_labels,
    check_size,
    check_unique_ids,
    damaged,
    read_bytes,
)
from bagwise.utils.files import check_file

NAME = "parquet"
SUFFIXES = (".parquet", ".pq")

_KEY = b"bagwise"
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
    n_bytes = sum(bags.X.data.nbytes for bags in _facts.views_of(dataset).values())
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


def table_of(dataset: Dataset) -> tuple[pa.Table, list[str], list[str]]:
    """The table, and the paths of its columns of floats and of names."""
    facts = _facts.facts_of(dataset)
    known = _facts.instance_labels_of(dataset)
    names = pa.array(dataset.label_names, pa.string())
    columns: dict[str, Any] = {"bag_id": to_column(dataset.bags.bag_ids, "bag ids")}
    floats, texts = [], ["labels.list.element"] if dataset.has_labels else []

    def add(name: str, column: Any) -> None:
        if name in columns:
            raise DataError(f"two columns would be called {name!r}; rename the view")
        columns[name] = column

    for view, bags in _facts.views_of(dataset).items():
        suffix = f":{view}" if facts["several_views"] else ""
        add(view, ragged_to_arrow(bags.X, bags.offsets))
        floats.append(f"{view}.list.element.list.element{'.value' if bags.is_sparse else ''}")
        if view in known:
            add("instance_labels" + suffix, names_to_lists(known[view], names, bags.offsets))
            texts.append(f"instance_labels{suffix}.list.element")
        if bags.instance_info:
            add("instance_info" + suffix, info_to_lists(bags.instance_info, bags.offsets))
    if dataset.has_labels:
        Y = dataset.Y_sparse
        add("labels", names_to_lists(Y.indices, names, Y.indptr))
    if dataset.groups is not None:
        add("group", to_column(dataset.groups, "groups"))
    if dataset.splits:
        add("splits", _splits_column(dataset))
        texts.append("splits.list.element")
        # A list per bag does not say in which order a part takes its bags.
        facts["ordered_splits"] = {
            name: which.tolist() for name, which in dataset.splits.items() if (np.diff(which) <= 0).any()
        }
    table = pa.table(columns)
    return table.replace_schema_metadata({_KEY: json.dumps(facts)}), floats, texts


def _splits_column(dataset: Dataset) -> pa.Array:
    member = np.zeros((len(dataset), len(dataset.splits)), dtype=bool)
    for k, which in enumerate(dataset.splits.values()):
        member[which, k] = True
    bag, part = np.nonzero(member)
    ends = np.searchsorted(bag, np.arange(len(dataset) + 1))
    return names_to_lists(part, pa.array(list(dataset.splits), pa.string()), ends)


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
        stored = (schema.metadata or {}).get(_KEY)
        if stored is None:
            facts, table = foreign_facts(pa.concat_tables(groups), path, bag, labels, label_names)
            groups = iter([table])
        else:
            facts = _facts.loads(stored)
        return dataset_of_tables(groups, facts, path, max_bytes)


def dataset_of_tables(
    groups: Iterator[pa.Table],
    facts: dict[str, Any],
    path: str | Path,
    max_bytes: int,
    *,
    finite: bool = False,
) -> Dataset:
    """Put together what comes, so that the matrix and a few row groups are all that is in memory.

    ``finite`` says that the numbers are known to be finite, by a checksum of what was looked at before.
    """
    builders = {}
    for view, about in facts["views"].items():
        n_rows, width = about.get("n_instances"), about["n_features"]
        hinted = isinstance(n_rows, int) and isinstance(width, int) and 0 <= n_rows * width * 8 <= max_bytes
        builders[view] = RaggedBuilder(width, n_rows if hinted else None)
    rest = []
    for table in groups:
        names = to_numpy(table.column("bag_id")) if "bag_id" in table.column_names else None
        for view, builder in builders.items():
            done = 0
            for chunk in table.column(view).chunks:
                builder.add(chunk, None if names is None else names[done:])
                done += len(chunk)
        rest.append(table.drop_columns(list(builders)))
    found = {view: builder.finish() for view, builder in builders.items()}
    return dataset_of_columns(found, pa.concat_tables(rest), facts, path, max_bytes, finite=finite)


def dataset_of_columns(
    instances: dict[str, tuple[Any, np.ndarray]],
    others: pa.Table,
    facts: dict[str, Any],
    path: str | Path,
    max_bytes: int,
    *,
    finite: bool = False,
) -> Dataset:
    """A data set of matrices and offsets by view, and of the other columns; see `dataset_of_tables`."""
    check_labels(others.num_rows, len(facts["label_names"]), max_bytes, path)
    columns = dict(zip(others.column_names, others.columns))
    label_names = pa.array(map(str, facts["label_names"]), pa.string())
    ids = to_numpy(columns["bag_id"]) if "bag_id" in columns else None
    check_unique_ids(ids, path)
    views, known = {}, {}
    for view, about in facts["views"].items():
        suffix = f":{view}" if facts["several_views"] else ""
        X, offsets = instances[view]
        if not finite:
            check_finite(X, offsets, ids, path, feature_names=about.get("feature_names"))
        info = None
        if (lists := columns.get("instance_info" + suffix)) is not None:
            info = info_from_lists(lists, offsets, about["info"])
        named = ids if about["named_bags"] else None
        views[view] = Bags(
            X, offsets, bag_ids=named, instance_info=info, feature_names=about.get("feature_names")
        )
        if (lists := columns.get("instance_labels" + suffix)) is not None:
            known[view] = names_from_lists(lists, label_names, ids, offsets)[1]
    Y = None
    if "labels" in columns:
        bag, label = names_from_lists(columns["labels"], label_names, ids)
        ones = np.ones(len(bag), dtype=np.int8)
        Y = sparse.coo_array((ones, (bag, label)), shape=(others.num_rows, len(label_names))).tocsr()
        Y.data[:] = 1  # a label named twice is there once
    elif len(label_names):
        raise DataError("has label names but no column of labels")
    groups_of_bags = to_numpy(columns["group"]) if "group" in columns else None
    return _facts.rebuild(facts, views, Y, known, groups_of_bags, _splits(columns, facts))


def _splits(columns: dict[str, pa.ChunkedArray], facts: dict[str, Any]) -> dict[str, np.ndarray]:
    names = list(map(str, facts["splits"]))
    if not names:
        return {}
    bag, part = names_from_lists(columns["splits"], pa.array(names, pa.string()), None)
    splits = {name: bag[part == k] for k, name in enumerate(names)}
    for name, which in facts.get("ordered_splits", {}).items():
        splits[name] = np.asarray(which, dtype=np.int64)
    return splits


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
