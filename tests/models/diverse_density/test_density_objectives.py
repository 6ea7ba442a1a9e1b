"""Objectives, gradients and the search from many starts against plain loops and SciPy."""

from itertools import combinations

import numpy as np
import pytest
from density_references import plain_density, plain_q, scipy_minimum
from toy_bags import planted

from bagwise.compute.optim import minimise_many
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


# ---------------------------------------------------------------------- many starts


def test_many_starts_find_the_minima_of_scipy():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(6, 12, 5))
    H, c = np.einsum("tij,tik->tjk", A, A), rng.normal(size=(6, 5)) * 5.0  # a bowl for every start
    limit = np.array([np.inf, np.inf, 0.2, 0.1, np.inf])

    def bowls(x, which):
        Hx = np.einsum("tjk,tk->tj", H[which], x)
        return 0.5 * (x * Hx).sum(axis=1) - (x * c[which]).sum(axis=1), Hx - c[which]

    found = minimise_many(bowls, rng.normal(size=(6, 5)), limit, max_iter=200, tol=1e-14)
    assert found.at_rest.all() and (np.abs(found.x) <= limit).all()
    for t in range(6):
        one = scipy_minimum(lambda x: 0.5 * x @ H[t] @ x - c[t] @ x, np.zeros(5), limit)  # noqa: B023
        assert found.values[t] == pytest.approx(one.fun, rel=1e-6)
        np.testing.assert_allclose(found.x[t], one.x, atol=1e-3)


def test_many_starts_in_a_bent_valley():
    def rosenbrock(x, which):
        a, b = x[:, 0], x[:, 1]
        value = (1 - a) ** 2 + 100 * (b - a * a) ** 2
        return value, np.column_stack([-2 * (1 - a) - 400 * a * (b - a * a), 200 * (b - a * a)])

    starts = np.random.default_rng(0).uniform(-2, 2, (20, 2))
    found = minimise_many(rosenbrock, starts, np.full(2, np.inf), max_iter=500, tol=1e-15)
    np.testing.assert_allclose(found.x, 1.0, atol=1e-4)
    assert (minimise_many(rosenbrock, starts, np.full(2, np.inf), max_iter=3, tol=0.0).n_iter == 3).all()
    alone = minimise_many(rosenbrock, starts[4:5], np.full(2, np.inf), max_iter=500, tol=1e-15)
    np.testing.assert_allclose(alone.x[0], found.x[4], atol=1e-12)  # starts do not know of each other


def plain_descent(function, x, limit, n_iter):
    """L-BFGS of one start with the inverse Hessian written out as a matrix, within limits."""
    kept = []
    (value,), (g,) = function(x[None], None)
    for _ in range(n_iter):
        wanted = np.where(((x >= limit) & (g < 0)) | ((x <= -limit) & (g > 0)), 0.0, g)
        H = np.eye(len(x)) / max(np.linalg.norm(wanted), 1.0)
        for t, (s, d) in enumerate(kept[-10:]):
            if t == 0:
                H = np.eye(len(x)) * (kept[-1][0] @ kept[-1][1]) / (kept[-1][1] @ kept[-1][1])
            left = np.eye(len(x)) - np.outer(s, d) / (s @ d)
            H = left @ H @ left.T + np.outer(s, s) / (s @ d)
        move, step = np.where(wanted == 0.0, 0.0, -H @ wanted), 1.0
        assert move @ wanted < 0
        while True:
            trial = np.clip(x + step * move, -limit, limit)
            (new,), (new_g,) = function(trial[None], None)
            slope = g @ (trial - x)
            if new <= value + 1e-4 * slope:
                break
            step *= np.clip(-0.5 * slope / (new - value - slope), 0.1, 0.5)
        if (trial - x) @ (new_g - g) > 0:
            kept.append((trial - x, new_g - g))
        x, value, g = trial, new, new_g
    return x


@pytest.mark.parametrize("n_iter", [1, 2, 9, 16])
def test_steps_are_those_of_a_plain_search(n_iter):
    rng = np.random.default_rng(2)
    wide = np.array([1.0, 3.0, 10.0, 30.0, 0.5])

    def bent(x, which):
        u = x - 0.3 * np.roll(x, 1, axis=1) ** 2 - 1.0
        inner = 2.0 * wide * u
        back = np.roll(inner * -0.6 * np.roll(x, 1, axis=1), -1, axis=1)
        return (wide * u**2).sum(axis=1), inner + back

    starts = rng.uniform(-0.5, 0.5, (4, 5))
    limit = np.array([np.inf, 1.2, np.inf, 1.0, np.inf])
    found = minimise_many(bent, starts, limit, max_iter=n_iter, tol=0.0)
    for start, x in zip(starts, found.x):
        np.testing.assert_allclose(x, plain_descent(bent, start, limit, n_iter), rtol=1e-6, atol=1e-8)
    assert (found.n_iter == n_iter).all()


def test_a_start_without_a_value_stays_where_it_is():
    def hole(x, which):
        value = np.where(x[:, 0] < 0, np.nan, (x**2).sum(axis=1))
        return value, 2.0 * x

    found = minimise_many(
        hole, np.array([[-1.0, 2.0], [3.0, 4.0]]), np.full(2, np.inf), max_iter=50, tol=1e-12
    )
    np.testing.assert_array_equal(found.x[0], [-1.0, 2.0])
    assert found.n_iter[0] == 0 and not np.isfinite(found.values[0])
    np.testing.assert_allclose(found.x[1], 0.0, atol=1e-5)


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
