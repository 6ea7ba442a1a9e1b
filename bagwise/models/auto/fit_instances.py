"""Members that know instances: what each says of instances of bags that it has not seen.

Each has ``fit``, which returns a fitted model and the class probabilities of all training instances by models
that did not see their bag, and the model has ``probabilities(X)`` for new instances. Classes are the labels,
and a last one for no label where there is a background.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from bagwise.bags import Bags
from bagwise.compute.calibration import calibrated_loss
from bagwise.compute.threads import in_threads
from bagwise.models._shared.scores import pooled, safe_logit
from bagwise.models.auto.fit_forest import Forest, grow_forest
from bagwise.models.auto.fit_linear import Logistic, TermWeights, choose_alpha, fit_logistic
from bagwise.models.ored.estimator import ORedLogisticRegression
from bagwise.models.ored.predict import expectation

SMALL = 0.1  # posteriors below it are left out of a tree's targets: they cost time and change nothing

Folds = list[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Problem:
    """Training bags with instances, their labels, and the folds; bags of no fold are never learned from."""

    bags: Bags  # as given, dense or CSR
    dense: Any  # instances in single precision; None for text with many words
    Y: np.ndarray
    folds: Folds
    background: bool
    seed: int
    n_jobs: int | None

    @property
    def n_classes(self) -> int:
        """Labels, and the background."""
        return self.Y.shape[1] + self.background

    def rows(self, bags: np.ndarray) -> np.ndarray:
        """Whether each instance belongs to one of these bags."""
        chosen = np.zeros(len(self.Y), dtype=bool)
        chosen[bags] = True
        return chosen[self.bags.index]

    @property
    def learned(self) -> np.ndarray:
        """Bags that some fold learns from."""
        return np.unique(np.concatenate([train for train, _ in self.folds]))


@dataclass(frozen=True)
class Forests:
    """Mean of some forests."""

    forests: list[Forest]

    def probabilities(self, X: np.ndarray, n_jobs: int | None = None) -> np.ndarray:
        """Mean over the forests of their answers."""
        return np.mean([f.predict(X, n_jobs) for f in self.forests], axis=0)


@dataclass(frozen=True)
class Softmaxes:
    """Mean of some softmax models."""

    models: list[ORedLogisticRegression]

    def probabilities(self, X: Any, n_jobs: int | None = None) -> np.ndarray:
        """Mean over the models of their class probabilities."""
        singles = Bags(X, np.arange(X.shape[0] + 1))
        return np.mean([_softmax(m, singles) for m in self.models], axis=0)


@dataclass(frozen=True)
class Logistics:
    """Mean of some logistic regressions on weighted terms."""

    terms: TermWeights
    models: list[Logistic]

    def probabilities(self, X: Any, n_jobs: int | None = None) -> np.ndarray:
        """Mean over the models of the probability of each label."""
        rows = self.terms.rows(X)
        return np.mean([expit(m.logits(rows)) for m in self.models], axis=0)


def inherited_forest(problem: Problem, n_trees: int) -> tuple[Forests, np.ndarray]:
    """Trees on instances with the labels of their bag; each tree draws bags and leaves others unseen."""
    bags, inside = problem.bags, problem.rows(problem.learned)
    _, groups = np.unique(bags.index[inside], return_inverse=True)
    forest, used = grow_forest(
        problem.dense[inside],
        problem.Y[bags.index[inside]],
        n_trees=n_trees,
        seed=problem.seed,
        groups=groups,
        weights=1.0 / bags.sizes[bags.index[inside]],
        min_leaf=3,
        n_jobs=problem.n_jobs,
    )
    P = np.empty((bags.n_instances, problem.Y.shape[1]))
    P[inside], counts = forest.predict_unseen(problem.dense[inside], used, problem.n_jobs)
    P[np.flatnonzero(inside)[counts == 0]] = problem.Y[problem.learned].mean(axis=0)
    P[~inside] = forest.predict(problem.dense[~inside], problem.n_jobs)
    return Forests([forest]), P


def inherited_logistic(problem: Problem) -> tuple[Logistics, np.ndarray, dict[str, Any]]:
    """Logistic regression on weighted terms of instances that inherit the labels of their bag."""
    bags = problem.bags
    terms = TermWeights.learn(bags.X, bags.offsets)
    T, Y = terms.rows(bags.X), problem.Y[bags.index].astype(np.float64)
    weights = (bags.n_instances / len(bags)) / bags.sizes[bags.index].astype(np.float64)
    train, test = (np.flatnonzero(problem.rows(part)) for part in problem.folds[0])
    alpha = choose_alpha(T, Y, train, test, (0.3, 1.0, 3.0, 10.0), weights)

    def fit(k: int) -> Logistic:
        rows = np.flatnonzero(problem.rows(problem.folds[k][0]))
        return fit_logistic(T[rows], Y[rows], alpha, weights[rows])

    models = _each_fold(problem, fit)
    P = _unseen(problem, [lambda rows, m=m: expit(m.logits(T[rows])) for m in models], Y.shape[1])
    return Logistics(terms, models), P, {"alpha": alpha}


def ored_softmax(
    problem: Problem, max_iter: int, alphas: tuple[float, ...] = (1.0,)
) -> tuple[Softmaxes, np.ndarray, float]:
    """ORed logistic regression, a model per fold; of several penalties the best on the first fold."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sets that cannot be are candidates; few iterations suffice
        train, test = problem.folds[0]
        tried = [_fit_softmax(problem, train, max_iter, alpha) for alpha in alphas]
        losses = [_bag_loss(m, problem, test) for m in tried] if len(tried) > 1 else [0.0]
        alpha = alphas[int(np.argmin(losses))]
        rest = _each_fold(problem, lambda k: _fit_softmax(problem, problem.folds[k][0], max_iter, alpha), 1)
        models = [tried[int(np.argmin(losses))], *rest]

    def ask(model: ORedLogisticRegression) -> Any:
        return lambda rows: _softmax(model, Bags(problem.bags.X[rows], np.arange(len(rows) + 1)))

    return Softmaxes(models), _unseen(problem, [ask(m) for m in models], problem.n_classes), alpha


