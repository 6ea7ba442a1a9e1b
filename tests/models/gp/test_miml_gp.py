"""MIML-GP against dense computations written out from the paper's equations."""

import tracemalloc
import warnings
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.integrate import quad
from scipy.special import expit, log_expit
from scipy.stats import qmc
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process.kernels import RBF
from threadpoolctl import threadpool_limits

from bagwise import Bags, load_dataset
from bagwise.base.blocks import thinned
from bagwise.errors import DataError
from bagwise.models.gp import maxima
from bagwise.models.gp.covariances import InstanceKernel, bag_means
from bagwise.models.gp.em import constrained, extrapolated, learn_label_covariance, symmetric_root
from bagwise.models.gp.estimator import MIMLGP
from bagwise.models.gp.features import Training, build_features
from bagwise.models.gp.gaussian_kernels import gaussian_means, gaussian_pair_sums
from bagwise.models.gp.likelihood import CollectiveLikelihood, StandardLikelihood
from bagwise.models.gp.logistic_kernels import logistic_normal_log_odds
from bagwise.models.gp.maximum_kernels import smooth_maximum
from bagwise.models.gp.posterior import (
    block_curvature,
    dense_curvature,
    find_mode,
)
from bagwise.models.gp.solve import block_preconditioner, solve_many
from bagwise.models.gp.sums import Problem
from bagwise.models.gp.transforms import TRANSFORMS, apply_transform, learn_transform


@pytest.fixture(autouse=True)
def one_thread():
    """Products of this size only wait for a second thread."""
    with threadpool_limits(1, user_api="blas"):
        yield


def problem(n=12, n_labels=3, d=3, seed=0, sizes=None):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, n) if sizes is None else np.asarray(sizes)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    X = rng.normal(size=(offsets[-1], d))
    F = np.tanh(X @ rng.normal(size=(d, n_labels))) * 3
    means = np.add.reduceat(F, offsets[:-1]) / sizes[:, None]
    Y = (rng.random(means.shape) < expit(2 * means)).astype(np.int8)
    return Bags(X, offsets), Y


def training_of(bags):
    return Training.of(bags.X, bags.offsets, np.zeros((len(bags), 1), np.int8))


def gaussian(A, B, width):
    return np.exp(-((A[:, None, :] - B[None, :, :]) ** 2).sum(axis=2) / width**2)


def averaging(bags):
    E = np.zeros((len(bags), bags.n_instances))
    E[bags.index, np.arange(bags.n_instances)] = 1.0 / bags.sizes[bags.index]
    return E


def spd(n_labels, seed=1):
    A = np.random.default_rng(seed).normal(size=(n_labels, n_labels))
    return A @ A.T + 0.5 * np.eye(n_labels)


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


# ---------------------------------------------------------------------- kernels


def test_gaussian_means_are_means_over_pairs():
    bags, _ = problem(9, seed=2, sizes=[1, 700, 3, 1, 2, 5, 1, 1, 4])  # one bag longer than a chunk
    others, _ = problem(5, seed=3)
    K = gaussian(bags.X, others.X, 1.3)
    expected = averaging(bags) @ K @ averaging(others).T
    kernel = InstanceKernel("gaussian", 1.3, 0.0)
    assert_allclose(kernel.between(bags.X, bags.offsets, others.X, others.offsets), expected, rtol=1e-11)
    whole = averaging(bags) @ gaussian(bags.X, bags.X, 1.3) @ averaging(bags).T
    assert_allclose(kernel.gram(bags.X, bags.offsets), whole, rtol=1e-11)
    assert_allclose(kernel.with_itself(bags.X, bags.offsets), np.diag(whole), rtol=1e-11)


