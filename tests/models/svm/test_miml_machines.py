"""MIMLBoost, D-MIMLSVM, M3MIML, KISAR, cs.SVM and cs.MISVM against loops and general solvers."""

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.svm import SVC, LinearSVC

import bagwise
from bagwise import Bags, MultiViewBags
from bagwise.models import CSMISVM, CSSVM, DMIMLSVM, KISAR, M3MIML, MISVM, MIMLBoost
from bagwise.models.svm import m3_miml
from bagwise.models.svm.coupled import Coupled, maximise
from bagwise.models.svm.cs_svm import view_weights
from bagwise.models.svm.d_miml_svm import dual_set, simplex
from bagwise.models.svm.kisar import relations, share_prototypes, squared_hinge
from bagwise.models.svm.landmarks import landmark_span
from bagwise.models.svm.miml_boost import balanced_box, best_intercept, best_vote, weighted_machine

sys.path.insert(0, str(Path(__file__).parent))

from plain_loops import boosted_scores, boosted_votes, d_miml_svm

FAMILY = [
    MIMLBoost(4, gamma=2.0, random_state=0),
    DMIMLSVM(),
    DMIMLSVM(kernel="linear"),
    M3MIML(C=8.0),
    M3MIML(kernel="linear"),
    KISAR(20, random_state=0),
    KISAR(20, instance_rule="prototype", random_state=0),
    CSSVM(),
    CSMISVM(),
]


