"""Which training bags are near a bag, and to which it is near.

Bags at equal distance are taken in the order of training. Distances are compared in single precision, and a
new bag must be nearer than the limit by a hundred-thousandth to be cited, so that the last bits of a
distance, which depend on the order of instances and on their number type, decide nothing.
"""

from __future__ import annotations

import numpy as np

__all__ = ["citing_distances", "nearest", "neighbours", "to_others"]

_SLACK = 1e-5  # relative; a distance this close to the limit counts as equal to it


def nearest(D: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Mark the ``k`` smallest numbers of each row, the first among equals, and give the largest of them.

    Examples
    --------
    >>> mask, limit = nearest(np.array([[3.0, 1.0, 2.0, 1.0, 2.0]]), 3)
    >>> mask.astype(int), limit
    (array([[0, 1, 1, 1, 0]]), array([2.]))
    """
    if k == 0:
        return np.zeros(D.shape, dtype=bool), np.full(len(D), np.inf, dtype=D.dtype)
    limit = np.partition(D, k - 1, axis=1)[:, k - 1]
    mask, equal = np.less(D, limit[:, None]), np.equal(D, limit[:, None])
    room = k - mask.sum(axis=1)
    many = np.flatnonzero(equal.sum(axis=1) > room)
    equal[many] &= equal[many].cumsum(axis=1) <= room[many, None]
    return mask | equal, limit


def to_others(D: np.ndarray) -> np.ndarray:
    """Distances between training bags in single precision, infinite on the diagonal: none is near itself."""
    D = D.astype(np.float32)
    np.fill_diagonal(D, np.inf)
    return D


def citing_distances(D: np.ndarray, n_citers: int) -> tuple[np.ndarray, np.ndarray]:
    """Which training bags each training bag has among its ``n_citers`` nearest, and the distance to the last.

    ``D`` comes from `to_others`. The distance is infinite where ``n_citers`` exceeds the number of other
    training bags: every bag is cited.

    Examples
    --------
    >>> D = to_others(np.abs(np.subtract.outer([0.0, 1.0, 5.0], [0.0, 1.0, 5.0])))
    >>> citing_distances(D, 1)[1]
    array([1., 1., 4.], dtype=float32)
    """
    near, limit = nearest(D, min(n_citers, len(D) - 1))
    return near, limit if n_citers < len(D) else np.full(len(D), np.inf, np.float32)


def neighbours(D: np.ndarray, n_references: int, citing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """References and citers of new bags, each a mask (n_new_bags, n_training_bags).

    Examples
    --------
    >>> references, citers = neighbours(np.array([[0.4, 0.6, 4.6]]), 1, np.array([1.0, 1.0, 4.0], np.float32))
    >>> references.astype(int), citers.astype(int)
    (array([[1, 0, 0]]), array([[1, 1, 0]]))
    """
    D = D.astype(np.float32)
    references, _ = nearest(D, min(n_references, D.shape[1]))
    return references, np.less(D, citing * np.float32(1.0 - _SLACK))
