"""One against the rest, around MMMIL and other classifiers of bags."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bagwise.datasets import make_miml
from bagwise.models import MMMIL, OneVsRestMIL, ORedLogisticRegression
from bagwise.preprocessing import OnInstances


def test_wrapper_of_mmmil_equals_mmmil_and_shares_features(monkeypatch):
    data = make_miml(60, 3, 6, random_state=0)
    Y = data.Y.copy()
    Y[:, 1] = 1
    settings = {"n_clusters": 2, "kernel": "rbf", "n_landmarks": 50, "random_state": 0}
    direct = MMMIL(**settings).fit(data.bags, Y)
    calls = []
    shared = MMMIL._shared
    monkeypatch.setattr(MMMIL, "_shared", lambda self, bags: calls.append(1) or shared(self, bags))
    wrapped = OneVsRestMIL(MMMIL(**settings)).fit(data.bags, Y)
    assert len(calls) == 1
    assert wrapped.estimators_[1] is None and wrapped.constant_[1] > 0
    for name in ("decision_function", "predict", "predict_proba", "instance_scores", "key_instances"):
        np.testing.assert_allclose(getattr(wrapped, name)(data.bags), getattr(direct, name)(data.bags))


@pytest.mark.parametrize(
    "inner",
    [
        ORedLogisticRegression(),
        make_pipeline(OnInstances(StandardScaler()), MMMIL(1)),
        GridSearchCV(MMMIL(1), {"expert_penalty": [0.1, 1.0]}, cv=2, scoring="roc_auc"),
    ],
    ids=lambda inner: type(inner).__name__,
)
def test_wrapper_takes_any_binary_classifier_of_bags(inner):
    data = make_miml(80, 3, 6, random_state=0)
    model = OneVsRestMIL(inner).fit(data.bags[:60], data.Y[:60])
    test = data.bags[60:]
    scores = model.decision_function(test)
    np.testing.assert_array_equal(model.predict(test), scores > 0)
    assert model.predict_proba(test).shape == model.predict(test).shape == (20, 3)
    assert model.instance_scores(test).shape == (test.n_instances, 3)
    assert np.mean([roc_auc_score(data.Y[60:, l], scores[:, l]) for l in range(3)]) > 0.8


def test_wrapper_says_what_its_inner_estimator_can_do():
    assert OneVsRestMIL().traits.probabilities and OneVsRestMIL.traits.instances == "model"
    assert not OneVsRestMIL(ORedLogisticRegression()).traits.sample_weight


def test_wrapper_in_parallel_gives_the_same():
    data = make_miml(40, 3, 6, random_state=0)
    one = OneVsRestMIL().fit(data.bags, data.Y).decision_function(data.bags)
    two = OneVsRestMIL(n_jobs=2).fit(data.bags, data.Y).decision_function(data.bags)
    np.testing.assert_array_equal(one, two)
