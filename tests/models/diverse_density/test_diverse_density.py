"""Diverse density and what grew from it, against plain loops, grids, finite differences and SciPy."""

import pickle
from itertools import combinations

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import bagwise
from bagwise import Bags
from bagwise.models import DDSVM, EMDD, MCEMDD, DiverseDensity
from bagwise.models.diverse_density.dd_svm import select_maxima
from bagwise.models.diverse_density.descent import minimise_many
from bagwise.models.diverse_density.diverse_density import densest
from bagwise.models.diverse_density.em import choose, em_runs, reseed
from bagwise.models.diverse_density.objective import NoisyOr, OnePerBag, distances, log_odds
from bagwise.models.diverse_density.starts import cheapest, starting_rows, starting_sets

FAMILY = [
    DiverseDensity(20, random_state=0),
    EMDD(20, random_state=0),
    EMDD(20, combine="average", random_state=0),
    MCEMDD(2, n_starts=4, random_state=0),
    DDSVM(20, random_state=0),
]


def planted(n_bags=40, d=3, noise=0.6, seed=0, at=4.0):
    """Every second bag has one instance around (4, 0, ...); the others lie around the origin."""
    rng = np.random.default_rng(seed)
    y = np.arange(n_bags) % 2
    sizes = rng.integers(2, 6, n_bags)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    X = rng.normal(scale=noise, size=(offsets[-1], d))
    rows = offsets[:-1] + rng.integers(0, sizes)
    X[rows[y == 1], 0] += at
    return Bags(X, offsets), y, rows[y == 1]


# ---------------------------------------------------------------------- plain references


def plain_q(x, h, s):
    return sum(s[k] ** 2 * (x[k] - h[k]) ** 2 for k in range(len(h)))


def plain_density(theta, bags, y):
    """Negative logarithm of the diverse density, instance by instance."""
    h, s = np.split(theta, 2)
    value = 0.0
    for bag, label in zip(bags, y):
        p = [np.exp(-plain_q(x, h, s)) for x in bag]
        none = np.prod([max(1.0 - v, 1e-10) for v in p])
        value -= np.log(max(1.0 - none, 1e-300) if label else none)
    return value


def plain_em_objective(points, scales, bags, y):
    """Objective of EM-DD with one or several concepts, bag by bag."""
    value = 0.0
    for bag, label in zip(bags, y):
        Q = np.array([[plain_q(x, h, s) for x in bag] for h, s in zip(points, scales)])
        if label:
            value += Q.min()
        else:
            value -= sum(np.log(1.0 - np.exp(-q)) for q in Q.min(axis=1))
    return value


def scipy_minimum(function, start, limit):
    bounds = [(None, None) if np.isinf(m) else (-m, m) for m in limit]
    return minimize(function, start, method="L-BFGS-B", bounds=bounds, options={"maxiter": 500})


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
    monkeypatch.setattr("bagwise.models.diverse_density.objective._CELLS", cells)
    again, again_G = NoisyOr(bags.X, bags.offsets, y)(theta, None)
    np.testing.assert_allclose(again, values, rtol=1e-12)
    np.testing.assert_allclose(again_G, G, rtol=1e-9, atol=1e-9)


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
    function = OnePerBag(Z, weights)
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


# ---------------------------------------------------------------------- diverse density


def test_densest_point_equals_a_grid():
    rng = np.random.default_rng(3)
    y = np.arange(12) % 2
    X = [rng.choice([-3.0, 3.0], (3, 1)) + rng.normal(size=(3, 1)) for _ in y]  # negatives on either side
    for b in np.flatnonzero(y):
        X[b][0] = rng.normal(scale=0.7)
    bags = Bags.from_list(X)
    model = DiverseDensity("all", scaling="none", max_scale=3.0).fit(bags, y)
    h, s = np.meshgrid(np.linspace(-6, 6, 481), np.linspace(0.01, 3.0, 300))
    values, _ = NoisyOr(bags.X, bags.offsets, y)(np.column_stack([h.ravel(), s.ravel()]), None)
    assert model.objective_[0][0] <= values.min() + 1e-9
    assert model.objective_[0][0] == pytest.approx(values.min(), abs=0.02)
    best = int(values.argmin())
    assert abs(model.concepts_[0][0, 0] - h.ravel()[best]) < 0.05
    assert plain_density(np.concatenate([model.concepts_[0][0], model.scales_[0][0]]), bags, y) == (
        pytest.approx(model.objective_[0][0])
    )


