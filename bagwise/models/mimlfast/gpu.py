"""MIMLfast's mini-batches and scores with tensors: the steps that `BatchTrainer` takes on a GPU.

Every step is a fixed row of operations on arrays of fixed size (batches are filled up with bags that count
for nothing), recorded once and replayed: a step of some hundred microseconds would otherwise wait for Python.
A step that does not fit the GPU adds up the gradients of pieces of its batch. Nothing is added by atomic
operations; the same seed gives the same bits on the same GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch

from bagwise.compute.devices import triton_kernels
from bagwise.compute.scaling import Scaling
from bagwise.compute.torch_move import as_tensor, fetched, fitting, streamed
from bagwise.compute.torch_ops import Segments, _reduce
from bagwise.models._shared.gpu import Instances
from bagwise.models.mimlfast.fit_minibatch import BETA1, BETA2
from bagwise.models.mimlfast.predict import Scale

_TINY = 1e-8
_CELLS = 1 << 26  # comparisons of labels, or scores of instances, made at a time
_LARGEST_TABLE = 1 << 14  # labels beyond which ranks of a bag do not fit one program of the GPU
_kernels = partial(triton_kernels, "bagwise.models.mimlfast.gpu_triton")


class GPUBatches:
    """What `bagwise.models.mimlfast.fit_minibatch.Batches` does, on a device."""

    def __init__(self, max_norm: float, forward: GPUForward, state: dict[str, Any], cuts: np.ndarray) -> None:
        self.max_norm, self.forward, self.cuts = max_norm, forward, cuts
        self.relevant, device = forward.labels, forward.device
        K, n_all, m = forward.shape
        self.A = forward.padded(state["A"])
        self.vectors = as_tensor(state["W"].transpose(1, 0, 2)).to(device).clone()
        *for_A, mean, square = state["moments"]
        self.moments = [forward.padded(x) for x in for_A]
        self.moments += [as_tensor(x).to(device).view(K, n_all, m).clone() for x in (mean, square)]
        harmonic = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, n_all + 1))])
        self.harmonic = as_tensor(harmonic.astype(np.float32)).to(device)
        self.n_batches = len(cuts) - 1
        self.constants = torch.zeros((self.n_batches, 4), device=device)  # of every update of a pass
        self.batch = torch.zeros(1, dtype=torch.int64, device=device)  # batches of this pass
        self.used = torch.zeros((n_all, K), dtype=torch.int64, device=device)
        self.loss = torch.zeros((), dtype=torch.float64, device=device)
        self.piece_bags = int(np.diff(self.cuts).max())  # bags of a batch that go through the GPU together
        self.done = 0  # batches of this pass
        self.layout: Layout | None = None
        self._recorded: Any = None

    def begin(self, order: np.ndarray, constants: list[tuple[float, ...]]) -> None:
        """One pass over the bags in this order, on which the GPU is still at work afterwards."""
        self.constants.copy_(as_tensor(np.array(constants, dtype=np.float32)))
        self.done = 0
        self.used.zero_()
        self.loss.zero_()
        self.batch.zero_()
        _, self.piece_bags = fitting(partial(self._batches, order), self.piece_bags, "a step of one bag")

    def end(self) -> tuple[float, np.ndarray]:
        """Sum of the losses of the pass, and how often each sub-concept was the best of its label."""
        return float(self.loss), self.used.cpu().numpy()

    def arrays(self) -> dict[str, Any]:
        """Parameters and moments."""
        K, n_all, m = self.forward.shape
        n_inputs = self.forward.n_inputs
        moments = [x.cpu().numpy() for x in self.moments]
        return {
            "A": self.A[:n_inputs].cpu().numpy(),
            "W": np.ascontiguousarray(self.vectors.cpu().numpy().transpose(1, 0, 2)),
            "moments": [x[:n_inputs] for x in moments[:2]] + [x.reshape(K * n_all, m) for x in moments[2:]],
        }

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
        """A step as the GPU replays it; nothing is changed, also where it does not fit."""
        changed = (self.A, self.vectors, *self.moments, self.used, self.loss, self.batch)
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
        kernels, parameters = self._fused(for_V), (self.A, self.vectors)
        for x, g, mean, square in zip(parameters, (for_A, for_V), self.moments[::2], self.moments[1::2]):
            if kernels is None:
                self._adam(x, g, mean, square)
            else:
                rates = self.constants, self.batch, self.max_norm, (BETA1, BETA2, _TINY)
                kernels.adam(x, g.contiguous(), mean, square, *rates)
        self.loss += loss
        self.used += used
        self.batch += 1

    def _fused(self, like: torch.Tensor) -> Any:
        """Triton kernels, where they can be used."""
        return _kernels() if like.is_cuda and self.vectors.shape[1] <= _LARGEST_TABLE else None

    def _gradient(self, number: torch.Tensor) -> tuple[Any, Any, Any, Any]:
        """Loss, use of sub-concepts and gradient of Eq. (5) with exact ranks, for one piece of a batch."""
        assert self.layout is not None
        K, n_all, m = self.vectors.shape
        batch = self.layout.batch(number, self.forward)
        relevant = self.relevant.index_select(0, batch.bags)
        P = batch.X @ self.A
        S = P @ self.vectors.reshape(-1, m).T
        G = torch.zeros_like(S)
        kernels = self._fused(S)
        if kernels is not None:
            best = kernels.best_of_bags(S, batch.offsets, batch.real, K, n_all)
            loss = kernels.slopes_to(G, *best, relevant, batch.real, self.harmonic)
            used = kernels.used(best[1], relevant, batch.real, K)
        else:
            counts = batch.real > 0
            top, which, source = self._best(S, batch)
            slopes, loss = self._slopes(top, relevant, counts)
            self._scatter(G, slopes, which, source, counts)
            used = self._used_of(which, relevant, counts)
        return loss, used, batch.X.T @ (G @ self.vectors.reshape(-1, m)), (G.T @ P).view(K, n_all, m)

    def _used_of(self, which: Any, relevant: Any, counts: Any) -> Any:
        """How often each sub-concept is the best of its label, in bags that carry it; the dummy is in all."""
        relevant[:, -1] = True
        chosen = which[:, None, :] == torch.arange(len(self.vectors), device=which.device)[None, :, None]
        return (chosen & (relevant & counts[:, None])[:, None, :]).sum(dim=0).T

    def _scatter(self, G: Any, slopes: Any, which: Any, source: Any, counts: Any) -> None:
        """Give slopes to the sub-concept that is best, and to the first instance that attains it.

        Every place is written once; bags that do not count share the last one, which holds 0.
        """
        K, n_all, _ = self.vectors.shape
        places = source * (K * n_all) + torch.arange(n_all, device=G.device)[None, :] + which * n_all
        G.view(-1)[torch.where(counts[:, None], places, G.numel() - 1)] = torch.where(
            counts[:, None], slopes, 0.0
        )

    def _best(self, S: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Best score of every bag and label, its sub-concept, and the first row that has it."""
        K, n_all, _ = self.vectors.shape
        at = Segments(batch.offsets, batch.owners, 0)
        top = _reduce(S, at, "max").view(-1, K, n_all)
        best, which = top.max(dim=1)
        own = S.view(-1, K, n_all).gather(1, which.index_select(0, batch.owners)[:, None, :])[:, 0]
        numbers = torch.arange(len(S), dtype=torch.float64, device=S.device)[:, None]
        attains = torch.where(best.index_select(0, batch.owners) == own, numbers, torch.inf)
        source = _reduce(attains, at, "min")
        source = torch.where(torch.isinf(source), 0.0, source).long()
        return torch.where(batch.real[:, None] > 0, best, 0.0), which, source

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
        rate, correct_mean, correct_square, share = self.constants.index_select(0, self.batch)[0]
        g = g * share
        mean.mul_(BETA1).add_(g, alpha=1.0 - BETA1)
        square.mul_(BETA2).addcmul_(g, g, value=1.0 - BETA2)
        x.sub_(rate * (mean * correct_mean) / ((square * correct_square).sqrt_() + _TINY))
        norms = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        x.mul_((self.max_norm / norms.clamp_min(1e-30)).clamp_max(1.0))


