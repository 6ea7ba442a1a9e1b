"""One part of shards: its checksum before anything else, then its bags, or some of its columns."""

from __future__ import annotations

import hashlib
import io
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bagwise.bags import MultiViewBags, each_view
from bagwise.bags.arrow import to_numpy
from bagwise.bags.dataset import Dataset
from bagwise.errors import DataError
from bagwise.io._facts import loads
from bagwise.io._parquet_pages import read_flat, row_groups
from bagwise.io._parquet_tables import KEY, dataset_of_columns, dataset_of_tables, names_from_lists
from bagwise.io._source import damaged
from bagwise.shards.manifest import PartFacts
from bagwise.shards.place import Place

__all__ = [
    "PartSource",
    "check_part",
    "one_view",
    "part_columns",
    "part_labels",
    "read_part",
    "side_at_random",
    "side_of_groups",
]


_checked: set[tuple[str, str]] = set()  # parts whose checksum this process has seen to be right


def check_part(place: Place, part: PartFacts, *, again: bool = True) -> None:
    """Refuse a part that is missing, or whose bytes are not those that were written."""
    path = place.join(part.file)
    if not again and (path, part.sha256) in _checked:
        return
    try:
        with place.open(part.file) as handle:
            found = hashlib.file_digest(handle, "sha256").hexdigest()  # type: ignore[arg-type]
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
    if data.bags.ids_given:
        return data
    numbered = each_view(data.bags, lambda bags: bags.numbered(first))
    object.__setattr__(data, "bags", numbered)  # of bags just read nothing needs to be checked again
    return data


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
    facts = loads((schema.metadata or {})[KEY])
    facts["label_names"] = list(names or ())  # later parts may have brought more
    return facts


def _without_labels(table: pa.Table) -> pa.Table:
    nothing = pa.array([[]] * len(table), pa.large_list(pa.string()))
    return table.append_column("labels", nothing)


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


# ----------------------------------------------------------------------
# One part of shards with all that is done to it on the way into memory


class PartSource(NamedTuple):
    """One part of shards, to be loaded here or in another process."""

    place: Place
    facts: PartFacts
    label_names: tuple[str, ...] | None
    first: int
    which: np.ndarray | None
    view: str | None
    held: Dataset | None = None
    after: tuple[Any, ...] = ()

    @property
    def name(self) -> str:
        """Where the part lies."""
        return self.place.join(self.facts.file)

    def load(self) -> Dataset:
        """The bags that are taken from it."""
        if self.held is not None:
            return self.held
        data = read_part(self.place, self.facts, self.label_names, self.first)
        if self.which is not None:
            first, n = (int(self.which[0]), len(self.which)) if len(self.which) else (0, 0)
            run = n and self.which[-1] - first == n - 1  # consecutive bags as a slice, which shares memory
            data = data[slice(first, first + n) if run else self.which]
        data = data if self.view is None else one_view(data, self.view)
        for transformer in self.after:
            data = replace(data, bags=transformer.transform(data.bags))
        return data


def one_view(data: Dataset, view: str) -> Dataset:
    """A data set with one of its views."""
    assert isinstance(data.bags, MultiViewBags)
    known = data.instance_Y.get(view) if isinstance(data.instance_Y, dict) else None
    return replace(data, bags=data.bags[view], instance_Y=known)


# ----------------------------------------------------------------------
# Which bags of shards are for testing: drawn within every part, or by the names of groups


def side_at_random(n_bags: int, test_size: float, seed: list[int]) -> np.ndarray:
    """Mask of test bags of a part; their number is right on the average over parts.

    Examples
    --------
    >>> int(side_at_random(100, 0.3, [0, 1]).sum())
    30
    """
    rng = np.random.default_rng(seed)
    test = np.zeros(n_bags, dtype=bool)
    wanted = test_size * n_bags
    n_test = int(wanted) + int(rng.random() < wanted - int(wanted))
    test[rng.permutation(n_bags)[:n_test]] = True
    return test


def side_of_groups(names: list[str], test_size: float, seed: int) -> np.ndarray:
    """Mask of test bags; a group's side depends on its name alone, so that no part need know another.

    Examples
    --------
    >>> side_of_groups(["site 1", "site 2", "site 1"], 0.5, 0)[[0, 2]].tolist() in ([True] * 2, [False] * 2)
    True
    """
    salt, drawn = str(seed).encode()[:16], {}
    for name in set(names):  # a number from 0 to 1
        number = hashlib.blake2b(name.encode(), digest_size=8, salt=salt).digest()
        drawn[name] = int.from_bytes(number, "little") / 2.0**64
    return np.array([drawn[name] < test_size for name in names], dtype=bool)
