"""Running: every row once, whatever stops the run, and figures that agree with a loop written by hand."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet as pq
import pytest
from sklearn.model_selection import KFold
from threadpoolctl import threadpool_info

import bagwise.utils.files
from bagwise.datasets import make_miml
from bagwise.errors import BagwiseError, DataError
from bagwise.metrics import ranking_loss
from bagwise.models import ORedLogisticRegression
from papers import rows as store_module
from papers.execute import execute
from papers.pages.layout import tally
from papers.pages.render import render
from papers.pages.statistics import marks, overall
from papers.results import results_of
from papers.rows import Fits, Store
from papers.run import run_tasks
from papers.suites import read_suite
from papers.tasks import tasks_of


@pytest.fixture(scope="module")
def suite(suite_file):
    return read_suite(suite_file)


@pytest.fixture(scope="module")
def finished(suite, tmp_path_factory):
    """Store with all experiments of the small suite."""
    store = Store(tmp_path_factory.mktemp("store"))
    tasks = [t for e in suite.experiments.values() for t in tasks_of(suite, e)]
    outcome = run_tasks(tasks, store)
    assert outcome.n_run == len({t.digest for t in tasks}) and outcome.n_failed == 6
    return store


def cells_of(suite, name, store, **more):
    (table,) = results_of(suite, suite.experiments[name], store.rows(), **more)
    return table


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_cell_equals_a_loop_written_by_hand(suite, finished):
    table = cells_of(suite, "1", finished)
    data = make_miml(n_bags=50, n_labels=3, random_state=1)
    by_hand, right = [], []
    for train, test in KFold(3, shuffle=True, random_state=0).split(data.Y):
        model = ORedLogisticRegression(max_iter=20, random_state=0).fit(data.bags[train], data.Y[train])
        by_hand.append(ranking_loss(data.Y[test], model.decision_function(data.bags[test])))
        truth = data[test].instance_Y
        hits = (model.annotate(data.bags[test]) == truth)[truth >= 0]  # background has no label to hit
        right.append(100 * np.mean(hits))
    cell = table.cell("B", "ours", "ranking_loss")
    assert np.allclose(cell.values, by_hand) and cell.keys == tuple(f"seed 0, fold {k}" for k in range(3))
    assert np.isclose(cell.mean, np.mean(by_hand)) and np.isclose(cell.std, np.std(by_hand, ddof=1))
    accuracy = table.cell("B", "ours", "instance_accuracy_inductive_percent")
    assert np.allclose(accuracy.values, right)
    assert cell.fit_seconds > 0 and cell.predict_seconds > 0


def test_holes_say_why(suite, finished):
    table = cells_of(suite, "1", finished)
    assert table.cell("C", "ours", "ranking_loss").missing == "C: nobody has it"
    assert table.cell("A", "other", "ranking_loss").missing == "other: not implemented yet"
    assert "alpha of ORedLogisticRegression must be" in table.cell("A", "broken", "ranking_loss").missing
    assert cells_of(suite, "1", Store("nowhere")).cell("A", "ours", "ranking_loss").missing == "not run"


def test_published_figures_and_notes(suite, finished):
    table = cells_of(suite, "1", finished)
    cell = table.cell("A", "ours", "ranking_loss")
    assert (cell.published_mean, cell.published_std, cell.inside) == (0.9, 0.01, "better")
    assert cell.note == "Generated data."
    assert table.cell("B", "ours", "ranking_loss").note == "Said by hand."
    assert table.cell("A", "floor", "ranking_loss").published_mark == "worse"
    assert table.cell("A", "floor", "ranking_loss").inside == "inside"
    assert table.reference == "ours"


def test_the_best_setting_is_reported_as_tuning_on_the_test_would(suite, finished):
    table = cells_of(suite, "1", finished)
    rows = finished.rows()
    by_setting = {}
    for task in tasks_of(suite, suite.experiments["1"], methods=["tuned"], datasets=["A"]):
        measures = rows[task.digest]["measures"]
        by_setting.setdefault(task.setting, []).append(
            (measures["ranking_loss"], measures["instance_accuracy"])
        )
    best = min(by_setting.values(), key=lambda values: np.mean([loss for loss, _ in values]))
    assert np.isclose(table.cell("A", "tuned", "ranking_loss").mean, np.mean([v[0] for v in best]))
    accuracy = table.cell("A", "tuned", "instance_accuracy_inductive_percent").mean
    assert np.isclose(accuracy, 100 * np.mean([v[1] for v in best]))


def test_search_inside_the_training_bags_is_recorded(suite, finished):
    task = tasks_of(suite, suite.experiments["3"], methods=["searched"])[0]
    assert json.loads(finished.rows()[task.digest]["chosen"])["alpha"] in (0.1, 100.0)


def test_figures_have_one_panel_per_data_set_and_measure(suite, finished):
    panels = results_of(suite, suite.experiments["fig1"], finished.rows())
    assert [panel.id for panel in panels] == [f"small:fig1{letter}" for letter in "abcd"]
    curve = panels[0].curves[0]
    assert curve.name == "ours" and curve.x == (0.3, 0.6) and curve.mean[1] < panels[0].curves[1].mean[1]


def test_counts(suite, finished):
    cell = cells_of(suite, "2", finished).cell("A", "-", "n_bags")
    assert (cell.mean, cell.published_mean, cell.inside) == (40.0, 40.0, "")


def test_rows_and_predictions_are_kept(suite, finished):
    table = pq.read_table(finished.table)
    assert table.num_rows == len(set(table.column("hash").to_pylist()))
    assert not list(finished.finished.folder.iterdir())
    task = tasks_of(suite, suite.experiments["1"], methods=["ours"], datasets=["A"])[0]
    row = finished.rows()[task.digest]
    with np.load(finished.predictions / f"{task.digest}.npz") as kept:
        Y = make_miml(n_bags=40, n_labels=3, random_state=0).Y[kept["test"]]
        assert np.isclose(ranking_loss(Y, kept["scores"]), row["measures"]["ranking_loss"])
    assert json.loads(row["versions"])["numpy"] == np.__version__
    loops = {one["architecture"] for one in threadpool_info() if one["user_api"] == "blas"}
    assert all(name in json.loads(row["versions"])["blas"] for name in loops)
    assert row["peak_mb"] is None or row["peak_mb"] >= 0


def test_nothing_runs_twice_and_failures_only_on_request(suite, finished, tmp_path):
    tasks = tasks_of(suite, suite.experiments["1"], datasets=["A"])
    before = finished.rows()
    outcome = run_tasks(tasks, finished)
    assert (outcome.n_run, outcome.n_known) == (0, len(tasks)) and finished.rows() == before
    outcome = run_tasks(tasks, finished, retry=True)
    assert (outcome.n_run, outcome.n_failed) == (3, 3)
    assert set(finished.rows()) == set(before)


def test_any_number_of_jobs_gives_the_same_figures(suite, finished, tmp_path):
    tasks = tasks_of(suite, suite.experiments["1"], datasets=["A"], methods=["ours", "floor"])
    store = Store(tmp_path)
    seen = []
    run_tasks(tasks, store, n_jobs=2, step=lambda n, text, total: seen.append((n, text, total)))
    assert [n for n, _, _ in seen] == [0, 1, 1, 1, 1, 1, 1] and seen[-1][1].startswith("6 of 6 fits")
    known = finished.rows()
    for digest, row in store.rows().items():
        assert row["measures"] == pytest.approx(known[digest]["measures"])


def test_a_set_that_cannot_be_loaded_is_named_and_leaves_no_row(suite, tmp_path, monkeypatch):
    def refuse(spec, seed):
        raise DataError("file is gone")

    monkeypatch.setattr("papers.run.load_problem", refuse)
    tasks = tasks_of(suite, suite.experiments["1"], datasets=["A"])
    outcome = run_tasks(tasks, Store(tmp_path))
    assert outcome.unavailable == {"A": "file is gone"} and not Store(tmp_path).rows()
    table = cells_of(suite, "1", Store(tmp_path), unavailable=outcome.unavailable)
    assert table.cell("A", "ours", "ranking_loss").missing == "file is gone"


def test_two_runs_do_not_share_a_folder(tmp_path):
    store = Store(tmp_path)
    with store.locked(), pytest.raises(BagwiseError, match="another run is at work"), store.locked():
        pass


def test_a_broken_file_of_rows_is_named(tmp_path):
    (tmp_path / "rows.parquet").write_bytes(b"no parquet")
    with pytest.raises(DataError, match=r"rows\.parquet cannot be read"):
        Store(tmp_path).rows()


def filled(folder):
    store = Store(folder)
    for k in range(3):
        store.put({"hash": f"h{k}", "measures": {"m": k / 7, "nan": float("nan")}, "error": ""})
    return store


def test_a_flipped_byte_never_changes_a_figure(tmp_path):
    """Every byte of the table in turn: the rows are the same, or an error names the file."""
    store = filled(tmp_path)
    store.gather()
    content, before = store.table.read_bytes(), str(store.rows())
    refused = 0
    for k in range(len(content)):
        store.table.unlink()  # to write over a file may wait for the disk
        store.table.write_bytes(content[:k] + bytes([content[k] ^ 0x10]) + content[k + 1 :])
        try:
            assert str(store.rows()) == before
        except DataError as error:
            assert "rows.parquet" in str(error)
            refused += 1
    assert refused > len(content) / 2


@pytest.mark.parametrize("content", ["", "{", "[]", "7", '{"hash": "h1"}', '{"hash": "h1", "measures": 3}'])
def test_a_damaged_finished_fit_runs_again(tmp_path, content):
    store = filled(tmp_path)
    (store.finished.folder / "h1.json").write_text(content)
    with pytest.warns(UserWarning, match=r"h1\.json is damaged; its fit will run again"):
        assert set(store.rows()) == {"h0", "h2"}


def test_a_changed_finished_fit_is_damaged_too(tmp_path):
    store = filled(tmp_path)
    path = store.finished.folder / "h1.json"
    path.write_text(path.read_text().replace("0.142857", "0.942857"))
    with pytest.warns(UserWarning, match="damaged"):
        assert "h1" not in store.rows()


def test_a_foreign_table_is_never_overwritten(tmp_path):
    table = pyarrow.table({"hash": ["x"], "price": [3.0]})
    pq.write_table(table, tmp_path / "rows.parquet")
    before = (tmp_path / "rows.parquet").read_bytes()
    store = filled(tmp_path)
    for act in (store.rows, store.gather, lambda: store.forget({"h1"})):
        with pytest.raises(DataError, match=r"no table of finished fits .*price"):
            act()
    assert (tmp_path / "rows.parquet").read_bytes() == before and len(store.finished.keys()) == 3


def test_tables_of_before_checksums_are_read(tmp_path):
    store = filled(tmp_path)
    store.gather()
    table = pq.read_table(store.table).replace_schema_metadata(None)
    pq.write_table(table, store.table)
    assert set(store.rows()) == {"h0", "h1", "h2"}


def test_an_error_keeps_type_message_and_place(suite):
    (task, *_) = tasks_of(suite, suite.experiments["1"], methods=["broken"])
    row, predictions = execute(task)
    assert (
        row["error"].startswith("ValueError: alpha of ORedLogisticRegression must be")
        and "line" in row["error"]
    )
    assert not predictions


# ---------------------------------------------------------------------- being stopped


class Killed(BaseException):
    """Stands for the end of the process."""


def test_a_stop_at_any_file_operation_loses_and_doubles_nothing(tmp_path, monkeypatch):
    """The run dies at the k-th rename or removal, for every k; what was reported as kept is there, once."""
    rows = [{"hash": f"h{k}", "measures": {"m": k / 7}, "error": ""} for k in range(6)]
    real = {"replace": os.replace, "unlink": Path.unlink}

    def session(folder, limit):
        count, kept = 0, []

        def counted(name):
            def call(*args, **more):
                nonlocal count
                count += 1
                if count > limit:
                    raise Killed
                return real[name](*args, **more)

            return call

        with monkeypatch.context() as patch:
            patch.setattr(bagwise.utils.files.os, "replace", counted("replace"))
            patch.setattr(store_module.Path, "unlink", counted("unlink"))
            patch.setattr(bagwise.utils.files.shutil, "rmtree", lambda *a, **k: None)  # nobody tidies up
            store = Store(folder)
            try:
                for k, row in enumerate(rows):
                    store.put(row, {"scores": np.arange(k)})
                    kept.append(row["hash"])
                    if k in (2, 4):
                        store.gather()
                store.gather()
            except Killed:
                pass
        return kept, count

    _, total = session(tmp_path / "whole", 10**9)
    assert total > 12
    for limit in range(total + 1):
        folder = tmp_path / str(limit)
        kept, _ = session(folder, limit)
        store = Store(folder)
        with store.locked():
            found = store.rows()
            assert set(kept) <= set(found) <= {row["hash"] for row in rows}
            assert all(
                found[row["hash"]]["measures"] == row["measures"] for row in rows if row["hash"] in found
            )
            store.gather()
        table = pq.read_table(store.table) if found else None
        if table is not None:
            hashes = table.column("hash").to_pylist()
            assert sorted(hashes) == sorted(found)
            assert all((store.predictions / f"{hash}.npz").exists() for hash in hashes)
        assert not [path for path in folder.rglob(".*") if path.name != ".lock"]


RUN = """
import os, sys
from papers.run import run_tasks
from papers.rows import Store
from papers.suites import read_suite
from papers.tasks import tasks_of
suite = read_suite(sys.argv[1])
tasks = [t for e in suite.experiments.values() for t in tasks_of(suite, e)]
for line in sys.stdin:  # imports are done once: every line asks for a run in a child
    n_jobs, folder = line.rstrip("\\n").split(" ", 1)
    child = os.fork()
    if not child:
        os.setsid()
        print(os.getpid(), flush=True)
        run_tasks(tasks, Store(folder), n_jobs=int(n_jobs))
        os._exit(0)
    print("ended", os.waitpid(child, 0)[1], flush=True)
