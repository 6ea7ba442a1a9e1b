"""Writing long CSV: what it can hold, and how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

from bagwise.bags import Bags
from bagwise.dataset import Dataset
from bagwise.errors import DataError
from bagwise.io._csv_roles import RESERVED
from bagwise.io._facts import kind_of
from bagwise.io._parquet_columns import to_column

MAX_VALUES = 10_000_000  # a sparse matrix with more places than this is not written in full


def check_writable(dataset: Dataset) -> None:
    """Refuse what a table with one row per instance cannot hold."""
    bags = dataset.bags
    elsewhere = "write .parquet or .npz instead"
    if not isinstance(bags, Bags):
        raise DataError(f"CSV holds one view, this set has {len(bags.views)}; {elsewhere}")
    empty = np.flatnonzero(bags.sizes == 0)
    if empty.size or not len(bags):
        what = (
            f"bag {bags.bag_ids[empty[0]].item()!r} has no instances" if empty.size else "the set has no bags"
        )
        raise DataError(f"{what}, and CSV has one row per instance; {elsewhere}")
    if bags.is_sparse and bags.n_instances * bags.n_features > MAX_VALUES:
        raise DataError(
            f"a sparse matrix is written to CSV with all its zeros up to {MAX_VALUES:,} values, this one has "
            f"{bags.n_instances * bags.n_features:,}; {elsewhere}"
        )
    names = bags.feature_names or ()
    odd = [n for n in names if n in RESERVED or n.startswith(("info:", "label:"))]
    if odd or len(set(names)) != len(names) or not bags.n_features:
        what = f"the feature name {odd[0]!r} means something else" if odd else "features need different names"
        raise DataError(f"{what if bags.n_features else 'there are no features'} in CSV; {elsewhere}")
    for name, values in bags.instance_info.items():
        if values.ndim > 1 or values.dtype.kind not in "biufOTU" or kind_of(values) == "object":
            raise DataError(f"instance_info {name!r} is not one number or text per instance; {elsewhere}")
    for part, which in dataset.splits.items():
        if not which.size or (np.diff(which) <= 0).any() or not part or ";" in part:
            raise DataError(
                f"part {part!r} is empty, in an order of its own or has ';' in its name; {elsewhere}"
            )


def write(dataset: Dataset, path: str | Path) -> None:
    """Write one row per instance; a suffix .gz packs it."""
    check_writable(dataset)
    compression: Any = "gzip" if str(path).lower().endswith(".gz") else None
    with pa.output_stream(str(path), compression=compression) as stream:
        arrow_csv.write_csv(_table(dataset), stream)


def _table(dataset: Dataset) -> pa.Table:
    bags = dataset.bags
    assert isinstance(bags, Bags)
    rows = pa.array(bags.index)
    columns: list[tuple[str, Any]] = [("bag_id", to_column(bags.bag_ids, "bag ids").take(rows))]
    names = dataset.label_names
    if _survive(dataset):
        columns.append(
            ("labels", pa.array([";".join(s) for s in dataset.label_sets], pa.string()).take(rows))
        )
    else:
        columns += [(f"label:{name}", pa.array(dataset.Y[:, k]).take(rows)) for k, name in enumerate(names)]
    if dataset.instance_Y is not None:
        columns.append(
            ("instance_label", pa.array([*names, ""]).take(pa.array(dataset.instance_Y % (len(names) + 1))))
        )
    if dataset.groups is not None:
        columns.append(("group", to_column(dataset.groups, "groups").take(rows)))
    if dataset.splits:
        parts: list[list[str]] = [[] for _ in range(len(dataset))]
        for part, which in dataset.splits.items():
            for k in which:
                parts[k].append(part)
        columns.append(("splits", pa.array(map(";".join, parts), pa.string()).take(rows)))
    for name, values in bags.instance_info.items():
        columns.append((f"info:{name}", _info(values, name)))
    X = bags.X.toarray() if bags.is_sparse else bags.X
    titles = bags.feature_names or [f"f{k}" for k in range(1, bags.n_features + 1)]
    for k, title in enumerate(titles):
        # In full double precision also for float32, so that the same values come back.
        columns.append((title, pa.array(X[:, k].astype(np.float64))))
    return pa.table([column for _, column in columns], names=[name for name, _ in columns])


def _info(values: np.ndarray, name: str) -> pa.Array:
    if values.dtype.kind == "b":
        return pa.array(np.where(values, "True", "False"))
    if values.dtype.kind == "f":
        values = values.astype(np.float64)
    return to_column(values, f"instance_info {name!r}")


def _survive(dataset: Dataset) -> bool:
    """Whether a reader of the ``labels`` column finds the same labels in the same order."""
    occurring = [name for name, n in zip(dataset.label_names, dataset.Y.sum(axis=0)) if n]
    plain = all(name and ";" not in name and name == name.strip() for name in dataset.label_names)
    return plain and list(dataset.label_names) == sorted(occurring)
