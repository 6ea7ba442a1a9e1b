"""Whether rows are still what the present version gives: rows that tell another tale than a fit are found."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from bagwise.errors import BagwiseError, DataError
from papers.__main__ import app
from papers.reproduce import reproduce
from papers.rows import Store
from papers.run import run_tasks, verify
from papers.suites import find_experiments, read_suite
from papers.tasks import tasks_of
from papers.trials import tasks_of_trial, trials_of

TRIED = """
title = "T"
[datasets.A]
load = "miml"
options = { n_bags = 30, n_labels = 3, random_state = 0 }
[methods.ours]
estimator = "ORedLogisticRegression"
params = { max_iter = 5 }
[protocols.folds]
kind = "folds"
n_splits = 2
[tables.1]
title = "Quality"
protocol = "folds"
datasets = ["A"]
methods = ["ours"]
measures = ["ranking_loss"]
[[notes]]
methods = ["ours"]
text = "That is why."
changes = [{ name = "other", model = { params = { alpha = 7.0 } } }]
"""


@pytest.fixture
def suite(suite_file):
    return read_suite(suite_file)


@pytest.fixture
def tasks(suite):
    return tasks_of(suite, suite.experiments["1"], datasets=["A"])


@pytest.fixture
def store(tasks, tmp_path):
    store = Store(tmp_path / "out")
    run_tasks(tasks, store)
    return store


def spoil(store, task, **measures):
    """As if an older version had written the row: these measures differ, others are left out with None."""
    row = store.rows()[task.digest]
    told = {**row["measures"], **{name: value for name, value in measures.items() if value is not None}}
    for name in (name for name, value in measures.items() if value is None):
        del told[name]
    store.forget({task.digest})
    store.put({**row, "measures": told})


def test_rows_of_this_version_come_out_the_same(tasks, store):
    seen = []
    before = store.rows()
    verdict = verify(tasks, store, step=lambda *said: seen.append(said))
    # ours, the floor and two settings of tuned; what failed is left out
    assert verdict.n_cells == 4 and verdict.changed == [] and store.rows() == before
    assert seen[0] == (0, "0 of 4 cells fitted again, 0 changed", 4)
    assert seen[-1] == (1, "4 of 4 cells fitted again, 0 changed", 4)


def test_a_row_that_says_something_else_puts_its_cell_in_doubt(tasks, store):
    ours = [task for task in tasks if task.method == "ours"]
    loss = store.rows()[ours[0].digest]["measures"]["ranking_loss"]
    spoil(store, ours[0], ranking_loss=loss + 0.25, calibration_error=None, lost=1.0)
    (change,) = verify(tasks, store).changed
    assert change.task == ours[0] and change.hashes == {task.digest for task in ours} and change.error == ""
    assert set(change.measures) == {"ranking_loss", "lost"}, "a measure that the row lacks is no difference"
    assert np.allclose(change.measures["ranking_loss"], (loss + 0.25, loss))
    assert change.measures["lost"][0] == 1.0 and np.isnan(change.measures["lost"][1])


def test_rounding_is_no_difference_and_other_repeats_are_not_looked_at(tasks, store):
    ours = [task for task in tasks if task.method == "ours"]
    loss = store.rows()[ours[0].digest]["measures"]["ranking_loss"]
    spoil(store, ours[0], ranking_loss=loss * (1 + 1e-9))
    spoil(store, ours[1], ranking_loss=0.99)
    assert verify(tasks, store).changed == []


def test_a_fit_that_fails_now_is_told(tasks, store, monkeypatch):
    def refuse(*args):
        raise DataError("no more")

    monkeypatch.setattr("papers.execute.fit_model", refuse)
    changed = verify(tasks, store).changed
    assert len(changed) == 4 and all("no more" in change.error for change in changed)


def test_sets_that_are_not_at_hand_are_left_out(tasks, store, monkeypatch):
    def refuse(spec, seed):
        raise DataError("file is gone")

    monkeypatch.setattr("papers.run.load_problem", refuse)
    verdict = verify(tasks, store)
    assert (verdict.n_cells, verdict.changed) == (0, [])


def test_rows_that_are_not_run_anew_are_kept(tmp_path):
    """What was tried is looked at, dropped and run again with --reasons alone."""
    target, out = tmp_path / "tried.toml", tmp_path / "out"
    target.write_text(TRIED)
    first = reproduce([str(target)], out, reasons=True)
    store = Store(out)
    ((suite, one),) = find_experiments(str(target))
    (trial,) = trials_of(suite, one)
    (task, *_) = tasks_of_trial(suite, trial)
    spoil(store, task, ranking_loss=0.875)
    before = store.rows()
    done = reproduce([str(target)], out, verify=True, retry=True)
    assert (done["verified"], done["changed"], done["run"]) == (1, [], 0) and store.rows() == before
    done = reproduce([str(target)], out, verify=True, retry=True, reasons=True)
    assert (done["verified"], len(done["changed"]), done["run"]) == (2, 1, 2) and first["run"] == 4
    assert store.rows().keys() == before.keys()
    assert store.rows()[task.digest]["measures"]["ranking_loss"] < 0.875


def test_to_verify_and_to_run_nothing_do_not_go_together(suite_file, tmp_path):
    with pytest.raises(BagwiseError, match="--verify runs fits again, and --show runs none"):
        reproduce([str(suite_file)], tmp_path, verify=True, run=False)


def test_json_says_what_changed(suite_file, tasks, store):
    ours = next(task for task in tasks if task.method == "ours")
    spoil(store, ours, lost=1.0)
    words = [f"{suite_file}:1", "--methods", "ours", "--out", str(store.folder)]
    done = CliRunner().invoke(app, [*words, "--verify", "--json"])
    (changed,) = json.loads(done.output, parse_constant=pytest.fail)["changed"]
    assert (changed["dataset"], changed["method"], changed["fits"]) == ("A", "ours", 3)
    assert changed["measures"] == {"lost": [1.0, None]}


def test_the_command_says_what_changed_and_runs_it_anew(suite_file, tasks, store):
    def typed(*words):
        target = f"{suite_file}:1"
        asked = [target, "--datasets", "A", "--methods", "ours", "--out", str(store.folder)]
        done = CliRunner().invoke(app, [*asked, *words])
        assert done.exit_code == 0, done.output
        return " ".join(done.output.split())

    ours = [task for task in tasks if task.method == "ours"]
    loss = store.rows()[ours[0].digest]["measures"]["ranking_loss"]
    assert "1 cell fitted again, 0 came out otherwise" in typed("--verify")
    spoil(store, ours[0], ranking_loss=0.875)
    told = typed("--verify")
    assert f"ours on A: ranking_loss {loss:.4g} instead of 0.875" in told
    assert "1 came out otherwise; --retry runs all their fits anew" in told and "0 fits run now" in told
    told = typed("--verify", "--retry")
    assert "their fits were run anew" in told and "3 fits run now" in told
    assert store.rows()[ours[0].digest]["measures"]["ranking_loss"] == pytest.approx(loss)
    assert "0 came out otherwise" in typed("--verify")
    assert '"changed": []' in typed("--verify", "--json")
