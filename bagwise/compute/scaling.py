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

from bagwise.compute.aligned import aligned_empty
from bagwise.compute.parts import Parts, add, map_reduce

SCALINGS = ("standard", "minmax", "l2", "none")
TEXT_SHARE = 0.1  # share of values that are not zero below which instances count as text
_BLOCK = 1024  # instances that are copied at a time
# spread over size of values up to which a feature counts as constant; single precision has noise of its own
_LARGEST, _FINEST = 1e37, 1e-5  # of single precision: it ends, or trees take values for equal
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
    data = (X, None) if weights is None else positive_rows(X, weights)
    if kind == "standard" and text is None:
        text = is_text(data[0])
    # in memory there is one part, and nothing to add up
    return _learned(lambda part_of, size, _: part_of(size, data), kind, X.shape[1], X.dtype, bool(text))


def positive_rows(X: Any, weights: np.ndarray) -> tuple[Any, np.ndarray]:
    """Instances of positive weight, and these weights."""
    used = weights > 0
    return (X, weights) if used.all() else (X[used], weights[used])


def scaling_of(parts: Parts, kind: str, n_features: int, dtype: Any, *, text: bool | None = None) -> Scaling:
    """Learn the scaling from instances in parts, each a pair of instances and their weights (or None).

    Parameters
    ----------
    parts : Parts
        The instances.
    kind : str
        One of `SCALINGS`.
    n_features : int
        Number of columns.
    dtype : dtype
        Number type of the instances, which says what counts as rounding.
    text : bool, optional
        Whether they count as text; None looks at them.
    """
    if kind == "standard" and text is None:
        text = text_in_parts(parts)

    def total(part_of: Any, size: Any, join: Any) -> Any:
        return map_reduce(part_of, size, parts, join)

    return _learned(total, kind, n_features, dtype, bool(text))


def _learned(total: Any, kind: str, n_features: int, dtype: Any, text: bool) -> Scaling:
    """The scaling, from sums over all instances: ``total(part_of, size, join)`` makes one."""
    shift, factor = np.zeros(n_features), np.ones(n_features)
    if kind == "minmax":
        low, high = total(_range, None, _wider)
        return Scaling(kind, shift, _reciprocal(high - low, np.maximum(np.abs(low), np.abs(high)), dtype))
    if kind != "standard":
        return Scaling(kind, shift, factor)
    if text:
        squares, share = total(_squares, None, add)
        mean_square = squares / share if share > 0 else 0.0
        return Scaling(kind, shift, factor / np.sqrt(mean_square) if mean_square > 0 else factor)
    with np.errstate(over="ignore", invalid="ignore"):
        _, shift, variance = total(_moments, None, _joined_moments)
        spread = np.sqrt(variance)
    if not np.isfinite(spread).all():  # squares beyond the range of numbers: take them of smaller values
        size = total(_largest, None, np.maximum)
        _, shift, variance = total(_moments, size, _joined_moments)
        shift, spread = shift * size, np.sqrt(variance) * size
    return standard_scaling(shift, spread, dtype)


def standard_scaling(mean: np.ndarray, spread: np.ndarray, dtype: Any) -> Scaling:
    """The scaling of features with this mean and standard deviation; ``dtype`` says what is rounding."""
    return Scaling("standard", mean, _reciprocal(spread, np.abs(mean) + spread, dtype))


def single_scaling(X: Any) -> Scaling:
    """Of features whose values single precision would merge: from their median, in units of their spread.

    For learners that ask for the order of values alone. Other features, and sparse ones of usual size, stay
    as they are. The spread is that of the middle half: a wild value must not press the others together.

    Examples
    --------
    >>> X = np.column_stack([np.arange(5.0), 1e9 + np.arange(5.0), 1e-9 * np.arange(5.0)])
    >>> scaling = single_scaling(X)
    >>> scaling.shift.round(3).tolist(), scaling.factor.round(3).tolist()
    ([0.0, 1000000002.0, 0.0], [1.0, 0.5, 500000000.0])
    """
    d = X.shape[1]
    shift, factor = np.zeros(d), np.ones(d)
    if sparse.issparse(X):
        size = abs(X).max(axis=0).toarray().ravel().astype(np.float64) if X.shape[0] else np.zeros(d)
        coarse = (size > _LARGEST) | ((size > 0) & (size < _FINEST))
        factor[coarse] = 1.0 / size[coarse]
        return Scaling("single", shift, factor)
    if X.shape[0] == 0 or X.dtype == np.float32:
        return Scaling("single", shift, factor)
    low, middle, high = np.percentile(X, [25, 50, 75], axis=0)
    spread = high - low
    for j in np.flatnonzero(spread == 0):  # mostly one value
        spread[j] = np.abs(X[:, j] - middle[j]).mean()
    size = np.maximum(np.abs(X).max(axis=0), spread)
    merged = np.abs(middle) * np.finfo(np.float32).eps > 1e-3 * spread
    coarse = (spread > 0) & (merged | (spread < _FINEST) | (size > _LARGEST))
    # only the median of what is small beside it: zero stays zero
    shift[coarse & merged] = middle[coarse & merged]
    factor[coarse] = 1.0 / spread[coarse]
    return Scaling("single", shift, factor)


