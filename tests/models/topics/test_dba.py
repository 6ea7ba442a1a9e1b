"""DBA against sums over all classes of instances, loops over single updates, and finite differences."""

import itertools

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import approx_fprime
from scipy.special import digamma, expit, gammaln, logsumexp
from toy_bags import miml

import bagwise
from bagwise import Bags
from bagwise.models import DBA
from bagwise.models.topics import dba as alignment
from bagwise.models.topics.dba import Alignment, Bags2D, Bound

SETTINGS = Bound(0.7, 0.3, 0.05, True)


def tiny(n_labels=2, background=False, seed=0):
    """Three small bags of word counts, a random model and random distributions."""
    rng = np.random.default_rng(seed)
    offsets = np.array([0, 2, 3, 6])
    C, V = n_labels + background, 4
    X = rng.integers(0, 3, (6, V)).astype(float)
    Y = rng.integers(0, 2, (3, n_labels)).astype(float)
    beta = rng.dirichlet(np.ones(V), C)
    model = Alignment(np.log(beta), rng.uniform(0.5, 4.0, n_labels), rng.normal(size=n_labels))
    phi = rng.dirichlet(np.ones(C), 6)
    gam = rng.uniform(0.5, 3.0, (3, C))
    return X, offsets, Y, model, phi, gam


def evidence(X, y, model, alpha):
    """log p(words, labels) of one bag: a sum over all classes of its instances, shares integrated out."""
    C, L, n = len(model.log_beta), len(y), len(X)
    terms = []
    for z in itertools.product(range(C), repeat=n):
        counts = np.bincount(z, minlength=C)
        log_z = gammaln(C * alpha) - gammaln(C * alpha + n)
        log_z += (gammaln(alpha + counts) - gammaln(alpha)).sum()
        log_x = sum(X[i] @ model.log_beta[z[i]] for i in range(n))
        p = expit(model.lam * counts[:L] / n + model.nu)
        terms.append(log_z + log_x + np.log(np.where(y > 0, p, 1 - p)).sum())
    return logsumexp(terms)


def expected_bound(X, offsets, Y, model, settings, phi, gam):
    """The bound by its definition: expectations as sums over all classes of the instances."""
    C, L, a = phi.shape[1], Y.shape[1], settings.alpha
    value = settings.smoothing * model.log_beta.sum()
    value -= 0.5 * settings.ridge * ((model.lam**2).sum() + (model.nu**2).sum())
    for b in range(len(offsets) - 1):
        rows = range(offsets[b], offsets[b + 1])
        logs = digamma(gam[b]) - digamma(gam[b].sum())
        value += gammaln(C * a) - C * gammaln(a) + ((a - 1) * logs).sum()
        value -= gammaln(gam[b].sum()) - gammaln(gam[b]).sum() + ((gam[b] - 1) * logs).sum()
        squares, means = np.zeros(L), np.zeros(L)
        for z in itertools.product(range(C), repeat=len(rows)):
            q = np.prod([phi[i, k] for i, k in zip(rows, z)])
            zbar = np.bincount(z, minlength=C)[:L] / len(rows)
            t = model.lam * zbar + model.nu
            means, squares = means + q * t, squares + q * t**2
            value += q * sum(logs[k] + X[i] @ model.log_beta[k] - np.log(phi[i, k]) for i, k in zip(rows, z))
        e = np.sqrt(squares)  # where the bound is best
        value += (np.log(expit(e)) + (Y[b] - 0.5) * means - e / 2).sum()
    return value


@pytest.mark.parametrize("background", [False, True])
def test_bound_is_what_it_says(background):
    X, offsets, Y, model, phi, gam = tiny(background=background)
    got = alignment.bound(X @ model.log_beta.T, Bags2D(offsets), Y, model, SETTINGS, phi, gam)
    assert got == pytest.approx(expected_bound(X, offsets, Y, model, SETTINGS, phi, gam), rel=1e-12)


def test_bound_lies_below_the_evidence():
    for seed in range(5):
        X, offsets, Y, model, phi, _ = tiny(seed=seed)
        bags, log_lik = Bags2D(offsets), X @ model.log_beta.T
        settings = Bound(0.7, 0.0, 0.0, True)
        for _ in range(200):
            gam = alignment.e_step(log_lik, bags, Y, model, 0.7, phi)
        bound = alignment.bound(log_lik, bags, Y, model, settings, phi, gam)
        exact = sum(evidence(X[a:b], y, model, 0.7) for a, b, y in zip(offsets[:-1], offsets[1:], Y))
        assert bound < exact < bound + 2.5  # the best bound is not far below


