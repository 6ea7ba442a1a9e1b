"""Everything of scikit-learn, inside or outside of our pipelines, in files."""

import warnings

import numpy as np
import pytest
from scipy.special import expit
from sklearn.base import clone
from sklearn.cluster import Birch
from sklearn.metrics import f1_score, make_scorer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils import all_estimators as all_of_sklearn
from sklearn.utils._test_common.instance_generator import _construct_instances
from sklearn.utils.estimator_checks import _enforce_estimator_tags_X, _enforce_estimator_tags_y

import bagwise
from bagwise.checks import sample_bags
from bagwise.datasets import make_multi_view
from bagwise.errors import DataError, UnsafeFileError
from bagwise.metrics import get_scorer
from bagwise.model_selection import MultilabelKFold
from bagwise.models import (
    MIMLDummy,
    MIMLMix,
    ORedLogisticRegression,
)
from bagwise.preprocessing import OnInstances

TEXT = {"CountVectorizer", "HashingVectorizer", "TfidfVectorizer"}


TARGETS = {"LabelBinarizer", "LabelEncoder", "MultiLabelBinarizer"}


# nodes linked in circles (the save says so), or takes neither a table nor text
LEFT_OUT = {"Birch", "DictVectorizer", "FeatureHasher", "FrozenEstimator", "PatchExtractor", "SparseCoder"}


def fitted(name, cls):
    """An estimator of scikit-learn as its own tests make it, fitted, and what it takes."""
    rng = np.random.RandomState(0)
    model = clone(next(iter(_construct_instances(cls))))
    if "random_state" in model.get_params(deep=False):
        model.set_params(random_state=0)
    if name in TEXT:
        return model.fit(["a wren sings", "a gull and a wren"]), ["a gull"]
    if name in TARGETS:
        targets = [["wren"], ["gull", "wren"]] if name == "MultiLabelBinarizer" else np.arange(30) % 3
        return model.fit(targets), targets
    X = _enforce_estimator_tags_X(model, rng.normal(size=(30, 4)))
    return model.fit(X, _enforce_estimator_tags_y(model, np.arange(30) % 2)), X


KINDS = [(name, cls) for name, cls in all_of_sklearn() if name not in LEFT_OUT]


@pytest.mark.parametrize(("name", "cls"), KINDS, ids=[name for name, _ in KINDS])
def test_every_estimator_of_scikit_learn(name, cls, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, X = fitted(name, cls)
        bagwise.save(model, tmp_path / "m.skops")
        again = bagwise.load(tmp_path / "m.skops")
        for method in ("predict", "transform"):
            if hasattr(model, method):
                found, expected = getattr(again, method)(X), getattr(model, method)(X)
                if hasattr(expected, "toarray"):
                    found, expected = found.toarray(), expected.toarray()
                np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_what_cannot_be_saved_says_so(tmp_path):
    with pytest.raises(DataError, match="cannot save Birch"):
        bagwise.save(Birch().fit(np.eye(3)), tmp_path / "m.skops")
    assert not list(tmp_path.iterdir())


def test_the_search_of_the_docs(tmp_path):
    bags, Y = sample_bags()
    search = GridSearchCV(
        make_pipeline(OnInstances(StandardScaler()), ORedLogisticRegression()),
        {"oredlogisticregression__alpha": [1.0, 10.0]},
        scoring=get_scorer("neg_ranking_loss"),
        cv=MultilabelKFold(2, random_state=0),
    ).fit(bags, Y)
    bagwise.save(search, tmp_path / "m.skops")
    again = bagwise.load(tmp_path / "m.skops")
    np.testing.assert_array_equal(again.predict(bags), search.predict(bags))
    assert again.score(bags, Y) == search.score(bags, Y)


def test_functions_of_numpy_scipy_and_sklearn(tmp_path):
    bags, Y = sample_bags()
    for function in (np.tanh, expit, np.nan_to_num):
        model = make_pipeline(OnInstances(FunctionTransformer(function)), MIMLDummy()).fit(bags, Y)
        bagwise.save(model, tmp_path / "m.skops")
        np.testing.assert_array_equal(bagwise.load(tmp_path / "m.skops").predict(bags), model.predict(bags))
    scorer = make_scorer(f1_score, average="macro")
    search = GridSearchCV(MIMLDummy(), {}, scoring=scorer, cv=2).fit(bags, Y)
    bagwise.save(search, tmp_path / "m.skops")
    assert bagwise.load(tmp_path / "m.skops").best_score_ == search.best_score_
    with pytest.raises(UnsafeFileError, match=r"numpy.*fromfile|numpy.*load"):
        bagwise.save(FunctionTransformer(np.load), tmp_path / "m.skops")


def test_several_views_come_back(tmp_path):
    data = make_multi_view(n_bags=40, random_state=0)
    model = MIMLMix(max_iter=5, random_state=0).fit(data.bags, data.Y)
    bagwise.save(model, tmp_path / "m.skops")
    again = bagwise.load(tmp_path / "m.skops")
    np.testing.assert_array_equal(again.decision_function(data.bags), model.decision_function(data.bags))
