"""The loops of ``union_torch.py`` for a card, in three steps over the bags with the same number of labels.

First every instance: its softmax within the labels of its bag, and the logarithms. Then every
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

_CELLS = 2048  # logits of one program of the first and the last step
_FEW = 5  # labels up to which several bags go together,
_SETS = 512  # with so many sets
_BLOCK = 256  # posteriors of one program


@triton.jit
def _restrict_kernel(
    logits,
    rows,
    slots,
    labels,
    r,
    log_z,
    log_mass,
    n,
    n_classes,
    N_LABELS: tl.constexpr,
    CLASSES: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Softmax within the labels, not normalised, log of the normaliser and of the mass of the labels."""
    i = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there = i < n
    at = tl.load(rows + i, there, 0) * n_classes
    slot = tl.load(slots + i, there, 0) * N_LABELS
    columns = tl.arange(0, CLASSES)
    kept = there[:, None] & (columns < n_classes)[None, :]
    x = tl.load(logits + at[:, None] + columns[None, :], kept, -float("inf"))
    top = tl.where(there, tl.max(x, axis=1), 0.0)
    z = top + tl.log(tl.where(there, tl.sum(tl.exp(x - top[:, None]), axis=1), 1.0))
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
def _quotients(F, q):
    """F / q by one step of Newton's from single precision: a division of doubles takes far longer."""
    some = q > 1e-30
    q = tl.where(some, q, 1.0)
    guess = (1.0 / q.to(tl.float32)).to(tl.float64)
    return tl.where(some, F * (guess * (2.0 - q * guess)), 0.0)


@triton.jit
def _few_masses(r, at, there, sets, K: tl.constexpr, BACKGROUND: tl.constexpr):
    """Mass of one instance of every bag in every set, and one over its mass in all."""
    total = there.to(tl.float64) * 0.0
    q = there.to(tl.float64)[:, None] * sets.to(tl.float64)[None, :] * 0.0
    for c in tl.static_range(K + BACKGROUND):
        mass = tl.load(r + at + c, there, 1.0).to(tl.float64)
        total += mass
        if c == K:
            q += mass[:, None]
        else:
            q += tl.where((((sets >> c) & 1) == 1)[None, :], mass[:, None], 0.0)
    guess = (1.0 / total.to(tl.float32)).to(tl.float64)
    share = guess * (2.0 - total * guess)
    share = share * (2.0 - total * share)
    return q * share[:, None], share


@triton.jit
def _few_cover_kernel(
    r,
    J,
    log_mass,
    bounds,
    loglik,
    n_bags,
    limit_slope,
    limit_base,
    K: tl.constexpr,
    BACKGROUND: tl.constexpr,
    BAGS: tl.constexpr,
):
    """What `_cover_kernel` does, for several bags with few labels, whose sets are columns."""
    N_LABELS: tl.constexpr = K + BACKGROUND
    b = tl.program_id(0) * BAGS + tl.arange(0, BAGS)
    inside = b < n_bags
    first = tl.load(bounds + b, inside, 0)
    n = tl.load(bounds + b + 1, inside, 0) - first
    most = tl.max(n, axis=0)
    sets = tl.arange(0, 1 << K)
    signs = tl.full((1 << K,), 1.0 - 2.0 * (K % 2), tl.float64)
    for c in tl.static_range(K):
        signs = tl.where(((sets >> c) & 1) == 1, -signs, signs)
    F = tl.full((BAGS, 1 << K), 1.0, tl.float64)
    log_p = tl.zeros((BAGS,), tl.float64)
    for i in range(most):
        there = i < n
        q, _ = _few_masses(r, (first + i) * N_LABELS, there, sets, K, BACKGROUND)
        F *= tl.where(there[:, None], q, 1.0)
        log_p += tl.load(log_mass + first + i, there, 0.0).to(tl.float64)
    magnitude = tl.sum(F, axis=1)
    F *= signs[None, :]
    cover = tl.sum(F, axis=1)
    fine = cover > (limit_slope * n + limit_base) * magnitude
    tl.store(loglik + b, tl.where(fine, log_p + tl.log(tl.where(fine, cover, 1.0)), float("nan")), inside)
    F = F * (1.0 / tl.where(fine, cover, 1.0))[:, None]
    for i in range(most):
        there = i < n
        at = (first + i) * N_LABELS
        q, share = _few_masses(r, at, there, sets, K, BACKGROUND)
        g = _quotients(F, q)
        for c in tl.static_range(N_LABELS):
            mass = tl.load(r + at + c, there, 0.0).to(tl.float64) * share
            if c == K:
                total = tl.sum(g, axis=1)
            else:
                total = tl.sum(tl.where((((sets >> c) & 1) == 1)[None, :], g, 0.0), axis=1)
            tl.store(J + at + c, tl.maximum(mass * total, 0.0).to(tl.float32), there)


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
        g = _quotients(F, q)
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
def _prior_kernel(
    logits, out, rows, slots, weights, log_z, n, n_classes, CLASSES: tl.constexpr, ROWS: tl.constexpr
):
    """Write minus weight times prior of every instance."""
    i = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there = i < n
    columns = tl.arange(0, CLASSES)
    at = (tl.load(rows + i, there, 0) * n_classes)[:, None] + columns[None, :]
    weight = tl.load(weights + tl.load(slots + i, there, 0), there, 0.0).to(tl.float32)
    z = tl.load(log_z + i, there, 0.0)
    kept = there[:, None] & (columns < n_classes)[None, :]
    tl.store(out + at, -weight[:, None] * tl.exp(tl.load(logits + at, kept, 0.0) - z[:, None]), kept)


