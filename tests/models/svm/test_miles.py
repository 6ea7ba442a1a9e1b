"""MILES against the whole linear programme and plain loops."""

import numpy as np
import pytest
from scipy.optimize import linprog
from sklearn.preprocessing import StandardScaler
from toy_bags import planted, random_bags, rbf

from bagwise import Bags
from bagwise.models import MILES
from bagwise.models.svm.miles import bag_similarities, select_prototypes


def whole_programme(S, y, penalty, mu):
    """All prototypes at once, with dense matrices."""
    n, k = S.shape
    t = np.where(y > 0, 1.0, -1.0)
    A = np.hstack([-t[:, None] * S, t[:, None] * S, -t[:, None], -np.eye(n)])
    c = np.concatenate([np.full(2 * k, penalty), [0.0], np.where(y > 0, mu, 1.0 - mu)])
    bounds = [(0, None)] * (2 * k) + [(None, None)] + [(0, None)] * n
    return linprog(c, A_ub=A, b_ub=-np.ones(n), bounds=bounds, method="highs").fun


def test_two_bags_have_the_known_minimum():
    model = MILES(1.0, penalty=0.1, scaling="none").fit([[[0.0]], [[10.0]]], [1, 0])
    assert model.objective_[0] == pytest.approx(0.2)
    w = np.zeros(2)
    w[model.prototype_rows_] = model.coef_[0]
    assert w[0] - w[1] == pytest.approx(2.0)


@pytest.mark.parametrize("penalty", [0.05, 0.5, 3.0, 50.0])
@pytest.mark.parametrize("mu", [0.5, 0.8])
def test_minimum_is_that_of_the_whole_programme(penalty, mu):
    bags, y, _ = planted(60, noise=1.5, seed=3)
    S = bag_similarities(bags.X, bags.offsets, bags.X, 0.3)
    columns, w, b, value, _ = select_prototypes(y, S, penalty, mu)
    slack = np.maximum(0.0, 1.0 - np.where(y > 0, 1.0, -1.0) * (S[:, columns] @ w + b))
    reached = penalty * np.abs(w).sum() + np.where(y > 0, mu, 1.0 - mu) @ slack
    assert reached == pytest.approx(value, rel=1e-6)
    assert value == pytest.approx(whole_programme(S, y, penalty, mu), rel=1e-6)


@pytest.mark.parametrize("penalty", [0.2, 0.22, 0.24, 0.26, 0.3, 0.36, 0.5])
def test_few_positive_bags_around_the_penalty_from_which_nothing_is_worth_choosing(penalty):
    rng = np.random.default_rng(5)
    bags = Bags.from_list([rng.normal(size=(3, 2)) for _ in range(70)])
    y = (np.arange(70) < 9).astype(int)
    S = bag_similarities(bags.X, bags.offsets, bags.X, 2.0)
    columns, _, b, value, n_programmes = select_prototypes(y, S, penalty, 0.5)
    assert value == pytest.approx(whole_programme(S, y, penalty, 0.5), rel=1e-6)
    assert n_programmes > 2  # prices that are all alike settle nothing here
    at_rest = penalty > 0.25
    assert at_rest == (len(columns) == 0) == (value == pytest.approx(9.0))
    if at_rest:
        assert b == pytest.approx(-1.0)


def test_similarities_equal_loops():
    bags, others = random_bags(8, 2, seed=0), random_bags(4, 2, seed=1)
    expected = np.array([rbf(A, others.X, 0.7).max(axis=0) for A in bags])
    np.testing.assert_allclose(bag_similarities(bags.X, bags.offsets, others.X, 0.7), expected, atol=1e-12)


def test_scores_of_instances_add_up_to_those_of_bags():
    bags, y, _ = planted()
    doubled = Bags.from_list([np.concatenate([x, x[:1]]) for x in bags])  # with ties
    model = MILES(penalty=0.1).fit(bags, np.column_stack([y, 1 - y]))
    for some in (bags, doubled):
        F = model.instance_scores(some)
        sums = np.array([F[some.index == b].sum(axis=0) for b in range(len(some))])
        np.testing.assert_allclose(sums, model.decision_function(some), atol=1e-9)
    F = model.instance_scores(doubled)
    np.testing.assert_allclose(F[doubled.offsets[:-1]], F[doubled.offsets[1:] - 1], atol=1e-9)
    singles = bags.singletons()
    np.testing.assert_allclose(model.instance_scores(singles), model.decision_function(singles), atol=1e-9)


def test_shares_equal_loops():
    bags, y, _ = planted(noise=1.0)
    model = MILES(penalty=0.2).fit(bags, y)
    Z = StandardScaler().fit_transform(bags.X)
    expected = np.zeros(len(Z))
    for b in range(len(bags)):
        rows = np.flatnonzero(bags.index == b)
        S = rbf(Z[rows], model.prototypes_, model.gamma_)
        best = S.argmax(axis=0)
        for k, i in enumerate(best):
            expected[rows[i]] += model.coef_[0, k] * S[i, k]
        expected[rows[np.unique(best)]] += model.intercept_[0] / len(np.unique(best))
    np.testing.assert_allclose(model.instance_scores(bags)[:, 0], expected, atol=1e-9)


def test_a_large_penalty_selects_nothing():
    bags, y, _ = planted()
    model = MILES(penalty=1e3).fit(bags[:31], y[:31])
    assert len(model.prototype_rows_) == 0
    assert (model.decision_function(bags) == model.intercept_[0]).all()
    assert not model.predict(bags).any()  # sixteen of 31 bags are negative
    np.testing.assert_allclose(
        np.array([model.instance_scores(bags)[bags.index == b].sum() for b in range(len(bags))]),
        model.intercept_[0],
    )
