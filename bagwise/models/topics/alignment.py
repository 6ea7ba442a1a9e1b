"""Variational EM of Dirichlet-Bernoulli alignment, one step at a time over all bags.

Symbols: ``phi`` (N, C) probabilities of the components of instances, ``gam`` (B, C) Dirichlet parameters of
bags, ``e`` (B, L) where the logistic bound of Jaakkola and Jordan touches, ``lam`` and ``nu`` (L) the
alignment of labels, ``beta`` (C, V) the words of components, ``a`` the Dirichlet prior. Components are the L
labels that occur and, after them, possibly the background, which is aligned to nothing.

Every step is the maximiser of the bound in one group of its variables, so the bound never falls.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import digamma, gammaln, log_expit

from bagwise.compute.segment import segment_sum

__all__ = ["Alignment", "Bound", "fit_alignment", "infer", "slope_of_bound"]


class Alignment(NamedTuple):
    """Parameters of the model."""

    log_beta: np.ndarray
    lam: np.ndarray
    nu: np.ndarray


class Bound(NamedTuple):
    """Settings that the bound depends on."""

    alpha: float
    smoothing: float
    ridge: float
    intercept: bool


def slope_of_bound(e: np.ndarray) -> np.ndarray:
    """h(e) = tanh(e / 2) / (4 e), 1/8 at 0.

    Examples
    --------
    >>> slope_of_bound(np.array([0.0, 2.0])).round(4)
    array([0.125 , 0.0952])
    """
    small = np.abs(e) < 1e-6
    safe = np.where(small, 1.0, e)
    return np.where(small, 0.125, np.tanh(safe / 2.0) / (4.0 * safe))


class Bags2D:
    """Instances in the order of E-steps: the first of every bag, the second of every bag that has one, ..."""

    def __init__(self, offsets: np.ndarray) -> None:
        self.offsets = offsets
        self.sizes = np.diff(offsets)
        order = np.argsort(-self.sizes, kind="stable")
        self.turns = []
        for k in range(int(self.sizes.max(initial=0))):
            bags = order[: np.count_nonzero(self.sizes > k)]
            self.turns.append((bags, offsets[:-1][bags] + k))


def moments(phi: np.ndarray, bags: Bags2D) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sum of phi, E[zbar] and E[zbar^2] of every bag."""
    total = segment_sum(phi, bags.offsets)
    n = bags.sizes[:, None]
    squares = segment_sum(np.square(phi), bags.offsets)
    return total, total / n, (total + np.square(total) - squares) / np.square(n)


def touching(m: np.ndarray, m2: np.ndarray, lam: np.ndarray, nu: np.ndarray) -> np.ndarray:
    """Best e: e^2 = E[(lam zbar + nu)^2]."""
    return np.sqrt(np.maximum(np.square(lam) * m2 + 2.0 * lam * nu * m + np.square(nu), 0.0))


def e_step(
    log_lik: np.ndarray, bags: Bags2D, Y: np.ndarray, model: Alignment, alpha: float, phi: np.ndarray
) -> np.ndarray:
    """One sweep over all instances, in place, each given the others of its bag; returns gam.

    Bags do not meet, so the k-th instances of all bags are updated together.
    """
    L = Y.shape[1]
    lam, nu = model.lam, model.nu
    total, m, m2 = moments(phi, bags)
    digamma_of = digamma(alpha + total)
    h = slope_of_bound(touching(m[:, :L], m2[:, :L], lam, nu))
    n = bags.sizes[:, None]
    linear = lam * (Y - 0.5) / n - 2.0 * h * lam * nu / n
    square = h * np.square(lam / n)
    for some, rows in bags.turns:
        others = total[some] - phi[rows]
        logs = digamma_of[some] + log_lik[rows]
        logs[:, :L] += linear[some] - square[some] * (1.0 + 2.0 * others[:, :L])
        new = _softmax(logs)
        total[some] = others + new
        phi[rows] = new
    return alpha + segment_sum(phi, bags.offsets)


def m_step(
    counts: Any, phi: np.ndarray, bags: Bags2D, Y: np.ndarray, model: Alignment, settings: Bound
) -> Alignment:
    """Best words of components, then best alignment at the e of the present one."""
    L = Y.shape[1]
    words = np.asarray((counts.T @ phi).T) + settings.smoothing
    log_beta = np.log(words) - np.log(words.sum(axis=1, keepdims=True))
    _, m, m2 = moments(phi, bags)
    m, m2 = m[:, :L], m2[:, :L]
    h = slope_of_bound(touching(m, m2, model.lam, model.nu))
    # the bound is a quadratic form in (lam, nu): solve for its top, with lam at least 0
    a11 = 2.0 * (h * m2).sum(axis=0) + settings.ridge
    a12 = 2.0 * (h * m).sum(axis=0)
    a22 = 2.0 * h.sum(axis=0) + settings.ridge
    b1, b2 = ((Y - 0.5) * m).sum(axis=0), (Y - 0.5).sum(axis=0)
    if not settings.intercept:
        return Alignment(log_beta, np.maximum(b1 / a11, 0.0), np.zeros(L))
    lam = np.maximum((b1 * a22 - b2 * a12) / (a11 * a22 - np.square(a12)), 0.0)
    return Alignment(log_beta, lam, (b2 - a12 * lam) / a22)


