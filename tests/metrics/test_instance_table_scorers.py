"""Instance measures, the table of all measures, and scorers inside scikit-learn."""

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.multiclass import OneVsRestClassifier

from bagwise import metrics
from bagwise.errors import DataError
from bagwise.metrics import (
    HIGHER_IS_BETTER,
    evaluate,
    get_scorer,
    instance_accuracy,
    key_instance_accuracy,
    scorers,
)


def test_instance_accuracy():
    assert instance_accuracy([0, 1, -1, 2], [0, 2, -1, 2]) == pytest.approx(2 / 3)
    assert np.isnan(instance_accuracy([-1, -1], [0, 1]))
    assert np.isnan(instance_accuracy([], []))
    for wrong in ([0.5, 1.0], [[0, 1]], [0, -2]):
        with pytest.raises(DataError):
            instance_accuracy(wrong, wrong)
    with pytest.raises(DataError, match="shape of z_true"):
        instance_accuracy([0, 1], [0])


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 5), max_size=8), st.booleans(), st.booleans())
def test_key_instance_accuracy_equals_its_definition(seed, sizes, numbers, with_bag_labels):
    rng = np.random.default_rng(seed)
    offsets, n_labels = np.concatenate([[0], np.cumsum(sizes)]).astype(int), 3
    F = rng.integers(0, 4, (offsets[-1], n_labels)).astype(float)
    z = rng.integers(-1, n_labels, offsets[-1])
    Z = z[:, None] == np.arange(n_labels) if numbers else rng.random(F.shape) < 0.4
    Y = rng.random((len(sizes), n_labels)) < 0.6 if with_bag_labels else None
    bags = []
    for b in range(len(sizes)):
        rows = range(offsets[b], offsets[b + 1])
        judged = [
            bool(Z[max(rows, key=lambda i: F[i, l]), l])
            for l in range(n_labels)
            if (Y is None or Y[b, l]) and any(Z[i, l] for i in rows)
        ]
        if judged:
            bags.append(judged)
    by_pair = np.mean(np.concatenate(bags)) if bags else np.nan
    by_bag = np.mean([np.mean(judged) for judged in bags]) if bags else np.nan
    truth = z if numbers else Z
    assert key_instance_accuracy(F, offsets, truth, Y) == pytest.approx(by_pair, nan_ok=True)
    assert key_instance_accuracy(F, offsets, truth, Y, average="bag") == pytest.approx(by_bag, nan_ok=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"F": [0.1, 0.2]}, "n_instances, n_labels"),
        ({"F": [[0.1, np.nan]] * 2}, "F without NaN"),
        ({"offsets": [0, 3]}, "number of instances, 2"),
        ({"offsets": [0.0, 2.0]}, "integers"),
        ({"instance_Y": [0, 2]}, "below the 2 columns"),
        ({"instance_Y": [[1, 0]]}, "shape of F"),
        ({"Y": [[1, 0], [0, 1]]}, "offsets and F"),
        ({"average": "label"}, "'pair', 'bag'"),
    ],
)
def test_key_instance_accuracy_refuses_wrong_input(change, message):
    given = {"F": [[0.1, 0.2], [0.3, 0.4]], "offsets": [0, 2], "instance_Y": [0, 1], "Y": [[1, 1]], **change}
    with pytest.raises(DataError, match=message):
        key_instance_accuracy(**given)


def test_evaluate_gives_what_each_measure_gives():
    rng = np.random.default_rng(7)
    Y, S, P = rng.integers(0, 2, (30, 4)), rng.integers(0, 5, (30, 4)) / 4, rng.integers(0, 2, (30, 4))
    train_Y = np.array([[1, 0, 1, 0], [1, 1, 1, 0]])
    z, F, offsets = rng.integers(-1, 4, 60), rng.random((60, 4)), np.arange(0, 61, 2)
    result = evaluate(
        Y,
        S,
        P,
        train_Y=train_Y,
        instance_Y=z,
        instance_predictions=F.argmax(1),
        instance_scores=F,
        offsets=offsets,
    )
    computed_elsewhere = {"instance_accuracy_given_labels", "accuracy", "calibration_error"}
    assert list(result) == [name for name in HIGHER_IS_BETTER if name not in computed_elsewhere]
    assert result["hamming_loss"] == metrics.hamming_loss(Y, P)
    assert result["normalised_coverage"] == metrics.coverage(Y, S, normalised=True)
    for name in ("one_error", "coverage", "ranking_loss", "average_precision", "roc_auc"):
        assert result[name] == getattr(metrics, name)(Y, S)
    for name in ("mean_average_precision", "macro_f1"):
        assert result[name] == getattr(metrics, name)(Y, S, train_Y=train_Y)
    assert result["instance_accuracy"] == instance_accuracy(z, F.argmax(1))
    assert result["key_instance_accuracy"] == key_instance_accuracy(F, offsets, z, Y)
    other = evaluate(Y, S, ties="sklearn", degenerate="count")
    assert other["average_precision"] == metrics.average_precision(Y, S, ties="sklearn", degenerate="count")
    assert "hamming_loss" not in other


