"""MIMLmix against enumeration, plain NumPy references and its own invariants."""

import itertools
import pickle

import numpy as np
import pytest
import skops.io
from scipy import sparse
from scipy.special import digamma, gammaln, logsumexp
from scipy.stats import multinomial, multivariate_normal
from sklearn.base import clone

from bagwise import Bags, MultiViewBags
from bagwise.datasets.mimlmix_like import make_mimlmix_like
from bagwise.errors import DataError
from bagwise.metrics import average_precision
from bagwise.models.mimlmix import kernels, loops, topic_kernels
from bagwise.models.mimlmix import views as _mimlmix_views
from bagwise.models.mimlmix.em import Layout, collect_statistics, train, view_weights
from bagwise.models.mimlmix.estimator import MIMLMix
from bagwise.models.mimlmix.select import choose_settings
from bagwise.models.mimlmix.topics import (
    completion,
    fit_topics,
    fold_in,
    label_distributions,
    transposed,
)
from bagwise.models.mimlmix.topics import label_sets as ragged_sets

FIXED = {
    "eta": 3.0,
    "xi": 0.1,
    "kappa": 20.0,
    "nu": 5.0,
    "alpha_train": 2.0,
    "n_topics": 3,
    "random_state": 0,
}


# ---------------------------------------------------------------------- small problems


def label_sets(rng, n_bags, n_labels):
    Y = (rng.random((n_bags, n_labels)) < 0.45).astype(np.int8)
    Y[np.arange(n_bags), rng.integers(0, n_labels, n_bags)] = 1
    return Y


def two_views(seed=0, n_bags=12, n_labels=4, counts="tokens"):
    """A continuous and a count view; some bags lack one of them and one bag lacks both."""
    rng = np.random.default_rng(seed)
    Y = label_sets(rng, n_bags, n_labels)
    present = rng.random((n_bags, 2)) < 0.75
    present[0] = [True, True]
    present[-1] = [False, False]
    sizes = rng.integers(1, 5, (n_bags, 2)) * present
    X = rng.standard_normal((sizes[:, 0].sum(), 3)) * [1.0, 5.0, 0.2] + [0.0, 10.0, -1.0]
    n_words = sizes[:, 1].sum()
    if counts == "tokens":
        W = sparse.csr_array(
            (np.ones(n_words), rng.integers(0, 6, n_words), np.arange(n_words + 1)), (n_words, 6)
        )
    else:
        W = sparse.csr_array(rng.poisson(0.7, (n_words, 6)).astype(float))  # rows of zeros among them
    offsets = [np.concatenate([[0], np.cumsum(s)]) for s in sizes.T]
    return {"x": Bags(X, offsets[0]), "w": Bags(W, offsets[1])}, Y


def hypers(views, covariance="full", kappa=3.0, nu=2.0):
    X = views["x"].X
    background = np.arange(1.0, 7.0)
    return {
        "x": {
            "kind": "gaussian",
            "location": X.mean(axis=0),
            "scale": X.std(axis=0),
            "total": np.ones(3) if covariance == "diag" else np.eye(3),
            "covariance": covariance,
            "width": 0.3,
            "nu": nu,
        },
        "w": {"kind": "counts", "background": background / background.sum(), "kappa": kappa},
    }


def log_likelihoods(layout, views, n_labels):
    """ln p(x | y) of every instance of both views, by SciPy, under the present parameters of the layout."""
    gauss, count = layout.views
    Z = (views["x"].X - gauss.hyper["location"]) / gauss.hyper["scale"]
    first = np.empty((len(Z), n_labels))
    for y in range(n_labels):
        W = gauss.whiten[y % len(gauss.whiten)]
        inverse = np.diag(W[0]) if gauss.diagonal else W.T
        cov = np.linalg.inv(inverse.T @ inverse)
        first[:, y] = multivariate_normal(gauss.mean[y], cov).logpdf(Z)
    kappa, b = count.hyper["kappa"], count.hyper["background"]
    S = count.S.toarray()
    beta = (S + kappa * b[:, None]) / (S.sum(axis=0) + kappa)
    rows = views["w"].X.toarray()
    second = np.array([[multinomial.logpmf(r, r.sum(), beta[:, y]) for y in range(n_labels)] for r in rows])
    return {"x": first, "w": second.reshape(-1, n_labels)}


def slow_e_step(logp, views, Y, weights, alpha, n_sweeps, gamma=None):
    """Eqs. 5-6 and the bound term by term, bag by bag, in plain NumPy."""
    result = []
    for n in range(len(Y)):
        labels = np.flatnonzero(Y[n])
        rows = [logp[v][b.offsets[n] : b.offsets[n + 1]][:, labels] for v, b in views.items()]
        ln_p = np.vstack(rows)
        w = np.concatenate([np.full(len(r), weight) for r, weight in zip(rows, weights)])
        a = np.full(len(labels), alpha)
        g = a + w.sum() / len(labels) if gamma is None else gamma[n]
        phi = np.empty_like(ln_p)
        for _ in range(n_sweeps):
            s = ln_p + digamma(g)
            phi = np.exp(s - logsumexp(s, axis=1, keepdims=True)) if len(s) else s
            g = a + w @ phi
        e_ln = digamma(g) - digamma(g.sum())
        bound = gammaln(a.sum()) - gammaln(a).sum() + (a - 1) @ e_ln
        bound -= gammaln(g.sum()) - gammaln(g).sum() + (g - 1) @ e_ln
        entropy = -np.where(phi > 0, phi * np.log(np.where(phi > 0, phi, 1.0)), 0.0)
        bound += w @ (phi * (e_ln + ln_p) + entropy).sum(axis=1)
        result.append((g, phi, bound))
    return result


def started(views, Y, settings):
    layout = Layout(views, Y, settings)
    for view, stats in zip(layout.views, layout.uniform_statistics()):
        view.update(stats)
    return layout


# ---------------------------------------------------------------------- the E-step and the bound


