"""Inclusion and exclusion of ``gpu.py`` in Triton, in three steps over bags with the same number of labels.

Beside torch on an H200 (`benchmarks/triton_or_torch.py`): 6 to 18 times as fast for sets of 1 to 8 labels,
34 to 45 for 10 and 12; a value and gradient of 500,000 bags 4.3 times, their whole fit 1.5 to 1.7 times.

First every instance: its prior, and its softmax within the labels of its bag. Then every bag: a set of
labels is a cell (high, low) of a table, so that the mass q of an instance in every set is a sum of two short
vectors, and sums over the sets with a label are sums along one side of the table; two passes over the
instances give the products F of all sets, then posteriors. Last these are added to the residuals. The softmax
is in single precision, everything over sets in double.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from bagwise.compute.gpu_triton import on_its_gpu

_CELLS = 2048  # logits of one program of the first step
_FEW = 4  # labels up to which several bags go together,
_SETS = 512  # with so many sets
_BLOCK = 256  # posteriors of one program
_AT_ONCE = 10  # labels up to which posteriors of all of them are found at once


@triton.jit
def _restrict_kernel(
    logits,
    out,
    rows,
    slots,
    labels,
    weights,
    r,
    log_mass,
    n,
    n_classes,
    N_LABELS: tl.constexpr,
    CLASSES: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Minus weight times prior; softmax within the labels, not normalised, and log of their mass."""
    i = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there = i < n
    at = tl.load(rows + i, there, 0) * n_classes
    slot = tl.load(slots + i, there, 0)
    columns = tl.arange(0, CLASSES)
    kept = there[:, None] & (columns < n_classes)[None, :]
    x = tl.load(logits + at[:, None] + columns[None, :], kept, -float("inf"))
    top = tl.where(there, tl.max(x, axis=1), 0.0)
    e = tl.exp(x - top[:, None])
    total = tl.where(there, tl.sum(e, axis=1), 1.0)
    weight = tl.load(weights + slot, there, 0.0).to(tl.float32)
    tl.store(out + at[:, None] + columns[None, :], e * (-weight / total)[:, None], kept)
    slot = slot * N_LABELS
    best = tl.full((ROWS,), -float("inf"), tl.float32)
    for c in tl.static_range(N_LABELS):
        best = tl.maximum(best, tl.load(logits + at + tl.load(labels + slot + c, there, 0), there, 0.0))
    mass = tl.zeros((ROWS,), tl.float32)
    for c in tl.static_range(N_LABELS):
        share = tl.exp(tl.load(logits + at + tl.load(labels + slot + c, there, 0), there, 0.0) - best)
        mass += share
        tl.store(r + i * N_LABELS + c, share, there)
    tl.store(log_mass + i, (best - top - tl.log(total)) + tl.log(mass), there)


@triton.jit
def _reciprocals(q):
    """One over numbers of at least 1e-30, by one step of Newton's: dividing doubles takes far longer."""
    guess = tl.inline_asm_elementwise(
        "rcp.approx.ftz.f64 $0, $1;", "=d,d", [q], dtype=tl.float64, is_pure=True, pack=1
    )
    return guess * (2.0 - q * guess)


@triton.jit
def _few_masses(r, at, there, sets, K: tl.constexpr, BACKGROUND: tl.constexpr):
    """Mass of one instance of every bag in every set, at least 1e-30, and one over its mass in all."""
    total = there.to(tl.float64) * 0.0
    q = there.to(tl.float64)[:, None] * sets.to(tl.float64)[None, :] * 0.0 + 1e-30
    for c in tl.static_range(K + BACKGROUND):
        mass = tl.load(r + at + c, there, 1.0).to(tl.float64)
        total += mass
        if c == K:
            q += mass[:, None]
        else:
            q += tl.where((((sets >> c) & 1) == 1)[None, :], mass[:, None], 0.0)
    share = _reciprocals(total)
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
        g = F * _reciprocals(q)
        for c in tl.static_range(N_LABELS):
            mass = tl.load(r + at + c, there, 0.0).to(tl.float64) * share
            if c == K:
                total = tl.sum(g, axis=1)
            else:
                total = tl.sum(tl.where((((sets >> c) & 1) == 1)[None, :], g, 0.0), axis=1)
            tl.store(J + at + c, tl.maximum(mass * total, 0.0).to(tl.float32), there)


