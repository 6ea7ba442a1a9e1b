"""From instances to features: transforms, and features P with P P' close to the kernel between bags.

Features are those of Sect. 3.6 of MIML-GP, found without n x n matrices, part by part. `FeatureMap` computes
the same ones for other bags.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, sparse

from bagwise.bags import Bags
from bagwise.base.blocks import evenly, thinned
from bagwise.compute.parts import Held, Parts, map_parts, map_reduce
from bagwise.compute.scaling import Scaling, apply_scaling, scaling_of
from bagwise.compute.threads import small_products
from bagwise.errors import DataError, quoted
from bagwise.models.gp.kernels_gaussian import InstanceKernel, bag_means, dense, take_bags

TRANSFORMS = ("none", "minmax", "standard", "l2", "sqrt", "log", "sqrt-l2", "log-l2")
_HUGE = 1e100  # squared distances of larger values leave the range of numbers
EIGEN_LIMIT = 3000  # bags up to which the bags' own Gram matrix is decomposed
LINEAR_LIMIT = 1000  # features up to which a linear kernel keeps its features whole
RANK_LIMIT = 1000  # rank at which a pivoted Cholesky factor stops unless told otherwise
CELLS_LIMIT = 3e7  # and the numbers in it (240 MB, of which some copies are made)
_NEGLIGIBLE = 1e-12  # of the largest eigenvalue
# Of bags in several parts landmarks are found among some, and are not whole: all bags are compared with them
# in every pass. Ranks are such that the systems of all labels together can be factored.
SAMPLE = 2000
SAMPLE_RANK, UNKNOWNS = 300, 3000
LANDMARK_INSTANCES = 100  # of a landmark bag at the most, of bags in several parts


@dataclass
class FeatureMap:
    """How to compute features of any bags: from their mean instance, or from kernels with landmarks."""

    kernel: InstanceKernel
    projection: np.ndarray  # (d or n_landmarks, m): multiplies the mean instance, or kernels with landmarks
    intercept: np.ndarray  # (m,), added to that: the constant's share of explicit features, else 0
    landmarks: Any = None  # instances of the landmark bags; None for explicit features of a linear kernel
    offsets: np.ndarray | None = None  # of these bags
    whole: bool = False  # whether ``base`` of the training bags is the kernel itself, or its exact factor

    def base(self, X: Any, offsets: np.ndarray) -> Any:
        """What features are linear in: mean instances (CSR if given so), or kernels with the landmarks."""
        if self.landmarks is None or self.offsets is None:
            return bag_means(X, offsets)
        return self.kernel.between(X, offsets, self.landmarks, self.offsets)


class Data(NamedTuple):
    """Transformed instances: rows of the kernel by ``offsets``, and the bags with their labels."""

    X: Any
    offsets: np.ndarray
    Y: np.ndarray
    bags: np.ndarray

    @classmethod
    def of(cls, X: Any, offsets: np.ndarray, Y: np.ndarray, single: bool) -> Data:
        """Bags, of which every instance is a row of the kernel if ``single``."""
        return cls(X, np.arange(X.shape[0] + 1) if single else offsets, Y, offsets)


class Features(NamedTuple):
    """Features of the rows of some bags, and what `Data` says of the bags."""

    P: np.ndarray
    Y: np.ndarray
    bags: np.ndarray


@dataclass
class Training:
    """All training bags in parts."""

    parts: Parts  # each loads as `Data`
    part_rows: np.ndarray  # rows of the kernel in each
    n_features: int
    n_labels: int

    @classmethod
    def of(cls, X: Any, offsets: np.ndarray, Y: np.ndarray, *, single: bool = False) -> Training:
        """Transformed bags in memory; see `Data.of`."""
        data = Data.of(X, offsets, Y, single)
        return cls(Held(data), np.array([len(data.offsets) - 1]), X.shape[1], Y.shape[1])

    @property
    def n_rows(self) -> int:
        """Rows of the kernel in all parts."""
        return int(self.part_rows.sum())

    def only(self) -> tuple[Any, np.ndarray]:
        """Instances and offsets of the only part."""
        return self.parts.only()[:2]

    def some(self, which: np.ndarray) -> tuple[Any, np.ndarray]:
        """Instances and offsets of some rows; of several parts at most `LANDMARK_INSTANCES` of each."""
        if len(self.parts) == 1:
            return take_bags(*self.only(), which)
        ends = np.cumsum(self.part_rows)
        cuts = np.split(which, np.searchsorted(which, ends[:-1]))
        each = [cut - (end - n) for cut, end, n in zip(cuts, ends, self.part_rows)]
        found = Bags.concat(list(map_parts(_as_is, None, self.parts.map(_taken, each))))
        return found.X, found.offsets


def _taken(which: np.ndarray, data: Data) -> Bags:
    return thinned(Bags(*take_bags(data.X, data.offsets, which)), LANDMARK_INSTANCES)


def _as_is(_: None, part: Any) -> Any:
    return part


# ---------------------------------------------------------------------- transforms
# Bends of the values of instances, here, and scalings, those of the library. Nothing shifts features: shifts
# drop out of a Gaussian kernel and would fill sparse matrices.


def learn_transform(X: Any, transform: str) -> Scaling:
    """Learn from training instances what the transform of this name does to any instance."""
    return transform_of(Held((X, None)), transform, X.shape[1], X.dtype)


def transform_of(parts: Parts, transform: str, n_features: int, dtype: Any) -> Scaling:
    """The same from instances in parts, as `scaling_of` takes them."""
    kind = {"sqrt-l2": "l2", "log-l2": "l2", "sqrt": "none", "log": "none"}.get(transform, transform)
    found = scaling_of(parts, kind, n_features, dtype)
    return replace(found, shift=np.zeros(n_features))


def apply_transform(X: Any, transform: str, scaling: Scaling) -> Any:
    """Transformed copy in double precision; CSR stays CSR."""
    if transform.startswith(("sqrt", "log")):
        X = sparse.csr_array(X, dtype=np.float64, copy=True) if sparse.issparse(X) else X.astype(np.float64)
        values = X.data if sparse.issparse(X) else X
        bent = np.sqrt(np.abs(values)) if transform.startswith("sqrt") else np.log1p(np.abs(values))
        values[...] = np.copysign(bent, values)
    return apply_scaling(X, scaling)


def transformed(bags: Bags, transform: str, scaling: Scaling) -> Any:
    """Instances after the transform, all of them small enough to be squared."""
    X = apply_transform(bags.X, transform, scaling)
    refuse_huge(X, bags)
    return X


def is_huge(X: Any) -> bool:
    """Whether a value is too large to be squared."""
    values = X.data if sparse.issparse(X) else X
    return values.size > 0 and max(float(values.max()), -float(values.min())) > _HUGE


def refuse_huge(X: Any, bags: Bags) -> None:
    """Raise an error that names the bag and the feature if a transformed value is too large to be squared."""
    if not is_huge(X):
        return
    values = np.abs(X.data if sparse.issparse(X) else X)
    if sparse.issparse(X):
        at = int(values.argmax())
        row, column = int(np.searchsorted(X.indptr, at, side="right")) - 1, int(X.indices[at])
    else:
        row, column = (int(i) for i in np.unravel_index(values.argmax(), values.shape))
    bag = quoted(bags.bag_ids[bags.index[row]])
    raise DataError(
        f"feature {column} of bag {bag} has the value {bags.X[row, column]:.3g}, beyond what squared "
        f"distances can hold after scaling ({_HUGE:.0e}); correct it, or divide the feature"
    )


# ---------------------------------------------------------------------- features


def build_features(
    kernel: InstanceKernel,
    training: Training,
    *,
    factor: str,
    share: float,
    rank: int | None,
    random_state: np.random.RandomState,
    gpu: Any = None,
) -> tuple[Parts, FeatureMap]:
    """Factor the mean kernel of bags: parts that load as `Features`, and how other bags get the same.

    Columns of all P are orthogonal, the longest first, which is what makes the block preconditioner good.
    """
    n, d = training.n_rows, training.n_features
    several = len(training.parts) > 1
    # decompositions of such matrices wait more than they gain from a second core unless it is quite idle
    with small_products(0.0 if several or max(n, d) <= EIGEN_LIMIT else np.inf):
        if kernel.kernel == "linear" and factor in ("auto", "eigen") and d <= min(EIGEN_LIMIT, max(n, 1000)):
            keep = 1.0 if factor == "auto" and d <= LINEAR_LIMIT else share
            return _explicit(kernel, training, keep, rank)
        if several and factor != "nystroem":
            return _pivoted_sample(kernel, training, share, rank)
        if factor == "eigen" or (factor == "auto" and n <= EIGEN_LIMIT):
            return _in_memory(training, *_eigen(kernel, *training.only(), share, rank))
        if factor == "nystroem":
            return _nystroem(kernel, training, rank, random_state)
        return _in_memory(training, *_pivoted(kernel, *training.only(), share, rank, gpu=gpu))


def _in_memory(training: Training, P: np.ndarray, found: FeatureMap) -> tuple[Parts, FeatureMap]:
    data = training.parts.only()
    return Held(Features(P, data.Y, data.bags)), found


def _leading(values: np.ndarray, share: float, rank: int | None, trace: float) -> int:
    """How many eigenvalues, largest first, make up the share of the trace."""
    positive = int((values > _NEGLIGIBLE * max(values[0], 0.0)).sum())
    if rank is not None:
        return max(1, min(rank, positive))
    if share >= 1.0:
        return max(1, positive)
    held = np.cumsum(np.maximum(values, 0.0))
    enough = int(np.searchsorted(held, share * trace)) + 1
    return max(1, min(enough, positive))


def _explicit(kernel, training, share, rank):
    """Linear kernel: rotate the mean instances so that P'P is diagonal; nothing of size n x n."""
    means = mean_instances(training, kernel.constant)
    values, vectors = linalg.eigh(map_reduce(_own_product, None, means))
    order = np.argsort(values)[::-1]
    m = _leading(values[order], share, rank, values.sum())
    V = _signed(vectors[:, order[:m]])
    if kernel.constant > 0:
        projection, intercept = V[:-1], kernel.constant**0.5 * V[-1]
    else:
        projection, intercept = V, np.zeros(m)
    found = FeatureMap(kernel, np.ascontiguousarray(projection), intercept, whole=True)
    return means.map(partial(_times, V)), found


