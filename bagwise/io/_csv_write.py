"""Writing long CSV: what it can hold, what is dropped, and how the rest is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

from bagwise.bags import Bags
from bagwise.bags.dataset import MOST_FLAGS, UNKNOWN, Dataset, bag_columns
from bagwise.errors import DataError, listed, quoted
from bagwise.io._csv_roles import FEATURE, is_plain
from bagwise.io._facts import kind_of
from bagwise.io._grouping import LONGEST_NAME
from bagwise.io._parquet_columns import to_column
from bagwise.io._writable import lost_facts
from bagwise.utils.frames import feature_titles

MAX_VALUES = 10_000_000  # a sparse matrix with more places than this is not written in full
_ELSEWHERE = "write .parquet or .npz instead"


def check_writable(dataset: Dataset) -> None:
    """Refuse what a table with one row per instance cannot hold even in part."""
    bags = dataset.bags
    if not isinstance(bags, Bags):
        views = ", ".join(bags.view_names)
        raise DataError(f"CSV holds one view, this set has {len(bags.views)} ({views}); {_ELSEWHERE}")
    if not bags.n_instances:
        what = "no bag has instances" if len(bags) else "the set has no bags"
        raise DataError(f"{what}, and CSV has one row per instance; {_ELSEWHERE}")
    if not bags.n_features:
        raise DataError(f"there are no features to be written as CSV; {_ELSEWHERE}")
    if bags.is_sparse and bags.n_instances * bags.n_features > MAX_VALUES:
        raise DataError(
            f"a sparse matrix is written to CSV with all its zeros up to {MAX_VALUES:,} values, this one has "
            f"{bags.n_instances * bags.n_features:,}; {_ELSEWHERE}"
        )
    for i in bags.bag_ids.tolist():
        if isinstance(i, str) and not 0 < len(i) <= LONGEST_NAME:
            problem = f"a bag has {len(i):,} characters in its id" if i else "a bag has the empty id ''"
            raise DataError(f"{problem}; in CSV ids have 1 to {LONGEST_NAME}. Rename it, or {_ELSEWHERE}")


def lost(dataset: Dataset) -> list[str]:
    """What CSV cannot say and `write` leaves out."""
    return _simplified(dataset)[1]


def write(dataset: Dataset, path: str | Path) -> None:
    """Write one row per instance; a suffix .gz packs it."""
    check_writable(dataset)
    compression: Any = "gzip" if str(path).lower().endswith(".gz") else None
    with pa.output_stream(str(path), compression=compression) as stream:
        arrow_csv.write_csv(_table(_simplified(dataset)[0]), stream)


def _simplified(dataset: Dataset) -> tuple[Dataset, list[str]]:
    """What can be written, and what cannot."""
    gone: list[str] = []
    bags = dataset.bags
    assert isinstance(bags, Bags)
    filled = np.flatnonzero(bags.sizes)
    if len(filled) < len(bags):
        ids = bags.bag_ids[bags.sizes == 0].tolist()
        gone.append(f"bags without instances ({listed(map(quoted, ids), 5)})")
        place = np.full(len(bags), -1)
        place[filled] = np.arange(len(filled))
        parts = {part: place[which] for part, which in dataset.splits.items()}
        parts = {part: which[which >= 0] for part, which in parts.items()}
        dataset = replace(dataset[filled], splits=parts)
        assert isinstance(dataset.bags, Bags)
        bags = dataset.bags
    info = {}
    for name, values in bags.instance_info.items():
        plain = _plain_info(values)
        if plain is None:
            gone.append(f"the fact {name!r}, which is not one number or text per instance")
        else:
            info[name] = plain
    names = bags.feature_names
    if names is not None and len(set(names)) != len(names):
        gone.append("the names of features, which are not all different")
        names = None
    plain_bags = Bags(bags.X, bags.offsets, bag_ids=bags.bag_ids, instance_info=info, feature_names=names)
    splits, known = {}, dataset.instance_Y
    for part, which in dataset.splits.items():
        if not which.size or not part or ";" in part:
            gone.append(f"the part {part!r}, which is empty or has ';' in its name")
            continue
        if (np.diff(which) <= 0).any():
            gone.append(f"the order of the part {part!r}")
        splits[part] = np.unique(which)
    if known is not None and "" in dataset.label_names:
        nameless = dataset.label_names.index("")
        if (known == nameless).any():
            gone.append("the label '' of instances")
            known = np.where(known == nameless, UNKNOWN, known)
    gone += lost_facts(dataset, ("description", "citation", "licence", "recipe"))
    if len(dataset.label_names) > MOST_FLAGS:  # written as names, whatever gets lost
        if list(dataset.label_names) != sorted(dataset.label_names):
            gone.append("the order of the labels")
        if (dataset.label_counts == 0).any():
            gone.append("labels that no bag has")
    return replace(dataset, bags=plain_bags, Y=dataset.Y_sparse, instance_Y=known, splits=splits), gone


def _plain_info(values: np.ndarray) -> np.ndarray | None:
    """One number or text per instance, or None if they are not."""
    if values.ndim > 1:
        return None
    if values.dtype.kind in "Mm":
        return values.astype(str)
    try:
        kind = kind_of(values)
    except DataError:
        return None
    return values if kind != "object" else np.array([v or "" for v in values.tolist()])


def _table(dataset: Dataset) -> pa.Table:
    bags = dataset.bags
    assert isinstance(bags, Bags)
    rows = pa.array(bags.index)
    columns: list[tuple[str, Any]] = [("bag_id", _exact(bags.bag_ids, "bag ids").take(rows))]
    for title, values in bag_columns(dataset).items():
        columns.append((title, _exact(np.asarray(values), title).take(rows)))
    names = dataset.label_names
    if dataset.instance_Y is not None:
        columns.append(
            ("instance_label", pa.array([*names, ""]).take(pa.array(dataset.instance_Y % (len(names) + 1))))
        )
    for name, values in bags.instance_info.items():
        columns.append((f"info:{name}", _exact(values, f"instance_info {name!r}")))
    X = bags.X.toarray() if bags.is_sparse else bags.X
    for k, title in enumerate(feature_titles(bags)):
        # In full double precision also for float32, so that the same values come back.
        plain = title if is_plain(title) else FEATURE + title
        columns.append((plain, pa.array(X[:, k].astype(np.float64))))
    return pa.table([column for _, column in columns], names=[name for name, _ in columns])


def _exact(values: np.ndarray, what: str) -> pa.Array:
    """A column whose text is read back as the same values: Arrow writes 1.0 as 1."""
    if values.dtype.kind == "b":
        return pa.array(np.where(values, "True", "False"))
    if values.dtype.kind == "f":
        return pa.array([repr(v) for v in values.astype(np.float64).tolist()], pa.string())
    return to_column(values, what)
