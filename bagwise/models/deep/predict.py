"""Batches of bags as tensors on the device, and what networks make of them.

Bags that fit the GPU are moved there once, as float32 or bfloat16; larger sets stay in memory and follow
batch by batch through pinned pages, copied while the GPU works on the batch before. Sparse instances become
dense one batch at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bagwise.bags import runs
from bagwise.compute.scaling import Scaling, apply_scaling
from bagwise.compute.threads import torch_threads
from bagwise.compute.torch_ops import Segments
from bagwise.models.deep.network import Plan, network_with

_SHARE_OF_GPU = 0.5  # of its free memory that the data may take
_BLOCK = 1 << 24  # numbers of instances scored at a time
_TOGETHER = 1 << 21  # numbers of instances that are put together at once: many small batches, or one


@dataclass
class Batch:
    """Instances, where bags begin (``starts``: as an array), labels (below 0: not known), weights of bags."""

    X: torch.Tensor
    at: Segments
    Y: torch.Tensor
    weights: torch.Tensor | None
    starts: np.ndarray

    def part(self, first: int, last: int) -> Batch:
        """Some of the bags."""
        if last - first == len(self.Y):
            return self
        lo, hi = int(self.starts[first]), int(self.starts[last])
        at = Segments(self.at.offsets[first : last + 1] - lo, self.at.index[lo:hi] - first, self.at.longest)
        weights = None if self.weights is None else self.weights[first:last]
        return Batch(self.X[lo:hi], at, self.Y[first:last], weights, self.starts[first : last + 1] - lo)

    def halves(self) -> list[Batch]:
        """The first and the second half of the bags."""
        middle = len(self.Y) // 2
        return [self.part(0, middle), self.part(middle, len(self.Y))]


class Feed:
    """Scaled bags (dense or CSR), their labels and weights, handed out in batches on a device."""

    def __init__(self, bags, scaling: Scaling, device, Y=None, weights=None, dtype=torch.float32) -> None:
        self.bags, self.scaling, self.device, self.dtype = bags, scaling, device, dtype
        Y = np.zeros((len(bags), 0), dtype=np.int8) if Y is None else Y
        self.all_known = bool((Y >= 0).all())
        self.Y = torch.as_tensor(np.ascontiguousarray(Y, dtype=np.float32)).to(device)
        self.weights = (
            None if weights is None else torch.as_tensor(np.asarray(weights, np.float32)).to(device)
        )
        self.offsets = np.asarray(bags.offsets, dtype=np.int64)
        self.sizes = np.diff(self.offsets)
        self.numbers_per_bag = bags.n_features * max(bags.n_instances, 1) / max(len(bags), 1)
        self.resident = self._moved() if self._fits() else None
        if self.resident is not None:
            self.bags = None  # a part that is streamed need not stay beside its copy

    def _fits(self) -> bool:
        if self.bags.is_sparse:
            return False
        if self.device.type != "cuda":
            return self.bags.X.nbytes < 1 << 30  # a scaled copy of that size does not hurt
        free, _ = torch.cuda.mem_get_info(self.device)
        return self.bags.n_instances * self.bags.n_features * self.dtype.itemsize < _SHARE_OF_GPU * free

    def _moved(self) -> torch.Tensor:
        """All instances on the device, scaled, a run at a time so that no second copy is made here."""
        n, d = self.bags.n_instances, self.bags.n_features
        X = torch.empty((n, d), dtype=self.dtype, device=self.device)
        run = max(1, (64 << 20) // max(4 * d, 1))
        for first in range(0, n, run):
            X[first : first + run] = self._scaled(self.bags.X[first : first + run]).to(self.device)
        return X

    def _scaled(self, rows: Any) -> torch.Tensor:
        wanted = np.float64 if self.dtype == torch.float64 else np.float32
        rows = apply_scaling(rows, self.scaling, wanted)
        rows = rows.toarray() if hasattr(rows, "toarray") else rows
        return torch.as_tensor(np.ascontiguousarray(rows, dtype=wanted))

    def batches(self, bags: np.ndarray, size: int, order: Any = None, unions: float = 0.0) -> Iterator[Batch]:
        """Batches of ``size`` bags, in the order given or, with a random state, shuffled.

        A share ``unions`` of the bags is joined with another bag each and carries the labels of both.
        """
        partners = np.full(len(bags), -1)
        if order is not None:
            if unions > 0:
                drawn = order.random_sample(len(bags)) < unions
                partners[drawn] = bags[order.randint(len(bags), size=int(drawn.sum()))]
            bags = bags[order.permutation(len(bags))]
        cuts = list(range(0, len(bags), size)) + [len(bags)]
        if order is not None and len(cuts) > 2 and cuts[-1] - cuts[-2] < size // 2:
            del cuts[-2]  # a batch of one or two bags is a noisy step
        together = max(1, int(_TOGETHER / (size * (1.0 + unions) * self.numbers_per_bag)))
        ahead: list[Batch] = []  # copies to the GPU go on while the batches before are worked on
        for k in range(0, len(cuts) - 1, together):
            edges = cuts[k : k + together + 1]
            joined = self._batch(bags[edges[0] : edges[-1]], partners[edges[0] : edges[-1]])
            yield from ahead
            ahead = [joined.part(a - edges[0], b - edges[0]) for a, b in zip(edges[:-1], edges[1:])]
        yield from ahead

    def _batch(self, bags: np.ndarray, partners: np.ndarray) -> Batch:
        joined = partners >= 0
        chosen = torch.as_tensor(bags).to(self.device, non_blocking=True)
        if not joined.any():
            X, at, starts = self._rows(bags, self.sizes[bags], 1)
            Y = self.Y[chosen]
        else:
            # every bag followed by its partner, or by nothing; the pairs are the bags
            both = np.stack([bags, np.where(joined, partners, bags)], axis=1).ravel()
            sizes = self.sizes[both]
            sizes[1::2] *= joined
            X, at, starts = self._rows(both, sizes, 2)
            Y = self._labels_of_pairs(both)
        weights = None if self.weights is None else self.weights[chosen]
        return Batch(X, at, Y, weights, starts)

    def _labels_of_pairs(self, both: np.ndarray) -> torch.Tensor:
        """Labels of one or the other; not known in one, not there in the other: not known."""
        pairs = self.Y[torch.as_tensor(both).to(self.device, non_blocking=True)].view(len(both) // 2, 2, -1)
        high = pairs.amax(dim=1)
        if self.all_known:
            return high
        low = pairs.amin(dim=1)
        return torch.where((high < 1) & (low < 0), low, high)

    def _rows(self, pieces: np.ndarray, sizes: np.ndarray, per_bag: int) -> Any:
        """Instances of pieces (bags, or nothing where the size is 0) in this order, so many to a bag."""
        edges = np.concatenate([[0], np.cumsum(sizes)])
        starts, total = edges[::per_bag].copy(), int(edges[-1])
        at = Segments.of(starts, self.device)
        first = self.offsets[pieces]
        if self.resident is None:
            X = self._scaled(self.bags[pieces[sizes > 0]].X).to(self.dtype)
            X = X.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else X
        elif per_bag == 1 and (np.diff(pieces) == 1).all():
            X = self.resident[first[0] : first[0] + total]
        else:
            facts = torch.as_tensor(np.stack([first - edges[:-1], sizes])).to(self.device, non_blocking=True)
            shifts = torch.repeat_interleave(facts[0], facts[1], output_size=total)
            X = self.resident.index_select(0, shifts + torch.arange(total, device=self.device))
        return X, at, starts


def mean_scores(
    plan: Plan, members: list[Any], scaling: Scaling, bags: Any, what: str, device: Any
) -> np.ndarray:
    """Mean over members, given by their weights, of what a method of `Network` says of bags."""
    # On the processor in double precision: a bag gets the same score in any company.
    dtype = torch.float64 if device.type == "cpu" else torch.float32
    networks = [network_with(plan, weights, device, dtype) for weights in members]
    out = []
    width = max(plan.n_features, plan.hidden)
    with torch.no_grad(), torch_threads(bags.n_instances * width * plan.hidden):
        for a, b in runs(np.asarray(bags.offsets), max(1, _BLOCK // width)):
            feed = Feed(bags[a:b], scaling, device, dtype=dtype)
            for batch in feed.batches(np.arange(b - a), max(b - a, 1)):
                scores = sum(getattr(network, what)(batch.X, batch.at).double() for network in networks)
                out.append((scores / len(networks)).cpu().numpy())
    return np.concatenate(out)
