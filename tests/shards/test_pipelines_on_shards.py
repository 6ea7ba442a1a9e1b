"""Scaling before and thresholds after a model, on shards: the numbers of memory, streamed."""

import numpy as np
import pytest
from learned_bits import stopped_fit
from sklearn.decomposition import PCA, IncrementalPCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler

from bagwise import ShardedBags, checkpoint, load_dataset
from bagwise.model_selection import LabelThresholds
from bagwise.models import MIMLKNN, ORedLogisticRegression, PooledLogisticRegression
from bagwise.preprocessing import OnInstances

pytestmark = pytest.mark.filterwarnings("ignore")


def model():
    return ORedLogisticRegression(alpha=1.0, background=False, decision="union", max_iter=5)


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits", n_bags=90)


@pytest.fixture(scope="module")
def shards(tmp_path_factory, digits):
    return ShardedBags.write(digits, tmp_path_factory.mktemp("s") / "many", part_bytes=30_000)


@pytest.fixture(scope="module")
def one_part(tmp_path_factory, digits):
    return ShardedBags.write(digits, tmp_path_factory.mktemp("s") / "one")


@pytest.mark.parametrize("step", [StandardScaler(), MinMaxScaler(), Normalizer(), IncrementalPCA(5)])
def test_transformers_of_instances(digits, shards, one_part, step):
    assert shards.n_parts > 3
    in_memory, streamed = OnInstances(step).fit(digits.bags), OnInstances(step).fit(shards)
    seen = streamed.transform(shards)
    assert isinstance(seen, ShardedBags) and len(seen) == 90
    expected = streamed.transform(digits.bags)
    assert seen.n_features == expected.n_features and seen.dtype == expected.dtype
    found = seen.load()
    np.testing.assert_allclose(found.bags.X, expected.X, atol=1e-5)
    np.testing.assert_array_equal(found.Y, digits.Y)
    if not isinstance(step, IncrementalPCA):  # its batches are parts
        np.testing.assert_allclose(found.bags.X, in_memory.transform(digits.bags).X, atol=1e-5)
    whole = OnInstances(step).fit(one_part)
    np.testing.assert_array_equal(whole.transform(digits.bags).X, in_memory.transform(digits.bags).X)
    held = streamed.transform(shards.in_memory())
    np.testing.assert_array_equal(held.load().bags.X, found.bags.X)
    cut = seen[np.arange(0, 90, 3)]
    # on some processors last bits of a matrix product depend on how many rows are multiplied together
    rtol = 1e-12 if isinstance(step, IncrementalPCA) else 0.0
    np.testing.assert_allclose(cut.load().bags.X, found.bags[np.arange(0, 90, 3)].X, rtol=rtol, atol=rtol)
    assert seen.fingerprint != shards.fingerprint != streamed.transform(shards[:50]).fingerprint


def test_pipelines(digits, shards):
    pipeline = make_pipeline(OnInstances(MinMaxScaler()), OnInstances(StandardScaler()), model())
    streamed = pipeline.fit(shards)
    scores = streamed.decision_function(shards)
    np.testing.assert_allclose(scores, streamed.decision_function(digits.bags), rtol=1e-6)
    in_memory = make_pipeline(OnInstances(MinMaxScaler()), OnInstances(StandardScaler()), model())
    in_memory.fit(digits.bags, digits.Y)
    assert (streamed.predict(shards) == in_memory.predict(digits.bags)).mean() > 0.98
    with pytest.raises(TypeError, match=r"PCA needs all instances at once.*IncrementalPCA"):
        make_pipeline(OnInstances(PCA(2)), model()).fit(shards)


def test_checkpoints_know_the_transformer(shards, tmp_path):
    with checkpoint(tmp_path / "a"):
        expected = make_pipeline(OnInstances(StandardScaler()), model()).fit(shards)
    with checkpoint(tmp_path / "a"):
        again = make_pipeline(OnInstances(StandardScaler()), model()).fit(shards)
    np.testing.assert_array_equal(again[-1].coef_, expected[-1].coef_)
    with pytest.raises(Exception, match="other shards"), checkpoint(tmp_path / "a"):
        make_pipeline(OnInstances(MinMaxScaler()), model()).fit(shards)


def test_a_fit_that_was_refused_at_once_leaves_no_checkpoint(shards, tmp_path):
    with pytest.raises(ValueError, match="kernel='rbf'"), checkpoint(tmp_path / "b"):
        ORedLogisticRegression(kernel="rbf").fit(shards)
    assert not (tmp_path / "b").exists()
    with checkpoint(tmp_path / "b"):
        model().fit(shards)
    assert (tmp_path / "b" / "journal.json").exists()


def test_thresholds(digits, shards, one_part):
    simple = PooledLogisticRegression(alpha=10.0, statistics=("mean",), max_iter=10)
    streamed = LabelThresholds(simple, cv=3).fit(shards)
    in_memory = LabelThresholds(simple, cv=3).fit(digits.bags, digits.Y)
    np.testing.assert_allclose(streamed.thresholds_, in_memory.thresholds_, atol=1e-3)
    np.testing.assert_array_equal(streamed.predict(shards), streamed.predict(digits.bags))
    whole = LabelThresholds(simple, cv=3).fit(one_part)
    np.testing.assert_array_equal(whole.thresholds_, in_memory.thresholds_)
    behind = make_pipeline(OnInstances(StandardScaler()), simple)
    assert LabelThresholds(behind, cv=2).fit(shards).score(shards) > 0
    with pytest.raises(TypeError, match="MIMLKNN needs all bags at once"):
        LabelThresholds(MIMLKNN()).fit(shards)


def test_thresholds_that_were_stopped_go_on(shards, tmp_path, monkeypatch):
    simple = PooledLogisticRegression(statistics=("mean",), max_iter=4)
    expected = LabelThresholds(simple, cv=2).fit(shards)
    stopped_fit(LabelThresholds(simple, cv=2), shards, tmp_path / "fit", monkeypatch, after=9)
    with checkpoint(tmp_path / "fit"):
        found = LabelThresholds(simple, cv=2).fit(shards)
    np.testing.assert_array_equal(found.thresholds_, expected.thresholds_)
    np.testing.assert_array_equal(found.estimator_.coef_, expected.estimator_.coef_)
