"""Graphs of bags: which instances are joined, and what describes each edge.

Instances nearer than a limit, by default the mean distance of the bag's pairs, are joined. An edge (u, v) is
described by four numbers, ``[degree of u, share of the edge in u, degree of v, share in v]``: degrees divided
by the sum of all degrees of the bag, shares being the edge's weight (one over its length) over the weights of
all edges of the node. Every edge is listed in both directions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial.distance import pdist, squareform

from bagwise.utils.arrays import check_memory

__all__ = ["bag_edges", "edge_features"]

_SLACK = 1e-9  # relative; a distance this close to the limit counts as equal to it
_SHORTEST = 1e-6  # least length of an edge, as a share of the mean distance: equal instances lie at 0


def edge_features(X: np.ndarray, threshold: float | None = None, most: int | None = None) -> np.ndarray:
    """Features of the edges of one bag, each edge in both directions.

    Parameters
    ----------
    X : ndarray of shape (n_instances, n_features)
        The instances of the bag.
    threshold : float, optional
        Instances nearer than this are joined; by default the mean distance of the bag's pairs.
    most : int, optional
        Most edges, the shortest ones, counted once.

    Returns
    -------
    ndarray of shape (2 * n_edges, 4)

    Examples
    --------
    Of 0, 1 and 10 only the first two are nearer than the mean distance of 20 / 3:

    >>> edge_features(np.array([[0.0], [1.0], [10.0]]))
    array([[0.5, 1. , 0.5, 1. ],
           [0.5, 1. , 0.5, 1. ]])
    """
    if len(X) < 2:
        return np.empty((0, 4))
    what = f"the distances of all pairs in a bag of {len(X):,} instances"
    check_memory(16.0 * len(X) ** 2, what, 'cut the bag, or take SetKernelSVM("graph")')
    lengths = pdist(X)
    mean = lengths.mean()
    limit = mean if threshold is None else threshold
    joined = lengths < limit * (1.0 - _SLACK)
    if most is not None and np.count_nonzero(joined) > most:
        longest = np.partition(lengths[joined], most - 1)[most - 1]
        joined &= lengths <= longest * (1.0 + _SLACK)  # equal ones stay together, whatever their order
    if not joined.any():
        return np.empty((0, 4))
    strength = squareform(np.where(joined, 1.0 / np.maximum(lengths, max(_SHORTEST * mean, 1e-300)), 0.0))
    edges = strength > 0
    degree = edges.sum(axis=1) / edges.sum()
    share = strength / np.where(edges.any(axis=1), strength.sum(axis=1), 1.0)[:, None]
    u, v = np.nonzero(edges)
    return np.column_stack([degree[u], share[u, v], degree[v], share[v, u]])


def bag_edges(
    X: Any, offsets: np.ndarray, threshold: float | None, most: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Edges of all bags, bag after bag, and where those of each bag begin.

    Examples
    --------
    >>> E, starts = bag_edges(np.array([[0.0], [1.0], [10.0], [7.0]]), np.array([0, 3, 4]), None, None)
    >>> len(E), starts.tolist()
    (2, [0, 2, 2])
    """
    found = []
    for a, b in zip(offsets[:-1], offsets[1:]):
        part = X[a:b].toarray() if sparse.issparse(X) else X[a:b]
        found.append(edge_features(part, threshold, most))
    starts = np.concatenate([[0], np.cumsum([len(edges) for edges in found])])
    return np.concatenate([np.empty((0, 4)), *found]), starts.astype(np.int64)
