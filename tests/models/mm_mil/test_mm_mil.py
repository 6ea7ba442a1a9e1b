"""MM-MIL against plain definitions, finite differences and other solvers of the same problem."""

import itertools
import warnings

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bagwise
from bagwise.bags import Bags
from bagwise.checks import all_checks
from bagwise.datasets import make_miml, make_sub_concepts
from bagwise.models.mm_mil import objective as obj
from bagwise.models.mm_mil.estimator import MMMIL, select_n_clusters
from bagwise.models.mm_mil.features import gaussian_kernel, median_distance, whitening
from bagwise.models.mm_mil.kernels import bag_losses, instance_posteriors
from bagwise.models.mm_mil.solvers import Problem, solve
from bagwise.models.mm_mil.start import cluster, starting_points
from bagwise.models.ored.estimator import ORedLogisticRegression
from bagwise.models.wrappers.one_vs_rest import OneVsRestMIL
from bagwise.parallel.blas import small_products
from bagwise.preprocessing import OnInstances


def small_problem(seed=0, n_bags=12, d=3, M=3):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, n_bags)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    Phi = rng.normal(size=(offsets[-1], d))
    labels = (np.arange(n_bags) % 2).astype(float)
    P = rng.normal(size=(d + 1, 2 * M))
    return Phi, offsets, labels, P


def plain_p(x, P):
    """Eq. (3) with (4) and (5), by the letter, for one instance."""
    M = P.shape[1] // 2
    f = np.append(x, 1.0) @ P
    gate = np.exp(f[M:]) / np.exp(f[M:]).sum()
    return sum(gate[m] / (1.0 + np.exp(-f[m])) for m in range(M))


def plain_objective(P, Phi, offsets, labels, lam, beta):
    """Eq. (7) by the letter."""
    M = P.shape[1] // 2
    E = 0.0
    for a, b, l in zip(offsets[:-1], offsets[1:], labels):
        p = max(plain_p(x, P) for x in Phi[a:b])
        E -= l * np.log(p) + (1 - l) * np.log(1 - p)
    return E + lam * (P[:-1, M:] ** 2).sum() + beta * (P[:-1, :M] ** 2).sum()


def smooth_objective(Phi, offsets, labels, n_clusters, lam, beta, weights=None):
    losses = obj.BagLosses(Phi, offsets, labels, weights)
    return obj.Descended(losses, Phi.shape[1], n_clusters, lam, beta)


def numeric(function, x, eps=1e-6):
    gradient = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[i] = eps
        gradient[i] = (function(x + step) - function(x - step)) / (2 * eps)
    return gradient


def faces(n_bags=300, n_faces=3, seed=0):
    data = make_sub_concepts(n_bags, 1, n_faces, cardinality=0.5, noise=1.0, random_state=seed)
    return data.bags, data.Y[:, 0], data.bags.instance_info["sub_concept"]


# ---------------------------------------------------------------------- objective, bound, gradients


@pytest.mark.parametrize("M", [1, 3])
def test_objective_is_equation_7(M):
    Phi, offsets, labels, P = small_problem(M=M)
    expected = plain_objective(P, Phi, offsets, labels, 0.3, 0.7)
    assert np.isclose(obj.objective(P, Phi, offsets, labels, 0.3, 0.7), expected)
    smooth = smooth_objective(Phi, offsets, labels, M, 0.3, 0.7)
    smooth(P.ravel())
    assert np.isclose(smooth.hard, expected)
    smooth.sharpness = np.inf
    assert np.isclose(smooth(P.ravel())[0], expected)


def printed_bound(F, labels, q=None):
    """Eq. (10): the bound on Eq. (9) by Jensen's inequality; weights q of the clusters, as printed theta."""
    a, s = np.hsplit(F, 2)
    theta = np.exp(s) / np.exp(s).sum(axis=1, keepdims=True)
    y = 1 / (1 + np.exp(-a))
    gamma = np.where(labels[:, None] > 0, np.log(y), np.log(1 - y))
    if q is None:
        return -(theta * gamma).sum()
    return -(q * (np.log(theta) + gamma - np.log(q))).sum()


def printed_experts(alpha, K, labels, theta, beta):
    """Eq. (14): experts ``K alpha`` with the penalty ``alpha' K alpha``."""
    a = K @ alpha
    return -(theta * (labels[:, None] * a - np.logaddexp(0, a))).sum() + beta * np.vdot(alpha, a)


