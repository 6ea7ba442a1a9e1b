"""M3MIML against its own problem, solved in another way."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.svm import SVC
from toy_bags import miml, rbf

from bagwise import Bags
from bagwise.models import KISAR, M3MIML, MIMLSVM
from bagwise.models.svm import m3_miml


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_m3_miml_against_its_problem(kernel):
    bags, Y = miml(12, seed=1)
    model = M3MIML(kernel=kernel, gamma=0.4, C=2.0, scaling="none").fit(bags, Y)
    F = model.instance_scores(bags)
    np.testing.assert_allclose(
        model.decision_function(bags),
        [F[a:b].max(axis=0) for a, b in zip(bags.offsets, bags.offsets[1:])],
    )
    K = rbf(bags.X, bags.X, 0.4) if kernel == "rbf" else bags.X @ bags.X.T
    features = np.linalg.cholesky(K + 1e-9 * np.eye(len(K)))
    for label in range(3):
        inside = Y[bags.index, label] > 0
        means = [features[bags.index == b].mean(axis=0) for b in np.flatnonzero(Y[:, label])]
        rows = np.concatenate([means, features[~inside]])
        signs = np.repeat([1.0, -1.0], [len(means), (~inside).sum()])
        # primal problem with slacks, by a general solver
        n, d = rows.shape

        def value(z, d=d):
            return 0.5 * z[:d] @ z[:d] + 2.0 * z[d + 1 :].sum()

        def slope(z, d=d):
            return np.concatenate([z[:d], [0.0], np.full(len(z) - d - 1, 2.0)])

        A = np.column_stack([signs[:, None] * rows, signs, np.eye(n)])
        limits = {"type": "ineq", "fun": lambda z, A=A: A @ z - 1, "jac": lambda z, A=A: A}
        start = np.concatenate([np.zeros(d + 1), np.ones(n)])
        bounds = [(None, None)] * (d + 1) + [(0, None)] * n
        found = minimize(
            value,
            start,
            jac=slope,
            bounds=bounds,
            constraints=limits,
            method="SLSQP",
            options={"maxiter": 500},
        )
        own = F[:, label]
        own_means = [own[bags.index == b].mean() for b in np.flatnonzero(Y[:, label])]
        margins = signs * np.concatenate([own_means, own[~inside]])
        w = np.linalg.solve(features, own - model.intercept_[label])
        reached = 0.5 * w @ w + 2.0 * np.maximum(0, 1 - margins).sum()
        np.testing.assert_allclose(reached, found.fun, rtol=2e-3)


def test_m3_miml_of_single_instances_is_one_against_the_rest():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(60, 3)), (rng.random((60, 2)) < 0.4).astype(int)
    Y[:, 0] |= X[:, 0] > 0
    S = M3MIML(gamma=0.5, scaling="none").fit(Bags(X, np.arange(61)), Y).decision_function(X)
    for label in range(2):
        expected = SVC(gamma=0.5, tol=1e-6).fit(X, Y[:, label]).decision_function(X)
        np.testing.assert_allclose(S[:, label], expected, atol=2e-3)


def test_negative_instances_that_join_later_change_nothing(monkeypatch):
    bags, Y = miml(40, seed=4)
    whole = M3MIML(C=4.0).fit(bags, Y).decision_function(bags)
    monkeypatch.setattr(m3_miml, "_AT_A_TIME", 8)
    monkeypatch.setattr(m3_miml, "_CLOSE", 1e-4)
    np.testing.assert_allclose(M3MIML(C=4.0).fit(bags, Y).decision_function(bags), whole, atol=5e-3)


def test_t_criterion_gives_every_bag_a_label():
    bags, Y = miml()
    Y[:6] = 0
    for cls in (M3MIML, KISAR):
        assert cls(C=0.01).fit(bags, Y).predict(bags).any(axis=1).all()
        zero = cls(C=0.01, threshold_rule="zero").fit(bags, Y)
        np.testing.assert_array_equal(zero.predict(bags), zero.decision_function(bags) > 0)


def test_the_t_criterion_gives_no_label_that_no_training_bag_carries():
    """Confident machines say less than the -1 of such a label, which is no margin."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 4, 60)
    kinds = rng.choice(3, sizes.sum(), p=[0.15, 0.15, 0.7])  # the last kind carries no label
    X = rng.normal(scale=0.5, size=(len(kinds), 3)) + 3.0 * np.eye(3)[kinds]
    bags = Bags(X, np.concatenate([[0], np.cumsum(sizes)]))
    Y = np.zeros((60, 3), dtype=int)
    Y[bags.index, kinds] = 1
    Y[:, 2] = 0
    for model in (M3MIML(C=8.0), KISAR(20, random_state=0), MIMLSVM(random_state=0)):
        found, S = model.fit(bags, Y).predict(bags), model.decision_function(bags)
        assert (S[:, 2] == -1).all() and (S[:, :2].max(axis=1) < -1).any()
        assert found[:, :2].any(axis=1).all() and not found[:, 2].any()
        assert not model.fit(bags, np.zeros_like(Y)).predict(bags).any()
