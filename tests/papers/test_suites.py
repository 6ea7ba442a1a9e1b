"""Suites and tasks: what is read, what runs, and what the hash depends on."""

import csv
import json
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest
from scipy import stats

from bagwise.errors import BagwiseError, DataError
from bagwise.registry import get_estimator
from papers.problems import load_problem, status_of
from papers.reproduce import reproduce
from papers.suites import find_experiments, paper_suite, papers, read_suite, shortened
from papers.tasks import repeats, split_bags, tasks_of


def tasks(suite_file, name, **more):
    suite = read_suite(suite_file)
    return tasks_of(suite, suite.experiments[name], **more)


def test_tasks_are_the_product_of_what_exists(suite_file):
    found = tasks(suite_file, "1")
    # C and "other" do not exist; "tuned" has two settings
    assert len(found) == 2 * (1 + 2 + 1 + 1) * 3
    assert {t.dataset for t in found} == {"A", "B"} and "other" not in {t.method for t in found}
    assert len({t.digest for t in found}) == len(found)
    assert len(tasks(suite_file, "1", short=True)) == 2 * 4 * 3
    assert len(tasks(suite_file, "1", methods=["ours"], datasets=["B"])) == 3


def test_tables_that_need_the_same_fit_share_it(suite_file):
    first = {t.digest for t in tasks(suite_file, "1") if t.dataset == "A" and t.method == "ours"}
    assert first == {t.digest for t in tasks(suite_file, "3") if t.method == "ours"}


def test_hash_depends_on_what_decides_the_outcome_and_on_nothing_else(suite_file):
    task = tasks(suite_file, "1")[0]
    assert replace(task, dataset="other name", method="other name", x=3.0).digest == task.digest
    for change in (
        {"data": task.data | {"options": {"n_bags": 41}}},
        {"model": task.model | {"params": {"max_iter": 21}}},
        {"split": task.split | {"n_splits": 4}},
        {"repeat": {"seed": 1, "fold": 0}},
    ):
        assert replace(task, **change).digest != task.digest
    # the order in which a file names settings does not matter
    turned = dict(reversed(list(task.model.items())))
    assert replace(task, model=turned).digest == task.digest


def test_short_runs_keep_the_repeats_that_they_share_with_long_ones(suite_file):
    long, short = tasks(suite_file, "fig1"), tasks(suite_file, "fig1", short=True)
    assert len(short) == len(long) / 2 and {t.digest for t in short} < {t.digest for t in long}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('datasets = ["A", "B", "C"]', 'datasets = ["A", "Z"]'), "'Z', which is not in"),
        (('protocol = "halves"', 'protocol = "thirds"'), "not 'thirds'"),
        (("[tables.2]", "[tables.2"), "is not a suite"),
    ],
)
def test_a_wrong_suite_names_file_and_place(suite_file, tmp_path, change, message):
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(suite_file.read_text().replace(*change))
    with pytest.raises(DataError, match=message) as error:
        read_suite(wrong)
    assert "wrong.toml" in str(error.value)


def test_targets():
    assert [e.name for _, e in find_experiments("miml-gp:figure 3")] == ["fig3"]
    assert len(find_experiments("all")) == sum(len(find_experiments(p)) for p in papers())
    with pytest.raises(BagwiseError, match="did you mean 'mimlfast'"):
        find_experiments("mimlfats:2")
    with pytest.raises(BagwiseError, match="there are 1, 2"):
        find_experiments("miml-gp:17")


