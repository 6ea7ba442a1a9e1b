"""Instances first: a probability per instance and label, and bags as means weighted by them."""

from __future__ import annotations

import torch
from torch import nn

from bagwise.kernels.torch_ops import segment_sum

_SMALLEST = 1e-6


class InstancePooling(nn.Module):
    r"""Bags from probabilities of instances, :math:`p_{il} = \sigma(w_l \cdot h_i + b_l)`.

    Notes
    -----
    ``linear``: :math:`P_l = \sum_i p_{il}^2 / \sum_i p_{il}` (linear softmax). ``power``:
    :math:`P_l = \sum_i p_{il}^{1 + n_l} / \sum_i p_{il}^{n_l}` with a learned :math:`n_l > 0`: 0 is the mean,
    infinity the maximum. The score is the log-odds of :math:`P_l`. What an instance says are its own
    log-odds.
    """

    def __init__(self, width: int, n_labels: int, pooling: str) -> None:
        super().__init__()
        self.scores = nn.Linear(width, n_labels)
        # softplus of it, which begins as 1
        self.power = nn.Parameter(torch.full((n_labels,), 0.54)) if pooling == "power" else None

    def forward(self, H, at):
        """Scores of bags: (n, width) to (n_bags, n_labels)."""
        log_p = nn.functional.logsigmoid(self.alone(H, at).to(torch.promote_types(H.dtype, torch.float32)))
        n = 1.0 if self.power is None else nn.functional.softplus(self.power)
        weight = torch.exp(n * log_p).clamp_min(_SMALLEST * _SMALLEST)
        total = segment_sum(weight, at)
        P = segment_sum(weight * torch.exp(log_p), at) / total
        return torch.logit(P.clamp(_SMALLEST, 1.0 - _SMALLEST))

    def alone(self, H, at):
        """Log-odds of every instance."""
        return self.scores(H)

    instances = alone
