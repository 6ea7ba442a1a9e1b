"""MIMLfast's settings: what "auto" stands for."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bagwise.models._shared.scaling import is_text

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
    if folds > n_bags or (folds == 1 and n_held_out(share, n_bags) >= n_bags):
        raise ValueError(
            f"validation of MIMLFast leaves no bag to train on: {model.validation!r} with {n_bags} bags; "
            "give fewer folds, a smaller share, or 0 for none"
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


def n_held_out(share: float, n_bags: int) -> int:
    """Bags that a share stands for, at least one."""
    return max(1, round(share * n_bags))
