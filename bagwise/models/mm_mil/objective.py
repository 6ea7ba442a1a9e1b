"""The functions that MM-MIL minimises, each as a plain function; equation numbers are those of the paper.

Parameters are a matrix ``P`` of shape (n_features + 1, 2 M): column m is expert ``t_m``, column M + m gate
``w_m``, the last row holds the intercepts, which no penalty touches. ``Phi`` are fixed features of instances:
standardised ones, or those of a kernel (`bagwise.models.mm_mil.fit_features`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, log_expit, log_softmax, logsumexp, softmax

from bagwise.bags import runs
from bagwise.compute.numeric import frozen
from bagwise.compute.segment import segment_argmax
from bagwise.models.mm_mil.kernels import bag_losses

_CHUNK = 1 << 17  # numbers of Phi worked on at a time: they stay in the cache between the two products


def activations(Phi: Any, P: np.ndarray) -> np.ndarray:
    """Activations of experts and gates, (n_instances, 2 M)."""
    return np.asarray(Phi @ P[:-1]) + P[-1]


def log_odds(F: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of p and 1 - p of every instance, Eq. (3) with (4) and (5), never by ``1 - sum``."""
    a, s = np.hsplit(F, 2)
    log_theta = log_softmax(s, axis=1)
    return logsumexp(log_theta + log_expit(a), axis=1), logsumexp(log_theta + log_expit(-a), axis=1)


def penalty(P: np.ndarray, lam: float, beta: float) -> float:
    """Penalty lambda sum |w_m|^2 + beta sum |t_m|^2, without the intercepts."""
    T, W = np.hsplit(P[:-1], 2)
    return lam * float(np.vdot(W, W)) + beta * float(np.vdot(T, T))


