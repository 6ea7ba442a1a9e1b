"""Settings of MIMLfast by cross-validation, as in its paper."""

import numpy as np
import pytest
from joblib import parallel_config

from bagwise.datasets import make_miml
from bagwise.model_selection import select_mimlfast
from bagwise.models.mimlfast.estimator import MIMLFast
from bagwise.models.mimlfast.tune import PAPER_GRID


@pytest.fixture(scope="module")
def data():
    return make_miml(n_bags=150, n_labels=5, n_features=8, random_state=0)


def test_grid_search(data):
    assert np.prod([len(values) for values in PAPER_GRID.values()]) == 288
    grid = {"n_components": [4, 12], "n_sub_concepts": [1], "step_size": [1e-7, 5e-3]}
    estimator = MIMLFast(solver="asgd", max_iter=8, random_state=0)
    choice = select_mimlfast(data.bags, data.Y, estimator=estimator, grid=grid, show_progress=False)
    assert len(choice.table) == 4
    assert choice.best_params["step_size"] == 5e-3
    assert choice.best_loss == min(row["ranking_loss"] for row in choice.table)
    assert choice.best_estimator.n_components == choice.best_params["n_components"]
    with pytest.raises(ValueError, match="gamma"):
        select_mimlfast(data.bags, data.Y, grid={"gamma": [1]})
    with pytest.raises(ValueError, match="keep"):
        select_mimlfast(data.bags, data.Y, keep=0.0)


def test_shared_work_changes_nothing(data):
    """Each setting on its own, in a grid of one, must give what it gives among the others."""
    bags, Y = data.bags[:60], data.Y[:60]
    estimator = MIMLFast(n_components=6, n_sub_concepts=1, solver="asgd", max_iter=4, random_state=0)
    grid = {"max_norm": [20.0, 0.5, 10.0], "step_size": [1e-3, 2e-2], "learning_rate": [0.1, 0.2]}
    settings = {"estimator": estimator, "refit": False, "show_progress": False}
    table = select_mimlfast(bags, Y, grid=grid, keep=None, **settings).table
    assert len(table) == 12
    for row in table:
        alone = {name: [row[name]] for name in grid}
        assert select_mimlfast(bags, Y, grid=alone, keep=None, **settings).table == [row]
    decays = select_mimlfast(bags, Y, grid={"step_decay": [1e-5, 1e-6, 10.0]}, keep=None, **settings).table
    losses = [row["ranking_loss"] for row in decays]
    assert losses[0] == losses[1] != losses[2]


def test_bad_settings_are_given_up(data):
    bags, Y = data.bags[:60], data.Y[:60]
    estimator = MIMLFast(n_components=6, n_sub_concepts=1, max_iter=10, n_iter_no_change=10, random_state=0)
    grid = {"solver": ["asgd"], "step_size": [1e-7, 1e-3, 5e-3, 2e-2, 1e-6, 1e-5]}
    some, full = (
        select_mimlfast(bags, Y, estimator=estimator, grid=grid, keep=keep, show_progress=False)
        for keep in (0.5, None)
    )
    assert sorted(row["passes"] for row in some.table) == [1, 1, 1, 3, 10, 10]
    assert all(row["passes"] == 10 for row in full.table)
    for a, b in zip(some.table, full.table):
        if a["passes"] == 10:
            assert a == b
    assert some.best_params == full.best_params
    with parallel_config("threading"):
        again = select_mimlfast(bags, Y, estimator=estimator, grid=grid, keep=0.5, n_jobs=2)
    assert again.table == some.table


def test_automatic_sub_concepts_are_searched(data):
    bags, Y = data.bags[:60], data.Y[:60]
    settings = {"keep": None, "refit": False, "show_progress": False}
    estimator = MIMLFast(n_components=6, max_iter=2, random_state=0)
    table = select_mimlfast(bags, Y, estimator=estimator, grid={"step_size": [5e-3]}, **settings).table
    assert [row["n_sub_concepts"] for row in table] == [1, 5]
    grid = {"n_sub_concepts": ["auto", 2]}
    table = select_mimlfast(bags, Y, estimator=estimator, grid=grid, **settings).table
    assert [row["n_sub_concepts"] for row in table] == [1, 2, 5]


def test_passes_that_go_on_are_those_of_one_run():
    from bagwise.models.mimlfast import tune as room

    data = make_miml(n_bags=40, n_labels=3, random_state=0)
    held_out = [np.arange(0, 20), np.arange(20, 40)]
    model = MIMLFast(solver="asgd", n_components=5, n_sub_concepts=2, random_state=0)
    plan = room.make_plan(model, len(data.bags), data.bags.X)

    def run(passes, before=None):
        prepared = room._prepare(model, plan, data.bags, data.Y, held_out)
        return room._cross_validate(model, plan, prepared, before, data.Y, held_out, 0, passes)

    whole = run(9)
    first = run(2)
    parts = run(9, run(5, first))
    assert parts.outcome.history == whole.outcome.history
    assert parts.outcome.n_epochs == whole.outcome.n_epochs
    assert parts.capped == whole.capped
