"""Class prototypes: a bag carries a label as far as an instance lies near one of the label's prototypes."""

from __future__ import annotations

import math

import torch
from torch import nn

from bagwise.compute.torch_ops import segment_logsumexp, segment_max

_PER_LABEL = 4


class Prototypes(nn.Module):
    r"""Cosines between encodings and four learned directions per label.

    Notes
    -----
    :math:`s_{il} = \tau (\log \sum_p e^{\kappa \cos(h_i, c_{lp})}) / \kappa + b_l` with :math:`\kappa = 8`;
    the bag takes the largest of its instances (``max``) or :math:`\log \sum_i e^{s_{il}}` (``lse``). What an
    instance says is :math:`s_{il}`.
    """

    sharpness = 8.0

    def __init__(self, width: int, n_labels: int, pooling: str) -> None:
        super().__init__()
        self.pooling = pooling
        self.n_labels = n_labels
        self.prototypes = nn.Parameter(torch.randn(n_labels * _PER_LABEL, width) / math.sqrt(width))
        self.scale = nn.Parameter(torch.tensor(2.0))  # softplus of it
        self.bias = nn.Parameter(torch.full((n_labels,), -1.0))

    def forward(self, H, at):
        """Scores of bags: (n, width) to (n_bags, n_labels)."""
        S = self.alone(H, at)
        return segment_max(S, at) if self.pooling == "max" else segment_logsumexp(S, at)

    def alone(self, H, at):
        """Score of every instance."""
        H = nn.functional.normalize(H.to(torch.promote_types(H.dtype, torch.float32)), dim=1)
        cosines = H @ nn.functional.normalize(self.prototypes, dim=1).to(H.dtype).T
        near = torch.logsumexp(self.sharpness * cosines.view(len(H), self.n_labels, _PER_LABEL), dim=2)
        scale = 4.0 * nn.functional.softplus(self.scale)
        return scale * (near - math.log(_PER_LABEL)) / self.sharpness + self.bias

    instances = alone
