"""Fitting the members of one view one after the other, each with its answers to bags that it has not seen."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from bagwise.bags import Bags
from bagwise.compute.scaling import apply_scaling, is_text, learn_scaling
from bagwise.models._shared.scores import safe_logit
from bagwise.models.auto.fit_forest import grow_forest
from bagwise.models.auto.fit_instances import (
    Folds,
    Problem,
    inherited_forest,
    inherited_logistic,
    ored_forest,
    ored_softmax,
)
from bagwise.models.auto.fit_linear import (
    MANY_BAGS,
    Logistic,
    TermWeights,
    choose_alpha,
    fit_logistic,
    fit_rankers,
)
from bagwise.models.auto.fit_ridge import BIAS, EXACT_BAGS, PENALTIES, best_of, fit_ridge, leave_one_out
from bagwise.models.auto.predict import (
    ON_BAGS,
    ON_INSTANCES,
    ViewModel,
    as_csr,
    as_learned,
    background_shift,
    instance_member_score,
    stack,
    voting_weights,
)
from bagwise.preprocessing.pooling import bag_statistics

_DENSE_FEATURES = 1000  # text with more features is never made dense
_STATISTICS = ("mean", "std", "min", "max", 0.1, 0.25, 0.5, 0.75, 0.9, "size")
_FEW_STATISTICS = ("mean", "std", "min", "max", "size")
_MANY_CELLS = 3e7  # bags times features beyond which quantiles are left out
_POOLED_LEAF = 2
_BAG_FOLDS = 3  # of members that learn from all of many bags


class ViewFit:
    """Fits the members that suit one view, one after the other.

    ``everything`` are all bags, ``bags`` and ``Y`` those that are answered: the same, unless they are many.
    """

    def __init__(self, bags: Bags, task: Task) -> None:
        X, text = bags.X, is_text(bags.X)
        if text:  # words that occur
            columns = np.unique(X.indices[X.data != 0] if sparse.issparse(X) else np.nonzero(X)[1])
        else:  # features that are not constant but for rounding
            columns = np.flatnonzero(learn_scaling(X, "standard").factor)
        columns = columns if len(columns) else np.arange(X.shape[1])
        dense = len(columns) <= _DENSE_FEATURES or not text
        many = len(bags) * len(columns) > _MANY_CELLS
        statistics = _FEW_STATISTICS if many else _STATISTICS
        n_labels = task.Y.shape[1]
        self.task = task
        self.model = ViewModel(
            dense, text, task.background, n_labels, statistics, columns, n_jobs=task.n_jobs
        )
        self.everything = bags = as_learned(bags, dense, columns)
        self.bags = bags = bags if len(task.answered) == len(bags) else bags[task.answered]
        self.Y = task.Y[task.answered]
        self.answers: dict[str, np.ndarray] = {}
        self.facts: dict[str, dict[str, Any]] = {}
        self.P: dict[str, np.ndarray] = {}
        self.rng = np.random.RandomState(task.seed)
        filled = np.flatnonzero(bags.sizes > 0)
        position = np.full(len(bags), -1)
        position[filled] = np.arange(len(filled))
        folds = [tuple(position[part][position[part] >= 0] for part in fold) for fold in task.folds]
        some = bags if len(filled) == len(bags) else bags[filled]
        self.problem = Problem(
            some,
            some.X.astype(np.float32) if dense else None,
            self.Y[filled],
            [(train, test) for train, test in folds if len(train)],
            task.background,
            task.seed,
            task.n_jobs,
        )

    def run(self) -> tuple[ViewModel, dict[str, np.ndarray], dict[str, dict[str, Any]]]:
        """Fit what suits, is wanted, and has time; returns it, its answers to unseen bags, and facts."""
        task = self.task
        suited = set(FOR_DENSE if self.model.dense else ()) | set(FOR_TEXT if self.model.text else ())
        if not len(self.problem.folds):
            suited -= set(ON_INSTANCES) | {"stacked_kernel"}
        named = task.wanted or frozenset()
        if self.model.text:
            suited -= {"text_logistic" if len(self.everything) <= EXACT_BAGS else "text_kernel"}
            suited -= NOT_FOR_TEXT - named
        if len(self.everything) > EXACT_BAGS:
            suited -= {"statistics_kernel"}
        if len(self.everything) <= MANY_BAGS:
            suited -= {"mimlfast"} - named
        if task.wanted is not None:  # and what one that is wanted builds on
            suited &= named | ({"ored"} if "ored_forest" in named else set())
        for name in MEMBERS:
            if name not in suited:
                continue
            task.advance(description=name)
            if task.clock() > LATEST_START.get(name, np.inf):
                self.facts[name] = {"dropped": "max_seconds"}
                continue
            started = time.perf_counter()
            facts = getattr(self, f"_fit_{name}")()
            if facts is not None:
                if name not in ON_BAGS and len(self.bags) < len(self.everything):
                    facts = {"bags": len(self.bags), **facts}
                self.facts[name] = {**facts, "seconds": time.perf_counter() - started}
        weights = voting_weights(self.P, self.Y, self.bags.offsets, task.background)
        self.model.instance_weights = weights
        if weights and task.background:
            self.model.background_shift = background_shift(self.P, weights, self.Y, self.bags.index)
        return self.model, self.answers, self.facts

    def _add(self, name: str, fitted: Any, answers: np.ndarray) -> None:
        self.model.members[name] = fitted
        self.answers[name] = answers

    # ------------------------------------------------------------------ members on bags

    def _bag_folds(self) -> Folds:
        """Folds of all bags: those of members on instances where they leave none out."""
        n = len(self.everything)
        folds = self.task.folds
        if folds and sum(len(test) for _, test in folds) == n:
            return folds
        parts = np.array_split(self.rng.permutation(n), min(_BAG_FOLDS, n))
        return [(np.setdiff1d(np.arange(n), part), np.sort(part)) for part in parts]

    def _fit_set_kernel(self) -> dict[str, Any]:
        bags = self.everything
        self.model.scaling = learn_scaling(bags.X, "standard")
        X = apply_scaling(bags.X, self.model.scaling)
        ridge, answers, facts = fit_ridge(X, bags.offsets, self.task.Y, (0.25, 1.0, 4.0), self.rng)
        self._add("set_kernel", ridge, answers[self.task.answered])
        return facts

    def _fit_statistics_kernel(self) -> dict[str, Any]:
        table = self.statistics
        self.model.statistics_scaling = learn_scaling(table, "standard")
        rows = apply_scaling(table, self.model.statistics_scaling)
        ridge, answers, facts = fit_ridge(rows, np.arange(len(rows) + 1), self.Y, (0.25, 1.0, 4.0), self.rng)
        self._add("statistics_kernel", ridge, answers)
        return facts

    @cached_property
    def statistics(self) -> np.ndarray:
        """Statistics of the bags that are answered."""
        return bag_statistics(self.bags, self.model.statistics)

    def _fit_text_kernel(self) -> dict[str, Any]:
        bags = self.everything
        X = as_csr(bags.X)
        terms = TermWeights.learn(X, bags.offsets)
        T = terms.bags(X, bags.offsets)
        targets = 2.0 * self.task.Y - 1.0
        K = (T @ T.T).toarray() + BIAS
        _, penalty, alpha, answers = best_of(leave_one_out(K, targets, PENALTIES), targets)
        linear = Logistic(np.asarray(T.T @ alpha), BIAS * alpha.sum(axis=0))
        self._add("text_kernel", (terms, linear), answers[self.task.answered])
        return {"penalty": penalty}

    def _fit_text_logistic(self) -> dict[str, Any]:
        bags = self.everything
        X, Y = as_csr(bags.X), self.task.Y.astype(np.float64)
        terms = TermWeights.learn(X, bags.offsets)
        T = terms.bags(X, bags.offsets)
        folds = self._bag_folds()
        alpha = choose_alpha(T, Y, *folds[0], (0.03, 0.1, 0.3, 1.0), np.ones(len(Y)))
        answers = np.zeros(Y.shape)
        models = []
        for train, test in folds:
            models.append(fit_logistic(T[train], Y[train], alpha))
            answers[test] = models[-1].logits(T[test])
        coef = np.mean([m.coef for m in models], axis=0)
        linear = Logistic(coef, np.mean([m.intercept for m in models], axis=0))
        self._add("text_logistic", (terms, linear), answers[self.task.answered])
        return {"alpha": alpha, "n_folds": len(folds)}

    def _fit_mimlfast(self) -> dict[str, Any]:
        task = self.task
        fitted, answers, facts = fit_rankers(
            self.everything, task.Y, self._bag_folds(), seed=task.seed, n_jobs=task.n_jobs
        )
        self._add("mimlfast", fitted, answers[task.answered])
        return facts

    # ------------------------------------------------------------------ members on instances

    def _add_instances(self, name: str, fitted: Any, P: np.ndarray) -> dict[str, Any]:
        full = np.zeros((self.bags.n_instances, P.shape[1]))
        full[:] = P  # empty bags have no rows: the instances of filled bags are all there are
        self.P[name] = full
        score = instance_member_score(name, full[:, : self.Y.shape[1]], self.bags.offsets)
        self._add(name, fitted, score)
        learned, n_bags = len(self.problem.learned), len(self.problem.Y)
        return {"n_folds": len(self.problem.folds), **({"bags": learned} if learned < n_bags else {})}

    def _fit_inherited_forest(self) -> dict[str, Any]:
        n_trees = self.task.plan.inherited_trees
        return {
            "trees": n_trees,
            **self._add_instances("inherited_forest", *inherited_forest(self.problem, n_trees)),
        }

    def _fit_inherited_logistic(self) -> dict[str, Any]:
        bags = self.problem.bags.with_X(as_csr(self.problem.bags.X))
        fitted, P, facts = inherited_logistic(replace(self.problem, bags=bags, dense=None))
        return {**facts, **self._add_instances("inherited_logistic", fitted, P)}

    def _fit_ored(self) -> dict[str, Any]:
        alphas = (1.0, 3.0, 10.0) if self.model.text else (1.0,)  # rare words want a stronger one
        fitted, P, alpha = ored_softmax(self.problem, self.task.plan.max_iter, alphas)
        return {"alpha": alpha, **self._add_instances("ored", fitted, P)}

    def _fit_ored_forest(self) -> dict[str, Any] | None:
        if "ored" not in self.model.members:
            return {"dropped": "it starts from ored, which was dropped"}
        rounds = self.task.plan.rounds
        fitted, P = ored_forest(self.problem, self.model.members["ored"], rounds)
        return {"trees": list(rounds), **self._add_instances("ored_forest", fitted, P)}

    # ------------------------------------------------------------------ members on top of them

    def _stacked(self) -> np.ndarray:
        self.model.stack_names = tuple(name for name in ON_INSTANCES if name in self.P)
        return stack(self.P, self.model.stack_names, self.Y.shape[1], self.bags.offsets)

    def _fit_stacked_kernel(self) -> dict[str, Any] | None:
        F = self._stacked()
        if F.shape[1] == 0:
            return None
        shift, spread = F.mean(axis=0), F.std(axis=0)
        scale = np.divide(1.0, spread, out=np.zeros(len(spread)), where=spread > 1e-9)
        self.model.stack_shift, self.model.stack_scale = shift, scale
        rows = (F - shift) * scale
        ridge, answers, facts = fit_ridge(rows, np.arange(len(F) + 1), self.Y, (0.25, 1.0), self.rng)
        self._add("stacked_kernel", ridge, answers)
        return facts

    def _fit_pooled_forest(self) -> dict[str, Any]:
        F = self._stacked()
        table = np.hstack([self.statistics, F]).astype(np.float32)
        n_trees = self.task.plan.pooled_trees
        forest, used = grow_forest(
            table,
            self.Y,
            n_trees=n_trees,
            seed=self.task.seed + 7,
            min_leaf=_POOLED_LEAF,
            n_jobs=self.task.n_jobs,
        )
        P, counts = forest.predict_unseen(table, used, self.task.n_jobs)
        P[counts == 0] = self.Y.mean(axis=0)
        self._add("pooled_forest", forest, safe_logit(P))
        return {"trees": n_trees, "statistics": len(self.model.statistics)}


# ----------------------------------------------------------------------
# What is fitted to a view: the members by name, which data they suit, and how much work is done


# in the order of work
MEMBERS = (
    "set_kernel",
    "statistics_kernel",
    "text_kernel",
    "text_logistic",
    "mimlfast",
    "inherited_forest",
    "inherited_logistic",
    "ored",
    "ored_forest",
    "stacked_kernel",
    "pooled_forest",
)
FOR_TEXT = ("text_kernel", "text_logistic", "inherited_logistic", "ored", "stacked_kernel")
FOR_DENSE = (
    "set_kernel",
    "statistics_kernel",
    "mimlfast",
    "inherited_forest",
    "ored",
    "ored_forest",
    "stacked_kernel",
    "pooled_forest",
)
# what members on weighted terms answer about as well, in less time
NOT_FOR_TEXT = frozenset({"set_kernel", "statistics_kernel", "inherited_forest"})
# a member starts only before this share of max_seconds has passed: the first to go has the smallest
LATEST_START = {
    "ored_forest": 0.4,
    "ored": 0.5,
    "inherited_logistic": 0.6,
    "inherited_forest": 0.6,
    "stacked_kernel": 0.8,
}


@dataclass(frozen=True)
class Plan:
    """How much work is done."""

    inherited_trees: int
    rounds: tuple[int, ...]
    pooled_trees: int
    n_folds: int
    max_iter: int
    max_instances: int  # what instance members learn from: a sample of bags with about so many


_PLANS = {
    "full": Plan(100, (16, 40), 200, 5, 60, 40_000),
    "fast": Plan(80, (8, 24), 120, 5, 40, 20_000),
}
_SMALL = {"full": 1500, "fast": 1000}  # up to so many instances trees cost next to nothing
_SMALL_PLAN = Plan(100, (30, 80), 200, 5, 60, 40_000)


def plan_for(effort: str, n_instances: int, text: bool = False) -> Plan:
    """How much work an effort means; beside members for text few trees are enough."""
    if n_instances <= _SMALL[effort]:
        return _SMALL_PLAN
    plan, fast = _PLANS[effort], _PLANS["fast"]
    if not text:
        return plan
    trees = (fast.inherited_trees, fast.rounds, fast.pooled_trees)
    return Plan(*trees, plan.n_folds, plan.max_iter, plan.max_instances)


@dataclass
class Task:
    """What a view is fitted with besides its bags."""

    Y: np.ndarray
    answered: np.ndarray  # bags that all members answer for; those on instances, and on top, know no others
    folds: Folds  # of the bags that instance members learn from, counted among those answered
    background: bool
    plan: Plan
    wanted: frozenset[str] | None  # names of members, None for all that suit
    seed: int
    n_jobs: int | None
    clock: Callable[[], float]  # share of max_seconds that has passed
    advance: Callable[..., None]
