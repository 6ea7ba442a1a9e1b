"""The loop of ``union_torch.py`` for a card: one program for some bags with the same number of labels.

Two passes over the instances of a bag: the products F of all sets of labels, then posteriors and residuals.
The softmax is taken in single precision, everything over sets in double. With few labels every set is a
column, and labels are gone through one by one. With many, a set is a cell (high, low) of a table, so that the
mass q of an instance in every set is a sum of two short vectors, and sums over the sets with a label are sums
along one side of the table.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

_FEW = 5  # labels up to which sets are columns
_CELLS = 512  # cells of the sets of one program, where bags have fewer
_LOGITS = 4096  # of one program


@triton.jit
def _quotients(F, q):
    """F / q by one step of Newton's from single precision: a division of doubles takes far longer."""
    some = q > 1e-30
    q = tl.where(some, q, 1.0)
    guess = (1.0 / q.to(tl.float32)).to(tl.float64)
    return tl.where(some, F * (guess * (2.0 - q * guess)), 0.0)


@triton.jit
def _few_row(logits, at, there, columns, n_classes, some_labels, N_LABELS: tl.constexpr):
    """Softmax of one instance of every bag; of its labels the largest logit, one over their mass, its log."""
    x = tl.load(
        logits + at[:, None] + columns[None, :],
        there[:, None] & (columns < n_classes)[None, :],
        -float("inf"),
    )
    top = tl.where(there, tl.max(x, axis=1), 0.0)
    p = tl.exp(x - top[:, None])
    total = tl.where(there, tl.sum(p, axis=1), 1.0)
    best = tl.full(at.shape, -float("inf"), tl.float32)
    for c in tl.static_range(N_LABELS):
        best = tl.maximum(best, tl.load(logits + at + tl.load(some_labels + c), there, 0.0))
    mass = tl.zeros(at.shape, tl.float64)
    for c in tl.static_range(N_LABELS):
        mass += tl.exp(tl.load(logits + at + tl.load(some_labels + c), there, 0.0) - best).to(tl.float64)
    log_mass = (best - top) + tl.log(mass.to(tl.float32)) - tl.log(total)
    return p / total[:, None], best, 1.0 / mass, log_mass


@triton.jit
def _few_kernel(
    logits,
    out,
    starts,
    sizes,
    all_labels,
    weights,
    loglik,
    n_bags,
    n_classes,
    limit_slope,
    limit_base,
    K: tl.constexpr,
    BACKGROUND: tl.constexpr,
    CLASSES: tl.constexpr,
    BAGS: tl.constexpr,
):
    N_LABELS: tl.constexpr = K + BACKGROUND
    b = tl.program_id(0) * BAGS + tl.arange(0, BAGS)
    inside = b < n_bags
    b = tl.where(inside, b, 0)
    start = tl.load(starts + b)
    n = tl.where(inside, tl.load(sizes + b), 0)
    weight = tl.load(weights + b).to(tl.float32)
    most = tl.max(n, axis=0)
    columns, sets = tl.arange(0, CLASSES), tl.arange(0, 1 << K)
    some_labels = all_labels + b * N_LABELS
    signs = tl.full((1 << K,), 1.0 - 2.0 * (K % 2), tl.float64)
    for c in tl.static_range(K):
        signs = tl.where(((sets >> c) & 1) == 1, -signs, signs)

    F = tl.full((BAGS, 1 << K), 1.0, tl.float64)
    log_p = tl.zeros((BAGS,), tl.float64)
    for i in range(most):
        there = inside & (i < n)
        at = (start + i) * n_classes
        _p, best, share, log_mass = _few_row(logits, at, there, columns, n_classes, some_labels, N_LABELS)
        q = tl.zeros((BAGS, 1 << K), tl.float64)
        for c in tl.static_range(N_LABELS):
            r = tl.exp(tl.load(logits + at + tl.load(some_labels + c), there, 0.0) - best).to(tl.float64)
            q += tl.where((((sets >> c) & 1) == 1)[None, :] | (c == K), r[:, None], 0.0)
        F *= tl.where(there[:, None], q * share[:, None], 1.0)
        log_p += tl.where(there, log_mass, 0.0).to(tl.float64)
    magnitude = tl.sum(F, axis=1)
    F *= signs[None, :]
    cover = tl.sum(F, axis=1)
    fine = cover > (limit_slope * n + limit_base) * magnitude
    found = tl.where(fine, log_p + tl.log(tl.where(fine, cover, 1.0)), float("nan"))
    tl.store(loglik + b, found, inside)

    for i in range(most):
        there = inside & (i < n)
        at = (start + i) * n_classes
        p, best, share, log_mass = _few_row(logits, at, there, columns, n_classes, some_labels, N_LABELS)
        q = tl.zeros((BAGS, 1 << K), tl.float64)
        for c in tl.static_range(N_LABELS):
            r = tl.exp(tl.load(logits + at + tl.load(some_labels + c), there, 0.0) - best).to(tl.float64)
            q += tl.where((((sets >> c) & 1) == 1)[None, :] | (c == K), r[:, None], 0.0)
        g = _quotients(F, q * share[:, None])
        total = tl.zeros((BAGS,), tl.float64)
        Q = tl.zeros((BAGS, CLASSES), tl.float32)
        for c in tl.static_range(N_LABELS):
            label = tl.load(some_labels + c)
            r = tl.exp(tl.load(logits + at + label, there, 0.0) - best).to(tl.float64)
            with_c = (((sets >> c) & 1) == 1)[None, :] | (c == K)
            J = tl.maximum(r * tl.sum(tl.where(with_c, g, 0.0), axis=1), 0.0)
            total += J
            Q = tl.where(columns[None, :] == label[:, None], J.to(tl.float32)[:, None], Q)
        Q = Q / tl.where(total > 0.0, total, 1.0).to(tl.float32)[:, None]
        kept = there[:, None] & (columns < n_classes)[None, :]
        tl.store(out + at[:, None] + columns[None, :], weight[:, None] * (Q - p), kept)


