"""MIMLfast's settings: what each may be, and what "auto" stands for once the data are known."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bagwise.base.parameters import JOBS, Choice, Device, Flag, Number, Rules, Seed, Whole
from bagwise.compute.scaling import is_text

__all__ = ["MOST_HELD_OUT", "PARAMETERS", "RULES", "SMALL", "SUB_CONCEPTS", "Plan", "make_plan"]

RULES = {"calibrated": None, "text": 0.0, "line17": -1.0, "code": 1.0}
SMALL = 3000  # bags up to which averaged SGD is at least as good as mini-batches, and fast enough
SMALL_TEXT = 20_000  # the same for text, where rare words mislead mini-batches and sparse steps are cheap
MOST_HELD_OUT = 2000
SUB_CONCEPTS = (1, 5)  # what "auto" chooses from
_FEW = 500  # bags up to which "auto" takes folds, and one sub-concept where none are held out

PARAMETERS: Rules = {
    "n_components": Whole(1),
    "n_sub_concepts": (Choice("auto"), Whole(1)),
    "max_norm": Number(above=0),
    "solver": Choice("auto", "minibatch", "asgd", "sgd"),
    "step_size": Number(above=0),
    "step_decay": Number(0),
    "learning_rate": Number(above=0),
    "batch_size": (Choice("auto"), Whole(1)),
    "max_iter": (Choice("auto"), Whole(1)),
    "n_iter_no_change": (Choice("auto"), Whole(1)),
    "validation": (Choice("auto"), Number(0, below=1), Whole(2)),
    "refit": (Choice("auto"), Flag()),
    "threshold_rule": Choice(*RULES),
    "scaling": Choice("auto", "none"),
    "feature_norm": (Choice("auto"), Number(above=0)),
    "device": Device(),
    "n_jobs": JOBS,
    "random_state": Seed(),
}


class Plan(NamedTuple):
    """Every setting of a training."""

    solver: str
    n_components: int
    n_sub_concepts: int
    choices: tuple[int, ...]  # sub-concepts to choose from on held-out bags, fewest first
    max_norm: float
    step_size: float
    step_decay: float
    learning_rate: float
    batch_bags: int
    max_iter: int
    patience: int
    norm: float  # root mean square length of scaled instances
    folds: int  # 0: none held out, 1: a part, more: that many folds
    n_held_out: int  # bags of the part
    refit: bool


def make_plan(model: Any, n_bags: int, X: Any = None) -> Plan:
    """Fill in "auto" for a number of bags and, if known, their instances."""
    solver = model.solver
    if solver == "auto":
        few = n_bags <= SMALL or (X is not None and n_bags <= SMALL_TEXT and is_text(X))
        solver = "asgd" if few else "minibatch"
    by_batch = solver == "minibatch"
    usual_batch = int(np.clip(2 ** (n_bags // 60).bit_length(), 16, 512))
    # enough passes for about 360 updates, which is where generated data of many shapes level off
    passes = int(np.clip(round(180_000 / n_bags), 5, 30)) if by_batch else 40
    folds, n_held_out = _held_out(model.validation, solver, n_bags)
    choices = _sub_concepts(model.n_sub_concepts, folds, n_bags)
    by_size = solver != "sgd" and n_bags <= SMALL
    return Plan(
        solver=solver,
        n_components=model.n_components,
        n_sub_concepts=choices[-1],
        choices=choices,
        max_norm=float(model.max_norm),
        step_size=float(model.step_size),
        step_decay=float(model.step_decay),
        learning_rate=float(model.learning_rate),
        batch_bags=_or(model.batch_size, usual_batch),
        max_iter=_or(model.max_iter, passes),
        patience=_or(model.n_iter_no_change, 1 if solver == "sgd" else 5),
        norm=float(_or(model.feature_norm, 15.0 if by_batch else 3.0)),
        folds=folds,
        n_held_out=n_held_out,
        refit=folds > 1 or bool(_or(model.refit, by_size)),
    )


def _or(value: Any, usual: Any) -> Any:
    return usual if isinstance(value, str) else value  # the only word is "auto"


def _sub_concepts(given: Any, folds: int, n_bags: int) -> tuple[int, ...]:
    """See ``n_sub_concepts`` of MIMLFast."""
    if given != "auto":
        return (given,)
    if n_bags > SMALL:
        return SUB_CONCEPTS[-1:]
    if folds == 0:
        return SUB_CONCEPTS[:1] if n_bags <= _FEW else SUB_CONCEPTS[-1:]
    return SUB_CONCEPTS


def _held_out(validation: Any, solver: str, n_bags: int) -> tuple[int, int]:
    """Number of folds, and of bags in the only one; see ``validation`` of MIMLFast."""
    if validation == "auto":
        if n_bags < 10:
            return 0, 0
        if solver != "sgd" and n_bags <= _FEW:
            return 3, 0
        share = 0.2 if solver != "sgd" and n_bags <= SMALL else min(0.1, MOST_HELD_OUT / n_bags)
        return 1, max(1, round(share * n_bags))
    folds = int(validation) if validation >= 1 else int(validation > 0)
    n_held_out = max(1, round(validation * n_bags)) if folds == 1 else 0
    if folds > n_bags or (folds == 1 and n_held_out >= n_bags):
        raise ValueError(
            f"validation of MIMLFast leaves no bag to train on: {validation!r} with {n_bags} bags; "
            "give fewer folds, a smaller share, or 0 for none"
        )
    return folds, n_held_out