# ---------------------------------------------------------------------- what a step reads


class Batch(NamedTuple):
    """Tensors of one batch."""

    X: torch.Tensor  # instances
    offsets: torch.Tensor  # where bags begin
    owners: torch.Tensor  # the bag of every instance
    bags: torch.Tensor  # their numbers
    real: torch.Tensor  # 1, and 0 for bags that fill it up


class Layout:
    """All pieces of the batches of a pass, a row each, filled up with rows and bags that count for nothing.

    Where instances are not kept on the device, ``X`` is where those of the batch at hand are put.
    """

    def __init__(self, forward: GPUForward, cuts: np.ndarray, n_pieces: int, n_rows: int) -> None:
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

    def feed(self, forward: GPUForward, order: np.ndarray, batch: int) -> None:
        """Bring the instances of a batch to the device, where they are not kept there."""
        if self.X is None:
            return
        for i in range(self.n_pieces):
            first, last = self.host_cuts[batch * self.n_pieces + i :][:2]
            given = forward.inputs(forward.bounds(order[first:last])[0])
            self.X[i, : len(given)] = given

    def batch(self, number: torch.Tensor, forward: GPUForward) -> Batch:
        """The batch of this number; rows that fill it up hold instances that no bag counts."""
        offsets, bags, counts, index, rows = self.table.index_select(0, number)[0].split(self.widths)
        if self.X is not None:
            X = self.X[0] if self.n_pieces == 1 else self.X.index_select(0, number % self.n_pieces)[0]
            return Batch(X, offsets, index, bags, counts)
        assert forward.store.kept is not None
        return Batch(forward.store.kept.index_select(0, rows), offsets, index, bags, counts)


# ---------------------------------------------------------------------- instances and scores


