"""Projections and scores of bags, made slice by slice.

Dense instances are scaled while a slice of bags is copied together, so there is never a second copy of the
data; text-like ones stay sparse.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.compute.numeric import frozen
from bagwise.compute.threads import Workers
from bagwise.models.mimlfast.batch_kernels import best_scores, gather_dense, gather_sparse
from bagwise.models.mimlfast.memory import SliceMemory
from bagwise.models.mimlfast.plan import Plan
from bagwise.models.mimlfast.scale import Scale, matching_form

__all__ = ["N_SLICES", "Forward", "make_forward", "n_slices"]

N_SLICES = 8  # fixed, so that results do not depend on the number of threads
_SLICE_BAGS = 64
_TILE_CELLS = 1 << 19  # scores made at a time by one thread: a tile that stays in its cache
_TILE_ROWS = 128  # at least: every product rearranges all label vectors first, which few rows do not repay


def n_slices(n_bags: int) -> int:
    """Slices of a batch: a matter of its size alone, so that threads cannot change a result."""
    return max(1, min(N_SLICES, n_bags // 16))


class Forward:
    """Projections and scores of bags given by number, for any parameters of one shape.

    Parameters
    ----------
    X : ndarray or CSR
        Instances in the form that the scale asks for.
    offsets : ndarray
        Where bags begin.
    scale : Scale
        How instances are scaled.
    shape : tuple of int
        That of the label vectors: sub-concepts, labels with the dummy, dimension of the shared space.
    workers : Workers
        The threads.
    batch_bags : int
        Bags of a batch.
    """

    def __init__(
        self,
        X: Any,
        offsets: np.ndarray,
        scale: Scale,
        shape: tuple[int, int, int],
        workers: Workers,
        batch_bags: int = 0,
    ) -> None:
        self.X, self.offsets, self.scale, self.shape = frozen(X), frozen(offsets), scale, shape
        self.workers = workers
        self.mean, self.factor = frozen(scale.mean), frozen(scale.factor)
        self.constant = np.float32(scale.constant)
        self.n_inputs = X.shape[1] + 1
        batch = min(batch_bags, len(offsets) - 1)
        self.slice_bags = max(_SLICE_BAGS, -(-batch // n_slices(batch)))
        sizes = np.sort(np.diff(offsets))
        self.n_rows = int(sizes[-self.slice_bags :].sum())
        tile_rows = max(_TILE_ROWS, _TILE_CELLS // (shape[0] * shape[1]))
        self.tile_bags = int(np.clip(tile_rows // sizes.mean(), 1, self.slice_bags))
        self._tile_rows = int(sizes[-self.tile_bags :].sum())
        self.copied: tuple[Any, ...] | None = None  # scaled copy of some bags, shared by trainers
        self._free: list[SliceMemory] = []

    @contextmanager
    def memory(self) -> Iterator[SliceMemory]:
        """Memory for one slice: as many sets are ever made as threads work at the same time."""
        try:
            taken = self._free.pop()
        except IndexError:
            n_inputs = 0 if self.scale.text_like else self.n_inputs
            taken = SliceMemory.allocate(self.shape, self.slice_bags, self.n_rows, self._tile_rows, n_inputs)
        try:
            yield taken
        finally:
            self._free.append(taken)

    def csr(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The three arrays of sparse instances."""
        return self.X.data, self.X.indices, self.X.indptr

    def project(self, ids: np.ndarray, space: np.ndarray, memory: SliceMemory) -> int:
        """Scale and project the instances of some bags into the memory; return their number."""
        how = self.factor, self.constant
        if self.scale.text_like:
            return gather_sparse(ids, *self.csr(), self.offsets, *how, space, memory.projected, memory.bounds)
        n = gather_dense(ids, self.X, self.offsets, self.mean, *how, memory.scaled, memory.bounds)
        np.matmul(memory.scaled[:n], space, out=memory.projected[:n])
        return n

    def tiles(self, n_bags: int, vectors: np.ndarray, memory: SliceMemory) -> Iterator[tuple[int, int]]:
        """First and last bag of each tile of a projected slice, once its instances are scored."""
        columns = vectors.reshape(-1, vectors.shape[2]).T
        for first in range(0, n_bags, self.tile_bags):
            last = min(first + self.tile_bags, n_bags)
            begin, end = memory.bounds[first], memory.bounds[last]
            np.matmul(memory.projected[begin:end], columns, out=memory.scores[: end - begin])
            yield first, last

    def scores(self, ids: np.ndarray, space: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Scores of all labels and the dummy for some bags."""
        out = np.empty((len(ids), self.shape[1]), np.float32)

        def work(start: int) -> None:
            part = ids[start : start + self.slice_bags]
            with self.memory() as memory:
                self.project(part, space, memory)
                for first, last in self.tiles(len(part), vectors, memory):
                    best_scores(first, last, self.shape[0], memory, out[start : start + len(part)])

        self.workers.map(work, range(0, len(ids), self.slice_bags))
        return out


def make_forward(
    bags: Bags,
    n_labels: int,
    scale: Scale,
    plan: Plan,
    workers: Workers,
    n_sub: int | None = None,
    *,
    card: Any = None,
) -> Any:
    """Scores of these bags for models of the planned shape, or with another number of sub-concepts.

    With a ``card``, instances that are there already, mini-batches are made there.
    """
    shape = n_sub or plan.n_sub_concepts, n_labels + 1, plan.n_components
    if card is not None:
        from bagwise.models.mimlfast.card_scores import CardForward

        return CardForward(card, bags.offsets, scale, shape)
    return Forward(matching_form(bags.X, scale), bags.offsets, scale, shape, workers, plan.batch_bags)
