"""RankLossSIM and LSBCMM against loops, generic optimisers and finite differences."""

import itertools
import os

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse, stats
from scipy.optimize import approx_fprime, minimize
from scipy.special import digamma, gammaln
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

import bagwise
from bagwise import Bags, load_dataset
from bagwise.checks import sample_bags
from bagwise.models import LSBCMM, RankLossSIM
from bagwise.models.instance.kernels import rank_hinge
from bagwise.models.instance.lsb_cmm import CandidateModel, log_gates, run_em
from bagwise.models.instance.rank_loss_sim import RankLossProblem, lbfgs_phase


def some_bags(n_bags=12, n_labels=4, n_features=3, seed=0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, n_bags)
    X = rng.normal(size=(sizes.sum(), n_features))
    Y = (rng.random((n_bags, n_labels)) < 0.4).astype(np.int8)
    Y[0], Y[1] = 0, 1  # no pairs
    return X, np.concatenate([[0], np.cumsum(sizes)]), Y


def hinge(u, width=0.0):
    if u <= 0:
        return 0.0
    return u * u / (2 * width) if u < width else u - width / 2


def loss_by_loops(g, y, width=0.0):
    pairs = [(p, q) for p in np.flatnonzero(y) for q in np.flatnonzero(y == 0)]
    return np.mean([hinge(1 - g[p] + g[q], width) for p, q in pairs]) if pairs else 0.0


def objective_by_loops(W, X, offsets, Y, alpha, support):
    """The objective as it is printed; the last column of W belongs to a constant feature."""
    X = np.column_stack([X, np.ones(len(X))])
    total = 0.0
    for b, y in enumerate(Y):
        bag = X[offsets[b] : offsets[b + 1]]
        g = np.empty(len(W))
        for label, w in enumerate(W):
            f = bag @ w
            a = np.exp(f - f.max()) if support == "softmax" else (np.arange(len(f)) == f.argmax())
            g[label] = w @ ((a / a.sum()) @ bag)
        total += loss_by_loops(g, y)
    return alpha / 2 * (W**2).sum() + total / len(Y)


# ---------------------------------------------------------------------- the pairwise loss


