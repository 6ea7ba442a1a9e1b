"""Views of MIMLmix: what they are taken for, how they are matched, and those that say nothing."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

from bagwise import Bags, MultiViewBags
from bagwise.datasets import make_mimlmix_like
from bagwise.errors import DataError
from bagwise.metrics import average_precision
from bagwise.models import MIMLMix

FIXED = {
    "eta": 1.0,
    "xi": 0.3,
    "kappa": 20.0,
    "nu": 5.0,
    "alpha_train": 2.0,
    "n_topics": 2,
    "random_state": 0,
}


def sample(seed=0, n_bags=60, n_labels=3):
    """Bags whose instances come from one of their labels, in a continuous view and a view of words."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n_bags, n_labels)) < 0.4).astype(int)
    Y[np.arange(n_bags), rng.integers(0, n_labels, n_bags)] = 1
    sizes = rng.integers(2, 6, n_bags)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    z = np.concatenate([rng.choice(np.flatnonzero(y), m) for y, m in zip(Y, sizes)])
    X = 2.0 * np.eye(n_labels, 4)[z] + rng.normal(size=(len(z), 4))
    words = sparse.csr_array((np.ones(len(z)), 20 * z + rng.integers(0, 20, len(z)), np.arange(len(z) + 1)),
                             shape=(len(z), 20 * n_labels))  # fmt: skip
    return Bags(X, offsets), Bags(words, offsets), Y


