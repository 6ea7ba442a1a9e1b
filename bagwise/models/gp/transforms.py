"""Transforms of instances that the evidence can choose among.

They scale and bend but never shift: shifts drop out of a Gaussian kernel and would fill sparse matrices.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

TRANSFORMS = ("none", "minmax", "standard", "l2", "sqrt", "log", "sqrt-l2", "log-l2")


def learn_scale(X: Any, transform: str) -> np.ndarray:
    """Factor of each feature: 1 / range for "minmax", 1 / deviation for "standard", otherwise 1."""
    d = X.shape[1]
    if transform == "minmax":
        low, high = (X.min(axis=0), X.max(axis=0)) if not sparse.issparse(X) else _sparse_range(X)
        spread = np.asarray(high, dtype=np.float64) - low
    elif transform == "standard":
        mean = np.asarray(X.mean(axis=0)).ravel()
        square = (
            X.multiply(X).mean(axis=0) if sparse.issparse(X) else (X.astype(np.float64) ** 2).mean(axis=0)
        )
        spread = np.sqrt(np.maximum(np.asarray(square).ravel() - mean**2, 0.0))
        spread[spread <= 1e-7 * np.abs(mean)] = 0.0  # constant but for rounding
    else:
        return np.ones(d)
    return np.divide(1.0, spread, out=np.ones(d), where=spread > 0)


def apply_transform(X: Any, transform: str, scale: np.ndarray) -> Any:
    """Transformed copy in double precision; CSR stays CSR."""
    X = sparse.csr_array(X, dtype=np.float64, copy=True) if sparse.issparse(X) else X.astype(np.float64)
    if transform in ("minmax", "standard"):
        if sparse.issparse(X):
            X.data *= scale[X.indices]
            return X
        X *= scale
        return X
    values = X.data if sparse.issparse(X) else X
    if transform.startswith("sqrt"):
        values[...] = np.sign(values) * np.sqrt(np.abs(values))
    elif transform.startswith("log"):
        values[...] = np.sign(values) * np.log1p(np.abs(values))
    if transform.endswith("l2"):
        lengths = np.sqrt(
            np.asarray(X.multiply(X).sum(axis=1)).ravel() if sparse.issparse(X) else (X**2).sum(1)
        )
        inverse = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
        if sparse.issparse(X):
            X.data *= np.repeat(inverse, np.diff(X.indptr))
        else:
            X *= inverse[:, None]
    return X


def _sparse_range(X: Any) -> tuple[np.ndarray, np.ndarray]:
    return X.min(axis=0).toarray().ravel(), X.max(axis=0).toarray().ravel()