@pytest.mark.parametrize("counts", ["tokens", "vectors"])
@pytest.mark.parametrize("covariance", ["full", "tied", "diag"])
def test_e_step_and_bound_equal_a_plain_reference(counts, covariance):
    views, Y = two_views(1, counts=counts)
    weights = np.array([0.3, 0.7])
    layout = started(views, Y, hypers(views, covariance))
    logp = log_likelihoods(layout, views, Y.shape[1])
    gamma = layout.cold_gamma(0.7, weights)
    found = collect_statistics(layout, weights, 0.7, gamma, 4, 0.0)
    slow = slow_e_step(logp, views, Y, weights, 0.7, 4)
    np.testing.assert_allclose(gamma, np.concatenate([g for g, _, _ in slow]), rtol=5e-9)
    np.testing.assert_allclose(found.bound, sum(b for _, _, b in slow), rtol=1e-9)
    # statistics of the M-step, eqs. 7-9, from the reference's phi
    S, mass, first = np.zeros((6, 4)), np.zeros(4), np.zeros((4, 3))
    second = np.zeros((4, 3, 3))
    Z = (views["x"].X - views["x"].X.mean(axis=0)) / views["x"].X.std(axis=0)
    for n, (_, phi, _) in enumerate(slow):
        labels = np.flatnonzero(Y[n])
        rows = slice(views["x"].offsets[n], views["x"].offsets[n + 1])
        n_x = rows.stop - rows.start
        mass[labels] += phi[:n_x].sum(axis=0)
        first[labels] += phi[:n_x].T @ Z[rows]
        second[labels] += np.einsum("my,mi,mj->yij", phi[:n_x], Z[rows], Z[rows])
        words = slice(views["w"].offsets[n], views["w"].offsets[n + 1])
        S[:, labels] += views["w"].X[words].toarray().T @ phi[n_x:]
    np.testing.assert_allclose(found.views[1]["S"].toarray(), S, atol=1e-10)
    np.testing.assert_allclose(found.views[0]["mass"], mass, atol=1e-10)
    np.testing.assert_allclose(found.views[0]["first"], first, atol=1e-10)
    wanted = np.diagonal(second, axis1=1, axis2=2)[:, None] if covariance == "diag" else second
    np.testing.assert_allclose(found.views[0]["second"], wanted, atol=1e-10)


def test_slopes_of_view_weights_are_derivatives_of_the_bound():
    views, Y = two_views(2, counts="vectors")
    layout = started(views, Y, hypers(views))
    logp = log_likelihoods(layout, views, Y.shape[1])
    weights = np.array([0.4, 0.6])
    found = collect_statistics(layout, weights, 0.7, layout.cold_gamma(0.7, weights), 400, 0.0)

    def bound(w):  # at its optimum, so the derivative for fixed gamma and phi is the whole derivative
        return sum(b for _, _, b in slow_e_step(logp, views, Y, w, 0.7, 400))

    for v in range(2):
        step = np.eye(2)[v] * 1e-4
        np.testing.assert_allclose(
            found.slope[v], (bound(weights + step) - bound(weights - step)) / 2e-4, rtol=1e-5
        )
    assert found.instances.tolist() == [views["x"].n_instances, views["w"].n_instances]


@pytest.mark.parametrize("seed", range(3))
def test_bound_stays_below_the_exact_evidence(seed):
    """All assignments z are enumerated; theta is integrated out in closed form."""
    views, Y = two_views(seed, n_bags=6, n_labels=3)
    views = {"x": views["x"]}
    layout = started(views, Y, {"x": hypers({"x": views["x"], "w": None})["x"]})
    gauss = layout.views[0]
    Z = (views["x"].X - gauss.hyper["location"]) / gauss.hyper["scale"]
    logp = np.column_stack(
        [multivariate_normal(gauss.mean[y], np.linalg.inv(gauss.whiten[y] @ gauss.whiten[y].T)).logpdf(Z)
         for y in range(3)]
    )  # fmt: skip
    alpha = 0.8
    exact = 0.0
    for n in range(len(Y)):
        labels = np.flatnonzero(Y[n])
        rows = logp[views["x"].offsets[n] : views["x"].offsets[n + 1]][:, labels]
        terms = []
        for z in itertools.product(range(len(labels)), repeat=len(rows)):
            counts = np.bincount(z, minlength=len(labels)) if z else np.zeros(len(labels))
            prior = gammaln(alpha + counts).sum() - gammaln(alpha * len(labels) + len(rows))
            prior -= gammaln(alpha) * len(labels) - gammaln(alpha * len(labels))
            terms.append(prior + sum(rows[m, k] for m, k in enumerate(z)))
        exact += logsumexp(terms)
    weights = np.ones(1)
    for sweeps in (1, 3, 50):
        found = collect_statistics(layout, weights, alpha, layout.cold_gamma(alpha, weights), sweeps, 0.0)
        assert found.bound <= exact + 1e-9
    assert found.bound > exact - 0.6 * len(Y)  # and is not far below


