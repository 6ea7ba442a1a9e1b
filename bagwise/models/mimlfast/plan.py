"""MIMLfast's settings: what "auto" stands for, and what is refused."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bagwise.models.mimlfast.forward import is_text

SOLVERS = ("auto", "minibatch", "asgd", "sgd")
RULES = {"calibrated": None, "text": 0.0, "line17": -1.0, "code": 1.0}
SMALL = 3000  # bags up to which averaged SGD is at least as good as mini-batches, and fast enough
SMALL_TEXT = 20_000  # the same for text, where rare words mislead mini-batches and sparse steps are cheap
MOST_HELD_OUT = 2000


class Plan(NamedTuple):
    """What "auto" stands for, given the data."""

    solver: str
    max_iter: int
    patience: int
    batch_bags: int
    norm: float
    folds: int  # 0: none held out, 1: a part, more: that many folds
    share: float
    refit: bool


def make_plan(model: Any, n_bags: int, X: Any = None) -> Plan:
    """Fill in "auto" for a number of bags and, if known, their instances."""
    solver = model.solver
    if solver == "auto":
        few = n_bags <= SMALL or (X is not None and n_bags <= SMALL_TEXT and is_text(X))
        solver = "asgd" if few else "minibatch"
    by_batch = solver == "minibatch"
    usual = int(np.clip(2 ** (n_bags // 60).bit_length(), 16, 512))
    batch = usual if model.batch_size == "auto" else model.batch_size
    # enough passes for about 360 updates, which is where generated data of many shapes level off
    passes = int(np.clip(round(180_000 / n_bags), 5, 30)) if by_batch else 40
    norm = (15.0 if by_batch else 3.0) if model.feature_norm == "auto" else float(model.feature_norm)
    patience = {"sgd": 1}.get(solver, 5)
    folds, share = 1, 0.1
    if model.validation != "auto":
        whole = model.validation >= 1
        folds, share = (
            (int(model.validation), 0.0) if whole else (int(model.validation > 0), model.validation)
        )
    elif n_bags < 10:
        folds = 0
    elif solver != "sgd" and n_bags <= SMALL:
        folds, share = (3, 0.0) if n_bags <= 500 else (1, 0.2)
    else:
        share = min(share, MOST_HELD_OUT / n_bags)
    refit = (
        folds > 1 or (model.refit is True) or (model.refit == "auto" and solver != "sgd" and n_bags <= SMALL)
    )
    return Plan(
        solver,
        passes if model.max_iter == "auto" else model.max_iter,
        patience if model.n_iter_no_change == "auto" else model.n_iter_no_change,
        batch,
        norm,
        folds,
        share,
        refit,
    )


def check_parameters(model: Any) -> None:
    """Refuse settings without meaning."""
    for name, allowed in (("solver", SOLVERS), ("threshold_rule", RULES), ("scaling", ("auto", "none"))):
        if getattr(model, name) not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(model, name)!r}")
    for name in ("n_components", "n_sub_concepts", "batch_size", "max_iter", "n_iter_no_change"):
        value = getattr(model, name)
        if value != "auto" and (not isinstance(value, (int, np.integer)) or value < 1):
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    for name in ("max_norm", "step_size", "learning_rate", "feature_norm"):
        if getattr(model, name) != "auto" and not getattr(model, name) > 0:
            raise ValueError(f"{name} must be above 0, got {getattr(model, name)!r}")
    v = model.validation
    if v != "auto" and not (0 <= v < 1 or (v >= 2 and v == int(v))):
        raise ValueError(f"validation must be 'auto', a share below 1 or a number of folds, got {v!r}")
