"""Folds, thresholds and the whole of scikit-learn's model selection over bags."""

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bagwise.checks import sample_bags
from bagwise.errors import DataError
from bagwise.inspection import annotate, instance_scores, key_instances
from bagwise.metrics import average_precision, get_scorer
from bagwise.model_selection import LabelThresholds, MultilabelKFold, cross_val_instance_scores
from bagwise.models import MIMLDummy, SingleInstanceLogisticRegression
from bagwise.preprocessing import OnInstances


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


def test_label_thresholds_help_a_dummy_recover_rare_labels(data):
    bags, Y = data
    rare = Y.copy()
    rare[:, 0] &= np.arange(len(Y)) % 3 == 0
    model = LabelThresholds(MIMLDummy(), cv=3).fit(bags, rare)
    assert model.predict(bags).sum() >= MIMLDummy().fit(bags, rare).predict(bags).sum()


def test_label_thresholds_leave_scores_alone(data):
    # a threshold taken off the scores of one label moves it against the others and spoils every ranking
    bags, Y = data
    scarce = Y.copy()
    scarce[:, 0] &= np.arange(len(Y)) % 3 == 0
    plain = SingleInstanceLogisticRegression().fit(bags, scarce)
    model = LabelThresholds(SingleInstanceLogisticRegression(), cv=3).fit(bags, scarce)
    assert np.ptp(model.thresholds_) > 0
    scores, labels = model.scores_and_labels(bags)
    np.testing.assert_array_equal(scores, plain.decision_function(bags))
    np.testing.assert_array_equal(labels, scores > model.thresholds_)
    np.testing.assert_array_equal(model.predict(bags), labels)
    np.testing.assert_array_equal(model.instance_scores(bags), plain.instance_scores(bags))
    assert average_precision(scarce, scores) == average_precision(scarce, plain.decision_function(bags))


def test_label_thresholds_around_a_pipeline(data):
    bags, Y = data
    pipeline = make_pipeline(OnInstances(StandardScaler()), SingleInstanceLogisticRegression())
    model = LabelThresholds(pipeline, cv=3).fit(bags, Y)
    assert model.instance_scores(bags).shape == (bags.n_instances, 3)
    with pytest.raises(ValueError, match="measure"):
        LabelThresholds(pipeline, measure="auc").fit(bags, Y)


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
