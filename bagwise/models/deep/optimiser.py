"""AdamW on one vector that holds all weights of a network.

Small networks take thousands of steps of a few milliseconds, so that calls cost as much as arithmetic:
weights, gradients and moments are one vector each, of which those of the layers are views, and a step is nine
calls however many layers there are. (The optimisers of torch also import its compiler with their first step,
which takes longer than many a fit.)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import nn

_FIRST, _SECOND, _EPSILON = 0.9, 0.999, 1e-8  # shares kept of mean and mean square, as in the paper
_LONGEST = 5.0  # length that gradients are cut to


class AdamW:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019) and gradients of limited length.

    From then on weights and gradients of the network are views of this object's vectors: `zero` must be
    called before the first ``backward`` of a step, and gradients of several calls add up.

    Parameters
    ----------
    network : nn.Module
        On the device where it is trained.
    learning_rate, weight_decay : float
        Length of a step and, times this length, the share that weights lose in it.

    Examples
    --------
    >>> network = nn.Linear(2, 1)
    >>> optimiser = AdamW(network, 0.1, 0.0)
    >>> before = network.weight.detach().clone()
    >>> optimiser.zero()
    >>> network(torch.ones(1, 2)).sum().backward()
    >>> optimiser.step()
    >>> bool(torch.allclose(before - network.weight, torch.tensor(0.1)))
    True
    """

    def __init__(self, network: nn.Module, learning_rate: float, weight_decay: float) -> None:
        self.learning_rate, self.weight_decay, self.steps = learning_rate, weight_decay, 0
        parameters = list(network.parameters())
        self._shapes = [parameter.shape for parameter in parameters]
        self._weights = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
        self._gradient, self._mean, self._square, self._width = (
            torch.zeros_like(self._weights) for _ in range(4)
        )
        for parameter, weights, gradient in zip(
            parameters, self._views(self._weights), self._views(self._gradient)
        ):
            parameter.data, parameter.grad = weights, gradient

    def _views(self, vector: torch.Tensor) -> list[torch.Tensor]:
        pieces = vector.split([shape.numel() for shape in self._shapes])
        return [piece.view(shape) for piece, shape in zip(pieces, self._shapes)]

    def zero(self) -> None:
        """Forget gradients."""
        self._gradient.zero_()

    @torch.no_grad()
    def step(self) -> None:
        """Change the weights by the gradients that have come together."""
        self.steps += 1
        gradient, rate = self._gradient, self.learning_rate
        gradient *= (_LONGEST / (torch.linalg.vector_norm(gradient) + 1e-6)).clamp_max(1.0)
        self._mean.lerp_(gradient, 1.0 - _FIRST)
        self._square.mul_(_SECOND).addcmul_(gradient, gradient, value=1.0 - _SECOND)
        grown = math.sqrt(1.0 - _SECOND**self.steps)  # moments begin as 0, and are that much too small
        width = torch.sqrt(self._square, out=self._width).add_(_EPSILON * grown)
        self._weights.mul_(1.0 - rate * self.weight_decay)
        self._weights.addcdiv_(self._mean, width, value=-rate * grown / (1.0 - _FIRST**self.steps))

    # ------------------------------------------------------------------ to be stopped and to go on

    def moments(self) -> list[dict[str, np.ndarray]]:
        """What is remembered of the steps so far, one dict per parameter of the network."""
        step = np.array(self.steps, dtype=np.float32)
        pairs = zip(self._views(self._mean), self._views(self._square))
        return [
            {"step": step, "exp_avg": mean.cpu().numpy().copy(), "exp_avg_sq": square.cpu().numpy().copy()}
            for mean, square in pairs
        ]

    def remember(self, moments: list[dict[str, Any]]) -> None:
        """Go on from what `moments` gave."""
        self.steps = int(moments[0]["step"])
        for vector, name in ((self._mean, "exp_avg"), (self._square, "exp_avg_sq")):
            for view, of in zip(self._views(vector), moments):
                view.copy_(torch.as_tensor(np.array(of[name])))
