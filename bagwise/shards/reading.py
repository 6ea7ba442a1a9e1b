"""Reading one part: its checksum before anything else, then its bags, or some of its columns."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bagwise.bags import Bags, MultiViewBags
from bagwise.bags.dataset import Dataset
from bagwise.errors import DataError
from bagwise.io._checks import damaged
from bagwise.io._facts import loads
from bagwise.io._parquet_columns import names_from_lists
from bagwise.io._parquet_flat import read_flat
from bagwise.io._parquet_groups import row_groups
from bagwise.io.parquet import dataset_of_columns, dataset_of_tables
from bagwise.shards.manifest import PartFacts
from bagwise.shards.place import Place, digest
from bagwise.utils.arrow import to_numpy

__all__ = ["check_part", "part_columns", "part_labels", "read_part"]

_KEY = b"bagwise"
_checked: set[tuple[str, str]] = set()  # parts whose checksum this process has seen to be right


def check_part(place: Place, part: PartFacts, *, again: bool = True) -> None:
    """Refuse a part that is missing, or whose bytes are not those that were written."""
    path = place.join(part.file)
    if not again and (path, part.sha256) in _checked:
        return
    try:
        with place.open(part.file) as handle:
            found = digest(handle)
    except FileNotFoundError:
        raise DataError("this part is missing", path=path) from None
    except OSError as error:
        raise DataError(f"this part cannot be read: {error}", path=path) from None
    if found != part.sha256:
        raise DataError(
            f"this part is damaged: its SHA-256 is {found[:12]}..., the manifest says {part.sha256[:12]}...; "
            "restore it from a copy, or write the shards again",
            path=path,
        )
    _checked.add((path, part.sha256))


def read_part(place: Place, part: PartFacts, names: tuple[str, ...] | None, first: int) -> Dataset:
    """The bags of a part with the labels ``names`` (None for no labels); ``first`` numbers its first bag."""
    check_part(place, part, again=False)
    path = place.join(part.file)
    try:
        data = _read(place, part, names, path)
    except DataError as error:
        if isinstance(error.__cause__, MemoryError):
            raise MemoryError(f"{path}: no memory for this part; write smaller ones (part_bytes)") from None
        raise
    if len(data) != part.n_bags or data.bags.n_instances != part.n_instances:
        raise DataError("this part holds other numbers of bags than the manifest says", path=path)
    return data if data.bags.ids_given else _numbered(data, first)


def _read(place: Place, part: PartFacts, names: tuple[str, ...] | None, path: str) -> Dataset:
    with damaged(path, "a part of shards"):
        source: Any = path if place.is_local else place.read_bytes(part.file)
        data = _read_flat(source, names, path)
        if data is not None:
            return data
        schema, groups = row_groups(source)
        facts = _facts(schema, names)
        if names is not None and "labels" not in schema.names:
            groups = (_without_labels(table) for table in groups)
        return dataset_of_tables(groups, facts, path, 1 << 62, finite=True)


def _read_flat(source: Any, names: tuple[str, ...] | None, path: str) -> Dataset | None:
    """The part if its instances lie flat, which is read without decoding them."""
    with (
        io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb", buffering=0) as handle,
        pq.ParquetFile(handle) as file,
    ):
        schema = file.schema_arrow
        facts = _facts(schema, names)
        views = facts["views"]
        rest = [name for name in schema.names if name not in views]
        if any(about["sparse"] for about in views.values()):
            return None
        others = file.read(columns=rest, use_threads=False)
        found = {}
        for view, about in views.items():
            size = f"size:{view}" if len(views) > 1 else "size"
            if size not in rest:
                return None
            sizes = to_numpy(others.column(size))
            X = read_flat(handle, file.metadata, view, sizes, about["n_features"], about["dtype"])
            if X is None:
                return None
            found[view] = X, np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
    if names is not None and "labels" not in schema.names:
        others = _without_labels(others)
    return dataset_of_columns(found, others, facts, path, 1 << 62, finite=True)


def _facts(schema: pa.Schema, names: tuple[str, ...] | None) -> dict[str, Any]:
    facts = loads((schema.metadata or {})[_KEY])
    facts["label_names"] = list(names or ())  # later parts may have brought more
    return facts


def _without_labels(table: pa.Table) -> pa.Table:
    nothing = pa.array([[]] * len(table), pa.large_list(pa.string()))
    return table.append_column("labels", nothing)


def _numbered(data: Dataset, first: int) -> Dataset:
    """Bags without names, called by their places among all bags."""
    ids = np.arange(first, first + len(data))

    def renamed(bags: Bags) -> Bags:
        new = bags._derive(bags.X, bags.offsets, ids, bags.instance_info)
        new.ids_given = False
        return new

    bags = data.bags
    if isinstance(bags, MultiViewBags):
        renewed: Any = MultiViewBags({name: renamed(view) for name, view in bags.views.items()})
    else:
        renewed = renamed(bags)
    object.__setattr__(data, "bags", renewed)
    return data


def part_columns(place: Place, part: PartFacts, columns: list[str]) -> pa.Table:
    """Some columns of a part, those that are there, without decoding the instances."""
    check_part(place, part, again=False)
    path = place.join(part.file)
    with damaged(path, "a part of shards"):
        source: Any = path if place.is_local else pa.BufferReader(place.read_bytes(part.file))
        with pq.ParquetFile(source) as file:
            there = [name for name in columns if name in file.schema_arrow.names]
            return file.read(columns=there, use_threads=False)


def part_labels(place: Place, part: PartFacts, names: tuple[str, ...]) -> np.ndarray:
    """The 0/1 matrix of a part's labels."""
    Y = np.zeros((part.n_bags, len(names)), dtype=np.int8)
    table = part_columns(place, part, ["labels"])
    if "labels" in table.column_names:
        bag, label = names_from_lists(table.column("labels"), pa.array(names, pa.string()), None)
        Y[bag, label] = 1
    return Y


def part_column(place: Place, part: PartFacts, name: str) -> np.ndarray | None:
    """One column of numbers or names, None if the part has none."""
    table = part_columns(place, part, [name])
    return to_numpy(table.column(name)) if name in table.column_names else None
