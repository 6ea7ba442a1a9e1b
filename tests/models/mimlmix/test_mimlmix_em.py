"""E-step, bound and M-step of MIMLmix against plain references."""

import itertools

import numpy as np
import pytest
from mimlmix_problems import FIXED, log_likelihoods, slow_e_step, two_views
from scipy.special import digamma, gammaln, logsumexp
from scipy.stats import multivariate_normal

from bagwise import MultiViewBags
from bagwise.datasets import make_mimlmix_like
from bagwise.models.mimlmix import fit_views, kernels
from bagwise.models.mimlmix.estimator import MIMLMix
from bagwise.models.mimlmix.fit_em import Layout, collect_statistics, together, train, view_weights

# ---------------------------------------------------------------------- small problems


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
    psi = kernels.infer(pairs, flat, alpha, gamma, bounds)
    log_r = kernels.phi(pairs, flat, psi)
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
        some = vars(collect_statistics(layout, weights, 1.0, layout.cold_gamma(1.0, weights), 5, 0.0))
        total = some if total is None else together(total, some)
    np.testing.assert_allclose(total["bound"], all_at_once.bound, rtol=1e-12)
    np.testing.assert_allclose(total["slope"], all_at_once.slope, rtol=1e-10)
    numeric, counts = total["views"]
    np.testing.assert_allclose(counts["S"].toarray(), all_at_once.views[1]["S"].toarray(), atol=1e-12)
    for name in ("mass", "first", "second"):
        np.testing.assert_allclose(numeric[name], all_at_once.views[0][name], atol=1e-12)


def test_equal_words_of_a_bag_may_share_a_row(monkeypatch):
    data = make_mimlmix_like("citeseer", 60, random_state=1)
    settings = {**FIXED, "max_iter": 12}
    fast = MIMLMix(**settings).fit(data.bags, data.Y)
    monkeypatch.setattr(fit_views, "is_token_view", lambda X: False)
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
