"""Probabilities of bags: integrals over one latent value, and over the largest of several."""

import numpy as np
import pytest
from gp_problems import problem, sampled
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.special import expit, log_expit
from scipy.stats import qmc

from bagwise.models.gp import predict
from bagwise.models.gp.estimator import MIMLGP
from bagwise.models.gp.kernels import StandardLikelihood, logistic_normal_log_odds, smooth_maximum

pytestmark = pytest.mark.usefixtures("one_thread")


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


@pytest.mark.parametrize("whole", [True, False])
def test_maxima_agree_with_brute_force(whole):
    P, w, S, noise, offsets = bags_of_latent_values([1, 2, 3, 5, 8, 13, 40])
    S = S if whole else np.diag(S).copy()
    draws = predict.standard_draws(predict.LARGEST, MIMLGP().n_draws)
    yes, no = predict.integrate_maxima(P @ w, P, S, noise, offsets, draws)
    assert_allclose(yes + no, 1.0, rtol=1e-12)
    weights = [predict.drawn_weights(w, S, predict.standard_draws(len(w), MIMLGP().n_draws))]
    for b in range(len(yes)):
        rows = slice(offsets[b], offsets[b + 1])
        expected = sampled(P[rows], w, S, noise[rows])
        assert abs(yes[b] - expected) < 2e-3
        blocks = [
            (P[rows][i : i + 7], noise[rows][i : i + 7]) for i in range(0, offsets[b + 1] - offsets[b], 7)
        ]
        large = predict.integrate_large_bag(blocks, weights, np.ones(1))
        assert abs(large[0][0] - expected) < 6e-3  # noise of instances is drawn at random
        assert_allclose(large[0] + large[1], 1.0, rtol=1e-12)


def test_maximum_of_one_instance_is_the_plain_integral():
    P, w, S, noise, _ = bags_of_latent_values([30])
    draws = predict.standard_draws(predict.LARGEST, 2048)
    yes, _ = predict.integrate_maxima(P @ w, P, S, noise, np.arange(31), draws)
    exact = expit(logistic_normal_log_odds(P @ w, np.einsum("ij,jk,ik->i", P, S, P) + noise))
    assert_allclose(yes, exact, atol=5e-4)


def test_maxima_do_not_depend_on_order_company_or_copies():
    P, w, S, noise, offsets = bags_of_latent_values([4, 9, 6], seed=3)
    draws = predict.standard_draws(predict.LARGEST, 2048)
    yes, _ = predict.integrate_maxima(P @ w, P, S, noise, offsets, draws)
    turned = np.concatenate([np.arange(b - 1, a - 1, -1) for a, b in zip(offsets[:-1], offsets[1:])])
    again, _ = predict.integrate_maxima((P @ w)[turned], P[turned], S, noise[turned], offsets, draws)
    assert_allclose(again, yes, rtol=1e-10)
    alone, _ = predict.integrate_maxima((P @ w)[4:13], P[4:13], S, noise[4:13], np.array([0, 9]), draws)
    assert_allclose(alone, yes[1], rtol=1e-12)
    twice = np.tile(P[:4], (2, 1))  # without noise, copies of an instance change nothing
    quiet = np.zeros(8)
    single, _ = predict.integrate_maxima(P[:4] @ w, P[:4], S, quiet[:4], np.array([0, 4]), draws)
    double, _ = predict.integrate_maxima(twice @ w, twice, S, quiet, np.array([0, 8]), draws)
    assert_allclose(single, double, atol=3e-3)


def test_draws_with_an_older_scipy(monkeypatch):
    class Sobol(qmc.Sobol):
        def __init__(self, d, *, scramble=True, seed=None):
            super().__init__(d, scramble=scramble, seed=seed)

    now = predict.standard_draws(5, 64)
    monkeypatch.setattr(predict.qmc, "Sobol", Sobol)
    monkeypatch.setattr(predict, "_SEED", "seed")  # what SciPy before 1.15 called it
    predict.standard_draws.cache_clear()
    assert_allclose(predict.standard_draws(5, 64), now)


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
        monkeypatch.setattr("bagwise.compute.threads.threads", lambda n_jobs, n=n_threads: n)
        for module in ("kernels_gaussian", "predict", "kernels"):
            monkeypatch.setattr(f"bagwise.models.gp.{module}._WORTH_A_THREAD", 1)
        monkeypatch.setattr("bagwise.models.gp.kernels._MANY", 1)
        model = MIMLGP(width=1.0, assumption=assumption, factor="pivoted", label_covariance="identity")
        found.append(model.fit(bags, Y).predict_proba(bags))
    np.testing.assert_array_equal(*found)


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
