"""The network of one member: scaled instances, an encoder, a head."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from bagwise.compute.torch_ops import linear_relu
from bagwise.models.deep.heads import head_class


class Plan(NamedTuple):
    """What a network is made of; weights are kept apart, as arrays."""

    head: str
    pooling: str
    n_features: int
    n_labels: int
    hidden: int
    depth: int
    dropout: float


class Network(nn.Module):
    """Encoder (``depth`` layers of ``hidden`` units) and head."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        widths = [plan.n_features] + [plan.hidden] * plan.depth
        self.encoder = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths[:-1], widths[1:]))
        self.dropout = plan.dropout
        self.head = head_class(plan.head)(plan.hidden, plan.n_labels, plan.pooling)

    def forward(self, X, at):
        """Scores of bags: (n, n_features) to (n_bags, n_labels)."""
        return self.head(self.encode(X), at)

    def encode(self, X):
        """Encodings of instances (n, hidden)."""
        for layer in self.encoder:
            X = linear_relu(X, layer.weight, layer.bias, self.dropout if self.training else 0.0)  # type: ignore[arg-type]
        return X

    def instances(self, X, at):
        """What every instance says for every label."""
        return self.head.instances(self.encode(X), at)

    def alone(self, X, at):
        """Score that a bag of each instance alone would get."""
        return self.head.alone(self.encode(X), at)


def weights_of(network: nn.Module) -> dict[str, np.ndarray]:
    """Weights as plain arrays, for files that hold no code."""
    return {name: value.detach().float().cpu().numpy().copy() for name, value in network.state_dict().items()}


def network_with(plan: Plan, weights: dict[str, np.ndarray], device: Any, dtype: Any) -> Network:
    """The network of a plan with given weights, ready to predict."""
    with torch.random.fork_rng(devices=[]):
        network = Network(plan)
    network.load_state_dict({name: torch.as_tensor(np.asarray(value)) for name, value in weights.items()})
    return network.to(device=device, dtype=dtype).eval()
