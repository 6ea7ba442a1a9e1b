"""Transformers of instances, statistics of bags, and similarities to a sample of rows."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.preprocessing import StandardScaler

from bagwise import Bags
from bagwise.checks import sample_bags
from bagwise.preprocessing import BagPooling, OnInstances, RBFDictionary


def test_on_instances_equals_the_transformer_on_the_matrix():
    bags, _ = sample_bags(n_bags=60)
    scaled = OnInstances(StandardScaler()).fit_transform(bags)
    np.testing.assert_allclose(scaled.X, StandardScaler().fit_transform(bags.X))
    assert scaled.instance_info["label"] is bags.instance_info["label"]
    with pytest.raises(TypeError, match="OnInstances"):
        StandardScaler().fit(bags)


def pooled(instances, how):
    if how == "size":
        return np.array([len(instances)], dtype=float)
    if len(instances) == 0:
        return np.zeros(instances.shape[1])
    return np.quantile(instances, how, axis=0) if isinstance(how, float) else getattr(instances, how)(axis=0)


@pytest.mark.parametrize("how", ["mean", "sum", "max", "min", "std", 0.0, 0.3, 1.0, "size"])
def test_pooling_against_a_loop(how):
    rng = np.random.default_rng(0)
    bags = Bags.from_list([rng.normal(size=(n, 3)).round(1) for n in (3, 0, 1, 7, 3)])
    bags = bags.with_X(np.where(np.abs(bags.X) > 0.5, bags.X, 0.0))
    expected = np.array([pooled(b, how) for b in bags])
    np.testing.assert_allclose(BagPooling(how).fit_transform(bags), expected, atol=1e-12)
    as_csr = bags.with_X(sparse.csr_array(bags.X))
    got = BagPooling(how).fit_transform(as_csr)
    assert sparse.issparse(got)
    np.testing.assert_allclose(got.toarray(), expected, atol=1e-12)


def test_several_poolings_side_by_side_and_their_names():
    bags = Bags(np.arange(8.0).reshape(4, 2), [0, 3, 4], feature_names=["pitch", "length"])
    how = ["min", "max", 0.25, "size"]
    table = BagPooling(how).fit_transform(bags)
    np.testing.assert_allclose(table, np.hstack([BagPooling(h).fit_transform(bags) for h in how]))
    names = ["min_pitch", "min_length", "max_pitch", "max_length", "q0.25_pitch", "q0.25_length", "size"]
    assert BagPooling(how).fit(bags).get_feature_names_out().tolist() == names
    frame = BagPooling(how).set_output(transform="pandas").fit_transform(bags)
    assert frame.columns.tolist() == names
    np.testing.assert_allclose(frame.to_numpy(), table)
    with pytest.raises(ValueError, match="input_features"):
        BagPooling().fit(bags).get_feature_names_out(["one"])


@pytest.mark.parametrize("how", ["median", 1.5, [], ["mean", "nothing"], None])
def test_unknown_poolings_are_refused(how):
    with pytest.raises(ValueError, match="how of BagPooling must be"):
        BagPooling(how).fit(Bags(np.ones((1, 1)), [0, 1]))


def test_dictionary_refuses_nonsense():
    for wrong in ({"size": 1.5}, {"size": 0}, {"scale": 0.0}, {"random_state": -1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            RBFDictionary(**wrong).fit(np.ones((3, 1)))