@pytest.mark.parametrize("cold", [True, False])
@pytest.mark.parametrize("sharp", [True, False])
def test_inference_where_products_underflow(sharp, cold):
    """Against logarithms throughout; bags two and three underflow, one row by row, one in the prior."""
    rng = np.random.default_rng(0)
    P = rng.random((9, 4)) ** 3
    P[4], P[5] = [1e-300, 1e-305, 0.0, 1e-299], [1.0, 1e-300, 1e-300, 0.0]
    weight = rng.random(9)
    alpha = np.repeat([0.5, 0.4, 1e-5], 4) * (1.0 + rng.random(12))
    starts = [4 * np.arange(4), np.array([0, 3, 6, 9]), 4 * np.array([0, 3, 6, 9])]
    pairs = kernels.Pairs.of(*starts, weight)
    start = alpha + np.repeat([weight[:3].sum() / 4, weight[3:6].sum() / 4, 1e-5], 4)
    bounds = kernels.Bounds(300, 1e-12, sharp, cold)
    gamma, flat = start.copy(), P.ravel().copy()
    psi = loops.infer(pairs, flat, alpha, gamma, bounds)
    log_r = loops.phi(pairs, flat, psi)
    assert np.isfinite(gamma).all()
    assert np.isfinite(log_r).all()
    for n in range(3):
        rows, own = slice(3 * n, 3 * n + 3), slice(4 * n, 4 * n + 4)
        g = start[own]
        for _ in range(300):
            s = np.log(np.maximum(P[rows], 1e-290)) + (digamma(g) if sharp else np.log(g))
            phi = np.exp(s - logsumexp(s, axis=1, keepdims=True))
            g = alpha[own] + weight[rows] @ phi
        room = 1e-4 if cold else 1e-7  # cold: labels with a share below 1e-5 were set aside on the way
        np.testing.assert_allclose(gamma[own], g, rtol=1e-6, atol=room)
        np.testing.assert_allclose(flat.reshape(9, 4)[rows], phi, atol=100 * room)
    views, Y = two_views(3)
    model = MIMLMix(**{**FIXED, "xi": 1e-4, "alpha_train": 1e-3}).fit(MultiViewBags(views), Y)
    assert np.isfinite(model.elbo_).all()
    assert np.isfinite(model.label_scores(MultiViewBags(views))).all()


# ---------------------------------------------------------------------- the M-step and EM


def test_m_step_is_equations_7_to_9():
    views, Y = two_views(4, n_bags=60)
    layout = started(views, Y, hypers(views, kappa=1e-12, nu=0.0))
    gauss, count = layout.views
    stats = layout.uniform_statistics()
    n = stats[0]["mass"]
    mean = stats[0]["first"] / n[:, None]
    cov = stats[0]["second"] / n[:, None, None] - np.einsum("yi,yj->yij", mean, mean)
    np.testing.assert_allclose(gauss.mean, mean)
    inverse = np.swapaxes(gauss.whiten, 1, 2)
    np.testing.assert_allclose(np.linalg.inv(np.swapaxes(inverse, 1, 2) @ inverse), cov, rtol=1e-6, atol=1e-9)
    S = stats[1]["S"].toarray()
    np.testing.assert_allclose(count.table, (S / S.sum(axis=0))[S > 0], rtol=1e-9)


@pytest.mark.parametrize("covariance", ["full", "tied", "diag"])
def test_m_step_maximises_the_objective(covariance):
    """Any step away from the M-step's parameters lowers expected log-likelihood plus log prior."""
    views, Y = two_views(5, n_bags=40)
    settings = hypers(views, covariance)
    layout = started(views, Y, settings)
    stats = layout.uniform_statistics()
    gauss, count = layout.views
    n, s1, s2 = stats[0]["mass"], stats[0]["first"], stats[0]["second"]
    if covariance == "diag":
        s2 = np.stack([np.diag(s[0]) for s in s2])
    nu, width = 2.0, 0.3

    def value(mean, cov):
        total = 0.0
        for y in range(4):
            C = cov[y % len(cov)]
            scatter = (
                s2[y]
                - np.outer(mean[y], s1[y])
                - np.outer(s1[y], mean[y])
                + n[y] * np.outer(mean[y], mean[y])
            )
            total -= 0.5 * (n[y] + nu) * np.linalg.slogdet(C)[1]
            total -= 0.5 * np.trace(np.linalg.solve(C, scatter + nu * width * np.eye(3)))
        return total

    if covariance == "diag":
        cov = np.stack([np.diag(1.0 / w[0] ** 2) for w in gauss.whiten])
    else:
        cov = np.linalg.inv(gauss.whiten @ np.swapaxes(gauss.whiten, 1, 2))
    best = value(gauss.mean, cov)
    each = [cov[y % len(cov)] for y in range(4)]
    prior = -0.5 * nu * sum(np.linalg.slogdet(C)[1] + width * np.trace(np.linalg.inv(C)) for C in each)
    np.testing.assert_allclose(gauss.log_prior(), prior)
    rng = np.random.default_rng(0)
    for _ in range(20):
        assert value(gauss.mean + 0.02 * rng.standard_normal(gauss.mean.shape), cov) < best
        step = 0.03 * rng.standard_normal(cov.shape)
        step = step + np.swapaxes(step, 1, 2)
        if covariance == "diag":
            step = step * np.eye(3)
        assert value(gauss.mean, cov + step) < best
    # counts: the logarithm of the prior as it is written
    S, kappa, b = stats[1]["S"].toarray(), 3.0, settings["w"]["background"]
    beta = (S + kappa * b[:, None]) / (S.sum(axis=0) + kappa)
    np.testing.assert_allclose(count.log_prior(), kappa * (b @ np.log(beta)).sum())


@pytest.mark.parametrize("counts", ["tokens", "vectors"])
@pytest.mark.parametrize("covariance", ["full", "tied", "diag"])
@pytest.mark.parametrize("seed", range(3))
def test_objective_never_falls(seed, covariance, counts):
    views, Y = two_views(seed, n_bags=40, counts=counts)
    tau = np.array([1.0, 2.0])
    settings = {"max_iter": 60, "tol": 0.0, "tied_start": 15, "max_inner": 3}
    found = train(Layout(views, Y, hypers(views, covariance)), alpha=0.5, tau=tau, **settings)
    rises = np.diff(found.elbo)
    assert len(rises) > 40
    assert rises.min() > -1e-9 * abs(found.elbo[-1])
    assert found.elbo[-1] > found.elbo[0]