"""


@pytest.fixture(scope="module")
def helper(suite_file):
    """A process that runs the suite in children, as often as it is told to."""
    command = [sys.executable, "-c", RUN, str(suite_file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs a system with signals")
@pytest.mark.parametrize(("n_jobs", "kills"), [(1, 5), (2, 3)])
def test_killed_at_random_moments_then_finished(helper, suite, tmp_path, n_jobs, kills):
    """kill -9 again and again: finished tasks keep their rows to the last digit, and every task has one."""
    store, rng = Store(tmp_path / "store"), random.Random(n_jobs)
    known = {}
    for attempt in range(kills + 1):
        print(n_jobs, store.folder, file=helper.stdin, flush=True)
        child = int(helper.stdout.readline())
        if attempt < kills:
            time.sleep(rng.uniform(0.0, 1.5))
            with contextlib.suppress(ProcessLookupError):  # done already
                os.killpg(child, signal.SIGKILL)
        status = int(helper.stdout.readline().split()[1])
        found = store.rows()
        for digest, row in known.items():
            assert found[digest] == row  # the clock in it shows that it was not run again
        known = found
    assert status == 0
    wanted = {t.digest for e in suite.experiments.values() for t in tasks_of(suite, e)}
    hashes = pq.read_table(store.table).column("hash").to_pylist()
    assert sorted(hashes) == sorted(wanted)


# ---------------------------------------------------------------------- stopped runs


def stopped(finished, suite, method, keep):
    """Rows of table 1 where only the fits that ``keep(task)`` names are there, for one method on set A."""
    rows = dict(finished.rows())
    tasks = tasks_of(suite, suite.experiments["1"], methods=[method], datasets=["A"])
    for task in tasks:
        if not keep(task):
            rows.pop(task.digest, None)
    (table,) = results_of(suite, suite.experiments["1"], rows)
    return table


def test_a_stopped_run_gives_no_verdict(suite, finished):
    table = stopped(finished, suite, "ours", lambda task: task.repeat["fold"] == 0)
    cell = table.cell("A", "ours", "ranking_loss")
    assert cell.count == (1, 3) and cell.mean is not None and cell.inside == "" and cell.note == ""
    assert "1 of 3 fits" in cell.reason
    whole = cells_of(suite, "1", finished).cell("A", "ours", "ranking_loss")
    assert whole.count is None and whole.inside == "better"
    text = render(table, "text")
    assert "(1 of 3)" in text and "unfinished" in text
    # nor do others get a mark beside it, and it ranks nowhere
    assert marks(table)["A", "floor", "ranking_loss"] == ""
    assert "A" not in overall(table, "ranking_loss").datasets
    assert tally(table)["unfinished"] == 2, "both measures"


def test_settings_compete_only_when_complete(suite, finished):
    """One fold of a lucky setting must not win over another that has all of them."""
    tasks = tasks_of(suite, suite.experiments["1"], methods=["tuned"])
    for alpha in {json.loads(task.setting)["params"]["alpha"] for task in tasks}:

        def keep(task, alpha=alpha):
            return json.loads(task.setting)["params"]["alpha"] == alpha or task.repeat["fold"] == 0

        cell = stopped(finished, suite, "tuned", keep).cell("A", "tuned", "ranking_loss")
        assert cell.mean is None and cell.count == (4, 6) and cell.inside == ""
    whole = cells_of(suite, "1", finished).cell("A", "tuned", "ranking_loss")
    assert whole.count is None and len(whole.values) == 3


def test_a_setting_that_failed_is_out_and_the_others_compete(suite, finished):
    rows = dict(finished.rows())
    tasks = tasks_of(suite, suite.experiments["1"], methods=["tuned"], datasets=["A"])
    losses = {}
    for task in tasks:
        losses.setdefault(task.setting, []).append(rows[task.digest]["measures"]["ranking_loss"])
    best = min(losses, key=lambda setting: np.mean(losses[setting]))
    broken = next(t for t in tasks if t.setting == best)
    rows[broken.digest] = {**rows[broken.digest], "error": "ValueError: no"}
    (table,) = results_of(suite, suite.experiments["1"], rows)
    cell = table.cell("A", "tuned", "ranking_loss")
    (other,) = (values for setting, values in losses.items() if setting != best)
    assert cell.count is None and np.isclose(cell.mean, np.mean(other))


def test_points_of_a_curve_are_whole_or_absent(suite, finished):
    rows = dict(finished.rows())
    tasks = tasks_of(suite, suite.experiments["fig1"], methods=["ours"], datasets=["A"])
    rows.pop(next(task.digest for task in tasks if task.x == 0.6))
    panel = results_of(suite, suite.experiments["fig1"], rows)[0]
    assert panel.curves[0].x == (0.3,) and panel.curves[1].x == (0.3, 0.6)
    assert any("some of their fits are missing: 1 points" in remark for remark in panel.remarks)


def test_rows_of_other_machines_merge(suite, finished, tmp_path):
    """Half of the fits here, half there, one of them failed here: together they are the whole run."""
    rows = finished.rows()
    hashes = sorted(rows)
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    for k, digest in enumerate(hashes):
        for store, some in ((here, k % 2 == 0), (there, k % 2 == 1 or k == 0)):
            if some:
                failed = {"error": "Stopped: by hand", "measures": {}} if store is here and k == 0 else {}
                store.put({**rows[digest], **failed}, {"scores": np.zeros(2)})
    there.gather()
    fixed = int(rows[hashes[0]]["error"] == "")
    assert here.merge(tmp_path / "there") == len(hashes) // 2 + fixed
    assert here.rows() == rows
    assert {path.stem for path in here.predictions.glob("*.npz")} == set(hashes)
    assert here.merge(tmp_path / "there") == 0
    with pytest.raises(BagwiseError, match="no folder"):
        here.merge(tmp_path / "nowhere")


def test_a_single_run_is_judged_by_the_error_of_a_share():
    fits = Fits({"x": {"measures": {"n_annotated": 400.0}}}, {})
    task = type("T", (), {"digest": "x"})
    error = fits.error_of_share([task], [90.0], "instance_accuracy_transductive_percent")
    assert error == pytest.approx(100 * (0.9 * 0.1 / 400) ** 0.5)
    assert fits.error_of_share([task], [0.9], "instance_accuracy") == pytest.approx(error / 100)
    assert fits.error_of_share([task], [0.9], "ranking_loss") is None
    assert fits.error_of_share([task, task], [0.9, 0.8], "instance_accuracy") is None