def scaled_instances(X: np.ndarray, scaling: str, norm: float, device: Any) -> tuple[Instances | None, Any]:
    """Dense instances on a device, and the scale of `learn_scale` they have there; None twice for text."""
    d = X.shape[1]
    width = -(-(d + 1) // 8) * 8  # rows begin at multiples of 32 bytes
    if scaling == "none":
        store = Instances(X, device, Scaling("none", np.zeros(d), np.ones(d)), width=width)
    else:
        store = Instances(X, device, width=width)
        if store.is_text:
            return None, None
        squares = np.count_nonzero(store.base.factor)
        store.stretch(norm / np.sqrt(squares) if squares > 0 else 0.0)
    constant = 0.0 if scaling == "none" else 1.0
    if store.kept is not None:
        store.kept[:, d] = constant
    mean, factor = (values.astype(X.dtype) for values in (store.base.shift, store.base.factor))
    return store, Scale(mean, factor, constant, False)


class GPUForward:
    """Scaled instances on the device, and scores of bags by number; takes the place of `predict.Forward`."""

    kind = "gpu"

    def __init__(
        self, store: Instances, offsets: np.ndarray, scale: Scale, shape: tuple[int, int, int], Y: np.ndarray
    ) -> None:
        self.store, self.shape, self.device, self.Y = store, shape, store.device, Y
        self.offsets = np.asarray(offsets, dtype=np.int64)
        self.n_inputs, self.width, self.constant = store.shape[1] + 1, store.width, float(scale.constant)
        self._step = 1 << 62  # bags at a time that have fitted the GPU

    @cached_property
    def labels(self) -> torch.Tensor:
        """Labels of all bags, and a column for the dummy."""
        relevant = torch.zeros((len(self.Y), self.Y.shape[1] + 1), dtype=torch.bool, device=self.device)
        relevant[:, :-1] = as_tensor(self.Y).to(self.device) != 0
        return relevant

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

    def padded(self, space: np.ndarray) -> torch.Tensor:
        """The map into the shared space with rows of zeros for columns of zeros."""
        wide = torch.zeros((self.width, space.shape[1]), device=self.device)
        wide[: len(space)] = as_tensor(space).to(self.device)
        return wide

    def scores(self, ids: np.ndarray, space: torch.Tensor, vectors: torch.Tensor) -> np.ndarray:
        """Scores of all labels and the dummy for some bags; ``space`` is padded."""
        K, n_all, m = vectors.shape
        mean_size = max(self.store.shape[0] / (len(self.offsets) - 1), 1.0)
        usual = max(1, int(_CELLS / (K * n_all * mean_size)))

        def whole(step: int) -> np.ndarray:
            out = []
            for start in range(0, len(ids), step):
                rows, bounds = self.bounds(ids[start : start + step])
                S = (self.inputs(rows) @ space) @ vectors.reshape(-1, m).T
                top = _reduce(S, Segments.of(bounds, self.device), "max")
                out.append(top.view(-1, K, n_all).amax(dim=1))
            return torch.cat(out).cpu().numpy()

        start = min(usual, self._step, max(len(ids), 1))
        found, step = fitting(whole, start, "one bag")
        self._step = step if step < start else self._step
        return found


def scores_on_gpu(
    model: Any, bags: Any, bounds: list[tuple[int, int]], gpu: Any, *, of_bags: bool
) -> Iterator[tuple[tuple[int, int], np.ndarray]]:
    """Runs of bags, with the best score over sub-concepts of every label and the dummy.

    Scores are of the bags or of their instances; runs that do not fit the GPU come in halves.
    """
    n_all, K, m = model.label_weights_.shape
    given = model.shared_space_.T, model.shared_intercept_, model.label_weights_.reshape(-1, m).T
    A, c, V = (as_tensor(np.asarray(values, dtype=np.float64)).to(gpu) for values in given)
    V, offsets = V.float(), np.asarray(bags.offsets)

    def scores(X: torch.Tensor, first: int, last: int) -> np.ndarray:
        # features as given may be far from 0: the shared space is found in double precision
        S = torch.addmm(c, X.double(), A).float() @ V
        best = S.view(len(X), n_all, K).amax(dim=2)
        if of_bags:
            best = _reduce(best, Segments.of(offsets[first : last + 1] - offsets[first], gpu), "max")
        return fetched(best).astype(np.float64)

    todo = list(bounds)
    while todo:
        rows = [(int(offsets[first]), int(offsets[last])) for first, last in todo]
        pending, done = zip(list(todo), streamed(bags.X, rows, gpu)), False
        with suppress(torch.cuda.OutOfMemoryError):
            for (first, last), X in pending:
                found = scores(X, first, last)
                todo.pop(0)
                yield (first, last), found
            done = True
        if not done:
            torch.cuda.empty_cache()
            first, last = todo.pop(0)
            if last - first < 2:
                raise torch.cuda.OutOfMemoryError("the largest bag does not fit the GPU; use device='cpu'")
            todo[:0] = [(first, (first + last) // 2), ((first + last) // 2, last)]