def test_kernels_without_compiling():
    bags, _ = problem(4, seed=4)
    out = np.empty((4, 4))
    squares = (bags.X**2).sum(axis=1)
    XT = bags.X.T.copy()
    gaussian_means.py_func(0, 2, bags.X, squares, bags.offsets, XT, squares, bags.offsets, 0.5, False, out)
    E = averaging(bags)
    K = gaussian(bags.X, bags.X, 2.0**0.5)
    assert_allclose(out, E @ K @ E.T, rtol=1e-11)
    ends, sums = np.repeat(bags.offsets[1:], bags.sizes), np.empty(bags.n_instances)
    gaussian_pair_sums.py_func(0, len(sums), bags.X, squares, ends, XT, squares, 0.5, sums)
    behind = np.triu(K, 1) * (bags.index[:, None] == bags.index)
    assert_allclose(sums, behind.sum(axis=1), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("kind", ["gaussian", "linear", "callable", "sklearn"])
def test_all_kinds_of_kernels_dense_and_sparse(kind):
    bags, _ = problem(7, seed=5)
    others, _ = problem(4, seed=6)
    function = {
        "gaussian": "gaussian",
        "linear": "linear",
        "callable": lambda A, B: (1.0 + A @ B.T) ** 2,
        "sklearn": RBF(1.7),
    }[kind]
    plain = {
        "gaussian": lambda A, B: gaussian(A, B, 1.3),
        "linear": lambda A, B: A @ B.T,
        "callable": function,
        "sklearn": function,
    }[kind]
    kernel = InstanceKernel(function, 1.3, 0.25)
    expected = averaging(bags) @ plain(bags.X, others.X) @ averaging(others).T + 0.25
    own = np.diag(averaging(bags) @ plain(bags.X, bags.X) @ averaging(bags).T) + 0.25
    single = np.diag(plain(bags.X, bags.X)) + 0.25
    for make in (np.asarray, sparse.csr_array):
        X, Z = make(bags.X), make(others.X)
        assert_allclose(kernel.between(X, bags.offsets, Z, others.offsets), expected, rtol=1e-10)
        assert_allclose(kernel.with_itself(X, bags.offsets), own, rtol=1e-10)
        assert_allclose(kernel.with_itself(X, np.arange(len(bags.X) + 1)), single, rtol=1e-10)


@pytest.mark.parametrize("mean", [0.0, 0.3, -2.0, 12.0, -60.0])
@pytest.mark.parametrize("variance", [0.0, 1e-6, 0.5, 24.0, 26.0, 400.0])
def test_probability_agrees_with_quadrature(mean, variance):
    got = logistic_normal_log_odds(np.array([mean]), np.array([variance]))[0]
    if variance == 0:
        assert_allclose(got, mean, rtol=1e-10)
        return
    sd = variance**0.5

    def integrand(t):
        return np.exp(-0.5 * t * t + log_expit(-abs(mean) + sd * t)) / np.sqrt(2 * np.pi)

    knots = np.linspace(-10, 10 + sd, 41)
    tail = sum(quad(integrand, a, b, epsabs=0, epsrel=1e-12)[0] for a, b in zip(knots[:-1], knots[1:]))
    assert abs(expit(-abs(got)) - tail) < 1e-10  # the goal is 1e-7
    assert_allclose(-abs(got), np.log(tail) - np.log1p(-tail), rtol=1e-8, atol=1e-10)
    assert np.sign(got) == np.sign(mean)


def bags_of_latent_values(sizes, m=6, seed=0):
    """Means, features, covariance of weights and noise of instances, with correlations of all sizes."""
    rng = np.random.default_rng(seed)
    N = sum(sizes)
    P = rng.normal(size=(N, m)) * rng.uniform(0.1, 1.0, m)
    A = rng.normal(size=(m, m))
    noise = rng.uniform(0, 1.0, N) * rng.integers(0, 2, N)
    return P, rng.normal(size=m), A @ A.T * rng.uniform(0.2, 1.0), noise, np.cumsum([0, *sizes])


def sampled(P, w, S, noise, n=1 << 19, seed=1):
    """E sigma(max f) of one bag by brute force."""
    rng = np.random.default_rng(seed)
    top = np.full(n, -np.inf)
    drawn = (
        rng.multivariate_normal(w, S, n, method="cholesky")
        if S.ndim == 2
        else w + rng.normal(size=(n, len(w))) * np.sqrt(S)
    )
    for i in range(len(P)):
        top = np.maximum(top, drawn @ P[i] + np.sqrt(noise[i]) * rng.normal(size=n))
    return expit(top).mean()


@pytest.mark.parametrize("whole", [True, False])
def test_maxima_agree_with_brute_force(whole):
    P, w, S, noise, offsets = bags_of_latent_values([1, 2, 3, 5, 8, 13, 40])
    S = S if whole else np.diag(S).copy()
    draws = maxima.standard_draws(maxima.LARGEST, MIMLGP().n_draws)
    yes, no = maxima.integrate_maxima(P @ w, P, S, noise, offsets, draws)
    assert_allclose(yes + no, 1.0, rtol=1e-12)
    weights = [maxima.drawn_weights(w, S, maxima.standard_draws(len(w), MIMLGP().n_draws))]
    for b in range(len(yes)):
        rows = slice(offsets[b], offsets[b + 1])
        expected = sampled(P[rows], w, S, noise[rows])
        assert abs(yes[b] - expected) < 2e-3
        blocks = [
            (P[rows][i : i + 7], noise[rows][i : i + 7]) for i in range(0, offsets[b + 1] - offsets[b], 7)
        ]
        large = maxima.integrate_large_bag(blocks, weights, np.ones(1))
        assert abs(large[0][0] - expected) < 6e-3  # noise of instances is drawn at random
        assert_allclose(large[0] + large[1], 1.0, rtol=1e-12)


def test_maximum_of_one_instance_is_the_plain_integral():
    P, w, S, noise, _ = bags_of_latent_values([30])
    draws = maxima.standard_draws(maxima.LARGEST, 2048)
    yes, _ = maxima.integrate_maxima(P @ w, P, S, noise, np.arange(31), draws)
    exact = expit(logistic_normal_log_odds(P @ w, np.einsum("ij,jk,ik->i", P, S, P) + noise))
    assert_allclose(yes, exact, atol=5e-4)


def test_maxima_do_not_depend_on_order_company_or_copies():
    P, w, S, noise, offsets = bags_of_latent_values([4, 9, 6], seed=3)
    draws = maxima.standard_draws(maxima.LARGEST, 2048)
    yes, _ = maxima.integrate_maxima(P @ w, P, S, noise, offsets, draws)
    turned = np.concatenate([np.arange(b - 1, a - 1, -1) for a, b in zip(offsets[:-1], offsets[1:])])
    again, _ = maxima.integrate_maxima((P @ w)[turned], P[turned], S, noise[turned], offsets, draws)
    assert_allclose(again, yes, rtol=1e-10)
    alone, _ = maxima.integrate_maxima((P @ w)[4:13], P[4:13], S, noise[4:13], np.array([0, 9]), draws)
    assert_allclose(alone, yes[1], rtol=1e-12)
    twice = np.tile(P[:4], (2, 1))  # without noise, copies of an instance change nothing
    quiet = np.zeros(8)
    single, _ = maxima.integrate_maxima(P[:4] @ w, P[:4], S, quiet[:4], np.array([0, 4]), draws)
    double, _ = maxima.integrate_maxima(twice @ w, twice, S, quiet, np.array([0, 8]), draws)
    assert_allclose(single, double, atol=3e-3)


def test_draws_with_an_older_scipy(monkeypatch):
    class Sobol(qmc.Sobol):
        def __init__(self, d, *, scramble=True, seed=None):
            super().__init__(d, scramble=scramble, seed=seed)

    now = maxima.standard_draws(5, 64)
    monkeypatch.setattr(maxima.qmc, "Sobol", Sobol)
    monkeypatch.setattr(maxima, "_SEED", "seed")  # what SciPy before 1.15 called it
    assert_allclose(maxima.standard_draws(5, 64), now)


def test_smooth_maximum():
    rng = np.random.default_rng(2)
    offsets = np.array([0, 1, 4, 9])
    F = rng.normal(size=(9, 2)) * 300
    for function in (smooth_maximum, smooth_maximum.py_func):
        top, pi = np.empty((3, 2)), np.empty((9, 2))
        function(F, offsets, 0.01, top, pi)
        for b in range(3):
            part = F[offsets[b] : offsets[b + 1]]
            assert_allclose(top[b], np.log(np.exp(0.01 * part).sum(axis=0)) / 0.01)
            assert_allclose(pi[offsets[b] : offsets[b + 1]].sum(axis=0), 1.0)


@pytest.mark.parametrize("assumption", ["collective", "standard"])
def test_the_number_of_threads_changes_nothing(assumption, monkeypatch):
    bags, Y = problem(n=25, seed=4, sizes=[300, *[4] * 24])
    found = []
    for n_threads in (1, 3):
        monkeypatch.setattr("bagwise.parallel.local.threads", lambda n_jobs, n=n_threads: n)
        for module in ("covariances", "maxima", "logistic_kernels"):
            monkeypatch.setattr(f"bagwise.models.gp.{module}._WORTH_A_THREAD", 1)
        monkeypatch.setattr("bagwise.models.gp.likelihood._MANY", 1)
        model = MIMLGP(width=1.0, assumption=assumption, factor="pivoted", label_covariance="identity")
        found.append(model.fit(bags, Y).predict_proba(bags))
    np.testing.assert_array_equal(*found)


def test_slopes_of_many_bags_are_those_of_few():
    rng = np.random.default_rng(3)
    Y, F = rng.integers(0, 2, (700, 150)), rng.normal(size=(700, 150)) * 20
    many = CollectiveLikelihood(Y).slopes(F)
    few = [CollectiveLikelihood(Y[i : i + 350]).slopes(F[i : i + 350]) for i in (0, 350)]
    assert_allclose(many[0], few[0][0] + few[1][0])
    for k in (1, 2):
        assert_allclose(many[k], np.vstack([few[0][k], few[1][k]]), rtol=1e-9, atol=1e-15)


# ---------------------------------------------------------------------- factors


@pytest.mark.parametrize("factor", ["eigen", "pivoted", "nystroem"])
@pytest.mark.parametrize("kind", ["gaussian", "linear"])
def test_factors_reproduce_the_kernel(factor, kind):
    bags, _ = problem(25, d=4, seed=7)
    kernel = InstanceKernel(kind, 2.0, 0.1)
    K = kernel.gram(bags.X, bags.offsets)
    parts, features = build_features(
        kernel,
        training_of(bags),
        factor=factor,
        share=1.0,
        rank=25 if factor == "nystroem" else None,
        random_state=np.random.RandomState(0),
    )
    P = parts.only().P
    assert_allclose(P @ P.T, K, atol=1e-6 * K.max())
    again = features.base(bags.X, bags.offsets) @ features.projection + features.intercept
    assert_allclose(again, P, atol=1e-5 * np.abs(P).max())
    gram = P.T @ P
    assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-8 * gram.max())


