"""Comparing models: the corrected interval, folds, resuming, what is said."""

import json
import os

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

from bagwise import Bags, load_dataset
from bagwise.base import MIMLClassifier, Traits
from bagwise.metrics import average_precision
from bagwise.model_selection import MultilabelKFold, compare
from bagwise.model_selection.comparison import Comparison, Fit, corrected_interval
from bagwise.models import MIMLDummy, ORedLogisticRegression
from bagwise.preprocessing import OnInstances

SIMPLE = ("pooled forest", "pooled mean + logistic", "dummy")


@pytest.fixture(scope="module")
def data():
    return load_dataset("digits", n_bags=90)


class Broken(MIMLClassifier):
    """Cannot learn."""

    traits = Traits()

    def _fit(self, bags, Y):
        raise ValueError("no luck")


def test_interval_covers_as_often_as_it_says():
    # fits that share training bags are correlated by n_test / (n_test + n_train): simulate exactly that
    rng = np.random.default_rng(0)
    J, ratio, truth = 10, 0.25, 0.3
    correlation = ratio / (1 + ratio)
    covariance = (1 - correlation) * np.eye(J) + correlation
    draws = rng.multivariate_normal(np.full(J, truth), covariance, size=4000)

    def covered(ratio):
        found = [corrected_interval(d, ratio) for d in draws]
        return np.mean([low <= truth <= high for _, low, high, _ in found])

    assert 0.94 <= covered(ratio) <= 0.97
    assert covered(0.0) < 0.85  # what happens without the correction


def test_interval_of_one_fit_says_nothing():
    assert corrected_interval([0.5], 0.25) == (0.5, -np.inf, np.inf, 1.0)
    assert corrected_interval([0.0, 0.0], 0.25)[3] == 1.0


def test_values_are_those_of_a_loop_written_by_hand(data):
    model = ORedLogisticRegression()
    result = compare({"ored": model}, data.bags, data.Y, instance_Y=data.instance_Y, cv=3, repeats=2)
    expected = []
    for seed in (0, 1):
        for train, test in MultilabelKFold(3, random_state=seed).split(data.bags, data.Y):
            fitted = clone(model).set_params(random_state=0).fit(data.bags[train], data.Y[train])
            expected.append(average_precision(data.Y[test], fitted.decision_function(data.bags[test])))
    np.testing.assert_allclose(result.values("ored"), expected)
    assert result.models == ("ored", *SIMPLE)
    assert result.best == "ored"
    assert np.isfinite(result.values("ored", "instance_accuracy")).all()
    assert "Use ored" in result.sentence
    assert {d.model for d in result.differences()} == set(SIMPLE)
    assert len(result.to_frame()) == 4 * 6


def test_a_lead_by_chance_is_called_so():
    rng = np.random.default_rng(1)
    fits = [
        Fit(name, 0, k, {"average_precision": 0.7 + shift + 0.05 * rng.normal()}, 1.0, seconds, "")
        for name, shift, seconds in (("slow", 0.005, 30.0), ("quick", 0.0, 1.0), ("bad", -0.4, 1.0))
        for k in range(5)
    ]
    result = Comparison("average_precision", ("slow", "quick", "bad"), tuple(fits), 0.25)
    leader, other = result.ranking[:2]
    assert f"its lead over {other} may be chance" in result.sentence
    assert [d.real for d in result.differences()] == [False, True]
    assert ("times as fast" in result.sentence) == (leader == "slow")


def test_losses_are_better_when_lower(data):
    models = [MIMLDummy(), ORedLogisticRegression()]
    result = compare(models, data.bags, data.Y, cv=2, repeats=1, measure="ranking_loss")
    assert result.best == "ORedLogisticRegression"
    assert all(d.mean >= 0 for d in result.differences())


def test_a_model_that_fails_does_not_stop_the_others(data):
    result = compare([Broken(), ORedLogisticRegression()], data.bags, data.Y, cv=2, repeats=1)
    assert result.failures == {"Broken": "ValueError: no luck"}
    assert result.ranking[-1] == "Broken"
    assert "Broken failed: ValueError: no luck" in str(result)


def test_a_stopped_comparison_goes_on(data, tmp_path):
    calls = []
    stop_after = 4

    def step(n_new, text, total):
        calls.append(n_new)
        if len(calls) > stop_after:
            raise KeyboardInterrupt

    arguments = {"cv": 2, "repeats": 1, "folder": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        compare([ORedLogisticRegression()], data.bags, data.Y, step=step, **arguments)
    kept = {path: os.stat(path).st_mtime_ns for path in tmp_path.glob("*.json")}
    assert len(kept) == stop_after
    next(iter(kept)).write_text("{spoiled")
    seen = []
    arguments["step"] = lambda *values: seen.append(values)
    again = compare([ORedLogisticRegression()], data.bags, data.Y, **arguments)
    assert seen[0][0] == stop_after - 1  # the spoiled one is done again
    untouched = [path for path in list(kept)[1:] if os.stat(path).st_mtime_ns == kept[path]]
    assert len(untouched) == stop_after - 1
    fresh = compare([ORedLogisticRegression()], data.bags, data.Y, cv=2, repeats=1)
    np.testing.assert_array_equal(again.values(again.best), fresh.values(fresh.best))
    # other data, other fits
    other = compare([ORedLogisticRegression()], data.bags[:80], data.Y[:80], **arguments)
    assert len(list(tmp_path.glob("*.json"))) == 2 * len(other.fits)


def test_sparse_bags_pipelines_names_and_classes(data):
    csr = data.bags.with_X(sparse.csr_array(data.bags.X))
    result = compare(["ORedLogisticRegression", "ORedLogisticRegression"], csr, data.Y, cv=2, repeats=1)
    assert result.models[:2] == ("ORedLogisticRegression", "ORedLogisticRegression 2")
    assert not result.failures
    pipeline = make_pipeline(OnInstances(StandardScaler()), ORedLogisticRegression())
    y = np.where(data.Y[:, 3] > 0, "three", "none")
    result = compare({"pipe": pipeline}, list(data.bags), y, cv=2, repeats=1)
    assert result.measure == "roc_auc" and not result.failures
    named = compare({"pipe": pipeline}, data.bags, data.label_sets, cv=2, repeats=1)
    assert named.measure == "average_precision" and not named.failures


@pytest.mark.parametrize("n_jobs", [2])
def test_same_numbers_for_any_number_of_jobs(data, n_jobs):
    one, two = (
        compare([ORedLogisticRegression()], data.bags, data.Y, cv=2, repeats=1, n_jobs=n) for n in (1, n_jobs)
    )
    for model in one.models:
        np.testing.assert_array_equal(one.values(model), two.values(model))


def test_bad_questions(data):
    with pytest.raises(ValueError, match="no labels"):
        compare(None, data.bags, None)
    with pytest.raises(ValueError, match="cv must be at least 2"):
        compare(None, data.bags, data.Y, cv=1)
    with pytest.raises(ValueError, match="takes bags"):
        compare(None, Bags, data.Y)


def test_command_line(tmp_path):
    from bagwise.cli import app

    arguments = ["compare", "digits", "-O", "n_bags=60", "--models", "ORedLogisticRegression", "--cv", "2"]
    arguments += ["--repeats", "1", "--out", str(tmp_path / "c")]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    assert "Use ORedLogisticRegression" in shown.output and "pooled forest" in shown.output
    found = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).output)
    assert found["best"] == "ORedLogisticRegression"
    assert {path.name for path in (tmp_path / "c").iterdir()} == {"fits", "comparison.csv", "comparison.svg"}