def test_without_the_compiler():
    code = """
import json
import numpy as np
from bagwise.metrics import evaluate
rng = np.random.default_rng(9)
Y, S, F = rng.random((12, 40)) < rng.random((12, 1)), rng.integers(0, 9, (12, 40)) / 9, rng.random((24, 40))
z, offsets = rng.integers(-1, 40, 24), np.arange(0, 25, 2)
results = [
    evaluate(Y, S, Y, instance_Y=z, instance_scores=F, offsets=offsets, ties=ties)
    for ties in ("reference", "sklearn")
]
"""
    command = [sys.executable, "-W", "error", "-c", code + "print(json.dumps(results))"]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    here = {}
    exec(code, here)
    assert json.loads(done.stdout) == here["results"]


def test_evaluation_prints_as_a_table():
    result = evaluate([[1, 0], [0, 1]], [[0.9, 0.1], [0.8, 0.2]])
    lines = str(result).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[0].split() == ["one_error", "↓", "0.5000"]
    assert lines[4].split()[:2] == ["average_precision", "↑"]
    assert "<th>one_error</th><td>↓</td><td>0.5000</td>" in result._repr_html_()
    assert pickle.loads(pickle.dumps(result)) == result
    assert str(metrics.Evaluation()) == ""


def test_evaluate_refuses_half_of_what_it_needs():
    Y, S = [[1, 0]], [[0.1, 0.2]]
    with pytest.raises(DataError, match="instance_Y along with"):
        evaluate(Y, S, instance_predictions=[0])
    with pytest.raises(DataError, match="offsets along with"):
        evaluate(Y, S, instance_Y=[0], instance_scores=[[0.1, 0.2]])
    with pytest.raises(DataError, match="expected scores of the shape of Y"):
        evaluate(Y, [[0.1]])


@pytest.fixture
def problem():
    X = np.random.default_rng(8).normal(size=(60, 3))
    return X, (X + 0.3 * X[:, ::-1] > 0).astype(int)


class Probabilities(BaseEstimator):
    """No ``decision_function`` and, with two labels, what could pass for the two classes of one."""

    def fit(self, X, Y):
        self.classes_ = np.arange(Y.shape[1])
        return self

    def predict_proba(self, X):
        return 1 / (1 + np.exp(-X))


def test_scorers_are_the_signed_measures(problem):
    X, Y = problem
    model = OneVsRestClassifier(LogisticRegression()).fit(X, Y)
    S = model.decision_function(X)
    for name, scorer in scorers().items():
        again = pickle.loads(pickle.dumps(scorer))
        assert again == scorer == get_scorer(name)
        assert name in repr(scorer)
        measure = name.removeprefix("neg_")
        sign = -1 if name.startswith("neg_") else 1
        assert (sign == 1) == HIGHER_IS_BETTER[measure]
        expected = evaluate(Y, S, model.predict(X))[measure]
        assert again(model, X, Y) == pytest.approx(sign * expected)


def test_scorers_in_grid_search_and_cross_validation(problem):
    X, Y = problem
    model = OneVsRestClassifier(LogisticRegression())
    grid = {"estimator__C": [1e-6, 1.0]}
    for scoring in (get_scorer("neg_ranking_loss"), get_scorer("average_precision")):
        search = GridSearchCV(model, grid, scoring=scoring, cv=3, error_score="raise").fit(X, Y)
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()
        assert search.score(X, Y) == scoring(search.best_estimator_, X, Y)
    search = GridSearchCV(model, grid, scoring=scorers(), refit="neg_ranking_loss", cv=3, error_score="raise")
    assert "mean_test_neg_coverage" in search.fit(X, Y).cv_results_
    scores = cross_validate(model, X, Y, scoring=scorers(), cv=3, n_jobs=1, error_score="raise")
    assert scores["test_neg_hamming_loss"].shape == (3,)


def test_scorers_take_probabilities_in_either_form(problem):
    X, Y = problem
    two = Probabilities().fit(X[:, :2], Y[:, :2])
    assert get_scorer("roc_auc")(two, X[:, :2], Y[:, :2]) == metrics.roc_auc(Y[:, :2], X[:, :2])
    Y = np.column_stack([Y, np.zeros(60, int), np.ones(60, int)])  # labels with one class only
    forest = RandomForestClassifier(5, random_state=0).fit(X, Y)
    seen = np.column_stack([p[:, 1] for p in forest.predict_proba(X)[:3]] + [np.zeros(60), np.ones(60)])
    assert get_scorer("neg_ranking_loss")(forest, X, Y) == -metrics.ranking_loss(Y, seen)


def test_a_single_label_keeps_its_axis(problem):
    X, Y = problem
    model = LogisticRegression().fit(X, Y[:, 0])
    assert get_scorer("roc_auc")(model, X, Y[:, :1]) == metrics.roc_auc(Y[:, 0], model.decision_function(X))


def test_unknown_scorers_and_estimators_without_scores(problem):
    with pytest.raises(DataError, match="among neg_hamming_loss"):
        get_scorer("hamming")
    with pytest.raises(DataError, match="decision_function or predict_proba, received BaseEstimator"):
        get_scorer("roc_auc")(BaseEstimator(), *problem)