def miml(n_bags=24, n_labels=3, d=4, seed=0, largest=5):
    """Bags whose labels are the kinds of their instances."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, largest + 1, n_bags)
    kinds = rng.integers(0, n_labels, sizes.sum())
    X = 2.0 * np.eye(n_labels, d)[kinds] + rng.normal(scale=0.7, size=(len(kinds), d))
    bags = Bags(X, np.concatenate([[0], np.cumsum(sizes)]))
    Y = np.zeros((n_bags, n_labels), dtype=int)
    Y[bags.index, kinds] = 1
    return bags, Y


def rbf(A, B, gamma):
    return np.exp(-gamma * ((A[:, None, :] - B[None, :, :]) ** 2).sum(axis=2))


# ---------------------------------------------------------------------- what all share


@pytest.mark.parametrize("model", FAMILY, ids=str)
def test_saved_and_loaded(model, tmp_path):
    bags, Y = miml()
    Y = np.column_stack([Y, np.ones(len(Y), int), np.zeros(len(Y), int)])
    S = model.fit(bags, Y).decision_function(bags)
    np.testing.assert_array_equal(S[:, 3:], np.tile([1.0, -1.0], (len(Y), 1)))  # constant labels
    bagwise.save(model, tmp_path / "model.skops")
    again = bagwise.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(again.decision_function(bags), S)
    np.testing.assert_array_equal(again.instance_scores(bags), model.instance_scores(bags))


@pytest.mark.parametrize("model", FAMILY, ids=str)
def test_nothing_but_constant_labels(model):
    bags, Y = miml(10)
    Y[:] = [1, 0, 1]
    np.testing.assert_array_equal(model.fit(bags, Y).decision_function(bags), np.where(Y, 1.0, -1.0))
    assert model.instance_scores(bags).shape == (bags.n_instances, 3)


@pytest.mark.parametrize("model", FAMILY, ids=str)
def test_blocks_change_nothing(model, monkeypatch):
    bags, Y = miml()
    model.fit(bags, Y)
    whole, instances = model.decision_function(bags), model.instance_scores(bags)
    for room in ("base", "cs_svm"):
        monkeypatch.setattr(f"bagwise.models.svm.{room}.CELLS", 60)
    np.testing.assert_allclose(model.decision_function(bags), whole, atol=1e-10)
    np.testing.assert_allclose(model.instance_scores(bags), instances, atol=1e-10)


# ---------------------------------------------------------------------- landmarks and the solver


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_landmarks_span_the_kernel(kernel):
    X = np.random.default_rng(0).normal(size=(40, 6))
    X[7] = X[3]
    K = rbf(X, X, 0.3) if kernel == "rbf" else X @ X.T
    span = landmark_span(X, kernel, 0.3, 100, "")
    assert len(span.rows) == (39 if kernel == "rbf" else 6) and span.error < 1e-8
    np.testing.assert_allclose((span.U * span.eigenvalues) @ span.U.T, K, atol=1e-6)
    np.testing.assert_allclose(span.U.T @ span.U, np.eye(span.U.shape[1]), atol=1e-6)
    new = np.random.default_rng(1).normal(size=(5, 6))
    c = np.random.default_rng(2).normal(size=span.U.shape[1]) * span.eigenvalues
    at = rbf(new, X, 0.3) if kernel == "rbf" else new @ X.T
    beside = rbf(new, X[span.rows], 0.3) if kernel == "rbf" else new @ X[span.rows].T
    # a function with values U c at X is K a there, and k(x, X) a elsewhere
    a = np.linalg.lstsq(K, span.U @ c, rcond=1e-12)[0]
    np.testing.assert_allclose(beside @ (span.to_landmarks @ c), at @ a, atol=1e-4)


def test_few_landmarks_are_the_nystrom_approximation():
    X = np.random.default_rng(0).normal(size=(60, 3))
    span = landmark_span(X, "rbf", 0.2, 10, "")
    K, C = rbf(X, X, 0.2), rbf(X, X[span.rows], 0.2)
    nystrom = C @ np.linalg.solve(C[span.rows], C.T)
    np.testing.assert_allclose((span.U * span.eigenvalues) @ span.U.T, nystrom, atol=1e-7)
    np.testing.assert_allclose(span.error, (K - nystrom).diagonal().max(), atol=1e-9)


def test_no_room_for_the_kernel_is_said_with_advice():
    bags, Y = miml()
    wide = Bags(bags.X, bags.offsets)
    from bagwise.models.svm import landmarks

    def small(n_bytes, what, advice):
        raise MemoryError(f"{what}; {advice}")

    patch = pytest.MonkeyPatch()
    patch.setattr(landmarks, "check_memory", small)
    try:
        for model in (MIMLBoost(), DMIMLSVM()):
            with pytest.raises(MemoryError, match=r"instances and .* landmarks; lower n_landmarks, or use"):
                model.fit(wide, Y)
    finally:
        patch.undo()


@pytest.mark.parametrize("seed", range(3))
def test_weighted_machine_is_that_of_libsvm(seed):
    rng = np.random.default_rng(seed)
    X, places = rng.normal(size=(30, 3)), np.array([0.0, 0.5, 1.0])
    T = np.where(rng.random((30, 3)) < 0.4, 1.0, -1.0)
    costs = rng.integers(0, 3, size=T.shape).astype(float)
    span = landmark_span(X, "rbf", 0.7, 100, "")
    P = np.exp(-0.7 * (places[:, None] - places) ** 2)
    problem = Coupled.of(span, P)
    found, b = weighted_machine(problem, T, costs, tol=1e-6, max_iter=5000)
    rows = np.array([[*x, p] for x in X for p in places])
    used = np.flatnonzero(costs.ravel())
    svm = SVC(gamma=0.7, C=1.0, tol=1e-7).fit(rows[used], T.ravel()[used], sample_weight=costs.ravel()[used])
    np.testing.assert_allclose((found.values + b).ravel(), svm.decision_function(rows), atol=3e-3)
    assert 0 <= found.gap <= 1e-6


def test_the_solver_says_when_it_stops_early():
    bags, Y = miml()
    with pytest.warns(UserWarning, match="max_iter=1 "):
        DMIMLSVM(max_iter=1, tol=1e-9).fit(bags, Y)
    with pytest.warns(UserWarning, match="max_iter=1 "):
        MIMLBoost(1, max_iter=1, tol=1e-9, random_state=0).fit(bags, Y)


def test_best_intercept_and_balanced_box_against_a_grid():
    rng = np.random.default_rng(0)
    for _ in range(20):
        F, T = rng.normal(size=9), np.where(rng.random(9) < 0.5, 1.0, -1.0)
        T[:2] = [1.0, -1.0]
        costs = rng.integers(1, 4, 9).astype(float)

        def loss(b, F=F, T=T, costs=costs):
            return (costs * np.maximum(0, 1 - T * (F + b))).sum()

        best = min(loss(b) for b in T - F)  # piecewise linear: lowest at a kink
        np.testing.assert_allclose(loss(best_intercept(F, T, costs)), best)
        low, high = np.where(T > 0, 0, -costs), np.where(T > 0, costs, 0)
        B = balanced_box(3 * F, low, high)
        assert abs(B.sum()) < 1e-9 and (low - 1e-12 <= B).all() and (high + 1e-12 >= B).all()
        sums = {"type": "eq", "fun": lambda z: z.sum()}
        nearest = minimize(
            lambda z, F=F: ((z - 3 * F) ** 2).sum(),
            np.zeros(9),
            bounds=list(zip(low, high)),
            constraints=sums,
            method="SLSQP",
            options={"ftol": 1e-12, "maxiter": 500},
        )
        np.testing.assert_allclose(B, nearest.x, atol=1e-4)


# ---------------------------------------------------------------------- MIMLBoost


def test_vote_of_a_machine():
    rng = np.random.default_rng(0)
    W, E = rng.random(50), (rng.random(50) < 0.3).astype(float)
    W /= W.sum()
    c = best_vote(W, E)
    np.testing.assert_allclose(c, 0.5 * np.log(W[E == 0].sum() / W[E == 1].sum()))  # AdaBoost
    after = W * np.exp((2 * E - 1) * c)
    np.testing.assert_allclose(after[E == 1].sum(), after[E == 0].sum())
    E = rng.random(50) * 0.8
    c = best_vote(W, E)
    lowest = min((W * np.exp((2 * E - 1) * x)).sum() for x in np.linspace(0, 10, 20001))
    np.testing.assert_allclose((W * np.exp((2 * E - 1) * c)).sum(), lowest, rtol=1e-6)
    assert best_vote(np.array([0.4, 0.6]), np.array([0.0, 1.0])) == 0.0


@pytest.mark.parametrize("seed", range(3))
def test_boosting_against_plain_loops(seed):
    bags, Y = miml(16, seed=seed)
    model = MIMLBoost(3, gamma=1.0, scaling="none", tol=1e-6, random_state=seed).fit(bags, Y)
    T = np.where(Y > 0, 1.0, -1.0)
    settings = {"gamma": 1.0, "C": 1.0, "n_rounds": 3, "rng": np.random.RandomState(seed)}
    machines, votes = boosted_votes(list(bags), T, **settings)
    np.testing.assert_allclose(model.votes_, votes, atol=1e-4)
    S = boosted_scores(machines, votes, list(bags), 3)
    np.testing.assert_allclose(model.decision_function(bags), S, atol=1e-2)
    for t, machine in enumerate(machines):
        F = np.einsum("ik,kl->il", rbf(bags.X, model.landmarks_, 1.0), model.coef_[:, t])
        for label in range(3):
            rows = np.column_stack([bags.X, np.full(len(bags.X), label / 2)])
            expected = machine.decision_function(rows)
            np.testing.assert_allclose(F[:, label] + model.intercept_[t], expected, atol=2e-2)


def test_scores_of_bags_are_sums_over_instances():
    bags, Y = miml()
    model = MIMLBoost(5, resample=False, gamma=4.0).fit(bags, Y)
    sums = np.array(
        [model.instance_scores(bags)[a:b].sum(axis=0) for a, b in zip(bags.offsets, bags.offsets[1:])]
    )
    np.testing.assert_allclose(model.decision_function(bags), sums, atol=1e-12)
    assert (model.predict(bags) == (sums >= 0)).all()


def test_a_machine_without_an_error_is_kept():
    bags = Bags(np.array([[0.0], [1.0], [0.1], [0.9]]), np.arange(5))
    y = np.array([0, 1, 0, 1])
    model = MIMLBoost(gamma=10.0, C=100.0, resample=False).fit(bags, y)
    assert model.votes_.tolist() == [1.0]
    assert model.predict(bags).tolist() == y.tolist()


# ---------------------------------------------------------------------- D-MIMLSVM


@pytest.mark.parametrize(("alignment", "sharing"), [(0.0, 0.0), (0.3, 0.0), (0.2, 2.0)])
def test_d_miml_svm_against_plain_loops(alignment, sharing):
    bags, Y = miml(10, seed=1)
    settings = {"alignment": alignment, "sharing": sharing, "gamma": 0.3, "C": 5.0}
    model = DMIMLSVM(**settings, scaling="none", tol=1e-6, max_iter=20000).fit(bags, Y)
    T = np.where(Y > 0, 1.0, -1.0)
    lowest, F, f = d_miml_svm(list(bags), T, **settings, widths=(0.1, 0.01, 0.001))
    assert model.objective_ <= lowest * (1 + 1e-6)  # the loops smooth, and stop a little above
    np.testing.assert_allclose(model.objective_, lowest, rtol=5e-3)
    np.testing.assert_allclose(model.decision_function(bags), F, atol=0.1)  # their steps halt at kinks
    np.testing.assert_allclose(model.instance_scores(bags), f, atol=0.2)


def test_without_coupling_labels_are_set_kernel_machines():
    bags, Y = miml(30, seed=2)
    model = DMIMLSVM(0.0, 0.0, gamma=0.2, C=4.0, scaling="none", tol=1e-7, max_iter=20000).fit(bags, Y)
    k = rbf(bags.X, bags.X, 0.2)
    M = np.array([(bags.index == b) / bags.sizes[b] for b in range(len(bags))])
    K = M @ k @ M.T
    features = np.linalg.cholesky(K + 1e-10 * np.eye(len(K)))
    for label in range(3):
        svm = LinearSVC(loss="hinge", C=4.0, fit_intercept=False, tol=1e-9, max_iter=1_000_000)
        expected = svm.fit(features, Y[:, label]).decision_function(features)
        np.testing.assert_allclose(model.decision_function(bags)[:, label], expected, atol=5e-3)


def test_a_bag_is_the_mean_of_its_instances_and_the_coupling_acts():
    bags, Y = miml()
    near, far = (DMIMLSVM(0.1, s, tol=1e-5, max_iter=20000).fit(bags, Y) for s in (0.0, 50.0))
    F = near.instance_scores(bags)
    means = np.array([F[a:b].mean(axis=0) for a, b in zip(bags.offsets, bags.offsets[1:])])
    np.testing.assert_allclose(near.decision_function(bags), means, atol=1e-10)
    # a large price on the mean function leaves little of it
    assert np.abs(far.coef_.mean(axis=1)).max() < 0.2 * np.abs(near.coef_.mean(axis=1)).max()
    tight = DMIMLSVM(3.0, tol=1e-5, max_iter=20000).fit(bags, Y)

    def spread(model):
        G = model.instance_scores(bags)
        return sum(
            G[a:b].max(axis=0).sum() - G[a:b].mean(axis=0).sum()
            for a, b in zip(bags.offsets, bags.offsets[1:])
        )

    assert spread(tight) < spread(near)


def test_projection_onto_the_dual_set():
    rng = np.random.default_rng(0)
    offsets, T, cost, pull = np.array([0, 3, 4]), np.array([[1.0], [-1.0]]), 2.0, 0.7
    V = 3 * rng.normal(size=(4, 1))
    Z = dual_set(T, offsets, cost, pull)(V)

    def point(z):
        a, g = z[:2], np.maximum(z[2:5], 0)
        g = g / g.sum()
        return np.concatenate([(a[0] + pull) / 3 - pull * g, [-a[1]]])

    def distance(z):
        return ((point(z) - V[:, 0]) ** 2).sum()

    starts = rng.random((20, 5)) * [cost, cost, 1, 1, 1]
    bounds = [(0, cost)] * 2 + [(1e-9, 1)] * 3
    best = min(minimize(distance, s, bounds=bounds).fun for s in starts)
    np.testing.assert_allclose(((Z - V) ** 2).sum(), best, atol=1e-5)
    S = simplex(rng.normal(size=(5, 4, 2)))
    np.testing.assert_allclose(S.sum(axis=1), 1.0)
    assert (S >= 0).all()


def test_a_span_of_few_landmarks_says_what_it_misses():
    bags, Y = miml(60, seed=3)
    some, all_ = DMIMLSVM(n_landmarks=30).fit(bags, Y), DMIMLSVM().fit(bags, Y)
    assert some.coef_.shape == (30, 3) and 0 < some.kernel_error_ < 1 and all_.kernel_error_ < 1e-8
    assert (some.predict(bags) == Y).mean() > 0.9
    assert some.objective_ > all_.objective_ * (1 - 1e-3)


# ---------------------------------------------------------------------- M3MIML


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


# ---------------------------------------------------------------------- KISAR


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


# ---------------------------------------------------------------------- cs.SVM and cs.MISVM


def test_cs_svm_is_a_weighted_svc_of_sums():
    bags, Y = miml(50, seed=6)
    sums = np.array([bag.sum(axis=0) for bag in bags])
    S = CSSVM(scaling="none").fit(bags, Y).decision_function(bags)
    for label in range(3):
        n, p = 50, Y[:, label].sum()
        svm = SVC(gamma=1 / 4, class_weight={1: n / p, 0: n / (n - p)}, tol=1e-6).fit(sums, Y[:, label])
        np.testing.assert_allclose(S[:, label], svm.decision_function(sums), atol=1e-4)


def test_weights_are_copies_of_bags():
    # a third of the bags is positive: weights 3 and 3/2 at C are 2 and 1 at 3C/2, or positive bags twice
    bags, _ = miml(30, seed=7)
    y = (np.arange(30) % 3 == 0).astype(int)
    twice = np.concatenate([np.arange(30), np.flatnonzero(y)])
    sums = np.array([bag.sum(axis=0) for bag in bags])
    S = CSSVM(scaling="none", C=2.0).fit(bags, y).decision_function(bags)
    copies = SVC(gamma=1 / 4, C=3.0, tol=1e-7).fit(sums[twice], y[twice])
    np.testing.assert_allclose(S, copies.decision_function(sums), atol=1e-3)


def test_cs_mi_svm_is_mi_svm_with_these_costs():
    bags, Y = miml(40, seed=8)
    model = CSMISVM(C=2.0).fit(bags, Y)
    for label in range(3):
        p, n = Y[:, label].sum(), 40
        plain = MISVM(C=2.0 * n / (n - p), positive_weight=(n - p) / p).fit(bags, Y[:, label])
        np.testing.assert_allclose(
            model.decision_function(bags)[:, label], plain.decision_function(bags), atol=1e-9
        )
        assert len(model.objective_[label]) == len(plain.objective_[0])


def test_views_are_averaged_and_missing_ones_left_out(tmp_path):
    bags, Y = miml(30, seed=9)
    left, right = bags[:, :2], bags[:, 2:]
    gap = np.arange(30) % 5 == 0
    keep = ~gap[right.index]
    holed = Bags(right.X[keep], np.concatenate([[0], np.cumsum(np.where(gap, 0, right.sizes))]))
    both = MultiViewBags({"left": left, "right": holed})
    model = CSSVM([0.3, 0.7]).fit(both, Y)
    one = CSSVM().fit(left, Y).decision_function(left)
    other = CSSVM().fit(right[~gap], Y[~gap]).decision_function(right)
    expected = np.where(gap[:, None], one, 0.3 * one + 0.7 * other)
    np.testing.assert_allclose(model.decision_function(both), expected, atol=1e-9)
    bagwise.save(model, tmp_path / "views.skops")
    again = bagwise.load(tmp_path / "views.skops")
    np.testing.assert_array_equal(again.decision_function(both), model.decision_function(both))
    F = model.instance_scores(both)
    assert F["left"].shape == (left.n_instances, 3) and F["right"].shape == (holed.n_instances, 3)
    labels = model.annotate(both, Y)
    assert all(Y[both[v].index[labels[v] >= 0], labels[v][labels[v] >= 0]].all() for v in ("left", "right"))
    assert model.key_instances(both)["right"].shape == (30, 3, 1)


def test_views_are_refused_by_name():
    bags, Y = miml(12)
    both = MultiViewBags({"a": bags[:, :2], "b": bags[:, 2:]})
    with pytest.raises(ValueError, match=r"\['a', 'c'\]"):
        CSSVM({"a": 1.0, "c": 1.0}).fit(both, Y)
    with pytest.raises(ValueError, match="3 numbers for the 2 views"):
        CSSVM([1.0, 1.0, 1.0]).fit(both, Y)
    empty = Bags(np.empty((0, 2)), np.zeros(13, dtype=np.int64))
    with pytest.raises(ValueError, match="view 'b'"):
        CSSVM().fit(MultiViewBags({"a": bags[:, :2], "b": empty}), Y)
    assert view_weights({"b": 2, "a": 1}, ["a", "b"]) == {"a": 1.0, "b": 2.0}


def test_maximise_needs_no_start_and_goes_on_from_one():
    bags, Y = miml(20)
    span = landmark_span(bags.X, "rbf", 0.3, 500, "")
    problem, T = Coupled.of(span, np.eye(3)), np.where(Y[bags.index] > 0, 1.0, -1.0)

    def primal(F, penalty):
        return penalty + float(np.maximum(0, 1 - T * F).sum())

    def solve(start):
        low, high = np.minimum(T, 0), np.maximum(T, 0)
        box = {"project": lambda B: np.clip(B, low, high), "primal": primal}
        return maximise(problem, T, **box, balanced=False, start=start, tol=1e-6, max_iter=5000)

    first = solve(None)
    again = solve(first.state)
    assert again.n_iter <= first.n_iter
    np.testing.assert_allclose(again.objective, first.objective, rtol=1e-5)
