"""The two ways to train MIMLfast, with one interface, and the loop that stops them on held-out bags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from bagwise.bags import instance_rows
from bagwise.models.mimlfast.batch_kernels import (
    adam_step,
    dense_slice,
    gather_dense,
    sparse_gradient,
    tile_gradients,
)
from bagwise.models.mimlfast.forward import N_SLICES, Forward
from bagwise.models.mimlfast.sgd_kernels import ranking_sum, sgd_steps

_BETA1, _BETA2 = 0.9, 0.99
_HORIZON = 100.0  # updates after which the step of an endless stream begins to fall
_AVERAGE_EVERY = 10  # steps between two states that enter the average, as in the authors' code


class LabelRows(NamedTuple):
    """Relevant labels of each bag: those of bag b are ``labels[starts[b]:starts[b + 1]]``."""

    labels: np.ndarray
    starts: np.ndarray

    @classmethod
    def from_matrix(cls, Y: np.ndarray) -> LabelRows:
        """From the 0/1 matrix of labels."""
        rows, columns = np.nonzero(Y)
        starts = np.searchsorted(rows, np.arange(len(Y) + 1))
        return cls(columns.astype(np.int64), starts.astype(np.int64))


def initial_parameters(rng: np.random.Generator, d: int, n_all: int, K: int, m: int) -> dict[str, Any]:
    """Mean 0, standard deviation 1/sqrt(d), as in the paper; ``A`` is W_0 transposed with a constant last."""
    spread = 1.0 / np.sqrt(d)
    return {
        "A": (spread * rng.standard_normal((d + 1, m))).astype(np.float32),
        "W": (spread * rng.standard_normal((n_all, K, m))).astype(np.float32),
        "t": 0,
    }


def n_slices(n_bags: int) -> int:
    """Slices of a batch: a matter of its size alone, so that threads cannot change a result."""
    return max(1, min(N_SLICES, n_bags // 16))


def scaled_copy(forward: Forward, ids: np.ndarray) -> tuple[tuple, np.ndarray]:
    """Instances of some bags, scaled, as the kernel takes them, and the offsets of the bags."""
    mean, factor, constant, text_like = forward.scaling
    rows, offsets = instance_rows(forward.offsets, ids)
    nothing = np.empty((0, 0), np.float32)
    if text_like:
        part = forward.X[rows]
        scaled = part.data * factor[part.indices]
        Z = sparse.csr_array((scaled, part.indices, part.indptr), shape=part.shape)
        ones = sparse.csr_array(np.full((len(rows), 1), constant))
        Z = sparse.hstack([Z, ones], format="csr", dtype=np.float32)
        return (nothing, Z.data, Z.indices.astype(np.int64), Z.indptr.astype(np.int64), True), offsets
    Z = np.empty((len(rows), forward.n_inputs), np.float32)
    bounds = np.empty(len(ids) + 1, np.int64)
    gather_dense(forward.X, forward.offsets, ids, mean, factor, np.float32(constant), Z, bounds)
    return (Z, nothing.ravel(), np.empty(0, np.int64), np.zeros(1, np.int64), False), offsets


class SGDTrainer:
    """Algorithm 1, one triplet at a time, in one thread; optionally answers with averaged parameters."""

    def __init__(self, forward: Forward, rows: LabelRows, ids: np.ndarray, state: dict[str, Any],
                 rng: np.random.Generator, *, C: float, gamma0: float, eta: float,
                 average: bool) -> None:  # fmt: skip
        self.forward, self.state, self.average = forward, state, average
        self.C, self.gamma0, self.eta = C, gamma0, eta
        self.seed = rng.integers(0, 2**63, 1, dtype=np.uint64)
        self.n_capped = 0  # how often a vector was over the cap
        self._take_bags(ids)
        counts = np.diff(rows.starts)[ids]
        where, self.starts = instance_rows(rows.starts, ids)
        self.labels = rows.labels[where]
        self.n_steps = int(counts.sum()) + len(ids)  # one pass: every bag with each label and the dummy
        if average and "sum_A" not in state:
            state |= {"sum_A": np.zeros(state["A"].shape), "sum_W": np.zeros(state["W"].shape), "n_sum": 0}

    def _take_bags(self, ids: np.ndarray) -> None:
        """Scaled copy of the training bags; unlike mini-batches, steps go back to the same bag at random."""
        if self.forward.copied is None or self.forward.copied[0] is not ids:
            self.forward.copied = (ids, *scaled_copy(self.forward, ids))
        _, self.Z, self.offsets = self.forward.copied

    def epoch(self) -> None:
        """As many iterations as there are pairs of a bag and one of its labels, the dummy included."""
        state = self.state
        sums = (state["sum_A"], state["sum_W"]) if self.average else (np.zeros((1, 1)), np.zeros((1, 1, 1)))
        self.used = np.zeros(state["W"].shape[:2], np.int64)
        n_sum, n_capped = sgd_steps(
            *self.Z, self.offsets, self.labels, self.starts, state["A"], state["W"], self.C, self.gamma0,
            self.eta, state["t"], self.n_steps, self.seed, *sums, _AVERAGE_EVERY if self.average else 0,
            self.used,
        )  # fmt: skip
        state["t"] += self.n_steps
        self.n_capped += n_capped
        if self.average:
            state["n_sum"] += n_sum

    def parameters(self) -> tuple[np.ndarray, np.ndarray]:
        """Copies of A (d + 1, m) and W (L + 1, K, m)."""
        state = self.state
        if self.average and state["n_sum"]:
            A, W = state["sum_A"] / state["n_sum"], state["sum_W"] / state["n_sum"]
            return A.astype(np.float32), W.astype(np.float32)
        return state["A"].copy(), state["W"].copy()

    def scores(self, ids: np.ndarray) -> np.ndarray:
        """Scores of labels and dummy with the parameters it would answer with."""
        A, W = self.parameters()
        return self.forward.scores(ids, A, np.ascontiguousarray(W.transpose(1, 0, 2)))


class BatchTrainer:
    """Mini-batches of Eq. (5) with exact ranks, matrix products and Adam with a step that falls to zero."""

    def __init__(self, forward: Forward, rows: LabelRows, ids: np.ndarray, state: dict[str, Any],
                 rng: np.random.Generator, *, C: float, rate: float, batch_bags: int,
                 n_epochs: int | None) -> None:  # fmt: skip
        self.forward, self.rows, self.ids, self.state, self.rng = forward, rows, ids, state, rng
        self.C, self.rate = np.float32(C), rate
        self.n_batches = max(1, -(-len(ids) // batch_bags))
        self.total = None if n_epochs is None else n_epochs * self.n_batches  # None: an endless stream
        self.done = 0
        A = state["A"]
        self.W = np.ascontiguousarray(state["W"].transpose(1, 0, 2))
        K, n_all, m = self.W.shape
        self.dA = np.zeros((N_SLICES, *A.shape), np.float32)
        self.dW = np.zeros((N_SLICES, K * n_all, m), np.float32)
        self.harmonic = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, n_all + 1))]).astype(np.float32)
        if "moments" not in state:
            shapes = (A.shape, A.shape, (K * n_all, m), (K * n_all, m))
            state["moments"] = [np.zeros(shape, np.float32) for shape in shapes]
            state["updates"] = 0
        self.losses: list[float] = []
        self.n_capped = 1  # not counted: norms may have met the cap

    def epoch(self) -> None:
        """One pass over the bags in random order."""
        order = self.rng.permutation(self.ids)
        n, k = len(order), self.n_batches
        self._used = np.zeros((N_SLICES, self.forward.n_all, self.forward.K), np.int64)
        self._n_hit = np.zeros(N_SLICES, np.int64)
        loss = sum(self._batch(order[j * n // k : (j + 1) * n // k]) for j in range(k))
        self.used = self._used.sum(axis=0)
        self.n_active = int(self._n_hit.sum())  # instances that had a gradient in this pass
        self.losses.append(loss / n)
        self.state["t"] += n

    def _batch(self, ids: np.ndarray) -> float:
        n, k = len(ids), n_slices(len(ids))
        parts = [(s, ids[s * n // k : (s + 1) * n // k]) for s in range(k)]
        loss = sum(self.forward.workers.map(self._slice, parts))
        self._update(np.float32(1.0 / n), k)
        return loss

    def _slice(self, task: tuple[int, np.ndarray]) -> float:
        """Gradients of one slice."""
        s, ids = task
        forward, W, A = self.forward, self.W, self.state["A"]
        dA, dW, used = self.dA[s], self.dW[s].reshape(W.shape), self._used[s]
        mean, factor, constant, text_like = forward.scaling
        c, how = np.float32(constant), (W, forward.tile_bags, *self.rows, self.harmonic)
        with forward.buffers() as lent:
            Z, P, S, dP, hit, bounds = lent
            if not text_like:
                loss, n_hit = dense_slice(
                    forward.X, forward.offsets, ids, mean, factor, c, A, *how, bounds, Z, P, S, dP, hit, dA,
                    dW, used,
                )  # fmt: skip
            else:
                P = forward.project(ids, A, lent)
                loss = tile_gradients(P, W, bounds, ids, *how[1:], S, dP, dW, hit, used)
                n_hit = int(np.count_nonzero(hit[: len(P)]))
                dA[:] = 0.0
                sparse_gradient(*forward.csr(), forward.offsets, ids, factor, c, dP, dA)
        self._n_hit[s] += n_hit
        return loss

    def _update(self, weight: np.float32, k: int) -> None:
        state = self.state
        if self.total is None:
            rate = self.rate / np.sqrt(1.0 + state["updates"] / _HORIZON)
        else:
            rate = self.rate * (1.0 - self.done / self.total)
        state["updates"] += 1
        self.done += 1
        t = state["updates"]
        constants = (rate, _BETA1, _BETA2, 1.0 / (1.0 - _BETA1**t), 1.0 / (1.0 - _BETA2**t))
        numbers = [np.float32(c) for c in constants]
        A1, A2, W1, W2 = state["moments"]
        W = self.W.reshape(-1, self.W.shape[2])

        n = self.forward.workers.n_threads

        def work(piece: int) -> None:  # rows are independent, so pieces change nothing but the time
            for theta, slices, first, second in ((state["A"], self.dA, A1, A2), (W, self.dW, W1, W2)):
                rows = len(theta) * piece // n, len(theta) * (piece + 1) // n
                adam_step(theta, slices[:k], first, second, *rows, *numbers, weight, self.C)

        self.forward.workers.map(work, range(n))

    def parameters(self) -> tuple[np.ndarray, np.ndarray]:
        """Copies of A (d + 1, m) and W (L + 1, K, m)."""
        self.state["W"] = np.ascontiguousarray(self.W.transpose(1, 0, 2))
        return self.state["A"].copy(), self.state["W"].copy()

    def scores(self, ids: np.ndarray) -> np.ndarray:
        """Scores of labels and dummy."""
        return self.forward.scores(ids, self.state["A"], self.W)


class Outcome(NamedTuple):
    """What training with held-out bags found."""

    n_epochs: int
    history: list[float]  # held-out ranking loss after each epoch, mean over folds
    margins: np.ndarray  # held-out f_l - f_dummy at the best epoch
    held_out: np.ndarray  # the bags they belong to
    parameters: list[tuple[np.ndarray, np.ndarray]]  # of each fold, at the best epoch
    used: np.ndarray


def train(trainers: Sequence[Any], held_out: Sequence[np.ndarray], Y: np.ndarray, max_iter: int,
          patience: int) -> Outcome:  # fmt: skip
    """Run trainers side by side until the mean ranking loss on their held-out bags no longer falls."""
    history: list[float] = []
    best, best_loss = None, np.inf
    for epoch in range(1, max_iter + 1):
        margins = []
        for trainer, bags in zip(trainers, held_out):
            trainer.epoch()
            scores = trainer.scores(bags)
            margins.append(scores[:, :-1] - scores[:, -1:])
        loss = float(np.mean([held_out_loss(Y[bags], m) for bags, m in zip(held_out, margins)]))
        history.append(loss)
        if best is None or loss < best_loss:
            best_loss = loss
            parameters = [trainer.parameters() for trainer in trainers]
            used = sum(trainer.used for trainer in trainers)
            best = Outcome(
                epoch, history, np.concatenate(margins), np.concatenate(held_out), parameters, used
            )
        elif epoch - best.n_epochs >= patience:
            break
    assert best is not None
    return best


def held_out_loss(Y: np.ndarray, margins: np.ndarray) -> float:
    """Ranking loss; where no bag has both kinds of labels, the error of the best offset instead."""
    total, n_proper = ranking_sum(Y, margins)
    if n_proper:
        return total / n_proper
    return float(np.mean((margins > best_offset(margins, Y)) != (Y > 0)))


def best_offset(margins: np.ndarray, Y: np.ndarray) -> float:
    """Offset that makes ``margins > offset`` wrong least often; the one nearest to 0 among equals.

    Examples
    --------
    >>> best_offset(np.array([[3.0, 1.0], [2.0, -1.0]]), np.array([[1, 0], [1, 0]]))
    1.5
    """
    values = margins.ravel()
    order = np.argsort(values, kind="stable")
    values, truth = values[order], Y.ravel()[order] > 0
    zero = int(np.count_nonzero((values > 0) != truth))
    # errors[k]: the k smallest are refused, the rest predicted
    errors = np.empty(len(values) + 1, np.int32)
    errors[0] = np.count_nonzero(~truth)
    np.cumsum(np.where(truth, np.int8(1), np.int8(-1)), dtype=np.int32, out=errors[1:])
    errors[1:] += errors[0]
    errors[1:-1][values[1:] == values[:-1]] = len(values) + 1  # no cut through equal scores
    if zero <= errors.min():
        return 0.0
    best = []
    for k in np.flatnonzero(errors == errors.min()).tolist():
        below, above = float(values[max(k - 1, 0)]), float(values[min(k, len(values) - 1)])
        outermost = {0: above - 1.0, len(values): below + 1e-3 * (1.0 + abs(below))}
        best.append(outermost.get(k, (below + above) / 2.0))
    return min(best, key=abs)
