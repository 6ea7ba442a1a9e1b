"""Logistic function of latent values: slopes at given values, Eqs. (16) and (17), and averages, Eq. (25)."""

from __future__ import annotations

import math

import numpy as np

from bagwise.compute.compiled import kernel, part
from bagwise.compute.numeric import frozen
from bagwise.compute.threads import in_threads

__all__ = ["logistic_normal_log_odds", "logistic_slopes"]

_NARROW = 25.0  # variance up to which the sum runs over the Gaussian, beyond it over the logistic density
_REACH = 9.0  # standard deviations: a Gaussian holds 1e-19 beyond
_TAIL = 37.0  # exp(-37) is below half the rounding of 1
_WORTH_A_THREAD = 2000  # integrals, of about a microsecond each


@part
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


@part
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


@kernel
def _log_odds(first, last, mu, variance, out):
    for i in range(first, last):
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
    out = np.empty(mean.size)
    mu = frozen(np.asarray(mean, dtype=np.float64).ravel())
    spread = frozen(np.asarray(variance, dtype=np.float64).ravel())
    in_threads(lambda a, b: _log_odds(a, b, mu, spread, out), out.size, -1, smallest=_WORTH_A_THREAD)
    return out.reshape(mean.shape)


@kernel
def logistic_slopes(first, last, y, F, d, W, totals):
    """Derivatives of log sigma(y f): ``d`` the first, ``W`` minus the second; ``totals`` sum it per bag.

    Parameters
    ----------
    y : (n, Q)
        Labels, -1 or 1.
    F : (n, Q)
        Latent means.
    d, W : (n, Q) and totals : (n,)
        Where to write.
    """
    for i in range(first, last):
        total = 0.0
        for s in range(F.shape[1]):
            t = y[i, s] * F[i, s]
            e = math.exp(-abs(t))
            small = e / (1.0 + e)
            wrong = small if t >= 0.0 else 1.0 - small
            total += min(t, 0.0) - math.log1p(e)
            d[i, s] = y[i, s] * wrong
            W[i, s] = small * (1.0 - small)
        totals[i] = total
