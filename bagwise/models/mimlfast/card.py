"""MIMLfast's mini-batches with tensors: the loops of `batches` and `forward` for a card, same driver, same
order of bags.

Every step is a fixed row of operations on arrays of fixed size (batches are filled up with bags that count
for nothing), recorded once and replayed: on a card a step of some hundred microseconds would otherwise wait
for Python. A step that does not fit the GPU adds up the gradients of pieces of its batch. Nothing is added
by atomic operations; the same seed gives the same bits on the same card.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch

from bagwise.compute.devices import loops_for_card
from bagwise.compute.torch_move import as_tensor, fitting
from bagwise.compute.torch_ops import Segments, _reduce
from bagwise.models.mimlfast.card_layout import Batch, Layout
from bagwise.models.mimlfast.card_scores import CardForward
from bagwise.models.mimlfast.plan import Plan

__all__ = ["CardTrainer"]

_BETA1, _BETA2, _TINY = 0.9, 0.99, 1e-8
_CELLS = 1 << 26  # comparisons of labels made at a time
_LARGEST_TABLE = 1 << 14  # labels beyond which ranks of a bag do not fit one program of the card
_loops = partial(loops_for_card, "bagwise.models.mimlfast.card_triton")


class CardTrainer:
    """What `batches.BatchTrainer` does, on a device; ``state`` is that of the other, as arrays.

    ``Y`` is the 0/1 matrix of labels of all bags, ``ids`` are those to learn from.
    """

    def __init__(
        self,
        plan: Plan,
        forward: CardForward,
        Y: np.ndarray,
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
        self.relevant = _label_matrix(Y, device)
        self.cuts = np.arange(self.n_batches + 1) * len(ids) // self.n_batches
        self.constants = as_tensor(self._all_constants(n_epochs)).to(device)
        self.step = torch.zeros(1, dtype=torch.int64, device=device)  # updates made
        self.batch = torch.zeros(1, dtype=torch.int64, device=device)  # batches of this pass
        self.used_tensor = torch.zeros((n_all, K), dtype=torch.int64, device=device)
        self.loss = torch.zeros((), dtype=torch.float64, device=device)
        self.losses: list[float] = []
        self.piece_bags = int(np.diff(self.cuts).max())  # bags of a batch that go through the card together
        self.done = 0  # batches of this pass
        self._order: np.ndarray | None = None
        self.layout: Layout | None = None
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
        order = self.rng.permutation(self.ids) if self._order is None else self._order
        self.done = 0
        self.used_tensor.zero_()
        self.loss.zero_()
        self.batch.zero_()
        work = partial(self._batches, order)
        _, self.piece_bags = fitting(work, self.piece_bags, "a step of one bag")
        self._order = self.rng.permutation(
            self.ids
        )  # of the next pass, while the card still works on this one
        self.updates += self.n_batches
        self.losses.append(float(self.loss) / len(order))
        self.used = self.used_tensor.cpu().numpy()
        self.t += len(order)

    def _batches(self, order: np.ndarray, piece_bags: int) -> None:
        """The batches of a pass that are not done yet."""
        n_pieces = -(-int(np.diff(self.cuts).max()) // piece_bags)
        cuts = self.cuts[:-1, None] + np.arange(n_pieces) * np.diff(self.cuts)[:, None] // n_pieces
        cuts = np.append(cuts.ravel(), len(order))
        rows = np.concatenate([[0], np.cumsum(np.diff(self.forward.offsets)[order])])
        n_rows = int(np.diff(rows[cuts]).max()) + 1
        layout = self.layout
        if layout is None or layout.n_pieces != n_pieces or n_rows > layout.n_rows:
            self.layout = self._recorded = layout = None  # makes room
            self.layout = Layout(self.forward, cuts, n_pieces, int(1.05 * n_rows) + 64)
        assert self.layout is not None
        self.layout.fill(order)
        while self.done < self.n_batches:
            self.layout.feed(self.forward, order, self.done)
            self._run()
            self.done += 1

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
            with torch.cuda.device(self.forward.device):
                self._recorded = self._record()
            self._recorded.replay()
        else:
            self._recorded.replay()

    def _record(self) -> Any:
        """A step as the card replays it; nothing is changed, also where it does not fit."""
        changed = (self.A, self.V, *self.moments, self.used_tensor, self.loss, self.step, self.batch)
        side = torch.cuda.Stream(self.forward.device)
        side.wait_stream(torch.cuda.current_stream())
        kept = [x.clone() for x in changed]
        try:
            with torch.cuda.stream(side):
                self._step()  # libraries set themselves up in a first run, which is undone
        finally:
            torch.cuda.current_stream().wait_stream(side)
            for x, before in zip(changed, kept):
                x.copy_(before)
        # begun and ended here: torch.cuda.graph would first give all memory back, which takes longer
        torch.cuda.synchronize()
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.stream(side):
            recorded.capture_begin()
            try:
                self._step()
            except BaseException:
                with suppress(RuntimeError):  # a recording that broke off says so
                    recorded.capture_end()
                raise
            recorded.capture_end()
        torch.cuda.current_stream().wait_stream(side)
        return recorded

    def _step(self) -> None:
        """One update: reads and writes tensors in place, and writes once all else has been found."""
        assert self.layout is not None
        n_pieces = self.layout.n_pieces
        found = self._gradient(self.batch if n_pieces == 1 else self.batch * n_pieces)
        for i in range(1, n_pieces):
            for total, part in zip(found, self._gradient(self.batch * n_pieces + i)):
                total += part
        loss, used, for_A, for_V = found
        for x, g, mean, square in ((self.A, for_A, *self.moments[:2]), (self.V, for_V, *self.moments[2:])):
            if self._fused(for_V):
                betas = _BETA1, _BETA2, _TINY
                _loops().adam(
                    x, g.contiguous(), mean, square, self.constants, self.step, self.plan.max_norm, betas
                )
            else:
                self._adam(x, g, mean, square)
        self.loss += loss
        self.used_tensor += used
        self.step += 1
        self.batch += 1

    def _fused(self, like: torch.Tensor) -> bool:
        return like.is_cuda and _loops() is not None and self.V.shape[1] <= _LARGEST_TABLE

    def _gradient(self, number: torch.Tensor) -> tuple[Any, Any, Any, Any]:
        """Loss, use of sub-concepts and gradient of Eq. (5) with exact ranks, for one piece of a batch."""
        assert self.layout is not None
        K, n_all, m = self.V.shape
        batch = self.layout.batch(number, self.forward)
        relevant = self.relevant.index_select(0, batch.bags)
        P = batch.X @ self.A
        S = P @ self.V.reshape(-1, m).T
        G = torch.zeros_like(S)
        if self._fused(S):
            best = _loops().best_of_bags(S, batch.offsets, batch.counts, K, n_all)
            loss = _loops().slopes_to(G, *best, relevant, batch.counts, self.harmonic)
            used = _loops().used(best[1], relevant, batch.counts, K)
        else:
            counts = batch.counts > 0
            top, which, source = self._best(S, batch)
            slopes, loss = self._slopes(top, relevant, counts)
            self._scatter(G, slopes, which, source, counts)
            used = self._used(which, relevant, counts)
        return loss, used, batch.X.T @ (G @ self.V.reshape(-1, m)), (G.T @ P).view(K, n_all, m)

    def _used(self, which: Any, relevant: Any, counts: Any) -> Any:
        """How often each sub-concept is the best of its label, in bags that carry it; the dummy is in all."""
        relevant[:, -1] = True
        chosen = which[:, None, :] == torch.arange(len(self.V), device=which.device)[None, :, None]
        return (chosen & (relevant & counts[:, None])[:, None, :]).sum(dim=0).T

    def _scatter(self, G: Any, slopes: Any, which: Any, source: Any, counts: Any) -> None:
        """Give slopes to the sub-concept that is best, and to the first instance that attains it.

        Every place is written once; bags that do not count share the last one, which holds 0.
        """
        K, n_all, _ = self.V.shape
        places = source * (K * n_all) + torch.arange(n_all, device=G.device)[None, :] + which * n_all
        G.view(-1)[torch.where(counts[:, None], places, G.numel() - 1)] = torch.where(
            counts[:, None], slopes, 0.0
        )

    def _best(self, S: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
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
        return torch.where(batch.counts[:, None] > 0, best, 0.0), which, source

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


def _label_matrix(Y: np.ndarray, device: Any) -> torch.Tensor:
    """Labels of all bags, and a column for the dummy."""
    relevant = torch.zeros((len(Y), Y.shape[1] + 1), dtype=torch.bool, device=device)
    relevant[:, :-1] = as_tensor(Y).to(device) != 0
    return relevant
