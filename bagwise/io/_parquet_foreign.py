"""Parquet tables that other software wrote: guess what our metadata would have said."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bagwise.errors import DataError
from bagwise.io._facts import ONE_VIEW, VERSION


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
    views = [f.name for f in table.schema if _is_list(f.type) and _holds_instances(f)]
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


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def _holds_instances(field: pa.Field) -> bool:
    inner = field.type.value_type
    if not (_is_list(inner) or pa.types.is_fixed_size_list(inner)) or field.name.startswith("instance_info"):
        return False
    return not (pa.types.is_string(inner.value_type) or pa.types.is_large_string(inner.value_type))


def _as_lists(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Label names in lists, whatever they were."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if not _is_list(kind):  # one label per bag
        text = column.cast(pa.string()).combine_chunks()
        ends = pc.cumulative_sum(text.is_valid().cast(pa.int64())).to_pylist()
        return pa.chunked_array([pa.LargeListArray.from_arrays([0, *ends], text.drop_null())])
    if not (pa.types.is_string(kind.value_type) or pa.types.is_large_string(kind.value_type)):
        column = column.cast(pa.large_list(pa.string()))
    return column


def _flat(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.list_flatten(column).cast(pa.string())
