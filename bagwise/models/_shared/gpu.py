"""Dense instances on a GPU, standardised once, for learners that go over them many times.

What a learner wants as scaled instances, ``(x - shift) * factor``, is affine in those kept here, so any
scaling of any part of them is folded into the weights (`Folded`): nothing is copied twice. Instances that
do not fit the GPU stay in memory and follow run by run, each copied while the one before is worked on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import torch

from bagwise.bags import runs
from bagwise.compute.scaling import TEXT_SHARE, Scaling, is_text, learn_scaling, standard_scaling
from bagwise.compute.torch_move import as_tensor, fetched, moved, streamed
from bagwise.compute.torch_ops import Segments, _reduce

__all__ = ["Folded", "Instances", "standard_on_gpu"]


Tensor = torch.Tensor
_SHARE_OF_GPU = 0.6  # of its free memory that instances may take
_ROWS = 1 << 26  # numbers in double precision at a time


class Folded(NamedTuple):
    """A scaling as seen from the instances kept: scaled = kept * stretch + move."""

    stretch: np.ndarray
    move: np.ndarray

    def inner(self, W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weights and intercepts for the instances kept, from (C, d + 1) for scaled ones."""
        return W[:, :-1] * self.stretch, W[:, -1] + W[:, :-1] @ self.move

    def outer(self, G: np.ndarray, sums: np.ndarray) -> np.ndarray:
        """Gradient by the weights of scaled instances, from that for those kept and by the intercepts."""
        return G * self.stretch + sums[:, None] * self.move


class Instances:
    """Instances on a device, with mean 0 and spread 1 of each feature.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Dense instances.
    device : torch.device
        Where to.
    scaling : Scaling, optional
        What the instances kept are to be; by default learned from all of them.
    resident : bool, optional
        Whether they are kept on the device; by default if they fit.
    width : int, optional
        Columns of the matrix kept; those beyond the features hold zeros.
    """

    def __init__(
        self,
        X: np.ndarray,
        device: Any,
        scaling: Scaling | None = None,
        *,
        resident: bool | None = None,
        width: int | None = None,
    ) -> None:
        self.shape, self.device, self._host = X.shape, device, X
        self.width = X.shape[1] if width is None else width
        self.resident = self._fits() if resident is None else resident
        self.kept: Tensor | None = None
        self._text: bool | None = None
        if self.resident:
            with suppress(torch.cuda.OutOfMemoryError):
                return self._keep(scaling)
            self.kept, self.resident = None, False  # others have taken what was free
            torch.cuda.empty_cache()
        self._be(standard_on_gpu(X, device) if scaling is None else scaling)

    def _keep(self, scaling: Scaling | None) -> None:
        (n, d), X = self.shape, self._host
        kept = torch.zeros((n, self.width), device=self.device)
        given = kept[:, :d]
        if X.dtype == np.float64:
            given = torch.empty((n, d), dtype=torch.float64, device=self.device)
        raw = moved(X, given)
        filled = sum(int(torch.count_nonzero(raw[first:last])) for first, last in _bounds(n, d))
        self._text = filled < TEXT_SHARE * n * d
        self._be(standard_on_gpu(X, self.device, raw) if scaling is None else scaling)
        for first, last in _bounds(n, d):
            kept[first:last, :d] = self._standard(raw[first:last])
        self.kept = kept

    @property
    def is_text(self) -> bool:
        """Whether instances count as text, for which a GPU is no place; they are counted where they are."""
        return is_text(self._host) if self._text is None else self._text

    def _be(self, scaling: Scaling) -> None:
        """Take on what the instances kept are to be."""
        self.base = scaling
        self._shift, self._factor = (
            as_tensor(np.asarray(v, dtype=np.float64)).to(self.device)
            for v in (scaling.shift, scaling.factor)
        )

    def _fits(self) -> bool:
        if self.device.type != "cuda":
            return True
        free, _ = torch.cuda.mem_get_info(self.device)
        each = 4 if self._host.dtype == np.float32 else 12  # doubles are there until they are standardised
        return each * self.shape[0] * self.width < _SHARE_OF_GPU * free

    def _standard(self, rows: Tensor) -> Tensor:
        return ((rows.double() - self._shift) * self._factor).float()

    def runs(self, bounds: list[tuple[int, int]]) -> Iterator[Tensor]:
        """Rows from first to last of each pair, on the device; features alone."""
        if self.kept is not None:
            for first, last in bounds:
                yield self.kept[first:last, : self.shape[1]]
        else:
            for rows in streamed(self._host, bounds, self.device):
                yield self._standard(rows)

    def some(self, rows: np.ndarray) -> Tensor:
        """Rows by number, features alone."""
        if self.kept is not None:
            return self.kept[:, : self.shape[1]][as_tensor(rows).to(self.device)]
        there = as_tensor(self._host[rows])
        there = there.pin_memory() if self.device.type == "cuda" else there
        return self._standard(there.to(self.device, non_blocking=True))

    # ------------------------------------------------------------------ scaling

    def stretch(self, by: float) -> None:
        """Make instances longer by a factor."""
        self.base = Scaling(self.base.kind, self.base.shift, self.base.factor * by)
        self._factor = self._factor * by
        if self.kept is not None:
            self.kept *= by

    def scaling(self, kind: str, weights: np.ndarray | None = None) -> Scaling:
        """The scaling of `learn_scaling` ("standard" or "none") for instances of these weights."""
        d = self.shape[1]
        if kind == "none":
            return Scaling(kind, np.zeros(d), np.ones(d))
        if weights is None:
            return self.base
        given = as_tensor(np.asarray(weights, dtype=np.float64)).to(self.device)
        mean, spread = _moments(self.runs, _bounds(*self.shape), given, d, self.device)
        varies = self.base.factor > 0
        size = np.divide(1.0, self.base.factor, out=np.zeros(d), where=varies)
        return standard_scaling(self.base.shift + mean * size, spread * size, self._host.dtype)

    def folded(self, scaling: Scaling) -> Folded:
        """How a scaling looks from here."""
        base = self.base
        stretch = np.divide(scaling.factor, base.factor, out=np.zeros(self.shape[1]), where=base.factor > 0)
        return Folded(stretch, (base.shift - scaling.shift) * scaling.factor)