@triton.jit
def _row(logits, at, n_classes, labels, there, columns, is_label):
    """Largest logit and sum of exponentials, and the distribution over the labels with its log mass."""
    inside_row = there[:, None] & (columns < n_classes)[None, :]
    x = tl.load(logits + at[:, None] + columns[None, :], inside_row, -float("inf"))
    top = tl.where(there, tl.max(x, axis=1), 0.0)
    e = tl.exp(x - top[:, None])
    total = tl.sum(e, axis=1)
    wanted = there[:, None] & is_label[None, :]
    y = tl.load(logits + at[:, None] + labels, wanted, -float("inf"))
    best = tl.where(there, tl.max(y, axis=1), 0.0)
    r = tl.where(wanted, tl.exp(y - best[:, None]), 0.0).to(tl.float64)
    mass = tl.sum(r, axis=1)
    mass = tl.where(there, mass, 1.0)
    log_mass = (best - top) + tl.log(mass.to(tl.float32)) - tl.log(tl.where(there, total, 1.0))
    return e / tl.where(there, total, 1.0)[:, None], r / mass[:, None], log_mass


@triton.jit
def _residual_kernel(
    logits,
    out,
    starts,
    sizes,
    all_labels,
    weights,
    loglik,
    n_bags,
    n_classes,
    limit_slope,
    limit_base,
    K: tl.constexpr,
    BACKGROUND: tl.constexpr,
    LOW: tl.constexpr,
    HIGH: tl.constexpr,
    LABELS: tl.constexpr,
    CLASSES: tl.constexpr,
    BAGS: tl.constexpr,
):
    b = tl.program_id(0) * BAGS + tl.arange(0, BAGS)
    inside = b < n_bags
    start = tl.load(starts + b, inside, 0)
    n = tl.load(sizes + b, inside, 0)
    weight = tl.load(weights + b, inside, 0.0)
    most = tl.max(n, axis=0)
    columns = tl.arange(0, CLASSES)
    c = tl.arange(0, LABELS)
    is_label = c < K + BACKGROUND
    labels = tl.load(
        all_labels + b[:, None] * (K + BACKGROUND) + c[None, :], inside[:, None] & is_label[None, :], 0
    )
    low, high = tl.arange(0, 1 << LOW), tl.arange(0, 1 << HIGH)
    # which labels are in which sets; the background is in all of them
    always = (c == K) if BACKGROUND else (c < 0)
    in_low = (((low[None, :] >> c[:, None]) & 1) == 1) & (c < LOW)[:, None] | always[:, None]
    shift = tl.where(c >= LOW, c - LOW, 0)
    in_high = (((high[None, :] >> shift[:, None]) & 1) == 1) & ((c >= LOW) & (c < K))[:, None]
    in_low, in_high = in_low.to(tl.float64), in_high.to(tl.float64)
    low_size = tl.sum(tl.where((c < LOW)[:, None], in_low, 0.0), axis=0)
    high_size = tl.sum(in_high, axis=0)
    odd = (K - low_size[None, :] - high_size[:, None]).to(tl.int32) & 1
    signs = tl.where(odd == 1, -1.0, 1.0).to(tl.float64)

    F = tl.full((BAGS, 1 << HIGH, 1 << LOW), 1.0, tl.float64)
    log_p = tl.zeros((BAGS,), tl.float64)
    for i in range(most):
        there = inside & (i < n)
        at = (start + i) * n_classes
        p, r, log_mass = _row(logits, at, n_classes, labels, there, columns, is_label)
        q_low = tl.sum(r[:, :, None] * in_low[None, :, :], axis=1)
        q_high = tl.sum(r[:, :, None] * in_high[None, :, :], axis=1)
        q = q_high[:, :, None] + q_low[:, None, :]
        F *= tl.where(there[:, None, None], q, 1.0)
        log_p += tl.where(there, log_mass, 0.0).to(tl.float64)
    magnitude = tl.sum(tl.sum(F, axis=2), axis=1)
    F *= signs[None, :, :]
    cover = tl.sum(tl.sum(F, axis=2), axis=1)
    fine = cover > (limit_slope * n + limit_base) * magnitude
    nan = float("nan")
    tl.store(loglik + b, tl.where(fine, log_p + tl.log(tl.where(fine, cover, 1.0)), nan), inside)

    for i in range(most):
        there = inside & (i < n)
        at = (start + i) * n_classes
        p, r, log_mass = _row(logits, at, n_classes, labels, there, columns, is_label)
        q_low = tl.sum(r[:, :, None] * in_low[None, :, :], axis=1)
        q_high = tl.sum(r[:, :, None] * in_high[None, :, :], axis=1)
        q = q_high[:, :, None] + q_low[:, None, :]
        g = _quotients(F, q)
        by_low, by_high = tl.sum(g, axis=1), tl.sum(g, axis=2)
        J = tl.sum(by_low[:, None, :] * in_low[None, :, :], axis=2)
        J += tl.sum(by_high[:, None, :] * in_high[None, :, :], axis=2)
        J = tl.maximum(r * J, 0.0)
        total = tl.sum(J, axis=1)
        J = J / tl.where(total > 0.0, total, 1.0)[:, None]
        same = (labels[:, :, None] == columns[None, None, :]) & is_label[None, :, None]
        Q = tl.sum(tl.where(same, J.to(tl.float32)[:, :, None], 0.0), axis=1)
        residual = weight.to(tl.float32)[:, None] * (Q - p)
        tl.store(
            out + at[:, None] + columns[None, :], residual, there[:, None] & (columns < n_classes)[None, :]
        )


def residuals(logits: torch.Tensor, group: Any, out: torch.Tensor) -> torch.Tensor:
    """Residuals of one group; the log-likelihood of each bag, NaN where it is left."""
    from bagwise.models.ored.union_torch import needed_cover

    k, n, n_classes = group.n_labels, len(group.bags), logits.shape[1]
    loglik = torch.empty(n, dtype=torch.float64, device=logits.device)
    base = float(needed_cover(0.0, k))
    limits = float(needed_cover(1.0, k)) - base, base
    classes = triton.next_power_of_2(n_classes)
    bags = max(1, min(_CELLS >> k, _LOGITS // classes))
    low = (k + 1) // 2
    given = group.starts, group.sizes, group.labels, group.weights
    sizes = {"K": k, "BACKGROUND": int(group.background), "CLASSES": classes, "BAGS": bags}
    if k > _FEW:
        labels = triton.next_power_of_2(k + group.background)
        sizes |= {"LOW": low, "HIGH": k - low, "LABELS": labels}
    kernel = _few_kernel if k <= _FEW else _residual_kernel
    kernel[(triton.cdiv(n, bags),)](logits, out, *given, loglik, n, n_classes, *limits, **sizes, num_warps=4)
    return loglik
