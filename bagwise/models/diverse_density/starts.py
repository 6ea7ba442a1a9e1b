"""Where concepts start: at instances of positive bags."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from bagwise.compute.segment import segment_max
from bagwise.compute.threads import openmp_threads
from bagwise.models.diverse_density.objective import FLOOR, absence, distances

_CANDIDATES = 300  # instances that concepts are chosen from
_EXCHANGES = 4  # times that each choice is made, the first time included
_FACTORS = (1.0, 2.0, 4.0)  # on the first scale, in turn


def starting_rows(
    y: np.ndarray, offsets: np.ndarray, n_starts: int | str, rng: np.random.RandomState
) -> np.ndarray:
    """Numbers of the instances of positive bags: all, or those of random bags, bag after bag.

    A positive bag taken whole has at least one instance that is positive, which a random instance may not be.
    Of the last bag as many instances are taken as there is room for.

    Examples
    --------
    >>> rows = starting_rows(np.array([0, 1, 1]), np.array([0, 2, 4, 6]), 2, np.random.RandomState(0))
    >>> rows.tolist() in ([2, 3], [4, 5])
    True
    >>> starting_rows(np.array([0, 1, 1]), np.array([0, 2, 4, 6]), "all", np.random.RandomState(0)).tolist()
    [2, 3, 4, 5]
    """
    positive = np.flatnonzero(y > 0)
    sizes = np.diff(offsets)[positive]
    if n_starts == "all" or sizes.sum() <= int(n_starts):
        return np.flatnonzero(np.repeat(y > 0, np.diff(offsets)))
    rows: list[int] = []
    for bag in rng.permutation(positive):
        rows += rng.permutation(np.arange(offsets[bag], offsets[bag + 1])).tolist()
        if len(rows) >= int(n_starts):
            break
    return np.array(rows[: int(n_starts)])


def starting_sets(
    X: np.ndarray,
    offsets: np.ndarray,
    y: np.ndarray,
    n_concepts: int,
    n_starts: int | str,
    scale: float,
    rng: np.random.RandomState,
) -> np.ndarray:
    """Concepts to start from, of shape (n_starts, n_concepts, 2 n_features): points and scales.

    With one concept the points are those of `starting_rows`. With several, the first start are k-means
    centres of the instances of positive bags. The second and every other one after it are those among such
    instances that together cost little, at one of several scales and from a random half of the candidates:
    random instances are rarely positive all at once. The rest are random instances of as many bags, for what
    that choice does not see.
    """
    if n_concepts == 1:
        points = X[starting_rows(y, offsets, n_starts, rng)][:, None, :]
        return np.concatenate([points, np.full_like(points, scale)], axis=2)
    positive_rows = starting_rows(y, offsets, "all", rng)
    with openmp_threads(None), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Number of distinct clusters", ConvergenceWarning)  # set anew later
        k_means = KMeans(min(n_concepts, len(positive_rows)), n_init=1, random_state=rng).fit(
            X[positive_rows]
        )
    sets = [(np.resize(k_means.cluster_centers_, (n_concepts, X.shape[1])), scale)]
    rows = starting_rows(y, offsets, _CANDIDATES, rng)
    Q = distances(X, X[rows], np.full((len(rows), X.shape[1]), scale))
    Q = -segment_max(-Q, offsets)
    positive = np.flatnonzero(y > 0)
    for k in range(1, int(n_starts)):
        if k % 2 == 0:
            bags = np.resize(rng.permutation(positive), n_concepts)
            sets.append((X[offsets[bags] + rng.randint(0, np.diff(offsets)[bags])], scale))
            continue
        factor = _FACTORS[(k // 2) % len(_FACTORS)]
        some = rng.permutation(len(rows))[: max(n_concepts, (len(rows) + 1) // 2)]
        chosen = cheapest(np.maximum(factor**2 * Q[:, some], FLOOR), y, n_concepts)
        sets.append((X[rows[some[chosen]]], factor * scale))
    return np.stack([np.hstack([points, np.full_like(points, size)]) for points, size in sets])


def cheapest(Q: np.ndarray, y: np.ndarray, n_concepts: int) -> np.ndarray:
    """Candidates that explain positive bags at little cost: taken one by one, then exchanged while it falls.

    ``Q`` (n_bags, n_candidates) is q of the nearest instance of every bag.

    Examples
    --------
    >>> Q = np.array([[0.1, 5.0, 0.1], [5.0, 0.1, 5.0], [9.0, 9.0, 0.01]])  # the last bag is negative
    >>> cheapest(Q, np.array([1, 1, 0]), 2).tolist()
    [0, 1]
    """
    inside, price = Q[y > 0], absence(Q[y <= 0])[2].sum(axis=0)
    chosen: list[int] = []
    for turn in range(_EXCHANGES * n_concepts):
        others = chosen if turn < n_concepts else chosen[1:]  # the one that was taken first is reconsidered
        left = inside[:, others].min(axis=1, initial=np.inf)
        best = int((np.minimum(left[:, None], inside).sum(axis=0) + price).argmin())
        chosen = [*others, best]
    return np.array(chosen)
