"""The suite of all estimators at their defaults, and its page."""

import numpy as np
import pytest

from bagwise import all_estimators
from papers.methods import fit_model
from papers.pages.leaderboard import _without_rank
from papers.reproduce import reproduce
from papers.suites import find_experiments, own_suite, papers
from papers.tasks import repeats, split_bags, tasks_of

SMALL = """
title = "Leaderboard"
page = "leaderboard"
[datasets.A]
load = "digits"
options = { n_bags = 60, random_state = 0 }
[datasets.B]
load = "digits"
options = { n_bags = 60, random_state = 1 }
models = { forest = { absent = "too slow here" } }
[methods.ored]
estimator = "ORedLogisticRegression"
[methods.forest]
estimator = "PooledClassifier"
[methods."mean + logistic"]
estimator = "PooledClassifier"
params = { statistics = ["mean"] }
classifier = "logistic"
[methods.dummy]
estimator = "MIMLDummy"
[protocols.folds]
kind = "folds"
title = "2 folds"
stratify = "labels"
n_splits = 2
first_seed = 7
given_labels = true
[tables.labels]
title = "Sets of labels"
protocol = "folds"
datasets = ["A", "B"]
methods = ["ored", "forest", "mean + logistic", "dummy"]
measures = ["average_precision", "hamming_loss", "instance_accuracy_given_labels", "calibration_error"]
"""


def test_every_estimator_that_learns_from_bags_takes_part():
    methods = own_suite("leaderboard").methods.values()
    listed = {method["estimator"] for method in methods}
    # networks need torch, which the suites do without: docs/deep.md has their table
    traits = {name: cls.traits for name, cls in all_estimators()}
    wanted = {name for name, can in traits.items() if not can.instance_labels and not can.requires}
    assert wanted - listed <= {"MMMIL"}  # one label at a time: it stands there as OneVsRestMIL


def test_leaderboard_is_no_paper():
    assert "leaderboard" not in papers()
    assert next(e.id for _, e in find_experiments("leaderboard")) == "leaderboard:labels"


def test_seeds_begin_where_the_protocol_says():
    split = {"kind": "folds", "n_splits": 2, "seeds": 1, "first_seed": 100}
    assert list(repeats(split)) == [{"seed": 100, "fold": 0}, {"seed": 100, "fold": 1}]
    suite = own_suite("leaderboard")
    task = tasks_of(suite, suite.experiments["labels"], methods=["dummy"], datasets=["Birds"])[0]
    assert task.repeat["seed"] == 100 and "first_seed" not in task.split


def test_labels_are_spread_over_folds():
    rng = np.random.default_rng(0)
    Y = (rng.random((60, 4)) < [0.5, 0.2, 0.1, 0.1]).astype(int)
    split = {"kind": "folds", "n_splits": 3, "stratify": "labels"}
    counts = [Y[split_bags(split, Y, {"seed": 0, "fold": k})[1]].sum(axis=0) for k in range(3)]
    assert np.ptp(counts, axis=0).max() <= 2


def test_page_ranks_marks_the_best_and_says_what_was_not_run(tmp_path):
    suite = tmp_path / "small.toml"
    suite.write_text(SMALL)
    page = tmp_path / "docs" / "leaderboard.md"
    done = reproduce([str(suite)], tmp_path / "rows", page=page)
    assert done["failed"] == 0
    text = page.read_text()
    assert "Not run: forest on B: forest: too slow here" in text
    assert "Without a rank: forest (no value on B)" in text
    assert "not run" not in text.split("CPU seconds")[1], "a dash says it where no other reason is known"
    assert "CPU seconds of a fit" in text and "Calibration error ↓" in text
    lines = [line for line in text.splitlines() if line.startswith("| ored |")]
    assert lines[0].count("**") == 4  # best in both sets
    assert (tmp_path / "docs" / "leaderboard" / "small-labels.svg").read_text().startswith("<svg")


def test_page_names_once_what_was_not_run_at_all(tmp_path):
    suite, page = tmp_path / "small.toml", tmp_path / "leaderboard.md"
    suite.write_text(SMALL)
    for methods in (["ored"], ["dummy"], ["forest"]):
        reproduce([str(suite)], tmp_path / "rows", methods=methods)
    reproduce([str(suite)], tmp_path / "rows", run=False, page=page)
    text = page.read_text()
    assert "Without a rank: forest (no value on B)." in text
    assert "Not run on any of these data sets: mean + logistic." in text
    assert text.count("mean + logistic") == 2  # in the words at the top, and here


def test_only_known_classifiers_can_be_wrapped():
    with pytest.raises(ValueError, match="no classifier 'svm'"):
        fit_model({"estimator": "PooledClassifier", "classifier": "svm"}, None, np.zeros(3), 0)


def test_methods_that_lack_the_same_sets_are_named_together():
    left_out = {
        "A": ("Scene", "Reuters"),
        "B": ("Birds",),
        "C": ("Scene", "Reuters"),
        "D": ("Birds", "Scene", "Reuters"),
    }
    lines = _without_rank(left_out, ("Birds", "Scene", "Reuters"))
    assert lines == [
        "Without a rank: A, C (no value on Scene, Reuters); B (no value on Birds).",
        "Not run on any of these data sets: D.",
    ]
