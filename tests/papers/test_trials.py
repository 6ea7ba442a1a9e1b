"""What notes of a suite say was tried: the fits behind it, and where it is shown."""

import json
from shutil import copytree

import pytest
from sklearn.model_selection import ParameterGrid

from bagwise.base.parameters import check_parameters
from bagwise.errors import DataError
from bagwise.registry import get_estimator
from papers.reproduce import reproduce
from papers.rows import Store
from papers.suites import find_experiments, paper_suite, papers, read_suite
from papers.tasks import tasks_of
from papers.trials import tasks_of_trial, trials_of

SUITE = """
title = "T"
[datasets.A]
load = "miml"
options = { n_bags = 40, n_labels = 3, random_state = 0 }
[datasets.B]
load = "miml"
options = { n_bags = 30, n_labels = 3, random_state = 0 }
models = { tuned = { params = { max_iter = 4 } } }
[methods.tuned]
estimator = "ORedLogisticRegression"
params = { max_iter = 5 }
steps = ["standard"]
search = { cv = 2, scoring = "average_precision", grid = { alpha = [0.1, 100.0] } }
short = { params = { max_iter = 3 } }
[methods.floor]
estimator = "MIMLDummy"
[protocols.folds]
kind = "folds"
n_splits = 3
short = { n_splits = 2 }
[tables.1]
title = "Quality"
protocol = "folds"
datasets = ["A", "B"]
methods = ["tuned", "floor"]
measures = ["hamming_loss", "ranking_loss"]
[[notes]]
experiments = ["1"]
methods = ["tuned"]
text = "That is why."
shared = { model = { search = false } }
changes = [
    { name = "other", model = { steps = false, params = { alpha = 7.0 } }, data = { options.n_bags = 20 } },
    { name = "top", model = { steps = false }, named = { hamming_loss = "hamming_loss_top" } },
]
"""

NOTE = """
[[notes]]
experiments = ["1"]
datasets = ["A"]
methods = ["ours"]
text = "The penalty is the reason."
tried = ["ranking_loss"]
shared = { model = { params = { max_iter = 5 } } }
changes = [
    { name = "penalty 1000", model = { params = { alpha = 1000.0 } } },
    { name = "halves", split = { kind = "holdout", train = 0.5, repeats = 2 } },
]
"""


@pytest.fixture
def suite(tmp_path):
    path = tmp_path / "t.toml"
    path.write_text(SUITE)
    return path


def test_a_change_is_the_same_fit_as_one_written_by_hand(suite, tmp_path):
    """Hashes of trials equal those of a suite whose methods and data are what the changes say."""
    hand = tmp_path / "hand.toml"
    hand.write_text(
        SUITE.partition("[[notes]]")[0]
        .replace('steps = ["standard"]\n', "")
        .replace('search = { cv = 2, scoring = "average_precision", grid = { alpha = [0.1, 100.0] } }\n', "")
        .replace("{ max_iter = 3 }", "{ max_iter = 3, alpha = 7.0 }")
        .replace("n_bags = 40", "n_bags = 20")
        .replace("n_bags = 30", "n_bags = 20")
    )
    ((own, experiment),), ((other, same),) = find_experiments(str(suite)), find_experiments(str(hand))
    found = list(trials_of(own, experiment))
    assert [(one.dataset, one.method, one.change) for one in found] == [
        ("A", "tuned", "other"),
        ("A", "tuned", "top"),
        ("B", "tuned", "other"),
        ("B", "tuned", "top"),
    ]
    of_changes = [task.digest for one in found[::2] for task in tasks_of_trial(own, one)]
    by_hand = [task.digest for task in tasks_of(other, same, short=True, methods=["tuned"])]
    assert of_changes == by_hand and len(of_changes) == 4


def test_names_narrow_what_is_tried(suite):
    ((own, experiment),) = find_experiments(str(suite))
    assert {one.dataset for one in trials_of(own, experiment, datasets={"B"})} == {"B"}
    assert list(trials_of(own, experiment, methods={"floor"})) == []


