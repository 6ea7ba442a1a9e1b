"""Objectives, gradients and the search from many starts against plain loops and SciPy."""

from itertools import combinations

import numpy as np
import pytest
from density_references import plain_density, plain_q
from toy_bags import planted

from bagwise.models.diverse_density.base import cheapest, starting_rows, starting_sets
from bagwise.models.diverse_density.kernels import NoisyOr, OnePerBag, distances, log_odds

# ---------------------------------------------------------------------- objectives


def test_density_and_its_gradient():
    bags, y, _ = planted(8)
    rng = np.random.default_rng(1)
    theta = rng.normal(size=(5, 6))
    function = NoisyOr(bags.X, bags.offsets, y)
    values, G = function(theta, np.arange(5))
    np.testing.assert_allclose(values, [plain_density(t, bags, y) for t in theta], rtol=1e-9)
    for k in range(6):
        step = np.zeros(6)
        step[k] = 1e-5
        up, down = function(theta + step, None)[0], function(theta - step, None)[0]
        np.testing.assert_allclose(G[:, k], (up - down) / 2e-5, rtol=1e-4, atol=1e-5)


def test_density_far_from_everything_and_at_an_instance():
    bags, y, rows = planted(8)
    function = NoisyOr(bags.X, bags.offsets, y)
    theta = np.array([[90.0, 0, 0, 1, 1, 1], [60.0, 5, 0, 2, 1, 1]])  # p is 0 in double precision
    values, G = function(theta, None)
    expected = np.zeros(2)
    for t, (h, s) in enumerate((row[:3], row[3:]) for row in theta):
        for bag, label in zip(bags, y):
            expected[t] -= np.logaddexp.reduce([-plain_q(x, h, s) for x in bag]) if label else 0.0
    np.testing.assert_allclose(values, expected)
    assert np.isfinite(G).all() and (np.abs(G).max(axis=1) > 1.0).all()  # the way back is known
    negative = int(np.flatnonzero(y[bags.index] == 0)[0])
    for row in (rows[0], negative):
        values, G = function(np.concatenate([bags.X[row], np.ones(3)])[None], None)
        assert np.isfinite(values).all() and np.isfinite(G).all()


@pytest.mark.parametrize("cells", [1, 7, 1 << 16])
def test_blocks_of_instances_change_nothing(cells, monkeypatch):
    bags, y, _ = planted(8)
    theta = np.random.default_rng(1).normal(size=(3, 6))
    values, G = NoisyOr(bags.X, bags.offsets, y)(theta, None)
    monkeypatch.setattr("bagwise.models.diverse_density.kernels._CELLS", cells)
    again, again_G = NoisyOr(bags.X, bags.offsets, y)(theta, None)
    np.testing.assert_allclose(again, values, rtol=1e-12)
    np.testing.assert_allclose(again_G, G, rtol=1e-9, atol=1e-9)


def test_concepts_near_and_far_together():
    bags, y, _ = planted(8)
    function = NoisyOr(bags.X, bags.offsets, y)
    theta = np.array([[90.0, 0, 0, 1, 1, 1], [1.0, 0.5, 0, 0.4, 0.3, 0.7], [300.0, 0, 0, 9, 1, 1]])
    values, G = function(theta, None)
    for t, row in enumerate(theta):
        alone, alone_G = function(row[None], None)
        np.testing.assert_allclose(values[t], alone[0], rtol=1e-12)
        np.testing.assert_allclose(G[t], alone_G[0], rtol=1e-9, atol=1e-12)


def test_known_density_of_two_bags():
    # positive bag {0}, negative bag {2}, scale 1: the best point lies a little below 0
    function = NoisyOr(np.array([[0.0], [2.0]]), np.array([0, 1, 2]), np.array([1, 0]))
    h = np.linspace(-1.0, 1.0, 2001)
    values, _ = function(np.column_stack([h, np.ones_like(h)]), None)
    np.testing.assert_allclose(values, h**2 - np.log(1.0 - np.exp(-((2.0 - h) ** 2))), atol=1e-9)
    assert -0.1 < h[values.argmin()] < 0.0