@pytest.mark.parametrize("width", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("pairs_per_label", [-1.0, 1e9], ids=["sorted", "pairs"])
def test_rank_hinge_is_that_of_loops(width, pairs_per_label):
    rng = np.random.default_rng(0)
    G = 1.5 * rng.normal(size=(40, 7))
    Y = (rng.random(G.shape) < rng.random((40, 1))).astype(np.int8)
    losses, slopes = rank_hinge(G, Y, width, pairs_per_label=pairs_per_label)
    assert_allclose(losses, [loss_by_loops(g, y, width) for g, y in zip(G, Y)], atol=1e-12)
    for g, y, slope in zip(G[:8], Y[:8], slopes[:8]):
        assert_allclose(slope, approx_fprime(g, loss_by_loops, 1e-7, y, width), atol=1e-5)


def test_rank_hinge_at_ties_and_far_from_zero():
    G = np.array([[1.0, 0.0, 0.0, 1.0], [3.0, 3.0, 3.0, 3.0]])
    Y = np.array([[1, 0, 0, 1], [1, 0, 1, 0]])
    near = np.random.default_rng(0).normal(size=(2, 4))
    for pairs_per_label in (-1.0, 1e9):
        far = rank_hinge(near + 1e6, Y, 0.3, pairs_per_label=pairs_per_label)
        for value, expected in zip(far, rank_hinge(near, Y, 0.3)):
            assert_allclose(value, expected, atol=1e-8)  # scores of 1e6 carry ten digits behind the point
        losses, slopes = rank_hinge(G + 1e6, Y, pairs_per_label=pairs_per_label)
        assert_allclose(losses, [0.0, 1.0], atol=1e-9)
        assert_allclose(slopes, [[0] * 4, [-0.5, 0.5, -0.5, 0.5]])  # the kink has slope 0


# ---------------------------------------------------------------------- RankLossSIM


@pytest.mark.parametrize("support", ["softmax", "max"])
def test_objective_is_the_printed_one(support):
    X, offsets, Y = some_bags()
    W = np.random.default_rng(1).normal(size=(4, 4))
    problem = RankLossProblem(X, offsets, Y, 0.1, support)
    assert_allclose(problem.objective(W), objective_by_loops(W, X, offsets, Y, 0.1, support))
    # at its own support instances the frozen objective is the same
    assert_allclose(problem.frozen(W, problem.weights(W), 0.0)[0], problem.objective(W))


@pytest.mark.parametrize("n_labels", [1, 4])
@pytest.mark.parametrize("support", ["softmax", "max"])
def test_gradient_of_the_frozen_objective(support, n_labels):
    X, offsets, Y = some_bags(n_labels=n_labels)
    W = np.random.default_rng(1).normal(size=(n_labels, 4))
    problem = RankLossProblem(X, offsets, Y, 0.1, support)
    A = problem.weights(W + 0.1)
    numeric = approx_fprime(W.ravel(), lambda w: problem.frozen(w.reshape(W.shape), A, 0.4)[0], 1e-7)
    value, gradient = problem.frozen(W, A, 0.4)
    assert_allclose(gradient.ravel(), numeric, atol=1e-5)
    as_csr = RankLossProblem(sparse.csr_array(X), offsets, Y, 0.1, support)
    assert_allclose(as_csr.frozen(W, A, 0.4)[0], value)
    assert_allclose(as_csr.frozen(W, A, 0.4)[1], gradient)


def test_support_starts_at_the_mean_and_softmax_ends_at_the_maximum():
    X, offsets, Y = some_bags()
    zero, W = np.zeros((4, 4)), np.random.default_rng(1).normal(size=(4, 4))
    soft, hard = (RankLossProblem(X, offsets, Y, 0.1, support) for support in ("softmax", "max"))
    mean = np.repeat(1.0 / np.diff(offsets), np.diff(offsets))
    for problem in (soft, hard):
        assert_allclose(problem.weights(zero), np.tile(mean[:, None], 4))
    assert np.abs(soft.weights(W) - hard.weights(W)).max() > 0.1
    assert_allclose(soft.weights(1e4 * W), hard.weights(1e4 * W), atol=1e-12)  # one instance dominates
    assert_allclose(soft.objective(1e4 * W), hard.objective(1e4 * W))


def test_singleton_bags_give_the_rank_loss_svm():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8, 2))
    Y = (rng.random((8, 3)) < 0.5).astype(np.int8)
    alpha = 0.1
    pairs = [(b, p, q) for b in range(8) for p, q in itertools.permutations(range(3), 2) if Y[b, p] > Y[b, q]]
    n_pairs = np.array([Y[b].sum() * (3 - Y[b].sum()) for b, _, _ in pairs])
    X1 = np.column_stack([X, np.ones(8)])

    def margins(v):  # the quadratic programme with a slack per pair
        F = X1 @ v[:9].reshape(3, 3).T
        return np.array([F[b, p] - F[b, q] for b, p, q in pairs]) - 1 + v[9:]

    best = minimize(
        lambda v: alpha / 2 * v[:9] @ v[:9] + (v[9:] / n_pairs).sum() / 8,
        np.concatenate([np.zeros(9), np.ones(len(pairs))]),
        method="SLSQP",
        bounds=[(None, None)] * 9 + [(0, None)] * len(pairs),
        constraints={"type": "ineq", "fun": margins},
        options={"maxiter": 500, "ftol": 1e-10},
    )
    assert best.success
    bags = Bags(X, np.arange(9))
    for support in ("softmax", "max"):
        model = RankLossSIM(
            alpha, support=support, standardize=False, smoothing=1e-3, max_iter=2000, tol=0.0, n_phases=3
        ).fit(bags, Y)
        assert model.objective_[0] == pytest.approx((1.0 / n_pairs).sum() / 8)
        assert_allclose(
            model.objective_[1:], best.fun, rtol=2e-3
        )  # nothing to choose: every phase is the same
        W = np.column_stack([model.coef_, model.intercept_])
        assert_allclose(W, best.x[:9].reshape(3, 3), atol=0.02)
    pegasos = RankLossSIM(alpha, solver="pegasos", standardize=False, max_iter=3000, n_phases=1).fit(bags, Y)
    assert_allclose(pegasos.objective_[1], best.fun, rtol=0.01)