def test_every_start_does_as_well_as_scipy():
    bags, y, _ = planted(16, d=2, noise=1.0)
    settings = {"init_scale": 0.5, "max_scale": 4.0, "max_iter": 300, "tol": 1e-12}
    points = bags.X[y[bags.index] > 0][:6]
    found = densest(y, bags.X, bags.offsets, points, settings)
    limit = np.array([np.inf, np.inf, 4.0, 4.0])
    theirs = [
        scipy_minimum(lambda t: plain_density(t, bags, y), np.concatenate([p, [0.5, 0.5]]), limit).fun
        for p in points
    ]
    assert found.values.min() == pytest.approx(min(theirs), abs=1e-4)
    assert np.isclose(found.values, theirs, atol=1e-3).sum() >= 4  # others ended in another valley


def test_scores_are_log_odds_of_the_noisy_or():
    bags, y, _ = planted(noise=1.0)
    model = DiverseDensity(20, random_state=0).fit(bags, y)
    Z = StandardScaler().fit_transform(bags.X)
    p = np.array([np.exp(-plain_q(z, model.concepts_[0][0], model.scales_[0][0])) for z in Z])
    P = np.array([1.0 - np.prod(1.0 - p[bags.index == b]) for b in range(len(bags))])
    np.testing.assert_allclose(
        model.decision_function(bags), np.log(P / (1 - P)) - model.offset_[0], rtol=1e-6
    )
    np.testing.assert_allclose(
        model.instance_scores(bags)[:, 0], np.log(p / (1 - p)) - model.offset_[0], rtol=1e-6, atol=1e-6
    )
    errors = (model.predict(bags) != y).sum()
    assert errors == min(((t < P) != y).sum() for t in [-1.0, *P])  # the best threshold of all


def test_the_planted_point_is_found():
    bags, y, rows = planted(60, noise=0.4)
    for model in (DiverseDensity(20, random_state=0), EMDD(20, random_state=0)):
        model.fit(bags, y)
        scale = StandardScaler().fit(bags.X)
        point = scale.inverse_transform(model.concepts_[0])[0]
        assert abs(point[0] - 4.0) < 0.5  # where the scale is nearly 0, the point may be anywhere
        assert model.scales_[0][0, 0] > 2 * model.scales_[0][0, 1:].max()  # the feature that matters
        np.testing.assert_array_equal(model.key_instances(bags)[y == 1, 0, 0], rows)
        assert (model.predict(bags) == y).all()


# ---------------------------------------------------------------------- EM


def plain_em(start, scale, bags, y, limit, rounds=50, tol=1e-4):
    """EM-DD from one start: loops, and SciPy with numerical derivatives."""
    d = len(start)
    theta = np.concatenate([start, np.full(d, scale)])
    kept, value = theta, plain_em_objective([theta[:d]], [theta[d:]], bags, y)
    for _ in range(rounds):
        chosen = [bag[np.argmin([plain_q(x, theta[:d], theta[d:]) for x in bag])] for bag in bags]

        def fixed(t):
            q = np.maximum([plain_q(x, t[:d], t[d:]) for x in chosen], 1e-10)  # noqa: B023
            return q[y == 1].sum() - np.log(1.0 - np.exp(-q[y == 0])).sum()

        theta = scipy_minimum(fixed, theta, limit).x
        now = plain_em_objective([theta[:d]], [theta[d:]], bags, y)
        fall, kept, value = value - now, theta if now < value else kept, min(value, now)
        if fall <= tol * max(abs(value + fall), 1.0):
            break
    return value