def text(seed=1, n_bags=150, n_labels=4, n_words=120):
    """Sentences as tf-idf rows of length 1: sparse, not whole."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n_bags, n_labels)) < 0.3).astype(int)
    Y[np.arange(n_bags), rng.integers(0, n_labels, n_bags)] = 1
    sizes = rng.integers(2, 5, n_bags)
    z = np.concatenate([rng.choice(np.flatnonzero(y), m) for y, m in zip(Y, sizes)])
    topics = rng.dirichlet(np.full(n_words, 0.05), n_labels)
    counts = np.stack([rng.multinomial(8, 0.7 * topics[k] + 0.3 / n_words) for k in z]).astype(float)
    X = counts * np.log(len(z) / (1.0 + (counts > 0).sum(axis=0)))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return Bags(sparse.csr_array(X), np.concatenate([[0], np.cumsum(sizes)])), Y


# ---------------------------------------------------------------------- views that say nothing


def test_a_view_without_instances_or_of_one_value_gets_no_weight():
    x, w, Y = sample()
    n = x.n_instances
    silent = {
        "absent": Bags(np.empty((0, 2)), np.zeros(len(Y) + 1, dtype=int)),
        "absent words": Bags(sparse.csr_array((0, 5)), np.zeros(len(Y) + 1, dtype=int)),
        "constant": Bags(np.full((n, 2), 0.1), x.offsets),
        "one word": Bags(sparse.csr_array(np.tile([0.0, 0.0, 0.0, 1.0], (n, 1))), x.offsets),
        "one sentence": Bags(sparse.csr_array(np.tile([2.0] + 9 * [0.0] + [1.0], (n, 1))), x.offsets),
    }
    alone = MIMLMix(**FIXED).fit(MultiViewBags({"x": x, "w": w}), Y)
    for name, view in silent.items():
        bags = MultiViewBags({"x": x, name: view, "w": w})
        with pytest.warns(UserWarning, match=f"view '{name}' says nothing"):
            model = MIMLMix(**FIXED).fit(bags, Y)
        assert model.view_weights_[name] == 0.0
        expected = [alone.view_weights_[v] for v in ("x", "w")]
        np.testing.assert_allclose([model.view_weights_[v] for v in ("x", "w")], expected, rtol=1e-6)
        np.testing.assert_allclose(
            model.label_scores(bags), alone.label_scores(MultiViewBags({"x": x, "w": w})), rtol=1e-6
        )
        model.partial_fit(bags, Y)
        assert np.isfinite(model.decision_function(bags)).all()
    with pytest.warns(UserWarning, match="says nothing"):  # a view of that kind alone: the prior remains
        only = MIMLMix(**FIXED).fit(silent["constant"], Y)
    assert np.isfinite(only.decision_function(silent["constant"])).all()


def test_bags_that_only_have_a_view_without_weight_get_the_prior():
    x, _, Y = sample()
    late = Bags(np.full((x.n_instances, 2), 0.1), x.offsets)
    with pytest.warns(UserWarning, match="says nothing"):
        model = MIMLMix(**FIXED).fit(MultiViewBags({"x": x, "late": late}), Y)
    nothing = np.zeros(len(Y) + 1, dtype=int)
    bags = MultiViewBags({"x": Bags(np.empty((0, 4)), nothing), "late": late})
    expected = 1.0 * model._topic_share @ model.label_topics_ + 0.3
    np.testing.assert_allclose(model.label_scores(bags), np.tile(expected, (len(Y), 1)))
    assert np.isfinite(model.instance_scores(bags)["late"]).all()


@pytest.mark.parametrize("covariance", ["full", "tied", "diag"])
def test_constant_features_take_no_part(covariance):
    """The density of a constant would favour labels with many instances, and follow its rounding."""
    x, _, Y = sample()
    settings = {**FIXED, "covariance": covariance}
    plain = MIMLMix(**settings).fit(x, Y)
    wide = x.with_X(np.column_stack([x.X[:, :2], np.full(x.n_instances, 0.1), x.X[:, 2:]]))
    model = MIMLMix(**settings).fit(wide, Y)
    np.testing.assert_allclose(model.label_scores(wide), plain.label_scores(x), rtol=1e-9)
    moved = wide.with_X(wide.X + [0.0, 0.0, 1e-9, 0.0, 0.0])
    np.testing.assert_allclose(model.label_scores(moved), plain.label_scores(x), rtol=1e-9)
    found = model.label_distribution(0)
    assert found["mean"][2] == pytest.approx(0.1)
    assert found["covariance"].shape == (5, 5)
    assert (found["covariance"][2] == 0).all()
    model.partial_fit(wide, Y)
    assert np.isfinite(model.decision_function(wide)).all()


# ---------------------------------------------------------------------- views go by name


def test_views_are_matched_by_name():
    x, w, Y = sample()
    one_way, other_way = MultiViewBags({"x": x, "w": w}), MultiViewBags({"w": w, "x": x})
    model = MIMLMix(**FIXED, tau=[0.0, 3.0]).fit(one_way, Y)
    np.testing.assert_array_equal(model.decision_function(other_way), model.decision_function(one_way))
    for v in ("x", "w"):
        np.testing.assert_array_equal(model.instance_scores(other_way)[v], model.instance_scores(one_way)[v])
        np.testing.assert_array_equal(model.annotate(other_way, Y)[v], model.annotate(one_way, Y)[v])
        np.testing.assert_array_equal(model.key_instances(other_way)[v], model.key_instances(one_way)[v])
    again = MIMLMix(**FIXED, tau={"w": 3.0, "x": 0.0}).fit(other_way, Y)
    for v in ("x", "w"):
        assert again.view_weights_[v] == pytest.approx(model.view_weights_[v])
    before = model.label_scores(one_way)
    model.partial_fit(other_way, Y)
    assert not np.allclose(model.label_scores(one_way), before)
    with pytest.raises(DataError, match="fit saw the views x, w; give a MultiViewBags"):
        model.predict(x)
    with pytest.raises(DataError, match="tau names the views"):
        MIMLMix(**FIXED, tau={"y": 1.0}).fit(one_way, Y)


# ---------------------------------------------------------------------- what a view is taken for


def test_weights_of_words_stay_sparse(monkeypatch):
    bags, Y = text()
    model = MIMLMix(**FIXED).fit(bags.with_X(bags.X.toarray()), Y)
    assert model.view_kinds_ == {"instances": "counts"}
    expected = model.label_scores(bags)
    assert average_precision(Y, expected) > 0.9

    def refuse(*args, **kwargs):
        raise AssertionError("weights of words were made dense")

    monkeypatch.setattr(sparse.csr_array, "toarray", refuse)
    monkeypatch.setattr(sparse.csr_array, "todense", refuse)
    model = MIMLMix(**FIXED).fit(bags, Y)
    np.testing.assert_allclose(model.label_scores(bags), expected, rtol=1e-8)
    assert model.annotate(bags, Y).shape == (bags.n_instances,)


def test_fractions_of_counts_are_worth_what_they_say():
    """Half of every count, with twice the instances: the expected counts of words are the same."""
    bags, Y = text()
    halves = Bags(sparse.vstack([0.5 * X for X in bags for _ in range(2)], format="csr"), 2 * bags.offsets)
    model = MIMLMix(**{**FIXED, "max_iter": 1}, view_kinds="counts")
    whole = model.fit(bags, Y).views_["instances"]["totals"].sum()
    assert model.fit(halves, Y).views_["instances"]["totals"].sum() == pytest.approx(whole)


def test_kinds_are_said_and_doubtful_ones_refused():
    x, w, Y = sample()
    model = MIMLMix(**FIXED).fit(MultiViewBags({"x": x, "w": w}), Y)
    assert model.view_kinds_ == {"x": "gaussian", "w": "counts"}
    named = MIMLMix(**FIXED, view_kinds=["auto", "gaussian"]).fit(MultiViewBags({"x": x, "w": w}), Y)
    assert named.view_kinds_ == {"x": "gaussian", "w": "gaussian"}
    wide = sparse.csr_array(sparse.random(x.n_instances, 900, density=0.05, format="csr", random_state=0))
    wide.data[7] = -1.0
    negative = x.with_X(wide)
    with pytest.raises(DataError, match=r"negative numbers \(-1 in bag .*view_kinds"):
        MIMLMix(**FIXED).fit(MultiViewBags({"x": x, "w": negative}), Y)
    named = MIMLMix(**FIXED, view_kinds={"w": "gaussian"}, covariance="diag")
    assert named.fit(MultiViewBags({"x": x, "w": negative}), Y).view_kinds_["w"] == "gaussian"
    dense = x.with_X(sparse.csr_array(x.X))  # CSR without zeros is as continuous as a dense array
    assert MIMLMix(**FIXED).fit(dense, Y).view_kinds_ == {"instances": "gaussian"}


def test_covariances_beyond_memory_are_refused():
    rng = np.random.default_rng(0)
    bags, Y = Bags(rng.normal(size=(20, 15000)), np.arange(21)), np.eye(2, dtype=int)[np.arange(20) % 2]
    with pytest.raises(DataError, match=r"view 'instances': covariances of 15000 .* take 3 GiB.*diag"):
        MIMLMix(**FIXED).fit(bags, Y)
    assert MIMLMix(**FIXED, covariance="diag").fit(bags[:, :3000], Y).predict(bags[:, :3000]).shape == (20, 2)


# ---------------------------------------------------------------------- streams, parameters, state


def test_streams_move_the_size_of_label_sets_and_the_threshold():
    rng = np.random.default_rng(3)

    def batch(n_labels_each, seed):
        x, _, _ = sample(seed, n_labels=5)
        Y = np.zeros((60, 5), dtype=int)
        for row in Y:
            row[rng.choice(5, n_labels_each, replace=False)] = 1
        return x, Y

    model = MIMLMix(**FIXED).partial_fit(*batch(1, 0))
    assert model.n_top_ == 1
    for seed in range(1, 6):
        model.partial_fit(*batch(4, seed))
    assert model.n_top_ == round((1 + 5 * 4) / 6)
    assert (model.predict(batch(4, 9)[0]).sum(axis=1) == model.n_top_).all()

    model = MIMLMix(**FIXED, sets="threshold").partial_fit(*batch(1, 0))
    first, test = model.threshold_, batch(4, 9)
    for seed in range(1, 6):
        model.partial_fit(*batch(4, seed))
    assert model.threshold_ < first
    errors = np.mean(model.predict(test[0]) != test[1])
    model.threshold_ = first
    assert errors < np.mean(model.predict(test[0]) != test[1])


def test_streams_name_the_bags_that_they_leave_out():
    x, _, Y = sample()
    model = MIMLMix(**FIXED).fit(x, Y)
    empty = Y.copy()
    empty[:2] = 0
    with pytest.warns(UserWarning, match="2 bags without labels are left out: 0, 1"):
        model.partial_fit(x, empty)
    assert model.n_bags_seen_ == 2 * len(Y) - 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.partial_fit(x, 0 * Y)
    assert model.n_bags_seen_ == 2 * len(Y) - 2


@pytest.mark.parametrize("name", sorted(MIMLMix._parameters))
def test_undefined_numbers_are_refused(name):
    x, _, Y = sample()
    for bad in (float("nan"), [float("nan")], {"x": float("nan")}, -3.5):
        if name == "random_state" and bad == -3.5:
            continue
        with pytest.raises(ValueError, match=f"{name} of MIMLMix must be"):
            MIMLMix(**{name: bad}).fit(x, Y)


def test_unfitted_models_say_so():
    x, w, _ = sample()
    for bags in (x, MultiViewBags({"x": x, "w": w})):
        calls = ("predict", "decision_function", "label_scores", "transform_topics", "instance_scores",
                 "key_instances", "annotate", "scores_and_labels")  # fmt: skip
        for call in calls:
            with pytest.raises(NotFittedError):
                getattr(MIMLMix(), call)(bags)
    with pytest.raises(NotFittedError):
        MIMLMix().label_distribution(0)


def test_generated_views_are_taken_for_what_they_are():
    data = make_mimlmix_like("imageclef", 60, random_state=0)
    model = MIMLMix(**{**FIXED, "max_iter": 3}).fit(data.bags, data.Y)
    assert model.view_kinds_ == {"visual": "counts", "textual": "counts"}
