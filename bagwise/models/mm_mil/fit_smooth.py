"""The smooth way: Eq. (7) with a soft maximum over instances, L-BFGS on it at growing sharpness, and starts.

Starts are clusters of witnesses, so that no two experts are alike; the other solvers begin at them, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from bagwise.bags import runs
from bagwise.compute.aligned import frozen
from bagwise.compute.optim import minimise
from bagwise.models.mm_mil.fit_em import Solution, sp2_tight
from bagwise.models.mm_mil.kernels import bag_losses

SHARPNESS = (1.0, 3.0, 10.0, 30.0)
_MEMORY = 20  # corrections kept by L-BFGS
_TRIAL, _FINISH = 20, 2  # iterations of a start on trial; how many starts are brought to an end
_NOISE = 0.01  # of the experts around their common start, relative to its length
_START_ITERATIONS = 30  # of the regressions that only make a start
_CHUNK = 1 << 17  # numbers of Phi worked on at a time: they stay in the cache between the two products


class Descended:
    """Eq. (7) with a soft maximum over instances, as `minimise` wants it: value and gradient.

    Every evaluation also gives Eq. (7) itself, at no price; the best point met is kept.

    ``losses`` takes parameters and sharpness, and returns the smooth and the hard loss of all bags and the
    gradient of the smooth one, without the penalties ``lam`` of gates and ``beta`` of experts.
    """

    def __init__(self, losses: Any, n_features: int, n_clusters: int, lam: float, beta: float) -> None:
        self.losses = losses
        self.shape = (n_features + 1, 2 * n_clusters)
        self.sharpness = 1.0  # v of the soft maximum (1 / v) log sum exp(v r)
        self.hard = np.inf  # Eq. (7) at the latest evaluation
        self.best_value = np.inf  # lowest Eq. (7) met so far, at
        self.best: np.ndarray | None = None
        penalties = np.full(self.shape, beta)
        penalties[:, n_clusters:] = lam
        penalties[-1] = 0.0
        self._penalties = penalties

    def __call__(self, P: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient at parameters."""
        smooth, hard, gradient = self.losses(P, self.sharpness)
        slope = 2.0 * self._penalties * P
        regular = 0.5 * float(np.vdot(slope, P))
        self.hard = hard + regular
        if self.hard < self.best_value:
            self.best_value, self.best = self.hard, P.copy()
        return smooth + regular, gradient + slope


class BagLosses:
    """Losses of bags in memory and their gradient, from fixed features (dense or CSR); see `Descended`."""

    def __init__(
        self, Phi: Any, offsets: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None
    ) -> None:
        self.Phi = Phi
        self.offsets = frozen(np.asarray(offsets, dtype=np.int64))
        self.labels = frozen(np.asarray(labels, dtype=np.float64))
        self.weights = frozen(np.ones(len(labels)) if weights is None else np.asarray(weights, np.float64))
        n_rows = 1 << 62 if hasattr(Phi, "indptr") else max(1, _CHUNK // max(Phi.shape[1], 1))
        self._chunks = list(runs(self.offsets, n_rows))

    def __call__(self, P: np.ndarray, sharpness: float) -> tuple[float, float, np.ndarray]:
        """Smooth and hard loss, and the gradient of the smooth one."""
        gradient = np.zeros(P.shape)
        smooth, hard = 0.0, 0.0
        for first, last in self._chunks:
            rows = slice(self.offsets[first], self.offsets[last])
            part = self.Phi[rows] if len(self._chunks) > 1 else self.Phi
            F = np.asarray(part @ P[:-1])
            G = np.empty_like(F)
            bags = slice(first, last)
            places = self.offsets[first : last + 1]
            of_bags = self.labels[bags], self.weights[bags]
            values = bag_losses(F, P[-1], places, *of_bags, sharpness, G, gradient[-1])
            smooth += values[0]
            hard += values[1]
            gradient[:-1] += part.T @ G
        return smooth, hard, gradient


def solve_smooth(problem: Any, starts: list[np.ndarray], max_iter: int, tol: float) -> Solution:
    """Soft maximum of growing sharpness, L-BFGS over all parameters at once.

    All starts go through some iterations with the softest maxima; those with the lowest Eq. (7) go on.
    """
    runs = [_Descent(problem, P) for P in starts]
    on_trial = len(runs) > _FINISH
    trial = SHARPNESS[:2] if on_trial else ()
    problem.steps.each([partial(run.stages, trial, min(max_iter, _TRIAL), tol) for run in runs])
    runs = sorted(runs, key=lambda run: run.objective.best_value)[:_FINISH]
    # the first stage of those on trial is behind them
    problem.steps.each([partial(run.stages, SHARPNESS[on_trial:], max_iter, tol) for run in runs])
    best = min(runs, key=lambda run: run.objective.best_value)
    value, P = best.objective.best_value, best.objective.best
    assert P is not None  # every run has looked at its start
    return Solution(P, value, [*best.history, value], best.at_rest)


class _Descent:
    """L-BFGS in stages from one start."""

    def __init__(self, problem: Any, P: np.ndarray) -> None:
        self.objective = problem.smooth()
        self.P = P
        self.history: list[float] = []
        self.at_rest = False

    def stages(self, sharpness: Sequence[float], max_iter: int, tol: float) -> None:
        """Look at the start, if that was not done, and descend at one sharpness after the other."""
        if not self.history:
            self.objective(self.P)
            self.history = [self.objective.hard]
        for v in sharpness:
            self.objective.sharpness = v
            found = minimise(
                self.objective,
                self.P,
                max_iter=max_iter,
                tol=1e-6,
                least_fall=tol,
                memory=_MEMORY,
                tries=40,
                watch=lambda: self.history.append(self.objective.hard),
            )
            self.P, self.at_rest = found.x, found.at_rest


# ---------------------------------------------------------------------- where to start


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
    W = minimise(lambda W: sp2_tight(W, Z, q, lam), start, max_iter=_START_ITERATIONS).x
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
