"""Objective, bound and gradients of MM-MIL against plain loops and finite differences."""

import itertools

import numpy as np
import pytest
from mm_mil_problems import losses_of, smooth_objective
from scipy import sparse

from bagwise.models.mm_mil import fit_em as obj
from bagwise.models.mm_mil.fit_features import gaussian_kernel, whitening
from bagwise.models.mm_mil.kernels import instance_posteriors


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


def numeric(function, x, eps=1e-6):
    gradient = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[i] = eps
        gradient[i] = (function(x + step) - function(x - step)) / (2 * eps)
    return gradient


# ---------------------------------------------------------------------- objective, bound, gradients


@pytest.mark.parametrize("M", [1, 3])
def test_objective_is_equation_7(M):
    Phi, offsets, labels, P = small_problem(M=M)
    expected = plain_objective(P, Phi, offsets, labels, 0.3, 0.7)
    assert np.isclose(obj.objective(P, Phi, offsets, labels, 0.3, 0.7), expected)
    smooth = smooth_objective(Phi, offsets, labels, M, 0.3, 0.7)
    smooth(P)
    assert np.isclose(smooth.hard, expected)
    smooth.sharpness = np.inf
    assert np.isclose(smooth(P)[0], expected)


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
    expected = numeric(lambda x: smooth(x)[0], P)
    np.testing.assert_allclose(smooth(P)[1], expected, rtol=1e-5, atol=1e-6)


def test_smooth_value_is_log_sum_exp_of_log_odds():
    Phi, offsets, labels, P = small_problem()
    smooth = smooth_objective(Phi, offsets, labels, 3, 0.0, 0.0)
    smooth.sharpness = 4.0
    total = 0.0
    for a, b, l in zip(offsets[:-1], offsets[1:], labels):
        p = np.array([plain_p(x, P) for x in Phi[a:b]])
        g = np.log(((p / (1 - p)) ** 4.0).sum()) / 4.0
        total += np.log1p(np.exp(-g if l else g))
    assert np.isclose(smooth(P)[0], total)


def test_chunks_and_sparse_features_change_nothing(monkeypatch):
    Phi, offsets, labels, P = small_problem(n_bags=30)
    whole = smooth_objective(Phi, offsets, labels, 3, 0.1, 0.1)(P)
    monkeypatch.setattr("bagwise.models.mm_mil.fit_smooth._CHUNK", 10)
    cut = smooth_objective(Phi, offsets, labels, 3, 0.1, 0.1)
    assert len(cut.losses._chunks) > 3
    for other in (cut, smooth_objective(sparse.csr_array(Phi), offsets, labels, 3, 0.1, 0.1)):
        value, gradient = other(P)
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
    gradient = singles(P)[1]
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


@pytest.mark.parametrize("M", [1, 2, 5])
@pytest.mark.parametrize("n", [1, 63, 64, 65, 200])
def test_instances_in_blocks_are_those_by_the_letter(n, M):
    """Some of them so far out that sums of probabilities underflow, among others that do not."""
    rng = np.random.default_rng(n + M)
    F = rng.normal(size=(n, 2 * M)) * rng.choice([1.0, 10.0, 900.0], n)[:, None]
    r, plus = np.empty(n), np.empty((n, M))
    instance_posteriors(F, r, plus)
    log_p, log_n = obj.log_odds(F)
    np.testing.assert_allclose(r, log_p - log_n, rtol=1e-12, atol=1e-11)
    y = 1.0 / (1.0 + np.exp(-np.clip(F[:, :M], -700, 700)))
    gates = np.exp(F[:, M:] - F[:, M:].max(axis=1, keepdims=True))
    clear = (gates * y).sum(axis=1) > 1e-200
    share = (gates * y)[clear]
    np.testing.assert_allclose(plus[clear], share / share.sum(axis=1, keepdims=True), rtol=1e-12, atol=1e-60)


@pytest.mark.parametrize("sharpness", [1.0, 30.0])
def test_gradient_of_many_blocks_is_that_of_one_instance_at_a_time(sharpness):
    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 90, 7)
    offsets, M = np.concatenate([[0], np.cumsum(sizes)]), 2
    F, labels, weights = (
        rng.normal(size=(offsets[-1], 2 * M)),
        (np.arange(7) % 2).astype(float),
        rng.random(7),
    )

    def plain(F):
        log_p, log_n = obj.log_odds(F)
        total = 0.0
        for a, b, label, weight in zip(offsets[:-1], offsets[1:], labels, weights):
            g = np.log(np.exp(sharpness * (log_p - log_n)[a:b]).sum()) / sharpness
            total += weight * np.log1p(np.exp(-g if label else g))
        return total

    G = np.empty_like(F)
    assert np.isclose(losses_of(F, offsets, labels, weights, sharpness, G)[0], plain(F), rtol=1e-12)
    np.testing.assert_allclose(G, numeric(plain, F), atol=1e-8)


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
        values = losses_of(signs, np.arange(0, 82, 3), labels, np.ones(27), sharpness, G)
        assert np.isfinite(values).all() and np.isfinite(G).all()
    F = np.array([[-800.0, 0.0], [-801.0, 0.0]])  # one bag, positive: the loss is 800, its slope -1
    G = np.empty_like(F)
    values = losses_of(F, np.array([0, 2]), np.ones(1), np.ones(1), 1000.0, G)
    np.testing.assert_allclose(values, [800.0, 800.0])
    np.testing.assert_allclose(G, [[-1.0, 0.0], [0.0, 0.0]], atol=1e-12)
