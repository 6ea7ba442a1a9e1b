"""What multi-instance baselines share: scaled instances, blocks of bags, labels one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.metrics.pairwise import euclidean_distances, linear_kernel
from sklearn.svm import SVC

from bagwise.bags import Bags, runs
from bagwise.base import MIMLClassifier
from bagwise.models._shared.scaling import SCALINGS, apply_scaling, learn_scaling
from bagwise.models.distance.base import check_choice, check_positive

KERNELS = ("rbf", "linear")
CELLS = 1 << 21  # numbers of a block of a kernel matrix, or of dense instances, held at a time


class ScaledClassifier(MIMLClassifier):
    """Learns from scaled instances; labels that never change in training get a constant score.

    A subclass writes ``_check_parameters``, ``_learn(X, offsets, Y)`` on scaled instances in double
    precision, ``_width``, the numbers that scoring holds per instance, and ``_score(X, offsets)``.
    """

    scaling: str
    constant_scores_: np.ndarray

    def _check_parameters(self) -> None:
        raise NotImplementedError

    def _learn(self, X: Any, offsets: np.ndarray, Y: np.ndarray) -> None:
        raise NotImplementedError

    def _score(self, X: Any, offsets: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    @property
    def _width(self) -> int:
        raise NotImplementedError

    def _fit(self, bags: Bags, Y: np.ndarray) -> None:
        check_choice("scaling", self.scaling, SCALINGS)
        self._check_parameters()
        self._scaling = learn_scaling(bags.X, self.scaling)
        first = np.where(Y[0] > 0, 1.0, -1.0)
        self.constant_scores_ = np.where(Y.min(axis=0) < Y.max(axis=0), np.nan, first)
        self._learn(self._scaled(bags.X), bags.offsets, Y)

    def _scaled(self, X: Any) -> Any:
        return short_indices(apply_scaling(X, self._scaling))

    def _scores(self, bags: Bags) -> np.ndarray:
        return self._in_blocks(self._score, bags)

    def _in_blocks(self, score: Any, bags: Bags) -> np.ndarray:
        """Scores of some bags at a time, with the constant ones put in place."""
        per_row = max(self._width, bags.n_features)
        parts = [score(self._scaled(part.X), part.offsets) for part in blocks(bags, CELLS // per_row)]
        S = np.concatenate(parts)
        return np.where(np.isnan(self.constant_scores_), S, self.constant_scores_)


def blocks(bags: Bags, n_rows: int) -> Iterator[Bags]:
    """Runs of bags with at most some instances together; a larger bag is a run by itself.

    Examples
    --------
    >>> bags = Bags(np.zeros((6, 1)), np.array([0, 2, 3, 6]))
    >>> [len(part) for part in blocks(bags, 3)]
    [2, 1]
    """
    for a, b in runs(bags.offsets, n_rows):
        yield bags[a:b]


def short_indices(X: Any) -> Any:
    """CSR with 32-bit indices where they suffice: libsvm and k-means take no others."""
    if sparse.issparse(X) and X.indices.dtype != np.int32 and X.nnz < 2**31:
        parts = X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)
        return sparse.csr_array(parts, shape=X.shape)
    return X


def check_machine(kernel: Any, gamma: Any, C: Any) -> None:
    """Refuse settings that no support vector machine has."""
    check_choice("kernel", kernel, KERNELS)
    check_positive("C", C)
    if gamma != "scale":
        check_positive("gamma", gamma)


def resolve_gamma(gamma: float | str, X: Any) -> float:
    """One over the number of features times the variance of all values for "scale", else what was given.

    Examples
    --------
    >>> resolve_gamma("scale", np.array([[0.0, 0.0], [2.0, 2.0]]))
    0.5
    """
    if gamma != "scale":
        return float(gamma)
    if sparse.issparse(X):
        variance = X.multiply(X).mean() - X.mean() ** 2
    else:
        variance = X.var()
    return 1.0 / (X.shape[1] * float(variance)) if variance > 0 else 1.0


def gram(kernel: str, gamma: float, A: Any, B: Any) -> np.ndarray:
    """Kernel of every pair of rows."""
    if kernel == "linear":
        return linear_kernel(A, B, dense_output=True)
    K = euclidean_distances(A, B, squared=True)
    K *= -gamma
    return np.exp(K, out=K)


def precomputed_machine(y: np.ndarray, K: np.ndarray, C: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Support vectors, their weights and the intercept of one label."""
    svm = SVC(kernel="precomputed", C=C).fit(K, y)
    return svm.support_, svm.dual_coef_[0], float(svm.intercept_[0])


def weights_of(machines: list[Any], n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows that support some label, their weights (n_support, n_labels), and intercepts.

    Examples
    --------
    >>> rows, weights, intercept = weights_of([(np.array([2]), np.array([0.5]), 1.0), None], 4)
    >>> rows.tolist(), weights.tolist(), intercept.tolist()
    ([2], [[0.5, 0.0]], [1.0, 0.0])
    """
    weights, intercept = np.zeros((n, len(machines))), np.zeros(len(machines))
    for label, machine in enumerate(machines):
        if machine is not None:
            support, dual, intercept[label] = machine
            weights[support, label] = dual
    rows = np.flatnonzero(weights.any(axis=1))
    return rows, weights[rows], intercept


def bag_matrix(offsets: np.ndarray, weights: np.ndarray) -> sparse.csr_array:
    """Matrix (n_bags, n_instances) whose product with instances is their weighted sum in each bag.

    Examples
    --------
    >>> bag_matrix(np.array([0, 2, 3]), np.array([1.0, 2.0, 3.0])).toarray()
    array([[1., 2., 0.],
           [0., 0., 3.]])
    """
    n = int(offsets[-1])
    kind = np.int32 if n < 2**31 else np.int64
    parts = weights, np.arange(n, dtype=kind), offsets.astype(kind)
    return sparse.csr_array(parts, shape=(len(offsets) - 1, n))
