"""Triton kernels in place of rows of small operations of torch, which ``gpu.py`` falls back to.

Every program writes places of its own; nothing is added by atomic operations. Beside torch on an H200
(`benchmarks/triton_or_torch.py`, recorded batches of 510 bags): best scores 23, slopes 8, use 6 and Adam 14
times as fast; a pass over 30,000 bags 3.0 times, a whole fit 2.1 times.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from bagwise.compute.gpu_triton import on_its_gpu

_COLUMNS = 128


@triton.jit
def _best_kernel(
    S, offsets, counts, best, which, source, n_all, K: tl.constexpr, ALL: tl.constexpr, COLUMNS: tl.constexpr
):
    """Largest score of every label in a bag, with its sub-concept and the first instance that has it."""
    b = tl.program_id(0)
    labels = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    there = labels < n_all
    first, last = tl.load(offsets + b), tl.load(offsets + b + 1)
    real = tl.load(counts + b).to(tl.int32) != 0
    last = tl.where(real, last, first)
    top = tl.full((COLUMNS,), -float("inf"), tl.float32)
    k_of, row_of = tl.zeros((COLUMNS,), tl.int64), tl.zeros((COLUMNS,), tl.int64) + first
    for k in tl.static_range(K):
        for row in range(first, last):
            s = tl.load(S + row * (K * n_all) + k * n_all + labels, there, -float("inf"))
            better = s > top
            top = tl.where(better, s, top)
            k_of = tl.where(better, k, k_of)
            row_of = tl.where(better, row, row_of)
    top = tl.where(last > first, top, 0.0)
    at = b * n_all + labels
    tl.store(best + at, top, there)
    tl.store(which + at, k_of, there)
    tl.store(source + at, row_of, there)


@triton.jit
def _slopes_kernel(best, which, source, relevant, counts, harmonic, G, losses, n_all, K, ALL: tl.constexpr):
    """Slopes of the scores of one bag by exact ranks, Eq. (5), where they belong, and its loss.

    The dummy comes last. A slope goes to the instance and sub-concept that the score is of.
    """
    b = tl.program_id(0)
    c = tl.arange(0, ALL)
    there = c < n_all
    dummy = c == n_all - 1
    real = tl.load(counts + b).to(tl.int32) != 0
    f = tl.load(best + b * n_all + c, there, 0.0)
    given = (tl.load(relevant + b * n_all + c, there, 0).to(tl.int32) != 0) & there & real
    ranked = (given | dummy) & real & there
    violates = (there & ~given & ~dummy & real)[None, :] | (dummy[None, :] & ~dummy[:, None])
    wrong = (f[None, :] > f[:, None] - 1.0) & violates & ranked[:, None]
    rank = tl.sum(wrong.to(tl.int32), axis=1)
    H = tl.load(harmonic + rank)
    weight = H / tl.maximum(rank, 1).to(tl.float32)
    slope = tl.sum(tl.where(wrong, weight[:, None], 0.0), axis=0) - H
    at = b * n_all + c
    row, k = tl.load(source + at, there, 0), tl.load(which + at, there, 0)
    tl.store(G + (row * K + k) * n_all + c, slope, there & (c * 0 + real.to(tl.int32) > 0))
    tl.store(losses + b, tl.sum((H + slope * f).to(tl.float64), axis=0))


@triton.jit
def _used_kernel(which, relevant, counts, used, n_bags, n_all, K: tl.constexpr, BAGS: tl.constexpr):
    """How often each sub-concept of one label is its best, in bags that carry it; the dummy is in all."""
    label = tl.program_id(0)
    for k in tl.static_range(K):
        total = tl.zeros((BAGS,), tl.int32)
        for first in range(0, n_bags, BAGS):
            b = first + tl.arange(0, BAGS)
            there = b < n_bags
            carried = (tl.load(relevant + b * n_all + label, there, 0).to(tl.int32) != 0) | (
                label == n_all - 1
            )
            real = tl.load(counts + b, there, 0).to(tl.int32) != 0
            chosen = tl.load(which + b * n_all + label, there, -1) == k
            total += (carried & real & chosen).to(tl.int32)
        tl.store(used + label * K + k, tl.sum(total, axis=0).to(tl.int64))


@triton.jit
def _adam_kernel(
    x, g, mean, square, constants, step, max_norm, BETA1, BETA2, TINY, WIDTH: tl.constexpr, M: tl.constexpr
):
    """One row: Adam's step and the cap on its length."""
    row = tl.program_id(0)
    c = tl.arange(0, WIDTH)
    there = c < M
    at = row * M + c
    t = tl.load(step) * 4
    rate, by_mean = tl.load(constants + t), tl.load(constants + t + 1)
    by_square, share = tl.load(constants + t + 2), tl.load(constants + t + 3)
    slope = tl.load(g + at, there, 0.0) * share
    m = BETA1 * tl.load(mean + at, there, 0.0) + (1.0 - BETA1) * slope
    v = BETA2 * tl.load(square + at, there, 0.0) + (1.0 - BETA2) * slope * slope
    new = tl.load(x + at, there, 0.0) - rate * (m * by_mean) / (tl.sqrt(v * by_square) + TINY)
    norm = tl.sqrt(tl.sum(tl.where(there, new * new, 0.0), axis=0))
    new = new * tl.minimum(max_norm / tl.maximum(norm, 1e-30), 1.0)
    tl.store(x + at, new, there)
    tl.store(mean + at, m, there)
    tl.store(square + at, v, there)


@on_its_gpu
def best_of_bags(S: Any, offsets: Any, counts: Any, K: int, n_all: int) -> tuple[Any, Any, Any]:
    """Best score, sub-concept and row for every bag and label; bags that do not count have scores of 0."""
    n = len(offsets) - 1
    best = torch.empty((n, n_all), device=S.device)
    which, source = (torch.empty((n, n_all), dtype=torch.int64, device=S.device) for _ in range(2))
    grid = (n, triton.cdiv(n_all, _COLUMNS))
    _best_kernel[grid](S, offsets, counts, best, which, source, n_all, K=K, ALL=n_all, COLUMNS=_COLUMNS)
    return best, which, source


@on_its_gpu
def slopes_to(G: Any, best: Any, which: Any, source: Any, relevant: Any, counts: Any, harmonic: Any) -> Any:
    """Write the slopes of all scores to their places in G, of zeros; return the loss of all bags."""
    n, n_all = best.shape
    losses = torch.empty(n, dtype=torch.float64, device=best.device)
    size, K = triton.next_power_of_2(n_all), G.shape[1] // n_all
    _slopes_kernel[(n,)](best, which, source, relevant, counts, harmonic, G, losses, n_all, K, ALL=size)
    return losses.sum()


@on_its_gpu
def used(which: Any, relevant: Any, counts: Any, K: int) -> Any:
    """How often each sub-concept is the best of its label, (n_labels, K)."""
    n, n_all = which.shape
    found = torch.empty((n_all, K), dtype=torch.int64, device=which.device)
    _used_kernel[(n_all,)](which, relevant, counts, found, n, n_all, K=K, BAGS=512)
    return found


@on_its_gpu
def adam(
    x: Any, g: Any, mean: Any, square: Any, constants: Any, step: Any, max_norm: float, betas: Any
) -> None:
    """Move every row of ``x``, and cap it; ``constants`` has a row of rate, corrections and share a step."""
    m = x.shape[-1]
    n = x.numel() // m
    width = triton.next_power_of_2(m)
    _adam_kernel[(n,)](x, g, mean, square, constants, step, max_norm, *betas, WIDTH=width, M=m)
