"""Folds, thresholds and the whole of scikit-learn's model selection over bags."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bagwise import Bags
from bagwise.checks.estimator_checks import sample_bags
from bagwise.errors import DataError
from bagwise.inspection import annotate, instance_scores, key_instances
from bagwise.metrics import get_scorer
from bagwise.model_selection import LabelThresholds, MultilabelKFold, cross_val_instance_scores
from bagwise.model_selection.thresholds import best_threshold
from bagwise.models import MIMLDummy, SingleInstanceLogisticRegression
from bagwise.preprocessing import BagPooling, OnInstances


@pytest.fixture(scope="module")
def data():
    return sample_bags(n_bags=60)


def test_multilabel_folds_are_disjoint_complete_and_balanced():
    rng = np.random.default_rng(0)
    Y = (rng.random((300, 8)) < np.linspace(0.02, 0.5, 8)).astype(int)
    folds = [test for _, test in MultilabelKFold(5, random_state=0).split(Y, Y)]
    assert sorted(np.concatenate(folds)) == list(range(300))
    counts = np.array([Y[test].sum(axis=0) for test in folds])
    assert (counts.max(axis=0) - counts.min(axis=0)).max() <= np.maximum(4, 0.15 * Y.sum(axis=0)).max()
    rare = Y.sum(axis=0).argmin()
    assert counts[:, rare].max() - counts[:, rare].min() <= 1
    again = [test for _, test in MultilabelKFold(5, random_state=0).split(Y, Y)]
    assert all((a == b).all() for a, b in zip(folds, again))
    assert max(map(len, folds)) - min(map(len, folds)) <= 15


def test_multilabel_folds_take_classes_and_refuse_nonsense():
    y = np.repeat(["a", "b"], 6)
    for _, test in MultilabelKFold(3, random_state=0).split(y, y):
        assert sorted(y[test]) == ["a", "a", "b", "b"]
    with pytest.raises(DataError, match="needs the labels"):
        next(MultilabelKFold(3).split(y))
    with pytest.raises(DataError, match="n_splits=20"):
        next(MultilabelKFold(20).split(y, y))


@pytest.mark.parametrize("measure", ["f1", "accuracy"])
def test_best_threshold_against_trying_everything(measure):
    rng = np.random.default_rng(0)
    for _ in range(50):
        scores = rng.integers(-3, 4, 12) / 2.0
        truth = rng.integers(0, 2, 12)

        def quality(t, scores=scores, truth=truth):
            predicted = scores > t
            if measure == "accuracy":
                return (predicted == truth).mean()
            denominator = predicted.sum() + truth.sum()
            return 2 * (predicted & (truth == 1)).sum() / denominator if denominator else 0.0

        best = max(quality(t) for t in np.linspace(-2.3, 2.3, 93))
        assert quality(best_threshold(scores, truth, measure)) == pytest.approx(best)


def test_label_thresholds_help_a_dummy_recover_rare_labels(data):
    bags, Y = data
    rare = Y.copy()
    rare[:, 0] &= np.arange(len(Y)) % 3 == 0
    model = LabelThresholds(MIMLDummy(), cv=3).fit(bags, rare)
    assert model.predict(bags).sum() >= MIMLDummy().fit(bags, rare).predict(bags).sum()
    np.testing.assert_allclose(
        model.decision_function(bags), model.estimator_.decision_function(bags) - model.thresholds_
    )


def test_grid_search_pipeline_scorers_and_jobs(data):
    bags, Y = data
    pipeline = make_pipeline(OnInstances(StandardScaler()), SingleInstanceLogisticRegression())
    search = GridSearchCV(
        pipeline,
        {"singleinstancelogisticregression__alpha": [0.1, 1000.0]},
        scoring={"rank": get_scorer("neg_ranking_loss"), "hamming": get_scorer("neg_hamming_loss")},
        refit="rank",
        cv=MultilabelKFold(3, random_state=0),
        n_jobs=2,
    ).fit(bags, Y)
    assert search.best_params_["singleinstancelogisticregression__alpha"] == 0.1
    assert instance_scores(search, bags).shape == (bags.n_instances, 3)
    assert (annotate(search, bags) == bags.instance_info["label"]).mean() > 0.9
    keys = key_instances(search, bags)
    assert keys.shape == (60, 3, 1)


def test_cross_validate_and_predict(data):
    bags, Y = data
    model = SingleInstanceLogisticRegression()
    result = cross_validate(model, bags, Y, scoring=get_scorer("average_precision"), cv=3)
    assert result["test_score"].mean() > 0.9
    for method in ("predict", "decision_function", "predict_proba"):
        assert cross_val_predict(model, bags, Y, cv=3, method=method).shape == Y.shape


def test_cross_val_instance_scores_come_from_models_that_did_not_see_the_bag(data):
    bags, Y = data
    cv = MultilabelKFold(3, random_state=1)
    scores = cross_val_instance_scores(SingleInstanceLogisticRegression(), bags, Y, cv=cv)
    train, test = next(cv.split(bags, Y))
    model = SingleInstanceLogisticRegression().fit(bags[train], Y[train])
    rows = np.flatnonzero(np.isin(bags.index, test))
    np.testing.assert_allclose(scores[rows], model.instance_scores(bags[test]))


def test_on_instances_equals_the_transformer_on_the_matrix(data):
    bags, _ = data
    scaled = OnInstances(StandardScaler()).fit_transform(bags)
    np.testing.assert_allclose(scaled.X, StandardScaler().fit_transform(bags.X))
    assert scaled.instance_info["label"] is bags.instance_info["label"]
    with pytest.raises(TypeError, match="OnInstances"):
        StandardScaler().fit(bags)


@pytest.mark.parametrize("how", ["mean", "sum", "max"])
def test_pooling_against_a_loop(how):
    bags = Bags.from_list([np.arange(6.0).reshape(3, 2), np.empty((0, 2)), -np.ones((1, 2))])
    expected = [getattr(b, how)(axis=0) if len(b) else np.zeros(2) for b in bags]
    np.testing.assert_allclose(BagPooling(how).fit_transform(bags), expected)
    if how != "max":
        as_csr = bags.with_X(sparse.csr_array(bags.X))
        np.testing.assert_allclose(BagPooling(how).fit_transform(as_csr).toarray(), expected)
