"""Averages of the logistic function over Gaussian latent values: Eqs. (25) and (45) of MIML-GP."""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

__all__ = ["logistic_normal_log_odds", "mean_logistic_of_max"]

_NARROW = 25.0  # variance up to which the sum runs over the Gaussian, beyond it over the logistic density
_REACH = 9.0  # standard deviations: a Gaussian holds 1e-19 beyond
_TAIL = 37.0  # exp(-37) is below half the rounding of 1


@njit(cache=True)
def _log_mean_narrow(mu, sd):
    """Sum exp(-t^2 / 2) sigma(mu + sd t) over equal steps; mu <= 0."""
    # Equal steps converge like exp(-2 pi * distance to the nearest pole / step); sigma has poles at +-i pi.
    step = min(0.5, 0.65 / sd) if sd > 0.0 else 0.5
    n = int((2.0 * _REACH + sd) / step) + 1
    total = 0.0
    for i in range(n + 1):
        t = -_REACH + i * step
        total += math.exp(-0.5 * t * t) / (1.0 + math.exp(-(mu + sd * t)))
    return math.log(total * step / math.sqrt(2.0 * math.pi))


@njit(cache=True)
def _log_mean_wide(mu, sd):
    """Sum sigma'(u) Phi((mu - u) / sd) over equal steps, the same integral by parts; mu <= 0."""
    step = 0.5
    low = min(-_TAIL, mu + sd * sd - _REACH * sd)
    n = int((_TAIL - low) / step) + 1
    total = 0.0
    for i in range(n + 1):
        u = low + i * step
        e = math.exp(-abs(u))
        total += e / (1.0 + e) ** 2 * 0.5 * math.erfc((u - mu) / (sd * math.sqrt(2.0)))
    if total < 1e-290:  # beyond 36 standard deviations: the first term of the tail of a Gaussian
        z = mu / sd
        return -0.5 * z * z - math.log(-z * math.sqrt(2.0 * math.pi))
    return math.log(total * step)


@njit(cache=True, parallel=True)
def _log_odds(mu, variance, out):
    for i in prange(mu.size):
        m, v = -abs(mu[i]), max(variance[i], 0.0)
        sd = math.sqrt(v)
        if m + v < -_REACH * sd - _TAIL:  # sigma(f) is exp(f) wherever it matters
            log_q = m + 0.5 * v
        elif v <= _NARROW:
            log_q = _log_mean_narrow(m, sd)
        else:
            log_q = _log_mean_wide(m, sd)
        odds = math.log1p(-math.exp(log_q)) - log_q
        if mu[i] == 0.0:
            odds = 0.0
        out[i] = odds if mu[i] >= 0.0 else -odds


def logistic_normal_log_odds(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Log-odds of the mean of sigma(f) over Gaussian f, accurate far into both tails.

    Parameters
    ----------
    mean, variance : arrays of the same shape
        Of the latent values.

    Returns
    -------
    ndarray of that shape
        log(p / (1 - p)) with p = E[sigma(f)]; it has the sign of ``mean``.

    Examples
    --------
    >>> import numpy as np
    >>> logistic_normal_log_odds(np.array([2.0, 2.0, -2.0]), np.array([0.0, 4.0, 4.0])).round(4)
    array([ 2.    ,  1.2379, -1.2379])
    """
    out = np.empty(mean.shape)
    flat = np.ascontiguousarray(mean, dtype=np.float64).ravel()
    _log_odds(flat, np.ascontiguousarray(variance, dtype=np.float64).ravel(), out.ravel())
    return out


@njit(cache=True)
def _sigma(x):
    e = math.exp(-abs(x))
    return 1.0 / (1.0 + e) if x >= 0.0 else e / (1.0 + e)


@njit(cache=True, parallel=True)
def mean_logistic_of_max(F, spread, offsets, nodes, weights, yes, no):
    """Average sigma(max_j f_j) and sigma(-max_j f_j) over draws, one label.

    Parameters
    ----------
    F : (N, S)
        Latent values of the instances, one column per draw of the weights.
    spread : (N,)
        Standard deviation of what the features leave unexplained, independent between instances.
    offsets : (n + 1,)
        Bags.
    nodes, weights : (k,)
        Thresholds t and the mass that the logistic density has around each.
    yes, no : (n,)
        Where to write the two averages.
    """
    n_draws = F.shape[1]
    for b in prange(offsets.size - 1):
        lo, hi = offsets[b], offsets[b + 1]
        widest = 0.0
        for i in range(lo, hi):
            widest = max(widest, spread[i])
        positive = 0.0
        negative = 0.0
        for s in range(n_draws):
            if widest < 1e-3:
                top = F[lo, s]
                for i in range(lo + 1, hi):
                    top = max(top, F[i, s])
                positive += _sigma(top)
                negative += _sigma(-top)
                continue
            # E sigma(M) = integral of sigma'(t) P(M > t) dt, and P(M <= t) is a product over instances
            for k in range(nodes.size):
                below = 1.0
                for i in range(lo, hi):
                    gap = nodes[k] - F[i, s]
                    if spread[i] < 1e-6:
                        below *= 1.0 if gap >= 0.0 else 0.0
                    else:
                        below *= 0.5 * math.erfc(-gap / (spread[i] * math.sqrt(2.0)))
                    if below < 1e-12:
                        break
                positive += weights[k] * (1.0 - below)
                negative += weights[k] * below
        yes[b] = positive / n_draws
        no[b] = negative / n_draws