def in_single(X: Any, scaling: Scaling) -> Any:
    """Instances in single precision by `single_scaling`; what is beyond its range is set to the end of it."""
    if (scaling.factor != 1.0).any() or scaling.shift.any():
        with np.errstate(over="ignore"):
            X = apply_scaling(X, scaling)
    if X.dtype == np.float32:
        return X
    end = np.finfo(np.float32).max
    if sparse.issparse(X):
        values = np.clip(X.data, -end, end).astype(np.float32)
        return sparse.csr_array((values, X.indices, X.indptr), shape=X.shape)
    return np.clip(X, -end, end).astype(np.float32)


def text_in_parts(parts: Parts) -> bool:
    """Whether instances in parts count as text; see `is_text`."""
    if len(parts) == 1 and not parts.streamed:
        return is_text(parts.only()[0])
    cells, filled = map_reduce(_cells, None, parts)
    return bool(filled < TEXT_SHARE * cells)


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
    out, moved = aligned_empty(X.shape, dtype), scaling.shift.any()
    room = np.empty((min(_BLOCK, len(X)), X.shape[1]))  # shift and factor are double: never a whole copy so
    for first in range(0, len(X), _BLOCK):
        rows = X[first : first + _BLOCK]
        part = room[: len(rows)]
        part[:] = rows
        if moved:
            part -= scaling.shift
        part *= scaling.factor
        out[first : first + _BLOCK] = part
    return out


def _unit_length(X: Any, dtype: Any) -> Any:
    if sparse.issparse(X):
        squares = np.asarray(X.multiply(X).sum(axis=1), dtype=np.float64).ravel()
        lengths = np.repeat(np.where(squares > 0, np.sqrt(squares), 1.0), np.diff(X.indptr))
        data = (X.data / lengths).astype(dtype, copy=False)
        return sparse.csr_array((data, X.indices, X.indptr), shape=X.shape)
    X = X.astype(np.float64, copy=False)
    lengths = np.sqrt(np.einsum("ij,ij->i", X, X))
    return (X / np.where(lengths > 0, lengths, 1.0)[:, None]).astype(dtype, copy=False)


# ---------------------------------------------------------------------- sums over parts


def _cells(_: None, data: Any) -> tuple[int, int]:
    X, _weights = data
    values = X.data if sparse.issparse(X) else X
    return X.shape[0] * X.shape[1], int(np.count_nonzero(values))


def _squares(_: None, data: Any) -> tuple[float, float]:
    """Sum of squares of the values that are there, and how many those are, each by its weight."""
    X, weights = data
    values = X.data if sparse.issparse(X) else X
    squares = np.square(values, dtype=np.float64)
    if weights is None:
        return float(squares.sum()), float(np.count_nonzero(values))
    each = np.repeat(weights, np.diff(X.indptr)) if sparse.issparse(X) else weights[:, None]
    return float((squares * each).sum()), float(((values != 0) * each).sum())


def _moments(size: Any, data: Any) -> tuple[float, np.ndarray, np.ndarray]:
    """Weight of a part, and mean and variance of its features, without a copy of it.

    Deviations are squared in a second look at the part: sums of squares of the values themselves cancel.
    """
    X, weights = data
    X = X.toarray() if sparse.issparse(X) else X
    total = float(len(X)) if weights is None else float(weights.sum())
    mean, variance = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    if total == 0:
        return total, mean, variance
    share = np.full(len(X), 1.0 / total) if weights is None else weights / total
    blocks = [slice(first, first + _BLOCK) for first in range(0, len(X), _BLOCK)]
    for rows in blocks:
        mean += share[rows] @ (X[rows] if size is None else X[rows] / size)
    for rows in blocks:
        deviations = (X[rows] if size is None else X[rows] / size) - mean
        np.square(deviations, out=deviations)
        variance += share[rows] @ deviations
    return total, mean, variance


def _joined_moments(a: Any, b: Any) -> tuple[float, np.ndarray, np.ndarray]:
    """Moments of two parts together (Chan, Golub and LeVeque, 1983)."""
    if a[0] == 0 or b[0] == 0:
        return b if a[0] == 0 else a
    total = a[0] + b[0]
    share, other = b[0] / total, a[0] / total
    apart = b[1] - a[1]
    return total, a[1] + apart * share, a[2] * other + b[2] * share + np.square(apart) * (share * other)


def _largest(_: None, data: Any) -> np.ndarray:
    X = data[0].toarray() if sparse.issparse(data[0]) else data[0]
    return np.abs(X).max(axis=0, initial=1.0).astype(np.float64)


def _range(_: None, data: Any) -> tuple[np.ndarray, np.ndarray]:
    X, _weights = data
    low, high = X.min(axis=0), X.max(axis=0)
    if sparse.issparse(X):
        low, high = low.toarray(), high.toarray()
    return low.astype(np.float64).ravel(), high.astype(np.float64).ravel()


def _wider(a: Any, b: Any) -> tuple[np.ndarray, np.ndarray]:
    return np.minimum(a[0], b[0]), np.maximum(a[1], b[1])


def _reciprocal(spread: np.ndarray, largest: np.ndarray, dtype: Any) -> np.ndarray:
    """One over the spread; 0 for a feature that is constant but for rounding."""
    varies = spread > np.maximum(_NOISE.get(np.dtype(dtype), 1e-12) * largest, np.finfo(np.float64).tiny)
    return np.divide(1.0, spread, out=np.zeros(len(spread)), where=varies)