def test_a_change_with_a_strange_key_is_refused(suite):
    suite.write_text(SUITE.replace('name = "top", model', 'name = "top", modle'))
    own = read_suite(suite)
    with pytest.raises(
        DataError, match="the change 'top' of t:1 has no key 'modle'; keys are data, measures"
    ):
        list(trials_of(own, own.experiments["1"]))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "top", model', "model", "a change of a note of t:1 needs a name"),
        ('name = "top"', "name = 3", "needs a name, in words"),
        ('name = "top"', 'name = "other"', "two rows of a note of t:1 would be called 'other'"),
        ('name = "top"', 'name = "published"', "two rows .* would be called 'published'"),
        ("changes = [", 'changes = ["a"]\nunused = [', "has a key 'unused'"),
        ("shared = { model", "shared = { mdl", "shared of a note of t:1 has no key 'mdl'"),
        (
            'name = "top", model = { steps = false }',
            'name = "top", model = "x"',
            "model in a note of t:1 is a tab",
        ),
        (
            "named = { hamming_loss",
            "named = { hammingloss",
            "named in a note of t:1 has no key 'hammingloss'",
        ),
        (
            'text = "That is why."',
            'text = "x"\ntryed = ["ranking_loss"]',
            "has a key 'tryed'; did you mean 'tried'",
        ),
        (
            'text = "That is why."',
            'text = "x"\ndatasets = ["a"]',
            "names 'a', which is none of the suite's datasets",
        ),
        ('text = "That is why."', "", "a note has no 'text'"),
        (
            "params = { max_iter = 5 }",
            "settings = { alpha = [1.0] }",
            "'other' of t:1 sets alpha, .* change model.settings",
        ),
    ],
)
def test_notes_that_cannot_be_meant_are_refused(suite, old, new, said):
    assert old in SUITE
    suite.write_text(SUITE.replace(old, new))
    with pytest.raises(DataError, match=said):
        reproduce([str(suite)], suite.parent / "out", run=False)


def test_a_change_that_the_search_would_undo_is_refused(suite):
    suite.write_text(SUITE.replace("shared = { model = { search = false } }", ""))
    with pytest.raises(DataError, match=r"'other' of t:1 sets alpha, .* change model\.search\.grid"):
        reproduce([str(suite)], suite.parent / "out", run=False)


def test_a_change_may_be_about_some_measures_alone(suite):
    suite.write_text(SUITE.replace('name = "top"', 'name = "top", measures = ["hamming_loss"]'))
    ((own, experiment),) = find_experiments(str(suite))
    found = {one.change: one.experiment.spec["measures"] for one in trials_of(own, experiment)}
    assert found == {"other": ["hamming_loss", "ranking_loss"], "top": ["hamming_loss"]}


def test_a_measure_that_the_table_lacks_is_refused_before_anything_runs(suite):
    suite.write_text(SUITE.replace('text = "That is why."', 'text = "That is why."\ntried = ["coverage"]'))
    with pytest.raises(DataError, match="a note of t:1 tries 'coverage', which is no measure of the table"):
        reproduce([str(suite)], suite.parent / "out", reasons=True)
    assert not (suite.parent / "out").exists()


def test_a_note_that_names_no_table_is_about_all_of_them(suite):
    suite.write_text(SUITE.replace('[[notes]]\nexperiments = ["1"]', "[[notes]]"))
    ((own, experiment),) = find_experiments(str(suite))
    assert len(list(trials_of(own, experiment))) == 4


@pytest.mark.parametrize("paper", papers())
def test_what_papers_try_are_fits_that_can_run(paper):
    """Names of notes are those of the suite, every change has fits, and estimators take its values."""
    suite = paper_suite(paper)
    for note in suite.notes:
        assert set(note.get("experiments", ())) <= set(suite.experiments), note
        assert set(note.get("datasets", ())) <= set(suite.datasets), note
        assert set(note.get("methods", ())) <= set(suite.methods), note
    for experiment in suite.experiments.values():
        for trial in trials_of(suite, experiment):
            tasks = tasks_of_trial(suite, trial)
            assert tasks, trial
            for model in {task.setting: task.model for task in tasks}.values():
                grid = ParameterGrid(model.get("search", {}).get("grid", {}))
                for values in (grid[0], grid[len(grid) - 1]):
                    values = {name: value for name, value in values.items() if name != "divide"}
                    estimator = get_estimator(model["estimator"])(**{**model.get("params", {}), **values})
                    check_parameters(estimator, estimator._parameters)


