"""Several views of the same bags."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from bagwise.bags._bags import Bags
from bagwise.bags._rows import Matrix
from bagwise.bags.frames import table
from bagwise.errors import DataError, quoted

ONE_VIEW = "instances"  # what the only view of plain bags is called


class MultiViewBags:
    """Several views of the same bags, each with its own instances and features.

    A view may be empty for a bag (a partial example); when two views share their instances,
    stack their columns in one `Bags` instead.

    Parameters
    ----------
    views : mapping of str to Bags
        Views with the same number of bags, in the same order. Where some have bag ids, those must agree,
        and views without take them over.

    Examples
    --------
    >>> import numpy as np
    >>> rgb = Bags.from_list([np.ones((2, 3)), np.ones((1, 3))])
    >>> words = Bags.from_list([np.ones((4, 5)), np.empty((0, 5))])
    >>> mv = MultiViewBags({"rgb": rgb, "words": words})
    >>> mv
    MultiViewBags(2 bags; rgb: 3 instances x 3, words: 4 instances x 5)
    >>> mv.present
    array([[ True,  True],
           [ True, False]])
    """

    def __init__(self, views: Mapping[str, Bags]) -> None:
        if not views:
            raise DataError("MultiViewBags needs at least one view")
        self.views: dict[str, Bags] = dict(views)
        first_name, first = next(iter(self.views.items()))
        for name, bags in self.views.items():
            if not isinstance(bags, Bags):
                raise TypeError(f"view {name!r} must be a Bags, got {type(bags).__name__}")
            if len(bags) != len(first):
                raise DataError(
                    f"view {name!r} has {len(bags)} bags, view {first_name!r} has {len(first)}; "
                    "MultiViewBags.align joins views by bag id and leaves missing ones empty"
                )
        named = [bags for bags in self.views.values() if bags.ids_given]
        for bags in named[1:]:
            differ = np.flatnonzero(bags.bag_ids != named[0].bag_ids)
            if differ.size:
                i = differ[0]
                raise DataError(
                    f"bag {i} is called {quoted(named[0].bag_ids[i])} in one view and "
                    f"{quoted(bags.bag_ids[i])} in another; MultiViewBags.align joins views by bag id"
                )
        self._named = named[0] if named else first
        if named:  # a view without names takes those of the others
            self.views = {
                name: bags if bags.ids_given else bags.with_ids(named[0].bag_ids)
                for name, bags in self.views.items()
            }

    @classmethod
    def align(cls, views: Mapping[str, Bags]) -> MultiViewBags:
        """Join views by bag id; a bag that a view does not know is empty there."""
        position: dict[Any, int] = {}
        for name, bags in views.items():
            ids = bags.bag_ids.tolist()
            if len(set(ids)) != len(ids):
                twice = next(i for k, i in enumerate(ids) if i in ids[:k])
                raise DataError(
                    f"view {name!r} has two bags with the id {twice!r}; ids must be unique to align"
                )
            for bag_id in ids:
                position.setdefault(bag_id, len(position))
        all_ids = np.asarray(list(position))
        aligned = {}
        for name, bags in views.items():
            where = {bag_id: k for k, bag_id in enumerate(bags.bag_ids.tolist())}
            order = [where[i] for i in position if i in where]
            gathered = bags[np.asarray(order, dtype=np.int64)]
            sizes = np.zeros(len(position), dtype=np.int64)
            sizes[[i in where for i in position]] = gathered.sizes
            offsets = np.concatenate([[0], np.cumsum(sizes)])
            part = gathered._derive(gathered.X, offsets, None, gathered.instance_info)
            aligned[name] = part.with_ids(all_ids)
        return cls(aligned)

    @classmethod
    def concat(cls, parts: Iterable[MultiViewBags]) -> MultiViewBags:
        """Join several containers with the same views, one after the other."""
        items = list(parts)
        for k, part in enumerate(items):
            if part.view_names != items[0].view_names:
                raise DataError(f"part {k} has views {part.view_names}, part 0 has {items[0].view_names}")
        return cls({name: Bags.concat([part[name] for part in items]) for name in items[0].view_names})

    @property
    def view_names(self) -> tuple[str, ...]:
        """Names of the views, in order."""
        return tuple(self.views)

    @property
    def bag_ids(self) -> np.ndarray:
        """Names of the bags; positions if none were given."""
        return self._named.bag_ids

    @property
    def has_bag_ids(self) -> bool:
        """Whether bags carry ids other than their positions; see `Bags`."""
        return self._named.has_bag_ids

    @property
    def ids_given(self) -> bool:
        """Whether bags were given names; see `Bags`."""
        return self._named.ids_given

    @property
    def present(self) -> np.ndarray:
        """Which bag has instances in which view: (n_bags, n_views) booleans."""
        return np.column_stack([bags.sizes > 0 for bags in self.views.values()])

    @property
    def shape(self) -> tuple[int, int]:
        """(n_bags, features of all views together)."""
        return len(self), sum(bags.n_features for bags in self.views.values())

    @property
    def n_instances(self) -> int:
        """Number of instances of all views together."""
        return sum(bags.n_instances for bags in self.views.values())

    @property
    def sizes(self) -> np.ndarray:
        """Number of instances of each bag, all views together."""
        return np.sum([bags.sizes for bags in self.views.values()], axis=0)

    def __len__(self) -> int:
        return len(next(iter(self.views.values())))

    def __repr__(self) -> str:
        views = ", ".join(f"{n}: {b.n_instances} instances x {b.n_features}" for n, b in self.views.items())
        return f"MultiViewBags({len(self)} bags; {views})"

    __array__ = Bags.__array__

    def __iter__(self) -> Iterator[dict[str, Matrix]]:
        for matrices in zip(*self.views.values()):
            yield dict(zip(self.views, matrices))

    def __getitem__(self, key: Any) -> Any:
        """``mv["name"]`` is a view; ``mv[i]`` a dict of matrices; other keys cut all views alike."""
        if isinstance(key, str):
            if key not in self.views:
                raise KeyError(f"no view {key!r}; the views are {', '.join(self.views)}")
            return self.views[key]
        if isinstance(key, tuple):
            if len(key) != 2 or key[1] is not Ellipsis:
                raise IndexError("cut columns view by view: MultiViewBags take one index, the bags")
            key = key[0]
        if isinstance(key, (int, np.integer)):
            return {name: bags[key] for name, bags in self.views.items()}
        return MultiViewBags({name: bags[key] for name, bags in self.views.items()})

    def _repr_html_(self) -> str:
        rows = [[name, f"{b.n_instances:,}", f"{b.n_features:,}"] for name, b in self.views.items()]
        lines = table(["view", "instances", "features"], rows)
        return f"<div><b>{len(self):,} bags with several views</b>{lines}</div>"

    def select(self, names: Iterable[str]) -> MultiViewBags:
        """Only the named views."""
        return MultiViewBags({name: self[name] for name in names})

    def equals(self, other: object) -> bool:
        """Whether the other container holds the same views."""
        return (
            isinstance(other, MultiViewBags)
            and self.view_names == other.view_names
            and all(bags.equals(other[name]) for name, bags in self.views.items())
        )


def views_of(bags: Bags | MultiViewBags) -> dict[str, Bags]:
    """Views by name; the only one of plain bags is called "instances"."""
    return bags.views if isinstance(bags, MultiViewBags) else {ONE_VIEW: bags}


def each_view(bags: Bags | MultiViewBags, change: Callable[[Bags], Bags]) -> Any:
    """The same change in all views."""
    if isinstance(bags, MultiViewBags):
        return MultiViewBags({name: change(view) for name, view in bags.views.items()})
    return change(bags)