@pytest.mark.parametrize("factor", ["eigen", "pivoted"])
def test_share_of_the_trace(factor):
    bags, _ = problem(60, d=2, seed=8)
    kernel = InstanceKernel("gaussian", 1.0, 0.0)
    trace = kernel.with_itself(bags.X, bags.offsets).sum()
    ranks = []
    for share in (0.8, 0.95, 0.999):
        parts, _ = build_features(
            kernel, training_of(bags), factor=factor, share=share, rank=None, random_state=None
        )
        P = parts.only().P
        assert (P**2).sum() >= (share - 1e-9) * trace
        ranks.append(P.shape[1])
    assert ranks == sorted(ranks) and ranks[0] < ranks[-1] < 60


def test_memory_stays_below_the_gram_matrix_of_instances():
    rng = np.random.default_rng(9)
    bags = Bags(rng.normal(size=(6000, 2)), np.arange(0, 6001, 10))
    Y = rng.integers(0, 2, (600, 2))
    small = bags[:20]
    MIMLGP(width=1.0, assumption="standard", rank=5).fit(small, Y[:20]).predict(small)  # compile
    for assumption in ("collective", "standard"):
        model = MIMLGP(
            width=2.0, assumption=assumption, rank=20, factor="pivoted", label_covariance="scalar", max_iter=5
        )
        tracemalloc.start()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(bags, Y)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 6000 * 6000 * 8 / 10


