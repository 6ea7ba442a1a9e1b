"""Mode, evidence and predictions of MIML-GP against dense algebra written out from the paper."""

from functools import partial

import numpy as np
import pytest
from gp_problems import averaging, gaussian, problem, spd, training_of
from numpy.testing import assert_allclose
from scipy.special import expit, log_expit

from bagwise import Bags
from bagwise.models.gp.estimator import MIMLGP
from bagwise.models.gp.fit import learn_label_covariance, symmetric_root
from bagwise.models.gp.fit_features import build_features
from bagwise.models.gp.fit_mode import (
    Problem,
    block_curvature,
    block_preconditioner,
    dense_curvature,
    find_mode,
    solve_many,
)
from bagwise.models.gp.kernels import CollectiveLikelihood, StandardLikelihood, logistic_normal_log_odds
from bagwise.models.gp.kernels_gaussian import InstanceKernel, bag_means

pytestmark = pytest.mark.usefixtures("one_thread")


def dense_laplace(bags, Y, Kf, width):
    """Mode, W_0, d and evidence over all instances, from Eqs. (13)-(22); labels outermost as in the paper."""
    K = gaussian(bags.X, bags.X, width)
    big = np.kron(Kf, K)
    E = np.kron(np.eye(len(Kf)), averaging(bags))  # means of bags
    y = (2.0 * Y - 1.0).T.ravel()
    prior = E @ big @ E.T
    a = np.zeros(len(y))  # F = big E' a at the mode, so that K is never inverted
    for _ in range(100):
        g = prior @ a
        d = y * expit(-y * g)
        W = expit(g) * expit(-g)
        a = np.linalg.solve(np.eye(len(y)) + W[:, None] * prior, W * g + d)
    g = prior @ a
    W = expit(g) * expit(-g)
    B = np.eye(len(y)) + np.sqrt(W)[:, None] * prior * np.sqrt(W)
    evidence = log_expit(y * g).sum() - 0.5 * a @ g - 0.5 * np.linalg.slogdet(B)[1]
    return g.reshape(len(Kf), -1).T, W, y * expit(-y * g), evidence, prior


def dense_H(W, d, prior, Kf, Kmean):
    """Eqs. (30), (31)."""
    n, Q = len(Kmean), len(Kf)
    root = np.sqrt(W)
    B = np.eye(n * Q) + root[:, None] * prior * root
    C = root[:, None] * np.linalg.inv(B) * root - np.outer(d, d)
    return np.array(
        [[np.trace(C[i * n : (i + 1) * n, j * n : (j + 1) * n] @ Kmean) for j in range(Q)] for i in range(Q)]
    )


# ---------------------------------------------------------------------- the posterior against dense algebra


def test_mode_evidence_and_prediction_agree_with_the_paper():
    bags, Y = problem()
    others, _ = problem(6, seed=11)
    Kf, width = spd(3), 1.5
    model = MIMLGP(width=width, label_covariance=Kf, factor="eigen", share=1.0, scaling="none").fit(bags, Y)
    g, W, d, evidence, prior = dense_laplace(bags, Y, Kf, width)
    mean, _ = model.predict_latent(bags)
    assert_allclose(mean, g, rtol=1e-6, atol=1e-8)
    assert_allclose(model.log_evidence_, evidence, rtol=1e-8)
    # Eq. (24)
    cross = averaging(others) @ gaussian(others.X, bags.X, width) @ averaging(bags).T
    own = averaging(others) @ gaussian(others.X, others.X, width) @ averaging(others).T
    star = np.kron(Kf, cross)
    root = np.sqrt(W)
    B = np.eye(len(W)) + root[:, None] * prior * root
    covariance = np.kron(Kf, own) - (star * root) @ np.linalg.solve(B, (star * root).T)
    mean, deviation = model.predict_latent(others)
    assert_allclose(mean.T.ravel(), star @ d, rtol=1e-6, atol=1e-8)
    assert_allclose(deviation.T.ravel() ** 2, np.diag(covariance), rtol=1e-6, atol=1e-8)
    assert_allclose(
        model.predict_proba(others), expit(logistic_normal_log_odds(mean, deviation**2)), rtol=1e-10
    )
    # instances are bags of one
    mean, deviation = model.instance_latent(others)
    star = np.kron(Kf, gaussian(others.X, bags.X, width) @ averaging(bags).T)
    assert_allclose(mean.T.ravel(), star @ d, rtol=1e-6, atol=1e-8)
    assert_allclose(model.instance_scores(others), mean)
    assert (deviation > 0).all()