def test_bound_lies_above_by_the_divergence_of_gate_from_posterior():
    Phi, offsets, labels, P = small_problem()
    F = obj.activations(Phi, P)
    F = F[obj.witnesses(F, offsets)]
    log_p, log_n = obj.log_odds(F)
    E = -np.where(labels > 0, log_p, log_n).sum()  # Eq. (9)
    q = obj.tight_weights(F, labels)
    theta = np.exp(F[:, 3:]) / np.exp(F[:, 3:]).sum(axis=1, keepdims=True)
    divergence = (theta * np.log(theta / q)).sum()
    assert divergence > 0.01
    assert np.isclose(printed_bound(F, labels), E + divergence)
    assert np.isclose(printed_bound(F, labels, q), E)


@pytest.mark.parametrize("M", [1, 3])
@pytest.mark.parametrize("sharpness", [1.0, 7.0, np.inf])
def test_gradient_of_smooth_objective(M, sharpness):
    Phi, offsets, labels, P = small_problem(M=M)
    smooth = smooth_objective(Phi, offsets, labels, M, 0.3, 0.7, weights=np.linspace(0.5, 2, len(labels)))
    smooth.sharpness = sharpness
    expected = numeric(lambda x: smooth(x.ravel())[0], P)
    np.testing.assert_allclose(smooth(P.ravel())[1].reshape(P.shape), expected, rtol=1e-5, atol=1e-6)


def test_smooth_value_is_log_sum_exp_of_log_odds():
    Phi, offsets, labels, P = small_problem()
    smooth = smooth_objective(Phi, offsets, labels, 3, 0.0, 0.0)
    smooth.sharpness = 4.0
    total = 0.0
    for a, b, l in zip(offsets[:-1], offsets[1:], labels):
        p = np.array([plain_p(x, P) for x in Phi[a:b]])
        g = np.log(((p / (1 - p)) ** 4.0).sum()) / 4.0
        total += np.log1p(np.exp(-g if l else g))
    assert np.isclose(smooth(P.ravel())[0], total)


def test_chunks_and_sparse_features_change_nothing(monkeypatch):
    Phi, offsets, labels, P = small_problem(n_bags=30)
    whole = smooth_objective(Phi, offsets, labels, 3, 0.1, 0.1)(P.ravel())
    monkeypatch.setattr(obj, "_CHUNK", 10)
    cut = smooth_objective(Phi, offsets, labels, 3, 0.1, 0.1)
    assert len(cut.losses._chunks) > 3
    for other in (cut, smooth_objective(sparse.csr_array(Phi), offsets, labels, 3, 0.1, 0.1)):
        value, gradient = other(P.ravel())
        assert np.isclose(value, whole[0])
        np.testing.assert_allclose(gradient, whole[1], atol=1e-10)


@pytest.mark.parametrize("M", [1, 3])
def test_gradients_of_sub_problems(M):
    rng = np.random.default_rng(1)
    Z = np.column_stack([rng.normal(size=(9, 4)), np.ones(9)])
    labels = (np.arange(9) % 2).astype(float)
    T, W = rng.normal(size=(2, 5, M))
    theta = rng.dirichlet(np.ones(M), 9)
    gamma = obj.log_expert(Z @ T, labels)
    cases = [
        (lambda x: obj.sp1(x, Z, labels, theta, 0.4), T),
        (lambda x: obj.sp2(x, Z, gamma, 0.4), W),
        (lambda x: obj.sp2_tight(x, Z, theta, 0.4), W),
    ]
    for function, x in cases:
        expected = numeric(lambda x, f=function: f(x)[0], x)
        np.testing.assert_allclose(function(x)[1], expected, rtol=1e-5, atol=1e-6)


def test_sub_problems_add_up_to_the_printed_bound():
    Phi, offsets, labels, P = small_problem()
    Z = np.column_stack([Phi[offsets[:-1]], np.ones(len(labels))])
    F = Z @ P
    theta = np.exp(F[:, 3:]) / np.exp(F[:, 3:]).sum(axis=1, keepdims=True)
    bound = printed_bound(F, labels)
    assert np.isclose(obj.sp1(P[:, :3], Z, labels, theta, 0.0)[0], bound)
    assert np.isclose(obj.sp2(P[:, 3:], Z, obj.log_expert(F[:, :3], labels), 0.0)[0], bound)