def test_single_label_of_singletons_is_the_linear_svm():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = (X[:, 0] + 0.5 * rng.normal(size=40) > 0.3).astype(int)
    alpha = 0.05
    svm = LinearSVC(C=1 / (alpha * 40), loss="hinge", tol=1e-8, max_iter=200_000, random_state=0).fit(X, y)
    model = RankLossSIM(alpha, standardize=False, smoothing=1e-3, max_iter=2000).fit(X, y)
    assert_allclose(model.coef_, svm.coef_, atol=0.02)
    assert_allclose(model.intercept_, svm.intercept_, atol=0.02)


def test_pegasos_steps_are_the_published_ones():
    X, offsets, Y = some_bags()
    bags, alpha = Bags(X, offsets), 0.02
    projected = 0
    model = RankLossSIM(alpha, solver="pegasos", standardize=False, n_phases=2, max_iter=4).fit(bags, Y)
    problem = RankLossProblem(X, offsets, Y, alpha, "softmax")
    W = np.zeros((4, 4))
    for _ in range(2):
        A = problem.weights(W)
        for t in range(1, 5):
            eta = 1 / (alpha * t)
            loss_gradient = problem.frozen(W, A, 0.0)[1] - alpha * W
            W = (1 - eta * alpha) * W - eta * loss_gradient
            longer = np.sqrt(alpha) * np.linalg.norm(W)
            projected += 1.0 < longer < 2.0
            W = W * min(1.0, 1 / longer)
    assert projected
    assert_allclose(np.column_stack([model.coef_, model.intercept_]), W, atol=1e-12)


@pytest.mark.parametrize("support", ["softmax", "max"])
def test_phases_lower_the_objective_and_find_instances(support):
    data = load_dataset("digits", n_bags=150)
    model = RankLossSIM(support=support).fit(data.bags, data.Y)
    assert model.n_iter_ == len(model.objective_) - 1
    assert model.objective_[0] == pytest.approx(1.0)
    assert model.objective_[-1] < 0.5 * model.objective_[1]
    assert (model.annotate(data.bags, data.Y) == data.instance_Y).mean() > 0.9


def test_more_steps_do_not_raise_a_phase():
    X, offsets, Y = some_bags(n_bags=40)
    problem = RankLossProblem(X, offsets, Y, 1e-2, "softmax")
    W = np.zeros(problem.shape)
    A = problem.weights(W)
    values = [problem.frozen(lbfgs_phase(problem, W, A, n, 0.5), A, 0.5)[0] for n in (1, 3, 10, 100)]
    assert (np.diff(values) <= 1e-12).all()


def test_threshold_is_the_best_on_training_bags():
    bags, Y = sample_bags()
    model = RankLossSIM().fit(bags, Y)
    free = RankLossSIM(threshold=0.0).fit(bags, Y)
    S = free.decision_function(bags)
    assert_allclose(model.decision_function(bags), S - model.threshold_)
    best = min(np.mean((t < S) != Y) for t in np.concatenate([S.ravel() - 1e-9, [S.max()]]))
    assert np.mean(model.predict(bags) != Y) == pytest.approx(best)
    assert free.threshold_ == 0.0


def test_union_rule_follows_the_instances():
    bags, Y = sample_bags()
    model = RankLossSIM(set_rule="union").fit(bags, Y)
    expected = np.zeros_like(Y)
    expected[bags.index, model.instance_scores(bags).argmax(axis=1)] = 1
    assert_array_equal(model.predict(bags), expected)
    assert model.predict(bags).dtype == Y.dtype
    by_class = RankLossSIM(set_rule="union").fit(bags, Y.argmax(axis=1))
    assert set(by_class.predict(bags)) <= {0, 1, 2}


@pytest.mark.parametrize(
    "parameters",
    [
        {"alpha": 0.0}, {"support": "mean"}, {"solver": "sgd"}, {"n_phases": 0}, {"max_iter": 0},
        {"smoothing": 0}, {"threshold": "best"}, {"set_rule": "top"},
    ],
)  # fmt: skip
def test_rank_loss_refuses_bad_parameters(parameters):
    bags, Y = sample_bags()
    with pytest.raises(ValueError, match=next(iter(parameters))):
        RankLossSIM(**parameters).fit(bags, Y)