def test_sweep_is_that_of_plain_loops():
    X, offsets, Y, model, phi, _ = tiny(background=True, seed=1)
    log_lik, L, alpha = X @ model.log_beta.T, 2, 0.7
    expected = phi.copy()
    for b in range(3):
        rows = list(range(offsets[b], offsets[b + 1]))
        n = len(rows)
        gam = alpha + expected[rows].sum(axis=0)
        pairs = sum(np.outer(expected[i], expected[j]).diagonal() for i in rows for j in rows if i != j)
        m2 = ((expected[rows].sum(axis=0) + pairs) / n**2)[:L]
        m = expected[rows].mean(axis=0)[:L]
        e = np.sqrt(model.lam**2 * m2 + 2 * model.lam * model.nu * m + model.nu**2)
        h = np.tanh(e / 2) / (4 * e)
        for i in rows:
            logs = digamma(gam) + log_lik[i]
            others = sum(expected[j][:L] for j in rows if j != i) if n > 1 else 0.0
            logs[:L] += model.lam * (Y[b] - 0.5) / n
            logs[:L] -= h * ((model.lam / n) ** 2 * (1 + 2 * others) + 2 * model.lam * model.nu / n)
            expected[i] = np.exp(logs - logsumexp(logs))
    gam = alignment.e_step(log_lik, Bags2D(offsets), Y, model, alpha, phi)
    np.testing.assert_allclose(phi, expected, rtol=1e-10)
    np.testing.assert_allclose(gam[1], alpha + expected[2], rtol=1e-10)


def test_every_step_raises_the_bound_to_a_stationary_point():
    X, offsets, Y, model, phi, _ = tiny(seed=2)
    bags, history = Bags2D(offsets), []
    for _ in range(300):
        log_lik = X @ model.log_beta.T
        gam = alignment.e_step(log_lik, bags, Y, model, SETTINGS.alpha, phi)
        history.append(alignment.bound(log_lik, bags, Y, model, SETTINGS, phi, gam))
        model = alignment.m_step(sparse.csr_array(X), phi, bags, Y, model, SETTINGS)
        after = alignment.bound(X @ model.log_beta.T, bags, Y, model, SETTINGS, phi, gam)
        assert after >= history[-1] - 1e-9
    assert (np.diff(history) >= -1e-9).all()

    def value(w):  # distributions as softmax, Dirichlet parameters as exponentials
        q = np.exp(w[:12].reshape(6, 2))
        q /= q.sum(axis=1, keepdims=True)
        there = Alignment(model.log_beta, w[18:20], w[20:22])
        return alignment.bound(
            X @ model.log_beta.T, bags, Y, there, SETTINGS, q, np.exp(w[12:18].reshape(3, 2))
        )

    at = np.concatenate([np.log(phi).ravel(), np.log(gam).ravel(), model.lam, model.nu])
    slope = approx_fprime(at, value, 1e-6)
    slope[18:20][model.lam <= 0] = 0.0  # at its limit
    np.testing.assert_allclose(slope, 0.0, atol=2e-3)


def test_one_label_per_bag_and_a_strong_alignment_force_the_label():
    X, offsets, _, model, phi, _ = tiny(seed=3)
    Y = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    strong = Alignment(model.log_beta, np.full(2, 400.0), np.full(2, -60.0))
    for _ in range(50):
        alignment.e_step(X @ model.log_beta.T, Bags2D(offsets), Y, strong, 0.7, phi)
    np.testing.assert_allclose(phi, np.repeat(Y, [2, 1, 3], axis=0), atol=1e-6)


def test_slope_at_zero():
    np.testing.assert_allclose(alignment.slope_of_bound(np.array([0.0, 1e-5, 1e-3])), 0.125, rtol=1e-6)


# ---------------------------------------------------------------------- the estimator