def test_statistics_add_up_over_partitions():
    views, Y = two_views(6, n_bags=30, counts="vectors")
    settings = hypers(views)
    weights = np.array([0.5, 0.5])
    whole = started(views, Y, settings)
    learned = [view.export() for view in whole.views]
    all_at_once = collect_statistics(whole, weights, 1.0, whole.cold_gamma(1.0, weights), 5, 0.0)
    total = None
    for part in (slice(0, 11), slice(11, 12), slice(12, 30)):
        layout = Layout({v: b[part] for v, b in views.items()}, Y[part], settings)
        for view, values in zip(layout.views, learned):
            view.restore(values)
        some = collect_statistics(layout, weights, 1.0, layout.cold_gamma(1.0, weights), 5, 0.0)
        total = some if total is None else total + some
    np.testing.assert_allclose(total.bound, all_at_once.bound, rtol=1e-12)
    np.testing.assert_allclose(total.slope, all_at_once.slope, rtol=1e-10)
    np.testing.assert_allclose(total.views[1]["S"].toarray(), all_at_once.views[1]["S"].toarray(), atol=1e-12)
    for name in ("mass", "first", "second"):
        np.testing.assert_allclose(total.views[0][name], all_at_once.views[0][name], atol=1e-12)


def test_equal_words_of_a_bag_may_share_a_row(monkeypatch):
    data = make_mimlmix_like("citeseer", 60, random_state=1)
    settings = {**FIXED, "max_iter": 12}
    fast = MIMLMix(**settings).fit(data.bags, data.Y)
    monkeypatch.setattr(_mimlmix_views, "is_token_view", lambda X: False)
    slow = MIMLMix(**settings).fit(data.bags, data.Y)
    np.testing.assert_allclose(fast.elbo_, slow.elbo_, rtol=1e-9)
    np.testing.assert_allclose(fast.label_scores(data.bags[:9]), slow.label_scores(data.bags[:9]), rtol=1e-6)


def test_view_weights_by_hand():
    slope, instances = np.array([-30.0, -10.0, -70.0]), np.array([10.0, 10.0, 10.0])
    scaled = np.log2(np.array([4.0, 6.0, 0.0]) + 2.0)
    np.testing.assert_allclose(view_weights(slope, instances, np.zeros(3)), scaled / scaled.sum())
    np.testing.assert_allclose(view_weights(slope, instances, np.full(3, 1e9)), np.full(3, 1 / 3), atol=1e-8)
    views, Y = two_views(7, n_bags=30)
    equal = MIMLMix(**FIXED, weighted_views=False).fit(MultiViewBags(views), Y)
    assert equal.view_weights_ == {"x": 0.5, "w": 0.5}
    weighted = MIMLMix(**FIXED, tau=0.0).fit(MultiViewBags(views), Y)
    assert sum(weighted.view_weights_.values()) == pytest.approx(1.0)
    assert weighted.view_weights_ != equal.view_weights_


# ---------------------------------------------------------------------- prediction


def slow_algorithm_3(logp, weights_of_rows, eta, xi, beta, alpha_topic, sharp_topics, n_fold):
    """Algorithm 3 with expected label tokens for one bag, without any short cut."""
    n_labels = logp.shape[1]

    def e_step(alpha):
        g = alpha + weights_of_rows.sum() / n_labels
        for _ in range(101):
            s = logp + digamma(g)
            phi = np.exp(s - logsumexp(s, axis=1, keepdims=True))
            before, g = g, alpha + weights_of_rows @ phi
            if np.abs(g - before).mean() < 1e-6:
                break
        return g, phi

    g, phi = e_step(np.full(n_labels, eta + xi))
    theta = np.zeros(len(beta))
    for _ in range(20 if eta else 0):
        tokens = weights_of_rows @ phi
        tokens = tokens / tokens.sum() * len(logp)
        gt = np.full(len(beta), alpha_topic + tokens.sum() / len(beta))
        last = np.full(len(beta), alpha_topic / (alpha_topic * len(beta) + tokens.sum()))
        for _ in range(n_fold):
            e = np.exp(digamma(gt)) if sharp_topics else gt
            q = e[:, None] * beta
            gt = alpha_topic + (q / q.sum(axis=0)) @ tokens
            moved, last = np.abs(gt / gt.sum() - last).sum(), gt / gt.sum()
            if moved < 1e-3:
                break
        change, theta = np.abs(gt / gt.sum() - theta).sum(), gt / gt.sum()
        g, phi = e_step(eta * beta.T @ theta + xi)
        if change < 1e-2:
            break
    return g, phi


@pytest.mark.parametrize("eta", [0.0, 0.5, 4.0])
@pytest.mark.parametrize("xi", [0.05, 1.0])
def test_prediction_equals_a_plain_algorithm_3(eta, xi):
    data = make_mimlmix_like("citeseer", 160, random_state=2)
    model = MIMLMix(**{**FIXED, "eta": eta, "xi": xi, "max_iter": 8}).fit(data.bags[:150], data.Y[:150])
    test = data.bags[150:155]
    gamma, phi = model.label_scores(test), model.instance_scores(test)
    known = model.components_
    for n in range(len(test)):
        rows, weights = [], []
        for v, w in model.view_weights_.items():
            beta = np.array([model.label_distribution(y, v)["words"] for y in known])
            rows.append(np.log(beta[:, test[v][n].indices]).T)
            weights.append(np.full(len(rows[-1]), w))
        topics = model.label_topics_[:, known]
        g, p = slow_algorithm_3(np.vstack(rows), np.concatenate(weights), eta, xi, topics, 0.1, False, 10)
        np.testing.assert_allclose(gamma[n, known], g, atol=2e-2)
        got = np.vstack([phi[v][test[v].offsets[n] : test[v].offsets[n + 1]] for v in phi])[:, known]
        np.testing.assert_allclose(got, p, atol=2e-2)
        assert np.abs(gamma[n, known] - g).mean() < 1e-3


