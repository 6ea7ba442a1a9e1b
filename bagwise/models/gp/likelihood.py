"""Logistic likelihoods of bags given latent values, with gradient and curvature.

Both classes offer the same four methods, so that the solvers know nothing of the assumption. Rows of ``F``
are bags for `CollectiveLikelihood` (latent means of bags) and instances for `StandardLikelihood`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import expit, log_expit

from bagwise.compute.numeric import frozen
from bagwise.compute.threads import in_threads
from bagwise.models.gp.kernels import logistic_slopes, smooth_maximum

_MANY = 100_000  # latent values from which waking threads pays


class CollectiveLikelihood:
    """Eq. (9): sigma of the mean of the latent values of a bag, one row of ``F`` per bag."""

    def __init__(self, Y: np.ndarray) -> None:
        self.y = 2.0 * Y - 1.0

    def slopes(self, F: np.ndarray) -> tuple[float, np.ndarray, Any]:
        """Log-likelihood, its gradient (d of Eq. (16) with means for sums), and W_0 of Eq. (17)."""
        if F.size > _MANY:
            d, W, totals = np.empty(F.shape), np.empty(F.shape), np.empty(len(F))
            y, F = frozen(self.y), frozen(F)
            in_threads(
                lambda a, b: logistic_slopes(a, b, y, F, d, W, totals),
                len(F),
                -1,
                smallest=_MANY // F.shape[1],
            )
            return float(totals.sum()), d, W
        agreement = self.y * F
        wrong = expit(-agreement)
        return float(log_expit(agreement).sum()), self.y * wrong, wrong * expit(agreement)

    def bend(self, W: np.ndarray, V: np.ndarray) -> np.ndarray:
        """Curvature times a direction."""
        return W * V

    def gram(self, W: np.ndarray, Z: np.ndarray, s: int) -> np.ndarray:
        """Z' W_s Z of one label."""
        R = Z * np.sqrt(W[:, s, None])
        return R.T @ R

    def gram_diagonal(self, W: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """Diagonals of Z' W_s Z, shape (m, Q)."""
        return (Z**2).T @ W


class StandardLikelihood:
    """Eq. (40): sigma of the smooth maximum of the latent values of a bag, one row of ``F`` per instance.

    The curvature of a negative bag is whole; that of a positive bag leaves out the second derivative of
    the smooth maximum, the only term that is not positive semi-definite.
    """

    def __init__(self, Y: np.ndarray, offsets: np.ndarray, sharpness: float) -> None:
        self.y = 2.0 * Y - 1.0
        self.offsets = frozen(offsets)
        self.index = np.repeat(np.arange(len(Y)), np.diff(offsets))
        self.v = float(sharpness)

    def _tops(self, F: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        top, pi = np.empty(self.y.shape), np.empty(F.shape)
        smooth_maximum(frozen(F), self.offsets, self.v, top, pi)
        return top, pi

    def _sums(self, weight: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """Weighted sums of the rows of each bag."""
        n = len(self.index)
        return sparse.csr_array((weight, np.arange(n), self.offsets), shape=(len(self.y), n)) @ Z

    def slopes(self, F: np.ndarray) -> tuple[float, np.ndarray, Any]:
        """Log-likelihood, its gradient (Eq. (46)), and what `bend` needs."""
        g, pi = self._tops(F)
        agreement = self.y * g
        d = self.y * expit(-agreement)
        a = expit(g) * expit(-g)
        h = np.where(self.y < 0, self.v * expit(g), 0.0)
        return float(log_expit(agreement).sum()), d[self.index] * pi, (pi, a - h, h)

    def bend(self, state: Any, V: np.ndarray) -> np.ndarray:
        """Curvature times a direction: h (diag(pi) - pi pi') + a pi pi', bag by bag."""
        pi, rest, h = state
        along = pi * V
        inner = rest * self._sums(np.ones(len(along)), along)
        return h[self.index] * along + pi * inner[self.index]

    def gram(self, state: Any, Z: np.ndarray, s: int) -> np.ndarray:
        """Z' C_s Z of one label."""
        pi, rest, h = state
        weight = h[self.index, s] * pi[:, s]
        held = np.flatnonzero(weight > 1e-14 * max(weight.max(), 1e-300))  # negative bags only
        R = Z[held] * np.sqrt(weight[held, None])
        means = self._sums(pi[:, s], Z)
        return R.T @ R + (means.T * rest[:, s]) @ means

    def gram_diagonal(self, state: Any, Z: np.ndarray) -> np.ndarray:
        """Diagonals of Z' C_s Z, shape (m, Q)."""
        pi, rest, h = state
        out = (Z**2).T @ (h[self.index] * pi)
        for s in range(pi.shape[1]):
            out[:, s] += (self._sums(pi[:, s], Z) ** 2).T @ rest[:, s]
        return np.maximum(out, 0.0)