def documents(n_bags=80, seed=0):
    """Bags of sentences about three things, each with words of its own."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, n_bags)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    z = rng.integers(0, 3, offsets[-1])
    X = np.zeros((len(z), 30))
    for i, label in enumerate(z):
        words = np.where(rng.random(8) < 0.8, 10 * label + rng.integers(0, 10, 8), rng.integers(0, 30, 8))
        np.add.at(X[i], words, 1.0)
    Y = np.zeros((n_bags, 3), dtype=int)
    Y[np.repeat(np.arange(n_bags), sizes), z] = 1
    return Bags(X, offsets), Y, z


@pytest.mark.parametrize("intercept", [True, False])
def test_learns_words_of_labels(intercept):
    bags, Y, z = documents()
    model = DBA(intercept=intercept).fit(bags, Y)
    assert model.words_["kind"] == "counts"
    assert (np.diff(model.objective_) >= -1e-7 * np.abs(model.objective_[:-1])).all()
    assert (model.annotate(bags, Y) == z).mean() > 0.95
    assert (model.annotate(bags) == z).mean() > 0.9
    assert (np.exp(model.log_words_)[0, :10].sum()) > 0.75
    F = model.instance_scores(bags)
    np.testing.assert_allclose(F.sum(axis=1), 1.0)
    as_csr = bags.with_X(sparse.csr_array(bags.X))
    np.testing.assert_allclose(model.decision_function(as_csr), model.decision_function(bags), atol=1e-9)
    if intercept:
        assert (model.predict(bags) == Y).mean() > 0.9
    else:
        assert (model.predict(bags).sum(axis=1) == model.n_top_).all()


def test_one_label_against_the_background(tmp_path):
    bags, Y, z = documents()
    y = Y[:, 0]
    bags = bags.with_X(bags.X)
    keep = np.flatnonzero((Y[:, 0] == 0) | (Y[:, 0] == 1))
    model = DBA().fit(bags[keep], y[keep])
    assert model.components_.tolist() == [0, 1]  # the label, and the background
    assert (model.predict(bags) == y).mean() > 0.85
    bagwise.save(model, tmp_path / "model.skops")
    again = bagwise.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(again.decision_function(bags), model.decision_function(bags))
    assert ((model.annotate(bags) == 0) == (z == 0)).mean() > 0.8


def test_labels_that_never_occur_are_never_predicted():
    bags, Y, _ = documents(30)
    wider = np.column_stack([Y, np.zeros(30, dtype=int)])
    for intercept in (True, False):
        model = DBA(intercept=intercept).fit(bags, wider)
        assert not model.predict(bags)[:, 3].any()
        assert np.isfinite(model.decision_function(bags)).all()


def test_negative_counts_are_refused_by_name():
    bags, Y, _ = documents(20)
    X = bags.X.copy()
    X[bags.offsets[3], 0] = -1.0
    named = Bags(X, bags.offsets, bag_ids=[f"doc-{i}" for i in range(20)])
    with pytest.raises(ValueError, match=r"negative numbers.*doc-3.*codebook"):
        DBA(words="counts").fit(named, Y)
    model = DBA(words="counts").fit(bags, Y)
    with pytest.raises(ValueError, match="negative numbers"):
        model.predict(named)


def test_predictions_are_the_fixed_point_of_the_printed_updates():
    """Distributions of new instances for the learned model and the prior of the parameter, bag by bag."""
    rng = np.random.default_rng(0)
    bags, Y = miml(40, seed=1)
    bags = bags.with_X(rng.poisson(0.3, (bags.n_instances, 30)).astype(float))
    model = DBA(alpha=0.3, words="counts").fit(bags, Y)
    F, fits = model.instance_scores(bags), bags.X @ model.log_words_.T
    shares = []
    for a, b in zip(bags.offsets, bags.offsets[1:]):
        log_p = digamma(0.3 + F[a:b].sum(axis=0)) + fits[a:b]
        p = np.exp(log_p - logsumexp(log_p, axis=1, keepdims=True))
        np.testing.assert_allclose(F[a:b], p, atol=1e-5)
        shares.append(F[a:b].mean(axis=0))
    odds = model.slopes_ * np.array(shares) + model.intercepts_
    np.testing.assert_allclose(model.decision_function(bags), odds, atol=1e-9)
    np.testing.assert_allclose(model.predict_proba(bags), expit(odds), atol=1e-9)