@pytest.mark.parametrize("kernel", ["gaussian", "linear", "callable"])
@pytest.mark.parametrize("storage", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("assumption", ["collective", "standard"])
def test_large_bags_go_in_blocks(kernel, storage, assumption, monkeypatch):
    # blocks of a few rows give what whole matrices give, within what is drawn at random for large bags
    bags, Y = problem(n=20, seed=9, sizes=[25, 1, 40, *[3] * 17])
    bags = bags.with_X(storage(bags.X))
    function = (
        (lambda A, B: np.exp(-np.abs(A[:, None] - B[None]).sum(axis=2))) if kernel == "callable" else kernel
    )
    settings = {"assumption": assumption, "label_covariance": "identity", "width": 2.0}
    whole = MIMLGP(function, **settings).fit(bags, Y)
    expected = whole.predict_proba(bags), *whole.predict_latent(bags), *whole.instance_latent(bags)
    monkeypatch.setattr("bagwise.models.gp.covariances.BLOCK", 7)
    monkeypatch.setattr("bagwise.models.gp.predict.CELLS", 50)
    for module in ("predict", "maxima"):
        monkeypatch.setattr(f"bagwise.models.gp.{module}.LARGEST", 8)
    blocks = MIMLGP(function, **settings).fit(bags, Y)
    found = blocks.predict_proba(bags), *blocks.predict_latent(bags), *blocks.instance_latent(bags)
    assert_allclose(found[0], expected[0], atol=1e-8 if assumption == "collective" else 6e-3)
    for a, b in zip(found[1:], expected[1:]):
        assert_allclose(a, b, rtol=1e-6, atol=1e-7)


def test_a_bag_of_many_instances_in_bounded_memory(monkeypatch):
    rng = np.random.default_rng(9)
    sizes = [2500, *[5] * 20]
    bags = Bags(rng.normal(size=(sum(sizes), 3)), np.cumsum([0, *sizes]))
    Y = rng.integers(0, 2, (21, 2))
    Y[:2] = [[0, 1], [1, 0]]
    monkeypatch.setattr("bagwise.models.gp.features.CELLS_LIMIT", 2600 * 20)
    monkeypatch.setattr("bagwise.models.gp.predict.CELLS", 30_000)
    monkeypatch.setattr("bagwise.models.gp.covariances.BLOCK", 300)
    for assumption in ("collective", "standard"):
        for X in (bags.X, sparse.csr_array(bags.X)):
            given = bags.with_X(X)
            settings = {"assumption": assumption, "label_covariance": "identity", "n_draws": 256}
            MIMLGP(width=2.0, **settings).fit(given[1:], Y[1:]).predict(given[1:])  # compile
            tracemalloc.start()
            model = MIMLGP(width=2.0, **settings).fit(given, Y)
            assert np.isfinite(model.decision_function(given)).all()
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 2500 * 2500 * 8 / 5, (assumption, type(X))  # a kernel matrix of the bag has 50 MB
            assert model.rank_ <= 21


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
    monkeypatch.setattr("bagwise.models.gp.posterior.DENSE_LIMIT", 0)
    monkeypatch.setattr("bagwise.models.gp.em.DENSE_LIMIT", 0)
    monkeypatch.setattr("bagwise.models.gp.posterior.is_dense", lambda *_, **__: False)
    monkeypatch.setattr("bagwise.models.gp.em.is_dense", lambda *_, **__: False)
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


def test_slopes_of_the_smooth_maximum():
    bags, Y = problem(n=8, seed=12)
    likelihood = StandardLikelihood(Y, bags.offsets, 2.5)
    rng = np.random.default_rng(0)
    F = rng.normal(size=(bags.n_instances, 3))
    _, gradient, state = likelihood.slopes(F)
    for _ in range(5):
        V = rng.normal(size=F.shape)
        change = (likelihood.slopes(F + 1e-5 * V)[0] - likelihood.slopes(F - 1e-5 * V)[0]) / 2e-5
        assert_allclose(change, np.vdot(gradient, V), rtol=1e-6)
        V[Y[bags.index] == 1] = 0.0  # the curvature of negative bags is exact
        change = (likelihood.slopes(F + 1e-5 * V)[1] - likelihood.slopes(F - 1e-5 * V)[1]) / 2e-5
        assert_allclose(-change, likelihood.bend(state, V), rtol=1e-5, atol=1e-8)
        assert np.vdot(V, likelihood.bend(state, V)) >= 0
    # Eq. (46), as printed
    i = int(np.flatnonzero(bags.sizes > 1)[0])
    f, y = F[bags.offsets[i] : bags.offsets[i + 1], 0], 2.0 * Y[i, 0] - 1.0
    printed = y / ((1 + np.exp(2.5 * f).sum() ** (y / 2.5)) * np.exp(2.5 * (f[:, None] - f)).sum(axis=0))
    assert_allclose(gradient[bags.offsets[i] : bags.offsets[i + 1], 0], printed)


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


# ---------------------------------------------------------------------- learning K_f


def test_structures():
    bags, Y = problem(n=40, seed=14)
    K = {
        k: MIMLGP(width=2.0, label_covariance=k).fit(bags, Y).label_covariance_
        for k in ("full", "diagonal", "scalar")
    }
    assert np.count_nonzero(K["full"]) == 9
    assert np.count_nonzero(K["diagonal"]) == 3
    assert_allclose(K["scalar"], K["scalar"][0, 0] * np.eye(3))
    identity = MIMLGP(width=2.0, label_covariance="identity").fit(bags, Y)
    assert_allclose(identity.label_covariance_, np.eye(3))
    assert identity.converged_ and identity.n_iter_ == 0
    # one label: all learned structures are the same
    K = [
        MIMLGP(width=2.0, label_covariance=k, tol=1e-5).fit(bags, Y[:, :1]).label_covariance_
        for k in ("full", "scalar")
    ]
    assert_allclose(K[0], K[1], rtol=1e-3)


def test_extrapolation_keeps_matrices_positive_definite():
    K0, K1, K2 = spd(4, 1), spd(4, 2), spd(4, 3)
    for structure in ("full", "diagonal", "scalar"):
        K = constrained(extrapolated(*(constrained(K, structure) for K in (K0, K1, K2))), structure)
        assert np.linalg.eigvalsh(K)[0] > 0
        assert_allclose(K, constrained(K, structure))


@pytest.mark.parametrize("assumption", ["collective", "standard"])
def test_degenerate_labels(assumption):
    bags, Y = problem(n=30, seed=15)
    rng = np.random.default_rng(0)
    hard = np.column_stack([Y, Y[:, :1], np.ones(30), np.zeros(30), rng.integers(0, 2, 30)]).astype(np.int8)
    model = MIMLGP(width=2.0, assumption=assumption, max_iter=60)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(bags, hard)
    told = any(issubclass(w.category, ConvergenceWarning) for w in caught)
    assert model.converged_ or told  # never silently
    assert np.isfinite(model.decision_function(bags)).all()
    assert np.linalg.eigvalsh(model.label_covariance_)[0] >= -1e-9 * np.abs(model.label_covariance_).max()
    if assumption == "collective":
        assert model.label_correlation_[0, 3] > 0.95  # a label and its copy
        P = model.predict_proba(bags)
        assert (P[:, 4] > 0.5).all() and (P[:, 5] < 0.5).all()


def test_warning_names_labels_and_a_way_out():
    bags, Y = problem(n=20, seed=16)
    names = [[("ant", "bee", "cat")[s] for s in np.flatnonzero(row)] for row in Y]
    with pytest.warns(ConvergenceWarning, match=r"label '(ant|bee|cat)'.*max_iter"):
        model = MIMLGP(width=2.0, max_iter=2, tol=1e-9).fit(bags, names)
    first, second, value = model.correlated_labels(1)[0]
    assert {first, second} < {"ant", "bee", "cat"} and -1 <= value <= 1


# ---------------------------------------------------------------------- choosing


def test_features_are_scaled_unless_told_otherwise():
    bags, Y = problem(n=60, seed=17)
    units = bags.with_X(bags.X * np.array([1e4, 1.0, 1e-3]))  # the first feature alone would decide
    model = MIMLGP().fit(units, Y)
    assert model.scaling_ == "minmax"
    assert {transform for transform, _ in model.candidates_} == {"minmax", "none"}
    alike = MIMLGP(scaling="minmax").fit(bags, Y).decision_function(bags)
    assert_allclose(model.decision_function(units), alike, rtol=1e-6, atol=1e-8)
    assert MIMLGP(width=1.0).fit(units, Y).scaling_ == "minmax"
    assert MIMLGP(assumption="standard", width=1.0, max_iter=2, tol=1.0).fit(units, Y).scaling_ == "minmax"
    assert MIMLGP(scaling="none").fit(units, Y).scaling_ == "none"
    words = (np.random.default_rng(0).random((bags.n_instances, 40)) < 0.05) * 3.0
    for X in (words, sparse.csr_array(words)):
        assert MIMLGP(width=1.0).fit(bags.with_X(X), Y).scaling_ == "log"


@pytest.mark.parametrize("assumption", ["collective", "standard"])
def test_features_of_any_size(assumption):
    bags, Y = problem(n=30, seed=18)
    huge = bags.with_X(bags.X * 1e300)
    settings = {"assumption": assumption, "label_covariance": "identity"}
    model = MIMLGP(width=1.0, **settings).fit(huge, Y)
    plain = MIMLGP(width=1.0, **settings).fit(bags, Y)
    assert_allclose(model.decision_function(huge), plain.decision_function(bags), rtol=1e-6, atol=1e-8)
    MIMLGP(**settings, width="auto" if assumption == "collective" else 1.0).fit(huge, Y)
    spoiled = bags.X.copy()
    spoiled[bags.offsets[7], 2] = -1e300
    for X in (spoiled, sparse.csr_array(spoiled)):
        with pytest.raises(DataError, match=r"feature 2 of bag 7 has the value -1e\+300.*divide"):
            plain.predict(bags.with_X(X))
        with pytest.raises(DataError, match="feature 2 of bag 7"):
            MIMLGP(scaling="none", width=1.0, **settings).fit(bags.with_X(X), Y)


def test_width_by_evidence_and_transforms():
    bags, Y = problem(n=60, seed=17)
    model = MIMLGP(scaling="minmax").fit(bags, Y)
    assert len(model.candidates_) == 8
    assert model.width_ == model.candidates_[int(np.argmax(model.candidate_scores_))][1]
    several = MIMLGP(width=(0.5, 2.0), scaling=("none", "standard")).fit(bags, Y)
    assert len(several.candidates_) == 4 and several.scaling_ in ("none", "standard")
    again = several.set_params(width=2.0, scaling="none").fit(bags, Y)
    assert not hasattr(again, "candidates_")


def test_comparisons_look_at_a_part_of_large_bags(monkeypatch):
    bags, Y = problem(n=20, seed=18, sizes=[50, 3, 1, *[4] * 17])
    monkeypatch.setattr("bagwise.models.gp.select.MOST_INSTANCES", 6)
    part = thinned(bags, 6)
    assert part.sizes.tolist() == [6, 3, 1, *[4] * 17]
    assert_allclose(part.X[[0, 5]], bags.X[[0, 49]])
    assert_allclose(part.X[6:], bags.X[50:])
    model = MIMLGP(label_covariance="scalar", max_iter=5, tol=0.5).fit(bags, Y)
    seen = MIMLGP(label_covariance="scalar", max_iter=5, tol=0.5).fit(part, Y)
    assert model.landmarks_.n_instances == bags.n_instances  # the model itself looks at all
    assert len(model.candidates_) == len(seen.candidates_) == 16
    monkeypatch.setattr("bagwise.models.gp.select.MOST_BAGS", 10)
    fewer = MIMLGP(label_covariance="scalar", max_iter=5, tol=0.5).fit(bags, Y)
    some = np.linspace(0, 19, 10).astype(int)
    alone = MIMLGP(
        width=[w for t, w in fewer.candidates_ if t == "none"], scaling="none", max_iter=5, tol=0.5
    )
    alone.set_params(label_covariance="scalar").fit(part[some], Y[some])
    assert_allclose(fewer.candidate_scores_[8:], alone.candidate_scores_)


def test_width_by_cross_validation():
    bags, Y = problem(n=30, seed=18)
    settings = {"width": (0.05, 2.0), "assumption": "standard", "rank": 10, "label_covariance": "identity"}
    model = MIMLGP(**settings, random_state=0).fit(bags, Y)
    assert model.candidate_scores_.shape == (2,) and (model.candidate_scores_ < 0).all()
    assert model.width_ == 2.0


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_dense_and_sparse(name):
    rng = np.random.default_rng(0)
    X = np.where(rng.random((20, 4)) < 0.5, rng.normal(size=(20, 4)), 0.0)
    X[3] = 0.0
    X[:, 3] = 2.0
    before = X.copy()
    dense = apply_transform(X, name, learn_transform(X, name))
    csr = sparse.csr_array(X)
    assert_allclose(apply_transform(csr, name, learn_transform(csr, name)).toarray(), dense, rtol=1e-12)
    assert np.isfinite(dense).all()
    assert_allclose(X, before)
    if name == "minmax":
        assert_allclose(np.ptp(dense[:, :3], axis=0), 1.0)
    if name in ("minmax", "standard"):
        assert (dense[:, 3] == 0).all()  # a constant column says nothing


def test_paper_mode():
    bags, Y = problem(n=40, seed=19)
    model = MIMLGP(mode="paper").fit(bags, Y)
    same = MIMLGP(width=1.0, factor="eigen", cross="exact").fit(bags, Y)
    assert model.width_ == 1.0
    assert_allclose(model.decision_function(bags), same.decision_function(bags))
    crude = MIMLGP("linear", mode="paper", share=0.5).fit(bags, Y)  # exact means although features are cut
    K = averaging(bags) @ bags.X @ bags.X.T @ averaging(bags).T
    mean, _ = crude.predict_latent(bags)
    assert np.linalg.matrix_rank(mean, tol=1e-8) <= 3 and crude.rank_ <= 3
    assert_allclose(K @ np.linalg.lstsq(K, mean, rcond=None)[0], mean, atol=1e-8)


def test_exact_means_with_landmarks():
    bags, Y = problem(n=40, seed=20)
    K = spd(3)
    full = MIMLGP(width=1.5, label_covariance=K, share=1.0).fit(bags, Y)
    model = MIMLGP(width=1.5, label_covariance=K, factor="pivoted", share=0.9999999, cross="exact").fit(
        bags, Y
    )
    assert model.training_bags_ is not None
    assert_allclose(model.predict_latent(bags)[0], full.predict_latent(bags)[0], atol=1e-3)
    again = model.set_params(cross="features").fit(bags, Y)
    assert again.training_bags_ is None


# ---------------------------------------------------------------------- use


def test_classes_and_binary():
    data = load_dataset("digits", n_bags=100)
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 4, 150)
    from sklearn.datasets import load_digits

    X, z = load_digits(n_class=4, return_X_y=True)
    classes = rng.integers(0, 4, 150)
    rows = np.concatenate([rng.choice(np.flatnonzero(z == c), size) for c, size in zip(classes, sizes)])
    bags = Bags(X[rows], np.concatenate([[0], np.cumsum(sizes)]))
    model = MIMLGP(width=40.0, scaling="none").fit(bags[:100], classes[:100])
    assert (model.predict(bags[100:]) == classes[100:]).mean() > 0.95
    binary = MIMLGP("linear", scaling="minmax").fit(bags[:100], classes[:100] > 1)
    assert (binary.predict(bags[100:]) == (classes[100:] > 1)).mean() > 0.9
    assert binary.predict_proba(bags[100:]).shape == (50, 2)
    many = MIMLGP(scaling="minmax", width=4.0, label_covariance="scalar").fit(data.bags, data.Y)
    assert (many.predict(data.bags) == data.Y).mean() > 0.9


