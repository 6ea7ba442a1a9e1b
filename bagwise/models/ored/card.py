"""ORed logistic regression on a card: value and gradient of the likelihood; the driver stays that of `parts`.

Instances go to the card once, whatever parts of them are learned from. Logits and residuals are single
precision, what is summed over the subsets of label sets and over bags double. Nothing is added by atomic
operations: the same data give the same bits on the same card. Runs of bags that do not fit the GPU are
halved, and stay so.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.special import logsumexp

from bagwise.bags import instance_rows, runs
from bagwise.base.blocks import Block, Blocks, InMemory
from bagwise.compute.parts import Held, Parts
from bagwise.compute.scaling import Scaling
from bagwise.compute.torch_move import as_tensor, streamed
from bagwise.compute.torch_ops import transposed_product
from bagwise.models._shared.gpu import Folded, Instances
from bagwise.models.ored.known import Known
from bagwise.models.ored.likelihood import Phantoms
from bagwise.models.ored.parts import Setup, clamps_of, usable, with_background
from bagwise.models.ored.union_posterior import EXACT, union_residual
from bagwise.models.ored.union_torch import groups_of, union_residuals

__all__ = ["CardBlocks", "CardLikelihood", "likelihood_on_card", "logits_on_card"]

Tensor = torch.Tensor
_CELLS = 1 << 29  # logits at a time


class CardBlocks(InMemory):
    """Bags in memory whose instances are on a card as well.

    Most of the bags (`take`) are all of them, some with the weight 0; few of them are plain blocks.
    """

    kind = "gpu"

    def __init__(self, block: Block, store: Instances) -> None:
        super().__init__(block)
        self.store = store

    def take(self, which: np.ndarray) -> Blocks:
        """Blocks of the bags with these numbers."""
        if 2 * len(which) <= self.n_bags:
            return super().take(which)
        masked = np.zeros_like(self.block.weights)
        masked[which] = self.block.weights[which]
        return CardBlocks(self.block._replace(weights=masked), self.store)

    def scaling(self, kind: str, row_weights: np.ndarray | None) -> Scaling:
        """The scaling of instances with these weights."""
        return self.store.scaling(kind, row_weights)

    def likelihoods(self, setup: Setup) -> Parts:
        """The likelihood as the only part."""
        return Held(_likelihood(setup, self.block, self.store))


def likelihood_on_card(setup: Setup, block: Block, card: Any) -> CardLikelihood:
    """The likelihood of one block, moved to a card."""
    return _likelihood(setup, block, Instances(block.bags.X, card, setup.scaling))


def _likelihood(setup: Setup, block: Block, store: Instances) -> CardLikelihood:
    found, clamps = usable(block, setup.how), clamps_of(block, setup.how)
    return CardLikelihood(
        store,
        store.folded(setup.scaling),
        block.bags.offsets,
        np.ascontiguousarray(with_background(block.Y, setup.how.background)[:, setup.classes]),
        found.weights,
        fit_intercept=setup.fit_intercept,
        background=setup.how.background == "anywhere",
        candidates=found.candidates,
        known=None if clamps is None else clamps.of_classes(setup.classes),
        max_labels=setup.how.inference["max_labels"],
        n_threads=setup.how.inference["n_threads"],
    )


class CardLikelihood:
    """Value and gradient of `bagwise.models.ored.likelihood.UnionLikelihood`, without the penalty.

    Parameters
    ----------
    store : Instances
        Instances on the device.
    folded : Folded
        The scaling that weights are meant for.
    offsets, Y, weights, fit_intercept, background, candidates, known, max_labels, n_threads
        As there.
    """

    def __init__(
        self,
        store: Instances,
        folded: Folded,
        offsets: np.ndarray,
        Y: np.ndarray,
        weights: np.ndarray,
        *,
        fit_intercept: bool,
        background: bool,
        candidates: np.ndarray,
        max_labels: int,
        n_threads: int,
        known: Known | None = None,
    ) -> None:
        self.store, self.folded, self.offsets = store, folded, np.asarray(offsets, dtype=np.int64)
        self.Y, self.weights, self.fit_intercept, self.background = Y, weights, fit_intercept, background
        self.candidates, self.known = candidates, known
        self.max_labels, self.n_threads = max_labels, n_threads
        n_rows = max(1, _CELLS // max(Y.shape[1], 1))
        if not store.resident:  # runs that are copied while the one before is worked on
            n_rows = max(1, min(n_rows, (256 << 20) // max(4 * store.shape[1], 1)))
        self._runs = [_Run(self, a, b) for a, b in runs(self.offsets, n_rows)]

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the parameters."""
        return self.Y.shape[1], self.store.shape[1] + 1

    def value_and_gradient(self, W: np.ndarray) -> tuple[float, np.ndarray]:
        """The log-likelihood and its gradient."""
        device = self.store.device
        V, intercept = (as_tensor(v.astype(np.float32)).to(device) for v in self.folded.inner(W))
        n_classes, d = self.Y.shape[1], self.store.shape[1]
        value, sums = 0.0, np.zeros(n_classes)
        G = torch.zeros((n_classes, d), dtype=torch.float64, device=device)
        done: list[_Run] = []
        todo = self._runs[::-1]
        while todo:
            pending = todo[::-1]
            try:
                for run, X in zip(pending, self.store.runs([run.rows for run in pending])):
                    part, sum_, gradient = run.value_and_gradient(X, V, intercept)
                    value, sums = value + part, sums + sum_
                    G += gradient
                    done.append(todo.pop())
            except torch.cuda.OutOfMemoryError:
                X = None
                todo += todo.pop().halves()[::-1]
                torch.cuda.empty_cache()
        self._runs = done
        result = np.empty(self.shape)
        result[:, :-1] = self.folded.outer(G.cpu().numpy(), sums)
        result[:, -1] = sums if self.fit_intercept else 0.0
        return value, result