# ---------------------------------------------------------------------- LSB-CMM


def candidate_model(seed=0, n_labels=3, sigma2=2.0, alpha=0.05):
    X, offsets, Y = some_bags(n_bags=9, n_labels=n_labels, seed=seed)
    Y[0, 1] = 1
    Y[~Y.any(axis=1), 0] = 1
    return CandidateModel(X, offsets, Y, alpha, sigma2), X, offsets, Y


def test_gates_break_a_stick():
    U = np.random.default_rng(0).normal(scale=3.0, size=(5, 4))
    v = np.column_stack([1 / (1 + np.exp(-U)), np.ones(5)])
    expected = [[v[n, k] * np.prod(1 - v[n, :k]) for k in range(5)] for n in range(5)]
    assert_allclose(np.exp(log_gates(U)), expected)
    extreme = np.array([[800.0, -800.0], [-800.0, 800.0], [-800.0, -800.0]])
    assert np.isfinite(log_gates(extreme)).all()
    assert_allclose(np.exp(log_gates(extreme)), np.eye(3)[[0, 1, 2]], atol=1e-300)
    assert log_gates(np.zeros((4, 0))).shape == (4, 1)


def test_e_step_and_bound_are_those_of_loops():
    model, _, _, Y = candidate_model()
    rng = np.random.default_rng(2)
    K, L = 4, 3
    W, counts = rng.normal(size=(K - 1, 4)), rng.gamma(1.0, size=(K, L)) + 0.05
    phi = np.exp(log_gates(model.logits(W)))
    E = digamma(counts) - digamma(counts.sum(axis=1, keepdims=True))
    Q, N, log_normalisers = model.e_step(np.log(phi), counts)
    expected_Q, expected_N, bound = np.zeros_like(Q), np.zeros_like(N), 0.0
    for n, b in enumerate(model.index):
        q = np.array([[phi[n, k] * np.exp(E[k, c]) * Y[b, c] for c in range(L)] for k in range(K)])
        q /= q.sum()
        expected_Q[n] = q.sum(axis=1)
        expected_N += q
        for k, c in itertools.product(range(K), range(L)):  # E log p(k, c) - E log q(k, c)
            if q[k, c] > 0:
                bound += q[k, c] * (np.log(phi[n, k]) + E[k, c] - np.log(q[k, c]))
    assert_allclose(Q, expected_Q)
    assert_allclose(N, expected_N)
    alpha, sigma2 = 0.05, 2.0
    for k in range(K):  # E log p(theta) - E log q(theta)
        bound += gammaln(L * alpha) - L * gammaln(alpha) + (alpha - 1) * E[k].sum()
        bound += stats.dirichlet(counts[k]).entropy()
    bound -= (W[:, :-1] ** 2).sum() / (2 * sigma2)  # the normal prior but for its constant
    assert_allclose(model.bound(log_normalisers, W, counts), bound)


def test_e_step_with_one_candidate_is_the_posterior_of_gates():
    model, X, offsets, Y = candidate_model()
    one = np.eye(3)[Y.argmax(axis=1)]
    model = CandidateModel(X, offsets, one, 0.05, 2.0)
    counts = np.random.default_rng(0).gamma(1.0, size=(4, 3)) + 0.05
    phi = np.full((len(X), 4), 0.25)
    Q, N, _ = model.e_step(np.log(phi), counts)
    E = digamma(counts) - digamma(counts.sum(axis=1, keepdims=True))
    expected = np.exp(E.T[one.argmax(axis=1)[model.index]])
    assert_allclose(Q, expected / expected.sum(axis=1, keepdims=True))
    assert_allclose(N.sum(axis=0), np.bincount(one.argmax(axis=1)[model.index], minlength=3))


def test_m_step_reaches_the_logistic_regressions():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    model = CandidateModel(X, np.arange(61), np.ones((60, 2)), 0.05, 3.0)
    Q = rng.dirichlet(np.full(4, 0.5), size=60)
    W, U = model.m_step(np.zeros((3, 4)), np.zeros((60, 3)), Q, 30)
    assert_allclose(U, model.logits(W))
    for k in range(3):
        rest = Q[:, k + 1 :].sum(axis=1)
        reference = LogisticRegression(C=3.0, tol=1e-8, max_iter=1000)  # two weighted copies of each row
        reference.fit(np.vstack([X, X]), np.repeat([1, 0], 60), sample_weight=np.concatenate([Q[:, k], rest]))
        assert_allclose(W[k], np.append(reference.coef_, reference.intercept_), atol=1e-4)


