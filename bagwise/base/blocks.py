"""Bags and labels in blocks: those in memory are one block, shards have one per part.

What a method learns by sums over bags it writes once, over blocks; see `bagwise.compute.parts.map_reduce`.
"""

from __future__ import annotations

import hashlib
import pickle
from typing import Any, Literal, NamedTuple

import numpy as np

from bagwise.bags import instance_rows, stack_rows
from bagwise.compute.parts import Held, Parts, map_parts

__all__ = ["Block", "Blocks", "blocks_in_memory", "blocks_of_shards", "gathered", "is_sharded", "rows_at"]


def is_sharded(X: Any) -> bool:
    """Whether data are `bagwise.ShardedBags`, without importing what reads them."""
    return hasattr(X, "manifest") and hasattr(X, "fingerprint")


class Block(NamedTuple):
    """Some bags, the int8 matrix of their labels, their weights, and labels of instances that are known."""

    bags: Any
    Y: np.ndarray
    weights: Any = None  # of `InMemory` ones
    known: np.ndarray | None = None


class Blocks(Parts):
    """All blocks of a training set; ``take`` gives those of some bags.

    ``kind`` says where they are: "memory" (one block), "shards" (one per part) or "gpu".
    """

    kind: Literal["memory", "shards", "gpu"]
    n_bags: int
    n_labels: int

    def take(self, which: np.ndarray) -> Blocks:
        """Blocks of the bags with these numbers, in ascending order."""
        raise NotImplementedError

    def labels(self) -> tuple[np.ndarray, np.ndarray]:
        """Labels and weights of all bags."""
        raise NotImplementedError

    @property
    def part_bags(self) -> np.ndarray:
        """Number of bags of every block."""
        raise NotImplementedError

    @property
    def part_rows(self) -> np.ndarray:
        """Number of instances of every block."""
        raise NotImplementedError

    def sizes(self) -> np.ndarray:
        """Number of instances of every bag."""
        raise NotImplementedError


class InMemory(Held, Blocks):
    """One block that is in memory, or whose instances lie on a GPU as well."""

    kind: Literal["memory", "gpu"] = "memory"

    def __init__(self, block: Block) -> None:
        if block.weights is None:
            block = block._replace(weights=np.ones(len(block.Y)))
        self.value = self.block = block
        self.n_bags, self.n_labels = block.Y.shape

    def take(self, which: np.ndarray) -> Blocks:
        """Blocks of the bags with these numbers."""
        bags, Y, weights, known = self.block
        if known is not None:
            known = known[instance_rows(bags.offsets, which)[0]]
        return InMemory(Block(bags[which], Y[which], weights[which], known))

    def labels(self) -> tuple[np.ndarray, np.ndarray]:
        """Labels and weights of all bags."""
        return self.block.Y, self.block.weights

    @property
    def part_bags(self) -> np.ndarray:
        """Number of bags of every block."""
        return np.array([self.n_bags])

    @property
    def part_rows(self) -> np.ndarray:
        """Number of instances of every block."""
        return np.array([self.block.bags.n_instances])

    def sizes(self) -> np.ndarray:
        """Number of instances of every bag."""
        return self.block.bags.sizes


def blocks_in_memory(
    bags: Any, Y: np.ndarray, weights: np.ndarray | None = None, known: np.ndarray | None = None
) -> Blocks:
    """Bags in memory as one block.

    Examples
    --------
    >>> from bagwise import Bags
    >>> blocks = blocks_in_memory(Bags([[1.0], [2.0]], [0, 1, 2]), np.array([[1], [0]], dtype=np.int8))
    >>> blocks.take(np.array([1])).only().Y.tolist()
    [[0]]
    """
    return InMemory(Block(bags, Y, weights, known))


class _ShardPart(NamedTuple):
    """A part of shards that loads as a block."""

    source: Any

    @property
    def key(self) -> str:
        which = self.source.which
        chosen = b"" if which is None else hashlib.sha256(which.tobytes()).digest()
        content = f"{self.source.facts.sha256}{self.source.view}{self.source.label_names}".encode() + chosen
        if self.source.after:
            content += hashlib.sha256(pickle.dumps(self.source.after)).digest()
        return hashlib.sha256(content).hexdigest()

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def n_bytes(self) -> int:
        return self.source.facts.n_bytes

    def load(self) -> Block:
        data = self.source.load()
        return Block(data.bags, np.ascontiguousarray(data.Y), np.ones(len(data)))