def test_splits_are_those_of_the_protocols():
    y = np.repeat([0, 1], [30, 10])
    folds = {"kind": "folds", "n_splits": 5, "stratify": True}
    parts = [split_bags(folds, y, {"seed": 3, "fold": k}) for k in range(5)]
    assert sorted(np.concatenate([test for _, test in parts]).tolist()) == list(range(40))
    for train, test in parts:
        assert set(train) | set(test) == set(range(40)) and not set(train) & set(test)
        assert y[test].sum() == 2
    halves = {"kind": "holdout", "train": 0.5, "stratify": True}
    train, test = split_bags(halves, y, {"seed": 0})
    assert len(train) == 20 and y[train].sum() == 5
    again, _ = split_bags(halves, y, {"seed": 0})
    other, _ = split_bags(halves, y, {"seed": 1})
    assert (train == again).all() and (train != other).any()
    everything = split_bags({"kind": "all"}, y, {"seed": 0})
    assert all((part == np.arange(40)).all() for part in everything)
    assert len(split_bags({"kind": "holdout", "train": 7}, y, {"seed": 0})[0]) == 7
    with pytest.raises(DataError, match="leave nothing"):
        split_bags({"kind": "holdout", "train": 40}, y, {"seed": 0})
    with pytest.raises(DataError, match="no protocol"):
        split_bags({"kind": "jackknife"}, y, {"seed": 0})
    assert len(list(repeats({"kind": "folds", "n_splits": 10, "seeds": 10}))) == 100


def test_problems():
    base = {"load": "miml", "options": {"n_bags": 60, "n_labels": 4, "random_state": 0}}
    whole = load_problem(base, 0)
    assert whole.is_matrix and whole.has_instance_labels
    classes = whole.y.argmax(axis=1)
    few = load_problem(base | {"classes": 2, "target": "class"}, 0)
    assert (few.y == classes[classes < 2]).all() and len(few.bags) == len(few.y)
    part = load_problem(base | {"part": [2]}, 0)
    assert part.y.sum() == (classes == 2).sum() == len(part.y) - part.y.sum()
    assert not part.bags.equals(load_problem(base | {"part": [2]}, 1).bags)
    assert load_problem(base | {"target": "binary"}, 0).y.tolist() == whole.y[:, -1].tolist()
    with pytest.raises(DataError, match="no key 'labells'"):
        load_problem(base | {"labells": "occurring"}, 0)


def test_labels_that_never_occur_are_left_out_with_their_numbers():
    base = {"load": "miml", "options": {"n_bags": 3, "n_labels": 12, "random_state": 0}}
    whole, kept = load_problem(base, 0), load_problem(base | {"labels": "occurring"}, 0)
    occur = np.flatnonzero(whole.y.any(axis=0))
    assert 0 < len(occur) < 12 and (kept.y == whole.y[:, occur]).all()
    before, after = (p.labelled.instance_info["label"] for p in (whole, kept))
    assert (np.where(after < 0, -1, occur[after]) == before).all()


# ---------------------------------------------------------------------- the five papers


@pytest.mark.parametrize("paper", papers())
def test_every_name_in_a_paper_is_known_and_every_setting_exists(paper):
    suite = paper_suite(paper)
    assert suite.reference and suite.published
    for experiment in suite.experiments.values():
        for short in (False, True):
            for task in tasks_of(suite, experiment, short=short)[::97]:
                json.dumps(task.data)
                if task.model:
                    known = get_estimator(task.model["estimator"])().get_params()
                    assert set(task.model.get("params", {})) <= set(known), task
                    grids = task.model.get("search", {}).get("grid", {})
                    for grid in grids if isinstance(grids, list) else [grids]:
                        assert set(grid) <= {*known, "divide"}, task
                    for part in task.model.get("search", {}).get("rounds", []):
                        assert set(part["params"]) <= set(known), task
    for spec in suite.datasets.values():
        assert status_of(spec) in ("at hand", "download", "by hand", "generated", "not public")


@pytest.mark.parametrize("paper", papers())
def test_published_tables_are_covered_cell_by_cell(paper):
    """Every published cell belongs to a data set, method and measure of its table's experiment."""
    suite = paper_suite(paper)
    shown = {name: spec.get("shown_as", name) for name, spec in suite.methods.items()}
    for (table, dataset, method, measure), _ in suite.published.items():
        spec = suite.experiments[table].spec
        names = {suite.datasets[name].get("stands_for", name) for name in spec["datasets"]}
        assert dataset in names, (table, dataset)
        if measure in ("n_train_bags", "instances_per_bag") or measure.startswith("accuracy_percent_ci95"):
            continue  # counts and bounds that stand beside the figures
        columns = {shown[name] for name in spec.get("methods", ())} | {"-", spec.get("column", "-")}
        assert method in columns and measure in spec["measures"], (table, method, measure)