def witnesses(F: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Row of the most probably positive instance of each bag, Eq. (8)."""
    log_p, log_n = log_odds(F)
    return segment_argmax(log_p - log_n, offsets)


def objective(
    P: np.ndarray, Phi: Any, offsets: np.ndarray, labels: np.ndarray, lam: float, beta: float
) -> float:
    """Eq. (7): negative log-likelihood with the hard maximum over instances, and penalties."""
    F = activations(Phi, P)
    log_p, log_n = log_odds(F[witnesses(F, offsets)])
    return -float(np.where(labels > 0, log_p, log_n).sum()) + penalty(P, lam, beta)


def log_expert(a: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Give gamma = l ln y + (1 - l) ln(1 - y) of every chosen instance and cluster."""
    return log_expit(np.where(labels[:, None] > 0, a, -a))


def tight_weights(F: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Posterior of clusters given the bag's label: q ~ theta y for positive, theta (1 - y) for negative."""
    a, s = np.hsplit(F, 2)
    return softmax(s + log_expert(a, labels), axis=1)


# ---------------------------------------------------------------------- the sub-problems of EM


def sp1(
    T: np.ndarray, Phi: np.ndarray, labels: np.ndarray, theta: np.ndarray, beta: float
) -> tuple[float, np.ndarray]:
    """Eq. (11): weighted logistic regressions of the experts; value and gradient with respect to ``T``.

    ``Phi`` are the features of the chosen instances, with a constant as last column, whose row of ``T`` is
    not penalised.
    """
    a = Phi @ T
    free = T[:-1]
    value = -(theta * log_expert(a, labels)).sum() + beta * np.vdot(free, free)
    gradient = Phi.T @ (theta * (expit(a) - labels[:, None]))
    gradient[:-1] += 2.0 * beta * free
    return float(value), gradient


def sp2(W: np.ndarray, Phi: np.ndarray, gamma: np.ndarray, lam: float) -> tuple[float, np.ndarray]:
    """Eq. (12) as printed, linear in the gate's probabilities; value and gradient."""
    theta = softmax(Phi @ W, axis=1)
    free = W[:-1]
    each = (theta * gamma).sum(axis=1, keepdims=True)
    gradient = -Phi.T @ (theta * (gamma - each))
    gradient[:-1] += 2.0 * lam * free
    return float(-each.sum() + lam * np.vdot(free, free)), gradient


def sp2_tight(W: np.ndarray, Phi: np.ndarray, q: np.ndarray, lam: float) -> tuple[float, np.ndarray]:
    """Softmax regression of the gate on weights ``q``: what Eq. (12) becomes when the bound is tight."""
    log_theta = Phi @ W
    log_theta -= log_theta.max(axis=1, keepdims=True)
    log_theta -= np.log(np.exp(log_theta).sum(axis=1, keepdims=True))
    free = W[:-1]
    value = lam * np.vdot(free, free) - np.vdot(q, log_theta)
    gradient = Phi.T @ (q.sum(axis=1, keepdims=True) * np.exp(log_theta) - q)
    gradient[:-1] += 2.0 * lam * free
    return float(value), gradient


# ---------------------------------------------------------------------- the smooth objective


class Descended:
    """Eq. (7) with a soft maximum over instances, as SciPy wants it: value and gradient of a flat vector.

    Every evaluation also gives Eq. (7) itself, at no price; the best point met is kept.

    Parameters
    ----------
    losses : callable
        Takes parameters and sharpness, returns the smooth and the hard loss of all bags and the gradient of
        the smooth one, without penalties.
    n_features, n_clusters : int
        Number of features and of experts.
    lam, beta : float
        Penalties of gates and experts.

    Attributes
    ----------
    sharpness : float
        ``v`` of the soft maximum ``(1 / v) log sum exp(v r)``.
    best_value, best : float, ndarray
        Lowest Eq. (7) met so far and where.
    hard : float
        Eq. (7) at the latest evaluation.
    """

    def __init__(self, losses: Any, n_features: int, n_clusters: int, lam: float, beta: float) -> None:
        self.losses = losses
        self.shape = (n_features + 1, 2 * n_clusters)
        self.sharpness = 1.0
        self.hard = self.best_value = np.inf
        self.best: np.ndarray | None = None
        penalties = np.full(self.shape, beta)
        penalties[:, n_clusters:] = lam
        penalties[-1] = 0.0
        self._penalties = penalties

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient at ``P.ravel()``."""
        P = x.reshape(self.shape)
        smooth, hard, gradient = self.losses(P, self.sharpness)
        slope = 2.0 * self._penalties * P
        regular = 0.5 * float(np.vdot(slope, P))
        self.hard = hard + regular
        if self.hard < self.best_value:
            self.best_value, self.best = self.hard, x.copy()
        return smooth + regular, (gradient + slope).ravel()


class BagLosses:
    """Losses of bags in memory and their gradient; see `Descended`.

    Parameters
    ----------
    Phi : array or CSR of shape (n_instances, n_features)
        Fixed features.
    offsets, labels : array
        Bags and their 0/1 labels.
    weights : array of shape (n_bags,), optional
        Weights of bags.
    """

    def __init__(
        self, Phi: Any, offsets: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None
    ) -> None:
        self.Phi = Phi
        self.offsets = frozen(np.asarray(offsets, dtype=np.int64))
        self.labels = frozen(np.asarray(labels, dtype=np.float64))
        self.weights = frozen(np.ones(len(labels)) if weights is None else np.asarray(weights, np.float64))
        n_rows = 1 << 62 if hasattr(Phi, "indptr") else max(1, _CHUNK // max(Phi.shape[1], 1))
        self._chunks = list(runs(self.offsets, n_rows))

    def __call__(self, P: np.ndarray, sharpness: float) -> tuple[float, float, np.ndarray]:
        """Smooth and hard loss, and the gradient of the smooth one."""
        gradient = np.zeros(P.shape)
        smooth, hard = 0.0, 0.0
        for first, last in self._chunks:
            rows = slice(self.offsets[first], self.offsets[last])
            part = self.Phi[rows] if len(self._chunks) > 1 else self.Phi
            F = np.asarray(part @ P[:-1])
            G = np.empty_like(F)
            bags = slice(first, last)
            places = self.offsets[first : last + 1]
            of_bags = self.labels[bags], self.weights[bags]
            values = bag_losses(F, P[-1], places, *of_bags, sharpness, G, gradient[-1])
            smooth += values[0]
            hard += values[1]
            gradient[:-1] += part.T @ G
        return smooth, hard, gradient
