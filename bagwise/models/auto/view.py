"""The members of one view: fitted one after the other, each with its answers to bags that it has not seen."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from bagwise.bags import Bags
from bagwise.models._shared.calibration import fit_sigmoids, log_loss_sum
from bagwise.models._shared.pooled_probabilities import pooled, safe_logit
from bagwise.models._shared.scaling import Scaling, apply_scaling, is_text, learn_scaling
from bagwise.models.auto.forest import grow_forest
from bagwise.models.auto.instances import (
    Folds,
    Problem,
    inherited_forest,
    inherited_logistic,
    ored_forest,
    ored_softmax,
)
from bagwise.models.auto.logistic import Logistic, TermWeights, choose_alpha, fit_logistic
from bagwise.models.auto.ranking import MANY_BAGS, fit_rankers
from bagwise.models.auto.ridge import BIAS, EXACT_BAGS, PENALTIES, best_of, fit_ridge, leave_one_out
from bagwise.preprocessing.statistics import bag_statistics

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
ON_INSTANCES = ("inherited_forest", "inherited_logistic", "ored", "ored_forest")
_TEXT = ("text_kernel", "text_logistic", "inherited_logistic", "ored", "stacked_kernel")
_DENSE = (
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
_NOT_FOR_TEXT = frozenset({"set_kernel", "statistics_kernel", "inherited_forest"})
# a member starts only before this share of max_seconds has passed: the first to go has the smallest
LATEST_START = {
    "ored_forest": 0.4,
    "ored": 0.5,
    "inherited_logistic": 0.6,
    "inherited_forest": 0.6,
    "stacked_kernel": 0.8,
}
_DENSE_FEATURES = 1000  # text with more features is never made dense
_STATISTICS = ("mean", "std", "min", "max", 0.1, 0.25, 0.5, 0.75, 0.9, "size")
_FEW_STATISTICS = ("mean", "std", "min", "max", "size")
_MANY_CELLS = 3e7  # bags times features beyond which quantiles are left out
_MANY_COLUMNS = 600  # pooled probabilities beyond which one of three poolings is kept
_POOLED_LEAF = 2
_MIXED = {"ored": 0.25, "ored_forest": 0.75}  # the softmax is sharp, the forest knows more
_BAG_FOLDS = 3  # of members that learn from all of many bags


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


@dataclass
class ViewModel:
    """Fitted members of one view."""

    dense: bool
    text: bool
    background: bool
    n_labels: int
    statistics: tuple[Any, ...]
    columns: np.ndarray  # features that vary in training; the others say nothing
    members: dict[str, Any] = field(default_factory=dict)
    scaling: Scaling = field(default_factory=lambda: Scaling("none", np.zeros(0), np.zeros(0)))
    statistics_scaling: Scaling = field(default_factory=lambda: Scaling("none", np.zeros(0), np.zeros(0)))
    stack_names: tuple[str, ...] = ()
    stack_shift: np.ndarray | None = None
    stack_scale: np.ndarray | None = None
    instance_weights: dict[str, float] = field(default_factory=dict)
    background_shift: float = 0.0  # taken off the logarithm of the background's probability
    n_jobs: int | None = None

    def answers(self, bags: Bags, needed: set[str]) -> dict[str, np.ndarray]:
        """Scores of bags by each of the members that are needed."""
        bags, X = self._prepare(bags)
        of_bags = needed & {"statistics_kernel", "pooled_forest"}
        table = bag_statistics(bags, self.statistics) if of_bags else np.zeros((len(bags), 0))
        X["statistics_kernel"] = table
        own = {name: self._bag_member(name, bags, X) for name in needed if name in _ON_BAGS}
        if needed - set(own):
            P = {name: self.members[name].probabilities(X[name], self.n_jobs) for name in self._sources()}
            for name in needed & set(P):
                own[name] = instance_member_score(name, P[name][:, : self.n_labels], bags.offsets)
            F = self._stack(P, bags.offsets)
            if "stacked_kernel" in needed:
                rows = (F - self.stack_shift) * self.stack_scale
                own["stacked_kernel"] = self.members["stacked_kernel"].predict(rows, np.arange(len(F) + 1))
            if "pooled_forest" in needed:
                both = np.hstack([table, F]).astype(np.float32)
                own["pooled_forest"] = safe_logit(self.members["pooled_forest"].predict(both, self.n_jobs))
        return own

    def instance_probabilities(self, bags: Bags) -> np.ndarray:
        """Distribution over classes of every instance."""
        bags, X = self._prepare(bags)
        P = {n: self.members[n].probabilities(X[n], self.n_jobs) for n in self.instance_weights}
        if not P:
            return np.full((bags.n_instances, self.n_labels + self.background), 0.5)
        Q = mix_instances(P, self.instance_weights, self.n_labels, self.background)
        if self.background_shift > 0.0:
            Q[:, -1] *= np.exp(-self.background_shift)
            Q /= Q.sum(axis=1, keepdims=True)
        return Q

    def _sources(self) -> tuple[str, ...]:
        return tuple(name for name in ON_INSTANCES if name in self.members)

    def _prepare(self, bags: Bags) -> tuple[Bags, dict[str, Any]]:
        """Bags as they were learned from, and the instances that each member takes."""
        bags = as_learned(bags, self.dense, self.columns)
        single = bags.X.astype(np.float32) if self.dense else None
        rows = as_csr(bags.X) if self.text else None
        X = dict.fromkeys(("inherited_forest", "ored_forest"), single)
        return bags, {**X, "ored": bags.X, "inherited_logistic": rows}

    def _bag_member(self, name: str, bags: Bags, X: dict[str, Any]) -> np.ndarray:
        model = self.members[name]
        if name == "set_kernel":
            return model.predict(apply_scaling(bags.X, self.scaling), bags.offsets)
        if name == "statistics_kernel":
            rows = apply_scaling(X[name], self.statistics_scaling)
            return model.predict(rows, np.arange(len(rows) + 1))
        if name == "mimlfast":
            return model.scores(bags)
        terms, logistic = model
        return logistic.logits(terms.bags(X["inherited_logistic"], bags.offsets))

    def _stack(self, P: dict[str, np.ndarray], offsets: np.ndarray) -> np.ndarray:
        return stack(P, self.stack_names, self.n_labels, offsets)


_ON_BAGS = ("set_kernel", "statistics_kernel", "text_kernel", "text_logistic", "mimlfast")


def varying_columns(X: Any, text: bool) -> np.ndarray:
    """Features that are not constant but for rounding; of text, words that occur."""
    if text:
        columns = np.unique(X.indices[X.data != 0] if sparse.issparse(X) else np.nonzero(X)[1])
    else:
        columns = np.flatnonzero(learn_scaling(X, "standard").factor)
    return columns if len(columns) else np.arange(X.shape[1])


def as_learned(bags: Bags, dense: bool, columns: np.ndarray) -> Bags:
    """Dense bags for a dense view, sparse ones for text; of features those that vary in training."""
    if len(columns) < bags.n_features:
        bags = bags[:, columns]
    if dense:
        return bags.with_X(bags.X.toarray()) if bags.is_sparse else bags
    return bags if bags.is_sparse else bags.with_X(sparse.csr_array(bags.X))


def as_csr(X: Any) -> Any:
    """Instances as CSR in double precision."""
    return sparse.csr_array(X).astype(np.float64)


def instance_member_score(name: str, P: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Bag scores of a member on instances: noisy-or of the softmax, of others half maximum, half mean."""
    largest, mean, noisy_or = pooled(P, offsets)
    return safe_logit(noisy_or if name == "ored" else (largest + mean) / 2.0)