def test_m_step_is_the_damped_step_of_the_paper():
    bags, Y = problem(n=10, seed=3)
    K0, width = spd(3, seed=4), 1.2
    kernel = InstanceKernel("gaussian", width, 0.0)
    parts, _ = build_features(
        kernel, training_of(bags), factor="eigen", share=1.0, rank=None, random_state=None
    )
    likelihoods, root = Problem.of(parts.only().P, CollectiveLikelihood(Y)), symmetric_root(K0)
    m = likelihoods.m
    mode = find_mode(likelihoods, root, np.zeros((m, 3)), 1e-12)
    w = mode.b @ root
    ours = (w.T @ w + root @ dense_curvature(likelihoods, mode.point, root).traces @ root) / m
    _, W, d, _, prior = dense_laplace(bags, Y, K0, width)
    H = dense_H(W, d, prior, K0, kernel.gram(bags.X, bags.offsets))
    paper = K0 - K0 @ H @ K0 / bags.n_instances  # Eq. (32)
    assert_allclose(K0 + m / bags.n_instances * (ours - K0), paper, rtol=1e-6, atol=1e-8)


def test_learned_covariance_is_a_fixed_point():
    bags, Y = problem(n=80, seed=5)
    model = MIMLGP(width=2.0, share=0.9999, tol=1e-4, scaling="none").fit(bags, Y)
    K = model.label_covariance_
    _, W, d, _, prior = dense_laplace(bags, Y, K, 2.0)
    H = dense_H(W, d, prior, K, InstanceKernel("gaussian", 2.0, 0.0).gram(bags.X, bags.offsets))
    assert model.converged_ and model.n_iter_ < 60
    assert np.linalg.norm(K @ H @ K) < 1e-3 * np.linalg.norm(K) * model.rank_
    assert_allclose(K, K.T)
    assert np.linalg.eigvalsh(K)[0] >= 0
    assert_allclose(np.diag(model.label_correlation_), 1.0)


def test_acceleration_reaches_the_fixed_point_of_plain_em():
    bags, Y = problem(n=60, n_labels=2, seed=6)
    kernel = InstanceKernel("gaussian", 2.0, 0.0)
    parts, _ = build_features(
        kernel, training_of(bags), factor="eigen", share=0.99, rank=None, random_state=None
    )
    likelihoods, K = Problem.of(parts.only().P, CollectiveLikelihood(Y)), 10.0 * np.eye(2)
    fast = learn_label_covariance([likelihoods], K, "full", tol=1e-6, max_iter=400, n_probes=0, mode_tol=1e-9)
    m = likelihoods.m
    b = np.zeros((m, 2))
    for _ in range(400):  # plain steps
        root = symmetric_root(K)
        mode = find_mode(likelihoods, root, b, 1e-7)
        b = mode.b
        w = mode.b @ root
        new = (w.T @ w + root @ dense_curvature(likelihoods, mode.point, root).traces @ root) / m
        change = np.linalg.norm(new - K) / np.linalg.norm(K)
        K = new
        if change < 1e-6:
            break
    else:
        pytest.fail("plain EM did not settle")
    assert_allclose(fast.K, K, atol=2e-3 * np.abs(K).max())
    assert len(fast.residuals) < 60


@pytest.mark.parametrize("standard", [False, True])
@pytest.mark.parametrize("diagonal", [False, True])
def test_conjugate_gradients_and_blocks_agree_with_cholesky(standard, diagonal):
    bags, Y = problem(n=30, seed=7)
    Z = bags.X @ np.diag([3.0, 1.0, 0.3])
    if standard:
        likelihood = StandardLikelihood(Y, bags.offsets, 3.0)
    else:
        likelihood, Z = CollectiveLikelihood(Y), bag_means(Z, bags.offsets)
    L = symmetric_root(np.diag([1.0, 2.0, 0.5]) if diagonal else spd(3))
    rng = np.random.default_rng(0)
    whole = Problem.of(Z, likelihood)
    point = whole.at(rng.normal(size=(3, 3)))
    _, _, state = likelihood.slopes(Z @ point.w)
    m, Q = Z.shape[1], 3
    A = np.eye(m * Q)
    for s in range(Q):
        columns = np.column_stack(
            [likelihood.bend(state, np.outer(Z[:, k], np.eye(Q)[s]))[:, s] for k in range(m)]
        )
        G = Z.T @ columns
        assert_allclose(likelihood.gram(state, Z, s), G, atol=1e-10)
        assert_allclose(likelihood.gram_diagonal(state, Z)[:, s], np.diag(G), atol=1e-10)
        A += np.kron(np.outer(L[s], L[s]), G)
    inverse = np.linalg.inv(A)
    exact = dense_curvature(whole, point, L, covariance=True)
    blocks = inverse.reshape(Q, m, Q, m)
    assert_allclose(exact.traces, np.einsum("akbk->ab", blocks), atol=1e-9)
    assert_allclose(exact.log_det, np.linalg.slogdet(A)[1])
    for s in range(Q):
        assert_allclose(exact.covariance[s], np.einsum("a,akbj,b->kj", L[s], blocks, L[s]), atol=1e-9)
    right = rng.normal(size=(2, m, Q))
    diagonals, bend = whole.diagonals(point), partial(whole.bend, point, single=False)
    x = solve_many(bend, L, right, block_preconditioner(diagonals, L)[0], 1e-10)
    for i in range(2):
        assert_allclose(x[i].T.ravel(), inverse @ right[i].T.ravel(), atol=1e-8)
    signs = rng.integers(0, 2, (3000, m, Q)) * 2.0 - 1.0
    rough, better = (block_curvature(whole, point, L, p) for p in (None, signs))
    assert rough.log_det >= exact.log_det - 1e-9  # Fischer's inequality: the evidence is a lower bound
    assert_allclose(better.traces, exact.traces, atol=0.1)
    assert (rough.covariance <= np.einsum("skk->ks", exact.covariance) + 1e-9).all()


