"""Training of MIMLfast by mini-batches of Eq. (5) with exact ranks.

`BatchTrainer` draws orders, sets lengths of steps and counts; what a pass does to the parameters it leaves to
`Batches`, or to the same steps on tensors, `bagwise.models.mimlfast.gpu.GPUBatches`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise.models.mimlfast.kernels import (
    AdamStep,
    Moments,
    adam_step,
    keep_active,
    sparse_gradient,
    warp_gradient,
)
from bagwise.models.mimlfast.predict import N_SLICES, Forward, n_slices

if TYPE_CHECKING:
    from bagwise.models.mimlfast.fit import Plan

BETA1, BETA2 = 0.9, 0.99
_HORIZON = 100.0  # updates after which the step of an endless stream begins to fall


class BatchTrainer:
    """Matrix products and Adam with a step that falls to zero over ``n_epochs``, or slowly without an end.

    ``state`` is all that training goes on from: ``A`` (n_inputs, m), the shared space as rows, ``W`` (L + 1,
    K, m), the bags ``t`` seen so far, the moments of Adam and its ``updates``.
    """

    def __init__(
        self,
        plan: Plan,
        forward: Any,
        ids: np.ndarray,
        state: dict[str, Any],
        rng: np.random.Generator,
        n_epochs: int | None,
    ) -> None:
        self.forward, self.ids, self.rng, self.rate = forward, ids, rng, plan.learning_rate
        n_batches = max(1, -(-len(ids) // plan.batch_bags))
        self.cuts = np.arange(n_batches + 1) * len(ids) // n_batches
        self.total = None if n_epochs is None else n_epochs * n_batches  # None: an endless stream
        self.done = 0  # updates of these
        if "moments" not in state:
            (n_all, K, m), A = state["W"].shape, state["A"]
            shapes = (A.shape, A.shape, (K * n_all, m), (K * n_all, m))
            state = state | {"moments": [np.zeros(shape, np.float32) for shape in shapes]}
            state |= {"updates": 0, "batch_bags": min(plan.batch_bags, len(ids))}
        self.counts = {name: state[name] for name in ("t", "updates", "batch_bags")}
        steps: Any = Batches
        if forward.kind == "gpu":
            from bagwise.models.mimlfast.gpu import GPUBatches

            steps = GPUBatches
        self.steps = steps(plan.max_norm, forward, state, self.cuts)
        self.losses: list[float] = []
        self.n_capped = 1  # not counted: norms may have met the cap
        self._order: np.ndarray | None = None

    def epoch(self) -> None:
        """One pass over the bags in random order."""
        order = self.rng.permutation(self.ids) if self._order is None else self._order
        self.steps.begin(order, [self._constants(n) for n in np.diff(self.cuts).tolist()])
        # of the next pass, while a GPU still works on this one
        self._order = self.rng.permutation(self.ids) if self.forward.kind == "gpu" else None
        loss, self.used = self.steps.end()
        self.losses.append(loss / len(order))
        self.counts["t"] += len(order)

    def _constants(self, n: int) -> tuple[float, ...]:
        """Length, corrections of the moments, and share of a bag for the next update, of ``n`` bags."""
        if self.total is None:
            # a bag counts as much as in the batches that training began with: one of few would count for more
            share = min(1.0, n / self.counts["batch_bags"])
            rate = share * self.rate / np.sqrt(1.0 + self.counts["updates"] / _HORIZON)
        else:
            rate = self.rate * (1.0 - self.done / self.total)
        self.done += 1
        self.counts["updates"] += 1
        t = self.counts["updates"]
        return rate, 1.0 / (1.0 - BETA1**t), 1.0 / (1.0 - BETA2**t), 1.0 / n

    @property
    def state(self) -> dict[str, Any]:
        """All that training goes on from."""
        return self.steps.arrays() | self.counts

    def scores(self, ids: np.ndarray) -> np.ndarray:
        """Scores of labels and dummy."""
        return self.forward.scores(ids, self.steps.A, self.steps.vectors)


class Batches:
    """The updates of a pass on the processor; parameters and moments of the state are changed in place."""

    def __init__(self, max_norm: float, forward: Forward, state: dict[str, Any], cuts: np.ndarray) -> None:
        self.forward, self.cuts, self.max_norm = forward, cuts, max_norm
        self.A, self.moments = state["A"], state["moments"]
        self.vectors = np.ascontiguousarray(state["W"].transpose(1, 0, 2))
        K, n_all, m = self.vectors.shape
        self.space_slices = np.zeros((N_SLICES, *self.A.shape), np.float32)
        self.vector_slices = np.zeros((N_SLICES, K * n_all, m), np.float32)
        self.harmonic = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, n_all + 1))]).astype(np.float32)
        self.used = np.zeros((N_SLICES, n_all, K), np.int64)
        self.n_active = np.zeros(N_SLICES, np.int64)  # instances that had a gradient in this pass

    def begin(self, order: np.ndarray, constants: list[tuple[float, ...]]) -> None:
        """One pass over the bags in this order."""
        self.used.fill(0)
        self.n_active.fill(0)
        self.loss = 0.0
        for (first, last), each in zip(pairwise(self.cuts.tolist()), constants):
            ids, n = order[first:last], last - first
            k = n_slices(n)
            parts = [(s, ids[s * n // k : (s + 1) * n // k]) for s in range(k)]
            self.loss += sum(self.forward.workers.map(self._slice, parts))
            self._update(k, *each)

    def end(self) -> tuple[float, np.ndarray]:
        """Sum of the losses of the pass, and how often each sub-concept was the best of its label."""
        return self.loss, self.used.sum(axis=0)

    def arrays(self) -> dict[str, Any]:
        """Parameters and moments."""
        W = np.ascontiguousarray(self.vectors.transpose(1, 0, 2))
        return {"A": self.A, "W": W, "moments": self.moments}

    def _slice(self, task: tuple[int, np.ndarray]) -> float:
        """Gradients of one slice."""
        s, ids = task
        forward, vectors, loss = self.forward, self.vectors, 0.0
        space_gradient, vector_gradient = self.space_slices[s], self.vector_slices[s].reshape(vectors.shape)
        vector_gradient.fill(0.0)
        with forward.memory() as memory:
            n = forward.project(ids, self.A, memory)
            for first, last in forward.tiles(len(ids), vectors, memory):
                loss += warp_gradient(
                    first, last, ids, forward.labels, vectors, self.harmonic, memory, vector_gradient,
                    self.used[s],
                )  # fmt: skip
            slopes = memory.projected_gradient
            if forward.scale.text_like:
                self.n_active[s] += np.count_nonzero(memory.active[:n])
                how = forward.factor, forward.constant
                sparse_gradient(ids, *forward.csr(), forward.offsets, *how, slopes, space_gradient)
            else:  # only instances with a gradient enter the product
                n = keep_active(n, memory.active, memory.scaled, slopes)
                self.n_active[s] += n
                np.matmul(memory.scaled[:n].T, slopes[:n], out=space_gradient)
        return loss

    def _update(self, k: int, rate: float, by_mean: float, by_square: float, share: float) -> None:
        constants = (rate, BETA1, BETA2, by_mean, by_square, share, self.max_norm)
        step = AdamStep._make(np.float32(constant) for constant in constants)
        rows = self.vectors.reshape(-1, self.vectors.shape[2])
        parts = (
            (self.A, self.space_slices[:k], Moments(*self.moments[:2])),
            (rows, self.vector_slices[:k], Moments(*self.moments[2:])),
        )
        workers = self.forward.workers
        n_pieces = workers.n_threads

        def work(piece: int) -> None:  # rows are independent, so pieces change nothing but the time
            for parameters, slices, running in parts:
                first, last = (len(parameters) * (piece + end) // n_pieces for end in (0, 1))
                adam_step(first, last, parameters, slices, running, step)

        workers.map(work, range(n_pieces))