@triton.jit
def _posterior_kernel(
    out, rows, slots, labels, weights, J, n, n_classes, N_LABELS: tl.constexpr, BLOCK: tl.constexpr
):
    """Add weight times posterior; every instance and label has a place of its own."""
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = e < n
    i, c = e // N_LABELS, e % N_LABELS
    slot = tl.load(slots + i, there, 0)
    label = tl.load(labels + slot * N_LABELS + c, there, 0)
    at = out + tl.load(rows + i, there, 0) * n_classes + label
    weight = tl.load(weights + slot, there, 0.0).to(tl.float32)
    posterior = tl.load(J + e, there, 0.0)
    tl.store(at, tl.load(at, there, 0.0) + weight * posterior, there)


def residuals(logits: torch.Tensor, group: Any, out: torch.Tensor) -> torch.Tensor:
    """Residuals of one group; the log-likelihood of each bag, NaN where it is left."""
    from bagwise.models.ored.union_torch import needed_cover

    k, n, n_rows, n_classes = group.n_labels, len(group.bags), len(group.rows), logits.shape[1]
    n_labels, device = k + group.background, logits.device
    loglik = torch.empty(n, dtype=torch.float64, device=device)
    r, J = (torch.empty((n_rows, n_labels), device=device) for _ in range(2))
    log_z, log_mass = (torch.empty(n_rows, device=device) for _ in range(2))
    where = group.rows, group.slots, group.labels
    classes = triton.next_power_of_2(n_classes)
    rows = max(1, _CELLS // classes)
    of_rows = {"N_LABELS": n_labels, "CLASSES": classes, "ROWS": rows}
    grid = (triton.cdiv(n_rows, rows),)
    _restrict_kernel[grid](logits, *where, r, log_z, log_mass, n_rows, n_classes, **of_rows)
    base = float(needed_cover(0.0, k))
    limits = float(needed_cover(1.0, k)) - base, base
    given, sizes = (r, J, log_mass, group.bounds, loglik), {"K": k, "BACKGROUND": int(group.background)}
    if k <= _FEW:
        bags = _SETS >> k
        _few_cover_kernel[(triton.cdiv(n, bags),)](*given, n, *limits, **sizes, BAGS=bags)
    else:
        low = (k + 1) // 2 + (k >= 10)
        _cover_kernel[(n,)](*given, *limits, **sizes, LOW=low, HIGH=k - low, num_warps=1)
    _prior_kernel[grid](
        logits, out, *where[:2], group.weights, log_z, n_rows, n_classes, CLASSES=classes, ROWS=rows
    )
    n_cells = n_rows * n_labels
    _posterior_kernel[(triton.cdiv(n_cells, _BLOCK),)](
        out, *where, group.weights, J, n_cells, n_classes, N_LABELS=n_labels, BLOCK=_BLOCK
    )
    return loglik