def test_em_equals_plain_em():
    bags, y, _ = planted(14, d=2, noise=1.0)
    order = np.argsort(1 - y, kind="stable")
    sorted_bags = bags[order]
    starts = bags.X[np.flatnonzero(y[bags.index])[:5]]
    settings = {"init_scale": 0.7, "max_scale": 5.0, "max_iter": 50, "tol": 1e-4}
    theta = np.hstack([starts, np.full_like(starts, 0.7)])[:, None, :]
    runs = em_runs(sorted_bags.X, sorted_bags.offsets, int(y.sum()), theta, settings)
    limit = np.array([np.inf, np.inf, 5.0, 5.0])
    theirs = [plain_em(start, 0.7, bags, y, limit) for start in starts]
    for points, scales, value in zip(runs.points, runs.scales, runs.values):
        assert value == pytest.approx(plain_em_objective(points, scales, bags, y))
    np.testing.assert_allclose(runs.values, theirs, rtol=1e-2)
    assert runs.at_rest.all()


def test_single_instances_leave_nothing_to_choose():
    bags, _, _ = planted(20)
    singles = bags.singletons()
    y = (bags.X[:, 0] > 2.0).astype(int)
    model = EMDD("all", scaling="none", init_scale=0.5).fit(singles, y)
    assert model.n_iter_ <= 3  # the first round ends where the second would
    fixed = OnePerBag(np.concatenate([bags.X[y == 1], bags.X[y == 0]])[None], np.ones((1, int(y.sum()))))

    def value_and_gradient(t):
        value, G = fixed(t[None], np.zeros(1, int))
        return value[0], G[0]

    bounds = [(None, None)] * 3 + [(-10, 10)] * 3
    theirs = [
        minimize(value_and_gradient, np.concatenate([x, np.full(3, 0.5)]), jac=True, bounds=bounds).fun
        for x in bags.X[y == 1]
    ]
    assert model.objective_[0][0] == pytest.approx(min(theirs), rel=1e-3)


def test_mean_over_runs():
    bags, y, _ = planted(noise=1.0)
    model = EMDD(7, combine="average", random_state=0).fit(bags, y)
    Z = StandardScaler().fit_transform(bags.X)
    p = np.array(
        [[np.exp(-plain_q(z, h, s)) for h, s in zip(model.concepts_[0], model.scales_[0])] for z in Z]
    )
    P = np.array([p[bags.index == b].max(axis=0).mean() for b in range(len(bags))])
    np.testing.assert_allclose(
        model.decision_function(bags), np.log(P / (1 - P)) - model.offset_[0], rtol=1e-6
    )
    best = EMDD(7, random_state=0).fit(bags, y)
    assert len(best.concepts_[0]) == 1 and (model.concepts_[0] == best.concepts_[0]).all(axis=1).any()


def test_one_concept_is_em_dd():
    bags, y, _ = planted(noise=1.0)
    one, plain = MCEMDD(1, n_starts=8, random_state=0).fit(bags, y), EMDD(8, random_state=0).fit(bags, y)
    np.testing.assert_array_equal(one.decision_function(bags), plain.decision_function(bags))
    np.testing.assert_array_equal(one.objective_[0], plain.objective_[0])


def two_faces(n_bags=60, seed=0):
    """Half of the positive bags have an instance at (4, 4), half at (-4, -4); a lone middle would not do."""
    rng = np.random.default_rng(seed)
    y = np.arange(n_bags) % 2
    X = [rng.normal(scale=0.5, size=(4, 2)) for _ in y]
    for b in np.flatnonzero(y):
        X[b][0] += 4.0 if b % 4 == 1 else -4.0
    return Bags.from_list(X), y


def test_each_face_gets_a_concept():
    bags, y = two_faces()
    model = MCEMDD(2, n_starts=5, random_state=0).fit(bags, y)
    assert (model.predict(bags) == y).all()
    assert (EMDD(20, random_state=0).fit(bags, y).predict(bags) == y).mean() < 0.9
    which = model.nearest_concepts(bags)[bags.offsets[:-1], 0]
    assert len(set(which[1::4])) == len(set(which[3::4])) == 1 and which[1] != which[3]
    value = plain_em_objective(
        model.concepts_[0], model.scales_[0], bags.with_X(StandardScaler().fit_transform(bags.X)), y
    )
    assert model.objective_[0][0] == pytest.approx(value)
    assert (np.diff(model.objective_[0]) >= 0).all()


