"""Log-likelihood of many bags and labels given latent means, with both derivatives in one pass."""

from __future__ import annotations

import math

from numba import njit, prange

__all__ = ["logistic_slopes"]


@njit(cache=True, parallel=True)
def logistic_slopes(y, F, d, W, totals):
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
    for i in prange(F.shape[0]):
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
