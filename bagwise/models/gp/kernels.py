"""Labels from latent values: logistic likelihoods with slopes and curvature, averages, maxima within bags.

Compiled loops, and the two likelihoods that are made of them: slopes at given values, Eqs. (16) and (17),
averages over Gaussian values, Eq. (25), the smooth maximum, Eq. (38), and drawn maxima, Eq. (45).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import expit, log_expit

from bagwise.compute.aligned import frozen
from bagwise.compute.compiled import kernel, part
from bagwise.compute.numeric import reordered_dot, splitmix64
from bagwise.compute.threads import in_threads

_NARROW = 25.0  # variance up to which the sum runs over the Gaussian, beyond it over the logistic density
_REACH = 9.0  # standard deviations: a Gaussian holds 1e-19 beyond
_TAIL = 37.0  # exp(-37) is below half the rounding of 1
_WORTH_A_THREAD = 2000  # integrals, of about a microsecond each
_MANY = 100_000  # latent values from which waking threads pays


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
    """Log-odds of the mean of sigma(f) over Gaussian f, accurate far into both tails; any shape.

    log(p / (1 - p)) with p = E[sigma(f)] has the sign of ``mean``.
    """
    out = np.empty(mean.size)
    mu = frozen(np.asarray(mean, dtype=np.float64).ravel())
    spread = frozen(np.asarray(variance, dtype=np.float64).ravel())
    in_threads(lambda a, b: _log_odds(a, b, mu, spread, out), out.size, -1, smallest=_WORTH_A_THREAD)
    return out.reshape(mean.shape)


@kernel
def logistic_slopes(first, last, y, F, d, W, totals):
    """Derivatives of log sigma(y f): ``d`` the first, ``W`` minus the second; ``totals`` sum it per bag.

    ``y`` (n, Q) are labels, -1 or 1, ``F`` (n, Q) latent means.
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


# ---------------------------------------------------------------------- maxima within bags


# One thread: Newton's method calls this hundreds of times on small arrays, and waking threads took longer
# than the work.
@kernel
def smooth_maximum(F, offsets, v, top, pi):
    """Write log(sum_j exp(v f_j)) / v of each bag and label to ``top`` and the softmax of v f to ``pi``.

    ``F`` (N, Q) are latent values of the instances of bags of which none is empty.
    """
    n_labels = F.shape[1]
    total = np.empty(n_labels)
    for b in range(offsets.size - 1):
        lo, hi = offsets[b], offsets[b + 1]
        for s in range(n_labels):
            top[b, s] = F[lo, s]
            total[s] = 0.0
        for i in range(lo + 1, hi):
            for s in range(n_labels):
                top[b, s] = max(top[b, s], F[i, s])
        for i in range(lo, hi):
            for s in range(n_labels):
                e = math.exp(v * (F[i, s] - top[b, s]))
                pi[i, s] = e
                total[s] += e
        for i in range(lo, hi):
            for s in range(n_labels):
                pi[i, s] /= total[s]
        for s in range(n_labels):
            top[b, s] += math.log(total[s]) / v


@part
def _triangle(P, T, noise, lo, n, L):
    """Cholesky factor of the covariance ``T P' + diag(noise)`` of the rows of one bag.

    A row that the earlier ones determine but for rounding gets a zero on the diagonal.
    """
    m = P.shape[1]
    for j in range(n):
        own = reordered_dot(T[lo + j], P[lo + j], m) + noise[lo + j]
        for k in range(j):
            rest = reordered_dot(T[lo + j], P[lo + k], m)
            for i in range(k):
                rest -= L[j, i] * L[k, i]
            L[j, k] = rest / L[k, k] if L[k, k] > 0.0 else 0.0
        left = own
        for k in range(j):
            left -= L[j, k] * L[j, k]
        L[j, j] = math.sqrt(left) if left > 1e-12 * own else 0.0


@part
def _mean_sigmas(top):
    """Averages of sigma(x) and sigma(-x), each from small exponentials."""
    yes, no = 0.0, 0.0
    for s in range(top.size):
        e = math.exp(-abs(top[s]))
        small, large = e / (1.0 + e), 1.0 / (1.0 + e)
        yes += large if top[s] >= 0.0 else small
        no += small if top[s] >= 0.0 else large
    return yes / top.size, no / top.size


@kernel
def mean_logistic_of_max(first, last, mean, P, T, noise, offsets, Z, yes, no):
    """Average sigma(max_j f_j) and sigma(-max_j f_j) of bags ``first`` to ``last`` over draws, one label.

    ``mean`` (N,) of the latent values of instances, those that matter most first in each bag; features ``P``
    and, times the covariance of the weights, ``T`` (N, m); ``noise`` (N,), the variance of what the features
    leave unexplained, independent between instances; standard normal draws ``Z`` (largest bag, n_draws).
    """
    largest, n_draws = Z.shape
    L, f, top = np.empty((largest, largest)), np.empty(n_draws), np.empty(n_draws)
    for b in range(first, last):
        lo, n = offsets[b], offsets[b + 1] - offsets[b]
        _triangle(P, T, noise, lo, n, L)
        for s in range(n_draws):
            top[s] = mean[lo] + L[0, 0] * Z[0, s]
        for j in range(1, n):
            for s in range(n_draws):
                f[s] = mean[lo + j]
            for k in range(j + 1):
                c = L[j, k]
                for s in range(n_draws):
                    f[s] += c * Z[k, s]
            for s in range(n_draws):
                top[s] = max(top[s], f[s])
        yes[b], no[b] = _mean_sigmas(top)


