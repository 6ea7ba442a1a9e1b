"""Model selection for MIMLfast as in its paper: a grid, three folds, ranking loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from bagwise.bags import Bags
from bagwise.base.parameters import check_parameters
from bagwise.compute.threads import Workers, run
from bagwise.errors import DataError
from bagwise.models._shared.held_out import MultilabelKFold
from bagwise.models.mimlfast.estimator import MIMLFast
from bagwise.models.mimlfast.fit import (
    SUB_CONCEPTS,
    Learned,
    Plan,
    initial_state,
    make_plan,
    make_trainer,
    train,
)
from bagwise.models.mimlfast.fit_sgd import scaled_copy
from bagwise.models.mimlfast.predict import N_SLICES, in_form, learn_scale, make_forward
from bagwise.utils.progress import progress

PAPER_GRID: dict[str, Sequence[Any]] = {
    "n_components": (50, 100, 200),
    "max_norm": (1.0, 5.0, 10.0),
    "n_sub_concepts": (1, 5, 10, 15),
    "step_size": (1e-4, 5e-4, 1e-3, 5e-3),
    "step_decay": (1e-5, 1e-6),
}

_CHECKS = (0.025, 0.1, 0.3)  # shares of the passes after which the worst settings are given up
_SAME_STEP = 0.01  # steps that differ by less, all the way, count as the same
_ONLY = {  # settings that only some solvers read
    "sgd": ("step_size", "step_decay"),
    "asgd": ("step_size", "step_decay"),
    "minibatch": ("learning_rate", "batch_size"),
}


@dataclass(frozen=True)
class MIMLFastSelection:
    """Learned of `select_mimlfast`.

    Parameters
    ----------
    best_params : dict
        The setting of the lowest mean ranking loss, with ``max_iter`` set to the passes it took.
    best_loss : float
        That loss.
    table : list of dict
        One row per setting: its parameters, ``ranking_loss``, ``n_iter`` (the passes that reached it) and
        ``passes`` (those that were run: fewer for settings that were given up).
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
    keep: float | None = 1 / 3,
    refit: bool = True,
    n_jobs: int | None = None,
    random_state: Any = 0,
    show_progress: bool = True,
) -> MIMLFastSelection:
    """Choose the settings of MIMLfast by cross-validated ranking loss.

    Work is shared. Folds, scaled instances and starting points are those of all settings, and one run judges
    every number of passes at once, so passes need no axis of the grid. Settings that come to the same are run
    once: those that differ in the cap on norms, if the smaller cap was never met, or in a decay that changes
    the step by less than a hundredth, or in something that the solver does not read.

    Parameters
    ----------
    X : Bags or list of 2-D arrays
        The bags.
    Y : 0/1 matrix
        Their labels.
    estimator : MIMLFast, optional
        Carries all other settings; by default ``MIMLFast(solver="asgd")``.
    grid : mapping of str to values, optional
        By default that of the paper, 288 settings: `PAPER_GRID`. ``n_sub_concepts="auto"``, there or in the
        estimator, is searched as well.
    cv : int, default=3
        Folds.
    keep : float, optional
        Share of the settings that go on after a fortieth of the passes, and of these again after a tenth and
        after three tenths: the best ones so far (successive halving [1]_). None runs all to the end.
    refit : bool, default=True
        Whether to fit the best setting on all bags.
    n_jobs : int, optional
        Settings run at the same time; they do not change the outcome.
    random_state : int, RandomState instance or None, default=0
        Seed of folds and starting points.
    show_progress : bool, default=True
        Whether to show a bar, on a terminal only.

    Returns
    -------
    MIMLFastSelection

    References
    ----------
    .. [1] K. Jamieson, A. Talwalkar: Non-stochastic best arm identification and hyperparameter optimization.
       AISTATS 2016.

    Examples
    --------
    >>> from bagwise.datasets import make_miml
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
    # "auto" chooses by held-out bags within one fit; here the search itself does
    values = grid.get("n_sub_concepts", [base.n_sub_concepts])
    if "auto" in values:
        grid["n_sub_concepts"] = sorted({*SUB_CONCEPTS, *(value for value in values if value != "auto")})
    if keep is not None and not 0 < keep <= 1:
        raise ValueError(f"keep must be above 0 and at most 1, or None, got {keep!r}")
    bags = X if isinstance(X, Bags) else Bags.from_list(X)
    Y = np.asarray(Y, dtype=np.int8)
    if Y.ndim != 2 or len(Y) != len(bags):
        raise DataError(f"Y must be a 0/1 matrix with {len(bags)} rows, one per bag; its shape is {Y.shape}")
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    held_out = [test for _, test in MultilabelKFold(cv, random_state=seed).split(bags, Y)]
    settings = [dict(zip(grid, values)) for values in product(*grid.values())]
    shared: dict[Any, Any] = {}
    ways: list[tuple[MIMLFast, Plan, Any]] = []
    groups: dict[tuple, list[int]] = {}
    for place, part in enumerate(settings):
        model = clone(base).set_params(**part)
        check_parameters(model, model._parameters)
        plan = make_plan(model, len(bags), bags.X)
        key = (plan.solver, model.scaling, plan.norm)
        if key not in shared:
            shared[key] = _prepare(model, plan, bags, Y, held_out)
        ways.append((model, plan, shared[key]))
        groups.setdefault(_what_matters(model, plan, Y), []).append(place)

    table: list[dict[str, Any]] = [dict(part) for part in settings]
    going = set(range(len(settings)))
    reached: dict[int, Reached] = {}
    kept = 1.0 if keep is None else keep
    longest = max(plan.max_iter for _, plan, _ in ways)
    # with few passes two checks may fall on the same one: the second would know no more than the first
    by_passes = {max(1, round(share * longest)): share for share in (*_CHECKS, 1.0)}
    shares = tuple(by_passes.values()) if kept < 1 else (1.0,)
    with progress("MIMLfast settings", len(shares) * len(groups), enabled=show_progress) as advance:
        for share in shares:
            tasks, places = [], []
            for group in groups.values():
                some = [place for place in group if place in going]
                if some:
                    some.sort(key=lambda place: ways[place][0].max_norm)
                    so_far = [reached.pop(place, None) for place in some]
                    tasks.append(([ways[place] for place in some], so_far, Y, held_out, seed, share))
                    places.append(some)
            outcomes = run(_judge, tasks, n_jobs=n_jobs)
            for some, found in zip(places, outcomes):
                for place, (loss, n_iter, passes, state) in zip(some, found):
                    table[place] |= {"ranking_loss": loss, "n_iter": n_iter, "passes": passes}
                    if state is not None:
                        reached[place] = state
            advance(len(groups))
            if share < 1.0:
                ranked = sorted(going, key=lambda place: (table[place]["ranking_loss"], place))
                going = set(ranked[: max(1, round(kept * len(going)))])
    best = min((table[place] for place in sorted(going)), key=lambda row: row["ranking_loss"])
    params = {name: best[name] for name in grid}
    fitted = clone(base).set_params(**params).fit(bags, Y) if refit else None
    return MIMLFastSelection({**params, "max_iter": best["n_iter"]}, best["ranking_loss"], table, fitted)


def _what_matters(model: MIMLFast, plan: Plan, Y: np.ndarray) -> tuple:
    """What a run depends on, the cap on norms aside; equal for settings that come to the same."""
    ignored = {name for solver, names in _ONLY.items() for name in names} - set(_ONLY[plan.solver])
    params = {name: value for name, value in model.get_params().items() if name not in ignored}
    del params["max_norm"]
    if "step_decay" in params:
        # gamma_t = gamma_0 / (1 + eta gamma_0 t): below this limit the step does not fall by a hundredth
        n_steps = plan.max_iter * (int(np.count_nonzero(Y)) + len(Y))
        if model.step_decay * model.step_size * n_steps < _SAME_STEP:
            params["step_decay"] = 0.0
    return tuple(repr(value) for value in params.values())


def _prepare(model, plan, bags, Y, held_out):
    """Training bags of each fold, their scale and a scaled copy, which all settings share."""
    prepared = []
    with Workers(model.n_jobs, N_SLICES) as workers:
        for test in held_out:
            ids = np.setdiff1d(np.arange(len(bags)), test)
            scale = learn_scale(bags[ids].X, model.scaling, plan.norm)  # held-out bags stay unseen
            part = bags.with_X(in_form(bags.X, scale.text_like), bags.feature_names)
            copied = None
            if plan.solver != "minibatch":
                copied = (ids, *scaled_copy(make_forward(part, Y, scale, plan, workers), ids))
            prepared.append((ids, scale, part, copied))
    return prepared


class Reached(NamedTuple):
    """Where the passes of a setting have led: all that they go on from."""

    outcome: Learned
    capped: bool
    progress: list[Any]  # of every fold


def _judge(ways, so_far, Y, held_out, seed, share):
    """Least held-out ranking loss, the passes that reach it and those run, of settings with rising caps.

    The last is where a setting has come to, if it was run by itself and its passes can go on from there.
    """
    found: list[tuple[float, int, int, Reached | None]] = []
    last, capped = None, True
    for (model, plan, prepared), before in zip(ways, so_far):
        state = None
        if model.max_norm != last and capped:  # else the last run tells: a wider cap would change nothing
            passes = max(1, round(share * plan.max_iter))
            state = _cross_validate(model, plan, prepared, before, Y, held_out, seed, passes)
            history = state.outcome.history
            result = min(history), state.outcome.n_epochs, len(history)
            last, capped = model.max_norm, state.capped
        goes_on = state is not None and plan.solver != "minibatch" and share < 1.0
        found.append((*result, state if goes_on else None))
    return found


def _cross_validate(model, plan, prepared, before, Y, held_out, seed, passes):
    """Held-out losses, the best number of passes, and whether a norm ever met the cap."""
    trainers = []
    with Workers(model.n_jobs, N_SLICES) as workers:
        for fold, (ids, scale, bags, copied) in enumerate(prepared):
            forward = make_forward(bags, Y, scale, plan, workers)
            forward.copied = copied
            rng = np.random.default_rng(seed + 1)
            if before is None:
                state = initial_state(np.random.default_rng(seed), forward.shape, forward.n_inputs)
                trainers.append(make_trainer(plan, forward, ids, state, rng, plan.max_iter))
            else:
                progress = before.progress[fold]
                trainers.append(make_trainer(plan, forward, ids, progress[0], rng, plan.max_iter))
                trainers[-1].go_on_from(progress)
        outcome = train(
            trainers,
            held_out,
            Y,
            passes,
            plan.patience,
            before=None if before is None else before.outcome,
        )
    left = [trainer.progress for trainer in trainers] if plan.solver != "minibatch" else []
    return Reached(outcome, any(trainer.n_capped for trainer in trainers), left)
