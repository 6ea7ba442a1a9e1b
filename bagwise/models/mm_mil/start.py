"""Where MM-MIL starts: clusters of witnesses, so that no two experts are alike."""

from __future__ import annotations

from typing import Any

import numpy as np

from bagwise.compute.optim import minimise
from bagwise.models.mm_mil.objective import sp2_tight

_NOISE = 0.01  # of the experts around their common start, relative to its length
_START_ITERATIONS = 30  # of the regressions that only make a start


def starting_points(problem: Any, n_init: int, rng: np.random.RandomState) -> list[np.ndarray]:
    """Parameters to start from, of three kinds in turn.

    First gates that tell k-means clusters of the positive bags' witnesses apart, with experts that are nearly
    alike; then gates and experts that point to the centres of such clusters, which stand up to strong
    penalties; then the same with clusters of all instances of positive bags, in case the witnesses are wrong.
    One cluster needs no choice: there is one start.
    """
    expert = problem.expert()
    n_clusters = problem.n_clusters
    if n_clusters == 1:
        return [np.column_stack([expert, np.zeros(len(expert))])]
    witnesses, of_positive = problem.rows(expert, rng)
    starts = []
    for k in range(n_init):
        rows = of_positive if k % 3 == 2 else witnesses
        which = cluster(rows, n_clusters, rng)
        if k % 3 == 0:
            starts.append(_by_gates(rows, which, n_clusters, expert, problem.lam, rng))
        else:
            starts.append(_by_centres(problem, rows, which, rng))
    return starts


def _by_gates(rows, which, n_clusters, expert, lam, rng):
    """Softmax regression of gates on clusters; experts a little off the common one."""
    Z = np.column_stack([rows, np.ones(len(rows))])
    q = np.eye(n_clusters)[which]
    start = np.zeros((Z.shape[1], n_clusters))
    W = minimise(lambda x: sp2_tight(x, Z, q, lam), start, max_iter=_START_ITERATIONS).x
    # equal experts and equal gates would stay equal for ever
    T = expert[:, None] + _noise(expert, (len(expert), n_clusters), rng)
    return np.hstack([T, W + _noise(W, W.shape, rng)])


def _by_centres(problem, rows, which, rng):
    """Gates and experts ``c' x - |c|^2 / 2`` for cluster centres c, scaled to activations of about 2."""
    n_clusters = problem.n_clusters
    P = np.zeros((rows.shape[1] + 1, n_clusters))
    for m in range(n_clusters):
        members = rows[which == m] if (which == m).any() else rows[[rng.randint(len(rows))]]
        P[:-1, m] = members.mean(axis=0)
    P[-1] = -0.5 * np.square(P[:-1]).sum(axis=0)
    P *= 2.0 / max(problem.activation(P), np.finfo(float).tiny)
    return np.hstack([P + _noise(P, P.shape, rng), P])


def _noise(like, shape, rng):
    scale = _NOISE * np.linalg.norm(like) / np.sqrt(like.size)
    return max(scale, 1e-4) * rng.standard_normal(shape)


def cluster(X: np.ndarray, n_clusters: int, rng: np.random.RandomState, n_rounds: int = 30) -> np.ndarray:
    """k-means with distance-weighted seeding; a cluster that runs empty moves to the row farthest off.

    Examples
    --------
    >>> X = np.array([[0.0], [0.1], [9.0], [9.1]])
    >>> which = cluster(X, 2, np.random.RandomState(0))
    >>> bool(which[0] == which[1] != which[2] == which[3])
    True
    """
    squares = np.einsum("ij,ij->i", X, X)
    centres = X[[rng.randint(len(X))]]
    near = _distances(X, squares, centres)[:, 0]
    for _ in range(1, n_clusters):
        total = near.sum()
        row = rng.choice(len(X), p=near / total) if total > 0 else rng.randint(len(X))
        centres = np.vstack([centres, X[row]])
        near = np.minimum(near, _distances(X, squares, centres[-1:])[:, 0])
    which = np.full(len(X), -1)
    for _ in range(n_rounds):
        D = _distances(X, squares, centres)
        closest = D.argmin(axis=1)
        if (closest == which).all():
            break
        which = closest
        left = D[np.arange(len(X)), which]
        for m in range(n_clusters):
            if (which == m).any():
                centres[m] = X[which == m].mean(axis=0)
            else:
                centres[m] = X[left.argmax()]
                left[left.argmax()] = 0.0
    return which


def _distances(X: np.ndarray, squares: np.ndarray, centres: np.ndarray) -> np.ndarray:
    D = squares[:, None] - 2.0 * X @ centres.T + np.einsum("ij,ij->i", centres, centres)
    return np.maximum(D, 0.0)
