"""`ShardedBags`: bags in a folder of Parquet parts, never all in memory."""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from scipy import sparse

from bagwise.bags import Bags, bag_numbers
from bagwise.bags.arrow import to_numpy
from bagwise.bags.dataset import Dataset
from bagwise.compute.threads import read_ahead
from bagwise.errors import DataError
from bagwise.io._parquet_tables import names_from_lists
from bagwise.shards.manifest import Manifest
from bagwise.shards.parts import (
    PartSource,
    check_part,
    one_view,
    part_columns,
    part_labels,
    side_at_random,
    side_of_groups,
)
from bagwise.shards.place import Place
from bagwise.shards.writer import write_shards

__all__ = ["ShardedBags"]


class ShardedBags:
    """Bags on disk in Parquet parts with a manifest; one part at a time is in memory.

    Made by `ShardedBags.open`, `ShardedBags.write` or ``bagwise convert``. Models whose training is a sum
    over bags learn from it as from bags in memory: ``model.fit(shards)``; the labels are inside.

    Attributes
    ----------
    n_parts : int
        Number of parts.
    label_names : tuple of str
        Labels in order.
    view_names : tuple of str
        Views; empty for plain bags.

    Examples
    --------
    >>> import tempfile
    >>> from bagwise import load_dataset
    >>> folder = tempfile.mkdtemp() + "/digits"
    >>> shards = ShardedBags.write(load_dataset("digits", n_bags=100), folder, part_bytes=100_000)
    >>> len(shards), shards.shape == (100, 64), shards.n_parts > 1
    (100, True, True)
    >>> train, test = shards.split(test_size=0.3, random_state=0)  # copies nothing
    >>> len(train) + len(test), len(shards.sample(5, random_state=0))
    (100, 5)
    """

    def __init__(
        self,
        place: Place,
        manifest: Manifest,
        *,
        which: Sequence[np.ndarray | None] | None = None,
        view: str | None = None,
        held: dict[int, Dataset] | None = None,
        after: tuple[Any, ...] = (),
    ) -> None:
        self.place, self.manifest, self._after = place, manifest, after
        self._which = [None] * len(manifest.parts) if which is None else list(which)
        self._view, self._held = view, held

    @classmethod
    def open(cls, folder: str | os.PathLike[str], *, check: bool = False) -> ShardedBags:
        """Open a folder or an address (``s3://...``) that holds shards.

        Parameters
        ----------
        folder : path or address
            The folder.
        check : bool, default=False
            Whether to read every part now, to be sure that it is what was written. Otherwise each is checked
            when it is first used.
        """
        place = Place(folder)
        shards = cls(place, Manifest.read(place))
        if check:
            shards.check()
        return shards

    @classmethod
    def write(
        cls, data: Dataset | Iterable[Dataset], folder: str | os.PathLike[str], **settings: Any
    ) -> ShardedBags:
        """Write a data set, or a stream of pieces of one, and open it.

        Parameters
        ----------
        data : Dataset, or iterable of Dataset
            What to write; of a stream one part and one piece are in memory.
        folder : path or address
            A new folder, or one where an earlier write was stopped: it goes on.
        **settings
            ``part_bytes`` and ``label_names``; see `ShardWriter`.
        """
        write_shards(data, folder, **settings)
        return cls.open(folder)

    # ------------------------------------------------------------------ what is inside

    @property
    def n_parts(self) -> int:
        """Number of parts, also of those from which no bag is taken."""
        return len(self.manifest.parts)

    @cached_property
    def part_bags(self) -> np.ndarray:
        """Number of bags of every part."""
        counts = [
            part.n_bags if which is None else len(which)
            for part, which in zip(self.manifest.parts, self._which)
        ]
        return np.array(counts, dtype=np.int64)

    @cached_property
    def _firsts(self) -> np.ndarray:
        """Place of the first bag of every part among all bags of all parts."""
        return np.cumsum([0, *(part.n_bags for part in self.manifest.parts)])

    def __len__(self) -> int:
        return int(self.part_bags.sum())

    @cached_property
    def n_instances(self) -> int:
        """Number of instances, of all views together."""
        if all(which is None for which in self._which):
            if self._view is None:
                return self.manifest.n_instances
            return sum(part.rows[self._view] for part in self.manifest.parts)
        return int(self.sizes.sum())

    @cached_property
    def _views(self) -> dict[str, Any]:
        views = dict(self.manifest.views)
        views = views if self._view is None else {self._view: views[self._view]}
        if not self._after:
            return views
        ((view, about),) = views.items()
        # what the transformers make of a bag of one instance, as the parts hold them
        X: Any = np.zeros((1, about["n_features"]), dtype=np.dtype(about["dtype"]))
        X = sparse.csr_array(X) if about["sparse"] else X
        bags = Bags(X, [0, 1], feature_names=about["feature_names"])
        for transformer in self._after:
            bags = transformer.transform(bags)
        found = {"n_features": bags.n_features, "dtype": bags.dtype.str, "sparse": bags.is_sparse}
        return {view: {**about, **found, "feature_names": bags.feature_names}}

    @property
    def n_features(self) -> int:
        """Number of features, of all views together."""
        return sum(about["n_features"] for about in self._views.values())

    @property
    def shape(self) -> tuple[int, int]:
        """(n_bags, n_features)."""
        return len(self), self.n_features

    @property
    def view_names(self) -> tuple[str, ...]:
        """Names of the views; empty for plain bags."""
        return tuple(self._views) if self.manifest.several_views and self._view is None else ()

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features of plain bags, where they have any."""
        names = None if self.view_names else next(iter(self._views.values()))["feature_names"]
        return None if names is None else tuple(names)

    @property
    def dtype(self) -> np.dtype:
        """Number type of the instances (of the first view)."""
        return np.dtype(next(iter(self._views.values()))["dtype"])

    @property
    def is_sparse(self) -> bool:
        """Whether instances are CSR (in any view)."""
        return any(about["sparse"] for about in self._views.values())

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the labels."""
        return self.manifest.label_names

    @property
    def has_labels(self) -> bool:
        """Whether there are labels at all."""
        return self.manifest.has_labels

    @property
    def name(self) -> str:
        """What the data are called."""
        return self.manifest.about.get("name", "")

    @property
    def recipe(self) -> Mapping[str, Any] | None:
        """How the bags were made from raw files, where they were."""
        return self.manifest.recipe

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the manifest and of the bags taken: what a fit and its checkpoint go by."""
        content = hashlib.sha256(self.manifest.fingerprint.encode() + repr(self._view).encode())
        content.update(pickle.dumps(self._after) if self._after else b"")
        for which in self._which:
            content.update(b"all" if which is None else which.astype(np.int64).tobytes() + b";")
        return content.hexdigest()

    @cached_property
    def label_counts(self) -> np.ndarray:
        """Number of bags with each label."""
        if all(which is None for which in self._which):
            return np.array(self.manifest.label_counts, dtype=np.int64)
        counts = [self._labels(k).sum(axis=0, dtype=np.int64) for k in range(self.n_parts)]
        return np.sum(counts, axis=0)

    @property
    def cardinality(self) -> float:
        """Mean number of labels per bag."""
        return float(self.label_counts.sum() / len(self)) if len(self) else 0.0

    @property
    def Y(self) -> np.ndarray:
        """The 0/1 matrix of all labels, read without the instances: n_bags * n_labels bytes."""
        return np.concatenate([self._labels(k) for k in range(self.n_parts)])

    @property
    def bag_ids(self) -> np.ndarray:
        """Names of all bags; places among all bags where none were given."""
        parts = range(self.n_parts)
        if any(about["named_bags"] for about in self._views.values()):
            return np.concatenate([self._cut(k, self._column(k, "bag_id")) for k in parts])
        ends = zip(self._firsts[:-1], self._firsts[1:])
        return np.concatenate([self._cut(k, np.arange(a, b)) for k, (a, b) in enumerate(ends)])

    @property
    def sizes(self) -> np.ndarray:
        """Number of instances of each bag, all views together."""
        several = len(self.manifest.views) > 1
        columns = [f"size:{view}" if several else "size" for view in self._views]
        return np.concatenate(
            [
                self._cut(k, np.sum([self._column(k, column) for column in columns], axis=0))
                for k in range(self.n_parts)
            ]
        )

    @property
    def groups(self) -> np.ndarray | None:
        """Group of each bag, None where there are none."""
        if not self.manifest.has_groups:
            return None
        return np.concatenate([self._cut(k, self._column(k, "group")) for k in range(self.n_parts)])

    def __repr__(self) -> str:
        kind = "sparse" if self.is_sparse else "dense"
        views = f"views {', '.join(self.view_names)}, " if self.view_names else ""
        labels = f"{len(self.label_names)} labels" if self.has_labels else "no labels"
        return (
            f"ShardedBags({len(self)} bags, {self.n_instances} instances, {self.n_features} features, "
            f"{views}{kind} {self.dtype}, {labels}, {self.n_parts} parts)"
        )

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            "ShardedBags is not an array; shards.sample(n) and shards.load() give a Dataset in memory"
        )

    # ------------------------------------------------------------------ parts

    def part(self, k: int) -> Dataset:
        """The bags of part ``k``, in memory."""
        k = range(self.n_parts)[k]
        if self._held is not None:
            return self._held[k]
        return self.source(k).load()

    def source(self, k: int) -> PartSource:
        """All that is needed to load part ``k`` in another process."""
        return PartSource(
            self.place,
            self.manifest.parts[k],
            self.label_names if self.has_labels else None,
            int(self._firsts[k]),
            self._which[k],
            self._view,
            None if self._held is None else self._held[k],
            self._after,
        )

    def __iter__(self) -> Iterator[Dataset]:
        """Go over the parts that have any bag; the next one is read while the last is worked on."""
        filled = [k for k in range(self.n_parts) if self.part_bags[k]]
        return read_ahead(self.part, filled)

    def check(self) -> None:
        """Read every part and compare its checksum; the first that is missing or damaged is named."""
        for part in self.manifest.parts:
            check_part(self.place, part)

    def load(self) -> Dataset:
        """All bags as one `Dataset` in memory."""
        return Dataset.concat(list(self))

    def in_memory(self) -> ShardedBags:
        """The same shards with all parts held in memory: models give the same numbers, faster."""
        held = {k: self.part(k) for k in range(self.n_parts)}
        return self._with(held=held)

    def _with(self, **changes: Any) -> ShardedBags:
        """The same shards but for these facts."""
        same = {"which": self._which, "view": self._view, "held": self._held, "after": self._after}
        return ShardedBags(self.place, self.manifest, **{**same, **changes})

    # ------------------------------------------------------------------ cutting, without copying

    def __getitem__(self, key: Any) -> ShardedBags:
        """Some bags in the order that they stand in: a published part, a slice, numbers or a mask."""
        if isinstance(key, str):
            return self._published(key)
        if isinstance(key, (int, np.integer)):
            key = [int(key)]
        chosen = np.arange(len(self))[key] if isinstance(key, slice) else bag_numbers(key, len(self))
        ordered = np.unique(chosen)
        if len(ordered) != len(chosen):
            raise DataError("a bag is named twice; bags of shards are taken once, in the order of the parts")
        ends = np.cumsum(self.part_bags)
        cuts = np.split(ordered, np.searchsorted(ordered, ends[:-1]))
        return self._taking([c - (e - n) for c, e, n in zip(cuts, ends, self.part_bags)])

    def _taking(self, chosen: Sequence[np.ndarray]) -> ShardedBags:
        """A view of the bags with these numbers in each part's present selection."""
        which: list[np.ndarray | None] = []
        for c, old, part in zip(chosen, self._which, self.manifest.parts):
            c = c if old is None else old[c]
            which.append(None if len(c) == part.n_bags else c)  # None: all of them, nothing to be picked
        held = None if self._held is None else {k: self._held[k][c] for k, c in enumerate(chosen)}
        return self._with(which=which, held=held)

    def _published(self, name: str) -> ShardedBags:
        if name not in self.manifest.splits:
            known = ", ".join(map(repr, self.manifest.splits)) or "none"
            raise KeyError(f"no part {name!r}; published parts: {known}")
        names = pa.array(self.manifest.splits, pa.string())

        def inside(k: int) -> np.ndarray:
            table = part_columns(self.place, self.manifest.parts[k], ["splits"])
            if "splits" not in table.column_names:
                return np.empty(0, dtype=np.int64)
            bag, which = names_from_lists(table.column("splits"), names, None)
            members = np.zeros(self.manifest.parts[k].n_bags, dtype=bool)
            members[bag[which == self.manifest.splits.index(name)]] = True
            return np.flatnonzero(self._cut(k, members))

        return self._taking([inside(k) for k in range(self.n_parts)])

    def split(
        self, test_size: float = 0.25, *, by_group: bool = False, random_state: int = 0
    ) -> tuple[ShardedBags, ShardedBags]:
        """Training and test bags, drawn at random within every part; nothing is copied.

        Parameters
        ----------
        test_size : float, default=0.25
            Share of bags (with ``by_group`` of groups) in the second.
        by_group : bool, default=False
            Whether all bags of a group go to the same side; a group's side depends on its name alone.
        random_state : int, default=0
            Seed.
        """
        if not 0.0 < test_size < 1.0:
            raise ValueError(f"test_size must lie between 0 and 1, got {test_size}")
        if by_group and not self.manifest.has_groups:
            raise DataError("these shards have no groups; split by bag", path=self.place.folder)
        sides = []
        for k, n in enumerate(self.part_bags):
            if by_group:
                names = self._cut(k, self._column(k, "group")).astype(str).tolist()
                sides.append(side_of_groups(names, test_size, random_state))
            else:
                sides.append(side_at_random(n, test_size, [random_state, k]))
        train = self._taking([np.flatnonzero(~side) for side in sides])
        return train, self._taking([np.flatnonzero(side) for side in sides])

    def sample(self, n: int, *, random_state: int | None = None) -> Dataset:
        """Draw ``n`` bags at random, without replacement, into memory.

        Parts are read one after the other, those without a drawn bag not at all.
        """
        if not 1 <= n <= len(self):
            raise ValueError(f"n must lie between 1 and the {len(self)} bags there are, got {n}")
        rng = np.random.default_rng(random_state)
        counts = rng.multivariate_hypergeometric(self.part_bags, n)
        chosen = [np.sort(rng.choice(m, c, replace=False)) for m, c in zip(self.part_bags.tolist(), counts)]
        return self._taking(chosen).load()

    def view(self, name: str) -> ShardedBags:
        """The same bags with one of their views."""
        if name not in self.view_names:
            raise KeyError(f"no view {name!r}; the views are {', '.join(self.view_names) or 'none'}")
        held = None if self._held is None else {k: one_view(d, name) for k, d in self._held.items()}
        return self._with(view=name, held=held)

    def after(self, transformer: Any) -> ShardedBags:
        """The same bags after a fitted transformer of their instances, applied whenever a part is loaded.

        `bagwise.preprocessing.OnInstances` calls this, so that pipelines take shards.
        """
        if self.view_names:
            views = ", ".join(self.view_names)
            raise DataError(f"pick one view first: shards.view(name) (the views are {views})")
        held = None
        if self._held is not None:
            held = {k: replace(d, bags=transformer.transform(d.bags)) for k, d in self._held.items()}
        return self._with(held=held, after=(*self._after, transformer))

    # ------------------------------------------------------------------ columns of parts

    def _cut(self, k: int, values: Any) -> Any:
        which = self._which[k]
        return values if which is None else values[which]

    def _column(self, k: int, name: str) -> Any:
        return to_numpy(part_columns(self.place, self.manifest.parts[k], [name]).column(name))

    def _labels(self, k: int) -> np.ndarray:
        return self._cut(k, part_labels(self.place, self.manifest.parts[k], self.label_names))