@pytest.mark.parametrize("as_sparse", [False, True])
def test_no_m_step_makes_a_gate_worse(as_sparse):
    rng = np.random.default_rng(0)
    X = 5 * rng.normal(size=(50, 3)) * (rng.random((50, 3)) < 0.5)
    model = CandidateModel(
        sparse.csr_array(X) if as_sparse else X, np.arange(51), np.ones((50, 2)), 0.05, 1e5
    )
    Q = rng.dirichlet(np.full(5, 0.05), size=50)
    S = np.array([[Q[n, k:].sum() for k in range(4)] for n in range(50)])
    W, U = np.zeros((4, 4)), np.zeros((50, 4))
    losses = model.gate_losses(W, U, Q[:, :-1], S)
    v = 0.5
    assert_allclose(losses, -np.log(v) * S.sum(axis=0))
    for _ in range(20):
        W, U = model.m_step(W, U, Q, 1)
        now = model.gate_losses(W, U, Q[:, :-1], S)
        assert (now <= losses + 1e-9).all()
        losses = now


@pytest.mark.parametrize("sigma2", [0.01, 10.0, 1e5])
@pytest.mark.parametrize("alpha", [1e-4, 0.05, 5.0])
def test_bound_never_falls(sigma2, alpha):
    bags, Y = sample_bags(n_bags=60)
    model = LSBCMM(sigma2, alpha=alpha, tol=0.0, max_iter=40).fit(bags, Y)
    assert model.n_iter_ == len(model.objective_)
    assert (np.diff(model.objective_) >= -1e-9 * np.abs(model.objective_[0])).all()


def test_one_component_gives_smoothed_frequencies():
    bags, _ = sample_bags()
    singles = bags.singletons()
    z = singles.instance_info["label"]
    model = LSBCMM(n_components=1, alpha=0.7, decision="union").fit(singles, np.eye(3, dtype=int)[z])
    expected = (np.bincount(z, minlength=3) + 0.7) / (len(z) + 3 * 0.7)
    assert_allclose(model.predict_proba(singles), np.tile(expected, (len(z), 1)))


def test_probabilities_are_those_of_the_mixture():
    bags, Y = sample_bags()
    model = LSBCMM(max_iter=15, decision="union").fit(bags, Y)
    phi = model.gate_probabilities(bags)
    assert phi.shape == (bags.n_instances, 15)
    assert_allclose(phi.sum(axis=1), 1.0)
    theta = model.label_counts_ / model.label_counts_.sum(axis=1, keepdims=True)
    labels, P = model.annotate(bags, return_proba=True)
    assert_allclose(P, phi @ theta)
    assert_array_equal(labels, P.argmax(axis=1))
    assert_allclose(model.predict_proba(bags), [P[bags.index == b].max(axis=0) for b in range(len(bags))])
    union = np.zeros_like(Y)
    union[bags.index, labels] = 1
    assert_array_equal(model.predict(bags), union)


def test_bags_without_labels_and_labels_without_bags():
    bags, Y = sample_bags(n_labels=4)
    z = bags.instance_info["label"]
    Y[:, 0] = 0  # the first class is no label
    Y[:, 1:] *= ~Y[:, 1:].all(axis=1, keepdims=True)
    Y = np.column_stack([Y[:, 1:], np.zeros(len(Y), dtype=int)])  # a label that never occurs
    assert (Y.sum(axis=1) == 0).any()
    model = LSBCMM(max_iter=30).fit(bags, Y)
    assert model.has_background_ and model.label_counts_.shape == (20, 5)
    assert (model.predict_proba(bags)[:, 3] < 1e-300).all()
    assert (model.predict(bags)[:, 3] == 0).all()
    # the background is learned from bags without a label only
    pure = np.isin(bags.index, np.flatnonzero(Y.sum(axis=1) == 0))
    assert (model.annotate(bags)[pure & (z == 0)] == -1).mean() > 0.8


