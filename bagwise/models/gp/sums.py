"""The likelihood of all bags as sums over parts: what the solvers ask for at given weights.

Latent values are ``F = Z w``; ``Z`` is never asked for whole. Bags in memory are one part.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bagwise.compute.parts import Held, Parts, map_reduce
from bagwise.models.gp.solve import block_preconditioner, block_traces, solve_many

__all__ = ["Point", "Problem", "Rows"]


class Rows:
    """Features of the rows of a part and the likelihood of their latent values.

    What was found at the last weights is kept, since the solvers ask several things of one point.

    Parameters
    ----------
    Z : ndarray of shape (rows, m)
        Features.
    likelihood : CollectiveLikelihood or StandardLikelihood
        Of these rows.
    """

    def __init__(self, Z: np.ndarray, likelihood: Any) -> None:
        self.Z, self.likelihood = Z, likelihood
        self._last: Any = None
        self._single: np.ndarray | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"Z": self.Z, "likelihood": self.likelihood, "_last": None, "_single": None}

    @property
    def single(self) -> np.ndarray:
        """The features in single precision, for directions that need not be exact."""
        if self._single is None:
            self._single = self.Z.astype(np.float32)
        return self._single

    def at(self, w: np.ndarray) -> tuple[float, np.ndarray, Any]:
        """Log-likelihood, gradient by the latent values, and the curvature's state at weights ``w``."""
        if self._last is None or not np.array_equal(self._last[0], w):
            self._last = (w.copy(), self.likelihood.slopes(self.Z @ w))
        return self._last[1]

    def gradient(self, w: np.ndarray) -> np.ndarray:
        """Gradient by the latent values."""
        return self.at(w)[1]

    def pull(self, w: np.ndarray) -> np.ndarray:
        """Z'd."""
        return self.Z.T @ self.at(w)[1]

    def gram(self, w: np.ndarray, s: int) -> np.ndarray:
        """Z' C_s Z of one label."""
        return self.likelihood.gram(self.at(w)[2], self.Z, s)

    def diagonals(self, w: np.ndarray) -> np.ndarray:
        """Diagonals of these for all labels, (m, Q)."""
        return self.likelihood.gram_diagonal(self.at(w)[2], self.Z)

    def bend(self, w: np.ndarray, V: np.ndarray, single: bool = True) -> np.ndarray:
        """Z' C Z v of directions (r, m, Q)."""
        state, Z = self.at(w)[2], self.Z
        if single:
            Z = self.single
            state = state.astype(np.float32) if isinstance(state, np.ndarray) else state
        # all right sides in one product: Z is large and Q small, so reading Z is what takes the time
        r, m, n_labels = V.shape
        F = Z @ np.ascontiguousarray(V.transpose(1, 0, 2), dtype=Z.dtype).reshape(m, r * n_labels)
        for i in range(r):
            part = slice(i * n_labels, (i + 1) * n_labels)
            F[:, part] = self.likelihood.bend(state, F[:, part])
        return (Z.T @ F).reshape(m, r, n_labels).transpose(1, 0, 2).astype(np.float64)


class Point(NamedTuple):
    """The likelihood at some weights: its value, Z'd, and Z' C_s Z of all labels where that was asked for."""

    w: np.ndarray
    value: float
    pull: np.ndarray
    grams: np.ndarray | None = None


class Problem:
    """All rows, in parts.

    Parameters
    ----------
    parts : Parts
        Each loads as `Rows`.
    n_rows, m : int
        Rows of all parts; features.

    Examples
    --------
    >>> from bagwise.models.gp.likelihood import CollectiveLikelihood
    >>> problem = Problem.of(np.eye(2), CollectiveLikelihood(np.array([[1], [0]])))
    >>> point = problem.at(np.zeros((2, 1)))
    >>> round(point.value, 4), point.pull.tolist()
    (-1.3863, [[0.5], [-0.5]])
    """

    def __init__(self, parts: Parts, n_rows: int, m: int) -> None:
        self.parts, self.n_rows, self.m = parts, n_rows, m

    @classmethod
    def of(cls, Z: np.ndarray, likelihood: Any) -> Problem:
        """The problem of rows in memory."""
        return cls(Held(Rows(Z, likelihood)), *Z.shape)

    def values(self, weights: list[np.ndarray]) -> list[float]:
        """Log-likelihoods alone, at several weights."""
        return map_reduce(_values, weights, self.parts)

    def at(self, w: np.ndarray, curved: bool = False) -> Point:
        """Value and gradient; ``curved``: `grams` will be asked for, too, which saves a pass on shards."""
        grams = curved and self.parts.one_thread
        return Point(w, *map_reduce(_slopes, (w, grams), self.parts))

    def grams(self, point: Point) -> np.ndarray:
        """Z' C_s Z of every label, (Q, m, m)."""
        return map_reduce(_grams, point.w, self.parts) if point.grams is None else point.grams

    def gram(self, point: Point, s: int) -> np.ndarray:
        """The same of one label."""
        return map_reduce(_gram, (point.w, s), self.parts) if point.grams is None else point.grams[s]

    def diagonals(self, point: Point) -> np.ndarray:
        """Diagonals of these, (m, Q)."""
        return map_reduce(_diagonals, point.w, self.parts)

    def bend(self, point: Point, V: np.ndarray, single: bool = True) -> np.ndarray:
        """Z' C Z v of directions V of shape (r, m, Q), in single precision unless told otherwise."""
        return map_reduce(_bend, (point.w, V, single), self.parts)

    def preconditioner(self, point: Point, L: np.ndarray) -> tuple[Any, float]:
        """Inverses of the diagonal blocks of ``A``, for `solve`, and their log-determinant."""
        return block_preconditioner(self.diagonals(point), L)

    def solve(self, point: Point, L: np.ndarray, right: np.ndarray, inverses: Any, rtol: float) -> np.ndarray:
        """Solutions of ``A x = right`` for right sides (r, m, Q)."""
        return solve_many(partial(self.bend, point), L, right, inverses, rtol)

    def traces(self, point: Point, L: np.ndarray, probes: Any = None) -> tuple[Any, float, Any, Any]:
        """What the diagonal blocks of ``A`` tell; see `block_traces`."""
        return block_traces(self.diagonals(point), L, partial(self.bend, point), probes)


# ---------------------------------------------------------------------- sums over parts


def _values(weights: list[np.ndarray], rows: Rows) -> list[float]:
    return [rows.at(w)[0] for w in weights]


def _slopes(params: Any, rows: Rows) -> tuple[float, np.ndarray, np.ndarray | None]:
    w, curved = params
    return rows.at(w)[0], rows.pull(w), _grams(w, rows) if curved else None


def _grams(w: np.ndarray, rows: Rows) -> np.ndarray:
    return np.stack([rows.gram(w, s) for s in range(w.shape[1])])


def _gram(params: Any, rows: Rows) -> np.ndarray:
    return rows.gram(*params)


def _diagonals(w: np.ndarray, rows: Rows) -> np.ndarray:
    return rows.diagonals(w)


def _bend(params: Any, rows: Rows) -> np.ndarray:
    return rows.bend(*params)