def test_heat_map_and_saving(tmp_path):
    from bagwise.persistence import load, save
    from bagwise.report.plots import heat_map

    bags, Y = problem(n=30, seed=21)
    names = [[("ant", "bee", "cat")[s] for s in np.flatnonzero(row)] for row in Y]
    for settings in ({"width": 2.0}, {"kernel": "linear", "assumption": "standard"}):
        model = MIMLGP(**settings).fit(bags, names)
        figure = heat_map(model.label_correlation_, model.label_names_)
        assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == list(model.label_names_)
        save(model, tmp_path / "gp.skops")
        assert_allclose(load(tmp_path / "gp.skops").predict_proba(bags), model.predict_proba(bags))


@pytest.mark.parametrize(
    "settings",
    [
        {"kernel": "cubic"},
        {"assumption": "some"},
        {"width": -1.0},
        {"width": "wide"},
        {"label_covariance": "fuller"},
        {"label_covariance": -np.eye(3)},
        {"label_covariance": np.eye(2)},
        {"scaling": "squared"},
        {"factor": "svd"},
        {"share": 0.0},
        {"sharpness": ()},
        {"selection": "luck"},
        {"width": float("nan")},
        {"width": (1.0, float("nan"))},
        {"tol": float("nan")},
        {"constant": -1.0},
        {"scale": float("inf")},
        {"n_draws": 0},
        {"cv": 1},
        {"label_covariance": np.full((3, 3), np.nan)},
        {"label_covariance": 3.0},
        {"scaling": ("none", "squared")},
        {"max_iter": -3},
    ],
)
def test_bad_settings_are_refused_by_name(settings):
    bags, Y = problem()
    with pytest.raises(ValueError, match=next(iter(settings))):
        MIMLGP(**settings).fit(bags, Y)


