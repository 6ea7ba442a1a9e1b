import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagwise.datasets import (
    make_correlated_labels,
    make_miml,
    make_multi_target,
    make_multi_view,
    make_sub_concepts,
)
from bagwise.datasets.draws import draw_label_sets, draw_roles

SINGLE_VIEW = [make_miml, make_sub_concepts, make_correlated_labels, make_multi_target]


def union(labels, index, shape):
    """Labels that the instances of each bag carry."""
    Y = np.zeros(shape, dtype=np.int8)
    known = labels >= 0
    Y[index[known], labels[known]] = 1
    return Y


@pytest.mark.parametrize("make", SINGLE_VIEW)
def test_bag_labels_are_the_union_of_instance_labels(make):
    data = make(n_bags=150, random_state=4)
    assert np.array_equal(union(data.instance_Y, data.bags.index, data.Y.shape), data.Y)
    assert data.bags.dtype == np.float32
    assert data.description and data.name == make.__name__.removeprefix("make_")


@pytest.mark.parametrize("make", [*SINGLE_VIEW, make_multi_view])
def test_same_seed_same_set(make):
    first, again, other = make(random_state=3), make(random_state=3), make(random_state=5)
    assert first.bags.equals(again.bags) and np.array_equal(first.Y, again.Y)
    assert not first.bags.equals(other.bags)


@given(
    n_bags=st.integers(0, 12),
    n_labels=st.integers(1, 5),
    size=st.integers(0, 7),
    noise=st.floats(0, 1),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_roles_give_every_label_its_cause(n_bags, n_labels, size, noise, seed):
    rng = np.random.default_rng(seed)
    Y = (rng.random((n_bags, n_labels)) < 0.5).astype(np.int8)
    sizes = np.maximum(rng.integers(0, size + 1, n_bags), Y.sum(axis=1))
    labels, offsets = draw_roles(rng, Y, sizes, noise)
    index = np.repeat(np.arange(n_bags), sizes)
    assert np.array_equal(np.diff(offsets), sizes)
    assert np.array_equal(union(labels, index, Y.shape), Y)


def test_cardinality_is_met_on_average():
    rng = np.random.default_rng(0)
    for cardinality in (0.4, 1.0, 1.24, 3.7):
        Y = draw_label_sets(rng, 20_000, 12, cardinality)
        assert Y.sum(axis=1).mean() == pytest.approx(cardinality, abs=0.05)
    assert draw_label_sets(rng, 500, 5, 1.0).sum(axis=1).tolist() == [1] * 500


def test_skew_makes_first_labels_popular():
    counts = make_miml(5000, 8, 2, skew=1.0, cardinality=1.0).Y.sum(axis=0)
    assert counts[0] > 4 * counts[-1]


def test_noise_share():
    data = make_miml(3000, noise=0.5, cardinality=1.0, min_size=5, max_size=5)
    assert (data.instance_Y == -1).mean() == pytest.approx(0.4, abs=0.02)  # half of 4 out of 5


def test_labels_can_be_told_apart():
    data = make_miml(400, separation=8.0)
    centres = np.stack([data.bags.X[data.instance_Y == k].mean(axis=0) for k in range(6)] + [np.zeros(20)])
    nearest = ((data.bags.X[:, None, :] - centres) ** 2).sum(axis=2).argmin(axis=1)
    assert np.mean(nearest == np.where(data.instance_Y < 0, 6, data.instance_Y)) > 0.99


def test_sub_concepts_of_a_label_are_centred():
    data = make_sub_concepts(3000, n_sub=3)
    sub, X = data.bags.instance_info["sub_concept"], data.bags.X
    assert np.array_equal(sub == -1, data.instance_Y == -1)
    for label in range(5):
        centres = [X[(data.instance_Y == label) & (sub == k)].mean(axis=0) for k in range(3)]
        assert np.linalg.norm(np.mean(centres, axis=0)) < 0.3
        assert np.sqrt(np.mean(np.square(centres).sum(axis=1))) == pytest.approx(5.0, abs=0.3)


def test_correlation_leaves_popularity_alone():
    tied = make_correlated_labels(20_000, correlation=0.9)
    free = make_correlated_labels(20_000, correlation=0.0)
    assert np.allclose(tied.Y.mean(axis=0), free.Y.mean(axis=0), atol=0.02)
    assert tied.cardinality == pytest.approx(2.5, abs=0.05)

    def dependence(Y):
        C = np.abs(np.corrcoef(Y.T))
        return C[~np.eye(len(C), dtype=bool)].mean()

    assert dependence(tied.Y) > 0.15 > 0.02 > dependence(free.Y)


def test_multi_target_has_one_target_per_positive_bag():
    data = make_multi_target(300, n_targets=4, positive=0.3)
    per_bag = np.bincount(data.bags.index, weights=data.instance_Y == 0)
    assert np.array_equal(per_bag, data.Y[:, 0])
    assert data.Y.sum() == 90
    assert set(data.bags.instance_info["target"].tolist()) == {-1, 0, 1, 2, 3}
    assert data.label_names == ("positive",)


def test_views_keep_labels_and_go_missing():
    data = make_multi_view(500, gaussian=(4, 6), counts=(30,), missing=0.5)
    assert data.bags.view_names == ("gaussian_0", "gaussian_1", "counts_0")
    assert data.bags["counts_0"].is_sparse and data.bags["counts_0"].n_features == 30
    present = data.bags.present
    assert present.any(axis=1).all() and 0.4 < 1 - present.mean() < 0.5
    for k, name in enumerate(data.bags.view_names):
        bags = data.bags[name]
        Y = union(data.instance_Y[name], bags.index, data.Y.shape)
        assert np.array_equal(Y[present[:, k]], data.Y[present[:, k]])
    counts = data.bags["counts_0"].X
    assert (counts.sum(axis=1) >= 1).all() and np.array_equal(counts.data, np.round(counts.data))
    assert not make_multi_view(500, missing=0.7, at_least_one=False).bags.present.any(axis=1).all()


def test_views_can_be_cut():
    data = make_multi_view(20)
    part = data[[3, 1]]
    assert len(part.instance_Y["counts_0"]) == part.bags["counts_0"].n_instances


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (make_miml, {"min_size": 0}, "min_size=0"),
        (make_miml, {"noise": 2.0}, "noise is a share"),
        (make_miml, {"cardinality": 9.0}, "n_labels=6"),
        (make_correlated_labels, {"correlation": -1}, "correlation is a share"),
        (make_correlated_labels, {"cardinality": 0}, "cardinality"),
        (make_multi_view, {"gaussian": (), "counts": ()}, "at least one view"),
    ],
)
def test_wrong_arguments_are_named(make, arguments, message):
    with pytest.raises(ValueError, match=message):
        make(**arguments)


def test_a_large_set_takes_seconds():
    start = time.perf_counter()
    data = make_miml(30_000, 99, 225, min_size=9, max_size=9, cardinality=1.8)
    assert data.bags.n_instances == pytest.approx(270_000, rel=0.01)
    assert time.perf_counter() - start < 30