def test_a_concept_nobody_chose_moves_to_the_worst_bag():
    bags, y = two_faces(12)
    order = np.argsort(1 - y, kind="stable")
    bags = bags[order]
    theta = np.array([[[4.0, 4.0, 1.0, 1.0], [50.0, 50.0, 1.0, 1.0]]])
    choice = choose(bags.X, bags.offsets, 6, theta)
    assert (choice.best == 0).all()
    values = plain_em_objective(theta[0, :, :2], theta[0, :, 2:], bags, np.arange(12) < 6)
    assert choice.values[0] == pytest.approx(values)
    new, best, moved = reseed(bags.X, 6, theta, choice, 0.7)
    worst = int(choice.Q[:6, 0].min(axis=1).argmax())
    assert moved.all() and best[worst, 0] == 1 and (best[:, 0] == 1).sum() == 1
    assert (bags[worst] == new[0, 1, :2]).all(axis=1).any()
    np.testing.assert_array_equal(new[0, 1, 2:], 0.7)
    np.testing.assert_array_equal(new[0, 0], theta[0, 0])


# ---------------------------------------------------------------------- DD-SVM


def test_maxima_that_are_kept_equal_loops():
    rng = np.random.default_rng(0)
    theta, values = rng.normal(size=(40, 4)), rng.uniform(0, 10, 40)
    theta[20:] = theta[:20] + rng.normal(scale=0.02, size=(20, 4))
    left = [int(i) for i in np.argsort(values) if values[i] <= (values.min() + values.max()) / 2]
    kept = []
    while left:
        best = left.pop(0)
        kept.append(best)
        v, s = theta[best, :2] * abs(theta[best, 2:]), theta[best, 2:]
        least = 0.3 * max(np.linalg.norm(v), np.linalg.norm(s))
        left = [i for i in left if np.linalg.norm(theta[i, :2] * abs(theta[i, 2:]) - v) >= least]
    np.testing.assert_array_equal(select_maxima(theta, values, 0.3), kept)
    assert len(kept) < 20
    np.testing.assert_array_equal(select_maxima(theta[:1], values[:1], 0.05), [0])


def test_one_planted_point_is_one_prototype():
    bags, y, rows = planted(60, noise=0.4)
    model = DDSVM("all", merge=0.5).fit(bags, y)
    assert model.n_positive_[0] == 1
    point = StandardScaler().fit(bags.X).inverse_transform(model.concepts_[0][:1])[0]
    assert abs(point[0] - 4.0) < 0.5
    phi = model.prototype_distances(bags)[0][:, 0]
    truth = np.array([np.abs(bag[:, 0] - point[0]).min() for bag in bags])
    assert phi[y == 1].max() < phi[y == 0].min()
    assert np.corrcoef(phi, truth)[0, 1] > 0.95
    np.testing.assert_array_equal(model.key_instances(bags)[y == 1, 0, 0], rows)


def test_machine_on_distances_by_loops():
    bags, y, _ = planted(50, noise=1.5)
    model = DDSVM(15, C=5.0, random_state=0).fit(bags[:30], y[:30])
    Z = StandardScaler().fit(bags[:30].X).transform(bags.X)
    phi = np.array(
        [
            [
                np.sqrt(min(plain_q(z, h, s) for z in Z[bags.index == b]))
                for h, s in zip(model.concepts_[0], model.scales_[0])
            ]
            for b in range(50)
        ]
    )
    np.testing.assert_allclose(model.prototype_distances(bags)[0], phi, rtol=1e-6, atol=1e-4)
    scaled = StandardScaler().fit(phi[:30]).transform(phi)
    plain = SVC(C=5.0, gamma=1.0 / phi.shape[1], tol=1e-6).fit(scaled[:30], y[:30])
    np.testing.assert_allclose(model.decision_function(bags), plain.decision_function(scaled), atol=1e-3)
    n = model.n_positive_[0]
    near = np.array(
        [-min(np.sqrt(plain_q(z, h, s)) for h, s in zip(model.concepts_[0][:n], model.scales_[0])) for z in Z]
    )
    np.testing.assert_allclose(model.instance_scores(bags)[:, 0], near - model.offset_[0], atol=1e-4)
    assert 0 < n < len(model.concepts_[0])  # of positive and of negative bags


