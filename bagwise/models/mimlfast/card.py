"""MIMLfast's mini-batches with tensors: the loops of `batches` and `forward` for a card, same driver, same
order of bags.

Every step is a fixed row of operations on arrays of fixed size (batches are filled up with bags that count
for nothing), recorded once and replayed: on a card a step of some hundred microseconds would otherwise wait
for Python. Nothing is added by atomic operations; the same seed gives the same bits on the same card.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bagwise.kernels.torch_ops import Segments, _reduce
from bagwise.models.mimlfast.memory import LabelRows
from bagwise.models.mimlfast.plan import Plan
from bagwise.models.mimlfast.scale import Scale

__all__ = ["CardForward", "CardTrainer"]

_BETA1, _BETA2, _TINY = 0.9, 0.99, 1e-8
_CELLS = 1 << 26  # scores of instances, or comparisons of labels, made at a time


class CardForward:
    """Scaled instances on the device, and scores of bags by number; takes the place of `forward.Forward`."""

    def __init__(
        self, X: Any, offsets: np.ndarray, scale: Scale, shape: tuple[int, int, int], device: Any
    ) -> None:
        self.shape, self.device, self.offsets = shape, device, np.asarray(offsets, dtype=np.int64)
        self.n_inputs = X.shape[1] + 1
        given = (torch.as_tensor(np.asarray(values)) for values in (scale.mean, scale.factor))
        mean, factor = (values.to(device, torch.float32) for values in given)
        self.X = torch.empty((X.shape[0], self.n_inputs), dtype=torch.float32, device=device)
        run = max(1, (1 << 26) // self.n_inputs)
        for first in range(0, X.shape[0], run):
            rows = torch.as_tensor(np.ascontiguousarray(X[first : first + run])).to(device).float()
            self.X[first : first + run, :-1] = (rows - mean) * factor
        self.X[:, -1] = float(scale.constant)

    def rows(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Row numbers of the instances of some bags, and where the bags begin among them."""
        sizes = self.offsets[ids + 1] - self.offsets[ids]
        bounds = np.concatenate([[0], np.cumsum(sizes)])
        return np.arange(bounds[-1]) + np.repeat(self.offsets[ids] - bounds[:-1], sizes), bounds

    def scores(self, ids: np.ndarray, space: torch.Tensor, vectors: torch.Tensor) -> np.ndarray:
        """Scores of all labels and the dummy for some bags."""
        K, n_all, m = vectors.shape
        mean_size = max(len(self.X) / (len(self.offsets) - 1), 1.0)
        step = max(1, int(_CELLS / (K * n_all * mean_size)))
        out = []
        for start in range(0, len(ids), step):
            rows, bounds = self.rows(ids[start : start + step])
            P = self.X[torch.as_tensor(rows).to(self.device)] @ space
            S = P @ vectors.reshape(-1, m).T
            top = _reduce(S, Segments.of(bounds, self.device), "max")
            out.append(top.view(-1, K, n_all).amax(dim=1))
        return torch.cat(out).cpu().numpy()


