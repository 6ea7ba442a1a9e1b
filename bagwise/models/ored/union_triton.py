"""The loops of ``union_torch.py`` for a card, in three steps over the bags with the same number of labels.

First every instance, one per thread: its softmax within the labels of its bag, and the logarithms. Then every
bag: a set of labels is a cell (high, low) of a table, so that the mass q of an instance in every set is a sum
of two short vectors, and sums over the sets with a label are sums along one side of the table; two passes
over the instances give the products F of all sets, then posteriors. Last the residuals. The softmax is in
single precision, everything over sets in double.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

_ROWS = 128  # instances of one program of the first step
_CELLS = 2048  # residuals of one program of the last


@triton.jit
def _restrict_kernel(
    logits, rows, slots, labels, r, log_z, log_mass, n, n_classes, N_LABELS: tl.constexpr, ROWS: tl.constexpr
):
    """Softmax within the labels, log of the normaliser and log of the mass of the labels."""
    i = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there = i < n
    at = tl.load(rows + i, there, 0) * n_classes
    slot = tl.load(slots + i, there, 0) * N_LABELS
    top = tl.full((ROWS,), -float("inf"), tl.float32)
    for c in range(n_classes):
        top = tl.maximum(top, tl.load(logits + at + c, there, 0.0))
    total = tl.zeros((ROWS,), tl.float32)
    for c in range(n_classes):
        total += tl.exp(tl.load(logits + at + c, there, 0.0) - top)
    z = top + tl.log(total)
    best = tl.full((ROWS,), -float("inf"), tl.float32)
    for c in tl.static_range(N_LABELS):
        best = tl.maximum(best, tl.load(logits + at + tl.load(labels + slot + c, there, 0), there, 0.0))
    mass = tl.zeros((ROWS,), tl.float32)
    for c in tl.static_range(N_LABELS):
        e = tl.exp(tl.load(logits + at + tl.load(labels + slot + c, there, 0), there, 0.0) - best)
        mass += e
        tl.store(r + i * N_LABELS + c, e, there)
    tl.store(log_z + i, z, there)
    tl.store(log_mass + i, (best - z) + tl.log(mass), there)


@triton.jit
def _masses(r, at, low, high, K: tl.constexpr, BACKGROUND: tl.constexpr, LOW: tl.constexpr):
    """Mass of one instance in every set, of which the background is always part."""
    q_low = tl.zeros_like(low).to(tl.float64)
    q_high = tl.zeros_like(high).to(tl.float64)
    total = tl.load(r + at + K).to(tl.float64) if BACKGROUND else tl.load(r + at).to(tl.float64) * 0.0
    q_low += total
    for c in tl.static_range(K):
        mass = tl.load(r + at + c).to(tl.float64)
        total += mass
        if c < LOW:
            q_low += tl.where(((low >> c) & 1) == 1, mass, 0.0)
        else:
            q_high += tl.where(((high >> (c - LOW)) & 1) == 1, mass, 0.0)
    share = 1.0 / total
    return (q_high[:, None] + q_low[None, :]) * share, share


@triton.jit
def _cover_kernel(
    r,
    J,
    log_mass,
    bounds,
    loglik,
    limit_slope,
    limit_base,
    K: tl.constexpr,
    BACKGROUND: tl.constexpr,
    LOW: tl.constexpr,
    HIGH: tl.constexpr,
):
    """Log-likelihood of one bag, NaN where it is not precise, and posteriors of its instances."""
    N_LABELS: tl.constexpr = K + BACKGROUND
    b = tl.program_id(0)
    first, last = tl.load(bounds + b), tl.load(bounds + b + 1)
    low, high = tl.arange(0, 1 << LOW), tl.arange(0, 1 << HIGH)
    odd = tl.zeros((1 << HIGH, 1 << LOW), tl.int32) + K % 2
    for c in tl.static_range(LOW):
        odd ^= ((low >> c) & 1)[None, :]
    for c in tl.static_range(HIGH):
        odd ^= ((high >> c) & 1)[:, None]

    F = tl.full((1 << HIGH, 1 << LOW), 1.0, tl.float64)
    log_p = tl.load(log_mass + first).to(tl.float64) * 0.0
    for i in range(first, last):
        q, _ = _masses(r, i * N_LABELS, low, high, K, BACKGROUND, LOW)
        F *= q
        log_p += tl.load(log_mass + i).to(tl.float64)
    magnitude = tl.sum(tl.sum(F, axis=1), axis=0)
    F = tl.where(odd == 1, -F, F)
    cover = tl.sum(tl.sum(F, axis=1), axis=0)
    fine = cover > (limit_slope * (last - first) + limit_base) * magnitude
    tl.store(loglik + b, tl.where(fine, log_p + tl.log(tl.where(fine, cover, 1.0)), float("nan")))

    share_of_cover = 1.0 / tl.where(fine, cover, 1.0)
    for i in range(first, last):
        q, share = _masses(r, i * N_LABELS, low, high, K, BACKGROUND, LOW)
        # a quotient by one step of Newton's from single precision: a division of doubles takes far longer
        some = q > 1e-30
        q = tl.where(some, q, 1.0)
        guess = (1.0 / q.to(tl.float32)).to(tl.float64)
        g = tl.where(some, F * (guess * (2.0 - q * guess)), 0.0)
        by_low, by_high = tl.sum(g, axis=0), tl.sum(g, axis=1)
        share *= share_of_cover
        for c in tl.static_range(N_LABELS):
            mass = tl.load(r + i * N_LABELS + c).to(tl.float64) * share
            if c == K:
                inside = tl.sum(by_low, axis=0)
            elif c < LOW:
                inside = tl.sum(tl.where(((low >> c) & 1) == 1, by_low, 0.0), axis=0)
            else:
                inside = tl.sum(tl.where(((high >> (c - LOW)) & 1) == 1, by_high, 0.0), axis=0)
            tl.store(J + i * N_LABELS + c, tl.maximum(mass * inside, 0.0).to(tl.float32))


@triton.jit
def _write_kernel(
    logits,
    out,
    rows,
    slots,
    labels,
    weights,
    J,
    log_z,
    n,
    n_classes,
    N_LABELS: tl.constexpr,
    CLASSES: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Write weight * (posterior - prior) of every instance."""
    i = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there = i < n
    columns = tl.arange(0, CLASSES)
    at = (tl.load(rows + i, there, 0) * n_classes)[:, None] + columns[None, :]
    slot = tl.load(slots + i, there, 0)
    kept = there[:, None] & (columns < n_classes)[None, :]
    residual = -tl.exp(tl.load(logits + at, kept, 0.0) - tl.load(log_z + i, there, 0.0)[:, None])
    for c in tl.static_range(N_LABELS):
        label = tl.load(labels + slot * N_LABELS + c, there, 0)
        posterior = tl.load(J + i * N_LABELS + c, there, 0.0)
        residual += tl.where(columns[None, :] == label[:, None], posterior[:, None], 0.0)
    weight = tl.load(weights + slot, there, 0.0).to(tl.float32)
    tl.store(out + at, weight[:, None] * residual, kept)


