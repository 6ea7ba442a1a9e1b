"""Writing shards as a stream: bags come in pieces of any size, parts appear one by one, each in one step.

Where parts are cut depends on the bags alone, not on the pieces that they came in, so a stopped write that
goes on later ends in the same files as one that was never stopped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from bagwise.bags import Bags, MultiViewBags, each_view, views_of
from bagwise.bags.arrow import to_numpy
from bagwise.bags.dataset import Dataset, joined_names
from bagwise.bags.labels import unknown_label
from bagwise.errors import DataError, quoted
from bagwise.io import parquet
from bagwise.io._facts import ABOUT, facts_of
from bagwise.io._parquet_pages import write_flat
from bagwise.io._source import check_finite
from bagwise.shards.manifest import MANIFEST, PARTIAL, Manifest, PartFacts, part_name
from bagwise.shards.place import Place

__all__ = ["PART_BYTES", "ShardWriter"]

PART_BYTES = 128 << 20
_SAME = ("n_features", "dtype", "sparse", "feature_names", "info")  # what all pieces must agree on


class ShardWriter:
    """Write bags to a folder of Parquet parts, piece by piece; see `ShardedBags`.

    Parameters
    ----------
    folder : path or address
        A new folder; or one in which an earlier write was stopped, which then goes on.
    part_bytes : int, default=128 MiB
        Size of a part, in bytes that its instances take in memory. A bag is never split.
    label_names : sequence of str, optional
        The labels in order; a piece with any other is refused. By default the order of the pieces if all have
        the same, or else all names that occur, sorted.
    flat : bool, default=True
        Whether dense instances lie in the parts as in memory, which is read ten times as fast; otherwise they
        are packed (lz4), for places where room or the way there is dear.
    skip : bool, default=True
        When a stopped write goes on: whether the pieces come again from the first bag (those that are there
        already are passed over, after a look at their ids), or from bag ``n_written`` on.

    Attributes
    ----------
    n_written : int
        Bags that stand in parts on disk.

    Examples
    --------
    >>> import tempfile
    >>> from bagwise import ShardedBags
    >>> folder = tempfile.mkdtemp() + "/birds"
    >>> with ShardWriter(folder, part_bytes=64) as writer:
    ...     writer.add(Dataset(Bags(np.ones((3, 2)), [0, 1, 3], bag_ids=["a", "b"]), [["wren"], []]))
    ...     writer.add(Dataset(Bags(np.ones((4, 2)), [0, 4], bag_ids=["c"]), [["robin"]]))
    >>> ShardedBags.open(folder)
    ShardedBags(3 bags, 7 instances, 2 features, dense float64, 2 labels, 2 parts)
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        part_bytes: int = PART_BYTES,
        label_names: Iterable[str] | None = None,
        flat: bool = True,
        skip: bool = True,
    ) -> None:
        if part_bytes < 1:
            raise ValueError(f"part_bytes must be at least 1, got {part_bytes}")
        self.place, self.part_bytes, self.flat = Place(folder), int(part_bytes), flat
        self._given = None if label_names is None else tuple(map(str, label_names))
        self._pieces: list[Dataset] = []
        self._n_bytes = 0
        self._counts: dict[str, int] = {}
        self._names: tuple[str, ...] | None = self._given
        self._so_far: Manifest | None = None
        self._seen = np.empty(0, np.uint64)  # hashes of the ids on disk, in order, while bags come again
        self._known = KnownHashes()
        self._closed = False
        self._start()
        self.n_written = 0 if self._so_far is None else self._so_far.n_bags
        self._to_skip = self.n_written if skip else 0

    def _start(self) -> None:
        if self.place.is_local and os.path.exists(self.place.folder) and not os.path.isdir(self.place.folder):
            raise self._wrong("is a file; give the name of a folder")
        names = self.place.names()
        if MANIFEST in names:
            raise self._wrong("holds shards already; give the name of a new folder")
        if PARTIAL not in names:
            ours = [n for n in names if not (n.startswith((".part-", ".manifest")) or n == part_name(0))]
            if ours:
                raise self._wrong(f"holds other files ({ours[0]}); give the name of a new folder")
            return
        before = self._so_far = Manifest.read(self.place, PARTIAL)
        self._counts = dict(zip(before.label_names, before.label_counts))
        if self._given is None:
            self._names = before.label_names
        elif self._given != before.label_names:
            raise self._wrong("was begun with other label names; give a new folder")
        found = []
        for part in before.parts:
            with self.place.open(part.file) as handle:
                found.append(id_hashes(to_numpy(pq.read_table(handle, columns=["bag_id"]).column("bag_id"))))
        self._seen = np.concatenate([self._seen, *found])
        for hashes in found:
            self._known.add(hashes)

    def _wrong(self, problem: str) -> DataError:
        return DataError(problem, path=self.place.folder)

    # ------------------------------------------------------------------ adding

    def add(self, data: Dataset | Bags | MultiViewBags) -> None:
        """Take the next bags; whole parts are written at once, the rest waits for more."""
        piece = data if isinstance(data, Dataset) else Dataset(data)
        if self._closed:
            raise ValueError("the writer is closed")
        if self._so_far is not None and _as_text(self._so_far.recipe) != _as_text(piece.recipe):
            problem = "was begun with bags that were made in another way (another recipe)"
            raise self._wrong(f"{problem}; begin in a new folder")
        if self._to_skip:
            piece = self._passed_over(piece)
        if not len(piece):
            return
        self._check(piece)
        self._pieces.append(piece)
        self._n_bytes += int(bag_bytes(piece.bags).sum())
        while self._n_bytes > self.part_bytes and self._cut():
            pass

    def _passed_over(self, piece: Dataset) -> Dataset:
        """What of a piece is not on disk yet; the ids of the rest must be those on disk."""
        first, n = self.n_written - self._to_skip, min(self._to_skip, len(piece))
        if piece.bags.ids_given:
            expected = self._seen[first : first + n]
            differ = np.flatnonzero(id_hashes(piece.bags.bag_ids[:n]) != expected)
            if differ.size:
                raise self._wrong(
                    f"bag {first + differ[0]} is {quoted(piece.bags.bag_ids[differ[0]])}, which is not the "
                    "one that stands there; the source has changed: begin in a new folder"
                )
        self._to_skip -= n
        return piece[n:]

    def _check(self, piece: Dataset) -> None:
        """Refuse a piece that does not go with those before."""
        for bags in views_of(piece.bags).values():
            names = bags.feature_names
            check_finite(bags.X, bags.offsets, bags.bag_ids, self.place.folder, feature_names=names)
        if self._given is not None:
            for name in piece.label_names:
                if name not in self._given:
                    raise unknown_label(name, self._given)
        facts = facts_of(piece)
        views = {view: {key: about[key] for key in _SAME} for view, about in facts["views"].items()}
        for view, about in views.items():
            about["feature_names"] = None if about["feature_names"] is None else list(about["feature_names"])
            about["named_bags"] = views_of(piece.bags)[view].ids_given
            for kind in about["info"].values():  # text with gaps in some pieces is text
                kind["dtype"] = "text" if kind["dtype"] == "object" else kind["dtype"]
        if self._so_far is None:
            about = {key: facts[key] for key in ABOUT if key in facts}
            several, grouped = facts["several_views"], piece.groups is not None
            self._so_far = Manifest(about, (), (), views, several, False, grouped, False, (), ())
            if piece.recipe is not None:
                self._so_far = replace(self._so_far, recipe=dict(piece.recipe))
        before, first = self._so_far, quoted(piece.bags.bag_ids[0])
        if list(before.views) != list(views):
            raise self._wrong(
                f"bag {first} has the views {list(views)}, those before had {list(before.views)}"
            )
        for view, about in views.items():
            for key, value in about.items():
                if before.views[view][key] != value:
                    raise self._wrong(
                        f"from bag {first} on, {key} is {_short(value)}, before it was "
                        f"{_short(before.views[view][key])}; all bags of a folder are alike"
                    )
        if before.has_groups != (piece.groups is not None):
            raise self._wrong("some pieces have groups and others have none")
        self._so_far = replace(
            before,
            has_labels=before.has_labels or piece.has_labels,
            has_instance_labels=before.has_instance_labels or piece.instance_Y is not None,
            splits=tuple(dict.fromkeys([*before.splits, *piece.splits])),
        )
        if self._given is None and piece.has_labels:
            self._names = piece.label_names if self._names is None else joined_names(
                [self._names, piece.label_names])  # fmt: skip

    # ------------------------------------------------------------------ parts

    def _cut(self) -> bool:
        """Write one part from the front of what waits; False if all of it is less than a part."""
        ends = np.cumsum(np.concatenate([bag_bytes(piece.bags) for piece in self._pieces]))
        n = max(1, int(np.searchsorted(ends, self.part_bytes, side="right")))
        if n >= len(ends):
            return False
        front, rest = _divided(self._pieces, n)
        n_rest = int(ends[-1] - ends[n - 1])
        if n_rest < self.part_bytes // 2:  # a slice would keep the whole piece in memory
            rest = [_run(piece, 0, len(piece), copy=True) for piece in rest]
        self._pieces = []
        self._write(front)
        self._pieces, self._n_bytes = rest, n_rest
        return True

    def _write(self, pieces: list[Dataset]) -> None:
        sparse = any(view.is_sparse for view in views_of(pieces[0].bags).values())
        empty = any(view.n_features == 0 for view in views_of(pieces[0].bags).values())
        flat = self.flat and not sparse and not empty
        bare = [  # all of a piece but its instances, which have no features any more
            replace(piece, bags=each_view(piece.bags, lambda bags: bags.with_X(bags.X[:, :0])))
            for piece in (pieces if flat else ())
        ]
        data = Dataset.concat(bare or pieces)
        if not data.bags.ids_given:
            data = replace(data, bags=each_view(data.bags, Bags.numbered))
        bags = data.bags
        hashes = id_hashes(bags.bag_ids) if bags.ids_given else np.empty(0, np.uint64)
        self._check_ids(bags, hashes)
        sizes = {
            "size" if len(views_of(bags)) == 1 else f"size:{view}": part.sizes
            for view, part in views_of(bags).items()
        }

        def make(path: Path) -> None:
            if flat:
                write_flat(
                    data, {v: [views_of(p.bags)[v] for p in pieces] for v in views_of(bags)}, path, sizes
                )
            else:
                parquet.write(data, path, compression="lz4", beside=sizes)

        assert self._so_far is not None
        file = part_name(len(self._so_far.parts))
        n_bytes, digest = self.place.write(file, make)
        rows = {view: part.n_instances for view, part in views_of(bags).items()}
        n_empty = int((bags.sizes == 0).sum())
        part = PartFacts(file, len(bags), bags.n_instances, n_empty, n_bytes, digest, rows)
        self._so_far = replace(self._so_far, parts=(*self._so_far.parts, part))
        for name, count in zip(data.label_names, data.label_counts.tolist()):
            self._counts[name] = self._counts.get(name, 0) + count
        self._known.add(hashes)
        self.n_written += len(bags)
        self._save(PARTIAL)

    def _check_ids(self, bags: Any, hashes: np.ndarray) -> None:
        _, first = np.unique(hashes, return_index=True)
        again = np.setdiff1d(np.arange(len(hashes)), first)
        again = again if again.size else np.flatnonzero(self._known.has(hashes))
        if again.size:
            raise self._wrong(
                f"the bag id {quoted(bags.bag_ids[int(again[0])])} occurs twice; rows of a bag must stand "
                "together, and ids must be unique: sort by bag id first"
            )

    def _save(self, name: str) -> None:
        assert self._so_far is not None
        names = self._names or ()
        counts = tuple(self._counts.get(name, 0) for name in names)
        replace(self._so_far, label_names=names, label_counts=counts).save(self.place, name)

    def close(self) -> None:
        """Write what waits and the manifest; only then the folder holds shards."""
        if self._closed:
            return
        if self._to_skip:
            raise self._wrong(
                f"the source ended {self._to_skip} bags before what stands there; it has changed: begin in a "
                "new folder"
            )
        if self._pieces:
            while self._cut():
                pass
            pieces, self._pieces = self._pieces, []
            self._write(pieces)
        if self._so_far is None:
            raise self._wrong("no bag came; there is nothing to write")
        self._save(MANIFEST)
        self.place.remove(PARTIAL)
        self._closed = True

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, kind: Any, *error: Any) -> None:
        if kind is None:  # after an error the parts stay, and a later write goes on
            self.close()


