"""Solvers and starts of MM-MIL, and what one cluster must be."""

import numpy as np
import pytest
from mm_mil_problems import faces, label_problem, smooth_objective
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler

from bagwise.compute.memo import shared_work
from bagwise.compute.threads import small_products
from bagwise.datasets import make_miml
from bagwise.models import MMMIL
from bagwise.models.mm_mil import fit, fit_features
from bagwise.models.mm_mil.fit import solve
from bagwise.models.mm_mil.fit_em import objective
from bagwise.models.mm_mil.fit_smooth import cluster, starting_points

# ---------------------------------------------------------------------- solvers and starts


@pytest.mark.parametrize("reg", [0.1, 1.0])
def test_smooth_ends_at_or_below_the_others_and_none_above_its_start(reg):
    bags, y, _ = faces(120)
    Phi = StandardScaler().fit_transform(bags.X.astype(float))
    data = Phi, bags.offsets, y.astype(float), reg, reg
    problem = label_problem(*data[:3], 3, reg, reg)
    with small_products(1.0):
        starts = starting_points(problem, 2, np.random.RandomState(0))
        runs = {solver: solve(problem, starts, solver, 8, 1e-6) for solver in ("smooth", "em", "paper")}
    values = {}
    for solver, found in runs.items():
        values[solver] = found.value
        assert np.isclose(found.value, objective(found.P, *data))
        assert found.value <= min(objective(P, *data) for P in starts) + 1e-9
        assert found.value == min(found.history) == found.history[-1]
    assert values["smooth"] <= min(values["em"], values["paper"]) * (1 + 1e-4)


def test_gates_sum_to_zero_at_the_optimum():
    # adding a vector to all gates changes no probability, so the penalty makes their sum zero
    bags, y, _ = faces(120)
    Phi = StandardScaler().fit_transform(bags.X.astype(float))
    problem = label_problem(Phi, bags.offsets, y.astype(float), 3, 1.0, 1.0)
    starts = starting_points(problem, 1, np.random.RandomState(0))
    W = solve(problem, starts, "smooth", 500, 1e-10).P[:-1, 3:]
    assert np.abs(W.sum(axis=1)).max() < 0.02 * np.abs(W).max()


def test_symmetric_start_is_a_saddle_and_ours_is_none():
    bags, y, _ = faces(80)
    Phi = bags.X.astype(float)
    smooth = smooth_objective(Phi, bags.offsets, y, 2, 0.1, 0.1)
    P = np.zeros(smooth.shape)
    P[:, :2] = np.random.default_rng(0).normal(size=(len(P), 1))
    gradient = smooth(P)[1]
    np.testing.assert_allclose(gradient[:, 0], gradient[:, 1])  # equal experts stay equal
    np.testing.assert_allclose(gradient[:, 2:], 0.0, atol=1e-12)  # and gates never leave zero
    for P in starting_points(label_problem(Phi, bags.offsets, y, 2, 0.1, 0.1), 3, np.random.RandomState(0)):
        gradient = smooth(P)[1]
        assert np.abs(gradient[:, 0] - gradient[:, 1]).max() > 1e-3
        assert np.abs(P[:, 2] - P[:, 3]).max() > 1e-3


@pytest.mark.parametrize("seed", range(4))
def test_no_cluster_collapses_when_there_are_as_many_faces(seed):
    bags, y, _ = faces(300, 3, seed)
    model = MMMIL(3, random_state=seed).fit(bags[:200], y[:200])
    test = bags[200:]
    assert roc_auc_score(y[200:], model.decision_function(test)) > 0.95
    true = test.instance_info["sub_concept"]
    found = model.cluster_proba(test).argmax(axis=1)
    best = [np.bincount(found[true == f], minlength=3) for f in range(3)]
    assert {int(b.argmax()) for b in best} == {0, 1, 2}
    assert sum(b.max() for b in best) / (true >= 0).sum() > 0.95
    assert roc_auc_score(true >= 0, model.instance_proba(test)[:, 0]) > 0.95


def test_cluster_survives_few_and_equal_rows():
    assert len(cluster(np.zeros((5, 2)), 3, np.random.RandomState(0))) == 5
    assert len(cluster(np.ones((1, 2)), 4, np.random.RandomState(0))) == 1


# ---------------------------------------------------------------------- one cluster


def test_one_cluster_is_multi_instance_logistic_regression_whatever_lambda():
    bags, y, _ = faces(100, 1)
    models = [
        MMMIL(1, gate_penalty=lam, expert_penalty=0.5, tol=1e-10).fit(bags, y) for lam in (0.0, 0.1, 1e3)
    ]
    for model in models[1:]:
        np.testing.assert_array_equal(model.expert_coef_, models[0].expert_coef_)
    assert (models[2].gate_coef_ == 0).all()

    # the same by a loop over bags: logistic loss of the largest activation
    scaler = StandardScaler().fit(bags.X.astype(float))
    X = scaler.transform(bags.X.astype(float))

    def loss(t):
        total = 0.5 * t[:-1] @ t[:-1]
        for a, b, l in zip(bags.offsets[:-1], bags.offsets[1:], y):
            g = (X[a:b] @ t[:-1] + t[-1]).max()
            total += np.logaddexp(0.0, -g if l else g)
        return total

    t = models[0].expert_coef_[0, 0] * scaler.scale_
    t = np.append(t, models[0].expert_intercept_[0, 0] + models[0].expert_coef_[0, 0] @ scaler.mean_)
    ours = loss(t)
    assert np.isclose(ours, models[0].objective_[0][-1])
    polished = minimize(loss, t, method="Nelder-Mead", options={"maxiter": 3000, "adaptive": True}).fun
    assert ours <= polished * 1.01


@pytest.mark.parametrize("solver", ["smooth", "em", "paper"])
def test_one_cluster_on_single_instances_is_logistic_regression(solver):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 4))
    y = (X @ [1.0, -1.0, 0.5, 0.0] + rng.normal(size=80) > 0).astype(int)
    model = MMMIL(1, solver=solver, expert_penalty=0.5, standardize=False, tol=1e-12, max_iter=500).fit(X, y)
    reference = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000).fit(X, y)  # C = 1 / (2 beta)
    np.testing.assert_allclose(model.expert_coef_[0, 0], reference.coef_[0], atol=2e-3)
    np.testing.assert_allclose(model.predict_proba(X), reference.predict_proba(X), atol=1e-3)


def test_starts_and_features_of_mm_mil_are_those_of_a_width_and_a_penalty(monkeypatch):
    calls = {"kernel_of": 0, "inherited_expert": 0}

    def counted(where, name):
        inner = getattr(where, name)

        def call(*given):
            calls[name] += 1
            return inner(*given)

        monkeypatch.setattr(where, name, call)

    counted(fit_features, "kernel_of")
    counted(fit, "inherited_expert")
    grid = {
        "width_scale": [0.3, 1.0],
        "gate_penalty": [0.01, 0.1],
        "expert_penalty": [0.1],
        "n_clusters": [1, 2],
    }
    model = MMMIL(kernel="rbf", n_init=1, max_iter=2, random_state=0)
    data = make_miml(n_bags=60, n_labels=3, random_state=0)
    with shared_work(), pytest.warns(ConvergenceWarning):
        GridSearchCV(model, grid, scoring="roc_auc", cv=2).fit(data.bags, data.Y[:, 0])
    # two widths in two folds, and the chosen one on all bags; 17 each without sharing
    assert calls == {"kernel_of": 5, "inherited_expert": 5}
