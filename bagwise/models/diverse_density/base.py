"""What methods with concepts share: learning label by label, scores in log-odds, the threshold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from bagwise.base.parameters import JOBS, Choice, Number, Rules, Seed, Whole
from bagwise.compute.calibration import best_offset
from bagwise.compute.optim import minimise_many
from bagwise.compute.segment import segment_argmax, segment_max
from bagwise.compute.threads import small_products
from bagwise.errors import warn
from bagwise.models.diverse_density.kernels import FLOOR, OnePerBag, absence, distances
from bagwise.models.svm.base import CELLS, SCALING, InstanceClassifier, k_means
from bagwise.utils.arrays import check_memory

# what the parameters that all have may be
CONCEPTS: Rules = {
    "n_starts": (Choice("all"), Whole(1)),
    "init_scale": (Choice("auto"), Number(above=0)),
    "max_scale": Number(above=0),
    "max_iter": Whole(1),
    "tol": Number(0),
    "scaling": SCALING,
    "n_jobs": JOBS,
    "random_state": Seed(),
}


class ConceptClassifier(InstanceClassifier):
    """A label is one concept or several; a subclass learns them and pools distances to them.

    It writes ``_concepts(X, offsets, Y)``, which sets what is learned, ``_bag_log_odds(Q, offsets)`` and
    ``_instance_log_odds(Q)`` of one label. Labels are predicted above the log-odds that are wrong least often
    in training.
    """

    concepts_: list[np.ndarray]
    scales_: list[np.ndarray]
    init_scale: Any
    random_state: Any
    max_iter: int
    _concepts: Callable[..., None]
    _bag_log_odds: Callable[..., np.ndarray]
    _instance_log_odds: Callable[..., np.ndarray]

    @classmethod
    def _test_params(cls):
        return {"n_starts": 10, "random_state": 0}

    def _fit(self, bags, Y):
        super()._fit(bags, Y)
        self.offset_ = np.zeros(Y.shape[1])
        S = self._scores(bags)
        for label in np.flatnonzero(np.isnan(self.constant_scores_)):
            self.offset_[label] = best_offset(S[:, label : label + 1], Y[:, label : label + 1])

    def _learn(self, X, offsets, Y):
        self._concepts(dense(X), offsets, Y)
        self._width = max(1, sum(map(len, self.concepts_)))

    def _settings(self, X, *names):
        """Parameters by name, with what depends on the data; every label starts from the same seed."""
        settings = {name: getattr(self, name) for name in names}
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        # "auto" makes standardised instances 2 apart on average
        scale = X.shape[1] ** -0.5 if self.init_scale == "auto" else float(self.init_scale)
        return settings | {"init_scale": scale, "seed": seed}

    def _keep(self, found: Sequence[Any], concepts: Callable[[Any], tuple[np.ndarray, np.ndarray]]) -> None:
        """Set what was learned of every label, None for constant ones; ``concepts`` of one search."""
        none = np.empty((0, self.n_features_in_))
        kept = [(none, none) if f is None else concepts(f) for f in found]
        self.concepts_, self.scales_ = [points for points, _ in kept], [scales for _, scales in kept]
        self.objective_ = [np.empty(0) if f is None else np.sort(f.values) for f in found]
        self.n_iter_ = max((int(f.n_iter.max()) for f in found if f is not None), default=0)
        restless = sum(f is not None and not f.at_rest[f.values.argmin()] for f in found)
        if restless:
            warn(
                f"{restless} of {len(found)} labels stopped at max_iter={self.max_iter} before they came to "
                "rest; raise it or tol",
                ConvergenceWarning,
            )

    def _distances(self, X):
        """Distances of instances to the concepts of each label; a constant label has none."""
        Q = distances(dense(X), np.concatenate(self.concepts_), np.concatenate(self.scales_))
        return np.split(Q, np.cumsum([len(points) for points in self.concepts_])[:-1], axis=1)

    def _by_label(self, X, pool, n):
        """Log-odds of n bags or instances, pooled from distances; nothing for constant labels."""
        columns = [pool(Q) if Q.shape[1] else np.zeros(n) for Q in self._distances(X)]
        return np.column_stack(columns) - self.offset_

    def _score(self, X, offsets):
        return self._by_label(X, lambda Q: self._bag_log_odds(Q, offsets), len(offsets) - 1)

    def _instance_score(self, X, offsets):
        return self._by_label(X, self._instance_log_odds, X.shape[0])


def dense(X: Any) -> np.ndarray:
    """Instances as an array: concepts have a scale for every feature, zero or not."""
    if not sparse.issparse(X):
        return X
    n, d = X.shape
    what = f"{n:,} instances with {d:,} features made dense"
    check_memory(3 * 8.0 * n * d, what, "use fewer features, or another method such as MISVM")
    return X.toarray()


# ----------------------------------------------------------------------
# Where concepts start: at instances of positive bags


_CANDIDATES = 300  # instances that concepts are chosen from
_EXCHANGES = 4  # times that each choice is made, the first time included
_FACTORS = (1.0, 2.0, 4.0)  # on the first scale, in turn


def starting_rows(
    y: np.ndarray, offsets: np.ndarray, n_starts: int | str, rng: np.random.RandomState
) -> np.ndarray:
    """Numbers of the instances of positive bags: all, or those of random bags, bag after bag.

    A positive bag taken whole has at least one instance that is positive, which a random instance may not be.
    Of the last bag as many instances are taken as there is room for.
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
    centres = k_means(X[positive_rows], n_concepts, rng)[0]
    sets = [(np.resize(centres, (n_concepts, X.shape[1])), scale)]
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
    """
    inside, price = Q[y > 0], absence(Q[y <= 0])[2].sum(axis=0)
    chosen: list[int] = []
    for turn in range(_EXCHANGES * n_concepts):
        others = chosen if turn < n_concepts else chosen[1:]  # the one that was taken first is reconsidered
        left = inside[:, others].min(axis=1, initial=np.inf)
        best = int((np.minimum(left[:, None], inside).sum(axis=0) + price).argmin())
        chosen = [*others, best]
    return np.array(chosen)


# ----------------------------------------------------------------------
# EM for diverse density: choose one instance per bag, then move the concepts; many runs at once
#
# With several concepts a positive bag is explained by the one that comes nearest, with its nearest
# instance; a negative bag must stay away from every concept, so each takes the instance of it that is
# nearest.


_STEPS = 200  # of L-BFGS in an M-step
# relative decrease at which they end: less costs thrice as much. Objectives are then up to a tenth lower on
# some sets and not on others; the quality of predictions was the same on eight labels
_EXACT = 1e-4


class Chosen(NamedTuple):
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
        choice = Chosen(
            choice.rows[:, going], choice.Q[:, going], choice.best[:, going], choice.values[going]
        )
        if live.size == 0:
            break
    points, scales = np.split(kept, 2, axis=2)
    return Runs(points, np.abs(scales), values, n_iter, at_rest)


def choose(X: np.ndarray, offsets: np.ndarray, n_positive: int, theta: np.ndarray) -> Chosen:
    """E-step: the nearest instance of every bag to every concept, and the objective of each run."""
    n_runs, n_concepts, _ = theta.shape
    points, scales = np.split(theta.reshape(n_runs * n_concepts, -1), 2, axis=1)
    Q = distances(X, points, scales)
    rows = segment_argmax(-Q, offsets)
    shape = (len(rows), n_runs, n_concepts)
    Q, rows = np.take_along_axis(Q, rows, axis=0).reshape(shape), rows.reshape(shape)
    inside, outside = Q[:n_positive], Q[n_positive:]
    values = inside.min(axis=2).sum(axis=0) + absence(outside)[2].sum(axis=(0, 2))
    return Chosen(rows, Q, inside.argmin(axis=2), values)


def reseed(
    X: np.ndarray, n_positive: int, theta: np.ndarray, choice: Chosen, scale: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Set a concept that no positive bag chose to the nearest instance of the bag that is explained worst.

    Gives theta, the concept of each positive bag, and which runs were changed.
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
