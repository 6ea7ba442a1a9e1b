"""EM-DD and its version of several concepts against plain loops."""

import numpy as np
import pytest
from density_references import plain_q, scipy_minimum
from scipy.optimize import minimize
from sklearn.preprocessing import StandardScaler
from toy_bags import planted

from bagwise import Bags
from bagwise.models import EMDD, MCEMDD
from bagwise.models.diverse_density import base as em
from bagwise.models.diverse_density.base import choose, em_runs, reseed
from bagwise.models.diverse_density.kernels import OnePerBag

# ---------------------------------------------------------------------- plain references


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


def test_em_equals_plain_em(monkeypatch):
    monkeypatch.setattr(em, "_EXACT", 1e-8)  # the reference takes its M-steps to the end
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
    order = np.argsort(1 - y, kind="stable")
    fixed = OnePerBag(bags.X, order[None], np.ones((1, int(y.sum()))))

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
