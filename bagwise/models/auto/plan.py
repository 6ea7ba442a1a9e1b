"""What is fitted to a view: the members by name, which data they suit, and how much work is done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bagwise.models.auto.fit_instances import Folds

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
ON_BAGS = ("set_kernel", "statistics_kernel", "text_kernel", "text_logistic", "mimlfast")
ON_INSTANCES = ("inherited_forest", "inherited_logistic", "ored", "ored_forest")
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
