"""MIMLMix as an estimator: topics, streams, storage, errors, and its generator of data."""

import pickle

import numpy as np
import pytest
import skops.io
from mimlmix_problems import FIXED, two_views
from scipy import sparse
from sklearn.base import clone

from bagwise import Bags, MultiViewBags
from bagwise.datasets import make_mimlmix_like
from bagwise.errors import DataError
from bagwise.metrics import average_precision
from bagwise.models.mimlmix.estimator import MIMLMix
from bagwise.models.mimlmix.kernels_topics import (
    completion,
    fit_topics,
    label_distributions,
)

# ---------------------------------------------------------------------- topics and streams


def test_topics_complete_label_sets_better_than_popularity():
    Y = make_mimlmix_like("citeseer", 1500, random_state=8).Y
    shuffled = make_mimlmix_like("citeseer", 1500, correlation=0.0, random_state=8).Y

    def value(Y, n_topics):
        counts = fit_topics(Y[:1200], n_topics, np.random.RandomState(0))
        np.testing.assert_allclose(counts.sum(), Y[:1200].sum())
        return completion(Y[1200:], label_distributions(counts, 0.01), np.random.RandomState(1))

    assert value(Y, 50) > 4 * value(Y, 1)
    assert value(shuffled, 50) < value(shuffled, 1) + 0.02  # nothing beyond popularity to be found


def test_streams_reach_batch_quality_and_learn_new_labels():
    data = make_mimlmix_like("imageclef", 1000, random_state=9)
    train_part, test = data[:800], data[800:]
    settings = {**FIXED, "kappa": 100.0, "n_topics": 12, "alpha_train": 5.0}
    batch = MIMLMix(**settings).fit(train_part.bags, train_part.Y)
    stream = MIMLMix(**settings)
    for start in range(0, 800, 200):
        part = slice(start, start + 200)
        stream.partial_fit(train_part.bags[part], train_part.Y[part])
    assert stream.n_bags_seen_ == 800
    assert set(stream.components_) == set(batch.components_)
    found = average_precision(test.Y, stream.label_scores(test.bags))
    assert found > 0.85 * average_precision(test.Y, batch.label_scores(test.bags))
    words = make_mimlmix_like("citeseer", 90, random_state=9)
    stream = MIMLMix(**settings).partial_fit(words.bags[:30], words.Y[:30])
    known = len(stream.components_)
    stream.partial_fit(words.bags[30:60], words.Y[30:60]).partial_fit(words.bags[60:], words.Y[60:])
    assert len(stream.components_) > known
    assert np.isfinite(stream.label_scores(words.bags)).all()
    for v in words.bags.view_names:
        p = stream.label_distribution(int(stream.components_[-1]), v)["words"]
        np.testing.assert_allclose(p.sum(), 1.0)


@pytest.mark.parametrize("covariance", ["full", "tied", "diag"])
def test_streams_with_all_covariances(covariance):
    data = make_mimlmix_like("iaprtc", 120, random_state=10)
    model = MIMLMix(**FIXED, covariance=covariance, max_iter=10)
    model.fit(data.bags[:60], data.Y[:60]).partial_fit(data.bags[60:], data.Y[60:])
    assert np.isfinite(model.decision_function(data.bags)).all()


# ---------------------------------------------------------------------- the contract


def test_dense_and_sparse_counts_agree_and_stay_sparse(monkeypatch):
    data = make_mimlmix_like("imageclef", 60, random_state=11)
    dense = MultiViewBags({v: b.with_X(b.X.toarray()) for v, b in data.bags.views.items()})
    expected = MIMLMix(**FIXED, max_iter=5).fit(dense, data.Y).label_scores(dense)

    def refuse(*args, **kwargs):
        raise AssertionError("a count view was made dense")

    monkeypatch.setattr(sparse.csr_array, "toarray", refuse)
    monkeypatch.setattr(sparse.csr_array, "todense", refuse)
    model = MIMLMix(**FIXED, max_iter=5).fit(data.bags, data.Y)
    np.testing.assert_allclose(model.label_scores(data.bags), expected, rtol=1e-8)


def test_labels_may_be_permuted():
    data = make_mimlmix_like("iaprtc", 120, random_state=12)
    order = np.random.default_rng(0).permutation(data.Y.shape[1])
    a = MIMLMix(**FIXED).fit(data.bags, data.Y).label_scores(data.bags)
    b = MIMLMix(**FIXED).fit(data.bags, data.Y[:, order]).label_scores(data.bags)
    np.testing.assert_allclose(a[:, order], b, rtol=1e-6, atol=1e-9)


