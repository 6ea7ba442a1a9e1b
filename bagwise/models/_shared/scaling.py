"""The only place that scales features.

One rule for all methods, whether instances are stored dense or as CSR:

- "standard": features get mean 0 and spread 1. Instances that are mostly zeros (text, see `is_text`) are not
  moved and share one factor, the reciprocal root mean square of the values that are there: a spread per
  column would blow up rare words, each of which then explains the few bags that it occurs in.
- "minmax": features are divided by their range and not moved: distances see differences alone, and zeros stay
  zeros.
- "l2": every instance is divided by its length. "none": nothing.

A feature that is constant in training but for rounding has the factor 0: it says nothing, whatever it is
later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

SCALINGS = ("standard", "minmax", "l2", "none")
TEXT_SHARE = 0.1  # share of values that are not zero below which instances count as text
_BLOCK = 1024  # instances that are copied at a time
# spread over size of values up to which a feature counts as constant; single precision has noise of its own
_NOISE = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-12}


@dataclass(frozen=True)
class Scaling:
    """What `learn_scaling` found: ``(x - shift) * factor``, or the length of each instance for "l2"."""

    kind: str
    shift: np.ndarray
    factor: np.ndarray

    def weights_as_given(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weights of the features as given, from weights of the scaled ones.

        Examples
        --------
        >>> scaling = Scaling("standard", np.array([2.0]), np.array([0.5]))
        >>> scaling.weights_as_given(np.ones((1, 1)), np.zeros(1))
        (array([[0.5]]), array([-1.]))
        """
        coef = coef * self.factor
        return coef, intercept - coef @ self.shift


def is_text(X: Any) -> bool:
    """Whether so few values are not zero that instances count as text, however they are stored.

    Examples
    --------
    >>> is_text(np.eye(20)), is_text(np.eye(5)), is_text(sparse.csr_array(np.eye(20)))
    (True, False, True)
    """
    enough, filled = TEXT_SHARE * X.shape[0] * X.shape[1], 0
    if sparse.issparse(X):
        return bool(np.count_nonzero(X.data) < enough)
    for first in range(0, X.shape[0], _BLOCK):  # dense data are known by the first tenth of them
        filled += int(np.count_nonzero(X[first : first + _BLOCK]))
        if filled >= enough:
            return False
    return filled < enough


def learn_scaling(
    X: Any, kind: str, weights: np.ndarray | None = None, *, text: bool | None = None
) -> Scaling:
    """Learn from training instances, each with its weight, how later ones are scaled.

    ``text`` says whether they count as text; None looks at them.

    Examples
    --------
    >>> scaling = learn_scaling(np.array([[1.0, 0.1], [5.0, 0.1]]), "standard")
    >>> float(scaling.shift[0]), scaling.factor
    (3.0, array([0.5, 0. ]))
    """
    shift, factor = np.zeros(X.shape[1]), np.ones(X.shape[1])
    if weights is not None:
        X, weights = X[weights > 0], weights[weights > 0]
    if kind == "minmax":
        low, high = _range(X)
        return Scaling(kind, shift, _reciprocal(high - low, np.maximum(np.abs(low), np.abs(high)), X.dtype))
    if kind != "standard":
        return Scaling(kind, shift, factor)
    if is_text(X) if text is None else text:
        values = X.data if sparse.issparse(X) else X
        squares = np.square(values, dtype=np.float64)
        share = np.count_nonzero(values)
        if weights is not None:
            each = np.repeat(weights, np.diff(X.indptr)) if sparse.issparse(X) else weights[:, None]
            squares, share = squares * each, ((values != 0) * each).sum()
        mean_square = squares.sum() / share if share > 0 else 0.0
        return Scaling(kind, shift, factor / np.sqrt(mean_square) if mean_square > 0 else factor)
    if sparse.issparse(X):
        X = X.toarray()
    with np.errstate(over="ignore", invalid="ignore"):
        shift, spread = _mean_and_spread(X, weights)
    if not np.isfinite(spread).all():  # squares beyond the range of numbers: take them of smaller values
        size = np.abs(X).max(axis=0, initial=1.0).astype(np.float64)
        shift, spread = (part * size for part in _mean_and_spread(X / size, weights))
    return Scaling(kind, shift, _reciprocal(spread, np.abs(shift) + spread, X.dtype))


def apply_scaling(X: Any, scaling: Scaling, dtype: Any = np.float64) -> Any:
    """A scaled copy of instances; CSR stays CSR unless features are moved.

    Examples
    --------
    >>> X = np.array([[0.0, 3.0], [2.0, 3.0]])
    >>> apply_scaling(sparse.csr_array(X), learn_scaling(X, "standard"))
    array([[-1.,  0.],
           [ 1.,  0.]])
    >>> apply_scaling(np.array([[3.0, 4.0], [0.0, 0.0]]), Scaling("l2", np.zeros(2), np.ones(2)))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    if scaling.kind == "none":
        return X.astype(dtype, copy=False)
    if scaling.kind == "l2":
        return _unit_length(X, dtype)
    if sparse.issparse(X) and scaling.shift.any():
        X = X.toarray()
    if sparse.issparse(X):
        data = (X.data * scaling.factor[X.indices]).astype(dtype, copy=False)
        return sparse.csr_array((data, X.indices, X.indptr), shape=X.shape)
    scaled = X - scaling.shift if scaling.shift.any() else X
    return (scaled * scaling.factor).astype(dtype, copy=False)


def _unit_length(X: Any, dtype: Any) -> Any:
    if sparse.issparse(X):
        squares = np.asarray(X.multiply(X).sum(axis=1), dtype=np.float64).ravel()
        lengths = np.repeat(np.where(squares > 0, np.sqrt(squares), 1.0), np.diff(X.indptr))
        data = (X.data / lengths).astype(dtype, copy=False)
        return sparse.csr_array((data, X.indices, X.indptr), shape=X.shape)
    X = X.astype(np.float64, copy=False)
    lengths = np.sqrt(np.einsum("ij,ij->i", X, X))
    return (X / np.where(lengths > 0, lengths, 1.0)[:, None]).astype(dtype, copy=False)


def _mean_and_spread(X: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each feature, in double precision and without a copy of the data.

    Deviations are squared in a second pass: sums of squares of the values themselves cancel.
    """
    n = len(X)
    share = np.full(n, 1.0 / n) if weights is None else weights / weights.sum()
    blocks = [slice(first, first + _BLOCK) for first in range(0, n, _BLOCK)]
    mean = sum((share[rows] @ X[rows] for rows in blocks), np.zeros(X.shape[1]))
    variance = np.zeros(X.shape[1])
    for rows in blocks:
        deviations = X[rows] - mean
        np.square(deviations, out=deviations)
        variance += share[rows] @ deviations
    return mean, np.sqrt(variance)


def _range(X: Any) -> tuple[np.ndarray, np.ndarray]:
    low, high = X.min(axis=0), X.max(axis=0)
    if sparse.issparse(X):
        low, high = low.toarray(), high.toarray()
    return low.astype(np.float64).ravel(), high.astype(np.float64).ravel()


def _reciprocal(spread: np.ndarray, largest: np.ndarray, dtype: Any) -> np.ndarray:
    """One over the spread; 0 for a feature that is constant but for rounding."""
    varies = spread > np.maximum(_NOISE.get(np.dtype(dtype), 1e-12) * largest, np.finfo(np.float64).tiny)
    return np.divide(1.0, spread, out=np.zeros(len(spread)), where=varies)
