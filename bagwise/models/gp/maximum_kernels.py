"""Smooth maximum of latent values within bags, Eq. (38) of MIML-GP, and its gradient in one pass."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

__all__ = ["smooth_maximum"]


# One thread: Newton's method calls this hundreds of times on small arrays, and waking threads took longer
# than the work.
@njit(cache=True)
def smooth_maximum(F, offsets, v, top, pi):
    """Write log(sum_j exp(v f_j)) / v of each bag and label to ``top`` and the softmax of v f to ``pi``.

    Parameters
    ----------
    F : (N, Q)
        Latent values of instances.
    offsets : (n + 1,)
        Bags, none of them empty.
    v : float
        Sharpness.
    top : (n, Q) and pi : (N, Q)
        Where to write.
    """
    n_labels = F.shape[1]
    total = np.empty(n_labels)
    for b in range(offsets.size - 1):
        lo, hi = offsets[b], offsets[b + 1]
        best = top[b]
        best[:] = F[lo]
        for i in range(lo + 1, hi):
            for s in range(n_labels):
                best[s] = max(best[s], F[i, s])
        total[:] = 0.0
        for i in range(lo, hi):
            for s in range(n_labels):
                e = math.exp(v * (F[i, s] - best[s]))
                pi[i, s] = e
                total[s] += e
        for i in range(lo, hi):
            for s in range(n_labels):
                pi[i, s] /= total[s]
        for s in range(n_labels):
            best[s] += math.log(total[s]) / v