class CardTrainer:
    """What `batches.BatchTrainer` does, on a device; ``state`` is that of the other, as arrays."""

    def __init__(
        self,
        plan: Plan,
        forward: CardForward,
        labels: LabelRows,
        ids: np.ndarray,
        state: dict[str, Any],
        rng: np.random.Generator,
        n_epochs: int,
    ) -> None:
        self.plan, self.forward, self.labels, self.ids, self.rng = plan, forward, labels, ids, rng
        self.n_batches = max(1, -(-len(ids) // plan.batch_bags))
        self.total, self.done, self.updates, self.t = n_epochs * self.n_batches, 0, 0, int(state["t"])
        device = forward.device
        K, n_all, _ = forward.shape
        self.A = torch.as_tensor(state["A"]).to(device).contiguous()
        self.V = torch.as_tensor(np.ascontiguousarray(state["W"].transpose(1, 0, 2))).to(device)
        self.moments = [torch.zeros_like(x) for x in (self.A, self.A, self.V, self.V)]
        harmonic = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, n_all + 1))])
        self.harmonic = torch.as_tensor(harmonic, dtype=torch.float32).to(device)
        # room for the largest batch: one bag more than any has, which takes the rows that fill it up
        self.n_bags = -(-len(ids) // self.n_batches) + 1
        sizes = np.sort(np.diff(forward.offsets)[ids])
        self.n_rows = int(sizes[-self.n_bags :].sum()) + 1
        spare = 4.0 * np.sqrt(self.n_bags) * (sizes.std() + 1.0)
        self.n_rows = min(self.n_rows, int(self.n_bags * sizes.mean() + spare) + int(sizes[-1]) + 1)
        self.room = _Room(self.n_rows, self.n_bags, n_all, device)
        self.used_tensor = torch.zeros((n_all, K), dtype=torch.int64, device=device)
        self.loss = torch.zeros((), dtype=torch.float64, device=device)
        self.losses: list[float] = []
        self._recorded: Any = None

    # ------------------------------------------------------------------ what the driver calls

    def epoch(self) -> None:
        """One pass over the bags in random order: that of the other trainer."""
        order = self.rng.permutation(self.ids)
        n, k = len(order), self.n_batches
        self.used_tensor.zero_()
        self.loss.zero_()
        for j in range(k):
            part = order[j * n // k : (j + 1) * n // k]
            self._fill(part)
            self._run()
        self.losses.append(float(self.loss) / n)
        self.used = self.used_tensor.cpu().numpy()
        self.t += n

    def scores(self, ids: np.ndarray) -> np.ndarray:
        """Scores of labels and dummy."""
        return self.forward.scores(ids, self.A, self.V)

    @property
    def state(self) -> dict[str, Any]:
        """All that training goes on from, as arrays."""
        K, n_all, m = self.forward.shape
        moments = [x.cpu().numpy() for x in self.moments]
        shaped = [*moments[:2], *(x.reshape(K * n_all, m) for x in moments[2:])]
        return {
            "A": self.A.cpu().numpy(),
            "W": np.ascontiguousarray(self.V.cpu().numpy().transpose(1, 0, 2)),
            "t": self.t,
            "moments": shaped,
            "updates": self.updates,
            "batch_bags": min(self.plan.batch_bags, len(self.ids)),
        }

    # ------------------------------------------------------------------ one step

    def _fill(self, ids: np.ndarray) -> None:
        """Put a batch and the constants of its step where the recorded step reads them."""
        rate = self.plan.learning_rate * (1.0 - self.done / self.total)
        self.done += 1
        self.updates += 1
        rows, bounds = self.forward.rows(ids)
        if len(rows) > self.n_rows:  # rare: the room grows, and the step is recorded anew
            self.n_rows = len(rows) + 1
            self.room = _Room(self.n_rows, self.n_bags, self.forward.shape[1], self.forward.device)
            self._recorded = None
        labels, starts = self.labels.labels, self.labels.starts
        counts = starts[ids + 1] - starts[ids]
        places = np.arange(counts.sum()) + np.repeat(starts[ids] - np.cumsum(counts) + counts, counts)
        self.room.fill(rows, bounds, np.repeat(np.arange(len(ids)), counts), labels[places])
        corrections = 1.0 / (1.0 - _BETA1**self.updates), 1.0 / (1.0 - _BETA2**self.updates)
        self.room.constants.copy_(torch.tensor([rate, *corrections, 1.0 / len(ids)]), non_blocking=True)

    def _run(self) -> None:
        if self.forward.device.type != "cuda":
            self._step()
        elif self._recorded is None:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            kept = [x.clone() for x in (self.A, self.V, *self.moments, self.used_tensor, self.loss)]
            with torch.cuda.stream(side):
                self._step()  # libraries set themselves up in a first run, which is undone
            torch.cuda.current_stream().wait_stream(side)
            for x, before in zip((self.A, self.V, *self.moments, self.used_tensor, self.loss), kept):
                x.copy_(before)
            self._recorded = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._recorded):
                self._step()
            self._recorded.replay()
        else:
            self._recorded.replay()

    def _step(self) -> None:
        """Gradient of Eq. (5) with exact ranks, then Adam and the caps; reads and writes tensors in place."""
        room = self.room
        K, n_all, m = self.V.shape
        X = self.forward.X.index_select(0, room.rows) * room.counts_row[:, None]
        P = X @ self.A
        S = P @ self.V.reshape(-1, m).T
        at = Segments(room.offsets, room.index, 0)
        top = _reduce(S, at, "max")  # (bags, K * labels)
        best, which = top.view(-1, K, n_all).max(dim=1)
        best = torch.where(room.counts_bag[:, None], best, 0.0)  # bags that fill up may be empty
        slopes, loss, relevant = self._slopes(best)
        self.loss += loss
        chosen = which[:, None, :] == torch.arange(K, device=which.device)[None, :, None]
        self.used_tensor += (chosen & relevant[:, None, :]).sum(dim=0).T
        # slopes go to the sub-concept that is best, and to the first instance that attains it
        wide = (slopes[:, None, :] * chosen).reshape(-1, K * n_all)
        attains = torch.where(top.index_select(0, room.index) == S, room.numbers[:, None], torch.inf)
        first = _reduce(attains, at, "min")
        first, wide = (values.index_select(0, room.index) for values in (first, wide))
        G = torch.where(room.numbers[:, None] == first, wide, 0.0)
        for_V = (G.T @ P).view(K, n_all, m)
        for_A = X.T @ (G @ self.V.reshape(-1, m))
        self._adam(self.A, for_A, self.moments[0], self.moments[1])
        self._adam(self.V, for_V, self.moments[2], self.moments[3])

    def _slopes(self, best: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Slopes of the scores of every bag, the loss, and for which scores ranks were taken."""
        n_all = best.shape[1]
        relevant = self.room.relevant.clone()
        irrelevant = ~relevant & self.room.counts_bag[:, None]
        irrelevant[:, -1] = False
        relevant[:, -1] = self.room.counts_bag
        slopes, total = torch.zeros_like(best), best.new_zeros((), dtype=torch.float64)
        step = max(1, _CELLS // (n_all * n_all))
        for a in range(0, len(best), step):
            b = slice(a, a + step)
            can = irrelevant[b][:, None, :].expand(-1, n_all, -1).clone()
            can[:, :-1, -1] = True  # the dummy may violate any label but itself
            wrong = (best[b][:, None, :] > best[b][:, :, None] - 1.0) & can & relevant[b][:, :, None]
            rank = wrong.sum(dim=2)
            H = self.harmonic[rank]
            weight = H / rank.clamp_min(1)
            slopes[b] = torch.bmm(weight[:, None, :], wrong.to(best.dtype))[:, 0] - H
            total += H.sum(dtype=torch.float64) + (slopes[b] * best[b]).sum(dtype=torch.float64)
        return slopes, total, relevant

    def _adam(self, x: torch.Tensor, g: torch.Tensor, mean: torch.Tensor, square: torch.Tensor) -> None:
        rate, correct_mean, correct_square, share = self.room.constants
        g = g * share
        mean.mul_(_BETA1).add_(g, alpha=1.0 - _BETA1)
        square.mul_(_BETA2).addcmul_(g, g, value=1.0 - _BETA2)
        x.sub_(rate * (mean * correct_mean) / ((square * correct_square).sqrt_() + _TINY))
        norms = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        x.mul_((self.plan.max_norm / norms.clamp_min(1e-30)).clamp_max(1.0))


class _Room:
    """Where a batch lies: arrays of fixed size, filled up with rows and bags that count for nothing."""

    def __init__(self, n_rows: int, n_bags: int, n_all: int, device: Any) -> None:
        self.rows = torch.zeros(n_rows, dtype=torch.int64, device=device)
        self.counts_row = torch.zeros(n_rows, device=device)
        self.index = torch.zeros(n_rows, dtype=torch.int64, device=device)
        self.offsets = torch.zeros(n_bags + 1, dtype=torch.int64, device=device)
        self.relevant = torch.zeros((n_bags, n_all), dtype=torch.bool, device=device)
        self.counts_bag = torch.zeros(n_bags, dtype=torch.bool, device=device)
        self.numbers = torch.arange(n_rows, dtype=torch.float32, device=device)
        self.constants = torch.zeros(4, device=device)

    def fill(self, rows: np.ndarray, bounds: np.ndarray, bags: np.ndarray, labels: np.ndarray) -> None:
        """Copy a batch in; the last bag takes the rows that are left over."""
        n_rows, n_bags = len(self.rows), len(self.offsets) - 1
        n, b = len(rows), len(bounds) - 1
        offsets = np.concatenate([bounds, np.full(n_bags - b, n)])
        offsets[-1] = n_rows
        index = np.full(n_rows, n_bags - 1)
        index[:n] = np.repeat(np.arange(b), np.diff(bounds))
        padded = np.zeros(n_rows, dtype=np.int64)
        padded[:n] = rows
        relevant = np.zeros(self.relevant.shape, dtype=bool)
        relevant[bags, labels] = True
        for room, values in (
            (self.rows, padded),
            (self.counts_row, (np.arange(n_rows) < n).astype(np.float32)),
            (self.index, index),
            (self.offsets, offsets),
            (self.relevant, relevant),
            (self.counts_bag, np.arange(n_bags) < b),
        ):
            room.copy_(torch.as_tensor(values), non_blocking=True)
