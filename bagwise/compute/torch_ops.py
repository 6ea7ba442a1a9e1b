"""Reductions within bags for tensors: the names and rules of `bagwise.compute.segment`, with gradients.

What differs from there: sums are accumulated in the type of the tensor; ``offsets`` is an int64 tensor on the
device of ``X``, or `Segments`, which know once for many calls what every call would ask the GPU for. Nothing
is added by atomic operations: a gradient that must be summed over the rows of a bag is a segment sum itself,
so the same input gives the same bits on the same GPU. The module imports torch; import it inside functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from bagwise.compute.devices import triton_kernels

__all__ = [
    "Segments",
    "attended",
    "gated",
    "linear_relu",
    "segment_argmax",
    "segment_logsumexp",
    "segment_max",
    "segment_mean",
    "segment_softmax",
    "segment_sum",
    "spread",
    "transposed_product",
]


Tensor = torch.Tensor


@dataclass(frozen=True)
class Segments:
    """Where bags begin, the bag number of every instance, and the size of the largest bag."""

    offsets: Tensor
    index: Tensor
    longest: int

    @classmethod
    def of(cls, offsets: Any, device: Any = None) -> Segments:
        """From offsets as an array or tensor; those of an array do not make the GPU wait.

        Examples
        --------
        >>> Segments.of([0, 2, 2, 3]).index.tolist()
        [0, 0, 2]
        """
        if isinstance(offsets, Segments):
            return offsets
        host = (
            offsets if isinstance(offsets, Tensor) else torch.as_tensor(np.asarray(offsets, dtype=np.int64))
        )
        sizes = host.diff()
        longest, total = (int(sizes.max()), int(host[-1])) if len(sizes) else (0, 0)
        if device is not None and device != host.device:
            host = host.to(device, non_blocking=True)
            sizes = host.diff()
        bags = torch.arange(len(sizes), device=host.device)
        return cls(host, torch.repeat_interleave(bags, sizes, output_size=total), longest)


def spread(values: Tensor, offsets: Any) -> Tensor:
    """Give every instance the row of its bag: the adjoint of `segment_sum`.

    Examples
    --------
    >>> spread(torch.tensor([[1.0], [2.0]]), torch.tensor([0, 2, 3])).ravel().tolist()
    [1.0, 1.0, 2.0]
    """
    return _Spread.apply(values, Segments.of(offsets))


def segment_sum(X: Tensor, offsets: Any) -> Tensor:
    """Sum the instances of each bag; 0 for an empty bag.

    Examples
    --------
    >>> segment_sum(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 2, 2, 3])).tolist()
    [3.0, 0.0, 4.0]
    """
    return _Sum.apply(X, Segments.of(offsets))


def segment_mean(X: Tensor, offsets: Any) -> Tensor:
    """Average the instances of each bag; an empty bag gives NaN.

    Examples
    --------
    >>> segment_mean(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 2, 2, 3])).tolist()
    [1.5, nan, 4.0]
    """
    at = Segments.of(offsets)
    return segment_sum(X, at) / _columnwise(at.offsets.diff().to(X.dtype), X)


def segment_max(X: Tensor, offsets: Any) -> Tensor:
    """Largest value in each bag and column, -inf for an empty bag; the gradient goes to its first place.

    Examples
    --------
    >>> segment_max(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 2, 2, 3])).tolist()
    [2.0, -inf, 4.0]
    """
    return _Max.apply(X, Segments.of(offsets))


def segment_argmax(X: Tensor, offsets: Any) -> Tensor:
    """Row of ``X`` with the largest value of each bag and column, the first of equals; -1 for an empty bag.

    Examples
    --------
    >>> segment_argmax(torch.tensor([1.0, 2.0, 2.0, 0.0]), torch.tensor([0, 3, 3, 4])).tolist()
    [1, -1, 3]
    """
    at = Segments.of(offsets)
    top = _reduce(X, at, "max")[at.index]
    rows = torch.arange(len(X), device=X.device)
    rows = rows if X.ndim == 1 else rows[:, None]
    # Row numbers as float64 are exact up to 2**53; a NaN counts as largest, and it is unequal to itself.
    is_top = (top == X) | (X != X)
    never = torch.tensor(torch.inf, dtype=torch.float64, device=X.device)
    first = _reduce(torch.where(is_top, rows.double(), never), at, "min")
    return torch.where(torch.isinf(first), -1.0, first).long()


def segment_logsumexp(X: Tensor, offsets: Any) -> Tensor:
    """Logarithm of the sum of exponentials in each bag and column, free of overflow; -inf for an empty bag.

    Examples
    --------
    >>> segment_logsumexp(torch.tensor([1e9, 1e9, -torch.inf]), torch.tensor([0, 2, 2, 3])).tolist()
    [1000000000.0, -inf, -inf]
    """
    return _LogSumExp.apply(X, Segments.of(offsets))


def segment_softmax(X: Tensor, offsets: Any) -> Tensor:
    """Exponentials scaled to sum to one within each bag and column; infinite values are taken as limits.

    Examples
    --------
    >>> segment_softmax(torch.tensor([0.0, 0.0, 7.0]), torch.tensor([0, 2, 2, 3])).tolist()
    [0.5, 0.5, 1.0]
    """
    return _Softmax.apply(X, Segments.of(offsets))


def attended(logits: Tensor, scores: Tensor, offsets: Any) -> Tensor:
    """Sum of the scores of each bag, weighted by the softmax of the logits within it.

    The same as ``segment_sum(segment_softmax(logits, offsets) * scores, offsets)`` in one call.

    Examples
    --------
    >>> logits, scores = torch.tensor([0.0, 0.0, 7.0]), torch.tensor([1.0, 3.0, 5.0])
    >>> attended(logits, scores, torch.tensor([0, 2, 3])).tolist()
    [2.0, 5.0]
    """
    return _Attended.apply(logits, scores, Segments.of(offsets))


def linear_relu(X: Tensor, weight: Tensor, bias: Tensor, dropout: float = 0.0) -> Tensor:
    """Product, bias and rectifier in one: ``relu(X @ weight.T + bias)``.

    Keeps its answer alone for the way back, and sums the gradient of the bias by a product. A share
    ``dropout`` of the answer is set to zero at random, the rest scaled up. On the processor sixteen random
    bits decide about a number: torch's own dropout takes longer than the product before it.

    Examples
    --------
    >>> linear_relu(torch.eye(2), torch.tensor([[1.0, -1.0]]), torch.zeros(1)).ravel().tolist()
    [1.0, 0.0]
    >>> linear_relu(torch.ones(99, 1), torch.ones(1, 1), torch.zeros(1), dropout=0.75).unique().tolist()
    [0.0, 4.0]
    """
    if torch.is_autocast_enabled(X.device.type):
        dtype = torch.get_autocast_dtype(X.device.type)
        X, weight, bias = X.to(dtype), weight.to(dtype), bias.to(dtype)
    if X.is_cuda and dropout:
        return torch.nn.functional.dropout(_LinearReLU.apply(X, weight, bias, 0.0), dropout)
    return _LinearReLU.apply(X, weight, bias, dropout)


def gated(P: Tensor, width: int, n_scores: int) -> tuple[Tensor, Tensor]:
    """Gates and scores out of one product, whose columns are ``V | U | S | unused``.

    The gates are ``tanh(V) * sigmoid(U)``. V and U have ``width`` columns, S has ``n_scores`` and is returned
    in float32 at least. Keeps nothing but its input for the way back, where plain operations keep and copy
    several arrays of its size.

    Examples
    --------
    >>> A, S = gated(torch.tensor([[0.0, 5.0, 3.0]]), 1, 1)
    >>> A.item(), S.item()
    (0.0, 3.0)
    """
    return _Gated.apply(P, width, n_scores)


def transposed_product(R: Tensor, X: Tensor) -> Tensor:
    """``R.T @ X`` as a double: slabs of rows in the type they have, their sum in double.

    Examples
    --------
    >>> transposed_product(torch.ones(5000, 1), torch.ones(5000, 2)).tolist()
    [[5000.0, 5000.0]]
    """
    n = len(R) // _SLAB
    whole = n * _SLAB
    left, right = (values[:whole].view(n, _SLAB, values.shape[1]) for values in (R, X))
    slabs = torch.bmm(left.transpose(1, 2), right)
    return slabs.sum(dim=0, dtype=torch.float64) + (R[whole:].T @ X[whole:]).double()


# ---------------------------------------------------------------------- forward and back

_SLAB = 4096  # rows whose products are added in the type they have
_PIECE = 1024  # rows that one thread of a GPU adds up; longer bags are cut, so that no thread works alone
_kernels = partial(triton_kernels, "bagwise.compute.gpu_triton")


def _reduce(X: Tensor, at: Segments, how: str) -> Tensor:
    """Reduce by ``torch.segment_reduce``: one thread per bag and column, in row order."""
    offsets = at.offsets
    if X.numel() == 0:
        identity = {"sum": 0.0, "max": -torch.inf, "min": torch.inf}[how]
        return X.new_full((len(offsets) - 1, *X.shape[1:]), identity)
    if X.is_cuda and at.longest > 4 * _PIECE:
        pieces, offsets = _pieces(offsets)
        X = torch.segment_reduce(X, how, offsets=pieces, unsafe=True)
    return torch.segment_reduce(X, how, offsets=offsets, unsafe=True)


def _pieces(offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Offsets of pieces of at most `_PIECE` rows, and which pieces each bag is made of."""
    sizes = offsets.diff()
    counts = (sizes + _PIECE - 1) // _PIECE
    of_bags = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    index = torch.repeat_interleave(torch.arange(len(sizes), device=offsets.device), counts)
    place = torch.arange(len(index), device=offsets.device) - of_bags[index]
    starts = offsets[index] + place * _PIECE
    return torch.cat([starts, offsets[-1:]]), of_bags


