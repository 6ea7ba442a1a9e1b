"""Residuals of the union model for tensors: inclusion and exclusion over the subsets of a bag's labels.

Bags with the same number of labels go together. The formula and the bound on its error are those of
``union_inclusion.py``, in double precision; bags where posteriors might be off by more than `TOLERANCE`, and
bags with more than `MOST_LABELS` labels, are named, and left to the exact algorithms of the processor. A
background that may be anywhere needs no phantom instance here: it is in every subset. On a card the loops of
``union_triton.py`` do the same, where Triton is there.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from bagwise.bags import runs
from bagwise.compute.devices import loops_for_card
from bagwise.compute.torch_move import as_tensor
from bagwise.compute.torch_ops import Segments, segment_sum

__all__ = ["MOST_LABELS", "TOLERANCE", "Group", "groups_of", "union_residuals"]

Tensor = torch.Tensor
MOST_LABELS = 12
TOLERANCE = 1e-7
_CELLS = 1 << 24  # subsets of all instances at a time, where Triton is not there
_UNIT_ROUNDOFF = 2.0**-53
_loops = partial(loops_for_card, "bagwise.models.ored.union_triton")


class Group(NamedTuple):
    """Bags of a run that have the same number of labels, and their instances one after the other."""

    bags: Tensor  # numbers within the run
    bounds: Tensor  # where the instances of each begin
    rows: Tensor  # of the logits, of every instance
    slots: Tensor  # place of its bag in this group
    labels: Tensor  # (n, k), and the background behind them where it may be anywhere
    weights: Tensor
    background: bool

    @property
    def n_labels(self) -> int:
        """Labels that must occur: all but the background."""
        return self.labels.shape[1] - self.background


def groups_of(
    offsets: np.ndarray, Y: np.ndarray, weights: np.ndarray, *, background: bool, max_labels: int, device: Any
) -> tuple[list[Group], np.ndarray]:
    """Groups of the bags of positive weight with possible sets, and those with too many labels for any.

    ``max_labels`` counts the background, as in `bagwise.models.ored.union_posterior`.
    """
    sizes = np.diff(offsets)
    counts = np.count_nonzero(Y, axis=1) - background
    # a set larger than the bag is impossible, and so is none without a background: these have no gradient
    taking_part = (weights > 0) & (counts <= sizes) & (counts + background <= max_labels) & (sizes > 0)
    taking_part &= counts + background > 0
    found = []
    for k in np.flatnonzero(np.bincount(counts[taking_part & (counts <= MOST_LABELS)])):
        bags = np.flatnonzero(taking_part & (counts == k))
        bounds = np.concatenate([[0], np.cumsum(sizes[bags])])
        arrays = bags, bounds, offsets[bags] - bounds[:-1], Y[bags], weights[bags].astype(np.float64)
        which, starts, moves, sets, shares = (as_tensor(array).to(device) for array in arrays)
        slots = Segments.of(bounds, device).index
        rows = torch.arange(len(slots), device=device) + moves[slots]
        labels = torch.nonzero(sets)[:, 1].reshape(len(bags), int(k) + background)
        found.append(Group(which, starts, rows, slots, labels, shares, background))
    return found, np.flatnonzero(taking_part & (counts > MOST_LABELS))


def union_residuals(logits: Tensor, groups: list[Group], out: Tensor) -> tuple[Tensor, Tensor]:
    """Write ``weight * (posterior - prior)`` of the bags of all groups to their rows of ``out``.

    Returns
    -------
    value : Tensor
        Weighted log-likelihood of the bags that were precise enough, a double.
    left : Tensor
        Numbers of the others; their rows hold nothing of use.
    """
    if not groups:
        return torch.zeros((), dtype=torch.float64, device=logits.device), torch.zeros(0, dtype=torch.int64)
    on_card = logits.is_cuda and _loops() is not None
    found = [
        _loops().residuals(logits, group, out) if on_card else _plain(logits, group, out) for group in groups
    ]
    # all groups together: naming those that are left makes the card wait
    loglik, weights, bags = (
        values[0] if len(groups) == 1 else torch.cat(values)
        for values in (found, [group.weights for group in groups], [group.bags for group in groups])
    )
    lost = torch.isnan(loglik)
    return torch.where(lost, 0.0, loglik * weights).sum(), bags[lost]


def needed_cover(sizes: Any, k: int) -> Any:
    """Least cover, as a share of the sum of magnitudes, at which posteriors are within `TOLERANCE`."""
    return 2.0 * (sizes * (k + 4) + 2**k + 32) * _UNIT_ROUNDOFF / TOLERANCE


def _plain(logits: Tensor, group: Group, out: Tensor) -> Tensor:
    """Residuals of one group; the log-likelihood of each bag, NaN where it is left."""
    bounds, found = group.bounds.cpu().numpy(), []
    for first, last in runs(bounds, max(1, _CELLS >> group.n_labels)):
        bags, rows = slice(first, last), slice(int(bounds[first]), int(bounds[last]))
        at = Segments.of(bounds[first : last + 1] - bounds[first], logits.device)
        found.append(
            _subsets(logits, group, at, group.rows[rows], group.labels[bags], group.weights[bags], out)
        )
    return torch.cat(found)


def _subsets(logits, group: Group, at: Segments, rows, labels, weights, out: Tensor) -> Tensor:
    k, device = group.n_labels, logits.device
    x = logits[rows].double()
    log_z = torch.logsumexp(x, dim=1, keepdim=True)
    labels = labels[at.index]
    inside = x.gather(1, labels)
    mass = torch.logsumexp(inside, dim=1, keepdim=True)
    r = torch.exp(inside - mass)
    r = r / r.sum(dim=1, keepdim=True)
    member = (torch.arange(2**k, device=device)[None, :] >> torch.arange(k, device=device)[:, None]) & 1
    signs = torch.where((k - member.sum(dim=0)) % 2 == 1, -1.0, 1.0).double()
    member = member.double()
    q = r[:, :k] @ member
    if group.background:
        q = q + r[:, k:]
    F = torch.exp(segment_sum(torch.log(q), at))
    cover, magnitude = F @ signs, F.sum(dim=1)
    quotient = torch.where(q > 1e-30, (signs * F)[at.index] / q, 0.0)
    J = r[:, :k] * (quotient @ member.T)
    if group.background:
        J = torch.cat([J, r[:, k:] * quotient.sum(dim=1, keepdim=True)], dim=1)
    J = J.clamp_min(0.0)
    Q = torch.zeros_like(x).scatter_(1, labels, J / J.sum(dim=1, keepdim=True))
    out[rows] = (weights[at.index][:, None] * (Q - torch.exp(x - log_z))).to(out.dtype)
    fine = cover > needed_cover(at.offsets.diff(), k) * magnitude
    return torch.where(fine, segment_sum((mass - log_z)[:, 0], at) + torch.log(cover), torch.nan)
