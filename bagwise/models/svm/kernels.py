"""Kernels between bags: weighted sums of a kernel over all pairs of their instances.

``K(A, C) = sum_ij u_i v_j k(a_i, c_j)`` with a weight for every instance. The matrix of all pairs of
instances is never stored: blocks of some rows are computed, summed and forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.metrics.pairwise import euclidean_distances

from bagwise.bags import instance_rows, runs
from bagwise.compute.aligned import frozen
from bagwise.compute.compiled import kernel
from bagwise.compute.devices import gpu_for
from bagwise.compute.memo import between_bags, remembered
from bagwise.compute.segment import segment_sum
from bagwise.compute.threads import cores, in_threads
from bagwise.models.distance.kernels import dense_row
from bagwise.models.svm.base import bag_matrix, row_blocks, row_squares
from bagwise.utils.arrays import check_memory
from bagwise.utils.progress import progress

_CELLS = 1 << 19  # pairs of instances at a time: four megabytes stay in a cache
_WORTH_A_THREAD = 1 << 17  # pairs of instances below which a second thread costs more than it saves
_WORTH_A_BAR = 1 << 31  # pairs of instances from which a terminal shows how far it is
_CLOSE = 1e-9


def weighted_sums(X: Any, offsets: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weighted sum of the instances of every bag."""
    if not sparse.issparse(X):
        return segment_sum(X * weights[:, None], offsets)
    return (bag_matrix(offsets, weights) @ X).toarray()


