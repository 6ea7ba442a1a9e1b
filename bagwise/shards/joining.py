"""Pieces of data sets put together into one, and what a piece weighs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from bagwise.bags import Bags, MultiViewBags
from bagwise.bags.dataset import UNKNOWN, Dataset
from bagwise.errors import DataError

__all__ = ["KnownHashes", "bag_bytes", "id_hashes", "join", "views_of", "without_ids", "without_instances"]

ONE_VIEW = "instances"


def views_of(bags: Any) -> Mapping[str, Bags]:
    """Views by name; the only one of plain bags is called "instances"."""
    return bags.views if isinstance(bags, MultiViewBags) else {ONE_VIEW: bags}


def bag_bytes(bags: Any) -> np.ndarray:
    """Bytes that the instances of each bag take in memory, all views together.

    Examples
    --------
    >>> bag_bytes(Bags(np.ones((3, 2)), [0, 1, 3])).tolist()
    [16, 32]
    """
    total = np.zeros(len(bags), dtype=np.int64)
    for view in views_of(bags).values():
        if view.is_sparse:
            ends = view.X.indptr.astype(np.int64)[view.offsets]
            each = view.X.data.itemsize + view.X.indices.itemsize
            total += np.diff(ends) * each + view.sizes * view.X.indptr.itemsize
        else:
            total += view.sizes * view.n_features * view.X.itemsize
    return total


def id_hashes(ids: np.ndarray) -> np.ndarray:
    """A 64-bit number for every id, the same in every process.

    Examples
    --------
    >>> a, b, c = id_hashes(np.array(["wren", "robin", "wren"]))
    >>> bool(a == c != b)
    True
    """
    if ids.dtype.kind in "iu":
        return ids.astype(np.int64).view(np.uint64)
    from pandas.util import hash_array

    return hash_array(ids.astype(str).astype(object), categorize=False)


class KnownHashes:
    """Numbers that were seen, in sorted runs, each at least twice as long as the next: few to look into.

    Examples
    --------
    >>> known = KnownHashes()
    >>> for first in range(0, 50, 10):
    ...     known.add(np.arange(first, first + 10, dtype=np.uint64))
    >>> known.has(np.array([3, 49, 50], dtype=np.uint64)).tolist(), len(known.runs)
    ([True, True, False], 2)
    """

    def __init__(self) -> None:
        self.runs: list[np.ndarray] = []

    def add(self, numbers: np.ndarray) -> None:
        """Take numbers that were not seen before."""
        run = np.sort(numbers)
        while self.runs and len(self.runs[-1]) < 2 * len(run):
            run = np.sort(np.concatenate([self.runs.pop(), run]), kind="stable")
        self.runs.append(run)

    def has(self, numbers: np.ndarray) -> np.ndarray:
        """Whether each was seen."""
        found = np.zeros(len(numbers), dtype=bool)
        for run in self.runs:
            if len(run):
                found |= run[np.minimum(np.searchsorted(run, numbers), len(run) - 1)] == numbers
        return found


def without_instances(data: Dataset) -> Dataset:
    """All of a data set but its instances, which have no features any more."""

    def thin(bags: Bags) -> Bags:
        new = bags._derive(bags.X[:, :0], bags.offsets, bags._bag_ids, bags.instance_info)
        new.feature_names = None
        return new

    if isinstance(data.bags, MultiViewBags):
        return replace(data, bags=MultiViewBags({name: thin(view) for name, view in data.bags.views.items()}))
    return replace(data, bags=thin(data.bags))


def without_ids(data: Dataset) -> Dataset:
    """A data set whose bags are called by position: those of a slice keep the places they had before."""

    def nameless(bags: Bags) -> Bags:
        new = bags._derive(bags.X, bags.offsets, None, bags.instance_info)
        new.ids_given = False
        return new

    if isinstance(data.bags, MultiViewBags):
        views = {name: nameless(view) for name, view in data.bags.views.items()}
        return replace(data, bags=MultiViewBags(views))
    return replace(data, bags=nameless(data.bags))


def join(pieces: Sequence[Dataset]) -> Dataset:
    """One data set of several, in order; label names that differ become their sorted union.

    Examples
    --------
    >>> one = Dataset(Bags([[1.0]], [0, 1]), [["wren"]])
    >>> two = Dataset(Bags([[2.0]], [0, 1]), [["robin"]])
    >>> join([one, two]).label_sets
    [['wren'], ['robin']]
    """
    if len(pieces) == 1:
        return pieces[0]
    first = pieces[0]
    several = isinstance(first.bags, MultiViewBags)
    bags: Any = (MultiViewBags if several else Bags).concat([piece.bags for piece in pieces])  # type: ignore
    names = joined_names([piece.label_names for piece in pieces])
    starts = np.cumsum([0] + [len(piece) for piece in pieces])
    splits: dict[str, list[np.ndarray]] = {}
    for piece, start in zip(pieces, starts):
        for name, which in piece.splits.items():
            splits.setdefault(name, []).append(which + start)
    groups = [piece.groups for piece in pieces]
    if any(g is None for g in groups) != all(g is None for g in groups):
        raise DataError("some pieces have groups and others have none; give them all, or none")
    return Dataset(
        bags,
        sparse.vstack([_columns(p, names) for p in pieces], format="csr") if names else None,  # type: ignore[arg-type]
        names,
        instance_Y=_instance_labels(pieces, names, several),
        name=first.name,
        description=first.description,
        citation=first.citation,
        licence=first.licence,
        groups=None if groups[0] is None else np.concatenate(groups),  # type: ignore[arg-type]
        splits={name: np.concatenate(which) for name, which in splits.items()},
        recipe=first.recipe if all(piece.recipe == first.recipe for piece in pieces) else None,
    )


def joined_names(names: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Label names in the order that all have, or sorted where they differ."""
    different = set(names)
    if len(different) == 1:
        return tuple(names[0])
    return tuple(sorted(set().union(*different)))


def _places(piece: Dataset, names: tuple[str, ...]) -> np.ndarray:
    place = {name: k for k, name in enumerate(names)}
    return np.array([place[name] for name in piece.label_names] + [UNKNOWN], dtype=np.int64)


def _columns(piece: Dataset, names: tuple[str, ...]) -> sparse.csr_array:
    """Labels of a piece in columns of the common names."""
    Y = piece.Y_sparse
    if piece.label_names == names:
        return Y
    indices = _places(piece, names)[Y.indices]
    moved = sparse.csr_array((Y.data, indices, Y.indptr), shape=(len(piece), len(names)))
    moved.sort_indices()
    return moved


def _instance_labels(pieces: Sequence[Dataset], names: tuple[str, ...], several: bool) -> Any:
    if all(piece.instance_Y is None for piece in pieces):
        return None

    def of(piece: Dataset, view: str, bags: Bags) -> np.ndarray:
        known = piece.instance_Y.get(view) if isinstance(piece.instance_Y, Mapping) else piece.instance_Y
        if known is None:
            return np.full(bags.n_instances, UNKNOWN, dtype=np.int64)
        return _places(piece, names)[known]  # UNKNOWN, -1, picks the last

    found = {
        view: np.concatenate([of(piece, view, views_of(piece.bags)[view]) for piece in pieces])
        for view in views_of(pieces[0].bags)
    }
    return found if several else found[ONE_VIEW]
