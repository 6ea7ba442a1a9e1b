"""One part of shards with all that is done to it on the way into memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from bagwise.bags import MultiViewBags
from bagwise.bags.dataset import Dataset
from bagwise.shards import reading
from bagwise.shards.manifest import PartFacts
from bagwise.shards.place import Place

__all__ = ["PartSource", "one_view"]


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
        data = reading.read_part(self.place, self.facts, self.label_names, self.first)
        data = data if self.which is None else data[_run(self.which)]
        data = data if self.view is None else one_view(data, self.view)
        for transformer in self.after:
            data = replace(data, bags=transformer.transform(data.bags))
        return data


def one_view(data: Dataset, view: str) -> Dataset:
    """A data set with one of its views."""
    assert isinstance(data.bags, MultiViewBags)
    known = data.instance_Y.get(view) if isinstance(data.instance_Y, dict) else None
    return replace(data, bags=data.bags[view], instance_Y=known)


def _run(which: np.ndarray) -> np.ndarray | slice:
    """Consecutive bags as a slice, which shares memory."""
    n = len(which)
    return slice(int(which[0]), int(which[0]) + n) if n and which[-1] - which[0] == n - 1 else which
