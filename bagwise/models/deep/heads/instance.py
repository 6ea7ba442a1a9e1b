"""Instances first: a probability per instance and label, and bags as means weighted by them."""

from __future__ import annotations

import torch
from torch import nn

from bagwise.compute.torch_ops import segment_logsumexp


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
        S = self.alone(H, at)
        S = S.to(torch.promote_types(S.dtype, torch.float32))
        log_p, log_q = nn.functional.logsigmoid(S), nn.functional.logsigmoid(-S)
        n = 1.0 if self.power is None else nn.functional.softplus(self.power)
        # log-odds of the weighted mean, from sums of logarithms: P near 0 or 1 loses no digits
        return segment_logsumexp(n * log_p + log_p, at) - segment_logsumexp(n * log_p + log_q, at)

    def alone(self, H, at):
        """Log-odds of every instance."""
        return self.scores(H)

    instances = alone