def _columnwise(values: Tensor, X: Tensor) -> Tensor:
    return values if X.ndim == 1 else values[:, None]


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, at: Segments) -> Tensor:
        ctx.at = at
        return values.index_select(0, at.index)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        return _reduce(gradient.contiguous(), ctx.at, "sum"), None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, X: Tensor, at: Segments) -> Tensor:
        ctx.at = at
        return _reduce(X.contiguous(), at, "sum")

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        return gradient.index_select(0, ctx.at.index), None


class _Max(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, X: Tensor, at: Segments) -> Tensor:
        X = X.contiguous()
        ctx.at = at
        ctx.save_for_backward(X)
        return _reduce(X, at, "max")

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        (X,) = ctx.saved_tensors
        rows = segment_argmax(X, ctx.at)
        full = (ctx.at.offsets.diff() > 0).nonzero().squeeze(1)  # an empty bag has nobody to give to
        result = torch.zeros_like(X)
        if X.ndim == 1:
            result[rows[full]] = gradient[full]
        else:
            result.scatter_(0, rows[full], gradient[full])  # every place is written once
        return result, None


def _weights(X: Tensor, at: Segments) -> tuple[Tensor, Tensor, Tensor]:
    """Softmax weights, and the largest value and sum of shares of every bag."""
    top = _reduce(X, at, "max")
    below = top.index_select(0, at.index)
    # Where x is the maximum its share is exactly 1, which keeps inf - inf out.
    share = torch.where(below > X, torch.exp(X - below), torch.ones_like(X))
    total = _reduce(share, at, "sum")
    total = torch.where(torch.isnan(top), top, total)
    return share / total.index_select(0, at.index), top, total


