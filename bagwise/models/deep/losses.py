"""Losses over score matrices: mean over bags, labels that are not known (below 0) left out."""

from __future__ import annotations

import torch
from torch import nn


def bag_losses(name: str, Z: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
    """Loss of every bag, for scores ``Z`` and labels ``Y`` of 1, 0 or below 0 (not known).

    Examples
    --------
    >>> Z, Y = torch.tensor([[2.0, -1.0, 9.0]]), torch.tensor([[1.0, 0.0, -1.0]])
    >>> bool(bag_losses("bce", Z, Y) == bag_losses("bce", Z[:, :2], Y[:, :2]))
    True
    """
    parts = [_PARTS[part](Z, Y) for part in name.split("+")]
    return sum(parts[1:], start=parts[0])


def _mean_over_known(losses, Y):
    known = (Y >= 0).to(losses.dtype)
    return (losses * (known / known.sum(dim=1, keepdim=True).clamp_min(1.0))).sum(dim=1)


def bce(Z, Y):
    """Binary cross entropy."""
    return _mean_over_known(nn.functional.softplus(Z) - Z * Y, Y)


def asymmetric(Z, Y, focus=2.0, shift=0.05):
    r"""Asymmetric loss (Ridnik et al. 2021): easy negatives fade.

    :math:`-y \log p - (1 - y) q^2 \log(1 - q)` with :math:`q = \max(p - .05, 0)`, :math:`p = \sigma(z)`.
    """
    q = (torch.sigmoid(Z) - shift).clamp_min(0.0)
    positive = nn.functional.softplus(-Z)
    negative = -(q**focus) * torch.log1p(-q)
    return _mean_over_known(torch.where(Y > 0, positive, negative), Y)


def ranking(Z, Y):
    r"""Smooth ranking loss: :math:`\log(1 + \sum_{p \in Y, n \notin Y} e^{z_n - z_p})`, 0 without pairs.

    The double sum is a product, so the cost grows with the number of labels, not its square.
    """
    low = torch.finfo(Z.dtype).min / 4
    negatives = torch.logsumexp(torch.where(Y == 0, Z, low), dim=1)
    positives = torch.logsumexp(torch.where(Y > 0, -Z, low), dim=1)
    pairs = (Y == 0).any(dim=1) & (Y > 0).any(dim=1)
    return torch.where(pairs, nn.functional.softplus(torch.where(pairs, negatives + positives, 0.0)), 0.0)


_PARTS = {"bce": bce, "asymmetric": asymmetric, "ranking": ranking}
