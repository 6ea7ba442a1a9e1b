"""MIML-GP on a GPU: the sums over bags, the systems of its Newton steps and the factor of its kernel.

The drivers are those of the processor (`fit`, `fit_mode`, `fit_features`): they ask a `GpuProblem` what they
ask a `Problem`. Everything that decides is in double precision, directions in single, as there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch

from bagwise.compute.parts import Held
from bagwise.compute.torch_move import as_tensor, fetched, fitting, streamed
from bagwise.compute.torch_ops import Segments, segment_sum
from bagwise.models.gp.fit_features import factor
from bagwise.models.gp.fit_mode import Point, Problem, Rows, block_preconditioner, block_traces, solve_many
from bagwise.models.gp.kernels import CollectiveLikelihood

Tensor = torch.Tensor
_ROTATED = 1 << 17  # rows of features that come back at a time
_STREAMED = 1 << 28  # bytes of features at a time that follow run by run


class GpuRows(Rows):
    """Features and labels of all bags on a device; see `Rows`.

    Passes that do not fit the GPU go over fewer rows at a time, and stay so; features that do not fit it
    stay where they are and follow run by run.
    """

    def __init__(self, Z: np.ndarray, Y: np.ndarray, device: Any) -> None:
        super().__init__(Z, CollectiveLikelihood(Y))
        self.device, self.step = device, max(len(Z), 1)
        self.features = self._kept(torch.float64)
        self.single_features = self._kept(torch.float32)
        self.y = as_tensor(2 * np.asarray(Y, dtype=np.int8) - 1).to(device)

    def _kept(self, dtype: Any) -> Tensor | None:
        with suppress(torch.cuda.OutOfMemoryError):
            return as_tensor(self.Z).to(self.device).to(dtype)
        torch.cuda.empty_cache()
        return None

    def tensor(self, array: Any) -> Tensor:
        """Numbers in double precision on the device."""
        return as_tensor(np.asarray(array, dtype=np.float64)).to(self.device)

    def pieces(self, step: int, single: bool = False) -> Iterator[tuple[slice, Tensor]]:
        """Runs of so many rows and their features."""
        kept = self.single_features if single else self.features
        bounds = [(first, min(first + step, len(self.Z))) for first in range(0, len(self.Z), step)]
        if kept is not None:
            for first, last in bounds:
                yield slice(first, last), kept[first:last]
        else:
            for (first, last), rows in zip(bounds, streamed(self.Z, bounds, self.device)):
                yield slice(first, last), rows.float() if single else rows

    def summed(self, part: Callable[[slice, Tensor], Any], single: bool = False) -> Any:
        """Sum over all rows of what ``part(rows, features)`` makes of some."""

        def whole(step: int) -> Any:
            total: Any = 0.0
            if self.features is None:
                step = min(step, max(1, _STREAMED // max(8 * self.Z.shape[1], 1)))
            for rows, Z in self.pieces(step, single):
                total = total + part(rows, Z)
            return total

        found, self.step = fitting(whole, self.step, "one row of features")
        return found

    def at(self, w: np.ndarray) -> tuple[float, Any, Any]:
        """Log-likelihood, gradient by the latent values and curvature; the last two as tensors."""
        if self._last is None or not np.array_equal(self._last[0], w):
            self._last = None  # makes room
            weights = self.tensor(w)
            gradient, curvature = (torch.empty_like(self.y, dtype=torch.float64) for _ in range(2))

            def part(rows: slice, Z: Tensor) -> Tensor:
                agreement = self.y[rows] * (Z @ weights)
                wrong = torch.sigmoid(-agreement)
                gradient[rows], curvature[rows] = self.y[rows] * wrong, wrong * torch.sigmoid(agreement)
                return torch.nn.functional.logsigmoid(agreement).sum()

            value = float(self.summed(part))
            self._last = (w.copy(), (value, gradient, curvature))
        return self._last[1]

    def gradient(self, w: np.ndarray) -> np.ndarray:
        """Gradient by the latent values."""
        return fetched(self.at(w)[1])

    def pull(self, w: np.ndarray) -> np.ndarray:
        """Z'd."""
        slopes = self.at(w)[1]
        return fetched(self.summed(lambda rows, Z: Z.T @ slopes[rows]))

    def gram(self, w: np.ndarray, s: int) -> np.ndarray:
        """Z' W_s Z of one label."""
        roots = self.at(w)[2][:, s, None].sqrt()

        def part(rows: slice, Z: Tensor) -> Tensor:
            R = Z * roots[rows]
            return R.T @ R

        return fetched(self.summed(part))

    def tensor_diagonals(self, w: np.ndarray) -> Tensor:
        """Diagonals of these for all labels, (m, Q)."""
        W = self.at(w)[2]
        return self.summed(lambda rows, Z: Z.square().T @ W[rows])

    def diagonals(self, w: np.ndarray) -> np.ndarray:
        """The same as an array."""
        return fetched(self.tensor_diagonals(w))

    def tensor_bend(self, w: np.ndarray, V: Tensor, single: bool = True) -> Tensor:
        """Z' W Z v of directions (r, m, Q)."""
        W = self.at(w)[2]
        r, m, n_labels = V.shape
        V = V.permute(1, 0, 2).reshape(m, r * n_labels).to(torch.float32 if single else torch.float64)

        def part(rows: slice, Z: Tensor) -> Tensor:
            F = (Z @ V).view(-1, r, n_labels) * W[rows].to(Z.dtype)[:, None, :]
            return (Z.T @ F.view(-1, r * n_labels)).double()

        return self.summed(part, single).view(m, r, n_labels).permute(1, 0, 2)

    def bend(self, w: np.ndarray, V: np.ndarray, single: bool = True) -> np.ndarray:
        """The same for arrays."""
        return fetched(self.tensor_bend(w, self.tensor(V), single))