def test_sp1_with_tight_weights_has_the_gradient_of_the_likelihood():
    Phi, offsets, labels, P = small_problem()
    chosen = Phi[offsets[:-1]]
    Z = np.column_stack([chosen, np.ones(len(labels))])
    q = obj.tight_weights(Z @ P, labels)
    singles = smooth_objective(chosen, np.arange(len(labels) + 1), labels, 3, 0.0, 0.0)
    gradient = singles(P.ravel())[1].reshape(P.shape)
    np.testing.assert_allclose(obj.sp1(P[:, :3], Z, labels, q, 0.0)[1], gradient[:, :3], atol=1e-10)
    np.testing.assert_allclose(obj.sp2_tight(P[:, 3:], Z, q, 0.0)[1], gradient[:, 3:], atol=1e-10)


def test_kernel_sub_problem_is_the_linear_one_on_whitened_features():
    rng = np.random.default_rng(2)
    X, labels = rng.normal(size=(8, 3)), (np.arange(8) % 2).astype(float)
    K = gaussian_kernel(X, X, 1.0)
    R = whitening(K)
    t = rng.normal(size=(R.shape[1], 2))
    theta = rng.dirichlet(np.ones(2), 8)
    Z = np.column_stack([K @ R, np.ones(8)])
    linear = obj.sp1(np.vstack([t, np.zeros(2)]), Z, labels, theta, 0.3)[0]
    assert np.isclose(printed_experts(R @ t, K, labels, theta, 0.3), linear)