@kernel
def largest_of_draws(first, last, F, spread, row, top):
    """Raise ``top`` of draws ``first`` to ``last`` to the largest latent value of some instances of a bag.

    ``F`` (n_draws, n) are latent values without what the features leave unexplained, which is drawn here,
    with standard deviations ``spread`` (n,). ``row`` is the number of the first of these instances in its
    bag: an instance has the same draws in any block.
    """
    state = np.empty(1, dtype=np.uint64)
    scale = 2.0**-53
    for s in range(first, last):
        for i in range(F.shape[1]):
            if F[s, i] + 8.7 * spread[i] <= top[s]:  # no draw of 53 bits lies further out
                continue
            state[0] = (np.uint64(row + i) << np.uint64(24)) ^ np.uint64(s)
            u = (float(splitmix64(state) >> np.uint64(11)) + 0.5) * scale
            v = (float(splitmix64(state) >> np.uint64(11)) + 0.5) * scale
            normal = math.sqrt(-2.0 * math.log(u)) * math.cos(2.0 * math.pi * v)
            top[s] = max(top[s], F[s, i] + spread[i] * normal)


# ---------------------------------------------------------------------- likelihoods
# Both classes offer the same four methods, so that the solvers know nothing of the assumption. Rows of ``F``
# are bags for `CollectiveLikelihood` (latent means of bags) and instances for `StandardLikelihood`.


class CollectiveLikelihood:
    """Eq. (9): sigma of the mean of the latent values of a bag, one row of ``F`` per bag."""

    def __init__(self, Y: np.ndarray) -> None:
        self.y = 2.0 * Y - 1.0

    def slopes(self, F: np.ndarray) -> tuple[float, np.ndarray, Any]:
        """Log-likelihood, its gradient (d of Eq. (16) with means for sums), and W_0 of Eq. (17)."""
        if F.size > _MANY:
            d, W, totals = np.empty(F.shape), np.empty(F.shape), np.empty(len(F))
            y, F = frozen(self.y), frozen(F)
            in_threads(
                lambda a, b: logistic_slopes(a, b, y, F, d, W, totals),
                len(F),
                -1,
                smallest=_MANY // F.shape[1],
            )
            return float(totals.sum()), d, W
        agreement = self.y * F
        wrong = expit(-agreement)
        return float(log_expit(agreement).sum()), self.y * wrong, wrong * expit(agreement)

    def bend(self, W: np.ndarray, V: np.ndarray) -> np.ndarray:
        """Curvature times a direction."""
        return W * V

    def gram(self, W: np.ndarray, Z: np.ndarray, s: int) -> np.ndarray:
        """Z' W_s Z of one label."""
        R = Z * np.sqrt(W[:, s, None])
        return R.T @ R

    def gram_diagonal(self, W: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """Diagonals of Z' W_s Z, shape (m, Q)."""
        return (Z**2).T @ W


class StandardLikelihood:
    """Eq. (40): sigma of the smooth maximum of the latent values of a bag, one row of ``F`` per instance.

    The curvature of a negative bag is whole; that of a positive bag leaves out the second derivative of
    the smooth maximum, the only term that is not positive semi-definite.
    """

    def __init__(self, Y: np.ndarray, offsets: np.ndarray, sharpness: float) -> None:
        self.y = 2.0 * Y - 1.0
        self.offsets = frozen(offsets)
        self.index = np.repeat(np.arange(len(Y)), np.diff(offsets))
        self.v = float(sharpness)

    def _sums(self, weight: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """Weighted sums of the rows of each bag."""
        n = len(self.index)
        return sparse.csr_array((weight, np.arange(n), self.offsets), shape=(len(self.y), n)) @ Z

    def slopes(self, F: np.ndarray) -> tuple[float, np.ndarray, Any]:
        """Log-likelihood, its gradient (Eq. (46)), and what `bend` needs."""
        g, pi = np.empty(self.y.shape), np.empty(F.shape)
        smooth_maximum(frozen(F), self.offsets, self.v, g, pi)
        agreement = self.y * g
        d = self.y * expit(-agreement)
        a = expit(g) * expit(-g)
        h = np.where(self.y < 0, self.v * expit(g), 0.0)
        return float(log_expit(agreement).sum()), d[self.index] * pi, (pi, a - h, h)

    def bend(self, state: Any, V: np.ndarray) -> np.ndarray:
        """Curvature times a direction: h (diag(pi) - pi pi') + a pi pi', bag by bag."""
        pi, rest, h = state
        along = pi * V
        inner = rest * self._sums(np.ones(len(along)), along)
        return h[self.index] * along + pi * inner[self.index]

    def gram(self, state: Any, Z: np.ndarray, s: int) -> np.ndarray:
        """Z' C_s Z of one label."""
        pi, rest, h = state
        weight = h[self.index, s] * pi[:, s]
        held = np.flatnonzero(weight > 1e-14 * max(weight.max(), 1e-300))  # negative bags only
        R = Z[held] * np.sqrt(weight[held, None])
        means = self._sums(pi[:, s], Z)
        return R.T @ R + (means.T * rest[:, s]) @ means

    def gram_diagonal(self, state: Any, Z: np.ndarray) -> np.ndarray:
        """Diagonals of Z' C_s Z, shape (m, Q)."""
        pi, rest, h = state
        out = (Z**2).T @ (h[self.index] * pi)
        for s in range(pi.shape[1]):
            out[:, s] += (self._sums(pi[:, s], Z) ** 2).T @ rest[:, s]
        return np.maximum(out, 0.0)
