"""Where the bags of a pass of mini-batches are on a card, laid out so that every step looks the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bagwise.kernels.torch_move import as_tensor
from bagwise.models.mimlfast.card_scores import CardForward

__all__ = ["Batch", "Layout"]


class Batch:
    """Tensors of one batch: instances, where bags begin, bag numbers, and which bags count."""

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
        self.rows, self.index = (torch.zeros((k, n_rows), dtype=torch.int64, device=device) for _ in range(2))
        self.offsets = torch.zeros((k, n_bags + 1), dtype=torch.int64, device=device)
        self.bags = torch.zeros((k, n_bags), dtype=torch.int64, device=device)
        self.counts = torch.zeros((k, n_bags), dtype=torch.bool, device=device)
        self.first = as_tensor(forward.offsets).to(device)
        self.cuts = as_tensor(cuts).to(device)
        self.X = None
        if forward.store.kept is None:
            self.X = torch.zeros((n_pieces, n_rows, forward.width), device=device)

    def fill(self, order: np.ndarray) -> None:
        """Lay out a pass in this order."""
        device = self.rows.device
        given = as_tensor(order).to(device)
        slots = self.cuts[:-1, None] + torch.arange(self.n_bags, device=device)
        self.bags.copy_(given[slots.clamp_max(len(order) - 1)])
        starts = self.first[self.bags]
        sizes = torch.where(slots < self.cuts[1:, None], self.first[self.bags + 1] - starts, 0)
        self.counts.copy_(sizes > 0)
        self.offsets[:, 1:] = sizes.cumsum(dim=1)
        total = self.offsets[:, -1:].clone()
        self.offsets[:, -1] = self.n_rows  # the last bag takes the rows that are left over
        numbers = torch.arange(self.n_rows, device=device).expand(len(self.rows), -1).contiguous()
        self.index.copy_(torch.searchsorted(self.offsets, numbers, right=True) - 1)
        begin = (starts - self.offsets[:, :-1]).gather(1, self.index)
        self.rows.copy_(torch.where(numbers < total, numbers + begin, 0))

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
        offsets, index, bags, counts = (
            values.index_select(0, number)[0] for values in (self.offsets, self.index, self.bags, self.counts)
        )
        if self.X is not None:
            X = self.X[0] if self.n_pieces == 1 else self.X.index_select(0, number % self.n_pieces)[0]
            return Batch(X, offsets, index, bags, counts)
        rows = self.rows.index_select(0, number)[0]
        assert forward.store.kept is not None
        return Batch(forward.store.kept.index_select(0, rows), offsets, index, bags, counts)
