"""How MIMLfast sees instances and scores bags, in training and with a fitted model.

Instances are ``z = ((x - mean) * factor, constant)``, of a fixed mean length: the model is bilinear with a
fixed margin and fixed caps, so their length is a setting of its own; centre and spread of features are those
of `bagwise.compute.scaling`. In training dense instances are scaled while a slice of bags is copied together,
so there is never a second copy of the data; text-like ones stay sparse.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from bagwise.bags import Bags, runs
from bagwise.compute.aligned import frozen
from bagwise.compute.devices import gpu_for
from bagwise.compute.scaling import Scaling, is_text, learn_scaling
from bagwise.compute.segment import segment_argmax, segment_max
from bagwise.compute.threads import Workers
from bagwise.models.mimlfast.kernels import LabelRows, SliceMemory, best_scores, gather_dense, gather_sparse

if TYPE_CHECKING:
    from bagwise.models.mimlfast.fit import Plan

CELLS = 1 << 22  # scores that are held at a time
GPU_CELLS = 1 << 25  # the same on a GPU
N_SLICES = 8  # fixed, so that results do not depend on the number of threads
_SLICE_BAGS = 64
_TILE_CELLS = 1 << 19  # scores made at a time by one thread: a tile that stays in its cache
_TILE_ROWS = 128  # at least: every product rearranges all label vectors first, which few rows do not repay


class Scale(NamedTuple):
    """Affine change of features; ``text_like`` tells that zeros stay zeros (no centring)."""

    mean: np.ndarray
    factor: np.ndarray
    constant: float
    text_like: bool


def learn_scale(X: Any, scaling: str, norm: float) -> Scale:
    """Estimate the scale; ``norm`` is the root mean square length that instances shall have.

    Examples
    --------
    >>> scale = learn_scale(np.array([[1.0, 0.1], [5.0, 0.1]]), "auto", 3.0)
    >>> float(scale.mean[0]), scale.factor  # a constant feature says nothing
    (3.0, array([1.5, 0. ]))
    """
    n, d = X.shape
    if scaling == "none":
        return Scale(np.zeros(d, X.dtype), np.ones(d, X.dtype), 0.0, sparse.issparse(X))
    text_like = is_text(X)
    X = in_form(X, text_like)
    learned = learn_scaling(X, "standard", text=text_like)
    return of_length(norm, learned, X.count_nonzero() / n if text_like else None, X.dtype)


def of_length(norm: float, learned: Scaling, values: float | None, dtype: Any) -> Scale:
    """The scale that gives instances this root mean square length; ``values`` a row has, only for text."""
    # mean square of the length of an instance that is scaled so: of text, one for each value that is there
    squares = np.count_nonzero(learned.factor) if values is None else values
    factor = learned.factor * (norm / np.sqrt(squares) if squares > 0 else 0.0)
    return Scale(learned.shift.astype(dtype), factor.astype(dtype), 1.0, values is not None)


def in_form(X: Any, as_csr: bool) -> Any:
    """Dense or CSR as the scale asks, so that both forms of the same data are learned alike."""
    if as_csr:
        return X if sparse.issparse(X) else sparse.csr_array(X)
    return X.toarray() if sparse.issparse(X) else X


# ---------------------------------------------------------------------- in training


def n_slices(n_bags: int) -> int:
    """Slices of a batch: a matter of its size alone, so that threads cannot change a result."""
    return max(1, min(N_SLICES, n_bags // 16))


class Forward:
    """Projections and scores of bags given by number, for any parameters of one shape.

    Parameters
    ----------
    X : ndarray or CSR
        Instances in the form that the scale asks for.
    offsets : ndarray
        Where bags begin.
    scale : Scale
        How instances are scaled.
    shape : tuple of int
        That of the label vectors: sub-concepts, labels with the dummy, dimension of the shared space.
    workers : Workers
        The threads.
    batch_bags : int
        Bags of a batch.
    Y : ndarray of shape (n_bags, n_labels), optional
        Labels, for training.
    """

    kind = "memory"

    def __init__(
        self,
        X: Any,
        offsets: np.ndarray,
        scale: Scale,
        shape: tuple[int, int, int],
        workers: Workers,
        batch_bags: int = 0,
        Y: np.ndarray | None = None,
    ) -> None:
        self.X, self.offsets, self.scale, self.shape = frozen(X), frozen(offsets), scale, shape
        self.workers, self.Y = workers, Y
        self.mean, self.factor = frozen(scale.mean), frozen(scale.factor)
        self.constant = np.float32(scale.constant)
        self.n_inputs = X.shape[1] + 1
        batch = min(batch_bags, len(offsets) - 1)
        self.slice_bags = max(_SLICE_BAGS, -(-batch // n_slices(batch)))
        sizes = np.sort(np.diff(offsets))
        self.n_rows = int(sizes[-self.slice_bags :].sum())
        tile_rows = max(_TILE_ROWS, _TILE_CELLS // (shape[0] * shape[1]))
        self.tile_bags = int(np.clip(tile_rows // sizes.mean(), 1, self.slice_bags))
        self._tile_rows = int(sizes[-self.tile_bags :].sum())
        self.copied: tuple[Any, ...] | None = None  # scaled copy of some bags, shared by trainers
        self._free: list[SliceMemory] = []

    @cached_property
    def labels(self) -> LabelRows:
        """Relevant labels of each bag."""
        assert self.Y is not None
        return LabelRows.from_matrix(self.Y)

    @contextmanager
    def memory(self) -> Iterator[SliceMemory]:
        """Memory for one slice: as many sets are ever made as threads work at the same time."""
        try:
            taken = self._free.pop()
        except IndexError:
            n_inputs = 0 if self.scale.text_like else self.n_inputs
            taken = SliceMemory.allocate(self.shape, self.slice_bags, self.n_rows, self._tile_rows, n_inputs)
        try:
            yield taken
        finally:
            self._free.append(taken)

    def csr(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The three arrays of sparse instances."""
        return self.X.data, self.X.indices, self.X.indptr

    def project(self, ids: np.ndarray, space: np.ndarray, memory: SliceMemory) -> int:
        """Scale and project the instances of some bags into the memory; return their number."""
        how = self.factor, self.constant
        if self.scale.text_like:
            return gather_sparse(ids, *self.csr(), self.offsets, *how, space, memory.projected, memory.bounds)
        n = gather_dense(ids, self.X, self.offsets, self.mean, *how, memory.scaled, memory.bounds)
        np.matmul(memory.scaled[:n], space, out=memory.projected[:n])
        return n

    def tiles(self, n_bags: int, vectors: np.ndarray, memory: SliceMemory) -> Iterator[tuple[int, int]]:
        """First and last bag of each tile of a projected slice, once its instances are scored."""
        columns = vectors.reshape(-1, vectors.shape[2]).T
        for first in range(0, n_bags, self.tile_bags):
            last = min(first + self.tile_bags, n_bags)
            begin, end = memory.bounds[first], memory.bounds[last]
            np.matmul(memory.projected[begin:end], columns, out=memory.scores[: end - begin])
            yield first, last

    def scores(self, ids: np.ndarray, space: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Scores of all labels and the dummy for some bags."""
        out = np.empty((len(ids), self.shape[1]), np.float32)

        def work(start: int) -> None:
            part = ids[start : start + self.slice_bags]
            with self.memory() as memory:
                self.project(part, space, memory)
                for first, last in self.tiles(len(part), vectors, memory):
                    best_scores(first, last, self.shape[0], memory, out[start : start + len(part)])

        self.workers.map(work, range(0, len(ids), self.slice_bags))
        return out


def make_forward(
    bags: Bags,
    Y: np.ndarray,
    scale: Scale,
    plan: Plan,
    workers: Workers | None,
    n_sub: int | None = None,
    *,
    store: Any = None,
) -> Any:
    """Scores of these bags for models of the planned shape, or with another number of sub-concepts.

    With a ``store``, instances that are on a GPU already, mini-batches are made there.
    """
    shape = n_sub or plan.n_sub_concepts, Y.shape[1] + 1, plan.n_components
    if store is not None:
        from bagwise.models.mimlfast.gpu import GPUForward

        return GPUForward(store, bags.offsets, scale, shape, Y)
    assert workers is not None
    X = in_form(bags.X, scale.text_like)
    return Forward(X, bags.offsets, scale, shape, workers, plan.batch_bags, Y)


# ---------------------------------------------------------------------- a fitted model


def bag_scores(model: Any, bags: Bags) -> np.ndarray:
    """f_l less f_dummy and the offset, for every bag and label."""
    scores = np.concatenate([F for _, F in _over_sub_concepts(model, bags, of_bags=True)])
    return scores[:, :-1] - scores[:, -1:] - model.offset_


def instance_scores(model: Any, bags: Bags) -> np.ndarray:
    """The same with one instance in place of the maximum; the dummy stays that of the bag."""
    result = []
    for part, F in _over_sub_concepts(model, bags, of_bags=False):
        dummy = segment_max(np.ascontiguousarray(F[:, -1:]), part.offsets)
        result.append(F[:, :-1] - dummy[part.index] - model.offset_)
    return np.concatenate(result)


def sub_concepts(model: Any, bags: Bags) -> tuple[np.ndarray, np.ndarray]:
    """Best sub-concept of each label in each bag, and the row of the instance where it is found."""
    which, where, start = [], [], 0
    for part, F in _blocks(model, bags):
        rows = segment_argmax(np.ascontiguousarray(F.max(axis=2)[:, :-1]), part.offsets)
        which.append(F[rows, np.arange(F.shape[1] - 1)].argmax(axis=2))
        where.append(rows + start)
        start += part.n_instances
    return np.concatenate(which), np.concatenate(where)


def _over_sub_concepts(model: Any, bags: Bags, *, of_bags: bool) -> Iterator[tuple[Bags, np.ndarray]]:
    """Runs of bags with the best scores over sub-concepts of the bags, or of their instances."""
    gpu = None if bags.is_sparse else gpu_for(model.device, bags.n_instances * bags.n_features)
    if gpu is None:
        for part, F in _blocks(model, bags):
            best = np.ascontiguousarray(F.max(axis=2))
            yield part, segment_max(best, part.offsets) if of_bags else best
        return
    from bagwise.models.mimlfast.gpu import scores_on_gpu

    bounds = list(runs(bags.offsets, max(GPU_CELLS // model.label_weights_[..., 0].size, 1)))
    for (first, last), F in scores_on_gpu(model, bags, bounds, gpu, of_bags=of_bags):
        yield bags[first:last], F


def _blocks(model: Any, bags: Bags) -> Iterator[tuple[Bags, np.ndarray]]:
    """Runs of bags with the scores (instances, L + 1, K) of their instances."""
    n_all, K, m = model.label_weights_.shape
    W = model.label_weights_.reshape(-1, m)
    for first, last in runs(bags.offsets, max(CELLS // len(W), 1)):
        part = bags[first:last]
        P = np.asarray(part.X @ model.shared_space_.T) + model.shared_intercept_
        yield part, (P @ W.T).reshape(len(P), n_all, K)
