"""Where the bags of a pass of mini-batches are on a card, laid out so that every step looks the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bagwise.compute.torch_move import as_tensor
from bagwise.models.mimlfast.card_scores import CardForward

__all__ = ["Batch", "Layout"]


class Batch:
    """Tensors of one batch: instances, where bags begin, bag numbers, and 1 for every bag that counts."""

    def __init__(self, X: Any, offsets: Any, index: Any, bags: Any, counts: Any) -> None:
        self.X, self.offsets, self.index, self.bags, self.counts = X, offsets, index, bags, counts


class Layout:
    """All pieces of the batches of a pass, a row each, filled up with rows and bags that count for nothing.

    Where instances are not kept on the device, ``X`` is where those of the batch at hand are put.
    """

    def __init__(self, forward: CardForward, cuts: np.ndarray, n_pieces: int, n_rows: int) -> None:
        device = forward.device
        k, n_bags = len(cuts) - 1, int(np.diff(cuts).max()) + 1
        self.n_pieces, self.n_rows, self.n_bags, self.host_cuts = n_pieces, n_rows, n_bags, cuts
        # all that a step needs to know in one row, so that it is looked up at once
        self.widths = [n_bags + 1, n_bags, n_bags, n_rows, n_rows]
        self.table = torch.zeros((k, sum(self.widths)), dtype=torch.int64, device=device)
        self.first = as_tensor(forward.offsets).to(device)
        self.cuts = as_tensor(cuts).to(device)
        self.X = None
        if forward.store.kept is None:
            self.X = torch.zeros((n_pieces, n_rows, forward.width), device=device)

    def fill(self, order: np.ndarray) -> None:
        """Lay out a pass in this order."""
        device = self.table.device
        offsets, bags, counts, index, rows = self.table.split(self.widths, dim=1)
        given = as_tensor(order).to(device)
        slots = self.cuts[:-1, None] + torch.arange(self.n_bags, device=device)
        bags.copy_(given[slots.clamp_max(len(order) - 1)])
        starts = self.first[bags]
        sizes = torch.where(slots < self.cuts[1:, None], self.first[bags + 1] - starts, 0)
        counts.copy_(sizes > 0)
        ends = torch.cat([torch.zeros_like(sizes[:, :1]), sizes.cumsum(dim=1)], dim=1)
        total = ends[:, -1:].clone()
        ends[:, -1] = self.n_rows  # the last bag takes the rows that are left over
        offsets.copy_(ends)
        numbers = torch.arange(self.n_rows, device=device).expand(len(ends), -1).contiguous()
        index.copy_(torch.searchsorted(ends, numbers, right=True) - 1)
        begin = (starts - ends[:, :-1]).gather(1, index)
        rows.copy_(torch.where(numbers < total, numbers + begin, 0))

    def feed(self, forward: CardForward, order: np.ndarray, batch: int) -> None:
        """Bring the instances of a batch to the device, where they are not kept there."""
        if self.X is None:
            return
        for i in range(self.n_pieces):
            first, last = self.host_cuts[batch * self.n_pieces + i :][:2]
            given = forward.inputs(forward.bounds(order[first:last])[0])
            self.X[i, : len(given)] = given

    def batch(self, number: torch.Tensor, forward: CardForward) -> Batch:
        """The batch of this number; rows that fill it up hold instances that no bag counts."""
        offsets, bags, counts, index, rows = self.table.index_select(0, number)[0].split(self.widths)
        if self.X is not None:
            X = self.X[0] if self.n_pieces == 1 else self.X.index_select(0, number % self.n_pieces)[0]
            return Batch(X, offsets, index, bags, counts)
        assert forward.store.kept is not None
        return Batch(forward.store.kept.index_select(0, rows), offsets, index, bags, counts)