@remembered
def set_kernel(
    X: Any,
    offsets: np.ndarray,
    weights: np.ndarray,
    Z: Any = None,
    z_offsets: Any = None,
    z_weights: Any = None,
    *,
    gamma: float | None,
    device: str = "cpu",
) -> np.ndarray:
    """Kernel (n_bags, n_other_bags) between all bags of one set, or from these to all of another.

    Z is the other set, by default the first, at half the work. ``gamma`` is that of
    ``exp(-gamma |x - z|^2)``, whose pairs take ``N M d`` operations; None is the product of the features,
    which needs no pairs: it is that of the bags' sums. A GPU works in single precision; sparse instances stay
    here.
    """
    symmetric = Z is None
    if symmetric:
        Z, z_offsets, z_weights = X, offsets, weights
    if gamma is None:
        return weighted_sums(X, offsets, weights) @ weighted_sums(Z, z_offsets, z_weights).T
    n, m = len(offsets) - 1, len(z_offsets) - 1
    check_memory(8.0 * n * m, f"the kernel of {n:,} and {m:,} bags", "take a sample of the bags")
    gpu = None if sparse.issparse(X) or sparse.issparse(Z) else gpu_for(device, X.shape[0] * Z.shape[0])
    if gpu is not None:
        from bagwise.models._shared.gpu import kernel_sums

        return kernel_sums(X, offsets, weights, None if symmetric else Z, z_offsets, z_weights, gamma, gpu)
    out = np.zeros((n, m))
    squares = row_squares(Z)
    enabled = X.shape[0] * Z.shape[0] > _WORTH_A_BAR
    with progress("kernel between bags", total=X.shape[0], enabled=enabled) as advance:
        for a, b, rows in row_blocks(offsets, max(_CELLS // max(Z.shape[0], 1), 1)):
            first = a if symmetric else 0  # bags before this one are mirrored
            columns = slice(int(z_offsets[first]), None)
            K = euclidean_distances(
                X[rows], Z[columns], squared=True, Y_norm_squared=squares[columns].reshape(1, -1)
            )
            K *= -gamma
            np.exp(K, out=K)
            K *= weights[rows, None]
            cuts = np.clip(offsets[a : b + 1], rows.start, rows.stop) - rows.start
            sums = segment_sum(K, cuts).T * z_weights[columns, None]
            out[a:b, first:] += segment_sum(sums, z_offsets[first:] - z_offsets[first]).T
            if symmetric:
                out[b:, a:b] = out[a:b, b:].T
            advance(rows.stop - rows.start)
    if symmetric:
        return (out + out.T) / 2.0  # blocks around the diagonal are symmetric up to rounding
    return out


def kernel_of_bags(
    left: tuple[Any, np.ndarray, np.ndarray],
    right: tuple[Any, np.ndarray, np.ndarray] | None,
    gamma: float | None,
    device: str,
) -> np.ndarray:
    """`set_kernel` of bags (instances, offsets, weights), from known pairs of bags where they are kept."""
    if sparse.issparse(left[0]) or gamma is None:
        return set_kernel(*left, *(right or ()), gamma=gamma, device=device)

    def compute(some: np.ndarray, others: np.ndarray) -> np.ndarray:
        rows = _some(left, some)
        same = right is None and np.array_equal(some, others)
        columns = () if same else _some(left if right is None else right, others)
        return set_kernel(*rows, *columns, gamma=gamma, device=device)

    return between_bags(("set kernel", gamma), left, left if right is None else right, compute)


def _some(bags: tuple[Any, np.ndarray, np.ndarray], which: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray]:
    X, offsets, weights = bags
    if len(which) == len(offsets) - 1:
        return bags
    rows, cut = instance_rows(offsets, which)
    return X[rows], cut, weights[rows]


# Each instance beside the others of its bag, whose squared distances are made in ``t`` and forgotten: a bag
# of a hundred thousand instances needs room for as many numbers. ``owners`` is the bag of every row.


@kernel
def _distance_sums(first, last, X, XT, offsets, owners, gamma, gaussian, t, out):
    """Sum of the distances of every instance to those before it."""
    for i in range(first, last):
        lo = offsets[owners[i]]
        dense_row(X[i], XT, lo, i - lo, t)
        total = 0.0
        for j in range(i - lo):
            total += -math.expm1(-gamma * t[j]) if gaussian else t[j]
        out[i] = total


@kernel
def _near(first, last, X, XT, offsets, owners, limits, gamma, gaussian, t, out):
    """Number of instances that are nearer than the limit of their bag, itself counted.

    The limit is turned into one of squares; only where a square is as good as equal to it the distance
    itself decides.
    """
    for i in range(first, last):
        lo, hi = offsets[owners[i]], offsets[owners[i] + 1]
        limit = limits[owners[i]]
        square = limit
        if gaussian:
            square = -math.log1p(-limit) / gamma if limit < 1.0 else np.inf
        dense_row(X[i], XT, lo, hi - lo, t)
        near = 1  # itself, also where all distances are 0 and none is below their mean
        for j in range(hi - lo):
            closer = t[j] < square
            if gaussian and abs(t[j] - square) <= _CLOSE * square:
                closer = -math.expm1(-gamma * t[j]) < limit
            near += closer and lo + j != i
        out[i] = near


@remembered
def graph_weights(
    X: Any, offsets: np.ndarray, *, gamma: float, gaussian: bool, threshold: float | None
) -> np.ndarray:
    """One over the number of instances of the bag that are near each instance, itself included.

    Near is a distance below ``threshold``, None being the mean distance of the pairs of the bag. Distances
    are ``1 - exp(-gamma |x - x'|^2)`` if ``gaussian``, else ``|x - x'|^2``.
    """
    near = np.empty(X.shape[0])
    for part, local, rows, _ in _dense_parts(X, offsets):
        if threshold is None:
            sums = _over_rows(_distance_sums, part, local, float(gamma), gaussian)
            sizes = np.diff(local)
            limits = segment_sum(sums, local) / np.maximum(sizes * (sizes - 1) / 2, 1.0)
        else:
            limits = np.full(len(local) - 1, float(threshold))
        near[rows] = _over_rows(_near, part, local, limits, float(gamma), gaussian)
    return 1.0 / near


@remembered
def own_kernels(X: Any, offsets: np.ndarray, weights: np.ndarray, *, gamma: float | None) -> np.ndarray:
    """Kernel of every bag with itself: the diagonal of `set_kernel`, without the rest."""
    if gamma is None:
        return np.square(weighted_sums(X, offsets, weights)).sum(axis=1)
    out = np.zeros(len(offsets) - 1)
    for part, local, rows, bags in _dense_parts(X, offsets):
        own, u, squares = out[bags], weights[rows], row_squares(part)
        for b, (lo, hi) in enumerate(pairwise(local.tolist())):
            step = max(_CELLS // max(hi - lo, 1), 1)
            for first in range(lo, hi, step):
                some = slice(first, min(first + step, hi))
                D = squares[some, None] + squares[lo:hi] - 2.0 * (part[some] @ part[lo:hi].T)
                own[b] += u[some] @ np.exp(-gamma * np.maximum(D, 0.0)) @ u[lo:hi]
    return out


def _over_rows(kernel: Callable[..., None], X: np.ndarray, offsets: np.ndarray, *settings: Any) -> np.ndarray:
    """One number for every instance, by a loop over the others of its bag."""
    sizes = np.diff(offsets)
    owners, out = frozen(np.repeat(np.arange(len(sizes)), sizes)), np.empty(X.shape[0])
    rows, columns, bounds = frozen(X), frozen(X.T), frozen(offsets)

    def some(first: int, last: int) -> None:
        room = np.empty(int(sizes.max(initial=0)))
        kernel(first, last, rows, columns, bounds, owners, *settings, room, out)

    work = np.concatenate([[0], np.cumsum(sizes[owners])])
    in_threads(some, len(out), cores(), work=work, smallest=_WORTH_A_THREAD)
    return out


def _dense_parts(X: Any, offsets: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, slice, slice]]:
    """Runs of bags with dense instances: all bags, or some at a time where instances are sparse."""
    if not sparse.issparse(X):
        yield np.asarray(X, dtype=np.float64), offsets, slice(0, X.shape[0]), slice(0, len(offsets) - 1)
        return
    for a, b in runs(offsets, max(_CELLS // max(X.shape[1], 1), 1)):
        rows = slice(int(offsets[a]), int(offsets[b]))
        what = f"a bag of {rows.stop - rows.start:,} instances with {X.shape[1]:,} features each"
        check_memory(16.0 * (rows.stop - rows.start) * X.shape[1], what, "cut it, or select features first")
        yield (
            X[rows].toarray().astype(np.float64, copy=False),
            offsets[a : b + 1] - offsets[a],
            rows,
            slice(a, b),
        )