@pytest.mark.parametrize("sharp", [True, False])
def test_topics_of_a_label_set_equal_a_plain_fold_in(sharp):
    """Against eqs. of latent Dirichlet allocation in NumPy, without setting topics aside."""
    rng = np.random.default_rng(3)
    n_labels, n_topics, alpha = 60, 40, 0.1
    beta = rng.dirichlet(np.full(n_labels, 0.05), n_topics).T + 1e-4  # (labels, topics)
    for n in (1, 5, 30):
        labels = rng.permutation(n_labels)[:n]
        amounts = rng.gamma(1.0, 4.0, n)
        gamma = np.full(n_topics, alpha + amounts.sum() / n_topics)
        for _ in range(8):
            q = (np.exp(digamma(gamma)) if sharp else gamma) * beta[labels]
            gamma = alpha + amounts @ (q / q.sum(axis=1, keepdims=True))
        sets = ragged_sets(np.zeros(n, dtype=int), labels, amounts, 1)
        theta = fold_in(sets, transposed(beta.T), alpha, sharp, 8)[0]
        assert np.abs(theta - gamma / gamma.sum()).sum() < 5e-3


def test_topics_help_where_labels_go_together_and_two_views_beat_one():
    data = make_mimlmix_like("imageclef", 1200, random_state=3)
    train_part, test = data[:1000], data[1000:]

    def quality(select, **more):
        settings = {
            **FIXED,
            "kappa": 100.0,
            "alpha_train": 5.0,
            "eta": 10.0,
            "n_topics": 12,
            "max_iter": 8,
        } | more
        model = MIMLMix(**settings).fit(train_part.bags.select(select), train_part.Y)
        return average_precision(test.Y, model.label_scores(test.bags.select(select)))

    both = quality(["visual", "textual"])
    assert both > quality(["visual"]) + 0.03
    assert both > quality(["textual"]) + 0.03
    assert both > quality(["visual", "textual"], eta=0.0) + 0.08
    assert both > quality(["visual", "textual"], n_topics=1) + 0.08  # a prior of label popularity


def test_partial_examples_and_empty_bags():
    views, Y = two_views(8, n_bags=40)
    bags = MultiViewBags(views)
    assert not bags.present.any(axis=1).all()  # a bag without any instance takes part
    model = MIMLMix(**FIXED).fit(bags, Y)
    empty = MultiViewBags({v: b[[39]] for v, b in views.items()})
    gamma = model.label_scores(empty)[0]
    share = model._topic_share @ model.label_topics_
    np.testing.assert_allclose(gamma, 3.0 * share + 0.1)
    assert model.predict(empty).shape == (1, 4)
    only_words = MultiViewBags({"x": Bags(np.empty((0, 3)), np.zeros(41, dtype=int)), "w": views["w"]})
    assert np.isfinite(model.decision_function(only_words)).all()
    fitted = MIMLMix(**FIXED).fit(only_words, Y)  # a view that no training bag has
    assert np.isfinite(fitted.decision_function(bags)).all()
    single = MIMLMix(**FIXED).fit(views["w"], Y)
    assert np.isfinite(single.decision_function(views["w"])).all()


def test_sampling_is_seeded_and_bags_do_not_influence_each_other():
    data = make_mimlmix_like("imageclef", 80, random_state=4, missing=0.3)
    for mode in ({}, {"sampling": True}, {"mode": "paper"}):
        settings = {**FIXED, "max_iter": 5} | mode
        model = MIMLMix(**settings).fit(data.bags[:60], data.Y[:60])
        test = data.bags[60:]
        together = model.label_scores(test)
        np.testing.assert_array_equal(
            together, MIMLMix(**settings).fit(data.bags[:60], data.Y[:60]).label_scores(test)
        )
        alone = np.vstack([model.label_scores(test[[n]]) for n in range(len(test))])
        np.testing.assert_allclose(together, alone, rtol=1e-12)
    # draws are spread around what is expected
    expected = MIMLMix(**{**FIXED, "max_iter": 5}).fit(data.bags[:60], data.Y[:60]).label_scores(test)
    sampled = (
        MIMLMix(**{**FIXED, "max_iter": 5}, sampling=True).fit(data.bags[:60], data.Y[:60]).label_scores(test)
    )
    assert np.corrcoef(expected.ravel(), sampled.ravel())[0, 1] > 0.8
    assert not np.allclose(expected, sampled)


@pytest.mark.parametrize("size", ["imageclef", "iaprtc", "citeseer"])
def test_results_do_not_depend_on_threads(size, monkeypatch):
    data = make_mimlmix_like(size, 60, random_state=5)
    results = []
    monkeypatch.setattr(loops, "_WORTH_A_THREAD", 1.0)  # small data are cut, too
    for n_threads in (1, 3):
        monkeypatch.setattr(loops, "cores", lambda n=n_threads: n)
        model = MIMLMix(**{**FIXED, "max_iter": 6}).fit(data.bags, data.Y)
        phi = model.instance_scores(data.bags)
        phi = np.vstack(list(phi.values())) if isinstance(phi, dict) else phi
        results.append((model.elbo_, model.label_scores(data.bags), model.label_topics_, phi))
    for a, b in zip(*results):
        np.testing.assert_array_equal(a, b)


def test_every_loop_is_compiled_once():
    """One type per argument: fits with views of all kinds, predictions and annotations share their loops."""
    for size in ("imageclef", "iaprtc", "citeseer"):
        data = make_mimlmix_like(size, 40, random_state=5)
        model = MIMLMix(**{**FIXED, "max_iter": 6}).fit(data.bags, data.Y)
        model.annotate(data.bags, data.Y, return_proba=True)
        model.instance_scores(data.bags)
        model.partial_fit(data.bags, data.Y)
    loaded = pickle.loads(pickle.dumps(model))
    loaded.predict(data.bags)
    for name, loop in {**vars(kernels), **vars(topic_kernels)}.items():
        if hasattr(loop, "overloads") and loop.__module__.startswith("bagwise.models.mimlmix"):
            assert len(loop.overloads) <= 1, name