@pytest.mark.parametrize("method", ["predict_latent", "instance_latent"])
def test_own_methods_need_a_fit(method):
    bags, _ = problem()
    with pytest.raises(NotFittedError):
        getattr(MIMLGP(), method)(bags)
    with pytest.raises(NotFittedError):
        MIMLGP().correlated_labels()


def test_scene_paper_mode(public_data):
    data = load_dataset("miml_scene")
    model = MIMLGP(scaling="minmax", mode="paper").fit(data.bags[:1800], data.Y[:1800])
    assert model.rank_ < 80 and model.n_iter_ < 40


@pytest.mark.parametrize("assumption", ["collective", "standard"])
@pytest.mark.parametrize("kernel", ["gaussian", "linear"])
def test_sparse_training_is_dense_training(kernel, assumption):
    bags, Y = problem(n=30, d=6, seed=22)
    thin = np.where(np.abs(bags.X) > 0.7, bags.X, 0.0)
    for factor in ("auto", "pivoted"):
        model = MIMLGP(
            kernel, 2.0, assumption=assumption, factor=factor, label_covariance=spd(3), scaling="minmax"
        )
        dense = model.fit(bags.with_X(thin), Y).decision_function(bags.with_X(thin))
        csr = bags.with_X(sparse.csr_array(thin))
        assert_allclose(model.fit(csr, Y).decision_function(csr), dense, rtol=1e-3, atol=2e-3)