def test_storage():
    views, Y = two_views(11, n_bags=30)
    bags = MultiViewBags(views)
    model = MIMLMix(**FIXED).fit(bags, Y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.label_scores(bags), model.label_scores(bags))
    stored = skops.io.dumps(model)
    foreign = skops.io.get_untrusted_types(data=stored)
    assert set(foreign) <= {"bagwise.models.mimlmix.estimator.MIMLMix"}
    loaded = skops.io.loads(stored, trusted=foreign)
    np.testing.assert_array_equal(loaded.label_scores(bags), model.label_scores(bags))
    assert clone(model).get_params() == model.get_params()


def test_label_distribution_in_the_units_of_the_data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 2)) * [2.0, 0.5] + [5.0, -3.0]
    bags = Bags(X, np.arange(0, 401, 4))
    for covariance in ("full", "diag"):
        model = MIMLMix(**{**FIXED, "nu": 0.0}, covariance=covariance).fit(bags, np.ones((100, 1), dtype=int))
        found = model.label_distribution(0)
        np.testing.assert_allclose(found["mean"], X.mean(axis=0))
        np.testing.assert_allclose(np.diag(found["covariance"]), X.var(axis=0), rtol=1e-6)


def test_errors_say_what_to_do():
    views, Y = two_views(12, n_bags=20)
    bags = MultiViewBags(views)
    with pytest.raises(ValueError, match="kappa of MIMLMix must be"):
        MIMLMix(kappa=0.0).fit(bags, Y)
    with pytest.raises(ValueError, match="mode of MIMLMix must be"):
        MIMLMix(mode="printed").fit(bags, Y)
    with pytest.raises(DataError, match="negative numbers"):
        MIMLMix(**FIXED, view_kinds={"x": "counts"}).fit(bags, Y)
    with pytest.raises(DataError, match="view_kinds names"):
        MIMLMix(**FIXED, view_kinds={"z": "counts"}).fit(bags, Y)
    model = MIMLMix(**FIXED).fit(bags, Y)
    with pytest.raises(DataError, match="but fit saw"):
        model.predict(MultiViewBags({"x": views["x"]}))
    with pytest.raises(DataError, match="but fit saw"):
        model.predict(Bags(np.ones((1, 9)), [0, 1]))
    with pytest.raises(DataError, match="fit saw a single view"):
        MIMLMix(**FIXED).fit(views["x"], Y).predict(bags)
    with pytest.raises(DataError, match="name one of the views"):
        model.label_distribution(0)


# ---------------------------------------------------------------------- the generator


def test_generator_has_the_published_sizes_and_correlation():
    shapes = {"citeseer": (500, 2000, 2000), "imageclef": (78, 1000, 806), "iaprtc": (244, 28)}
    per_bag = {"citeseer": (35.7, 48.3), "imageclef": (18.4, 2.6), "iaprtc": (5.09,)}
    for size, (n_labels, *widths) in shapes.items():
        data = make_mimlmix_like(size, 300, random_state=0)
        views = data.bags.views.values() if isinstance(data.bags, MultiViewBags) else [data.bags]
        assert data.Y.shape[1] == n_labels
        assert (data.Y.sum(axis=1) >= 1).all()
        assert [b.n_features for b in views] == widths
        for b, mean in zip(views, per_bag[size]):
            assert abs(b.sizes.mean() / mean - 1) < 0.1
    missing = make_mimlmix_like("imageclef", 400, missing=0.5)
    assert abs((~missing.bags.present).any(axis=1).mean() - 0.5) < 0.1
    assert missing.bags.present.any(axis=1).all()
    truth = missing.instance_Y["visual"]
    assert (missing.Y[missing.bags["visual"].index, truth] == 1).all()
    again = make_mimlmix_like("imageclef", 400, missing=0.5)
    assert missing.bags.equals(again.bags)
    with pytest.raises(ValueError, match="size must be one of"):
        make_mimlmix_like("corel")
    harder = make_mimlmix_like("imageclef", 400, noise={"visual": 1.0})
    np.testing.assert_array_equal(harder.Y, make_mimlmix_like("imageclef", 400).Y)
    words = {
        size: make_mimlmix_like("imageclef", 400, noise={"visual": size}).bags["visual"] for size in (0, 1)
    }
    spread = {}
    for size, bags in words.items():  # with noise 1 words say nothing: all labels share their distribution
        label = make_mimlmix_like("imageclef", 400, noise={"visual": size}).instance_Y["visual"]
        means = np.stack([np.asarray(bags.X[label == y].mean(axis=0)).ravel() for y in np.unique(label)[:20]])
        spread[size] = np.abs(means - means.mean(axis=0)).sum(axis=1).mean()
    assert spread[1] < 0.5 * spread[0]
    with pytest.raises(ValueError, match="noise names 'regions'"):
        make_mimlmix_like("iaprtc", 10, noise={"regions": 0.5})
    with pytest.raises(ValueError, match="share between 0 and 1"):
        make_mimlmix_like("imageclef", 10, noise={"visual": 1.5})
