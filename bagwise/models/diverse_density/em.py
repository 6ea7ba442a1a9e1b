"""EM for diverse density: choose one instance per bag, then move the concepts; many runs at once.

With several concepts a positive bag is explained by the one that comes nearest, with its nearest instance; a
negative bag must stay away from every concept, so each takes the instance of it that is nearest.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bagwise.compute.segment import segment_argmax
from bagwise.compute.threads import small_products
from bagwise.models.diverse_density.descent import minimise_many
from bagwise.models.diverse_density.objective import OnePerBag, absence, distances
from bagwise.models.diverse_density.starts import starting_sets
from bagwise.models.svm.base import CELLS

_STEPS = 200  # of L-BFGS in an M-step
# relative decrease at which they end: less costs thrice as much. Objectives are then up to a tenth lower on
# some sets and not on others; the quality of predictions was the same on eight labels
_EXACT = 1e-4


class Choice(NamedTuple):
    """The E-step of some runs: instances, their q, the concept of each positive bag, and the objective."""

    rows: np.ndarray  # (n_bags, n_runs, n_concepts)
    Q: np.ndarray  # the same
    best: np.ndarray  # (n_positive, n_runs)
    values: np.ndarray  # (n_runs,)


class Runs(NamedTuple):
    """Where the runs ended: concepts, scales, objectives and rounds, and whether each came to rest."""

    points: np.ndarray  # (n_runs, n_concepts, n_features)
    scales: np.ndarray
    values: np.ndarray
    n_iter: np.ndarray
    at_rest: np.ndarray


def learn_by_em(y: np.ndarray, X: np.ndarray, offsets: np.ndarray, settings: dict[str, Any]) -> Runs:
    """All runs for one label."""
    rng = np.random.RandomState(settings["seed"])
    scale = min(settings["init_scale"], settings["max_scale"])
    starts = starting_sets(X, offsets, y, settings["n_concepts"], settings["n_starts"], scale, rng)
    # positive bags first
    order = np.argsort(y <= 0, kind="stable")
    sizes = np.diff(offsets)
    rows = np.concatenate([np.arange(offsets[b], offsets[b + 1]) for b in order])
    problem = X[rows], np.concatenate([[0], np.cumsum(sizes[order])]), int((y > 0).sum())
    per_run = starts.shape[1] * max(len(X), 40 * X.shape[1])  # q, or what L-BFGS keeps
    at_a_time = max(1, CELLS // per_run)
    with small_products(float(len(X)) * X.shape[1] * 2 * min(len(starts), at_a_time) * starts.shape[1]):
        parts = [
            em_runs(*problem, starts[a : a + at_a_time], settings) for a in range(0, len(starts), at_a_time)
        ]
    return Runs(*(np.concatenate(column) for column in zip(*parts)))


def em_runs(
    X: np.ndarray, offsets: np.ndarray, n_positive: int, starts: np.ndarray, settings: dict[str, Any]
) -> Runs:
    """Rounds of choosing and moving from some starts; a round that does not lower the objective is undone."""
    n_runs, _, width = starts.shape
    limit = np.repeat([np.inf, settings["max_scale"]], width // 2)
    theta = np.clip(starts, -limit, limit)
    choice = choose(X, offsets, n_positive, theta)
    kept, values = theta.copy(), choice.values.copy()
    n_iter, at_rest = np.zeros(n_runs, np.int64), np.zeros(n_runs, bool)
    live = np.arange(n_runs)
    for _ in range(settings["max_iter"]):
        theta, best, moved = reseed(X, n_positive, theta, choice, settings["init_scale"])
        theta = move(X, n_positive, theta, choice.rows, best, limit)
        choice = choose(X, offsets, n_positive, theta)
        n_iter[live] += 1
        better = choice.values < values[live]
        fall = values[live] - choice.values
        enough = fall > settings["tol"] * np.maximum(np.abs(values[live]), 1.0)
        kept[live[better]], values[live[better]] = theta[better], choice.values[better]
        going = enough | moved  # a concept that was set anew gets a round to prove itself
        at_rest[live[~going]] = True
        live, theta = live[going], theta[going]
        choice = Choice(
            choice.rows[:, going], choice.Q[:, going], choice.best[:, going], choice.values[going]
        )
        if live.size == 0:
            break
    points, scales = np.split(kept, 2, axis=2)
    return Runs(points, np.abs(scales), values, n_iter, at_rest)


def choose(X: np.ndarray, offsets: np.ndarray, n_positive: int, theta: np.ndarray) -> Choice:
    """E-step: the nearest instance of every bag to every concept, and the objective of each run."""
    n_runs, n_concepts, _ = theta.shape
    points, scales = np.split(theta.reshape(n_runs * n_concepts, -1), 2, axis=1)
    Q = distances(X, points, scales)
    rows = segment_argmax(-Q, offsets)
    shape = (len(rows), n_runs, n_concepts)
    Q, rows = np.take_along_axis(Q, rows, axis=0).reshape(shape), rows.reshape(shape)
    inside, outside = Q[:n_positive], Q[n_positive:]
    values = inside.min(axis=2).sum(axis=0) + absence(outside)[2].sum(axis=(0, 2))
    return Choice(rows, Q, inside.argmin(axis=2), values)


def reseed(
    X: np.ndarray, n_positive: int, theta: np.ndarray, choice: Choice, scale: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Set a concept that no positive bag chose to the nearest instance of the bag that is explained worst.

    Returns
    -------
    theta, the concept of each positive bag, and which runs were changed
    """
    n_runs, n_concepts, width = theta.shape
    d = width // 2
    theta, best = theta.copy(), choice.best.copy()
    moved = np.zeros(n_runs, bool)
    if n_concepts == 1 or n_positive < n_concepts:
        return theta, best, moved
    for run in range(n_runs):
        members = np.bincount(best[:, run], minlength=n_concepts)
        left = choice.Q[:n_positive, run].min(axis=1)
        for t in np.flatnonzero(members == 0):
            left = np.where(members[best[:, run]] > 1, left, -1.0)  # nobody's last bag
            bag = int(left.argmax())
            row = choice.rows[bag, run, best[bag, run]]
            theta[run, t] = np.concatenate([X[row], np.full(d, scale)])
            choice.rows[bag, run, t] = row
            members[best[bag, run]] -= 1
            best[bag, run], members[t], moved[run] = t, 1, True
    return theta, best, moved


def move(
    X: np.ndarray, n_positive: int, theta: np.ndarray, rows: np.ndarray, best: np.ndarray, limit: np.ndarray
) -> np.ndarray:
    """M-step: concepts that cost least with the chosen instances, each by itself."""
    n_runs, n_concepts, width = theta.shape
    weights = (best.T[:, None, :] == np.arange(n_concepts)[:, None]).astype(np.float64)
    function = OnePerBag(X, rows.reshape(len(rows), -1).T, weights.reshape(n_runs * n_concepts, n_positive))
    found = minimise_many(function, theta.reshape(-1, width), limit, max_iter=_STEPS, tol=_EXACT)
    return found.x.reshape(theta.shape)


def best_run(runs: Runs) -> tuple[np.ndarray, np.ndarray]:
    """Points and scales of the run with the lowest objective."""
    best = runs.values.argmin()
    return runs.points[best], runs.scales[best]


def all_runs(runs: Runs) -> tuple[np.ndarray, np.ndarray]:
    """Points and scales of all runs with one concept."""
    return runs.points[:, 0], runs.scales[:, 0]
