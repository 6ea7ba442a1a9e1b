"""Training of MIMLfast by mini-batches of Eq. (5) with exact ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from bagwise.models.mimlfast.batch_kernels import (
    AdamStep,
    Moments,
    adam_step,
    keep_active,
    sparse_gradient,
    warp_gradient,
)
from bagwise.models.mimlfast.forward import N_SLICES, Forward, n_slices
from bagwise.models.mimlfast.memory import LabelRows
from bagwise.models.mimlfast.plan import Plan

__all__ = ["BatchTrainer"]

_BETA1, _BETA2 = 0.9, 0.99
_HORIZON = 100.0  # updates after which the step of an endless stream begins to fall


class BatchTrainer:
    """Matrix products and Adam with a step that falls to zero over ``n_epochs``, or slowly without an end.

    ``state`` holds all that training goes on from and is changed in place: ``A`` (n_inputs, m), the shared
    space as rows, ``W`` (L + 1, K, m), the bags ``t`` seen so far, the moments of Adam and its ``updates``.
    """

    def __init__(
        self,
        plan: Plan,
        forward: Forward,
        rows: LabelRows,
        ids: np.ndarray,
        state: dict[str, Any],
        rng: np.random.Generator,
        n_epochs: int | None,
    ) -> None:
        self.forward, self.rows, self.ids, self.state, self.rng = forward, rows, ids, state, rng
        self.max_norm, self.rate = plan.max_norm, plan.learning_rate
        self.n_batches = max(1, -(-len(ids) // plan.batch_bags))
        self.total = None if n_epochs is None else n_epochs * self.n_batches  # None: an endless stream
        self.done = 0
        A = state["A"]
        self.vectors = np.ascontiguousarray(state["W"].transpose(1, 0, 2))
        K, n_all, m = self.vectors.shape
        self.space_slices = np.zeros((N_SLICES, *A.shape), np.float32)
        self.vector_slices = np.zeros((N_SLICES, K * n_all, m), np.float32)
        self.harmonic = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, n_all + 1))]).astype(np.float32)
        if "moments" not in state:
            shapes = (A.shape, A.shape, (K * n_all, m), (K * n_all, m))
            state["moments"] = [np.zeros(shape, np.float32) for shape in shapes]
            state["updates"], state["batch_bags"] = 0, min(plan.batch_bags, len(ids))
        self.losses: list[float] = []
        self.n_capped = 1  # not counted: norms may have met the cap

    def epoch(self) -> None:
        """One pass over the bags in random order."""
        order = self.rng.permutation(self.ids)
        n, k = len(order), self.n_batches
        K, n_all, _ = self.vectors.shape
        self._used = np.zeros((N_SLICES, n_all, K), np.int64)
        self._n_active = np.zeros(N_SLICES, np.int64)
        loss = sum(self._batch(order[j * n // k : (j + 1) * n // k]) for j in range(k))
        self.used = self._used.sum(axis=0)
        self.n_active = int(self._n_active.sum())  # instances that had a gradient in this pass
        self.losses.append(loss / n)
        self.state["t"] += n
        self.state["W"] = np.ascontiguousarray(self.vectors.transpose(1, 0, 2))

    def _batch(self, ids: np.ndarray) -> float:
        n, k = len(ids), n_slices(len(ids))
        parts = [(s, ids[s * n // k : (s + 1) * n // k]) for s in range(k)]
        loss = sum(self.forward.workers.map(self._slice, parts))
        self._update(n, k)
        return loss

    def _slice(self, task: tuple[int, np.ndarray]) -> float:
        """Gradients of one slice."""
        s, ids = task
        forward, vectors, loss = self.forward, self.vectors, 0.0
        space_gradient, vector_gradient = self.space_slices[s], self.vector_slices[s].reshape(vectors.shape)
        vector_gradient.fill(0.0)
        with forward.memory() as memory:
            n = forward.project(ids, self.state["A"], memory)
            for first, last in forward.tiles(len(ids), vectors, memory):
                loss += warp_gradient(
                    first, last, ids, self.rows, vectors, self.harmonic, memory, vector_gradient,
                    self._used[s],
                )  # fmt: skip
            slopes = memory.projected_gradient
            if forward.scale.text_like:
                self._n_active[s] += np.count_nonzero(memory.active[:n])
                how = forward.factor, forward.constant
                sparse_gradient(ids, *forward.csr(), forward.offsets, *how, slopes, space_gradient)
            else:  # only instances with a gradient enter the product
                n = keep_active(n, memory.active, memory.scaled, slopes)
                self._n_active[s] += n
                np.matmul(memory.scaled[:n].T, slopes[:n], out=space_gradient)
        return loss

    def _update(self, n: int, k: int) -> None:
        state, workers = self.state, self.forward.workers
        if self.total is None:
            # a bag counts as much as in the batches that training began with: one of few would count for more
            share = min(1.0, n / state["batch_bags"])
            rate = share * self.rate / np.sqrt(1.0 + state["updates"] / _HORIZON)
        else:
            rate = self.rate * (1.0 - self.done / self.total)
        state["updates"] += 1
        self.done += 1
        t = state["updates"]
        corrections = 1.0 / (1.0 - _BETA1**t), 1.0 / (1.0 - _BETA2**t)
        constants = (rate, _BETA1, _BETA2, *corrections, 1.0 / n, self.max_norm)
        step = AdamStep._make(np.float32(constant) for constant in constants)
        moments = state["moments"]
        parts = (
            (state["A"], self.space_slices[:k], Moments(*moments[:2])),
            (self.vectors.reshape(-1, self.vectors.shape[2]), self.vector_slices[:k], Moments(*moments[2:])),
        )
        n_pieces = workers.n_threads

        def work(piece: int) -> None:  # rows are independent, so pieces change nothing but the time
            for parameters, slices, running in parts:
                first, last = (len(parameters) * (piece + end) // n_pieces for end in (0, 1))
                adam_step(first, last, parameters, slices, running, step)

        workers.map(work, range(n_pieces))

    def scores(self, ids: np.ndarray) -> np.ndarray:
        """Scores of labels and dummy."""
        return self.forward.scores(ids, self.state["A"], self.vectors)