def test_annotation_within_known_sets_is_the_training_e_step():
    views, Y = two_views(9, n_bags=30)
    bags = MultiViewBags(views)
    model = MIMLMix(**FIXED).fit(bags, Y)
    labels, proba = model.annotate(bags, Y, return_proba=True)
    assert set(labels) == {"x", "w"}
    layout = Layout(views, Y, model.views_)
    for view, learned in zip(layout.views, model.views_.values()):
        view.restore(learned)
    logp = log_likelihoods(layout, views, 4)
    slow = slow_e_step(logp, views, Y, list(model.view_weights_.values()), 2.0, 500)
    for n, (_, phi, _) in enumerate(slow):
        inside = np.flatnonzero(Y[n])
        got = np.vstack([proba[v][b.offsets[n] : b.offsets[n + 1]] for v, b in views.items()])
        np.testing.assert_allclose(got[:, inside], phi, atol=1e-5)
        np.testing.assert_allclose(got.sum(axis=1), 1.0)
    for v, b in views.items():
        assert (Y[b.index, labels[v]] == 1).all()
    inductive = model.annotate(bags)
    np.testing.assert_array_equal(inductive["x"], model.instance_scores(bags)["x"].argmax(axis=1))
    assert isinstance(MIMLMix(**FIXED).fit(views["x"], Y).annotate(views["x"]), np.ndarray)
    keys = model.key_instances(bags, k=2)
    assert keys["w"].shape == (30, 4, 2)


def test_labels_without_bags_and_bags_without_labels():
    views, Y = two_views(10, n_bags=40)
    Y = np.column_stack([Y, np.zeros(40, dtype=np.int8)])
    bags = views["x"]
    model = MIMLMix(**FIXED).fit(bags, Y)
    scores = model.decision_function(bags)
    assert (scores[:, 4] < scores[:, :4].min(axis=1)).all()
    assert (model.instance_scores(bags)[:, 4] == 0).all()
    Y[:10] = 0
    with_background = MIMLMix(**FIXED).fit(bags, Y)
    assert with_background.components_.tolist() == [0, 1, 2, 3, 5]
    with pytest.warns(UserWarning, match="without labels"):
        skipping = MIMLMix(**FIXED, unlabelled="skip").fit(bags, Y)
    assert skipping.components_.tolist() == [0, 1, 2, 3]
    assert MIMLMix(**FIXED).fit(bags, Y * 0).predict(bags).sum() == 0
    with pytest.raises(DataError, match="no training bag carries a label"):
        MIMLMix(**FIXED, unlabelled="skip").fit(bags, Y * 0)
    known = with_background.annotate(bags, Y)
    assert (known[bags.index < 10] == -1).all()


def test_label_sets():
    data = make_mimlmix_like("iaprtc", 150, random_state=6)
    model = MIMLMix(**FIXED).fit(data.bags, data.Y)
    assert (model.predict(data.bags).sum(axis=1) == model.n_top_).all()
    gamma, scores = model.label_scores(data.bags), model.decision_function(data.bags)
    for g, s in zip(gamma, scores):
        np.testing.assert_array_equal(np.argsort(-g, kind="stable"), np.argsort(-s, kind="stable"))
    shares = model.label_scores(data.bags, normalise=True)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    cut = MIMLMix(**FIXED, sets="threshold").fit(data.bags, data.Y)
    np.testing.assert_allclose(cut.decision_function(data.bags), cut.label_scores(data.bags) - cut.threshold_)
    assert 0 < cut.predict(data.bags).sum() < data.Y.size


def test_settings_are_chosen_inside_the_training_data():
    views, Y = two_views(13, n_bags=60)
    model = MIMLMix(max_iter=4, random_state=0).fit(MultiViewBags(views), Y)
    assert set(model.settings_) == {"kappa", "nu", "alpha_train", "eta", "xi", "n_topics"}
    tried = {tuple(s.values()): v for s, v in model.search_}
    chosen = tuple(v for k, v in model.settings_.items() if k != "n_topics")
    assert tried[chosen] == max(tried.values())
    paper = MIMLMix(mode="paper", max_iter=5, random_state=0).fit(MultiViewBags(views), Y)
    assert paper.settings_ == {
        "kappa": 0.1, "nu": 1.0, "alpha_train": 0.3, "eta": 0.3, "xi": 0.1, "n_topics": 200
    }  # fmt: skip
    star = MIMLMix(0.0, mode="paper", max_iter=5, random_state=0).fit(views["w"], Y)
    assert star.settings_["alpha_train"] == 0.1


