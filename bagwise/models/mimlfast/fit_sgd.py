"""Training of MIMLfast by Algorithm 1 of its paper, one triplet at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from bagwise.bags import instance_rows
from bagwise.models.mimlfast.kernels import gather_dense
from bagwise.models.mimlfast.kernels_sgd import (
    Factors,
    Instances,
    Schedule,
    Scratch,
    Sums,
    TrainingBags,
    sgd_steps,
)
from bagwise.models.mimlfast.predict import Forward

if TYPE_CHECKING:
    from bagwise.models.mimlfast.fit import Plan

_AVERAGE_EVERY = 10  # steps between two states that enter the average, as in the authors' code


def scaled_copy(forward: Forward, ids: np.ndarray) -> tuple[Instances, np.ndarray]:
    """Instances of some bags, scaled, and the offsets of the bags."""
    rows, offsets = instance_rows(forward.offsets, ids)
    no_rows, no_values = np.empty((0, 0), np.float32), np.empty(0, np.float32)
    if forward.scale.text_like:
        part = forward.X[rows]
        scaled = part.data * forward.factor[part.indices]
        Z = sparse.csr_array((scaled, part.indices, part.indptr), shape=part.shape)
        ones = sparse.csr_array(np.full((len(rows), 1), forward.constant))
        Z = sparse.hstack([Z, ones], format="csr", dtype=np.float32)
        return Instances(
            True, no_rows, Z.data, Z.indices.astype(np.int64), Z.indptr.astype(np.int64)
        ), offsets
    dense = np.empty((len(rows), forward.n_inputs), np.float32)
    bounds = np.empty(len(ids) + 1, np.int64)
    how = forward.mean, forward.factor, forward.constant
    gather_dense(ids, forward.X, forward.offsets, *how, dense, bounds)
    return Instances(False, dense, no_values, np.empty(0, np.int64), np.zeros(1, np.int64)), offsets


class SGDTrainer:
    """Algorithm 1 in one thread; "asgd" answers with the average of its iterates.

    ``state`` holds all that training goes on from and is changed in place: ``A`` (n_inputs, m), the shared
    space as rows, ``W`` (L + 1, K, m), the steps ``t`` that were made, and sums for the average.
    """

    def __init__(
        self,
        plan: Plan,
        forward: Forward,
        ids: np.ndarray,
        state: dict[str, Any],
        rng: np.random.Generator,
    ) -> None:
        self.forward, self.state = forward, state
        every = _AVERAGE_EVERY if plan.solver == "asgd" else 0
        self.schedule = Schedule(plan.max_norm, plan.step_size, plan.step_decay, every)
        self.random = rng.integers(0, 2**63, 1, dtype=np.uint64)
        self.n_capped = 0  # how often a vector was over the cap
        n_all, _, m = state["W"].shape
        # unlike mini-batches, steps go back to the same bag at random: a scaled copy of the bags
        if forward.copied is None or forward.copied[0] is not ids:
            forward.copied = (ids, *scaled_copy(forward, ids))
        _, instances, offsets = forward.copied
        where, label_starts = instance_rows(forward.labels.starts, ids)
        self.bags = TrainingBags(instances, offsets, forward.labels.labels[where], label_starts)
        self.n_steps = len(where) + len(ids)  # one pass: every bag with each label and the dummy
        harmonic = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, n_all + 1))]).astype(np.float32)
        longest = int(np.diff(offsets).max())
        self.scratch = Scratch(np.empty((longest, m), np.float32), np.empty((2, m), np.float32), harmonic)
        if every and "sum_A" not in state:
            state |= {"sum_A": np.zeros(state["A"].shape), "sum_W": np.zeros(state["W"].shape), "n_sum": 0}

    def epoch(self) -> None:
        """As many iterations as there are pairs of a bag and one of its labels, the dummy included."""
        state = self.state
        n_all, K, m = state["W"].shape
        factors = Factors(state["A"], state["W"].reshape(-1, m), K)
        if self.schedule.average_every:
            totals = state["sum_A"], state["sum_W"].reshape(-1, m)
        else:
            totals = np.zeros((1, 1)), np.zeros((1, 1))
        sums = Sums(*totals, np.zeros(len(factors.space), np.int64), np.zeros(n_all * K, np.int64))
        used = np.zeros(n_all * K, np.int64)
        n_summed, n_capped = sgd_steps(
            state["t"], state["t"] + self.n_steps, self.bags, factors, sums, self.scratch, self.schedule,
            self.random, used,
        )  # fmt: skip
        if self.schedule.average_every:  # vectors that have not changed since
            sums.space[...] += (n_summed - sums.space_summed)[:, None] * factors.space
            sums.weights[...] += (n_summed - sums.weights_summed)[:, None] * factors.weights
            state["n_sum"] += n_summed
        self.used = used.reshape(n_all, K)
        state["t"] += self.n_steps
        self.n_capped += n_capped

    @property
    def progress(self) -> tuple[dict[str, Any], np.ndarray, int]:
        """All that passes have changed, for `go_on_from` of another trainer of the same bags."""
        return self.state, self.random, self.n_capped

    def go_on_from(self, progress: tuple[dict[str, Any], np.ndarray, int]) -> None:
        """Take over what another trainer has come to."""
        self.state, self.random, self.n_capped = progress

    def scores(self, ids: np.ndarray) -> np.ndarray:
        """Scores of labels and dummy with the parameters it would answer with."""
        A, W = answer(self.state)
        return self.forward.scores(ids, A, np.ascontiguousarray(W.transpose(1, 0, 2)))


def answer(state: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Parameters A (n_inputs, m) and W (L + 1, K, m) of a state: the average of iterates, if it has one."""
    if not state.get("n_sum"):
        return state["A"], state["W"]
    A, W = state["sum_A"] / state["n_sum"], state["sum_W"] / state["n_sum"]
    return A.astype(np.float32), W.astype(np.float32)