class GpuProblem(Problem):
    """All rows on a device, where systems are solved as well, unless they do not fit it."""

    def __init__(self, Z: np.ndarray, Y: np.ndarray, device: Any) -> None:
        self.rows = GpuRows(Z, Y, device)
        super().__init__(Held(self.rows), *Z.shape)
        self.systems_fit = True

    def _there(self, work: Callable[[], Any]) -> Any:
        """What work on the GPU comes to, None where it does not fit, from then on."""
        if self.systems_fit:
            try:
                return work()
            except torch.cuda.OutOfMemoryError:
                self.systems_fit = False
            torch.cuda.empty_cache()
        return None

    def preconditioner(self, point: Point, L: np.ndarray) -> tuple[Any, float]:
        """Inverses of the diagonal blocks, as a tensor, and their log-determinant."""
        rows = self.rows
        found = self._there(
            lambda: block_preconditioner(rows.tensor_diagonals(point.w), rows.tensor(L), torch)
        )
        return super().preconditioner(point, L) if found is None else found

    def solve(self, point: Point, L: np.ndarray, right: np.ndarray, inverses: Any, rtol: float) -> np.ndarray:
        """Solutions for right sides (r, m, Q)."""
        rows, bend = self.rows, partial(self.rows.tensor_bend, point.w)
        found = self._there(
            lambda: fetched(solve_many(bend, rows.tensor(L), rows.tensor(right), inverses, rtol, xp=torch))
        )
        if found is not None:
            return found
        inverses = fetched(inverses) if isinstance(inverses, Tensor) else inverses
        return super().solve(point, L, right, inverses, rtol)

    def traces(self, point: Point, L: np.ndarray, probes: Any = None) -> tuple[Any, float, Any, Any]:
        """What the diagonal blocks tell; see `block_traces`."""
        rows, bend = self.rows, partial(self.rows.tensor_bend, point.w)

        def work() -> tuple[Any, float, Any, Any]:
            given = None if probes is None or not len(probes) else rows.tensor(probes)
            diagonals = rows.tensor_diagonals(point.w)
            T, log_det, variances, missing = block_traces(diagonals, rows.tensor(L), bend, given, torch)
            return fetched(T), log_det, fetched(variances), None if missing is None else fetched(missing)

        found = self._there(work)
        return super().traces(point, L, probes) if found is None else found


def factor_on_gpu(
    kernel: Any, X: np.ndarray, offsets: np.ndarray, left: np.ndarray, limit: int, stop: float, gpu: Any
) -> tuple[np.ndarray, list[int], np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Pivoted Cholesky factor C: its columns at the pivots, these, C C', and what gives C' times a matrix."""
    columns = columns_on_gpu(X, offsets, kernel.rate, kernel.constant, gpu)
    C: Tensor | None = None
    pivots: list[int] = []
    with suppress(torch.cuda.OutOfMemoryError):
        C, pivots = factor(as_tensor(left).to(gpu), columns, _room(limit, len(left), gpu), stop)
    if C is None:  # it does not fit the GPU: columns are made there and kept here
        torch.cuda.empty_cache()
        here, pivots = factor(left, lambda i: fetched(columns(i)), np.empty((limit, len(left))), stop)
        return here, pivots, here @ here.T, lambda vectors: np.ascontiguousarray(here.T @ vectors)
    at_pivots = np.zeros((len(pivots), len(left)))
    at_pivots[:, pivots] = fetched(C[:, pivots])

    def rotated(vectors: np.ndarray) -> np.ndarray:
        V = as_tensor(vectors).to(gpu)
        pieces = [fetched(C[:, first : first + _ROTATED].T @ V) for first in range(0, len(left), _ROTATED)]
        return np.concatenate(pieces)

    return at_pivots, pivots, fetched(C @ C.T), rotated


def _room(n: int, m: int, device: Any) -> Tensor:
    return torch.empty((n, m), dtype=torch.float64, device=device)


def columns_on_gpu(
    X: np.ndarray, offsets: np.ndarray, rate: float, constant: float, device: Any
) -> Callable[[int], Tensor]:
    """What gives, for the number of a bag, its mean Gaussian kernel with every bag.

    Kernels with all instances that do not fit the GPU are made with fewer at a time, and stay so.
    """
    there = as_tensor(np.asarray(X, dtype=np.float64)).to(device)
    there = there - there.mean(dim=0)
    lengths = there.square().sum(dim=1, keepdim=True)
    at = Segments.of(offsets, device)
    sizes = at.offsets.diff().double()
    n_rows = max(len(X), 1)

    def column(i: int) -> Tensor:
        nonlocal n_rows
        own = slice(int(offsets[i]), int(offsets[i + 1]))

        def whole(step: int) -> Tensor:
            values = torch.empty(len(there), dtype=torch.float64, device=device)
            for first in range(0, len(there), step):
                part = slice(first, first + step)
                D = torch.addmm(lengths[own].T, there[part], there[own].T, alpha=-2.0)
                D = D.add_(lengths[part]).clamp_min_(0.0)
                values[part] = D.mul_(-rate).exp_().mean(dim=1)
            return segment_sum(values, at) / sizes + constant

        found, n_rows = fitting(whole, n_rows, "the kernel of one bag with one instance")
        return found

    return column
