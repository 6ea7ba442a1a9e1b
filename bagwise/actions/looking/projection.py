"""Instances on a plane: the first two principal components of a sample, learned when first asked for."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import svds

from bagwise.bags import Bags

_SAMPLE = 2_000  # instances that the plane is learned from
_CLOUD = 300  # of them shown behind the bag's own
_WIDEST = 4_000  # features: beyond, the plane goes through the origin and nothing is centred


class Projection:
    """Principal components of the standardised features of a sample of instances.

    Examples
    --------
    >>> bags = Bags.from_list([[[0.0, 1.0], [2.0, 1.5]], [[4.0, 0.0]]])
    >>> len(Projection(bags).place(0, 2)["points"])
    2
    """

    def __init__(self, bags: Bags) -> None:
        self.bags = bags

    @cached_property
    def sample(self) -> Any:
        """Rows drawn evenly over the whole set."""
        n = self.bags.n_instances
        return _finite(
            self.bags.X[np.unique(np.linspace(0, max(n - 1, 0), min(n, _SAMPLE)).astype(np.int64))]
        )

    @cached_property
    def centre(self) -> np.ndarray:
        """Mean of every feature."""
        if not self.sample.shape[0]:
            return np.zeros(self.bags.n_features)
        return np.asarray(self.sample.mean(axis=0, dtype=np.float64)).ravel()

    @cached_property
    def spread(self) -> np.ndarray:
        """Standard deviation of every feature, 1 where it is constant."""
        if not self.sample.shape[0]:
            return np.ones(self.bags.n_features)
        X = self.sample
        square = X.multiply(X) if sparse.issparse(X) else np.square(X, dtype=np.float64)
        variance = np.asarray(square.mean(axis=0)).ravel() - self.centre**2
        spread = np.sqrt(np.maximum(variance, 0.0))
        return np.where(spread > 1e-12, spread, 1.0)

    @cached_property
    def axes(self) -> tuple[np.ndarray, np.ndarray]:
        """Directions (2, n_features) and the share of the variance that each explains."""
        X, d = self.sample, self.bags.n_features
        if min(X.shape) < 2:
            return np.eye(2, d), np.zeros(2)
        if sparse.issparse(X) and d > _WIDEST:
            scaled = X @ sparse.diags(1.0 / self.spread)
            if min(scaled.shape) <= 2:
                return np.eye(2, d), np.zeros(2)
            _, s, V = svds(scaled.astype(np.float64), k=2, random_state=0)
            order = np.argsort(-s)
            total = max(float(scaled.multiply(scaled).sum()), 1e-300)
            return _signed(V[order]), s[order] ** 2 / total
        dense = X.toarray() if sparse.issparse(X) else np.asarray(X)
        Z = (dense - self.centre) / self.spread
        gram = Z.T @ Z if Z.shape[1] <= len(Z) else Z @ Z.T
        values, vectors = np.linalg.eigh(gram)
        top = vectors[:, [-1, -2]]
        V = top.T if Z.shape[1] <= len(Z) else (Z.T @ top).T
        norms = np.linalg.norm(V, axis=1, keepdims=True)
        V = np.divide(V, norms, out=np.zeros_like(V), where=norms > 0)
        return _signed(V), np.maximum(values[[-1, -2]], 0) / max(float(values.sum()), 1e-300)

    def _project(self, X: Any) -> np.ndarray:
        W = self.axes[0] / self.spread
        centred = not (sparse.issparse(self.sample) and self.bags.n_features > _WIDEST)
        return np.asarray(X @ W.T) - (self.centre @ W.T if centred else 0.0)

    @cached_property
    def cloud(self) -> list[list[float]]:
        """Some instances of the whole set, for comparison."""
        rows = np.linspace(0, self.sample.shape[0] - 1, min(self.sample.shape[0], _CLOUD)).astype(np.int64)
        return np.round(self._project(self.sample[rows]), 3).tolist() if len(rows) else []

    def place(self, a: int, b: int) -> dict[str, Any]:
        """Points of the rows from ``a`` to ``b``, with the cloud of all and the variance explained."""
        points = np.round(self._project(_finite(self.bags.X[a:b])), 3).tolist() if b > a else []
        return {"points": points, "cloud": self.cloud, "explained": np.round(self.axes[1], 3).tolist()}


def _finite(X: Any) -> Any:
    """Rows with 0 in place of what is missing or infinite: the plane shows what there is."""
    values = X.data if sparse.issparse(X) else X
    if np.isfinite(values).all():
        return X
    X = X.copy()
    if sparse.issparse(X):
        X.data = np.nan_to_num(X.data, posinf=0.0, neginf=0.0)
        return X
    return np.nan_to_num(X, posinf=0.0, neginf=0.0)


def _signed(V: np.ndarray) -> np.ndarray:
    """Directions whose largest entry is positive, so that the picture does not flip between runs."""
    largest = V[np.arange(len(V)), np.abs(V).argmax(axis=1)]
    return V * np.where(largest < 0, -1.0, 1.0)[:, None]
