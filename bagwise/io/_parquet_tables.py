"""Between data sets and Parquet tables with one row per bag, those of other software too."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from bagwise.bags import ONE_VIEW, Bags, views_of
from bagwise.bags.arrow import RaggedBuilder, has_offsets, ragged_to_arrow, to_numpy, unpack_lists
from bagwise.bags.dataset import Dataset
from bagwise.bags.labels import KEPT_DENSE, unknown_label
from bagwise.errors import DataError
from bagwise.io._facts import VERSION, as_kind, facts_of, instance_labels_of, kind_of, rebuild
from bagwise.io._source import check_finite, check_size, check_unique_ids

KEY = b"bagwise"  # of our facts in the metadata of a schema


def to_column(values: np.ndarray, what: str) -> pa.Array:
    """A flat Arrow array of numbers, times or text."""
    if values.ndim != 1:
        raise DataError(f"{what} must be one value each to be written, got {values.ndim} dimensions")
    try:
        if values.dtype.kind in "UOT":
            return pa.array(values.tolist())
        kind_of(values)
        return pa.array(np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("=")))
    except (pa.ArrowException, UnicodeError) as error:
        raise DataError(f"{what} must be all numbers or all text to be written ({error})") from None


def names_to_lists(index: np.ndarray, names: pa.Array, offsets: np.ndarray) -> pa.LargeListArray:
    """Lists of names from indices (-1 for none) and the places where lists begin."""
    taken = names.take(pa.array(index, pa.int64(), mask=index < 0))
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), taken)


def names_from_lists(
    column: pa.ChunkedArray, names: pa.Array, bag_ids: Any, offsets: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Bag number and name index (-1 for null) of every entry of a column of lists of names.

    ``offsets``, when given, are those that the lists must have.
    """
    cuts, values = _lists(column, "names", offsets)
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        values = values.cast(pa.string())
    index = pc.index_in(values, value_set=names.cast(values.type))
    bag = np.repeat(np.arange(len(cuts) - 1), np.diff(cuts))
    gaps = values.is_null()
    unknown = pc.and_(index.is_null(), pc.invert(gaps))
    if offsets is None and values.null_count:
        raise DataError(
            f"bag {_name(bag_ids, bag, gaps)!r} has a label that is null; leave it out of the list"
        )
    if pc.any(unknown).as_py():
        k = pc.index(unknown, True).as_py()
        raise unknown_label(values[k].as_py(), names.to_pylist(), _name(bag_ids, bag, unknown))
    return bag, index.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)


def info_to_lists(info: dict[str, np.ndarray], offsets: np.ndarray) -> pa.LargeListArray:
    """Lists of structs; an array with more dimensions becomes a fixed_size_list of its flat rows."""
    fields = []
    for name, values in info.items():
        flat = to_column(values.reshape(-1), f"instance_info {name!r}")
        if values.ndim > 1:
            width = int(np.prod(values.shape[1:]))
            if width == 0:
                raise DataError(f"instance_info {name!r} holds nothing (shape {values.shape}); leave it out")
            flat = pa.FixedSizeListArray.from_arrays(flat, width)
        fields.append(flat)
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.StructArray.from_arrays(fields, list(info)))


def info_from_lists(column: pa.ChunkedArray, offsets: np.ndarray, kinds: Any) -> dict[str, np.ndarray]:
    """Facts about instances from lists of structs; ``kinds`` says what they were, None to guess."""
    _, rows = _lists(column, "facts", offsets)
    if not pa.types.is_struct(rows.type):
        raise DataError(f"instance_info must be lists of structs, got {column.type}")
    info = {}
    for k, field in enumerate(rows.type):
        values = to_numpy(rows.field(k))
        about = None if kinds is None else kinds.get(field.name)
        info[field.name] = values if about is None else as_kind(values, about["dtype"], about["shape"])
    return info


def _lists(column: pa.ChunkedArray, what: str, expected: np.ndarray | None) -> tuple[np.ndarray, pa.Array]:
    if not has_offsets(column.type):
        raise DataError(f"expected a list of {what} per bag, got {column.type}")
    joined = column.combine_chunks()
    if joined.null_count:
        raise DataError(f"row {pc.index(joined.is_null(), True).as_py()} has no list of {what}; write []")
    cuts, values = unpack_lists(joined)
    if expected is not None and not np.array_equal(cuts, expected):
        row = int(np.flatnonzero(cuts[1:] != expected[1:])[0]) if len(cuts) == len(expected) else 0
        raise DataError(f"row {row} has a list of {what} that is not as long as its list of instances")
    return cuts, values


def _name(bag_ids: Any, bag: np.ndarray, mask: pa.Array) -> Any:
    number = int(bag[pc.index(mask, True).as_py()])
    return number if bag_ids is None else bag_ids[number]


# ---------------------------------------------------------------------- whole tables


