"""Kernels between bags: weighted sums of a kernel over all pairs of their instances.

``K(A, C) = sum_ij u_i v_j k(a_i, c_j)`` with a weight for every instance. The matrix of all pairs of
instances is never stored: blocks of some rows are computed, summed and forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import njit
from scipy import sparse
from sklearn.metrics.pairwise import euclidean_distances

from bagwise.kernels.segment import segment_sum

__all__ = ["graph_weights", "own_kernels", "set_kernel", "weighted_sums"]

_CELLS = 1 << 19  # pairs of instances at a time: four megabytes stay in a cache
_MEAN = -1.0


def weighted_sums(X: Any, offsets: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weighted sum of the instances of every bag.

    Examples
    --------
    >>> weighted_sums(np.array([[1.0], [2.0], [3.0]]), np.array([0, 2, 3]), np.array([1.0, 2.0, 3.0]))
    array([[5.],
           [9.]])
    """
    if not sparse.issparse(X):
        return segment_sum(X * weights[:, None], offsets)
    n_bags, n = len(offsets) - 1, X.shape[0]
    return (sparse.csr_array((weights, np.arange(n), offsets), shape=(n_bags, n)) @ X).toarray()


def set_kernel(
    X: Any,
    offsets: np.ndarray,
    weights: np.ndarray,
    Z: Any = None,
    z_offsets: Any = None,
    z_weights: Any = None,
    *,
    gamma: float | None,
) -> np.ndarray:
    """Kernel between all bags of one set, or from all bags of one set to all of another.

    Parameters
    ----------
    X : array or CSR of shape (n_instances, n_features)
        Instances, bag after bag.
    offsets : int array of shape (n_bags + 1,)
        Bag ``b`` is ``X[offsets[b]:offsets[b + 1]]``.
    weights : array of shape (n_instances,)
        Weight of every instance.
    Z, z_offsets, z_weights : optional
        The same for the other set; by default the first, at half the work.
    gamma : float or None
        Of the kernel ``exp(-gamma |x - z|^2)``; None is the product of the features.

    Returns
    -------
    float64 array of shape (n_bags, n_other_bags)

    Notes
    -----
    ``N M d`` operations for N and M instances and d features. The product of features needs no pairs: it is
    the product of the bags' sums.

    Examples
    --------
    >>> X, offsets = np.array([[0.0], [1.0], [0.0]]), np.array([0, 2, 3])
    >>> set_kernel(X, offsets, np.ones(3), gamma=1.0).round(3)
    array([[2.736, 1.368],
           [1.368, 1.   ]])
    """
    symmetric = Z is None
    if symmetric:
        Z, z_offsets, z_weights = X, offsets, weights
    if gamma is None:
        return weighted_sums(X, offsets, weights) @ weighted_sums(Z, z_offsets, z_weights).T
    out = np.empty((len(offsets) - 1, len(z_offsets) - 1))
    a = 0
    while a < len(out):
        first = a if symmetric else 0  # bags before this one are mirrored
        columns = slice(z_offsets[first], None)
        limit = offsets[a] + _CELLS // max(Z.shape[0] - int(z_offsets[first]), 1)
        b = max(int(np.searchsorted(offsets, limit, side="right")) - 1, a + 1)
        rows = slice(offsets[a], offsets[b])
        K = euclidean_distances(X[rows], Z[columns], squared=True)
        K *= -gamma
        np.exp(K, out=K)
        K *= weights[rows, None]
        sums = segment_sum(K, offsets[a : b + 1] - offsets[a]).T * z_weights[columns, None]
        out[a:b, first:] = segment_sum(sums, z_offsets[first:] - z_offsets[first]).T
        if symmetric:
            out[b:, a:b] = out[a:b, b:].T
        a = b
    if symmetric:
        return (out + out.T) / 2.0  # blocks around the diagonal are symmetric up to rounding
    return out