@triton.jit
def _masses(r, at, low, high, K: tl.constexpr, BACKGROUND: tl.constexpr, LOW: tl.constexpr):
    """Mass of one instance in every set, of which the background is always part; at least about 1e-30."""
    q_low = tl.zeros_like(low).to(tl.float64) + 1e-30
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
    return (q_high * share)[:, None] + (q_low * share)[None, :], share


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
    PADDED: tl.constexpr,
    AT_ONCE: tl.constexpr,
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
    labels = tl.arange(0, PADDED)
    each = labels[:, None]  # sets with a label are those with its bit in low or in high
    in_low = ((each < LOW) & (((low[None, :] >> each) & 1) == 1)) | (each == K)
    in_high = (each >= LOW) & (each < K) & (((high[None, :] >> tl.maximum(each - LOW, 0)) & 1) == 1)
    for i in range(first, last):
        q, share = _masses(r, i * N_LABELS, low, high, K, BACKGROUND, LOW)
        g = F * _reciprocals(q)
        by_low, by_high = tl.sum(g, axis=0), tl.sum(g, axis=1)
        share *= share_of_cover
        at = i * N_LABELS
        if K <= AT_ONCE:
            inside = tl.sum(tl.where(in_low, by_low[None, :], 0.0), axis=1)
            inside += tl.sum(tl.where(in_high, by_high[None, :], 0.0), axis=1)
            mass = tl.load(r + at + labels, labels < N_LABELS, 0.0).to(tl.float64) * share
            tl.store(J + at + labels, tl.maximum(mass * inside, 0.0).to(tl.float32), labels < N_LABELS)
        else:  # tables of all labels leave no registers for the sets
            for c in tl.static_range(N_LABELS):
                tl.store(J + at + c, _posterior(r, at, share, by_low, by_high, low, high, c, K, LOW))


@triton.jit
def _posterior(r, at, share, by_low, by_high, low, high, C: tl.constexpr, K: tl.constexpr, LOW: tl.constexpr):
    """Posterior of one label at one instance."""
    if C == K:
        inside = tl.sum(by_low, axis=0)
    elif C < LOW:
        inside = tl.sum(tl.where(((low >> C) & 1) == 1, by_low, 0.0), axis=0)
    else:
        inside = tl.sum(tl.where(((high >> (C - LOW)) & 1) == 1, by_high, 0.0), axis=0)
    return tl.maximum(tl.load(r + at + C).to(tl.float64) * share * inside, 0.0).to(tl.float32)


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


@on_its_gpu
def residuals(logits: torch.Tensor, group: Any, out: torch.Tensor) -> torch.Tensor:
    """Residuals of one group; the log-likelihood of each bag, NaN where it is left."""
    from bagwise.models.ored.gpu import needed_cover

    k, n, n_rows, n_classes = group.n_labels, len(group.bags), len(group.rows), logits.shape[1]
    n_labels, device = k + group.background, logits.device
    loglik = torch.empty(n, dtype=torch.float64, device=device)
    r, J = (torch.empty((n_rows, n_labels), device=device) for _ in range(2))
    log_mass = torch.empty(n_rows, device=device)
    where = group.rows, group.slots, group.labels, group.weights
    classes = triton.next_power_of_2(n_classes)
    rows = max(1, _CELLS // classes)
    grid, of_rows = (triton.cdiv(n_rows, rows),), {"N_LABELS": n_labels, "CLASSES": classes, "ROWS": rows}
    _restrict_kernel[grid](logits, out, *where, r, log_mass, n_rows, n_classes, **of_rows)
    base = float(needed_cover(0.0, k))
    limits = float(needed_cover(1.0, k)) - base, base
    given, sizes = (r, J, log_mass, group.bounds, loglik), {"K": k, "BACKGROUND": int(group.background)}
    if k <= _FEW:
        bags = _SETS >> k
        _few_cover_kernel[(triton.cdiv(n, bags),)](*given, n, *limits, **sizes, BAGS=bags)
    else:
        low = k - k // 2 + (k >= 10)
        sizes |= {"LOW": low, "HIGH": k - low, "PADDED": triton.next_power_of_2(n_labels)}
        _cover_kernel[(n,)](*given, *limits, **sizes, AT_ONCE=_AT_ONCE, num_warps=1)
    n_cells = n_rows * n_labels
    _posterior_kernel[(triton.cdiv(n_cells, _BLOCK),)](
        out, *where, J, n_cells, n_classes, N_LABELS=n_labels, BLOCK=_BLOCK
    )
    return loglik
