"""Kernels between instances, averaged over bags, computed in blocks: K of instances is never whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from bagwise.models.gp.gaussian_kernels import gaussian_means, gaussian_self_means

_BLOCK = 2_000_000  # kernel values held at a time where the kernel is not the compiled one


def bag_means(X: Any, offsets: np.ndarray) -> Any:
    """Mean instance of each bag; of CSR instances in CSR."""
    n, rows = len(offsets) - 1, X.shape[0]
    if n == rows:
        return X if sparse.issparse(X) else np.asarray(X, dtype=np.float64)
    share = np.repeat(1.0 / np.diff(offsets), np.diff(offsets))
    return sparse.csr_array((share, np.arange(rows), offsets), shape=(n, rows)) @ X


def dense(X: Any) -> np.ndarray:
    """The matrix as an array."""
    return X.toarray() if sparse.issparse(X) else X


class InstanceKernel:
    """k(x, x') + constant, and its means over pairs of bags.

    Parameters
    ----------
    kernel : "gaussian", "linear" or callable
        Eq. (2), Eq. (3), or a function of two matrices; scikit-learn's kernels are such functions.
    width : float
        delta of Eq. (2).
    constant : float
        Added to every value: the prior variance of an offset common to all instances.
    """

    def __init__(self, kernel: Any, width: float, constant: float) -> None:
        self.kernel = kernel
        self.rate = 1.0 / width**2
        self.constant = constant

    def between(self, X: Any, offsets: np.ndarray, Z: Any, z_offsets: np.ndarray) -> np.ndarray:
        """Mean kernel between the bags of ``X`` and those of ``Z``, shape (n_bags, n_z_bags)."""
        if self.kernel == "linear":
            return dense(bag_means(X, offsets) @ bag_means(Z, z_offsets).T) + self.constant
        if self.kernel == "gaussian" and not sparse.issparse(X) and not sparse.issparse(Z):
            return self._gaussian(X, offsets, self._columns(Z), z_offsets) + self.constant
        out = np.empty((len(offsets) - 1, len(z_offsets) - 1))
        columns = _pieces(z_offsets, max(1, int(_BLOCK**0.5)))
        for a, b in _pieces(offsets, max(1, int(_BLOCK**0.5))):
            rows = slice(offsets[a], offsets[b])
            for c, d in columns:
                values = self._values(X[rows], Z[z_offsets[c] : z_offsets[d]])
                part = bag_means(values, offsets[a : b + 1] - offsets[a])
                out[a:b, c:d] = bag_means(part.T, z_offsets[c : d + 1] - z_offsets[c]).T
        return out + self.constant

    def with_itself(self, X: Any, offsets: np.ndarray) -> np.ndarray:
        """Mean kernel of each bag with itself: the diagonal of `between`."""
        n = len(offsets) - 1
        if self.kernel == "linear":
            return _squares(bag_means(X, offsets)) + self.constant
        if self.kernel == "gaussian" and not sparse.issparse(X):
            out = np.empty(n)
            gaussian_self_means(_frozen(X), _frozen(offsets), self.rate, out)
            return out + self.constant
        if n == X.shape[0]:  # single instances: most kernels know their diagonal
            if self.kernel == "gaussian":
                return np.ones(n) + self.constant
            if hasattr(self.kernel, "diag"):
                return np.asarray(self.kernel.diag(dense(X)), dtype=np.float64) + self.constant
        out = np.empty(n)
        for a, b in _pieces(offsets, 128):
            cut = offsets[a : b + 1] - offsets[a]
            rows = X[offsets[a] : offsets[b]]
            means = bag_means(bag_means(self._values(rows, rows), cut).T, cut)
            out[a:b] = np.diag(means)
        return out + self.constant

    def gram(self, X: Any, offsets: np.ndarray) -> np.ndarray:
        """Mean kernel between all bags of ``X``."""
        if self.kernel == "gaussian" and not sparse.issparse(X):
            return self._gaussian(X, offsets, self._columns(X), offsets, symmetric=True) + self.constant
        K = self.between(X, offsets, X, offsets)
        return (K + K.T) / 2.0

    def with_all(self, Z: Any, z_offsets: np.ndarray) -> Callable[[Any, np.ndarray], np.ndarray]:
        """`between` with fixed second bags, prepared once for many calls."""
        if self.kernel == "linear":
            means = bag_means(Z, z_offsets)
            return lambda X, offsets: dense(bag_means(X, offsets) @ means.T) + self.constant
        if self.kernel != "gaussian" or sparse.issparse(Z):
            return lambda X, offsets: self.between(X, offsets, Z, z_offsets)
        columns = self._columns(Z)
        return lambda X, offsets: self._gaussian(X, offsets, columns, z_offsets) + self.constant

    @staticmethod
    def _columns(Z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Instances transposed, squared lengths, and the centre they are measured from."""
        centre = Z.mean(axis=0, dtype=np.float64)  # |x|^2 + |z|^2 - 2 x'z is exact only near the origin
        ZT = np.ascontiguousarray((Z - centre).T, dtype=np.float64)
        return ZT, np.einsum("ji,ji->i", ZT, ZT), centre

    def _gaussian(self, X, offsets, columns, z_offsets, symmetric=False):
        ZT, z2, centre = columns
        A = np.ascontiguousarray(X - centre, dtype=np.float64)
        out = np.empty((len(offsets) - 1, len(z_offsets) - 1))
        a2 = np.einsum("ij,ij->i", A, A)
        gaussian_means(A, a2, _frozen(offsets), ZT, z2, _frozen(z_offsets), self.rate, symmetric, out)
        return out

    def _values(self, A: Any, B: Any) -> np.ndarray:
        if self.kernel != "gaussian":
            return np.asarray(self.kernel(dense(A), dense(B)), dtype=np.float64)
        product = A @ B.T
        product = product.toarray() if sparse.issparse(product) else product
        squared = _squares(A)[:, None] + _squares(B)[None, :] - 2.0 * product
        return np.exp(-self.rate * np.maximum(squared, 0.0))


def _pieces(offsets: np.ndarray, rows: int) -> list[tuple[int, int]]:
    """Runs of bags with about so many instances each, at least one bag."""
    n = len(offsets) - 1
    cuts = [0]
    while cuts[-1] < n:
        stop = int(np.searchsorted(offsets, offsets[cuts[-1]] + rows, side="right")) - 1
        cuts.append(min(n, max(stop, cuts[-1] + 1)))
    return list(zip(cuts[:-1], cuts[1:]))


def _squares(X: Any) -> np.ndarray:
    if sparse.issparse(X):
        return np.asarray((X.multiply(X)).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", X, X)


def _frozen(array: np.ndarray) -> np.ndarray:
    """A read-only view: the compiler sees one type whether the caller's array is writable or not."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