def test_em_finds_instances():
    data = load_dataset("digits", n_bags=150)
    model = LSBCMM(max_iter=25).fit(data.bags, data.Y)
    assert (model.annotate(data.bags, data.Y) == data.instance_Y).mean() > 0.7


def test_em_stops_by_the_mean_of_three():
    bags, Y = sample_bags(n_bags=60)
    model = LSBCMM(tol=0.05).fit(bags, Y)
    bounds = model.objective_
    gains = [bounds[i - 3 : i].mean() - bounds[i - 6 : i - 3].mean() for i in range(10, len(bounds) + 1)]
    limits = [0.05 * abs(bounds[i - 6 : i - 3].mean()) for i in range(10, len(bounds) + 1)]
    assert 10 <= model.n_iter_ < 100
    assert gains[-1] < limits[-1] and all(g >= lim for g, lim in zip(gains[:-1], limits[:-1]))


@pytest.mark.parametrize(
    "parameters",
    [{"sigma2": 0}, {"alpha": -1.0}, {"n_components": 0}, {"n_components": 2.5}, {"max_iter": 0}],
)
def test_lsb_refuses_bad_parameters(parameters):
    bags, Y = sample_bags()
    with pytest.raises(ValueError, match=next(iter(parameters))):
        LSBCMM(**parameters).fit(bags, Y)


def test_start_prefers_one_label_per_component():
    model, *_ = candidate_model()
    W, counts, history = run_em(model, 6, 1, 1e-4)
    assert len(history) == 1 and W.shape == (5, 4)
    assert_allclose(counts.sum(), model.X.shape[0] + 6 * 3 * 0.05)


# ---------------------------------------------------------------------- both


@pytest.mark.parametrize("model", [RankLossSIM(n_phases=2), LSBCMM(max_iter=5)], ids=["sim", "lsb"])
def test_stored_and_for_features_as_given(model, tmp_path):
    bags, Y = sample_bags()
    model.fit(bags, Y)
    bagwise.save(model, tmp_path / "model.bagwise")
    again = bagwise.load(tmp_path / "model.bagwise")
    assert_array_equal(again.decision_function(bags), model.decision_function(bags))
    # other units and origins of the features change the coefficients and nothing else
    moved = bags.with_X(bags.X * [1.0, 10.0, 0.1, 5.0, 2.0] + [0.0, 3.0, -1.0, 7.0, 0.5])
    other = type(model)(**model.get_params()).fit(moved, Y)
    assert_allclose(other.decision_function(moved), model.decision_function(bags), rtol=1e-2, atol=1e-2)


@pytest.mark.skipif("BAGWISE_DATA" not in os.environ, reason="needs the public data sets")
@pytest.mark.parametrize("model, least", [(RankLossSIM(), 0.77), (LSBCMM(100.0), 0.62)], ids=["sim", "lsb"])
def test_published_transductive_accuracy(model, least):
    data = load_dataset("letter_frost")
    model.fit(data.bags, data.Y)
    assert (model.annotate(data.bags, data.Y) == data.instance_Y).mean() > least


def test_label_sets_are_calibrated_and_scores_left_alone():
    # many instances, each of which may err: the union of their labels is far too large
    rng = np.random.default_rng(0)
    n_bags, size = 120, 15
    X = rng.normal(size=(n_bags * size, 4))
    Y = np.zeros((n_bags, 3), dtype=int)
    for b in range(n_bags):
        for label in rng.choice(3, rng.integers(1, 3), replace=False):
            Y[b, label] = 1
            X[b * size + rng.integers(size), label] += 3.0
    bags = Bags(X, np.arange(0, n_bags * size + 1, size))
    union = LSBCMM(decision="union", max_iter=30).fit(bags[:80], Y[:80])
    default = LSBCMM(max_iter=30).fit(bags[:80], Y[:80])
    test, truth = bags[80:], Y[80:]
    np.testing.assert_array_equal(default.decision_function(test), union.decision_function(test))
    np.testing.assert_array_equal(union.predict(test), union.decision_function(test) > 0)
    np.testing.assert_array_equal(default.predict(test), default.predict_proba(test) > 0.5)
    assert (default.predict(test) != truth).mean() < 0.85 * (union.predict(test) != truth).mean()
