"""k-medoids: bags that stand for the bags around them, from distances alone."""

from __future__ import annotations

import math

import numpy as np

_ROUNDING = 1e-9  # a share such as .29 of 100 is 29, although the product of floats is a little less


def n_medoids(ratio: float, n_bags: int, *, up: bool = False) -> int:
    """Number of medoids for a share of the bags, rounded down or up, at least one.

    Examples
    --------
    >>> n_medoids(0.29, 100), n_medoids(0.25, 10), n_medoids(0.25, 10, up=True), n_medoids(0.1, 3)
    (29, 2, 3, 1)
    """
    if up:
        return max(1, math.ceil(ratio * n_bags - _ROUNDING))
    return max(1, math.floor(ratio * n_bags + _ROUNDING))


def k_medoids(
    D: np.ndarray, k: int, rng: np.random.RandomState, max_iter: int = 100
) -> tuple[np.ndarray, int]:
    """Choose ``k`` bags as medoids by alternating assignment and choice, from a random start.

    k bags drawn at random begin a cluster each and the others join one at random. The medoid of a cluster is
    its member with the least sum of distances to the members. Then every bag goes to its nearest medoid (a
    medoid stays in its own cluster, even if another one is at distance 0) and medoids are chosen anew, until
    their set no longer changes. The first index wins a tie.

    Parameters
    ----------
    D : ndarray of shape (n_bags, n_bags)
        Distances.
    k : int
        Number of medoids, at most ``n_bags``.
    rng : RandomState
        Source of the start.
    max_iter : int, default=100
        Limit on rounds.

    Returns
    -------
    medoids : ndarray of shape (k,)
        Bag numbers, ascending.
    n_iter : int
        Rounds.

    Examples
    --------
    >>> x = np.array([0.0, 1.0, 2.0, 10.0, 11.0, 12.0])
    >>> k_medoids(np.abs(x[:, None] - x), 2, np.random.RandomState(0))[0]
    array([1, 4])
    """
    cluster = rng.randint(k, size=len(D))
    cluster[rng.choice(len(D), k, replace=False)] = np.arange(k)
    medoids = _centres(D, cluster, k)
    n_iter = 0
    while n_iter < max_iter:
        n_iter += 1
        cluster = D[:, medoids].argmin(axis=1)
        cluster[medoids] = np.arange(k)
        before, medoids = medoids, _centres(D, cluster, k)
        if np.array_equal(np.sort(before), np.sort(medoids)):
            break
    return np.sort(medoids), n_iter


def _centres(D: np.ndarray, cluster: np.ndarray, k: int) -> np.ndarray:
    """Member of each cluster with the least sum of distances to the members."""
    order = np.argsort(cluster, kind="stable")  # members in ascending order, which settles ties
    ends = np.searchsorted(cluster[order], np.arange(1, k))
    return np.array([m[D[np.ix_(m, m)].sum(axis=1).argmin()] for m in np.split(order, ends)])
