"""Bags as statistics of encoded instances: mean, maximum, log-sum-exp, or all three side by side."""

from __future__ import annotations

import torch
from torch import nn

from bagwise.compute.torch_ops import segment_logsumexp, segment_max, segment_mean


class EmbeddingPooling(nn.Module):
    r"""Linear scores of pooled encodings: :math:`z_l = w_l \cdot pool_{i \in b}(h_i) + b_l`.

    Notes
    -----
    ``lse`` is :math:`\log \frac1n \sum_i e^{h_i}`, between mean and maximum. No instance is scored inside a
    bag: what one says is the score that a bag of it alone would get.
    """

    def __init__(self, width: int, n_labels: int, pooling: str) -> None:
        super().__init__()
        self.pooling = pooling
        self.scores = nn.Linear(width * (3 if pooling == "all" else 1), n_labels)

    def forward(self, H, at):
        """Scores of bags: (n, width) to (n_bags, n_labels)."""
        kinds = ("mean", "max", "lse") if self.pooling == "all" else (self.pooling,)
        return self.scores(torch.cat([self._pooled(kind, H, at) for kind in kinds], dim=1))

    def _pooled(self, kind, H, at):
        if kind == "mean":
            return segment_mean(H, at)
        if kind == "max":
            return segment_max(H, at)
        sizes = at.offsets.diff().to(H.dtype)[:, None]
        return segment_logsumexp(H, at) - torch.log(sizes)

    def alone(self, H, at):
        """Score of a bag of one instance: its mean, maximum and log-sum-exp are the instance."""
        return self.scores(torch.cat([H, H, H], dim=1) if self.pooling == "all" else H)

    instances = alone