def test_huge_activations_stay_finite_and_exact():
    signs = np.array(list(itertools.product([-800.0, 0.0, 800.0], repeat=4)))
    r, plus = np.empty(len(signs)), np.empty((len(signs), 2))
    instance_posteriors(signs, r, plus)
    log_p, log_n = obj.log_odds(signs)
    assert np.isfinite(r).all() and np.isfinite(plus).all()
    np.testing.assert_allclose(r, log_p - log_n, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(plus.sum(axis=1), 1.0)
    G = np.empty_like(signs)
    labels = (np.arange(27) % 2).astype(float)
    for sharpness in (1.0, 30.0, np.inf):
        values = bag_losses(signs, np.arange(0, 82, 3), labels, np.ones(27), sharpness, G)
        assert np.isfinite(values).all() and np.isfinite(G).all()
    F = np.array([[-800.0, 0.0], [-801.0, 0.0]])  # one bag, positive: the loss is 800, its slope -1
    G = np.empty_like(F)
    values = bag_losses(F, np.array([0, 2]), np.ones(1), np.ones(1), 1000.0, G)
    np.testing.assert_allclose(values, [800.0, 800.0])
    np.testing.assert_allclose(G, [[-1.0, 0.0], [0.0, 0.0]], atol=1e-12)


# ---------------------------------------------------------------------- solvers and starts


@pytest.mark.parametrize("reg", [0.1, 1.0])
def test_smooth_ends_at_or_below_the_others_and_none_above_its_start(reg):
    bags, y, _ = faces(120)
    Phi = StandardScaler().fit_transform(bags.X.astype(float))
    problem = Problem(Phi, bags.offsets, y.astype(float), 3, reg, reg)
    with small_products(1.0):
        starts = starting_points(problem, 2, np.random.RandomState(0))
        runs = {solver: solve(problem, starts, solver, 8, 1e-6) for solver in ("smooth", "em", "paper")}
    values = {}
    for solver, found in runs.items():
        values[solver] = found.value
        assert np.isclose(found.value, obj.objective(found.P, *problem[:3], reg, reg))
        assert found.value <= min(obj.objective(P, *problem[:3], reg, reg) for P in starts) + 1e-9
        assert found.value == min(found.history) == found.history[-1]
    assert values["smooth"] <= min(values["em"], values["paper"]) * (1 + 1e-4)


def test_gates_sum_to_zero_at_the_optimum():
    # adding a vector to all gates changes no probability, so the penalty makes their sum zero
    bags, y, _ = faces(120)
    Phi = StandardScaler().fit_transform(bags.X.astype(float))
    problem = Problem(Phi, bags.offsets, y.astype(float), 3, 1.0, 1.0)
    starts = starting_points(problem, 1, np.random.RandomState(0))
    W = solve(problem, starts, "smooth", 500, 1e-10).P[:-1, 3:]
    assert np.abs(W.sum(axis=1)).max() < 0.02 * np.abs(W).max()


def test_symmetric_start_is_a_saddle_and_ours_is_none():
    bags, y, _ = faces(80)
    Phi = bags.X.astype(float)
    smooth = smooth_objective(Phi, bags.offsets, y, 2, 0.1, 0.1)
    P = np.zeros(smooth.shape)
    P[:, :2] = np.random.default_rng(0).normal(size=(len(P), 1))
    gradient = smooth(P.ravel())[1].reshape(P.shape)
    np.testing.assert_allclose(gradient[:, 0], gradient[:, 1])  # equal experts stay equal
    np.testing.assert_allclose(gradient[:, 2:], 0.0, atol=1e-12)  # and gates never leave zero
    for P in starting_points(Problem(Phi, bags.offsets, y, 2, 0.1, 0.1), 3, np.random.RandomState(0)):
        gradient = smooth(P.ravel())[1].reshape(P.shape)
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


# ---------------------------------------------------------------------- features


def test_whitened_features_have_the_kernel_as_inner_product():
    X = np.random.default_rng(0).normal(size=(20, 3))
    K = gaussian_kernel(X, X, 2.0)
    Phi = K @ whitening(K)
    np.testing.assert_allclose(Phi @ Phi.T, K, atol=1e-5)
    d = ((X[3] - X[7]) ** 2).sum()
    assert np.isclose(K[3, 7], np.exp(-d / 4.0))


def test_median_distance_and_degenerate_rows():
    X = np.random.default_rng(0).normal(size=(400, 5))
    D = ((X[:, None] - X[None]) ** 2).sum(axis=2)[np.triu_indices(400, 1)]
    assert abs(median_distance(X, np.random.RandomState(0)) / np.median(D) - 1) < 0.1
    assert np.isclose(
        median_distance(sparse.csr_array(X), np.random.RandomState(0)),
        median_distance(X, np.random.RandomState(0)),
    )
    assert median_distance(np.ones((3, 2)), np.random.RandomState(0)) == 1.0
    assert median_distance(np.ones((1, 2)), np.random.RandomState(0)) == 1.0


def test_kernel_model_learns_a_ring_and_scaling_features_changes_nothing():
    rng = np.random.default_rng(0)
    sizes = rng.integers(2, 5, 120)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    y = rng.integers(0, 2, 120)
    X = rng.normal(size=(offsets[-1], 2)) * 0.4
    angle = rng.uniform(0, 2 * np.pi, 120)
    X[offsets[:-1][y == 1]] = 3.0 * np.column_stack([np.cos(angle), np.sin(angle)])[y == 1]
    bags = Bags(X, offsets)
    model = MMMIL(1, kernel="rbf", width_scale=0.25, n_landmarks=100, random_state=0).fit(bags, y)
    assert roc_auc_score(y, model.decision_function(bags)) > 0.98
    assert model.landmarks_.shape == (100, 2) and model.expert_coef_.shape == (1, 1, 100)
    moved = Bags(1000.0 * X + 7.0, offsets)
    again = MMMIL(1, kernel="rbf", width_scale=0.25, n_landmarks=100, random_state=0).fit(moved, y)
    assert np.isclose(again.sigma2_, model.sigma2_)
    np.testing.assert_allclose(
        again.decision_function(moved), model.decision_function(bags), rtol=0.05, atol=0.05
    )


# ---------------------------------------------------------------------- outputs


@pytest.mark.parametrize("kernel", [None, "rbf"])
def test_outputs_agree_with_each_other(kernel):
    bags, y, _ = faces(100, 2)
    model = MMMIL(2, kernel=kernel, n_landmarks=60, random_state=0).fit(bags, y)
    q = model.cluster_proba(bags)
    np.testing.assert_allclose(q.sum(axis=1), 1.0)
    p = model.instance_proba(bags)[:, 0]
    proba = model.predict_proba(bags)[:, 1]
    np.testing.assert_allclose(proba, [p[a:b].max() for a, b in zip(bags.offsets[:-1], bags.offsets[1:])])
    found = model.bag_clusters(bags)
    np.testing.assert_array_equal(found >= 0, model.predict(bags) == 1)
    witness = model.key_instances(bags)[:, 0, 0]
    np.testing.assert_array_equal(found[found >= 0], q[witness].argmax(axis=1)[found >= 0])
    np.testing.assert_array_equal(model.bag_clusters(bags, y) >= 0, y == 1)
    if kernel is None:  # P(z | x, +) by the letter
        P = np.vstack(
            [
                np.hstack([model.expert_coef_[0].T, model.gate_coef_[0].T]),
                np.hstack([model.expert_intercept_[0], model.gate_intercept_[0]]),
            ]
        )
        x = bags.X[5].astype(float)
        f = np.append(x, 1.0) @ P
        joint = np.exp(f[2:]) / np.exp(f[2:]).sum() / (1 + np.exp(-f[:2]))
        np.testing.assert_allclose(q[5], joint / joint.sum(), rtol=1e-6)
        assert np.isclose(p[5], joint.sum())


def test_same_seed_same_model_and_parallel_labels_too():
    data = make_miml(60, 3, 6, random_state=0)
    first = MMMIL(2, random_state=3).fit(data.bags, data.Y)
    again = MMMIL(2, random_state=3, n_jobs=2).fit(data.bags, data.Y)
    np.testing.assert_array_equal(first.expert_coef_, again.expert_coef_)
    assert first.cluster_proba(data.bags).shape == (data.bags.n_instances, 3, 2)
    assert first.bag_clusters(data.bags).shape == (60, 3)
    assert len(first.objective_) == 3


def test_contradicting_copies_of_a_bag_are_reported():
    rng = np.random.default_rng(0)
    matrices = [rng.normal(size=(3, 2)) for _ in range(6)]
    bags = Bags.from_list([*matrices, matrices[2][::-1], matrices[3]])  # another order is the same bag
    y = np.array([0, 1, 0, 1, 0, 1, 1, 1])
    for X in (bags, bags.with_X(sparse.csr_array(bags.X))):
        with pytest.warns(UserWarning, match="1 bags occur again.*2 and 6.*6 distinct bags among 8"):
            MMMIL(1).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        MMMIL(1).fit(bags, np.array([0, 1, 0, 1, 0, 1, 0, 1]))


def test_bad_parameters_are_refused_by_name():
    bags, y, _ = faces(20, 1)
    bad = {
        "n_clusters": 0,
        "kernel": "poly",
        "solver": "sgd",
        "n_init": 0,
        "width_scale": 0.0,
        "gate_penalty": -1.0,
        "expert_penalty": float("nan"),
        "n_landmarks": 2.5,
        "tol": float("nan"),
        "max_iter": -3,
        "n_jobs": 0,
    }
    for name, value in bad.items():
        for model in (MMMIL(**{name: value}), OneVsRestMIL(MMMIL(**{name: value}))):
            with pytest.raises(ValueError, match=name):
                model.fit(bags, y)
        with pytest.raises(ValueError, match=name):
            select_n_clusters(MMMIL(**{name: value}), bags, y, (1, 2))
    with pytest.raises(ValueError, match=r"estimator of OneVsRestMIL.*fit and decision_function"):
        OneVsRestMIL("svm").fit(bags, y)
    with pytest.raises(ValueError, match="n_clusters"):
        select_n_clusters(MMMIL(), bags, y, [])


@pytest.mark.parametrize("method", ["instance_proba", "cluster_proba", "bag_clusters"])
def test_own_methods_need_a_fit(method):
    bags, _, _ = faces(20, 1)
    with pytest.raises(NotFittedError):
        getattr(MMMIL(), method)(bags)


@pytest.mark.parametrize("kernel", [None, "rbf"])
def test_stored_model_predicts_the_same(tmp_path, kernel):
    bags, y, _ = faces(40, 2)
    for model in (
        MMMIL(2, kernel=kernel, random_state=0),
        OneVsRestMIL(MMMIL(1, kernel=kernel, random_state=0)),
    ):
        model.fit(bags, y)
        bagwise.save(model, tmp_path / "model.skops")
        again = bagwise.load(tmp_path / "model.skops")
        np.testing.assert_array_equal(again.decision_function(bags), model.decision_function(bags))


@pytest.mark.parametrize("check", all_checks(), ids=lambda check: check.__name__)
def test_common_checks_with_a_kernel(check):
    check(MMMIL(2, kernel="rbf", n_landmarks=40, n_init=1, random_state=0))


# ---------------------------------------------------------------------- number of clusters


def corners(n_faces, seed, n_bags=200, d=10):
    """Half of the bags hold one instance of a face; faces are corners of a regular simplex around 0."""
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(3, 11, n_bags))])
    X = rng.normal(size=(offsets[-1], d))
    centres = np.eye(n_faces, d) - (np.arange(d) < n_faces) / n_faces * (n_faces > 1)
    centres *= 5.0 / np.linalg.norm(centres, axis=1, keepdims=True)
    y = rng.permutation(n_bags) % 2
    chosen = (offsets[:-1] + rng.integers(0, np.diff(offsets)))[y == 1]
    X[chosen] += centres[rng.integers(0, n_faces, len(chosen))]
    return Bags(X, offsets), y


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n_faces", [1, 2, 3])
def test_number_of_clusters_is_found(n_faces, seed):
    # the information criterion, no longer offered, took 4, 4 and 7 clusters for 3
    bags, y = corners(n_faces, seed)
    best, values = select_n_clusters(MMMIL(n_init=2, random_state=0), bags, y, range(1, 6))
    assert best == n_faces and set(values) == {1, 2, 3, 4, 5}


