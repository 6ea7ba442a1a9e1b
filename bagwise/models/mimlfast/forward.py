"""MIMLfast's view of instances: a scale estimated from the data, and scores made slice by slice.

The scaled instance is ``z = ((x - mean) * factor, constant)``. Dense instances are scaled while a slice of
bags is copied together, so there is never a second copy of the data; text-like ones stay sparse.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from bagwise.kernels.numeric import frozen
from bagwise.models._shared.scaling import TEXT_SHARE
from bagwise.models.mimlfast.batch_kernels import feature_sums, gather_dense, gather_sparse, tile_scores
from bagwise.parallel import Workers

N_SLICES = 8  # fixed, so that results do not depend on the number of threads
SLICE_BAGS = 64
_TILE_CELLS = 1 << 19  # scores made at a time by one thread: a tile that stays in its cache
_TILE_ROWS = 128  # at least: every product rearranges all label vectors first, which few rows do not repay
_PIECES = 16


class Scaling(NamedTuple):
    """Affine change of features; ``text_like`` tells that zeros stay zeros (no centring)."""

    mean: np.ndarray
    factor: np.ndarray
    constant: float
    text_like: bool


class Buffers(NamedTuple):
    """Memory of a thread for one slice of bags; what it holds is overwritten, never read, by the next."""

    Z: np.ndarray  # scaled instances
    P: np.ndarray  # their projections
    S: np.ndarray  # scores of a tile of them
    dP: np.ndarray
    hit: np.ndarray
    bounds: np.ndarray


def fit_scaling(X: Any, scaling: str, norm: float, workers: Workers) -> Scaling:
    """Estimate the scale; ``norm`` is the root mean square length that instances shall have."""
    d = X.shape[1]
    one = np.ones(d, X.dtype)
    if scaling == "none":
        return Scaling(np.zeros(d, X.dtype), one, 0.0, sparse.issparse(X))
    n = X.shape[0]
    if sparse.issparse(X):
        shift = np.zeros(d)
        values = X.data.astype(np.float64)
        total = np.bincount(X.indices, values, minlength=d)
        squares = np.bincount(X.indices, values * values, minlength=d)
        filled = int(np.count_nonzero(X.data))
    else:
        shift = X[:64].mean(axis=0, dtype=np.float64)
        edges = [n * k // _PIECES for k in range(_PIECES + 1)]
        sums = np.zeros((2, _PIECES, d))
        count = workers.map(
            lambda k: feature_sums(frozen(X), edges[k], edges[k + 1], shift, sums[0, k], sums[1, k]),
            range(_PIECES),
        )
        total, squares, filled = sums[0].sum(axis=0), sums[1].sum(axis=0), sum(count)
    if filled < TEXT_SHARE * n * d:
        # words share a unit, so all features get the same factor; (a + b)^2 undoes the shift
        length = np.sqrt((squares + 2.0 * shift * total + n * shift**2).sum() / n)
        factor = np.full(d, norm / length if length > 0 else 0.0)
        return Scaling(np.zeros(d, X.dtype), factor.astype(X.dtype), 1.0, True)
    mean = total / n + shift
    spread = np.sqrt(np.maximum(squares / n - (total / n) ** 2, 0.0))
    varies = spread > 10.0 * np.finfo(X.dtype).eps * np.abs(mean)
    wanted = norm / np.sqrt(max(int(np.count_nonzero(varies)), 1))
    factor = np.divide(wanted, spread, out=np.zeros(d), where=varies)  # a constant feature says nothing
    return Scaling(mean.astype(X.dtype), factor.astype(X.dtype), 1.0, False)


def matching_form(X: Any, scaling: Scaling) -> Any:
    """Dense or CSR as the scaling asks, so that both forms of the same data are learned alike."""
    if scaling.text_like:
        return X if sparse.issparse(X) else sparse.csr_array(X)
    return X.toarray() if sparse.issparse(X) else X


class Forward:
    """Projections and scores of bags given by number, for any parameters of one shape."""

    def __init__(self, X: Any, offsets: np.ndarray, scaling: Scaling, n_all: int, K: int, m: int,
                 workers: Workers, slice_bags: int = SLICE_BAGS) -> None:  # fmt: skip
        self.X, self.offsets, self.scaling, self.workers = frozen(X), frozen(offsets), scaling, workers
        self.K, self.n_all, self.slice_bags = K, n_all, slice_bags
        sizes = np.diff(offsets)
        rows = int(np.sort(sizes)[-slice_bags:].sum())
        self.n_rows, self.m, self.n_inputs = rows, m, X.shape[1] + 1
        tile_rows = max(_TILE_ROWS, _TILE_CELLS // (K * n_all))
        self.tile_bags = int(np.clip(tile_rows // sizes.mean(), 1, slice_bags))
        self._tile_rows = int(np.sort(sizes)[-self.tile_bags :].sum())
        self.copied: tuple[Any, ...] | None = None  # scaled copy of some bags, shared by trainers
        self._free: list[Buffers] = []

    @contextmanager
    def buffers(self) -> Iterator[Buffers]:
        """Memory for one slice, lent: as many sets are ever made as threads work at the same time."""
        try:
            lent = self._free.pop()
        except IndexError:
            rows, dense = self.n_rows, not self.scaling.text_like
            lent = Buffers(
                Z=np.empty((rows if dense else 0, self.n_inputs), np.float32),
                P=np.empty((rows, self.m), np.float32),
                S=np.empty((self._tile_rows, self.K * self.n_all), np.float32),
                dP=np.empty((rows, self.m), np.float32),
                hit=np.empty(rows, np.bool_),
                bounds=np.zeros(self.slice_bags + 1, np.int64),
            )
        try:
            yield lent
        finally:
            self._free.append(lent)

    def csr(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The three arrays of sparse instances."""
        return self.X.data, self.X.indices, self.X.indptr

    def project(self, ids: np.ndarray, A: np.ndarray, memory: Buffers) -> np.ndarray:
        """P = Z A for some bags; leaves Z and the bounds of the bags in the buffers."""
        mean, factor, constant, text_like = self.scaling
        P, bounds, c = memory.P, memory.bounds, np.float32(constant)
        if text_like:
            return P[: gather_sparse(*self.csr(), self.offsets, ids, factor, c, A, P, bounds)]
        n = gather_dense(self.X, self.offsets, ids, mean, factor, c, memory.Z, bounds)
        return np.matmul(memory.Z[:n], A, out=P[:n])

    def scores(self, ids: np.ndarray, A: np.ndarray, W: np.ndarray) -> np.ndarray:
        """Scores of all labels and the dummy for some bags; ``W`` is (K, L + 1, m)."""
        out = np.empty((len(ids), self.n_all), np.float32)

        def work(start: int) -> None:
            part = ids[start : start + self.slice_bags]
            with self.buffers() as memory:
                P = self.project(part, A, memory)
                tile_scores(P, W, memory.bounds, self.tile_bags, memory.S, out[start : start + len(part)])

        self.workers.map(work, range(0, len(ids), self.slice_bags))
        return out