class _OfShards(Blocks):
    kind = "shards"

    def __init__(self, shards: Any) -> None:
        filled = [k for k in range(shards.n_parts) if shards.part_bags[k]]
        items = [_ShardPart(shards.source(k)) for k in filled]
        super().__init__(items, streamed=items[0].source.held is None)
        self.shards, self.n_bags, self.n_labels = shards, len(shards), len(shards.label_names)
        self._filled = filled

    def take(self, which: np.ndarray) -> Blocks:
        return _OfShards(self.shards[which])

    def labels(self) -> tuple[np.ndarray, np.ndarray]:
        return self.shards.Y, np.ones(self.n_bags)

    @property
    def part_bags(self) -> np.ndarray:
        return self.shards.part_bags[self._filled]

    @property
    def part_rows(self) -> np.ndarray:
        ends = np.cumsum(self.part_bags)
        return np.array([part.sum() for part in np.split(self.sizes(), ends[:-1])], dtype=np.int64)

    def sizes(self) -> np.ndarray:
        return self.shards.sizes


def blocks_of_shards(shards: Any) -> Blocks:
    """One block per part of shards that has any bag."""
    return _OfShards(shards)


# ---------------------------------------------------------------------- some bags, some instances


def evenly(n: int, most: int) -> np.ndarray:
    """At most so many numbers below ``n``, evenly spaced.

    Examples
    --------
    >>> evenly(9, 3).tolist(), evenly(2, 3).tolist()
    ([0, 4, 8], [0, 1])
    """
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.int64))


def gathered(blocks: Blocks, which: np.ndarray, most_instances: int | None = None) -> Block:
    """Some bags of all blocks as one block in memory, of each at most so many instances, evenly spaced.

    Examples
    --------
    >>> from bagwise import Bags
    >>> bags = Bags(np.arange(9.0)[:, None], [0, 8, 9])
    >>> blocks = blocks_in_memory(bags, np.array([[1], [0]], dtype=np.int8))
    >>> gathered(blocks, np.array([0]), 3).bags.X.ravel().tolist()
    [0.0, 3.0, 7.0]
    """
    found = list(map_parts(_thinned, most_instances, blocks.take(which)))
    bags = type(found[0][0]).concat([bags for bags, _ in found])
    Y = np.concatenate([Y for _, Y in found])
    return Block(bags, Y, np.ones(len(Y)))


def _thinned(most: int | None, block: Block) -> tuple[Any, np.ndarray]:
    return (block.bags if most is None else thinned(block.bags, most)), block.Y


def thinned(bags: Any, most: int) -> Any:
    """Bags with at most so many instances each, evenly spaced."""
    if not len(bags) or bags.sizes.max() <= most:
        return bags
    kept = [evenly(n, most) for n in bags.sizes.tolist()]
    offsets = np.cumsum([0, *(len(rows) for rows in kept)])
    rows = np.concatenate(kept) + np.repeat(bags.offsets[:-1], np.diff(offsets))
    return type(bags)(bags.X[rows], offsets, bag_ids=bags.bag_ids)


def unweighted(block: Block) -> tuple[Any, None]:
    """Instances of a block as `bagwise.compute.scaling.scaling_of` takes them, all of the same weight."""
    return block.bags.X, None


def rows_at(blocks: Blocks, numbers: np.ndarray) -> Any:
    """Instances with these numbers among those of all blocks, ascending and each once.

    Examples
    --------
    >>> from bagwise import Bags
    >>> bags = Bags(np.arange(9.0)[:, None], [0, 8, 9])
    >>> blocks = blocks_in_memory(bags, np.array([[1], [0]], dtype=np.int8))
    >>> rows_at(blocks, np.array([1, 8])).ravel().tolist()
    [1.0, 8.0]
    """
    ends = np.cumsum(blocks.part_rows)
    each = [
        rows - (end - n)
        for rows, end, n in zip(
            np.split(numbers, np.searchsorted(numbers, ends[:-1])), ends, blocks.part_rows
        )
    ]
    return stack_rows(list(map_parts(_rows, None, blocks.map(_picked, each))))


def _picked(rows: np.ndarray, block: Block) -> Any:
    return block.bags.X[rows]


def _rows(_: None, rows: Any) -> Any:
    return rows
