"""Large systems ``A x = y`` of MIML-GP by conjugate gradients, and what their diagonal blocks tell.

Written once for arrays and for tensors: ``xp`` is NumPy or torch, which call these operations by the same
names.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["block_preconditioner", "block_traces", "solve_many"]


def block_preconditioner(diagonals: Any, L: Any, xp: Any = np) -> tuple[Any, float]:
    """Inverses of the diagonal blocks M_k = I + L diag(Z' C_s Z)_kk L of ``A``, and their log-determinant."""
    M = xp.matmul(L[None] * diagonals[:, None, :], L) + xp.diag(0.0 * L[0] + 1.0)
    C = xp.linalg.cholesky(M)
    log_det = 2.0 * float(xp.log(xp.einsum("kaa->ka", C)).sum())
    return xp.linalg.inv(M), log_det


def solve_many(
    bend: Any, L: Any, right: Any, inverses: Any, rtol: float, max_steps: int = 200, xp: Any = np
) -> Any:
    """Preconditioned conjugate gradients on ``A x = right`` for right sides of shape (r, m, Q).

    ``bend`` gives Z' C Z v of directions of that shape.
    """

    def product(x: Any) -> Any:
        return x + bend(x @ L) @ L

    def precondition(x: Any) -> Any:
        return xp.matmul(inverses, x[..., None])[..., 0]

    def dots(x: Any, y: Any) -> Any:
        return xp.einsum("rkq,rkq->r", x, y)[:, None, None]

    def ratio(a: Any, b: Any) -> Any:
        return xp.where(b > 0, a, 0.0 * a) / xp.where(b > 0, b, 0.0 * b + 1.0)

    x = precondition(right)
    residual = right - product(x)
    z = precondition(residual)
    step, rho = z, dots(residual, z)
    goal = rtol**2 * dots(right, right)
    for _ in range(max_steps):
        if bool((dots(residual, residual) <= goal).all()):
            break
        A_step = product(step)
        alpha = ratio(rho, dots(step, A_step))
        x = x + alpha * step
        residual = residual - alpha * A_step
        z = precondition(residual)
        rho, old = dots(residual, z), rho
        step = z + ratio(rho, old) * step
    return x


def block_traces(
    diagonals: Any, L: Any, bend: Any = None, probes: Any = None, xp: Any = np
) -> tuple[Any, float, Any, Any]:
    """Sum of the inverse blocks, log-determinant, variances, and what probes say that the blocks miss."""
    inverses, log_det = block_preconditioner(diagonals, L, xp)
    missing = None
    if probes is not None and len(probes):
        x = solve_many(bend, L, probes, inverses, rtol=0.05, max_steps=10, xp=xp)
        x = x - xp.matmul(inverses, probes[..., None])[..., 0]
        missing = xp.einsum("rka,rkb->ab", x, probes) / len(probes)
    variances = (xp.matmul(L, inverses) * L).sum(-1)
    return inverses.sum(0), log_det, variances, missing
