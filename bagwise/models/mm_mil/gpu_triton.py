"""The losses of `gpu` in one loop: every bag and column by a thread of its own, in row order.

On an H200 1.6 to 1.7 times as fast as the same with torch (100,000 bags of 10 instances, 1,500 of 32), 8.7
times for 90 bags of 6; values and gradients 1.58 times, whole fits 1.15 to 1.26 times.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from bagwise.compute.gpu_triton import on_its_gpu

_BLOCK = 64  # bags and columns of one program


@triton.jit
def _odds(F, at, there, Q, M: tl.constexpr, PADDED: tl.constexpr):
    """Log-odds of one instance for every thread, and what its gradient is made of."""
    m = tl.arange(0, PADDED)[:, None]
    places = F + at[None, :] + m * Q
    inside = (m < M) & there[None, :]
    a = tl.load(places, inside, 0.0)
    s = tl.where(m < M, tl.load(places + M * Q, inside, 0.0), -float("inf"))
    e = tl.exp(-tl.abs(a))
    log_1p = libdevice.log1p(e)
    u, w = s + tl.minimum(a, 0.0) - log_1p, s - tl.maximum(a, 0.0) - log_1p
    top_u, top_w = tl.max(u, axis=0), tl.max(w, axis=0)
    plus, minus = tl.exp(u - top_u[None, :]), tl.exp(w - top_w[None, :])
    p, n = tl.sum(plus, axis=0), tl.sum(minus, axis=0)
    r = (top_u + tl.log(p)) - (top_w + tl.log(n))
    large = 1.0 / (1.0 + e)
    y, not_y = tl.where(a >= 0, large, e * large), tl.where(a >= 0, e * large, large)
    plus, minus = plus / p[None, :], minus / n[None, :]
    return r, plus * not_y + minus * y, plus - minus, places, inside


@triton.jit
def _losses_kernel(
    F,
    offsets,
    signs,
    sharpness,
    smooth,
    hard,
    n,
    Q,
    M: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Losses of bags, and the gradient in place of the activations."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    valid = i < n
    bag, column = i // Q, i % Q
    first = tl.load(offsets + bag, valid, 0)
    size = tl.load(offsets + bag + 1, valid, 0) - first
    v, sign = tl.load(sharpness + column, valid, 1.0), tl.load(signs + i, valid, 1.0)
    step = (2 * M) * Q
    start = first * step + column
    most = tl.max(size, axis=0)
    top = tl.full((BLOCK,), -float("inf"), tl.float64)
    total = tl.zeros((BLOCK,), tl.float64)
    for j in range(most):
        there = j < size
        r, _, _, _, _ = _odds(F, start + j * step, there, Q, M, PADDED)
        new = tl.where(there, tl.maximum(top, r), top)
        # of two numbers the larger has the share 1
        ahead = tl.exp(-tl.abs(v * (r - top)))
        grown = tl.where(r > top, total * ahead + 1.0, total + ahead)
        total = tl.where(there, grown, total)
        top = new
    g = top + tl.log(tl.where(size > 0, total, 1.0)) / v
    x, z = sign * g, sign * top
    small = tl.exp(-tl.abs(x))
    tl.store(smooth + i, tl.maximum(x, 0.0) + libdevice.log1p(small), valid)
    tl.store(hard + i, tl.maximum(z, 0.0) + libdevice.log1p(tl.exp(-tl.abs(z))), valid)
    slope = sign * tl.where(x >= 0, 1.0, small) / (1.0 + small) / tl.where(size > 0, total, 1.0)
    for j in range(most):
        there = j < size
        r, for_a, for_s, places, inside = _odds(F, start + j * step, there, Q, M, PADDED)
        share = (slope * tl.exp(v * (r - top)))[None, :]
        tl.store(places, for_a * share, inside)
        tl.store(places + M * Q, for_s * share, inside)


@on_its_gpu
def losses(F: torch.Tensor, offsets: torch.Tensor, signs: torch.Tensor, sharpness: torch.Tensor) -> Any:
    """Smooth and hard losses per column, and the gradient, which is written over the activations."""
    n_bags, Q = signs.shape
    M = F.shape[1] // 2
    smooth, hard = (torch.empty_like(signs) for _ in range(2))
    n = n_bags * Q
    sizes = {"M": M, "PADDED": triton.next_power_of_2(M), "BLOCK": _BLOCK}
    _losses_kernel[(triton.cdiv(n, _BLOCK),)](F, offsets, signs, sharpness, smooth, hard, n, Q, **sizes)
    return smooth.sum(dim=0), hard.sum(dim=0), F