def stack(P: dict[str, np.ndarray], names: tuple[str, ...], n_labels: int, offsets: np.ndarray) -> np.ndarray:
    """Logits of pooled instance probabilities of some members, side by side."""
    n = len(offsets) - 1
    parts: list[np.ndarray] = []
    for name in names:
        poolings: tuple[np.ndarray, ...] = pooled(P[name][:, :n_labels], offsets)
        if 3 * len(names) * n_labels > _MANY_COLUMNS:
            poolings = ((poolings[0] + poolings[1]) / 2.0,)
        parts += [safe_logit(p) for p in poolings]
    return np.hstack(parts) if parts else np.zeros((n, 0))


def mix_instances(
    P: dict[str, np.ndarray], weights: dict[str, float], n_labels: int, background: bool
) -> np.ndarray:
    """Weighted geometric mean of distributions over classes, normalised."""
    total: Any = 0.0
    for name, weight in weights.items():
        p = P[name]
        if p.shape[1] < n_labels + background:  # labels by themselves: none of them is the background
            none = np.exp(np.log1p(-np.clip(p, 0.0, 1.0 - 1e-9)).sum(axis=1))
            p = np.column_stack([p, none])
        total = total + weight * np.log(np.maximum(p, 1e-3))
    Q = np.exp(total)
    return Q / Q.sum(axis=1, keepdims=True)


def fit_view(bags: Bags, task: Task) -> tuple[ViewModel, dict[str, np.ndarray], dict[str, dict[str, Any]]]:
    """Fit the members that suit the instances; returns them, their answers to unseen bags, and facts."""
    text = is_text(bags.X)
    columns = varying_columns(bags.X, text)
    dense = len(columns) <= _DENSE_FEATURES or not text
    many = len(bags) * len(columns) > _MANY_CELLS
    statistics = _FEW_STATISTICS if many else _STATISTICS
    model = ViewModel(dense, text, task.background, task.Y.shape[1], statistics, columns)
    model.n_jobs = task.n_jobs
    return _Fitting(model, as_learned(bags, dense, columns), task).run()


