"""Sums and minima over all pairs of instances of two sets of bags, for tensors.

The matrix of all pairs is never whole: some rows of one set at a time beside all of the other. Blocks that do
not fit the card are halved. Squared distances are ``|x|^2 + |z|^2 - 2 x'z`` of centred instances, so equal
instances are at a distance of rounding, where the compiled loops of `bagwise.models.distance.hausdorff` give
exactly 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from bagwise.bags import runs
from bagwise.kernels.torch_ops import Segments, _reduce

Tensor = torch.Tensor
_CELLS = 1 << 28  # pairs of instances at a time


def kernel_sums(X, offsets, weights, Z, z_offsets, z_weights, gamma: float, device: Any) -> np.ndarray:
    """Weighted sums of ``exp(-gamma |x - z|^2)`` over the pairs of instances of every pair of bags.

    ``Z`` None is ``X`` itself, at half the work. Instances and blocks are float32 on a card, float64
    elsewhere.

    Examples
    --------
    >>> X, offsets = np.array([[0.0], [1.0], [0.0]]), np.array([0, 2, 3])
    >>> kernel_sums(X, offsets, np.ones(3), None, None, None, 1.0, torch.device("cpu")).round(3)
    array([[2.736, 1.368],
           [1.368, 1.   ]])
    """
    symmetric = Z is None
    dtype = torch.float32 if device.type == "cuda" else torch.float64
    left, right = _centred(X, X if symmetric else Z, device, dtype)
    u = torch.as_tensor(weights).to(device, dtype)
    v = u if symmetric else torch.as_tensor(z_weights).to(device, dtype)
    z_offsets = offsets if symmetric else z_offsets
    out = torch.zeros((len(offsets) - 1, len(z_offsets) - 1), dtype=torch.float64, device=device)

    def block(a: int, b: int) -> None:
        first = a if symmetric else 0
        rows, columns = slice(int(offsets[a]), int(offsets[b])), slice(int(z_offsets[first]), None)
        K = _squared(right[columns], left[rows])  # (columns, rows): sums run down the columns
        K = K.mul_(-gamma).exp_().mul_(v[columns, None])
        sums = _reduce(K, Segments.of(z_offsets[first:] - z_offsets[first], device), "sum") * u[rows]
        at = Segments.of(offsets[a : b + 1] - offsets[a], device)
        total = _reduce(sums.T.double().contiguous(), at, "sum")
        out[a:b, first:] = total
        if symmetric:
            out[first:, a:b] = total.T

    _over_blocks(block, offsets, max(_CELLS // max(len(right), 1), 1))
    found = out.cpu().numpy()
    return (found + found.T) / 2.0 if symmetric else found


def hausdorff(X, offsets, Z, z_offsets, kind: str, device: Any) -> np.ndarray:
    """Hausdorff distances of every pair of bags; kinds as in `bagwise.models.distance.hausdorff`.

    Examples
    --------
    >>> X, offsets = np.array([[0.0], [1.0], [0.0], [3.0]]), np.array([0, 2, 4])
    >>> hausdorff(X, offsets, None, None, "average", torch.device("cpu"))
    array([[0.  , 0.75],
           [0.75, 0.  ]])
    """
    symmetric = Z is None
    left, right = _centred(X, X if symmetric else Z, device, torch.float64)
    z_offsets = offsets if symmetric else z_offsets
    out = torch.zeros((len(offsets) - 1, len(z_offsets) - 1), dtype=torch.float64, device=device)
    how = {"max": "max", "average": "sum", "min": "min"}[kind]

    def block(a: int, b: int) -> None:
        first = a if symmetric else 0
        rows, columns = slice(int(offsets[a]), int(offsets[b])), slice(int(z_offsets[first]), None)
        D = _squared(right[columns], left[rows])
        at = Segments.of(offsets[a : b + 1] - offsets[a], device)
        z_at = Segments.of(z_offsets[first:] - z_offsets[first], device)
        from_rows = _reduce(D, z_at, "min").T.contiguous()  # of every row, to the nearest in every column bag
        from_columns = _reduce(D.T.contiguous(), at, "min").T.contiguous()  # of every column, likewise
        del D
        if kind == "average":
            from_rows, from_columns = from_rows.sqrt_(), from_columns.sqrt_()
        forth, back = _reduce(from_rows, at, how), _reduce(from_columns, z_at, how).T
        if kind == "average":
            sizes = at.offsets.diff()[:, None] + z_at.offsets.diff()[None, :]
            found = (forth + back) / sizes
        else:
            found = (torch.maximum if kind == "max" else torch.minimum)(forth, back).sqrt_()
        out[a:b, first:] = found
        if symmetric:
            out[first:, a:b] = found.T

    _over_blocks(block, offsets, max(_CELLS // 2 // max(len(right), 1), 1))
    if symmetric:
        out.fill_diagonal_(0.0)  # every instance is its own nearest
    return out.cpu().numpy()


def _centred(X, Z, device: Any, dtype: Any) -> tuple[Tensor, Tensor]:
    """Both sets on the device, moved so that the mean of the second is 0: smaller numbers cancel less."""
    right = torch.as_tensor(np.ascontiguousarray(Z)).to(device).to(torch.float64)
    middle = right.mean(dim=0)
    right = (right - middle).to(dtype)
    if X is Z:
        return right, right
    return (torch.as_tensor(np.ascontiguousarray(X)).to(device).to(torch.float64) - middle).to(dtype), right


def _squared(Z: Tensor, X: Tensor) -> Tensor:
    """Squared distances (len(Z), len(X)), never below 0."""
    D = torch.addmm(X.square().sum(dim=1)[None, :], Z, X.T, alpha=-2.0)
    return D.add_(Z.square().sum(dim=1)[:, None]).clamp_min_(0.0)


def _over_blocks(block: Callable[[int, int], None], offsets: np.ndarray, n_rows: int) -> None:
    """Run over bags, some rows at a time; a block that does not fit the card is cut in halves."""
    todo = list(reversed(list(runs(offsets, n_rows))))
    while todo:
        a, b = todo.pop()
        try:
            block(a, b)
        except torch.cuda.OutOfMemoryError:
            if b - a < 2:
                raise
            torch.cuda.empty_cache()
            middle = (a + b) // 2
            todo += [(middle, b), (a, middle)]
