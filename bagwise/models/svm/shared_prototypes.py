"""Weights over prototypes that related labels share: the alternating minimisation of KISAR."""

from __future__ import annotations

import warnings

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import euclidean_distances

from bagwise.compute.threads import openmp_threads

_SAMPLE = 3000  # instances whose distances give the bandwidth
_FLOOR = 1e-10  # share of a prototype below which labels do without it
_STEPS = 100  # of Newton's method; it takes about ten


def prototypes(X, k: int, rng: np.random.RandomState) -> np.ndarray:
    """Centres of k-means, without those that no instance needs."""
    k_means = KMeans(min(k, X.shape[0]), n_init=1, max_iter=100, random_state=rng)
    with warnings.catch_warnings(), openmp_threads(None):
        # fewer distinct instances than centres: the centres that nobody needs go
        warnings.filterwarnings("ignore", "Number of distinct clusters", ConvergenceWarning)
        k_means.fit(X)
    return k_means.cluster_centers_[np.unique(k_means.labels_)]


def mean_distance(X, rng: np.random.RandomState) -> float:
    """Mean distance of two instances, of some thousand where there are more; 1 where all are equal."""
    if X.shape[0] > _SAMPLE:
        X = X[np.sort(rng.choice(X.shape[0], _SAMPLE, replace=False))]
    n = X.shape[0]
    D = euclidean_distances(X)
    np.fill_diagonal(D, 0.0)
    mean = float(D.sum()) / max(n * (n - 1), 1)
    return mean if mean > 1e-12 else 1.0


def relations(Y: np.ndarray, kind: str) -> np.ndarray:
    """Which labels are related; every label is to itself.

    Examples
    --------
    >>> Y = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1], [1, 0, 1]])
    >>> relations(Y, "off_diagonal_mean").astype(int).tolist()  # two, one and no bag in common: mean 1
    [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    """
    n_labels = Y.shape[1]
    if kind in ("identity", "all"):
        return np.eye(n_labels) if kind == "identity" else np.ones((n_labels, n_labels))
    together = (Y > 0).T.astype(np.float64) @ (Y > 0)
    own = together.diagonal()
    if kind == "conditional":
        related = together > 0.1 * np.minimum(own[:, None], own)
    elif kind == "mean" or n_labels == 1:
        related = together > together.mean()
    else:
        related = together > (together.sum() - own.sum()) / (n_labels * (n_labels - 1))
    return (related | np.eye(n_labels, dtype=bool)).astype(np.float64)


def share_prototypes(
    S: np.ndarray, T: np.ndarray, R: np.ndarray, *, C: float, max_iter: int, tol: float
) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """Weights (n_labels, n_prototypes), intercepts and the objective after each round.

    ``S`` are similarities (n_bags, n_prototypes), ``T`` labels of 1 and -1, ``R`` relations.
    """
    n_labels, k = T.shape[1], S.shape[1]
    W, b = np.zeros((n_labels, k)), np.zeros(n_labels)
    costs = np.repeat(R.sum(axis=1)[:, None] * k, k, axis=1)  # all shares equal
    history: list[float] = []
    while len(history) < max_iter:
        for t in range(n_labels):
            used = np.flatnonzero(np.isfinite(costs[t]))
            # a penalty of sum cost w^2 is |v|^2 / 2 in features divided by the root of twice the cost
            root = np.sqrt(4.0 * costs[t, used])
            v, b[t] = squared_hinge(S[:, used] / root, T[:, t], C, W[t, used] * root, b[t])
            W[t] = 0.0
            W[t, used] = v / root
        size, costs = _penalty(W, R)
        slack = np.maximum(0.0, 1.0 - T * (S @ W.T + b))
        history.append(size + C * float(np.square(slack).sum()))
        if len(history) > 1 and history[-2] - history[-1] <= tol * history[-2]:
            break
    return W, b, history


def _penalty(W: np.ndarray, R: np.ndarray) -> tuple[float, np.ndarray]:
    """Value of the penalty, and the cost of each squared weight at the best shares; inf where it is to go."""
    squares, total = np.square(W), 0.0
    costs = np.zeros_like(W)
    for t in range(len(W)):
        for u in np.flatnonzero(R[t]):
            lengths = np.sqrt(squares[t] + squares[u])
            whole = float(lengths.sum())
            total += R[t, u] * whole**2
            share = lengths / whole if whole > 0 else np.full(len(lengths), 1.0 / len(lengths))
            costs[t] += np.divide(R[t, u], share, out=np.full(len(share), np.inf), where=share > _FLOOR)
    return total, costs


def squared_hinge(
    S: np.ndarray, y: np.ndarray, C: float, v: np.ndarray, b: float
) -> tuple[np.ndarray, float]:
    """Minimise ``|v|^2 / 2 + C sum max(0, 1 - y (S v + b))^2`` from a start, by Newton's method.

    The system of a step has as many unknowns as there are bags at work, or features if these are fewer.
    """

    def value(f: np.ndarray, v: np.ndarray) -> float:
        return 0.5 * float(v @ v) + C * float(np.square(np.maximum(0.0, 1.0 - y * f)).sum())

    f = S @ v + b
    now = value(f, v)
    for _ in range(_STEPS):
        slack = np.maximum(0.0, 1.0 - y * f)
        at_work = slack > 0
        gradient, slope = v - 2.0 * C * (S.T @ (y * slack)), -2.0 * C * float(y @ slack)
        step, move = _newton_step(S[at_work], gradient, slope, 2.0 * C)
        descent = float(gradient @ step) + slope * move
        if descent >= -1e-10 * max(now, 1e-300):
            break
        change, length = S @ step + move, 1.0
        while length > 1e-8:
            new = value(f + length * change, v + length * step)
            if new <= now + 1e-4 * length * descent:
                break
            length *= 0.5
        else:
            break  # rounding is all that is left
        v, b, now = v + length * step, b + length * move, new
        f = S @ v + b
    return v, b


def _newton_step(A: np.ndarray, gradient: np.ndarray, slope: float, c: float) -> tuple[np.ndarray, float]:
    """Solve ``(I + c A'A) p + c A'1 q = -gradient`` and ``c 1'A p + (c n + tiny) q = -slope``."""
    n, k = A.shape
    if n == 0:
        return -gradient, 0.0
    right = np.column_stack([-gradient, A.sum(axis=0)])
    if k <= n:
        solved = cho_solve(cho_factor(np.eye(k) + c * (A.T @ A)), right)
    else:  # the inverse is I - A' (I / c + A A')^-1 A
        solved = right - A.T @ cho_solve(cho_factor(np.eye(n) / c + A @ A.T), A @ right)
    column = A.sum(axis=0)
    q = (-slope - c * float(column @ solved[:, 0])) / max(
        c * n - c * c * float(column @ solved[:, 1]), 1e-12 * c * n
    )
    return solved[:, 0] - c * q * solved[:, 1], q