def test_reasons_are_run_when_asked_for_and_shown_from_then_on(suite_file, tmp_path):
    """A table, its page, the summary and the rows beside them, without a fit of their own once there."""
    copytree(suite_file.parent, tmp_path / "small")
    with open(tmp_path / "small" / "small.toml", "a") as file:
        file.write(NOTE)
    target, out = f"{tmp_path / 'small' / 'small.toml'}:1", tmp_path / "out"
    page, summary = tmp_path / "p.md", tmp_path / "s.md"
    only = {"datasets": ["A"], "methods": ["ours"], "short": True, "n_jobs": 1}
    plain = reproduce([target], out, page=page, **only)
    assert plain["run"] == 3 and "Tried" not in page.read_text()
    done = reproduce([target], out, reasons=True, **only)
    assert (done["run"], done["known"], done["failed"]) == (5, 3, 0)
    again = reproduce([target], out, page=page, summary=summary, **only)
    assert again["run"] == 0
    (table,) = again["results"]
    names = ["penalty 1000", "halves"]
    assert [one.change for one in table.tried] == names
    assert [len(one.cell.values) for one in table.tried] == [3, 2]
    rows = list(Store(out).rows().values())
    heavy = [
        r["measures"]["ranking_loss"] for r in rows if json.loads(r["parameters"])["params"].get("alpha")
    ]
    assert table.tried[0].cell.mean == pytest.approx(sum(heavy) / 3)
    frame = table.frame()
    assert frame.column("change").to_pylist() == ["", "", *names]
    text = page.read_text(encoding="utf-8")
    assert "Tried with ours: Ranking loss ↓" in text and f"| {names[0]} " in text
    assert set(Store(page.with_suffix("")).rows()) == {row["hash"] for row in rows}
    assert "**Held.**" in summary.read_text(encoding="utf-8")


def test_a_measure_that_older_fits_lack_makes_them_run_again(suite, tmp_path):
    """Rows of an older source have no measure that came later; fits of this one do not run twice."""
    suite.write_text(
        SUITE.replace("shared = { model = { search = false } }", "")
        .replace('name = "top", model = { steps = false }, ', 'name = "top", ')
        .replace("model = { steps = false, params = { alpha = 7.0 } }, ", "")
    )
    out, only = tmp_path / "out", {"short": True, "datasets": ["A"], "methods": ["tuned"], "n_jobs": 1}
    reproduce([str(suite)], out, reasons=True, **only)
    store = Store(out)
    own = {
        digest for digest, row in store.rows().items() if json.loads(row["data"])["options"]["n_bags"] == 40
    }
    assert len(own) == 2
    old = [dict(row) for digest, row in store.rows().items() if digest in own]
    store.forget(own)
    for row in old:
        row["measures"] = {name: x for name, x in row["measures"].items() if name != "hamming_loss_top"}
        store.put({**row, "commit": "older"})
    done = reproduce([str(suite)], out, **only)
    assert done["run"] == 0 and [one.change for one in done["results"][0].tried] == ["other", "other", "top"]
    done = reproduce([str(suite)], out, reasons=True, **only)
    assert done["run"] == 2
    assert [one.change for one in done["results"][0].tried] == ["other", "other", "top", "top"]
    assert reproduce([str(suite)], out, reasons=True, **only)["run"] == 0


def test_pages_of_the_whole_protocol_compare_changes_with_the_short_run(suite, tmp_path):
    only = {"datasets": ["A"], "methods": ["tuned"], "n_jobs": 1}
    page = tmp_path / "p.md"
    short = reproduce([str(suite)], tmp_path / "out", short=True, reasons=True, page=page, **only)
    assert "--short --reasons" in page.read_text() and short["failed"] == 0
    whole = reproduce([str(suite)], tmp_path / "out", **only)
    cells = [[one.unchanged.mean for one in run["results"][0].tried] for run in (short, whole)]
    assert cells[0] == cells[1] and len(cells[0]) == 4
    assert cells[0][0] == short["results"][0].cells[0].mean != whole["results"][0].cells[0].mean
    beyond = tmp_path / "full.md"
    reproduce([str(suite)], tmp_path / "out", page=beyond, against_short=True, **only)
    text = beyond.read_text()
    assert "Tried" not in text and "--reasons" not in text and "that the short run lacks is a row" in text


def test_failed_changes_and_data_that_are_not_there_stop_no_other(suite, tmp_path):
    text = SUITE.replace("data = { options.n_bags = 20 }", 'data = { load = "nothing of this name" }')
    suite.write_text(
        text.replace("model = { steps = false }, named", "model = { params = { tol = -3 } }, named")
    )
    page, only = tmp_path / "p.md", {"datasets": ["A"], "methods": ["tuned"], "n_jobs": 1, "short": True}
    done = reproduce([str(suite)], tmp_path / "out", reasons=True, page=page, **only)
    assert (done["run"], done["failed"]) == (4, 2) and list(done["unavailable"]) == ["A"]
    assert "– (failed)" in page.read_text() and "tol" in page.read_text()
