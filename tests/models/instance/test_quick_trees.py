"""Trees grown without checks are those of scikit-learn's `fit`, and `fit` is used where that is not so."""

import numpy as np
import pytest
import sklearn
from sklearn.tree import DecisionTreeClassifier
from toy_bags import planted

from bagwise.models import MIForest
from bagwise.models.instance import mi_forest as trees
from bagwise.models.instance.mi_forest import grow_tree, votes_of

SETTINGS = [
    {"max_depth": None, "max_features": "sqrt", "min_samples_leaf": 1},
    {"max_depth": 4, "max_features": "log2", "min_samples_leaf": 3},
    {"max_depth": 20, "max_features": 0.6, "min_samples_leaf": 1},
    {"max_depth": 2, "max_features": None, "min_samples_leaf": 1},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_tree_is_that_of_fit(settings):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 7)).astype(np.float32)
    labels = (X[:, 0] * X[:, 1] > 0).astype(float)
    weights = rng.integers(0, 4, 150) * np.where(labels > 0, 70.0, 31.0)
    ours = grow_tree(X, labels, weights, 5, settings)
    plain = DecisionTreeClassifier(random_state=5, **settings).fit(X, labels, sample_weight=weights)
    assert ours.get_params() == plain.get_params()
    assert ours.tree_.node_count == plain.tree_.node_count > 3
    for name in (
        "feature",
        "threshold",
        "children_left",
        "children_right",
        "value",
        "weighted_n_node_samples",
    ):
        np.testing.assert_array_equal(getattr(ours.tree_, name), getattr(plain.tree_, name), err_msg=name)
    np.testing.assert_array_equal(ours.predict(X), plain.predict(X))
    np.testing.assert_array_equal(votes_of(ours, X), plain.predict_proba(X)[:, 1])


def other_arguments(*arguments):
    raise TypeError("takes 7 positional arguments")


@pytest.mark.parametrize(
    "change",
    [(trees, "BestSplitter", other_arguments), (sklearn, "__version__", "1.99.0")],
    ids=["arguments", "version"],
)
def test_trees_grow_where_scikit_learn_has_changed_inside(change, monkeypatch):
    bags, y, _ = planted(20)
    expected = MIForest(5, random_state=0).fit(bags, y).decision_function(bags)
    with monkeypatch.context() as changed:
        changed.setattr(*change)
        trees._inside_is_known.cache_clear()
        assert not trees._inside_is_known()
        again = MIForest(5, random_state=0).fit(bags, y).decision_function(bags)
    trees._inside_is_known.cache_clear()
    np.testing.assert_array_equal(again, expected)