def test_number_of_clusters_of_several_labels():
    data = make_miml(60, 3, 6, random_state=0)
    best, values = select_n_clusters(MMMIL(random_state=0), data.bags, data.Y, (2, 1))
    assert best in (1, 2) and np.isfinite(list(values.values())).all()


# ---------------------------------------------------------------------- one against the rest


def test_wrapper_of_mmmil_equals_mmmil_and_shares_features(monkeypatch):
    data = make_miml(60, 3, 6, random_state=0)
    Y = data.Y.copy()
    Y[:, 1] = 1
    settings = {"n_clusters": 2, "kernel": "rbf", "n_landmarks": 50, "random_state": 0}
    direct = MMMIL(**settings).fit(data.bags, Y)
    calls = []
    shared = MMMIL._shared
    monkeypatch.setattr(MMMIL, "_shared", lambda self, bags: calls.append(1) or shared(self, bags))
    wrapped = OneVsRestMIL(MMMIL(**settings)).fit(data.bags, Y)
    assert len(calls) == 1
    assert wrapped.estimators_[1] is None and wrapped.constant_[1] > 0
    for name in ("decision_function", "predict", "predict_proba", "instance_scores", "key_instances"):
        np.testing.assert_allclose(getattr(wrapped, name)(data.bags), getattr(direct, name)(data.bags))