# ---------------------------------------------------------------------- what all share


@pytest.mark.parametrize("model", FAMILY, ids=str)
def test_a_concept_model_saved_and_loaded(model, tmp_path):
    bags, y, _ = planted()
    Y = np.column_stack([y, np.ones_like(y), 1 - y, np.zeros_like(y)])
    model.fit(bags, Y)
    bagwise.save(model, tmp_path / "model.skops")
    S = model.decision_function(bags)
    np.testing.assert_array_equal(bagwise.load(tmp_path / "model.skops").decision_function(bags), S)
    np.testing.assert_array_equal(S[:, [1, 3]], np.tile([1.0, -1.0], (len(y), 1)))  # constant labels
    F = pickle.loads(pickle.dumps(model)).instance_scores(bags)
    np.testing.assert_array_equal(F[:, [1, 3]], np.tile([1.0, -1.0], (len(F), 1)))


@pytest.mark.parametrize("model", FAMILY, ids=str)
def test_only_constant_labels(model):
    bags, y, _ = planted(10)
    S = model.fit(bags, np.column_stack([np.ones_like(y), np.zeros_like(y)])).decision_function(bags)
    np.testing.assert_array_equal(S, np.tile([1.0, -1.0], (10, 1)))
    assert model.instance_scores(bags).shape == (bags.n_instances, 2)


@pytest.mark.parametrize("model", FAMILY, ids=str)
def test_concepts_from_csr_and_in_blocks(model, monkeypatch):
    bags, y, _ = planted()
    thin = bags.with_X(np.where(np.abs(bags.X) > 0.4, bags.X, 0.0))
    as_csr = thin.with_X(sparse.csr_array(thin.X))
    model = type(model)(**{**model.get_params(), "scaling": "none"})
    expected = model.fit(thin, y).decision_function(thin)
    np.testing.assert_allclose(model.fit(as_csr, y).decision_function(as_csr), expected, atol=1e-6)
    instances = model.instance_scores(thin)
    monkeypatch.setattr("bagwise.models.svm.base.CELLS", 60)
    np.testing.assert_allclose(model.decision_function(thin), expected, atol=1e-6)
    np.testing.assert_allclose(model.instance_scores(thin), instances, atol=1e-6)


@pytest.mark.parametrize("model", FAMILY, ids=str)
def test_concepts_generalise(model):
    bags, y, _ = planted(80)
    model.fit(bags[:40], y[:40])
    assert (model.predict(bags[40:]) == y[40:]).mean() > 0.85
    singles = bags.singletons()
    if not isinstance(model, DDSVM):
        np.testing.assert_allclose(
            model.instance_scores(bags)[:, 0], model.decision_function(singles), rtol=1e-9
        )


@pytest.mark.parametrize("cls", [DiverseDensity, EMDD, MCEMDD])
def test_too_few_iterations_are_told(cls):
    bags, y, _ = planted(20, noise=1.5)
    with pytest.warns(match="max_iter=1"):
        cls(max_iter=1, tol=0.0, random_state=0).fit(bags, y)


def test_wide_sparse_data_are_refused_with_advice(monkeypatch):
    monkeypatch.setattr("bagwise.utils.memory._physical_memory", lambda: 1000.0)
    bags, y, _ = planted(20)
    with pytest.raises(MemoryError, match="use fewer features"):
        EMDD(scaling="none").fit(bags.with_X(sparse.csr_array(bags.X)), y)
