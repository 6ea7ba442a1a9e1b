"""KISAR: lowest objective, relations and key instances by hand."""

import numpy as np
import pytest
from scipy.optimize import minimize
from toy_bags import miml, rbf

from bagwise import Bags
from bagwise.models import KISAR
from bagwise.models.svm.kisar import relations, share_prototypes, squared_hinge


def kisar_objective(W, b, S, T, R, C):
    value = 0.0
    for t in range(len(W)):
        for u in range(len(W)):
            value += R[t, u] * np.sqrt(W[t] ** 2 + W[u] ** 2).sum() ** 2
    return value + C * (np.maximum(0, 1 - T * (S @ W.T + b)) ** 2).sum()


@pytest.mark.parametrize("related", [False, True])
def test_kisar_reaches_the_lowest_objective(related):
    rng = np.random.default_rng(0)
    S, T = rng.random((15, 3)), np.where(rng.random((15, 2)) < 0.5, 1.0, -1.0)
    S[:, 0] += 0.5 * T[:, 0]
    R = np.ones((2, 2)) if related else np.eye(2)
    W, b, history = share_prototypes(S, T, R, C=3.0, max_iter=2000, tol=1e-10)
    np.testing.assert_allclose(history[-1], kisar_objective(W, b, S, T, R, 3.0), rtol=1e-6)
    assert (np.diff(history) <= 1e-9).all()

    def general(z):
        return kisar_objective(z[:6].reshape(2, 3), z[6:], S, T, R, 3.0)

    best = min(
        minimize(general, rng.normal(size=8), method="Powell", options={"maxiter": 20000, "xtol": 1e-9}).fun
        for _ in range(5)
    )
    assert history[-1] <= best * (1 + 1e-3)


def test_squared_hinge_has_no_slope_left():
    rng = np.random.default_rng(0)
    for n, k in ((30, 5), (8, 20)):
        S, y = rng.normal(size=(n, k)), np.where(rng.random(n) < 0.5, 1.0, -1.0)
        v, b = squared_hinge(S, y, 7.0, np.zeros(k), 0.0)

        def value(z, S=S, y=y, k=k):
            return 0.5 * z[:k] @ z[:k] + 7.0 * (np.maximum(0, 1 - y * (S @ z[:k] + z[k])) ** 2).sum()

        z, each = np.concatenate([v, [b]]), 1e-6 * np.eye(k + 1)
        slopes = [(value(z + e) - value(z - e)) / 2e-6 for e in each]
        np.testing.assert_allclose(slopes, 0.0, atol=1e-3)


def test_relations_by_hand():
    Y = np.array([[1, 1, 0], [1, 1, 0], [1, 0, 1], [0, 0, 1], [0, 0, 1], [1, 0, 0]])
    np.testing.assert_array_equal(relations(Y, "identity"), np.eye(3))
    np.testing.assert_array_equal(relations(Y, "all"), np.ones((3, 3)))
    # together: 4 2 1 / 2 2 0 / 1 0 3; means 15 / 9 and, without the diagonal, 1
    np.testing.assert_array_equal(relations(Y, "mean"), [[1, 1, 0], [1, 1, 0], [0, 0, 1]])
    np.testing.assert_array_equal(relations(Y, "off_diagonal_mean"), [[1, 1, 0], [1, 1, 0], [0, 0, 1]])
    np.testing.assert_array_equal(relations(Y, "conditional"), [[1, 1, 1], [1, 1, 0], [1, 0, 1]])


def test_kisar_scores_and_key_instances_by_hand():
    bags, Y = miml(20, seed=5)
    sums = KISAR(8, scaling="none", random_state=0).fit(bags, Y)
    rule = KISAR(8, scaling="none", instance_rule="prototype", random_state=0).fit(bags, Y)
    np.testing.assert_allclose(sums.instance_scores(bags), sums.decision_function(bags.singletons()))
    Q = rbf(bags.X, sums.prototypes_, sums.width_**-2)
    distances = np.sqrt(((bags.X[:, None] - bags.X) ** 2).sum(axis=2))
    np.testing.assert_allclose(sums.width_, distances.sum() / (len(bags.X) * (len(bags.X) - 1)))
    keys = rule.key_instances(bags)[:, :, 0]
    for b, (lo, hi) in enumerate(zip(bags.offsets, bags.offsets[1:])):
        s = Q[lo:hi].max(axis=0)
        np.testing.assert_allclose(sums.decision_function(bags)[b], sums.coef_ @ s + sums.intercept_)
        for label in range(3):
            speaks = rule.coef_[label] * s
            if speaks.max() > 0:
                assert keys[b, label] == lo + Q[lo:hi, speaks.argmax()].argmax()


@pytest.mark.parametrize(
    "settings",
    [{"C": 5.0, "relation": "all"}, {"C": 50.0, "relation": "identity", "bandwidth": 0.5}],
    ids=str,
)
def test_the_whole_estimator_reaches_the_lowest_objective(settings):
    """Similarities, relations and costs by the letter, and a search that knows nothing of the solver."""
    bags, Y = miml(20, seed=5)
    model = KISAR(4, scaling="none", max_iter=3000, tol=1e-12, random_state=0, **settings).fit(bags, Y)
    D = np.sqrt(((bags.X[:, None] - bags.X) ** 2).sum(axis=2))
    width = settings.get("bandwidth", 1.0) * D.sum() / (len(D) * (len(D) - 1))
    S = np.maximum.reduceat(rbf(bags.X, model.prototypes_, width**-2), bags.offsets[:-1])
    T, R = np.where(Y > 0, 1.0, -1.0), np.ones((3, 3)) if settings["relation"] == "all" else np.eye(3)

    def objective(z):
        return kisar_objective(z[:12].reshape(3, 4), z[12:], S, T, R, settings["C"])

    found = np.concatenate([model.coef_.ravel(), model.intercept_])
    np.testing.assert_allclose(model.objective_[-1], objective(found), rtol=1e-8)
    start = found + 0.1 * np.random.default_rng(0).normal(size=len(found))
    other = minimize(objective, start, method="Powell", options={"xtol": 1e-9, "ftol": 1e-12})
    assert objective(found) <= other.fun * (1 + 1e-3)


def test_equal_instances_own_a_prototype_together_whatever_is_computed_beside():
    """Products of matrices of other sizes round otherwise, which must not decide."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 40)).repeat(2, axis=0)
    bags, Y = Bags(X, np.arange(0, 61, 4)), (np.arange(15) % 2)[:, None]
    model = KISAR(10, instance_rule="prototype", random_state=0).fit(bags, Y)
    F = model.instance_scores(bags)
    np.testing.assert_allclose(F[::2], F[1::2], atol=1e-9)
    alone = np.concatenate([model.instance_scores(bags[i : i + 1]) for i in range(len(bags))])
    np.testing.assert_allclose(alone, F, atol=1e-9)