class _LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, X: Tensor, at: Segments) -> Tensor:
        weights, top, total = _weights(X.contiguous(), at)
        ctx.at = at
        ctx.save_for_backward(weights)
        filled = _columnwise(at.offsets.diff() > 0, X)
        return torch.where(filled, top + torch.log(torch.where(filled, total, 1.0)), -torch.inf)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        (weights,) = ctx.saved_tensors
        return weights * gradient.index_select(0, ctx.at.index), None


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, X: Tensor, at: Segments) -> Tensor:
        weights, _, _ = _weights(X.contiguous(), at)
        ctx.at = at
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        (weights,) = ctx.saved_tensors
        pull = weights * gradient
        mean = _reduce(pull.contiguous(), ctx.at, "sum")
        return pull - weights * mean.index_select(0, ctx.at.index), None


class _Attended(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, scores: Tensor, at: Segments) -> Tensor:
        weights, _, _ = _weights(logits.contiguous(), at)
        ctx.at = at
        ctx.save_for_backward(weights, scores)
        return _reduce((weights * scores).contiguous(), at, "sum")

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        weights, scores = ctx.saved_tensors
        gradient = gradient.index_select(0, ctx.at.index)
        pull = weights * (gradient * scores)
        mean = _reduce(pull.contiguous(), ctx.at, "sum")
        return pull - weights * mean.index_select(0, ctx.at.index), gradient * weights, None


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, P: Tensor, width: int, n_scores: int) -> Any:
        ctx.save_for_backward(P)
        ctx.width = width
        scores = P[:, 2 * width : 2 * width + n_scores]
        return _gate(P, width), scores.to(torch.promote_types(P.dtype, torch.float32), copy=True)

    @staticmethod
    def backward(ctx: Any, for_gates: Tensor, for_scores: Tensor) -> Any:  # type: ignore[override]
        (P,) = ctx.saved_tensors
        return _gate_back(P, for_gates, for_scores, ctx.width), None, None


