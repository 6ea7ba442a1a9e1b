"""What the compiled loops over mini-batches work on: labels bag by bag, and memory for a slice of bags."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["LabelRows", "SliceMemory"]


class LabelRows(NamedTuple):
    """Relevant labels of each bag: those of bag b are ``labels[starts[b]:starts[b + 1]]``."""

    labels: np.ndarray
    starts: np.ndarray

    @classmethod
    def from_matrix(cls, Y: np.ndarray) -> LabelRows:
        """From the 0/1 matrix of labels."""
        rows, columns = np.divmod(np.flatnonzero((Y != 0).ravel()), Y.shape[1])
        starts = np.searchsorted(rows, np.arange(len(Y) + 1))
        return cls(columns.astype(np.int64), starts.astype(np.int64))


class SliceMemory(NamedTuple):
    """Memory of a thread for one slice of bags; the next slice overwrites it."""

    bounds: np.ndarray
    scaled: np.ndarray  # instances (n, n_inputs), dense ones only
    projected: np.ndarray  # (n, m)
    scores: np.ndarray  # of a tile of instances (n, K (L + 1))
    projected_gradient: np.ndarray  # (n, m)
    active: np.ndarray  # which instances have a gradient
    best: np.ndarray  # (L + 1,) scores of the labels in one bag
    source: np.ndarray  # where they come from: instance * K + sub-concept
    close: np.ndarray  # scores of irrelevant labels that may violate a margin, side by side
    changed: np.ndarray  # labels whose scores have a slope, at most 2 (L + 1) entries
    slopes: np.ndarray  # derivatives of the loss by these scores
    is_relevant: np.ndarray  # (L + 1,) truth values, all False between bags

    @classmethod
    def allocate(
        cls,
        shape: tuple[int, int, int],
        n_bags: int,
        n_rows: int,
        n_tile: int,
        n_inputs: int,
        dtype: Any = np.float32,
    ) -> SliceMemory:
        """Memory for some bags and instances; ``shape`` is that of the label vectors (K, L + 1, m).

        ``n_tile`` is the number of instances that are scored at a time, ``n_inputs`` that of the features of
        a scaled instance, 0 where instances stay sparse.
        """
        K, n_all, m = shape
        return cls(
            bounds=np.zeros(n_bags + 1, np.int64),
            scaled=np.empty((n_rows, n_inputs), dtype),
            projected=np.empty((n_rows, m), dtype),
            scores=np.empty((n_tile, K * n_all), dtype),
            projected_gradient=np.empty((n_rows, m), dtype),
            active=np.empty(n_rows, np.bool_),
            best=np.empty(n_all, dtype),
            source=np.empty(n_all, np.int32),
            close=np.empty(n_all, dtype),
            changed=np.empty(2 * n_all, np.int64),
            slopes=np.empty(2 * n_all, dtype),
            is_relevant=np.zeros(n_all, np.bool_),
        )