def _run(data: Dataset, first: int, last: int, *, copy: bool = False) -> Dataset:
    """Consecutive bags, with the published parts that they belong to."""
    cut = data[np.arange(first, last)] if copy else data[first:last]
    inside = {name: which[(which >= first) & (which < last)] - first for name, which in data.splits.items()}
    return replace(cut, splits={name: which for name, which in inside.items() if len(which)})


def _as_text(recipe: Any) -> str:
    return json.dumps(recipe, sort_keys=True, default=str)


def _divided(pieces: Sequence[Dataset], n: int) -> tuple[list[Dataset], list[Dataset]]:
    """Pieces of the first ``n`` bags, and of the others."""
    front: list[Dataset] = []
    rest: list[Dataset] = []
    for piece in pieces:
        here = min(n, len(piece))
        n -= here
        if here:
            front.append(_run(piece, 0, here))
        if here < len(piece):
            rest.append(_run(piece, here, len(piece)))
    return front, rest


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def write_shards(
    pieces: Dataset | Iterable[Dataset], folder: str | os.PathLike[str] | Path, **settings: Any
) -> None:
    """Write a data set, or a stream of them, as shards; see `ShardWriter` for the settings."""
    with ShardWriter(folder, **settings) as writer:
        for piece in [pieces] if isinstance(pieces, Dataset) else pieces:
            writer.add(piece)


# ------------------------------------------------------------------ what bags weigh, and which came before


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
