"""Small problems of two views for the tests of MIMLmix, and how they are started."""

import numpy as np
from scipy import sparse
from scipy.special import digamma, gammaln, logsumexp
from scipy.stats import multinomial, multivariate_normal

from bagwise import Bags

FIXED = {
    "eta": 3.0,
    "xi": 0.1,
    "kappa": 20.0,
    "nu": 5.0,
    "alpha_train": 2.0,
    "n_topics": 3,
    "random_state": 0,
}


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