def table_of(dataset: Dataset) -> tuple[pa.Table, list[str], list[str]]:
    """The table, and the paths of its columns of floats and of names."""
    facts = facts_of(dataset)
    known = instance_labels_of(dataset)
    names = pa.array(dataset.label_names, pa.string())
    columns: dict[str, Any] = {"bag_id": to_column(dataset.bags.bag_ids, "bag ids")}
    floats, texts = [], ["labels.list.element"] if dataset.has_labels else []

    def add(name: str, column: Any) -> None:
        if name in columns:
            raise DataError(f"two columns would be called {name!r}; rename the view")
        columns[name] = column

    for view, bags in views_of(dataset.bags).items():
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
    return table.replace_schema_metadata({KEY: json.dumps(facts)}), floats, texts


def _splits_column(dataset: Dataset) -> pa.Array:
    member = np.zeros((len(dataset), len(dataset.splits)), dtype=bool)
    for k, which in enumerate(dataset.splits.values()):
        member[which, k] = True
    bag, part = np.nonzero(member)
    ends = np.searchsorted(bag, np.arange(len(dataset) + 1))
    return names_to_lists(part, pa.array(list(dataset.splits), pa.string()), ends)


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
    n_labels = len(facts["label_names"])
    check_size(min(others.num_rows * n_labels, KEPT_DENSE), max_bytes, path, "has label sets of")
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
    return rebuild(facts, views, Y, known, groups_of_bags, _splits(columns, facts))


def _splits(columns: dict[str, pa.ChunkedArray], facts: dict[str, Any]) -> dict[str, np.ndarray]:
    names = list(map(str, facts["splits"]))
    if not names:
        return {}
    bag, part = names_from_lists(columns["splits"], pa.array(names, pa.string()), None)
    splits = {name: bag[part == k] for k, name in enumerate(names)}
    for name, which in facts.get("ordered_splits", {}).items():
        splits[name] = np.asarray(which, dtype=np.int64)
    return splits


# ----------------------------------------------------------------------
# Parquet tables that other software wrote: guess what our metadata would have said


def foreign_facts(
    table: pa.Table, path: Path, bag: str, labels: str, label_names: Sequence[str] | None
) -> tuple[dict[str, Any], pa.Table]:
    """Facts about a bare table, and the table with our column names.

    Views are the columns with lists of lists; the label column holds lists of names or of numbers (which
    become names), or one per bag; there may be none. Other columns than those of our layout are left out.
    """
    if labels not in table.column_names and (labels != "labels" or label_names is not None):
        found = ", ".join(map(repr, table.column_names))
        raise DataError(f"no column {labels!r} of labels; columns are {found}. Name it with labels=...")
    views = [f.name for f in table.schema if has_offsets(f.type) and _holds_instances(f)]
    if not views:
        raise DataError("no column holds lists of instances, each a list of numbers")
    several = len(views) > 1
    columns = {view if several else ONE_VIEW: table.column(view) for view in views}
    if labels in table.column_names:
        columns["labels"] = _as_lists(table.column(labels))
    if bag in table.column_names:
        columns["bag_id"] = table.column(bag)
    for name in ("instance_labels", "instance_info"):
        for suffix in [f":{view}" for view in views] if several else [""]:
            if name == "instance_labels" and "labels" not in columns:
                continue
            if name + suffix in table.column_names:
                columns[name + suffix] = table.column(name + suffix)
    if "group" in table.column_names:
        columns["group"] = table.column("group")
    if label_names is None:
        entries = [c for name, c in columns.items() if name == "labels" or name.startswith("instance_labels")]
        occurring = {name for column in entries for name in pc.unique(_flat(column)).to_pylist()}
        label_names = sorted(occurring - {None})
    about = {"n_features": None, "named_bags": "bag_id" in columns, "feature_names": None, "info": None}
    facts = {
        "version": VERSION,
        "name": path.name.partition(".")[0],
        "several_views": several,
        "label_names": list(label_names),
        "splits": [],
        "views": dict.fromkeys(views if several else [ONE_VIEW], about),
    }
    return facts, pa.table(columns)


def _holds_instances(field: pa.Field) -> bool:
    inner = field.type.value_type
    if not (has_offsets(inner) or pa.types.is_fixed_size_list(inner)) or field.name.startswith(
        "instance_info"
    ):
        return False
    return not (pa.types.is_string(inner.value_type) or pa.types.is_large_string(inner.value_type))


def _as_lists(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Label names in lists, whatever they were."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if not has_offsets(kind):  # one label per bag
        text = column.cast(pa.string()).combine_chunks()
        ends = pc.cumulative_sum(text.is_valid().cast(pa.int64())).to_pylist()
        return pa.chunked_array([pa.LargeListArray.from_arrays([0, *ends], text.drop_null())])
    if not (pa.types.is_string(kind.value_type) or pa.types.is_large_string(kind.value_type)):
        column = column.cast(pa.large_list(pa.string()))
    return column


def _flat(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.list_flatten(column).cast(pa.string())