def _gate(P: Tensor, width: int) -> Tensor:
    if P.is_cuda and P.is_contiguous() and _kernels() is not None:
        return _kernels().gate(P, width)
    return _tanh(P[:, :width]).mul_(torch.sigmoid(P[:, width : 2 * width]))


def _tanh(V: Tensor) -> Tensor:
    """By the sigmoid, which takes half the time on a processor; off by a rounding of 1 at most."""
    return torch.sigmoid(2.0 * V).mul_(2.0).sub_(1.0)


def _gate_back(P: Tensor, for_gates: Tensor, for_scores: Tensor, width: int) -> Tensor:
    if P.is_cuda and P.is_contiguous() and _kernels() is not None:
        return _kernels().gate_back(P, for_gates.contiguous(), for_scores.contiguous(), width)
    V, U = _tanh(P[:, :width]), torch.sigmoid(P[:, width : 2 * width])
    last = 2 * width + for_scores.shape[1]
    out = torch.empty_like(P)
    pull = for_gates * U
    torch.addcmul(pull, pull * V, V, value=-1.0, out=out[:, :width])
    pull *= V
    torch.addcmul(pull, pull, U, value=-1.0, out=out[:, width : 2 * width])
    out[:, 2 * width : last] = for_scores
    out[:, last:] = 0.0
    return out


class _LinearReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, X: Tensor, weight: Tensor, bias: Tensor, dropout: float) -> Tensor:
        out = torch._addmm_activation(bias, X, weight.t(), use_gelu=False)
        ctx.scale = 1.0 / (1.0 - dropout)
        if dropout:
            drawn = torch.empty(-(-out.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
            drawn = drawn.view(torch.int16)[: out.numel()].view(out.shape).to(out.dtype)
            last = round(dropout * 2**16) - 2**15 - 1  # at which a number is still left out
            out = torch.ops.aten.threshold_backward(out, drawn, last).mul_(ctx.scale)
        ctx.save_for_backward(X, weight, out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        X, weight, out = ctx.saved_tensors
        gradient = torch.ops.aten.threshold_backward(gradient, out, 0)  # 0: negative, or left out
        if ctx.scale != 1.0:
            gradient.mul_(ctx.scale)
        ones = torch.ones(len(X), dtype=X.dtype, device=X.device)
        for_X = gradient @ weight if ctx.needs_input_grad[0] else None
        return for_X, gradient.t() @ X, gradient.t() @ ones, None
