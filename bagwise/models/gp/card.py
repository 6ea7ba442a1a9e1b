"""MIML-GP on a card: the sums over bags, the systems of its Newton steps and the factor of its kernel.

The drivers are those of the processor (`em`, `posterior`, `features`): they ask a `CardProblem` what they ask
a `Problem`. Everything that decides is in double precision, directions in single, as there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from bagwise.kernels.torch_move import as_tensor, fetched
from bagwise.kernels.torch_ops import Segments, segment_sum
from bagwise.models.gp.likelihood import CollectiveLikelihood
from bagwise.models.gp.solve import block_preconditioner, block_traces, solve_many
from bagwise.models.gp.sums import Point, Problem, Rows
from bagwise.parallel import held

__all__ = ["CardProblem", "CardRows", "columns_on_card"]

Tensor = torch.Tensor


class CardRows(Rows):
    """Features and labels of all bags on a device; see `Rows`."""

    def __init__(self, Z: np.ndarray, Y: np.ndarray, device: Any) -> None:
        super().__init__(Z, CollectiveLikelihood(Y))
        self.device = device
        self.features = self.tensor(Z)
        self.single_features = self.features.float()
        self.y = self.tensor(2.0 * Y - 1.0)

    def tensor(self, array: Any) -> Tensor:
        """Numbers in double precision on the device."""
        return as_tensor(np.asarray(array, dtype=np.float64)).to(self.device)

    def at(self, w: np.ndarray) -> tuple[float, Any, Any]:
        """Log-likelihood, gradient by the latent values and curvature; the last two as tensors."""
        if self._last is None or not np.array_equal(self._last[0], w):
            agreement = self.y * (self.features @ self.tensor(w))
            wrong = torch.sigmoid(-agreement)
            value = float(torch.nn.functional.logsigmoid(agreement).sum())
            self._last = (w.copy(), (value, self.y * wrong, wrong * torch.sigmoid(agreement)))
        return self._last[1]

    def gradient(self, w: np.ndarray) -> np.ndarray:
        """Gradient by the latent values."""
        return fetched(self.at(w)[1])

    def pull(self, w: np.ndarray) -> np.ndarray:
        """Z'd."""
        return fetched(self.features.T @ self.at(w)[1])

    def gram(self, w: np.ndarray, s: int) -> np.ndarray:
        """Z' W_s Z of one label."""
        R = self.features * self.at(w)[2][:, s, None].sqrt()
        return fetched(R.T @ R)

    def tensor_diagonals(self, w: np.ndarray) -> Tensor:
        """Diagonals of these for all labels, (m, Q)."""
        return self.features.square().T @ self.at(w)[2]

    def diagonals(self, w: np.ndarray) -> np.ndarray:
        """The same as an array."""
        return fetched(self.tensor_diagonals(w))

    def tensor_bend(self, w: np.ndarray, V: Tensor, single: bool = True) -> Tensor:
        """Z' W Z v of directions (r, m, Q)."""
        Z = self.single_features if single else self.features
        W = self.at(w)[2].to(Z.dtype)
        r, m, n_labels = V.shape
        F = Z @ V.permute(1, 0, 2).reshape(m, r * n_labels).to(Z.dtype)
        F = (F.view(-1, r, n_labels) * W[:, None, :]).view(-1, r * n_labels)
        return (Z.T @ F).view(m, r, n_labels).permute(1, 0, 2).double()

    def bend(self, w: np.ndarray, V: np.ndarray, single: bool = True) -> np.ndarray:
        """The same for arrays."""
        return fetched(self.tensor_bend(w, self.tensor(V), single))


class CardProblem(Problem):
    """All rows on a device, where systems are solved as well."""

    def __init__(self, Z: np.ndarray, Y: np.ndarray, device: Any) -> None:
        self.rows = CardRows(Z, Y, device)
        super().__init__(held(self.rows), *Z.shape)

    def preconditioner(self, point: Point, L: np.ndarray) -> tuple[Any, float]:
        """Inverses of the diagonal blocks, as a tensor, and their log-determinant."""
        return block_preconditioner(self.rows.tensor_diagonals(point.w), self.rows.tensor(L), torch)

    def solve(self, point: Point, L: np.ndarray, right: np.ndarray, inverses: Any, rtol: float) -> np.ndarray:
        """Solutions for right sides (r, m, Q)."""
        bend = partial(self.rows.tensor_bend, point.w)
        return fetched(
            solve_many(bend, self.rows.tensor(L), self.rows.tensor(right), inverses, rtol, xp=torch)
        )

    def traces(self, point: Point, L: np.ndarray, probes: Any = None) -> tuple[Any, float, Any, Any]:
        """What the diagonal blocks tell; see `block_traces`."""
        given = None if probes is None or not len(probes) else self.rows.tensor(probes)
        diagonals, bend = self.rows.tensor_diagonals(point.w), partial(self.rows.tensor_bend, point.w)
        T, log_det, variances, missing = block_traces(diagonals, self.rows.tensor(L), bend, given, torch)
        return fetched(T), log_det, fetched(variances), None if missing is None else fetched(missing)


def columns_on_card(
    X: np.ndarray, offsets: np.ndarray, rate: float, constant: float, device: Any
) -> Callable[[int], Tensor]:
    """What gives, for the number of a bag, its mean Gaussian kernel with every bag."""
    there = as_tensor(np.asarray(X, dtype=np.float64)).to(device)
    there = there - there.mean(dim=0)
    lengths = there.square().sum(dim=1, keepdim=True)
    at = Segments.of(offsets, device)
    sizes = at.offsets.diff().double()

    def column(i: int) -> Tensor:
        own = slice(int(offsets[i]), int(offsets[i + 1]))
        D = torch.addmm(lengths[own].T, there, there[own].T, alpha=-2.0).add_(lengths).clamp_min_(0.0)
        values = D.mul_(-rate).exp_().mean(dim=1)
        return segment_sum(values, at) / sizes + constant

    return column