def residuals(logits: torch.Tensor, group: Any, out: torch.Tensor) -> torch.Tensor:
    """Residuals of one group; the log-likelihood of each bag, NaN where it is left."""
    from bagwise.models.ored.union_torch import needed_cover

    k, n, n_rows, n_classes = group.n_labels, len(group.bags), len(group.rows), logits.shape[1]
    n_labels, low, device = k + group.background, (k + 1) // 2, logits.device
    loglik = torch.empty(n, dtype=torch.float64, device=device)
    r, J = (torch.empty((n_rows, n_labels), device=device) for _ in range(2))
    log_z, log_mass = (torch.empty(n_rows, device=device) for _ in range(2))
    where = group.rows, group.slots, group.labels
    _restrict_kernel[(triton.cdiv(n_rows, _ROWS),)](
        logits, *where, r, log_z, log_mass, n_rows, n_classes, N_LABELS=n_labels, ROWS=_ROWS
    )
    base = float(needed_cover(0.0, k))
    limits = float(needed_cover(1.0, k)) - base, base
    _cover_kernel[(n,)](
        r,
        J,
        log_mass,
        group.bounds,
        loglik,
        *limits,
        K=k,
        BACKGROUND=int(group.background),
        LOW=low,
        HIGH=k - low,
        num_warps=1 if k <= 8 else 4,
    )
    classes = triton.next_power_of_2(n_classes)
    rows = max(1, _CELLS // classes)
    _write_kernel[(triton.cdiv(n_rows, rows),)](
        logits,
        out,
        *where,
        group.weights,
        J,
        log_z,
        n_rows,
        n_classes,
        N_LABELS=n_labels,
        CLASSES=classes,
        ROWS=rows,
    )
    return loglik
