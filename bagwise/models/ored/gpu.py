"""ORed logistic regression on a GPU: the steps of `bagwise.models.ored.fit.UnionLikelihood` on tensors.

Instances go to the GPU once, whatever parts of them are learned from. Logits and residuals are single
precision, what is summed over the subsets of label sets and over bags double. Nothing is added by atomic
operations: the same data give the same bits on the same GPU. Runs of bags that do not fit the GPU are
halved, and stay so.

Bags with the same number of labels go together. The formula and the bound on its error are those of inclusion
and exclusion in ``kernels_cover.py``, in double precision; bags where posteriors might be off by more than
`TOLERANCE`, and bags with more than `MOST_LABELS` labels, are named, and left to the exact algorithms of the
processor. A background that may be anywhere needs no row of its own here: it is in every subset. The kernels
of ``gpu_triton.py`` do the same, where Triton is there.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from bagwise.bags import instance_rows, runs
from bagwise.base.blocks import Block, Blocks, InMemory
from bagwise.compute.devices import triton_kernels
from bagwise.compute.torch_move import as_tensor, streamed
from bagwise.compute.torch_ops import Segments, segment_sum, transposed_product
from bagwise.models._shared.gpu import Folded, Instances
from bagwise.models.ored.fit import UnionLikelihood
from bagwise.models.ored.kernels import EXACT
from bagwise.models.ored.predict import Known, UnionPass

Tensor = torch.Tensor
MOST_LABELS = 12
TOLERANCE = 1e-7
_LOGITS = 1 << 29  # at a time
_SUBSETS = 1 << 24  # of all instances at a time, where Triton is not there
_UNIT_ROUNDOFF = 2.0**-53
_kernels = partial(triton_kernels, "bagwise.models.ored.gpu_triton")


class GPUBlocks(InMemory):
    """Bags in memory whose instances are on a GPU as well.

    Most of the bags (`take`) are all of them, some with the weight 0; few of them are plain blocks.
    """

    kind = "gpu"  # type: ignore[assignment]

    def __init__(self, block: Block, device: Any, store: Instances | None = None) -> None:
        super().__init__(block)
        self.store = Instances(block.bags.X, device) if store is None else store

    def take(self, which: np.ndarray) -> Blocks:
        """Blocks of the bags with these numbers."""
        if 2 * len(which) <= self.n_bags:
            return super().take(which)
        masked = np.zeros_like(self.block.weights)
        masked[which] = self.block.weights[which]
        return GPUBlocks(self.block._replace(weights=masked), self.store.device, self.store)


class GPULikelihood:
    """The likelihood of a block whose instances are on a GPU, without the penalty.

    Parameters
    ----------
    store : Instances
        Instances on the device.
    folded : Folded
        The scaling that weights are meant for.
    offsets, Y, weights, fit_intercept, background, candidates, method, max_labels, n_threads, known
        As in `UnionLikelihood`.
    """

    product_size = 0.0  # no products on the processor

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
        method: str,
        max_labels: int,
        n_threads: int,
        known: Known | None = None,
    ) -> None:
        self.store, self.folded, self.offsets = store, folded, np.asarray(offsets, dtype=np.int64)
        self.Y, self.weights, self.fit_intercept = Y, weights, fit_intercept
        self.candidates, self.known = candidates, known
        how = {"background": background, "method": method, "max_labels": max_labels, "n_threads": n_threads}
        self.inference: dict[str, Any] = how
        self.shape = Y.shape[1], store.shape[1] + 1  # of the parameters
        n_rows = max(1, _LOGITS // max(Y.shape[1], 1))
        if not store.resident:  # runs that are copied while the one before is worked on
            n_rows = max(1, min(n_rows, (256 << 20) // max(4 * store.shape[1], 1)))
        self._runs = [Run(self, a, b) for a, b in runs(self.offsets, n_rows)]

    def value_and_gradient(self, W: np.ndarray) -> tuple[float, np.ndarray]:
        """The log-likelihood and its gradient."""
        device = self.store.device
        V, intercept = (as_tensor(v.astype(np.float32)).to(device) for v in self.folded.inner(W))
        n_classes, d = self.Y.shape[1], self.store.shape[1]
        value, sums = 0.0, np.zeros(n_classes)
        G = torch.zeros((n_classes, d), dtype=torch.float64, device=device)
        done: list[Run] = []
        todo = self._runs[::-1]
        while todo:
            pending = todo[::-1]
            try:
                for run, X in zip(pending, self.store.runs([run.rows for run in pending])):
                    part, sum_, gradient = run.sums(X, V, intercept)
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


class Run(UnionLikelihood):
    """The bags a..b - 1 of a likelihood: its steps on tensors."""

    xp = torch

    def __init__(self, of: GPULikelihood, a: int, b: int) -> None:
        self.of, self.a, self.b = of, a, b
        self.rows = int(of.offsets[a]), int(of.offsets[b])
        self.offsets, self.Y = of.offsets[a : b + 1] - of.offsets[a], of.Y[a:b]
        self.weights, self.candidates, self.device = of.weights[a:b], of.candidates[a:b], of.store.device
        self.groups, self.many = groups_of(
            self.offsets,
            self.Y,
            np.where(self.candidates, 0.0, self.weights),
            background=of.inference["background"],
            max_labels=of.inference["max_labels"],
            device=self.device,
        )
        # rows that no group writes keep their zeros
        self.whole = sum(len(group.rows) for group in self.groups) == self.offsets[-1]
        self.known = self._known_weight = None
        if of.known is not None:
            lo, hi = np.searchsorted(of.known.rows, self.rows)
            rows = of.known.rows[lo:hi] - self.rows[0]
            weights = self.weights[np.searchsorted(self.offsets, rows, side="right") - 1]
            arrays: Any = rows, of.known.allowed[lo:hi], weights.astype(np.float64)
            *known, self._known_weight = (as_tensor(values).to(self.device) for values in arrays)
            self.known = Known(*known)

    def halves(self) -> list[Run]:
        """Two runs in place of this one."""
        if self.b - self.a < 2:
            raise torch.cuda.OutOfMemoryError(
                f"a bag of {self.rows[1] - self.rows[0]} instances does not fit the GPU; use device='cpu'"
            )
        middle = (self.a + self.b) // 2
        return [Run(self.of, self.a, middle), Run(self.of, middle, self.b)]

    def sums(self, X: Tensor, V: Tensor, intercept: Tensor) -> tuple[float, np.ndarray, Tensor]:
        """Log-likelihood, and its gradients by intercepts and weights."""
        value, R = self.residual(torch.addmm(intercept, X, V.T))
        ones = R.new_ones((len(R), 1))
        return value, transposed_product(R, ones)[:, 0].cpu().numpy(), transposed_product(R, X)

    def _union(self, logits: Tensor, given: np.ndarray) -> tuple[float, Tensor]:
        R = torch.empty_like(logits) if self.whole else torch.zeros_like(logits)
        summed, left = union_residuals(logits, self.groups, R)
        bags = np.union1d(left.cpu().numpy(), self.many)
        if not len(bags):
            return float(summed), R
        # sums over subsets cancel, or are too many: by the algorithms of the processor
        rows, offsets = instance_rows(self.offsets, bags)
        passes = UnionPass(offsets, np.ascontiguousarray(self.Y[bags]), **self.of.inference)
        out, loglik, status = passes.run(self._fetched(logits, rows), given[bags], residual=True)
        self._put(R, rows, out)
        counted = status == EXACT
        return float(summed) + float(given[bags][counted] @ loglik[counted]), R

    def _clamp(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        assert self.known is not None
        rows, allowed = self.known
        plain = logits[rows]
        logits[rows] = torch.where(allowed, plain, -torch.inf)
        return plain.double(), logits

    def _known_weights(self, weights: np.ndarray) -> Any:
        return self._known_weight

    def _log_normaliser(self, F: Tensor) -> Tensor:
        return torch.logsumexp(F, dim=1)

    def _fetched(self, logits: Tensor, rows: np.ndarray) -> np.ndarray:
        return logits[as_tensor(rows).to(self.device)].double().cpu().numpy()

    def _put(self, R: Tensor, rows: np.ndarray, values: np.ndarray) -> None:
        R[as_tensor(rows).to(self.device)] = as_tensor(values).to(self.device, R.dtype)

    def _add(self, R: Tensor, rows: Tensor, values: Tensor) -> None:
        R[rows] += values.to(R.dtype)


def logits_on_gpu(X: np.ndarray, coef: np.ndarray, intercept: np.ndarray, gpu: Any) -> np.ndarray:
    """``X @ coef.T + intercept`` for dense instances, run by run.

    Examples
    --------
    >>> logits_on_gpu(np.eye(2), np.array([[1.0, 2.0]]), np.array([0.5]), torch.device("cpu"))
    array([[1.5],
           [2.5]])
    """
    W, b = (as_tensor(np.asarray(v, dtype=np.float64)).to(gpu) for v in (coef, intercept))
    out = np.empty((len(X), len(coef)))
    step = max(1, (32 << 20) // max(X.itemsize * X.shape[1], 1))
    bounds = [(first, min(first + step, len(X))) for first in range(0, len(X), step)]
    for (first, last), rows in zip(bounds, streamed(X, bounds, gpu)):
        out[first:last] = torch.addmm(b, rows.double(), W.T).cpu().numpy()
    return out


# ---------------------------------------------------------------------- inclusion and exclusion over subsets


class Group(NamedTuple):
    """Bags of a run that have the same number of labels, and their instances one after the other."""

    bags: Tensor  # numbers within the run
    bounds: Tensor  # where the instances of each begin
    rows: Tensor  # of the logits, of every instance
    slots: Tensor  # place of its bag in this group
    labels: Tensor  # (n, k), and the background behind them where it may be anywhere
    weights: Tensor
    background: bool

    @property
    def n_labels(self) -> int:
        """Labels that must occur: all but the background."""
        return self.labels.shape[1] - self.background


def groups_of(
    offsets: np.ndarray, Y: np.ndarray, weights: np.ndarray, *, background: bool, max_labels: int, device: Any
) -> tuple[list[Group], np.ndarray]:
    """Groups of the bags of positive weight with possible sets, and those with too many labels for any.

    ``max_labels`` counts the background, as in `bagwise.models.ored.predict`.
    """
    sizes = np.diff(offsets)
    counts = np.count_nonzero(Y, axis=1) - background
    # a set larger than the bag is impossible, and so is none without a background: these have no gradient
    taking_part = (weights > 0) & (counts <= sizes) & (counts + background <= max_labels) & (sizes > 0)
    taking_part &= counts + background > 0
    found = []
    for k in np.flatnonzero(np.bincount(counts[taking_part & (counts <= MOST_LABELS)])):
        bags = np.flatnonzero(taking_part & (counts == k))
        bounds = np.concatenate([[0], np.cumsum(sizes[bags])])
        arrays = bags, bounds, offsets[bags] - bounds[:-1], Y[bags], weights[bags].astype(np.float64)
        which, starts, moves, sets, shares = (as_tensor(array).to(device) for array in arrays)
        slots = Segments.of(bounds, device).index
        rows = torch.arange(len(slots), device=device) + moves[slots]
        labels = torch.nonzero(sets)[:, 1].reshape(len(bags), int(k) + background)
        found.append(Group(which, starts, rows, slots, labels, shares, background))
    return found, np.flatnonzero(taking_part & (counts > MOST_LABELS))


def union_residuals(logits: Tensor, groups: list[Group], out: Tensor) -> tuple[Tensor, Tensor]:
    """Write ``weight * (posterior - prior)`` of the bags of all groups to their rows of ``out``.

    Returns
    -------
    value : Tensor
        Weighted log-likelihood of the bags that were precise enough, a double.
    left : Tensor
        Numbers of the others; their rows hold nothing of use.
    """
    if not groups:
        return torch.zeros((), dtype=torch.float64, device=logits.device), torch.zeros(0, dtype=torch.int64)
    kernels = _kernels() if logits.is_cuda else None
    residuals = _plain if kernels is None else kernels.residuals
    found = [residuals(logits, group, out) for group in groups]
    # all groups together: naming those that are left makes the GPU wait
    loglik, weights, bags = (
        values[0] if len(groups) == 1 else torch.cat(values)
        for values in (found, [group.weights for group in groups], [group.bags for group in groups])
    )
    lost = torch.isnan(loglik)
    return torch.where(lost, 0.0, loglik * weights).sum(), bags[lost]


def needed_cover(sizes: Any, k: int) -> Any:
    """Least cover, as a share of the sum of magnitudes, at which posteriors are within `TOLERANCE`."""
    return 2.0 * (sizes * (k + 4) + 2**k + 32) * _UNIT_ROUNDOFF / TOLERANCE


def _plain(logits: Tensor, group: Group, out: Tensor) -> Tensor:
    """Residuals of one group; the log-likelihood of each bag, NaN where it is left."""
    bounds, found = group.bounds.cpu().numpy(), []
    for first, last in runs(bounds, max(1, _SUBSETS >> group.n_labels)):
        bags, rows = slice(first, last), slice(int(bounds[first]), int(bounds[last]))
        at = Segments.of(bounds[first : last + 1] - bounds[first], logits.device)
        found.append(
            _subsets(logits, group, at, group.rows[rows], group.labels[bags], group.weights[bags], out)
        )
    return torch.cat(found)


def _subsets(logits, group: Group, at: Segments, rows, labels, weights, out: Tensor) -> Tensor:
    k, device = group.n_labels, logits.device
    x = logits[rows].double()
    log_z = torch.logsumexp(x, dim=1, keepdim=True)
    labels = labels[at.index]
    inside = x.gather(1, labels)
    mass = torch.logsumexp(inside, dim=1, keepdim=True)
    r = torch.exp(inside - mass)
    r = r / r.sum(dim=1, keepdim=True)
    member = (torch.arange(2**k, device=device)[None, :] >> torch.arange(k, device=device)[:, None]) & 1
    signs = torch.where((k - member.sum(dim=0)) % 2 == 1, -1.0, 1.0).double()
    member = member.double()
    q = r[:, :k] @ member
    if group.background:
        q = q + r[:, k:]
    F = torch.exp(segment_sum(torch.log(q), at))
    cover, magnitude = F @ signs, F.sum(dim=1)
    quotient = torch.where(q > 1e-30, (signs * F)[at.index] / q, 0.0)
    J = r[:, :k] * (quotient @ member.T)
    if group.background:
        J = torch.cat([J, r[:, k:] * quotient.sum(dim=1, keepdim=True)], dim=1)
    J = J.clamp_min(0.0)
    Q = torch.zeros_like(x).scatter_(1, labels, J / J.sum(dim=1, keepdim=True))
    out[rows] = (weights[at.index][:, None] * (Q - torch.exp(x - log_z))).to(out.dtype)
    fine = cover > needed_cover(at.offsets.diff(), k) * magnitude
    return torch.where(fine, segment_sum((mass - log_z)[:, 0], at) + torch.log(cover), torch.nan)