class _Fitting:
    """Fits members one after the other.

    ``everything`` are all bags, ``bags`` and ``Y`` those that are answered: the same, unless they are many.
    """

    def __init__(self, model: ViewModel, bags: Bags, task: Task) -> None:
        self.model, self.everything, self.task = model, bags, task
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
            some.X.astype(np.float32) if model.dense else None,
            self.Y[filled],
            [(train, test) for train, test in folds if len(train)],
            task.background,
            task.seed,
            task.n_jobs,
        )

    def run(self) -> tuple[ViewModel, dict[str, np.ndarray], dict[str, dict[str, Any]]]:
        """All members that suit, that are wanted, and that there is time for."""
        task = self.task
        suited = set(_DENSE if self.model.dense else ()) | set(_TEXT if self.model.text else ())
        if not len(self.problem.folds):
            suited -= set(ON_INSTANCES) | {"stacked_kernel"}
        if self.model.text:
            suited -= {"text_logistic" if len(self.everything) <= EXACT_BAGS else "text_kernel"}
        named = task.wanted or frozenset()
        if self.model.text:
            suited -= _NOT_FOR_TEXT - named
        if len(self.everything) > EXACT_BAGS:
            suited -= {"statistics_kernel"}
        if len(self.everything) <= MANY_BAGS:
            suited -= {"mimlfast"} - named
        for name in MEMBERS:
            if name not in suited or (task.wanted is not None and not self._needed(name)):
                continue
            task.advance(description=name)
            if task.clock() > LATEST_START.get(name, np.inf):
                self.facts[name] = {"dropped": "max_seconds"}
                continue
            started = time.perf_counter()
            facts = getattr(self, f"_fit_{name}")()
            if facts is not None:
                if name not in _ON_BAGS and len(self.bags) < len(self.everything):
                    facts = {"bags": len(self.bags), **facts}
                self.facts[name] = {**facts, "seconds": time.perf_counter() - started}
        self._choose_instances()
        return self.model, self.answers, self.facts

    def _needed(self, name: str) -> bool:
        """Whether a member is wanted, or one that is wanted builds on it."""
        wanted = self.task.wanted or frozenset()
        return name in wanted or (name == "ored" and "ored_forest" in wanted)

    def _add(self, name: str, fitted: Any, answers: np.ndarray) -> None:
        self.model.members[name] = fitted
        self.answers[name] = answers

    # ------------------------------------------------------------------ members on bags

    def _add_bags(self, name: str, fitted: Any, answers: np.ndarray) -> None:
        """A member that has learned from all bags, and answers for those that others answer for."""
        self._add(name, fitted, answers[self.task.answered])

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
        self._add_bags("set_kernel", ridge, answers)
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
        self._add_bags("text_kernel", (terms, linear), answers)
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
        self._add_bags("text_logistic", (terms, linear), answers)
        return {"alpha": alpha, "n_folds": len(folds)}

    def _fit_mimlfast(self) -> dict[str, Any]:
        task = self.task
        fitted, answers, facts = fit_rankers(
            self.everything, task.Y, self._bag_folds(), seed=task.seed, n_jobs=task.n_jobs
        )
        self._add_bags("mimlfast", fitted, answers)
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
        fitted, P, facts = inherited_logistic(self._sparse_problem())
        return {**facts, **self._add_instances("inherited_logistic", fitted, P)}

    def _sparse_problem(self) -> Problem:
        problem = self.problem
        bags = problem.bags.with_X(as_csr(problem.bags.X))
        return Problem(bags, None, problem.Y, problem.folds, problem.background, problem.seed, problem.n_jobs)

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

    def _choose_instances(self) -> None:
        """Which members speak for instances: those whose pooled answers predict unseen bags best."""
        candidates: list[dict[str, float]] = [{name: 1.0} for name in self.P]
        if "ored" in self.P and "ored_forest" in self.P:
            candidates += [dict(_MIXED)]
        if not candidates:
            return
        varies = self.Y.min(axis=0) < self.Y.max(axis=0)
        losses = [self._bag_loss(weights, varies) for weights in candidates]
        self.losses = list(zip(candidates, losses))
        self.model.instance_weights = candidates[int(np.argmin(losses))]
        if self.task.background:
            self.model.background_shift = self._shift_of_background()

    def _shift_of_background(self) -> float:
        """How far even odds are from what instances of bags without labels say, halved.

        One instance explains a label of its bag, so that nothing pushes the probability of a second one up:
        it may stay below that of the background although no instance of a bag without labels looks like it.
        Those are known to be background: the line is drawn half way between the 99th of a hundred of them and
        even odds, where they are all on their side of it.
        """
        P = mix_instances(self.P, self.model.instance_weights, self.Y.shape[1], True)
        known = ~self.Y.any(axis=1)[self.bags.index]
        if not known.any():
            return 0.0
        odds = np.log(P[known, :-1].max(axis=1)) - np.log(P[known, -1])
        return float(max(0.0, -np.quantile(odds, 0.99) / 2.0))

    def _bag_loss(self, weights: dict[str, float], varies: np.ndarray) -> float:
        P = mix_instances(self.P, weights, self.Y.shape[1], self.task.background)
        Y = self.Y[:, varies].astype(np.float64)
        largest, mean, noisy_or = pooled(P[:, : len(varies)][:, varies], self.bags.offsets)
        losses = []
        for S in (safe_logit((largest + mean) / 2.0), safe_logit(noisy_or)):
            slope, intercept = fit_sigmoids(S, Y)
            losses.append(log_loss_sum(slope * S + intercept, Y))
        return min(losses)