def test_views_have_their_own_smoothing():
    data = make_mimlmix_like("imageclef", 60, random_state=14)
    settings = {**FIXED, "max_iter": 4}

    def fitted(**more):
        return MIMLMix(**{**settings, **more}).fit(data.bags, data.Y)

    def learned(model, view):  # what the label looks like, from the kept statistics and a plain formula
        v = model.views_[view]
        S = sparse.csr_array((v["S"]["data"], v["S"]["indices"], v["S"]["indptr"]), v["S"]["shape"]).toarray()
        kappa = {"visual": 500.0, "textual": 7.0}[view]
        return (S[:, 0] + kappa * v["background"]) / (S[:, 0].sum() + kappa)

    named = fitted(kappa={"visual": 500.0, "textual": 7.0})
    assert named.settings_["kappa"] == {"visual": 500.0, "textual": 7.0}
    in_order = fitted(kappa=[500.0, 7.0])
    np.testing.assert_array_equal(named.elbo_, in_order.elbo_)
    for view in ("visual", "textual"):
        first = int(named.components_[0])
        words = named.label_distribution(first, view)["words"]
        np.testing.assert_allclose(words, learned(named, view), rtol=1e-9)
    one = fitted(kappa=20.0)
    assert one.settings_["kappa"] == 20.0
    both = fitted(kappa=(20.0, 20.0))
    np.testing.assert_array_equal(one.label_scores(data.bags), both.label_scores(data.bags))
    found = fitted(kappa={"textual": 7.0})  # the other one is searched
    assert found.settings_["kappa"]["textual"] == 7.0
    tried = {s["kappa"]["visual"] for s, _ in found.search_}
    assert len(tried) > 3
    assert {s["kappa"]["textual"] for s, _ in found.search_} == {7.0}
    restored = pickle.loads(pickle.dumps(clone(named)))
    assert restored.kappa == named.kappa
    views, Y = two_views(3)  # one view of each kind: numbers, and entries of the other kind are not looked at
    mixed = MIMLMix(**{**FIXED, "kappa": [1.0, 4.0], "nu": [2.0, "auto"]}).fit(MultiViewBags(views), Y)
    assert (mixed.settings_["kappa"], mixed.settings_["nu"]) == (4.0, 2.0)
    with pytest.raises(DataError, match="kappa names the views"):
        fitted(kappa={"sound": 1.0})
    with pytest.raises(DataError, match="3 entries for the 2 views"):
        fitted(kappa=[1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="kappa of MIMLMix must be"):
        fitted(kappa={"visual": 0.0})


class KnownQuality:
    """Stands for held-out bags: a quality that is known for all settings."""

    def __init__(self, function):
        self.quality = function


def test_search_finds_what_each_view_wants():
    """A separable quality whose best settings are known; the first view's lies far beyond the grid."""
    wanted = {("kappa", "a"): 30000.0, ("kappa", "b"): 10.0, "alpha_train": 20.0, "eta": 10.0, "xi": 0.03}

    def quality(s):
        return 1.0 - 0.1 * sum(abs(np.log10(max(s[k], 1e-3) / wanted[k])) for k in wanted)

    given = {("kappa", "a"): "auto", ("kappa", "b"): "auto", "nu": 10.0, "alpha_train": "auto", "eta": "auto",
             "xi": "auto"}  # fmt: skip
    found, tried = choose_settings(KnownQuality(quality), given)
    assert found == {**wanted, "nu": 10.0}
    assert max(value for _, value in tried) == pytest.approx(1.0)
    assert tried[0][0]["kappa"] == {"a": 300.0, "b": 300.0}
    # a given value is never touched
    found, _ = choose_settings(KnownQuality(quality), {**given, ("kappa", "a"): 42.0})
    assert found["kappa", "a"] == 42.0
    assert found["kappa", "b"] == 10.0

    def flat(s):  # rises for ever, but by less than a step beyond the grid must gain
        return 0.001 * np.log10(s["kappa"])

    found, _ = choose_settings(KnownQuality(flat), {"kappa": "auto", "eta": 3.0, "xi": 0.1})
    assert found["kappa"] == 1000.0

    def crossed(s):  # at the first value of kappa eta = 0 is best; the best pair has topics
        return 0.5 if s["eta"] == 0.0 else 0.9 - 0.5 * abs(np.log10(s["kappa"] / 10.0))

    found, _ = choose_settings(KnownQuality(crossed), {"kappa": "auto", "eta": "auto", "xi": 0.1})
    assert found["kappa"] == 10.0
    assert found["eta"] > 0.0


# ---------------------------------------------------------------------- topics and streams


def test_topics_complete_label_sets_better_than_popularity():
    Y = make_mimlmix_like("citeseer", 1500, random_state=8).Y
    shuffled = make_mimlmix_like("citeseer", 1500, correlation=0.0, random_state=8).Y

    def value(Y, n_topics):
        counts = fit_topics(Y[:1200], n_topics, np.random.RandomState(0))
        np.testing.assert_allclose(counts.sum(), Y[:1200].sum())
        return completion(Y[1200:], label_distributions(counts, 0.01), np.random.RandomState(1))

    assert value(Y, 50) > 4 * value(Y, 1)
    assert value(shuffled, 50) < value(shuffled, 1) + 0.02  # nothing beyond popularity to be found


def test_streams_reach_batch_quality_and_learn_new_labels():
    data = make_mimlmix_like("imageclef", 1000, random_state=9)
    train_part, test = data[:800], data[800:]
    settings = {**FIXED, "kappa": 100.0, "n_topics": 12, "alpha_train": 5.0}
    batch = MIMLMix(**settings).fit(train_part.bags, train_part.Y)
    stream = MIMLMix(**settings)
    for start in range(0, 800, 200):
        part = slice(start, start + 200)
        stream.partial_fit(train_part.bags[part], train_part.Y[part])
    assert stream.n_bags_seen_ == 800
    assert set(stream.components_) == set(batch.components_)
    found = average_precision(test.Y, stream.label_scores(test.bags))
    assert found > 0.85 * average_precision(test.Y, batch.label_scores(test.bags))
    words = make_mimlmix_like("citeseer", 90, random_state=9)
    stream = MIMLMix(**settings).partial_fit(words.bags[:30], words.Y[:30])
    known = len(stream.components_)
    stream.partial_fit(words.bags[30:60], words.Y[30:60]).partial_fit(words.bags[60:], words.Y[60:])
    assert len(stream.components_) > known
    assert np.isfinite(stream.label_scores(words.bags)).all()
    for v in words.bags.view_names:
        p = stream.label_distribution(int(stream.components_[-1]), v)["words"]
        np.testing.assert_allclose(p.sum(), 1.0)


@pytest.mark.parametrize("covariance", ["full", "tied", "diag"])
def test_streams_with_all_covariances(covariance):
    data = make_mimlmix_like("iaprtc", 120, random_state=10)
    model = MIMLMix(**FIXED, covariance=covariance, max_iter=10)
    model.fit(data.bags[:60], data.Y[:60]).partial_fit(data.bags[60:], data.Y[60:])
    assert np.isfinite(model.decision_function(data.bags)).all()


# ---------------------------------------------------------------------- the contract


def test_dense_and_sparse_counts_agree_and_stay_sparse(monkeypatch):
    data = make_mimlmix_like("imageclef", 60, random_state=11)
    dense = MultiViewBags({v: b.with_X(b.X.toarray()) for v, b in data.bags.views.items()})
    expected = MIMLMix(**FIXED, max_iter=5).fit(dense, data.Y).label_scores(dense)

    def refuse(*args, **kwargs):
        raise AssertionError("a count view was made dense")

    monkeypatch.setattr(sparse.csr_array, "toarray", refuse)
    monkeypatch.setattr(sparse.csr_array, "todense", refuse)
    model = MIMLMix(**FIXED, max_iter=5).fit(data.bags, data.Y)
    np.testing.assert_allclose(model.label_scores(data.bags), expected, rtol=1e-8)


def test_labels_may_be_permuted():
    data = make_mimlmix_like("iaprtc", 120, random_state=12)
    order = np.random.default_rng(0).permutation(data.Y.shape[1])
    a = MIMLMix(**FIXED).fit(data.bags, data.Y).label_scores(data.bags)
    b = MIMLMix(**FIXED).fit(data.bags, data.Y[:, order]).label_scores(data.bags)
    np.testing.assert_allclose(a[:, order], b, rtol=1e-6, atol=1e-9)


def test_storage():
    views, Y = two_views(11, n_bags=30)
    bags = MultiViewBags(views)
    model = MIMLMix(**FIXED).fit(bags, Y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.label_scores(bags), model.label_scores(bags))
    stored = skops.io.dumps(model)
    foreign = skops.io.get_untrusted_types(data=stored)
    assert set(foreign) <= {"bagwise.models.mimlmix.estimator.MIMLMix"}
    loaded = skops.io.loads(stored, trusted=foreign)
    np.testing.assert_array_equal(loaded.label_scores(bags), model.label_scores(bags))
    assert clone(model).get_params() == model.get_params()


def test_label_distribution_in_the_units_of_the_data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 2)) * [2.0, 0.5] + [5.0, -3.0]
    bags = Bags(X, np.arange(0, 401, 4))
    for covariance in ("full", "diag"):
        model = MIMLMix(**{**FIXED, "nu": 0.0}, covariance=covariance).fit(bags, np.ones((100, 1), dtype=int))
        found = model.label_distribution(0)
        np.testing.assert_allclose(found["mean"], X.mean(axis=0))
        np.testing.assert_allclose(np.diag(found["covariance"]), X.var(axis=0), rtol=1e-6)