@njit(cache=True)
def _graph_weights(X, offsets, gamma, gaussian, threshold, out):
    for bag in range(offsets.size - 1):
        start, n = offsets[bag], offsets[bag + 1] - offsets[bag]
        D = np.zeros((n, n))
        total = 0.0
        for i in range(n):
            for j in range(i):
                square = 0.0
                for k in range(X.shape[1]):
                    difference = X[start + i, k] - X[start + j, k]
                    square += difference * difference
                D[i, j] = -math.expm1(-gamma * square) if gaussian else square
                D[j, i] = D[i, j]
                total += D[i, j]
        limit = threshold
        if threshold == _MEAN and n > 1:
            limit = total / (n * (n - 1) / 2)
        for i in range(n):
            near = 1  # itself, also where all distances are 0 and none is below their mean
            for j in range(n):
                near += i != j and D[i, j] < limit
            out[start + i] = 1.0 / near


def graph_weights(
    X: Any, offsets: np.ndarray, *, gamma: float, gaussian: bool, threshold: float | None
) -> np.ndarray:
    """One over the number of instances of the bag that are near each instance, itself included.

    Parameters
    ----------
    X : array or CSR of shape (n_instances, n_features)
        Instances, bag after bag.
    offsets : int array of shape (n_bags + 1,)
        Bag ``b`` is ``X[offsets[b]:offsets[b + 1]]``.
    gamma : float
        Of the distance ``1 - exp(-gamma |x - x'|^2)``.
    gaussian : bool
        Whether to use that distance, or ``|x - x'|^2``.
    threshold : float or None
        Near is below it; None is the mean distance of the pairs of the bag.

    Returns
    -------
    float64 array of shape (n_instances,)

    Examples
    --------
    >>> X, offsets = np.array([[0.0], [0.1], [5.0], [7.0]]), np.array([0, 3, 4])
    >>> graph_weights(X, offsets, gamma=1.0, gaussian=True, threshold=None)
    array([0.5, 0.5, 1. , 1. ])
    """
    out = np.empty(X.shape[0])
    limit = _MEAN if threshold is None else float(threshold)
    for part, local, rows, _ in _dense_parts(X, offsets):
        _graph_weights(part, local, float(gamma), gaussian, limit, out[rows])
    return out


@njit(cache=True)
def _own_kernels(X, offsets, weights, gamma, out):
    for bag in range(offsets.size - 1):
        total = 0.0
        for i in range(offsets[bag], offsets[bag + 1]):
            total += weights[i] * weights[i]
            for j in range(offsets[bag], i):
                square = 0.0
                for k in range(X.shape[1]):
                    difference = X[i, k] - X[j, k]
                    square += difference * difference
                total += 2.0 * weights[i] * weights[j] * math.exp(-gamma * square)
        out[bag] = total


def own_kernels(X: Any, offsets: np.ndarray, weights: np.ndarray, *, gamma: float | None) -> np.ndarray:
    """Kernel of every bag with itself: the diagonal of `set_kernel`, without the rest.

    Examples
    --------
    >>> X, offsets = np.array([[0.0], [1.0], [0.0]]), np.array([0, 2, 3])
    >>> own_kernels(X, offsets, np.ones(3), gamma=1.0).round(3)
    array([2.736, 1.   ])
    """
    if gamma is None:
        return np.square(weighted_sums(X, offsets, weights)).sum(axis=1)
    out = np.empty(len(offsets) - 1)
    for part, local, rows, bags in _dense_parts(X, offsets):
        _own_kernels(part, local, weights[rows], float(gamma), out[bags])
    return out


def _dense_parts(X: Any, offsets: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, slice, slice]]:
    """Runs of bags with dense instances: all bags, or some at a time where instances are sparse."""
    a, n_bags = 0, len(offsets) - 1
    while a < n_bags:
        b = n_bags
        if sparse.issparse(X):
            reach = offsets[a] + _CELLS // X.shape[1]
            b = max(int(np.searchsorted(offsets, reach, side="right")) - 1, a + 1)
        rows = slice(int(offsets[a]), int(offsets[b]))
        part = X[rows].toarray() if sparse.issparse(X) else X[rows]
        part = np.ascontiguousarray(part, dtype=np.float64).view()
        part.flags.writeable = False  # another flag would be another compilation
        yield part, (offsets[a : b + 1] - offsets[a]).astype(np.int64), rows, slice(a, b)
        a = b
