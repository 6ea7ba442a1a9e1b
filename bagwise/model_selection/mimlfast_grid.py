"""Model selection for MIMLfast as in its paper: a grid, three folds, ranking loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from bagwise.bags import Bags
from bagwise.errors import DataError
from bagwise.model_selection.multilabel_kfold import MultilabelKFold
from bagwise.models._mimlfast_forward import Workers, fit_scaling, matching_form
from bagwise.models._mimlfast_plan import check_parameters, make_plan
from bagwise.models._mimlfast_train import LabelRows, initial_parameters, scaled_copy, train
from bagwise.models.mimlfast import MIMLFast
from bagwise.parallel import run
from bagwise.utils.progress import progress

PAPER_GRID: dict[str, Sequence[Any]] = {
    "n_components": (50, 100, 200),
    "max_norm": (1.0, 5.0, 10.0),
    "n_sub_concepts": (1, 5, 10, 15),
    "step_size": (1e-4, 5e-4, 1e-3, 5e-3),
    "step_decay": (1e-5, 1e-6),
}


@dataclass(frozen=True)
class MIMLFastSelection:
    """Outcome of `select_mimlfast`.

    Parameters
    ----------
    best_params : dict
        The setting of the lowest mean ranking loss, with ``max_iter`` set to the passes it took.
    best_loss : float
        That loss.
    table : list of dict
        One row per setting: its parameters, ``ranking_loss`` and ``n_iter``.
    best_estimator : MIMLFast or None
        Fitted with the best setting on all bags.
    """

    best_params: dict[str, Any]
    best_loss: float
    table: list[dict[str, Any]]
    best_estimator: Any


def select_mimlfast(
    X: Any,
    Y: Any,
    *,
    estimator: Any = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
    cv: int = 3,
    hopeless: float | None = 1.5,
    refit: bool = True,
    n_jobs: int | None = None,
    random_state: Any = 0,
    show_progress: bool = True,
) -> MIMLFastSelection:
    """Choose the settings of MIMLfast by cross-validated ranking loss.

    Folds, scaled instances and starting points are shared by all settings, and one run of a setting judges
    every number of passes at once, so passes need no axis of the grid. Settings that fall far behind are
    given up.

    Parameters
    ----------
    X : Bags or list of 2-D arrays
        The bags.
    Y : 0/1 matrix
        Their labels.
    estimator : MIMLFast, optional
        Carries all other settings; by default ``MIMLFast(solver="asgd")``.
    grid : mapping of str to values, optional
        By default that of the paper, 288 settings: `PAPER_GRID`.
    cv : int, default=3
        Folds.
    hopeless : float, optional
        A setting whose loss is more than this factor above the best one after a quarter of the passes is
        given up. None runs all to the end.
    refit : bool, default=True
        Whether to fit the best setting on all bags.
    n_jobs : int, optional
        Settings run at the same time.
    random_state : int, RandomState instance or None, default=0
        Seed of folds and starting points.
    show_progress : bool, default=True
        Whether to show a bar, on a terminal only.

    Returns
    -------
    MIMLFastSelection

    Examples
    --------
    >>> from bagwise.datasets.synthetic import make_miml
    >>> data = make_miml(n_bags=60, random_state=0)
    >>> grid = {"n_components": [10], "n_sub_concepts": [1, 2]}
    >>> choice = select_mimlfast(data.bags, data.Y, grid=grid)
    >>> len(choice.table), choice.best_estimator.n_components
    (2, 10)
    """
    base = clone(estimator) if estimator is not None else MIMLFast(solver="asgd", random_state=0)
    grid = dict(PAPER_GRID if grid is None else grid)
    unknown = sorted(set(grid) - set(base.get_params()))
    if unknown:
        raise ValueError(f"MIMLFast has no parameter {unknown[0]!r}")
    bags = X if isinstance(X, Bags) else Bags.from_list(X)
    Y = np.asarray(Y, dtype=np.int8)
    if Y.ndim != 2 or len(Y) != len(bags):
        raise DataError(f"Y must be a 0/1 matrix with {len(bags)} rows, one per bag; its shape is {Y.shape}")
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    held_out = [test for _, test in MultilabelKFold(cv, random_state=seed).split(bags, Y)]
    settings = [dict(zip(grid, values)) for values in product(*grid.values())]
    n_together = max(1, n_jobs or 1)
    table: list[dict[str, Any]] = []
    limit = np.inf
    shared: dict[Any, Any] = {}
    with progress("MIMLfast settings", len(settings), enabled=show_progress) as advance:
        for start in range(0, len(settings), n_together):
            some = settings[start : start + n_together]
            tasks = []
            for part in some:
                model = clone(base).set_params(**part)
                check_parameters(model)
                plan = make_plan(model, len(bags))
                key = (plan.solver, model.scaling)
                if key not in shared:
                    shared[key] = _prepare(model, plan, bags, held_out)
                tasks.append((model, plan, shared[key], Y, held_out, seed, limit))
            for part, (loss, n_iter) in zip(some, run(_judge, tasks, n_jobs=n_jobs)):
                table.append({**part, "ranking_loss": loss, "n_iter": n_iter})
                if hopeless is not None:
                    limit = min(limit, hopeless * loss)
                advance()
    best = min(table, key=lambda row: row["ranking_loss"])
    params = {name: best[name] for name in grid}
    fitted = clone(base).set_params(**params).fit(bags, Y) if refit else None
    return MIMLFastSelection({**params, "max_iter": best["n_iter"]}, best["ranking_loss"], table, fitted)


def _prepare(model, plan, bags, held_out):
    """Training bags of each fold, their scale and a scaled copy, which all settings share."""
    prepared = []
    workers = Workers(model.n_jobs)
    with workers.running():
        for test in held_out:
            ids = np.setdiff1d(np.arange(len(bags)), test)
            scaling = fit_scaling(bags[ids].X, model.scaling, plan.norm, workers)  # held-out bags stay unseen
            part = bags.with_X(matching_form(bags.X, scaling), bags.feature_names)
            copied = None
            if plan.solver != "minibatch":
                copied = (ids, *scaled_copy(model._forward(part, 1, scaling, plan, workers), ids))
            prepared.append((ids, scaling, part, copied))
    return prepared


def _judge(model, plan, prepared, Y, held_out, seed, limit):
    """Mean held-out ranking loss of a setting, and the passes that reach it."""
    workers = Workers(model.n_jobs)
    rows = LabelRows.from_matrix(Y)
    shape = (Y.shape[1] + 1, model.n_sub_concepts, model.n_components)
    trainers = []
    with workers.running():
        for ids, scaling, bags, copied in prepared:
            forward = model._forward(bags, Y.shape[1], scaling, plan, workers)
            forward.copied = copied
            state = initial_parameters(np.random.default_rng(seed), bags.n_features, *shape)
            rng = np.random.default_rng(seed + 1)
            trainers.append(model._trainer(plan, forward, rows, ids, state, rng, plan.max_iter))
        outcome = train(trainers, held_out, Y, plan.max_iter, plan.patience, limit)
    return min(outcome.history), outcome.n_epochs
