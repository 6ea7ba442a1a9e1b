"""Sums and minima over all pairs of instances of two sets of bags, for tensors.

The matrix of all pairs is never whole: some rows of one set at a time beside all of the other. Blocks that do
not fit the card are halved. Squared distances are ``|x|^2 + |z|^2 - 2 x'z`` of centred instances, so equal
instances are at a distance of rounding, where the compiled loops of `bagwise.models.distance.hausdorff` give
exactly 0. All three terms come out of one product, of instances with two more columns: what goes over the
pairs once more costs as much as the product itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from bagwise.bags import runs
from bagwise.kernels.torch_move import as_tensor, fetched
from bagwise.kernels.torch_ops import Segments, _reduce

Tensor = torch.Tensor
_CELLS = 1 << 28  # pairs of instances at a time


def kernel_sums(
    X, offsets, weights, Z, z_offsets, z_weights, gamma: float, device: Any, *, single: bool = True
) -> np.ndarray:
    """Weighted sums of ``exp(-gamma |x - z|^2)`` over the pairs of instances of every pair of bags.

    ``Z`` None is ``X`` itself, at half the work. Instances and blocks are float32 on a card if ``single``,
    float64 elsewhere.

    Examples
    --------
    >>> X, offsets = np.array([[0.0], [1.0], [0.0]]), np.array([0, 2, 3])
    >>> kernel_sums(X, offsets, np.ones(3), None, None, None, 1.0, torch.device("cpu")).round(3)
    array([[2.736, 1.368],
           [1.368, 1.   ]])
    """
    symmetric = Z is None
    dtype = torch.float32 if single and device.type == "cuda" else torch.float64
    left, right = _centred(X, X if symmetric else Z, device)
    u = as_tensor(weights).to(device, torch.float64)
    v = u if symmetric else as_tensor(z_weights).to(device, torch.float64)
    # exponents -gamma |x - z|^2 + log(u v) of all pairs as one product
    left = torch.cat([left * np.sqrt(2.0 * gamma), torch.log(u)[:, None] - gamma * _lengths(left)], dim=1)
    right = torch.cat([right * np.sqrt(2.0 * gamma), torch.log(v)[:, None] - gamma * _lengths(right)], dim=1)
    left, right = _with_ones(left, -1).to(dtype), _with_ones(right, -2).to(dtype)
    offsets = offsets - offsets[0]
    z_offsets = offsets if symmetric else z_offsets - z_offsets[0]
    out = torch.zeros((len(offsets) - 1, len(z_offsets) - 1), dtype=torch.float64, device=device)

    def block(a: int, b: int) -> None:
        first = a if symmetric else 0
        rows, columns = slice(int(offsets[a]), int(offsets[b])), slice(int(z_offsets[first]), None)
        K = (right[columns] @ left[rows].T).exp_()  # (columns, rows): sums run down the columns
        sums = _reduce(K, Segments.of(z_offsets[first:] - z_offsets[first], device), "sum")
        at = Segments.of(offsets[a : b + 1] - offsets[a], device)
        total = _reduce(sums.T.double().contiguous(), at, "sum")
        out[a:b, first:] = total
        if symmetric:
            out[first:, a:b] = total.T

    _over_blocks(block, offsets, max(_CELLS // max(len(right), 1), 1))
    return fetched((out + out.T) / 2.0 if symmetric else out)


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
    left, right = _centred(X, X if symmetric else Z, device)
    left = _with_ones(torch.cat([-2.0 * left, _lengths(left)], dim=1), -1)
    right = _with_ones(torch.cat([right, _lengths(right)], dim=1), -2)
    z_offsets = offsets if symmetric else z_offsets
    out = torch.zeros((len(offsets) - 1, len(z_offsets) - 1), dtype=torch.float64, device=device)
    how = {"max": "max", "average": "sum", "min": "min"}[kind]

    def block(a: int, b: int) -> None:
        first = a if symmetric else 0
        rows, columns = slice(int(offsets[a]), int(offsets[b])), slice(int(z_offsets[first]), None)
        at = Segments.of(offsets[a : b + 1] - offsets[a], device)
        z_at = Segments.of(z_offsets[first:] - z_offsets[first], device)
        # of every row, to the nearest in every column bag; and of every column, likewise
        from_rows = _reduce(right[columns] @ left[rows].T, z_at, "min").clamp_min_(0.0).T.contiguous()
        from_columns = _reduce(left[rows] @ right[columns].T, at, "min").clamp_min_(0.0).T.contiguous()
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
    return fetched(out)


def _centred(X, Z, device: Any) -> tuple[Tensor, Tensor]:
    """Both sets on the device, moved so that the mean of the second is 0: smaller numbers cancel less."""
    right = as_tensor(Z).to(device).to(torch.float64)
    middle = right.mean(dim=0)
    right = right - middle
    if X is Z:
        return right, right
    return as_tensor(X).to(device).to(torch.float64) - middle, right


def _lengths(X: Tensor) -> Tensor:
    return X.square().sum(dim=1, keepdim=True)


def _with_ones(X: Tensor, place: int) -> Tensor:
    """A column of ones behind the last one (-1) or before it (-2)."""
    ones = torch.ones_like(X[:, :1])
    return torch.cat([X, ones] if place == -1 else [X[:, :-1], ones, X[:, -1:]], dim=1)


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
