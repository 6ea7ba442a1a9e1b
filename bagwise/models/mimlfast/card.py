"""MIMLfast's mini-batches with tensors: the loops of `batches` and `forward` for a card, same driver, same
order of bags.

Every step is a fixed row of operations on arrays of fixed size (batches are filled up with bags that count
for nothing), recorded once and replayed: on a card a step of some hundred microseconds would otherwise wait
for Python. Nothing is added by atomic operations; the same seed gives the same bits on the same card.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import torch

from bagwise.kernels.torch_move import as_tensor, fetched, streamed
from bagwise.kernels.torch_ops import Segments, _reduce
from bagwise.models._shared.instances_torch import Instances
from bagwise.models._shared.scaling import Scaling
from bagwise.models.mimlfast.memory import LabelRows
from bagwise.models.mimlfast.plan import Plan
from bagwise.models.mimlfast.scale import Scale

__all__ = ["CardForward", "CardTrainer", "scaled_instances", "scores_on_card"]

_BETA1, _BETA2, _TINY = 0.9, 0.99, 1e-8
_CELLS = 1 << 26  # scores of instances, or comparisons of labels, made at a time
_LARGEST_TABLE = 1 << 14  # labels beyond which ranks of a bag do not fit one program of the card


@cache
def _loops() -> Any:
    """Loops for a card, where its compiler is there."""
    try:
        from bagwise.models.mimlfast import card_triton
    except ImportError:
        return None
    return card_triton


def scaled_instances(X: np.ndarray, scaling: str, norm: float, device: Any) -> tuple[Instances, Scale]:
    """Dense instances on a device, and the scale of `learn_scale` that they were given there."""
    d = X.shape[1]
    width = -(-(d + 1) // 8) * 8  # rows begin at multiples of 32 bytes
    if scaling == "none":
        store = Instances(X, device, Scaling("none", np.zeros(d), np.ones(d)), width=width)
    else:
        store = Instances(X, device, width=width)
        squares = np.count_nonzero(store.base.factor)
        store.stretch(norm / np.sqrt(squares) if squares > 0 else 0.0)
    constant = 0.0 if scaling == "none" else 1.0
    if store.kept is not None:
        store.kept[:, d] = constant
    mean, factor = (values.astype(X.dtype) for values in (store.base.shift, store.base.factor))
    return store, Scale(mean, factor, constant, False)


class CardForward:
    """Scaled instances on the device, and scores of bags by number; takes the place of `forward.Forward`."""

    def __init__(
        self, store: Instances, offsets: np.ndarray, scale: Scale, shape: tuple[int, int, int]
    ) -> None:
        self.store, self.shape, self.device = store, shape, store.device
        self.offsets = np.asarray(offsets, dtype=np.int64)
        self.n_inputs, self.width, self.constant = store.shape[1] + 1, store.width, float(scale.constant)

    def bounds(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Row numbers of the instances of some bags, and where the bags begin among them."""
        sizes = self.offsets[ids + 1] - self.offsets[ids]
        bounds = np.concatenate([[0], np.cumsum(sizes)])
        return np.arange(bounds[-1]) + np.repeat(self.offsets[ids] - bounds[:-1], sizes), bounds

    def inputs(self, rows: np.ndarray) -> torch.Tensor:
        """Scaled instances with the constant and columns of zeros."""
        if self.store.kept is not None:
            return self.store.kept.index_select(0, as_tensor(rows).to(self.device))
        X = torch.zeros((len(rows), self.width), device=self.device)
        X[:, : self.n_inputs - 1] = self.store.some(rows)
        X[:, self.n_inputs - 1] = self.constant
        return X

    def padded(self, space: torch.Tensor) -> torch.Tensor:
        """The map into the shared space with rows of zeros for columns of zeros."""
        wide = torch.zeros((self.width, space.shape[1]), device=self.device)
        wide[: len(space)] = space
        return wide

    def scores(self, ids: np.ndarray, space: torch.Tensor, vectors: torch.Tensor) -> np.ndarray:
        """Scores of all labels and the dummy for some bags; ``space`` is padded."""
        K, n_all, m = vectors.shape
        mean_size = max(self.store.shape[0] / (len(self.offsets) - 1), 1.0)
        step = max(1, int(_CELLS / (K * n_all * mean_size)))
        out = []
        for start in range(0, len(ids), step):
            rows, bounds = self.bounds(ids[start : start + step])
            S = (self.inputs(rows) @ space) @ vectors.reshape(-1, m).T
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
        self.plan, self.forward, self.ids, self.rng = plan, forward, ids, rng
        self.n_batches = max(1, -(-len(ids) // plan.batch_bags))
        self.updates, self.t = 0, int(state["t"])
        device = forward.device
        K, n_all, _ = forward.shape
        self.A = forward.padded(as_tensor(state["A"]).to(device))
        self.V = as_tensor(state["W"].transpose(1, 0, 2)).to(device)
        self.moments = [torch.zeros_like(x) for x in (self.A, self.A, self.V, self.V)]
        harmonic = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, n_all + 1))])
        self.harmonic = as_tensor(harmonic.astype(np.float32)).to(device)
        self.relevant = _label_matrix(labels, n_all).to(device)
        self.cuts = np.arange(self.n_batches + 1) * len(ids) // self.n_batches
        self.constants = as_tensor(self._all_constants(n_epochs)).to(device)
        self.step = torch.zeros(1, dtype=torch.int64, device=device)  # updates made
        self.batch = torch.zeros(1, dtype=torch.int64, device=device)  # batches of this pass
        self.used_tensor = torch.zeros((n_all, K), dtype=torch.int64, device=device)
        self.loss = torch.zeros((), dtype=torch.float64, device=device)
        self.losses: list[float] = []
        self.layout: _Layout | None = None
        self._recorded: Any = None

    def _all_constants(self, n_epochs: int) -> np.ndarray:
        """Step length, corrections of the moments and share of a bag, for every update."""
        total = n_epochs * self.n_batches
        t = np.arange(total)
        share = np.tile(1.0 / np.diff(self.cuts), n_epochs)
        rate = self.plan.learning_rate * (1.0 - t / total)
        columns = rate, 1.0 / (1.0 - _BETA1 ** (t + 1)), 1.0 / (1.0 - _BETA2 ** (t + 1)), share
        return np.column_stack(columns).astype(np.float32)

    # ------------------------------------------------------------------ what the driver calls

    def epoch(self) -> None:
        """One pass over the bags in random order: that of the other trainer."""
        order = self.rng.permutation(self.ids)
        sizes = np.diff(self.forward.offsets)[order]
        rows = np.concatenate([[0], np.cumsum(sizes)])
        n_rows = int(np.diff(rows[self.cuts]).max()) + 1
        if self.layout is None or n_rows > self.layout.n_rows:  # rarely more than in the pass before
            self.layout = _Layout(self, int(1.05 * n_rows) + 64)
            self._recorded = None
        self.layout.fill(order)
        self.used_tensor.zero_()
        self.loss.zero_()
        self.batch.zero_()
        for j in range(self.n_batches):
            if self.layout.X is not None:
                given = self.forward.inputs(self.forward.bounds(order[self.cuts[j] : self.cuts[j + 1]])[0])
                self.layout.X[: len(given)] = given
            self._run()
        self.updates += self.n_batches
        self.losses.append(float(self.loss) / len(order))
        self.used = self.used_tensor.cpu().numpy()
        self.t += len(order)

    def scores(self, ids: np.ndarray) -> np.ndarray:
        """Scores of labels and dummy."""
        return self.forward.scores(ids, self.A, self.V)

    @property
    def state(self) -> dict[str, Any]:
        """All that training goes on from, as arrays."""
        K, n_all, m = self.forward.shape
        n_inputs = self.forward.n_inputs
        moments = [x.cpu().numpy() for x in self.moments]
        shaped = [*(x[:n_inputs] for x in moments[:2]), *(x.reshape(K * n_all, m) for x in moments[2:])]
        return {
            "A": self.A[:n_inputs].cpu().numpy(),
            "W": np.ascontiguousarray(self.V.cpu().numpy().transpose(1, 0, 2)),
            "t": self.t,
            "moments": shaped,
            "updates": self.updates,
            "batch_bags": min(self.plan.batch_bags, len(self.ids)),
        }

    # ------------------------------------------------------------------ one step

    def _run(self) -> None:
        if self.forward.device.type != "cuda":
            self._step()
        elif self._recorded is None:
            changed = (self.A, self.V, *self.moments, self.used_tensor, self.loss, self.step, self.batch)
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            kept = [x.clone() for x in changed]
            with torch.cuda.stream(side):
                self._step()  # libraries set themselves up in a first run, which is undone
            torch.cuda.current_stream().wait_stream(side)
            for x, before in zip(changed, kept):
                x.copy_(before)
            # begun and ended here: torch.cuda.graph would first give all memory back, which takes longer
            torch.cuda.synchronize()
            self._recorded = torch.cuda.CUDAGraph()
            with torch.cuda.stream(side):
                self._recorded.capture_begin()
                self._step()
                self._recorded.capture_end()
            torch.cuda.current_stream().wait_stream(side)
            self._recorded.replay()
        else:
            self._recorded.replay()

    def _step(self) -> None:
        """Gradient of Eq. (5) with exact ranks, then Adam and the caps; reads and writes tensors in place."""
        assert self.layout is not None
        K, n_all, m = self.V.shape
        batch = self.layout.batch(self.batch, self.forward)
        relevant = self.relevant.index_select(0, batch.bags)
        P = batch.X @ self.A
        S = P @ self.V.reshape(-1, m).T
        fused = S.is_cuda and _loops() is not None and n_all <= _LARGEST_TABLE
        G = torch.zeros_like(S)
        if fused:
            found = _loops().best_of_bags(S, batch.offsets, batch.counts, K, n_all)
            which = found[1]
            loss = _loops().slopes_to(G, *found, relevant, batch.counts, self.harmonic)
        else:
            best, which, source = self._best(S, batch)
            slopes, loss = self._slopes(best, relevant, batch.counts)
            self._scatter(G, slopes, which, source, batch.counts)
        self.loss += loss
        relevant[:, -1] = True
        chosen = which[:, None, :] == torch.arange(K, device=which.device)[None, :, None]
        self.used_tensor += (chosen & (relevant & batch.counts[:, None])[:, None, :]).sum(dim=0).T
        for_V = (G.T @ P).view(K, n_all, m)
        for_A = batch.X.T @ (G @ self.V.reshape(-1, m))
        for x, g, mean, square in ((self.A, for_A, *self.moments[:2]), (self.V, for_V, *self.moments[2:])):
            if fused:
                betas = _BETA1, _BETA2, _TINY
                _loops().adam(
                    x, g.contiguous(), mean, square, self.constants, self.step, self.plan.max_norm, betas
                )
            else:
                self._adam(x, g, mean, square)
        self.step += 1
        self.batch += 1

    def _scatter(self, G: Any, slopes: Any, which: Any, source: Any, counts: Any) -> None:
        """Give slopes to the sub-concept that is best, and to the first instance that attains it.

        Every place is written once; bags that do not count share the last one, which holds 0.
        """
        K, n_all, _ = self.V.shape
        places = source * (K * n_all) + torch.arange(n_all, device=G.device)[None, :] + which * n_all
        G.view(-1)[torch.where(counts[:, None], places, G.numel() - 1)] = torch.where(
            counts[:, None], slopes, 0.0
        )

    def _best(self, S: torch.Tensor, batch: _Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Best score of every bag and label, its sub-concept, and the first row that has it."""
        K, n_all, _ = self.V.shape
        at = Segments(batch.offsets, batch.index, 0)
        top = _reduce(S, at, "max").view(-1, K, n_all)
        best, which = top.max(dim=1)
        own = S.view(-1, K, n_all).gather(1, which.index_select(0, batch.index)[:, None, :])[:, 0]
        numbers = torch.arange(len(S), dtype=torch.float64, device=S.device)[:, None]
        attains = torch.where(best.index_select(0, batch.index) == own, numbers, torch.inf)
        source = _reduce(attains, at, "min")
        source = torch.where(torch.isinf(source), 0.0, source).long()
        return torch.where(batch.counts[:, None], best, 0.0), which, source

    def _slopes(
        self, best: torch.Tensor, given: torch.Tensor, counts: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Slopes of the scores of every bag, and the loss."""
        n_all = best.shape[1]
        relevant = given & counts[:, None]
        irrelevant = ~relevant & counts[:, None]
        irrelevant[:, -1] = False
        relevant[:, -1] = counts
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
        return slopes, total

    def _adam(self, x: torch.Tensor, g: torch.Tensor, mean: torch.Tensor, square: torch.Tensor) -> None:
        rate, correct_mean, correct_square, share = self.constants.index_select(0, self.step)[0]
        g = g * share
        mean.mul_(_BETA1).add_(g, alpha=1.0 - _BETA1)
        square.mul_(_BETA2).addcmul_(g, g, value=1.0 - _BETA2)
        x.sub_(rate * (mean * correct_mean) / ((square * correct_square).sqrt_() + _TINY))
        norms = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        x.mul_((self.plan.max_norm / norms.clamp_min(1e-30)).clamp_max(1.0))


def _label_matrix(labels: LabelRows, n_all: int) -> torch.Tensor:
    relevant = np.zeros((len(labels.starts) - 1, n_all), dtype=bool)
    relevant[np.repeat(np.arange(len(relevant)), np.diff(labels.starts)), labels.labels] = True
    return as_tensor(relevant)


class _Batch:
    """Tensors of one batch: instances, where bags begin, bag numbers, and which bags count."""

    def __init__(self, X: Any, offsets: Any, index: Any, bags: Any, counts: Any) -> None:
        self.X, self.offsets, self.index, self.bags, self.counts = X, offsets, index, bags, counts


class _Layout:
    """All batches of a pass, a row each, filled up with rows and bags that count for nothing.

    Where instances are not kept on the device, ``X`` is where those of the batch at hand are put.
    """

    def __init__(self, trainer: CardTrainer, n_rows: int) -> None:
        device, forward = trainer.forward.device, trainer.forward
        k, n_bags = trainer.n_batches, int(np.diff(trainer.cuts).max()) + 1
        self.n_rows, self.n_bags = n_rows, n_bags
        self.rows, self.index = (torch.zeros((k, n_rows), dtype=torch.int64, device=device) for _ in range(2))
        self.offsets = torch.zeros((k, n_bags + 1), dtype=torch.int64, device=device)
        self.bags = torch.zeros((k, n_bags), dtype=torch.int64, device=device)
        self.counts = torch.zeros((k, n_bags), dtype=torch.bool, device=device)
        self.first = as_tensor(forward.offsets).to(device)
        self.cuts = as_tensor(trainer.cuts).to(device)
        self.X = None
        if forward.store.kept is None:
            self.X = torch.zeros((n_rows, forward.width), device=device)

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

    def batch(self, number: torch.Tensor, forward: CardForward) -> _Batch:
        """The batch of this number; rows that fill it up hold instances that no bag counts."""
        offsets, index, bags, counts = (
            values.index_select(0, number)[0] for values in (self.offsets, self.index, self.bags, self.counts)
        )
        if self.X is not None:
            return _Batch(self.X, offsets, index, bags, counts)
        rows = self.rows.index_select(0, number)[0]
        assert forward.store.kept is not None
        return _Batch(forward.store.kept.index_select(0, rows), offsets, index, bags, counts)


def scores_on_card(
    model: Any, bags: Any, bounds: list[tuple[int, int]], card: Any, *, of_bags: bool
) -> Iterator[np.ndarray]:
    """Best score over sub-concepts, of every label and the dummy, for runs of bags or their instances."""
    n_all, K, m = model.label_weights_.shape
    given = model.shared_space_.T, model.shared_intercept_, model.label_weights_.reshape(-1, m).T
    A, c, V = (as_tensor(np.asarray(values, dtype=np.float64)).to(card) for values in given)
    V, offsets = V.float(), np.asarray(bags.offsets)
    rows = [(int(offsets[first]), int(offsets[last])) for first, last in bounds]
    for (first, last), X in zip(bounds, streamed(bags.X, rows, card)):
        # features as given may be far from 0: the shared space is found in double precision
        S = torch.addmm(c, X.double(), A).float() @ V
        best = S.view(len(X), n_all, K).amax(dim=2)
        if of_bags:
            best = _reduce(best, Segments.of(offsets[first : last + 1] - offsets[first], card), "max")
        yield fetched(best).astype(np.float64)