class _Run:
    """The bags a..b - 1 of a likelihood."""

    def __init__(self, of: CardLikelihood, a: int, b: int) -> None:
        self.of, self.a, self.b = of, a, b
        self.rows = int(of.offsets[a]), int(of.offsets[b])
        self.offsets = of.offsets[a : b + 1] - of.offsets[a]
        given = np.where(of.candidates[a:b], 0.0, of.weights[a:b])
        self.groups, self.many = groups_of(
            self.offsets,
            of.Y[a:b],
            given,
            background=of.background,
            max_labels=of.max_labels,
            device=of.store.device,
        )
        which = np.flatnonzero(of.candidates[a:b] & (of.weights[a:b] > 0))
        self.candidate_rows, candidate_offsets = instance_rows(self.offsets, which)
        self.candidate_bags = np.repeat(which, np.diff(candidate_offsets))
        # rows that no group writes keep their zeros
        self.whole = sum(len(group.rows) for group in self.groups) == self.offsets[-1]
        self.known = self._known()

    def _known(self) -> tuple[Tensor, Tensor, Tensor] | None:
        known, (first, last) = self.of.known, self.rows
        if known is None:
            return None
        lo, hi = np.searchsorted(known.rows, (first, last))
        rows = known.rows[lo:hi] - first
        weights = self.of.weights[self.a : self.b][np.searchsorted(self.offsets, rows, side="right") - 1]
        arrays = rows, known.allowed[lo:hi], weights.astype(np.float64)
        rows_, allowed, weights_ = (as_tensor(values).to(self.of.store.device) for values in arrays)
        return rows_, allowed, weights_

    def halves(self) -> list[_Run]:
        """Two runs in place of this one."""
        if self.b - self.a < 2:
            raise torch.cuda.OutOfMemoryError(
                f"a bag of {self.rows[1] - self.rows[0]} instances does not fit the GPU; use device='cpu'"
            )
        middle = (self.a + self.b) // 2
        return [_Run(self.of, self.a, middle), _Run(self.of, middle, self.b)]

    def value_and_gradient(self, X: Tensor, V: Tensor, intercept: Tensor) -> tuple[float, np.ndarray, Tensor]:
        """Log-likelihood, and its gradients by intercepts and weights."""
        logits = torch.addmm(intercept, X, V.T)
        R = torch.empty_like(logits) if self.whole else torch.zeros_like(logits)
        if self.known is None:
            value = self._union(logits, R)
        else:
            value = self._with_known(logits, R)
        ones = R.new_ones((len(R), 1))
        return value, transposed_product(R, ones)[:, 0].cpu().numpy(), transposed_product(R, X)

    def _with_known(self, logits: Tensor, R: Tensor) -> float:
        """With A the classes left to an instance, p(y) = p(A) p(y | A): the union is over p(y | A) alone."""
        assert self.known is not None
        rows, allowed, weights = self.known
        plain = logits[rows].double()
        logits[rows] = torch.where(allowed, logits[rows], -torch.inf)
        value = self._union(logits, R)
        log_p = torch.log_softmax(plain, dim=1)
        inside = torch.where(allowed, log_p, -torch.inf)
        mass = torch.logsumexp(inside, dim=1)
        change = weights[:, None] * (torch.exp(inside - mass[:, None]) - torch.exp(log_p))
        R[rows] += change.to(R.dtype)
        return value + float(weights @ mass)

    def _union(self, logits: Tensor, R: Tensor) -> float:
        summed, left = union_residuals(logits, self.groups, R)
        value = float(summed) + self._exactly(np.union1d(left.cpu().numpy(), self.many), logits, R)
        return value + self._candidates(logits, R)

    def _exactly(self, bags: np.ndarray, logits: Tensor, R: Tensor) -> float:
        """Bags whose sums over subsets cancel, or are too many, by the algorithms of the processor."""
        if not len(bags):
            return 0.0
        of = self.of
        rows, offsets = instance_rows(self.offsets, bags)
        at = as_tensor(rows).to(logits.device)
        given, weights = logits[at].double().cpu().numpy(), of.weights[self.a : self.b][bags]
        phantoms = Phantoms(offsets) if of.background else None
        if phantoms is not None:
            given, offsets = phantoms.add(given), phantoms.offsets
        out = np.empty_like(given)
        Y = np.ascontiguousarray(of.Y[self.a : self.b][bags])
        how = {"max_labels": of.max_labels, "n_threads": of.n_threads}
        loglik, status = union_residual(given, offsets, Y, weights, out, **how)
        out = out if phantoms is None else out[phantoms.real]
        R[at] = as_tensor(out).to(R.device, R.dtype)
        counted = status == EXACT
        return float(weights[counted] @ loglik[counted])

    def _candidates(self, logits: Tensor, R: Tensor) -> float:
        """Bags whose set is taken as candidates only: ``sum_i log sum_{c in Y} p_i(c)``."""
        if not len(self.candidate_rows):
            return 0.0
        Y, weights = self.of.Y[self.a : self.b], self.of.weights[self.a : self.b]
        at = as_tensor(self.candidate_rows).to(logits.device)
        given = logits[at].double().cpu().numpy()
        log_p = given - logsumexp(given, axis=1, keepdims=True)
        inside = np.where(Y[self.candidate_bags] > 0, log_p, -np.inf)
        mass = logsumexp(inside, axis=1)
        fine = np.isfinite(mass)  # an empty set without a background has no candidates
        w = np.where(fine, weights[self.candidate_bags], 0.0)
        with np.errstate(invalid="ignore"):
            posterior = np.where(fine[:, None], np.exp(inside - mass[:, None]), 0.0)
        R[at] = as_tensor(w[:, None] * (posterior - np.exp(log_p))).to(R.device, R.dtype)
        return float(w[fine] @ mass[fine])


def logits_on_card(X: np.ndarray, coef: np.ndarray, intercept: np.ndarray, card: Any) -> np.ndarray:
    """``X @ coef.T + intercept`` for dense instances, run by run.

    Examples
    --------
    >>> logits_on_card(np.eye(2), np.array([[1.0, 2.0]]), np.array([0.5]), torch.device("cpu"))
    array([[1.5],
           [2.5]])
    """
    W, b = (as_tensor(np.asarray(v, dtype=np.float64)).to(card) for v in (coef, intercept))
    out = np.empty((len(X), len(coef)))
    step = max(1, (32 << 20) // max(X.itemsize * X.shape[1], 1))
    bounds = [(first, min(first + step, len(X))) for first in range(0, len(X), step)]
    for (first, last), rows in zip(bounds, streamed(X, bounds, card)):
        out[first:last] = torch.addmm(b, rows.double(), W.T).cpu().numpy()
    return out
