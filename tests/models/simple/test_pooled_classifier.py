"""Statistics of bags and any classifier of rows."""

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bagwise.checks import sample_bags
from bagwise.models import PooledClassifier
from bagwise.preprocessing import bag_statistics


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "estimator",
    [
        RandomForestClassifier(20, random_state=0),
        LogisticRegression(),
        KNeighborsClassifier(3),
        MLPClassifier((16,), max_iter=400, random_state=0),
        RidgeClassifier(),
        make_pipeline(StandardScaler(), LogisticRegression()),
        make_pipeline(StandardScaler(), ExtraTreesClassifier(20, random_state=0)),
        MultiOutputClassifier(LogisticRegression()),
    ],
    ids=lambda e: type(e).__name__,
)
def test_any_classifier_of_rows(estimator):
    bags, Y = sample_bags(n_bags=80)
    Y = np.column_stack([Y, np.ones(80, dtype=int), np.zeros(80, dtype=int)])  # two labels that never vary
    model = PooledClassifier(estimator).fit(bags[:60], Y[:60])
    wrong = (model.predict(bags[60:]) != Y[60:]).mean(axis=0)
    assert wrong[:3].mean() < 0.2 and not wrong[3:].any()
    assert hasattr(model, "predict_proba") == hasattr(estimator, "predict_proba")
    if hasattr(model, "predict_proba"):
        P = model.predict_proba(bags)
        assert ((P >= 0) & (P <= 1)).all()
    single = PooledClassifier(estimator).fit(bags[:60], Y[:60, 0])
    assert (single.predict(bags[60:]) == Y[60:, 0]).mean() > 0.7


def test_probabilities_are_those_of_the_classifier():
    bags, Y = sample_bags()
    forest = ExtraTreesClassifier(10, random_state=0)
    model = PooledClassifier(forest, statistics=["mean", "max"]).fit(bags, Y)
    table = bag_statistics(bags, ["mean", "max"])
    expected = [p[:, 1] for p in ExtraTreesClassifier(10, random_state=0).fit(table, Y).predict_proba(table)]
    np.testing.assert_allclose(model.predict_proba(bags), np.transpose(expected), atol=1e-8)


def test_seed_reaches_the_default_estimator():
    bags, Y = sample_bags()
    first, second = (PooledClassifier(random_state=3).fit(bags, Y).predict_proba(bags) for _ in range(2))
    assert np.array_equal(first, second)


@pytest.mark.parametrize("bad", ["mean", [], ["mode"], [1.5], [np.nan]])
def test_bad_statistics_are_refused(bad):
    bags, Y = sample_bags()
    with pytest.raises(ValueError, match="statistics"):
        PooledClassifier(statistics=bad).fit(bags, Y)