def test_published_files_hold_numbers():
    for paper in papers():
        path = resources.files("papers").joinpath("published", paper, "published.csv")
        for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
            assert row["direction"] in ("higher", "lower", "none") and row["mark"] in ("", "worse", "better")
            assert row["mean"] == "NA" or float(row["mean"]) >= 0


def test_known_published_figures():
    found = paper_suite("ored-logistic").published[
        "3", "Letter Frost", "MLR", "instance_accuracy_inductive_percent"
    ]
    assert (found.mean, found.std) == (71.3, 7.6)
    found = paper_suite("mimlfast").published["2", "Letter Carroll", "KISAR", "one_error"]
    assert (found.mean, found.std, found.mark) == (0.058, 0.096, "better")
    assert paper_suite("mimlfast").published["2", "Scene", "MIMLBoost", "ranking_loss"].mean is None
    assert shortened({"a": 1, "short": {"a": 2}}, False) == {"a": 1}


def test_a_published_interval_of_the_mean_gives_the_std():
    suite = paper_suite("miml-gp")
    found = suite.published["6", "1000-Image", "MIGraph", "accuracy_percent"]
    assert (found.mean, found.std) == (83.5, 1.8)  # [81.2, 85.7]: 2.25 * sqrt(5) / 2.776
    t = stats.t(suite.experiments["6"].spec["intervals"] - 1)
    for (table, dataset, method, measure), cell in suite.published.items():
        if (table, measure) == ("6", "accuracy_percent"):
            low, high = (
                suite.published[table, dataset, method, f"{measure}_ci95_{end}"].mean
                for end in ("low", "high")
            )
            assert abs(t.ppf(0.975) * cell.std / 5**0.5 - (high - low) / 2) < 0.065  # std is rounded to .1
    assert suite.published["2", "Scene", "MIMLSVM", "ranking_loss"].std == 0.020  # as printed


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('title = "Quality"\n', "", "tables.1 has no 'title'"),
        (
            'kind = "holdout"',
            'kind = "holdup"',
            "protocols.halves has the kind 'holdup'; did you mean 'holdout'",
        ),
        ("train = 0.5\n", "", "protocols.halves has no 'train'"),
        (
            "[methods.ours]",
            "[method.x]\n[methods.ours]",
            "the suite has a key 'method'; did you mean 'methods'",
        ),
        ('estimator = "MIMLDummy"', 'estimaator = "MIMLDummy"', "methods.ours has no 'estimator'"),
        (
            "[methods.ours]",
            "[methods.ours]\nsettings = { a = 1 }",
            "methods.ours.settings.a is a list of values",
        ),
    ],
)
def test_a_suite_that_lacks_something_says_where(tmp_path, old, new, said):
    text = """[datasets.A]
load = "miml"
[methods.ours]
estimator = "MIMLDummy"
[protocols.halves]
kind = "holdout"
train = 0.5
[tables.1]
title = "Quality"
protocol = "halves"
datasets = ["A"]
methods = ["ours"]
measures = ["ranking_loss"]
"""
    path = tmp_path / "s.toml"
    path.write_text(text)
    assert read_suite(path).experiments["1"].id == "s:1"
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(DataError, match=said):
        read_suite(path)


def test_two_suites_of_one_name_are_refused(suite_file, tmp_path):
    other = tmp_path / suite_file.name
    other.write_text(suite_file.read_text().replace("n_bags = ", "n_bags = 1"))
    with pytest.raises(BagwiseError, match="two suites have an experiment small:1; call one of the files"):
        reproduce([str(suite_file), str(other)], tmp_path / "out", run=False)
