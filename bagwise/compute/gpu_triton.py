"""Triton kernels where several operations of torch in a row would read and write the same large arrays.

Only what `torch_ops` asks for on a GPU; elsewhere its plain operations do the same. Beside these on an H200
(`benchmarks/triton_or_torch.py`): the gate 4.5 and its gradient 4.9 times as fast at 1.6 million rows, 1.25
to 3 times at 16,000; a pass of attention 1.7 times in large batches, the same in batches of 512.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

_ROWS = 16


def on_its_gpu(function: Callable[..., Any]) -> Callable[..., Any]:
    """Run a function on the GPU that its first argument is on, which need not be the first GPU."""

    @wraps(function)
    def there(tensor: torch.Tensor, *rest: Any) -> Any:
        with torch.cuda.device_of(tensor):
            return function(tensor, *rest)

    return there


@triton.jit
def _gate_kernel(P, out, n, step, WIDTH: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, PADDED)[None, :]
    inside = (rows < n) & (columns < WIDTH)
    V = libdevice.tanh(tl.load(P + rows * step + columns, inside, 0.0).to(tl.float32))
    U = tl.sigmoid(tl.load(P + rows * step + WIDTH + columns, inside, 0.0).to(tl.float32))
    tl.store(out + rows * WIDTH + columns, (V * U).to(out.dtype.element_ty), inside)


@triton.jit
def _gate_back_kernel(
    P,
    D,
    S,
    out,
    n,
    step,
    n_scores,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    REST: tl.constexpr,
    ROWS: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, PADDED)[None, :]
    inside = (rows < n) & (columns < WIDTH)
    V = libdevice.tanh(tl.load(P + rows * step + columns, inside, 0.0).to(tl.float32))
    U = tl.sigmoid(tl.load(P + rows * step + WIDTH + columns, inside, 0.0).to(tl.float32))
    d = tl.load(D + rows * WIDTH + columns, inside, 0.0).to(tl.float32)
    base = out + rows * step + columns
    tl.store(base, (d * U * (1.0 - V * V)).to(out.dtype.element_ty), inside)
    tl.store(base + WIDTH, (d * V * U * (1.0 - U)).to(out.dtype.element_ty), inside)
    rest = tl.arange(0, REST)[None, :]
    s = tl.load(S + rows * n_scores + rest, (rows < n) & (rest < n_scores), 0.0).to(tl.float32)
    there = (rows < n) & (rest < step - 2 * WIDTH)
    tl.store(out + rows * step + 2 * WIDTH + rest, s.to(out.dtype.element_ty), there)


@on_its_gpu
def gate(P: torch.Tensor, width: int) -> torch.Tensor:
    """Return ``tanh(V) * sigmoid(U)`` of the first two runs of ``width`` columns."""
    out = torch.empty((len(P), width), dtype=P.dtype, device=P.device)
    grid, sizes = _plan(len(P), width)
    _gate_kernel[grid](P, out, len(P), P.shape[1], **sizes)
    return out


@on_its_gpu
def gate_back(P: torch.Tensor, for_gates: torch.Tensor, for_scores: torch.Tensor, width: int) -> torch.Tensor:
    """Gradient with respect to ``P`` of the gates and of the scores that stand behind them."""
    out = torch.empty_like(P)
    grid, sizes = _plan(len(P), width)
    rest = triton.next_power_of_2(P.shape[1] - 2 * width)
    _gate_back_kernel[grid](
        P, for_gates, for_scores, out, len(P), P.shape[1], for_scores.shape[1], REST=rest, **sizes
    )
    return out


def _plan(n: int, width: int) -> tuple[Any, dict[str, int]]:
    return (triton.cdiv(n, _ROWS),), {"WIDTH": width, "PADDED": triton.next_power_of_2(width), "ROWS": _ROWS}
