"""Eq. (7) of MM-MIL and EM: the hard choice of one instance per bag, then experts and gates in turn.

Each function that is minimised is a plain function; equation numbers are those of the paper. Parameters are a
matrix ``P`` of shape (n_features + 1, 2 M): column m is expert ``t_m``, column M + m gate ``w_m``, the last
row holds the intercepts, which no penalty touches. ``Phi`` are fixed features of instances: standardised
ones, or those of a kernel (`bagwise.models.mm_mil.fit_features`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, log_expit, log_softmax, logsumexp, softmax

from bagwise.compute.optim import minimise
from bagwise.compute.segment import segment_argmax

_INNER = 10  # alternations of SP1 and SP2 for one choice of instances
_SUB_ITERATIONS = 50  # of L-BFGS in one sub-problem


class Solution(NamedTuple):
    """Best parameters met, Eq. (7) there, and how the solver came to them.

    ``history`` is Eq. (7) at the start, after every iteration, and at ``P``; ``at_rest`` says whether the
    solver stopped by itself.
    """

    P: np.ndarray
    value: float
    history: list[float]
    at_rest: bool


def activations(Phi: Any, P: np.ndarray) -> np.ndarray:
    """Activations of experts and gates, (n_instances, 2 M)."""
    return np.asarray(Phi @ P[:-1]) + P[-1]


def dense_rows(Phi: Any, rows: np.ndarray) -> np.ndarray:
    """Features of some instances, as an array."""
    return Phi[rows].toarray() if hasattr(Phi, "indptr") else Phi[rows]


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


# ---------------------------------------------------------------------- the alternation


def solve_em(
    data: tuple[Any, np.ndarray, np.ndarray, float, float],
    P: np.ndarray,
    max_iter: int,
    tol: float,
    *,
    printed: bool,
) -> Solution:
    """Hard E-step, Eq. (8), from ``P`` on, then SP1 and SP2 in turn on the chosen instances.

    ``data`` is what `objective` takes after the parameters; ``max_iter`` limits the choices of instances, and
    ``tol`` is the relative change of the sub-problems below which their alternation stops. ``printed``:
    Eqs. (11) and (12) as they stand, weights the gate's probabilities; otherwise the weights for which the
    bound touches Eq. (9), which makes SP2 a softmax regression.
    """
    Phi, offsets, labels, lam, beta = data
    best, value = P, objective(P, *data)
    history = [value]
    seen: set[bytes] = set()
    at_rest = False
    for _ in range(max_iter):
        rows = witnesses(activations(Phi, P), offsets)
        at_rest = rows.tobytes() in seen  # a fixed point, or a cycle of choices
        if at_rest:
            break
        seen.add(rows.tobytes())
        Z = np.column_stack([dense_rows(Phi, rows), np.ones(len(rows))])
        P = _m_step(P, Z, labels, lam, beta, tol, printed)
        history.append(objective(P, *data))
        if history[-1] < value:
            best, value = P, history[-1]
    return Solution(best, value, [*history, value], at_rest)


def _m_step(
    P: np.ndarray, Z: np.ndarray, labels: np.ndarray, lam: float, beta: float, tol: float, printed: bool
) -> np.ndarray:
    """SP1 and SP2 in turn until their sum rests; ``Z`` are the chosen instances with a constant column."""
    T, W = np.hsplit(P, 2)
    before = np.inf
    for _ in range(_INNER):
        F = Z @ np.hstack([T, W])
        if printed:
            theta = softmax(F[:, T.shape[1] :], axis=1)
            T = _minimised(sp1, T, Z, labels, theta, beta)[0]
            W, now = _minimised(sp2, W, Z, log_expert(Z @ T, labels), lam)
        else:
            q = tight_weights(F, labels)
            T, of_experts = _minimised(sp1, T, Z, labels, q, beta)
            W, now = _minimised(sp2_tight, W, Z, q, lam)
            now += of_experts
        if abs(before - now) <= tol * max(abs(now), 1.0):
            break
        before = now
    return np.hstack([T, W])


def _minimised(
    function: Callable[..., tuple[float, np.ndarray]], start: np.ndarray, *given: Any
) -> tuple[np.ndarray, float]:
    """Where a sub-problem, a function of a matrix and of what is given, is lowest, and its value there."""
    return minimise(lambda M: function(M, *given), start, max_iter=_SUB_ITERATIONS)[:2]