def test_one_per_bag_and_its_gradient():
    rng = np.random.default_rng(0)
    Z, weights = rng.normal(size=(4, 7, 3)), rng.integers(0, 2, (4, 3)).astype(float)
    theta = rng.normal(size=(4, 6))
    order = rng.permutation(28)  # where the instances of each concept are found
    X = np.empty((28, 3))
    X[order] = Z.reshape(28, 3)
    function = OnePerBag(X, order.reshape(4, 7), weights)
    values, G = function(theta, np.arange(4))
    for t in range(4):
        q = [plain_q(Z[t, b], theta[t, :3], theta[t, 3:]) for b in range(7)]
        expected = sum(w * v for w, v in zip(weights[t], q)) - sum(np.log(1.0 - np.exp(-v)) for v in q[3:])
        assert values[t] == pytest.approx(expected)
    some = np.array([1, 3])
    np.testing.assert_array_equal(function(theta[some], some)[0], values[some])
    for k in range(6):
        step = np.zeros(6)
        step[k] = 1e-6
        up, down = function(theta + step, np.arange(4))[0], function(theta - step, np.arange(4))[0]
        np.testing.assert_allclose(G[:, k], (up - down) / 2e-6, rtol=1e-5, atol=1e-6)


def test_distances_and_log_odds():
    rng = np.random.default_rng(0)
    X, h, s = rng.normal(1e6, 1.0, (9, 2)), rng.normal(1e6, 1.0, (4, 2)), rng.normal(size=(4, 2))
    expected = [[plain_q(x, a, b) for a, b in zip(h, s)] for x in X]
    np.testing.assert_allclose(distances(X, h, s), expected, rtol=1e-9, atol=1e-9)  # far from the origin
    q = np.array([0.01, 0.5, 3.0])
    np.testing.assert_allclose(log_odds(q), np.log(np.exp(-q) / (1.0 - np.exp(-q))))


# ---------------------------------------------------------------------- starts


def test_starts_are_whole_positive_bags():
    bags, y, _ = planted(30)
    inside = np.flatnonzero(y[bags.index])
    rng = np.random.RandomState
    np.testing.assert_array_equal(starting_rows(y, bags.offsets, "all", rng(0)), inside)
    np.testing.assert_array_equal(starting_rows(y, bags.offsets, 10_000, rng(0)), inside)
    rows = starting_rows(y, bags.offsets, 12, rng(0))
    assert len(set(rows.tolist())) == 12 and np.isin(rows, inside).all()
    partly = [b for b in np.unique(bags.index[rows]) if (bags.index[rows] == b).sum() < bags.sizes[b]]
    assert len(partly) <= 1
    sets = starting_sets(bags.X, bags.offsets, y, 3, 5, 0.5, rng(0))
    assert sets.shape == (5, 3, 6) and set(sets[:, 0, 3:].ravel()) == {0.5, 1.0}
    for points in sets[1:, :, :3]:
        found = [int(np.flatnonzero((p == bags.X).all(axis=1))[0]) for p in points]
        assert np.isin(found, inside).all()


def test_concepts_that_together_cost_least():
    rng = np.random.default_rng(0)
    y = np.arange(12) % 2
    pairs = list(combinations(range(9), 2))
    best = 0
    for _ in range(20):
        Q = rng.exponential(1.0, size=(12, 9)) * rng.exponential(2.0, size=9)

        def cost(some):
            outside = -np.log(1.0 - np.exp(-Q[y == 0][:, some]))  # noqa: B023
            return Q[y == 1][:, some].min(axis=1).sum() + outside.sum()  # noqa: B023

        found = cheapest(Q, y, 2)
        costs = sorted(cost(list(pair)) for pair in pairs)
        best += bool(np.isclose(cost(found), costs[0]) or found[0] == found[1])
        assert cost(found) <= costs[4] or found[0] == found[1]  # one point may do better than two
    assert best >= 15