def mean_instances(training: Training, constant: float) -> Parts:
    """Mean instance of each bag, with the constant's share as last column where there is one."""
    return training.parts.map(partial(_means, constant))


def _means(constant: float, data: Data) -> Features:
    Z = dense(bag_means(data.X, data.offsets))
    if constant > 0:
        Z = np.hstack([Z, np.full((len(Z), 1), constant**0.5)])
    return Features(Z, data.Y, data.bags)


def _own_product(_: None, features: Features) -> np.ndarray:
    return features.P.T @ features.P


def _times(V: np.ndarray, features: Features) -> Features:
    return features._replace(P=features.P @ V)


def _eigen(kernel, X, offsets, share, rank):
    K = kernel.gram(X, offsets)
    values, vectors = _leading_pairs(K, share, rank)
    m = _leading(values, share, rank, np.trace(K))
    roots = np.sqrt(np.maximum(values[:m], np.finfo(float).tiny))
    U = np.ascontiguousarray(vectors[:, :m])
    return U * roots, FeatureMap(kernel, U / roots, np.zeros(m), X, offsets, whole=True)


def _leading_pairs(K, share, rank):
    """Eigenvalues and eigenvectors, largest first: all of them, or some more than are needed.

    A pivoted Cholesky factor costs a tenth of a decomposition and bounds the number of eigenvectors that
    hold the share. Where they are few, subspace iteration from its columns finds them.
    """
    n = len(K)
    C, order, held, _ = linalg.lapack.dpstrf(K, tol=-1.0, lower=1)
    C = np.tril(C)
    if rank is None:
        explained = np.cumsum((C[:, :held] ** 2).sum(axis=0))
        enough = int(np.searchsorted(explained, share * np.trace(K))) + 1
    else:
        enough = 2 * rank
    if enough > n // 6:
        values, vectors = linalg.eigh(K, driver="evd")
        return values[::-1], vectors[:, ::-1]
    Q = np.empty((n, min(enough + 20, held)))
    Q[order - 1] = C[:, : Q.shape[1]]
    for _ in range(4):
        Q = linalg.qr(K @ Q, mode="economic")[0]
    values, vectors = linalg.eigh(Q.T @ K @ Q)
    return values[::-1], (Q @ vectors)[:, ::-1]