def bound(
    log_lik: np.ndarray,
    bags: Bags2D,
    Y: np.ndarray,
    model: Alignment,
    settings: Bound,
    phi: np.ndarray,
    gam: np.ndarray,
) -> float:
    """Lower bound on the logarithm of the probability of words and labels, and the prior's of parameters."""
    L, C, a = Y.shape[1], phi.shape[1], settings.alpha
    lam, nu = model.lam, model.nu
    total, m, m2 = moments(phi, bags)
    m, m2 = m[:, :L], m2[:, :L]
    e = touching(m, m2, lam, nu)
    mean = lam * m + nu
    square = np.square(lam) * m2 + 2.0 * lam * nu * m + np.square(nu)
    labels = log_expit(e) + (Y - 0.5) * mean - e / 2.0 - slope_of_bound(e) * (square - np.square(e))
    logs = digamma(gam) - digamma(gam.sum(axis=1, keepdims=True))
    theta = len(gam) * (gammaln(C * a) - C * gammaln(a)) + ((a - 1.0) * logs).sum()
    entropy = gammaln(gam).sum() - gammaln(gam.sum(axis=1)).sum() - ((gam - 1.0) * logs).sum()
    entropy -= (phi * np.log(np.maximum(phi, 1e-300))).sum()
    prior = settings.smoothing * model.log_beta.sum()
    prior -= 0.5 * settings.ridge * (np.square(lam).sum() + np.square(nu).sum())
    return float(theta + (total * logs).sum() + (phi * log_lik).sum() + labels.sum() + entropy + prior)


def fit_alignment(
    counts: Any,
    offsets: np.ndarray,
    sets: np.ndarray,
    n_labels: int,
    settings: Bound,
    *,
    max_iter: int,
    tol: float,
    max_inner: int,
) -> tuple[Alignment, np.ndarray, np.ndarray]:
    """EM from instances spread evenly over the sets of their bags; model, phi and the history of the bound.

    ``sets`` has a column for each component, the first ``n_labels`` of which are labels.
    """
    bags = Bags2D(offsets)
    Y = sets[:, :n_labels].astype(np.float64)
    phi = np.repeat(sets / sets.sum(axis=1, keepdims=True), bags.sizes, axis=0)
    start = Alignment(np.empty((0, 0)), np.zeros(n_labels), np.zeros(n_labels))
    model = m_step(counts, phi, bags, Y, start, settings)
    history: list[float] = []
    for _ in range(max_iter):
        log_lik = np.asarray(counts @ model.log_beta.T)
        gam = settings.alpha + segment_sum(phi, offsets)
        for _ in range(max_inner):
            before, gam = gam, e_step(log_lik, bags, Y, model, settings.alpha, phi)
            if np.abs(gam - before).mean() < 1e-3:
                break
        history.append(bound(log_lik, bags, Y, model, settings, phi, gam))
        if len(history) > 1 and history[-1] - history[-2] < tol * abs(history[-2]):
            break
        model = m_step(counts, phi, bags, Y, model, settings)
    return model, phi, np.array(history)


def infer(log_lik: np.ndarray, offsets: np.ndarray, alpha: float, max_sweeps: int = 100) -> np.ndarray:
    """Components of the instances of bags whose labels are not known; -inf rules a component out.

    A bag stops when it has settled, whatever the bags around it do.
    """
    sizes, C = np.diff(offsets), log_lik.shape[1]
    index = np.repeat(np.arange(len(sizes)), sizes)
    gam = alpha + np.repeat((sizes / C)[:, None], C, axis=1)
    phi = np.zeros_like(log_lik)
    moving = np.ones(len(sizes), dtype=bool)
    for _ in range(max_sweeps):
        rows = moving[index]
        phi[rows] = _softmax(digamma(gam[index[rows]]) + log_lik[rows])
        new = alpha + segment_sum(phi, offsets)
        moving &= np.abs(new - gam).max(axis=1) > 1e-6 * sizes
        gam = new
        if not moving.any():
            break
    return phi


def _softmax(logs: np.ndarray) -> np.ndarray:
    top = logs.max(axis=1, keepdims=True)
    P = np.exp(logs - np.where(np.isfinite(top), top, 0.0))
    return P / np.maximum(P.sum(axis=1, keepdims=True), 1e-300)