@pytest.mark.parametrize(
    "inner",
    [
        ORedLogisticRegression(),
        make_pipeline(OnInstances(StandardScaler()), MMMIL(1)),
        GridSearchCV(MMMIL(1), {"expert_penalty": [0.1, 1.0]}, cv=2, scoring="roc_auc"),
    ],
    ids=lambda inner: type(inner).__name__,
)
def test_wrapper_takes_any_binary_classifier_of_bags(inner):
    data = make_miml(80, 3, 6, random_state=0)
    model = OneVsRestMIL(inner).fit(data.bags[:60], data.Y[:60])
    test = data.bags[60:]
    scores = model.decision_function(test)
    np.testing.assert_array_equal(model.predict(test), scores > 0)
    assert model.predict_proba(test).shape == model.predict(test).shape == (20, 3)
    assert model.instance_scores(test).shape == (test.n_instances, 3)
    assert np.mean([roc_auc_score(data.Y[60:, l], scores[:, l]) for l in range(3)]) > 0.8


def test_wrapper_says_what_its_inner_estimator_can_do():
    assert OneVsRestMIL().traits.probabilities and OneVsRestMIL.traits.instances == "model"
    assert not OneVsRestMIL(ORedLogisticRegression()).traits.sample_weight


def test_wrapper_in_parallel_gives_the_same():
    data = make_miml(40, 3, 6, random_state=0)
    one = OneVsRestMIL().fit(data.bags, data.Y).decision_function(data.bags)
    two = OneVsRestMIL(n_jobs=2).fit(data.bags, data.Y).decision_function(data.bags)
    np.testing.assert_array_equal(one, two)