def _bag_loss(model: ORedLogisticRegression, problem: Problem, test: np.ndarray) -> float:
    """Log loss of calibrated bag scores on bags left out."""
    if not len(test):
        return 0.0
    bags, Y = problem.bags[test], problem.Y[test].astype(np.float64)
    P = _softmax(model, Bags(bags.X, np.arange(bags.n_instances + 1)))
    S = safe_logit(pooled(P[:, : Y.shape[1]], bags.offsets)[2])
    return calibrated_loss(S, Y)


def _fit_softmax(problem: Problem, train: np.ndarray, max_iter: int, alpha: float) -> ORedLogisticRegression:
    model = ORedLogisticRegression(
        alpha=alpha,
        decision="union",  # bags are calibrated by the ensemble
        background=problem.background,
        unusable_bags="candidates",
        max_iter=max_iter,
        tol=1e-3,
    )
    bags = problem.bags[train]
    return model.fit(Bags(bags.X, bags.offsets), problem.Y[train])


def _softmax(model: ORedLogisticRegression, singles: Bags) -> np.ndarray:
    """Class probabilities of instances, those of the background last."""
    P = model._instance_probabilities(singles, None)
    return np.column_stack([P, np.maximum(1.0 - P.sum(axis=1), 0.0)]) if model.has_background_ else P


def ored_forest(problem: Problem, softmax: Softmaxes, rounds: tuple[int, ...]) -> tuple[Forests, np.ndarray]:
    """Union EM around forests, from the posteriors of the softmax of each fold."""
    forests = _each_fold(problem, lambda k: _fit_rounds(problem, k, softmax.models[k], rounds))
    asks = [lambda rows, f=f: f.predict(problem.dense[rows], problem.n_jobs) for f in forests]
    return Forests(forests), _unseen(problem, asks, problem.n_classes)


def _fit_rounds(problem: Problem, k: int, softmax: ORedLogisticRegression, rounds: tuple[int, ...]) -> Forest:
    train = problem.folds[k][0]
    rows, bags, Y = problem.rows(train), problem.bags[train], problem.Y[train]
    X = problem.dense[rows]
    P = _softmax(softmax, Bags(bags.X, np.arange(bags.n_instances + 1)))
    for r, n_trees in enumerate(rounds):
        Q = expectation(P, bags.offsets, Y, background=problem.background)[0]
        Q[Q < SMALL] = 0.0
        forest, used = grow_forest(
            X, Q, n_trees=n_trees, seed=problem.seed + 1 + 100 * k + r, groups=bags.index
        )
        if r + 1 < len(rounds):
            P, counts = forest.predict_unseen(X, used)
            P[counts == 0] = 1.0 / problem.n_classes
    return forest


def _each_fold(problem: Problem, learn: Callable[[int], Any], first: int = 0) -> list[Any]:
    """``learn(k)`` for the folds from the first on, in threads."""
    folds = range(first, len(problem.folds))
    parts = in_threads(lambda a, b: [learn(k) for k in folds[a:b]], len(folds), problem.n_jobs)
    return [model for part in parts for model in part]


def _unseen(problem: Problem, asks: list[Any], n_classes: int) -> np.ndarray:
    """Probabilities by the model of the fold; bags that no fold learned from get the mean of all models."""
    P = np.zeros((problem.bags.n_instances, n_classes))
    outside = np.flatnonzero(~problem.rows(problem.learned))
    for (_, test), ask in zip(problem.folds, asks):
        rows = np.flatnonzero(problem.rows(test))
        P[rows] = ask(rows)
        if len(outside):
            P[outside] += ask(outside) / len(asks)
    return P
