"""What multi-instance baselines share: scaled instances, blocks of bags, labels one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from bagwise.bags import Bags, runs
from bagwise.base import MIMLClassifier
from bagwise.base.parameters import Choice
from bagwise.compute.scaling import SCALINGS, apply_scaling, learn_scaling
from bagwise.models._shared.svm import constant_scores, put_constants

SCALING = Choice(*SCALINGS)  # what the parameter may be
CELLS = 1 << 21  # numbers of a block of a kernel matrix, or of dense instances, held at a time


class ScaledClassifier(MIMLClassifier):
    """Learns from scaled instances; labels that never change in training get a constant score.

    A subclass writes ``_learn(X, offsets, Y)`` on scaled instances in double precision, ``_width``, the
    numbers that scoring holds per instance, and ``_score(X, offsets)``.
    """

    scaling: str
    constant_scores_: np.ndarray

    def _learn(self, X: Any, offsets: np.ndarray, Y: np.ndarray) -> None:
        raise NotImplementedError

    def _score(self, X: Any, offsets: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    @property
    def _width(self) -> int:
        raise NotImplementedError

    def _fit(self, bags: Bags, Y: np.ndarray) -> None:
        self._scaling = learn_scaling(bags.X, self.scaling)
        self.constant_scores_ = constant_scores(Y)
        self._learn(self._scaled(bags.X), bags.offsets, Y)

    def _scaled(self, X: Any) -> Any:
        return short_indices(apply_scaling(X, self._scaling))

    def _scores(self, bags: Bags) -> np.ndarray:
        return self._in_blocks(self._score, bags)

    def _in_blocks(self, score: Any, bags: Bags) -> np.ndarray:
        """Scores of some bags at a time, with the constant ones put in place."""
        per_row = max(self._width, bags.n_features)
        parts = [score(self._scaled(part.X), part.offsets) for part in blocks(bags, CELLS // per_row)]
        return put_constants(np.concatenate(parts), self.constant_scores_)


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


def row_blocks(offsets: np.ndarray, n_rows: int) -> Iterator[tuple[int, int, slice]]:
    """Bags and rows of blocks with at most some rows: whole bags, or a part of a larger one.

    Examples
    --------
    >>> list(row_blocks(np.array([0, 1, 2, 5]), 2))
    [(0, 2, slice(0, 2, None)), (2, 3, slice(2, 4, None)), (2, 3, slice(4, 5, None))]
    """
    for a, b in runs(offsets, n_rows):
        lo, hi = int(offsets[a]), int(offsets[b])
        for start in range(lo, hi, n_rows):
            yield a, b, slice(start, min(start + n_rows, hi))


def short_indices(X: Any) -> Any:
    """CSR with 32-bit indices where they suffice: libsvm and k-means take no others."""
    if sparse.issparse(X) and X.indices.dtype != np.int32 and X.nnz < 2**31:
        parts = X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)
        return sparse.csr_array(parts, shape=X.shape)
    return X


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