def _nystroem(kernel, training, rank, random_state):
    """Randomly chosen landmark bags, P = K_nm K_mm^{-1/2}, then rotated."""
    n = training.n_rows
    m = min(n, 100 if rank is None else rank)
    draw = np.random.default_rng(random_state.randint(2**31 - 1))  # in memory of m, not of n
    landmarks, z_offsets = training.some(np.sort(draw.choice(n, m, replace=False, shuffle=False)))
    values, vectors = linalg.eigh(kernel.gram(landmarks, z_offsets))
    good = values > 1e-10 * values[-1]
    root = vectors[:, good] / np.sqrt(values[good])
    return _rotated(kernel, training, landmarks, z_offsets, root)


def _pivoted_sample(kernel, training, share, rank):
    """Landmarks that a pivoted Cholesky factor finds in some of the bags of several parts, then as above."""
    X, offsets = training.some(evenly(training.n_rows, SAMPLE))
    limit = max(20, min(SAMPLE_RANK, UNKNOWNS // training.n_labels))
    _, found = _pivoted(kernel, X, offsets, share, rank, limit)
    return _rotated(kernel, training, found.landmarks, found.offsets, found.projection)


def _pivoted(kernel, X, offsets, share, rank, most=RANK_LIMIT, gpu=None):
    """Pivoted Cholesky factor: one column of the kernel per step, that of the bag explained worst."""
    n = len(offsets) - 1
    limit = min(n, max(1, min(most, int(CELLS_LIMIT / n))) if rank is None else rank)
    left = kernel.with_itself(X, offsets)
    stop = (1.0 - share) * left.sum() if rank is None else 0.0
    if gpu is not None and kernel.kernel == "gaussian" and not sparse.issparse(X):
        from bagwise.models.gp.gpu import factor_on_gpu

        C, pivots, own, rotated = factor_on_gpu(kernel, X, offsets, left, limit, stop, gpu)
    else:
        with_all = kernel.with_all(X, offsets)
        C, pivots = factor(
            left, lambda i: with_all(*take_bags(X, offsets, np.array([i])))[0], np.empty((limit, n)), stop
        )
        own, rotated = C @ C.T, lambda vectors: np.ascontiguousarray(C.T @ vectors)
    m = len(pivots)
    landmarks, z_offsets = take_bags(X, offsets, np.array(pivots))
    # C' = K_np T^{-1} with T the triangle that C' has at the pivots
    triangle = C[:, pivots].T
    inverse = linalg.solve_triangular(triangle, np.eye(m), lower=True).T
    _, vectors = linalg.eigh(own)
    vectors = _signed(vectors[:, ::-1])
    return rotated(vectors), FeatureMap(kernel, inverse @ vectors, np.zeros(m), landmarks, z_offsets)


def factor(left: Any, column_of: Any, C: Any, stop: float) -> tuple[Any, list[int]]:
    """Rows of the factor, one per step, so that products run along memory; for arrays and for tensors."""
    floor, pivots = 1e-10 * float(left.max()), []  # type: ignore[var-annotated]
    while len(pivots) < len(C) and float(left.sum()) > stop and float(left.max()) > floor:
        i, k = int(left.argmax()), len(pivots)
        column = column_of(i)
        if k:
            column -= C[:k, i] @ C[:k]
        C[k] = column / column[i] ** 0.5
        C[k, pivots] = 0.0  # zero but for rounding: what earlier pivots explain whole
        left = (left - C[k] ** 2).clip(min=0.0)
        left[i] = 0.0
        pivots.append(i)
    return C[: len(pivots)], pivots


def _rotated(kernel, training, landmarks, z_offsets, root):
    whole = FeatureMap(kernel, root, np.zeros(root.shape[1]), landmarks, z_offsets)
    P = training.parts.map(partial(_projected, whole))
    _, vectors = linalg.eigh(map_reduce(_own_product, None, P))
    vectors = _signed(vectors[:, ::-1])
    found = FeatureMap(kernel, root @ vectors, np.zeros(len(vectors)), landmarks, z_offsets)
    return P.map(partial(_times, vectors)), found


def _projected(found: FeatureMap, data: Data) -> Features:
    return Features(found.base(data.X, data.offsets) @ found.projection, data.Y, data.bags)


def _signed(vectors: np.ndarray) -> np.ndarray:
    """Eigenvectors with their largest entry positive, so that draws of weights do not hang on rounding."""
    largest = np.abs(vectors).argmax(axis=0)
    return vectors * np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)