def test_errors_say_what_to_do():
    views, Y = two_views(12, n_bags=20)
    bags = MultiViewBags(views)
    with pytest.raises(ValueError, match="kappa of MIMLMix must be"):
        MIMLMix(kappa=0.0).fit(bags, Y)
    with pytest.raises(ValueError, match="mode of MIMLMix must be"):
        MIMLMix(mode="printed").fit(bags, Y)
    with pytest.raises(DataError, match="negative numbers"):
        MIMLMix(**FIXED, view_kinds={"x": "counts"}).fit(bags, Y)
    with pytest.raises(DataError, match="view_kinds names"):
        MIMLMix(**FIXED, view_kinds={"z": "counts"}).fit(bags, Y)
    model = MIMLMix(**FIXED).fit(bags, Y)
    with pytest.raises(DataError, match="but fit saw"):
        model.predict(MultiViewBags({"x": views["x"]}))
    with pytest.raises(DataError, match="but fit saw"):
        model.predict(Bags(np.ones((1, 9)), [0, 1]))
    with pytest.raises(DataError, match="fit saw a single view"):
        MIMLMix(**FIXED).fit(views["x"], Y).predict(bags)
    with pytest.raises(DataError, match="name one of the views"):
        model.label_distribution(0)


# ---------------------------------------------------------------------- the generator


def test_generator_has_the_published_sizes_and_correlation():
    shapes = {"citeseer": (500, 2000, 2000), "imageclef": (78, 1000, 806), "iaprtc": (244, 28)}
    per_bag = {"citeseer": (35.7, 48.3), "imageclef": (18.4, 2.6), "iaprtc": (5.09,)}
    for size, (n_labels, *widths) in shapes.items():
        data = make_mimlmix_like(size, 300, random_state=0)
        views = data.bags.views.values() if isinstance(data.bags, MultiViewBags) else [data.bags]
        assert data.Y.shape[1] == n_labels
        assert (data.Y.sum(axis=1) >= 1).all()
        assert [b.n_features for b in views] == widths
        for b, mean in zip(views, per_bag[size]):
            assert abs(b.sizes.mean() / mean - 1) < 0.1
    missing = make_mimlmix_like("imageclef", 400, missing=0.5)
    assert abs((~missing.bags.present).any(axis=1).mean() - 0.5) < 0.1
    assert missing.bags.present.any(axis=1).all()
    truth = missing.instance_Y["visual"]
    assert (missing.Y[missing.bags["visual"].index, truth] == 1).all()
    again = make_mimlmix_like("imageclef", 400, missing=0.5)
    assert missing.bags.equals(again.bags)
    with pytest.raises(ValueError, match="size must be one of"):
        make_mimlmix_like("corel")
    harder = make_mimlmix_like("imageclef", 400, noise={"visual": 1.0})
    np.testing.assert_array_equal(harder.Y, make_mimlmix_like("imageclef", 400).Y)
    words = {
        size: make_mimlmix_like("imageclef", 400, noise={"visual": size}).bags["visual"] for size in (0, 1)
    }
    spread = {}
    for size, bags in words.items():  # with noise 1 words say nothing: all labels share their distribution
        label = make_mimlmix_like("imageclef", 400, noise={"visual": size}).instance_Y["visual"]
        means = np.stack([np.asarray(bags.X[label == y].mean(axis=0)).ravel() for y in np.unique(label)[:20]])
        spread[size] = np.abs(means - means.mean(axis=0)).sum(axis=1).mean()
    assert spread[1] < 0.5 * spread[0]
    with pytest.raises(ValueError, match="noise names 'regions'"):
        make_mimlmix_like("iaprtc", 10, noise={"regions": 0.5})
    with pytest.raises(ValueError, match="share between 0 and 1"):
        make_mimlmix_like("imageclef", 10, noise={"visual": 1.5})