def standard_on_gpu(X: np.ndarray, device: Any, raw: Tensor | None = None) -> Scaling:
    """The scaling "standard" of dense instances that are no text; ``raw`` are the same on the device.

    Examples
    --------
    >>> standard_on_gpu(np.array([[1.0], [5.0]]), torch.device("cpu")).factor
    array([0.5])
    """

    def pieces(bounds: list[tuple[int, int]]) -> Iterator[Tensor]:
        if raw is None:
            return streamed(X, bounds, device)
        return (raw[first:last] for first, last in bounds)

    mean, spread = _moments(pieces, _bounds(*X.shape), None, X.shape[1], device)
    if not np.isfinite(spread).all():  # squares beyond the range of numbers
        return learn_scaling(X, "standard", text=False)
    return standard_scaling(mean, spread, X.dtype)


def _bounds(n: int, d: int) -> list[tuple[int, int]]:
    step = max(1, _ROWS // max(d, 1))
    return [(first, min(first + step, n)) for first in range(0, n, step)]


def _moments(
    pieces: Any, bounds: list[tuple[int, int]], weights: Tensor | None, d: int, device: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation in double precision; deviations are squared in a second pass."""
    total = float(bounds[-1][1]) if weights is None else float(weights.sum())
    mean = torch.zeros(d, dtype=torch.float64, device=device)
    for (first, last), rows in zip(bounds, pieces(bounds)):
        rows = rows.double()
        mean += rows.sum(dim=0) if weights is None else weights[first:last] @ rows
    mean /= total
    variance = torch.zeros_like(mean)
    for (first, last), rows in zip(bounds, pieces(bounds)):
        squares = (rows.double() - mean).square_()
        variance += squares.sum(dim=0) if weights is None else weights[first:last] @ squares
    return mean.cpu().numpy(), (variance / total).sqrt().cpu().numpy()


# ----------------------------------------------------------------------
# Sums and minima over all pairs of instances of two sets of bags, for tensors
#
# The matrix of all pairs is never whole: some rows of one set at a time beside all of the other. Blocks
# that do not fit the GPU are halved. Squared distances are ``|x|^2 + |z|^2 - 2 x'z`` of centred
# instances, so equal instances are at a distance of rounding, where the compiled loops of
# `bagwise.models.distance.kernels` give exactly 0. All three terms come out of one product, of
# instances with two more columns: what goes over the pairs once more costs as much as the product itself.


_CELLS = 1 << 28  # pairs of instances at a time


def kernel_sums(
    X, offsets, weights, Z, z_offsets, z_weights, gamma: float, device: Any, *, single: bool = True
) -> np.ndarray:
    """Weighted sums of ``exp(-gamma |x - z|^2)`` over the pairs of instances of every pair of bags.

    ``Z`` None is ``X`` itself, at half the work. Instances and blocks are float32 on a GPU if ``single``,
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
    """Hausdorff distances of every pair of bags; kinds as in `bagwise.models.distance.kernels`.

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
    """Run over bags, some rows at a time; a block that does not fit the GPU is cut in halves."""
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