def test_large_and_small_solvers_give_the_same_mode(monkeypatch):
    bags, Y = problem(n=50, seed=8)
    settings = {"width": 1.0, "label_covariance": spd(3), "exact_limit": 0}
    small = MIMLGP(**settings).fit(bags, Y)
    monkeypatch.setattr("bagwise.models.gp.fit_mode.DENSE_LIMIT", 0)
    monkeypatch.setattr("bagwise.models.gp.fit.DENSE_LIMIT", 0)
    monkeypatch.setattr("bagwise.models.gp.fit_mode.is_dense", lambda *_, **__: False)
    monkeypatch.setattr("bagwise.models.gp.fit.is_dense", lambda *_, **__: False)
    large = MIMLGP(**settings).fit(bags, Y)
    assert_allclose(large.weights_, small.weights_, rtol=1e-5, atol=1e-7)
    assert large.weight_covariance_.ndim == 2
    assert_allclose(large.predict_proba(bags), small.predict_proba(bags), atol=0.06)
    learned = [MIMLGP(width=1.0, label_covariance=kind).fit(bags, Y) for kind in ("full", "scalar")]
    assert all(np.linalg.eigvalsh(model.label_covariance_)[0] >= 0 for model in learned)


@pytest.mark.parametrize("cross", ["exact", "features"])
@pytest.mark.parametrize("rank", [1, 2, 5, 12])
def test_variances_are_never_negative(rank, cross):
    bags, Y = problem(n=40, seed=9)
    others, _ = problem(n=40, seed=10)
    for factor in ("eigen", "pivoted", "nystroem"):
        K = spd(3) * 50
        model = MIMLGP(
            width=1.0, rank=rank, factor=factor, cross=cross, label_covariance=K, random_state=0
        ).fit(bags, Y)
        for mean, deviation in (model.predict_latent(others), model.instance_latent(others)):
            assert np.isfinite(mean).all() and (deviation > 0).all()


# ---------------------------------------------------------------------- standard assumption


def test_standard_mode_is_stationary_and_probabilities_agree_with_sampling():
    bags, Y = problem(n=25, seed=13)
    model = MIMLGP("linear", assumption="standard", label_covariance=spd(3), constant=0.1, scaling="none")
    model.fit(bags, Y)
    Z = np.hstack([bags.X, np.full((bags.n_instances, 1), 0.1**0.5)])
    Q, m = 3, 4
    Kf = model.label_covariance_
    likelihood = StandardLikelihood(Y, bags.offsets, 4.0)
    F = model.instance_scores(bags)
    w = np.linalg.lstsq(Z, F, rcond=None)[0]
    assert_allclose(Z @ w, F, atol=1e-8)
    _, d, state = likelihood.slopes(F)
    assert_allclose(w, Z.T @ d @ Kf, atol=1e-6)  # stationary: w = K_f Z'd
    precision = np.kron(np.linalg.inv(Kf), np.eye(m))
    for s in range(Q):
        e = np.eye(Q)[s]
        precision += np.kron(np.outer(e, e), likelihood.gram(state, Z, s))
    sampled = np.random.default_rng(0).multivariate_normal(w.T.ravel(), np.linalg.inv(precision), 100_000)
    P = model.predict_proba(bags[:5])
    for i in range(5):
        rows = Z[bags.offsets[i] : bags.offsets[i + 1]]
        for s in range(Q):
            top = (sampled[:, s * m : (s + 1) * m] @ rows.T).max(axis=1)
            assert abs(expit(top).mean() - P[i, s]) < 4e-3  # of which the samples have half


def test_standard_finds_the_instance_that_matters():
    rng = np.random.default_rng(0)
    sizes = np.full(80, 12)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    X = rng.normal(size=(offsets[-1], 5))
    y = np.arange(80) % 2
    witness = offsets[:-1] + rng.integers(0, 12, 80)
    X[witness[y == 1], 0] += 5.0
    bags = Bags(X, offsets)
    model = MIMLGP("linear", assumption="standard", label_covariance="identity", scale=3.0)
    model.fit(bags[:50], y[:50])
    right = (model.predict(bags[50:]) == y[50:]).mean()
    keys = model.key_instances(bags[50:])[:, 0, 0] + offsets[50]
    assert right > 0.85
    assert (keys[y[50:] == 1] == witness[50:][y[50:] == 1]).mean() > 0.9
    mean = MIMLGP("linear", label_covariance="identity", scale=3.0).fit(bags[:50], y[:50])
    assert right > (mean.predict(bags[50:]) == y[50:]).mean()
