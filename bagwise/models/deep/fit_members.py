"""One network in training: AdamW on batches of bags, its losses, early stopping on bags held out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from bagwise.compute.stopping import Patience
from bagwise.models.deep.network import Network, Plan, take_weights, weights_of
from bagwise.models.deep.predict import Batch, Feed

_FIRST, _SECOND, _EPSILON = 0.9, 0.999, 1e-8  # shares kept of mean and mean square, as in the paper
_LONGEST = 5.0  # length that gradients are cut to


class AdamW:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019) and gradients of limited length.

    Weights, gradients and moments are one vector each, of which those of the layers are views, so that a step
    is nine calls however many layers there are: 23 us for 4,000 weights where ``torch.optim.AdamW`` takes 50
    to 79 on the same vector (fused, foreach), 116 us for 97,000 where it takes 107 to 214. To make one of
    torch's also imports its compiler, which takes 4 s: longer than many a fit.

    From then on weights and gradients of the network are views of this object's vectors: `zero` must be
    called before the first ``backward`` of a step, and gradients of several calls add up. Weights lose the
    share ``learning_rate * weight_decay`` in a step.
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


class Settings(NamedTuple):
    """How a member is trained."""

    loss: str
    learning_rate: float
    weight_decay: float
    batch_size: int
    max_epochs: int
    patience: int
    unions: float
    mixed_precision: bool


class Trained(NamedTuple):
    """Weights, the pass they are of, the loss on bags held out after every pass, moments of the optimiser."""

    weights: dict[str, np.ndarray]
    epoch: int
    history: list[float]
    moments: list[dict[str, np.ndarray]]


class Member:
    """One network in training: weights, optimiser, random numbers, and what the bags held out said so far.

    The seed is that of weights, order of bags and dropout; other networks trained in between change nothing.
    It goes on from the weights ``start``, with the ``moments`` of the steps that led to them.
    """

    def __init__(
        self, plan: Plan, settings: Settings, device: Any, seed: int, start: Any = None, moments: Any = None
    ) -> None:
        self.settings, self.device = settings, device
        self._gpus = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=self._gpus):
            torch.manual_seed(seed)
            self.network = Network(plan)
            if start is not None:
                take_weights(self.network, start)
            self.network.to(device)
            self._drawn = self._random_state()
        self.order = np.random.RandomState(seed)
        self.optimiser = AdamW(self.network, settings.learning_rate, settings.weight_decay)
        if moments:
            self.optimiser.remember(moments)
        self.history: list[float] = []
        self.passes = 0
        self.stopping = Patience(settings.patience, least=1e-5, best=weights_of(self.network))

    @property
    def done(self) -> bool:
        """Whether there is nothing left to learn: no better loss for long, or as many passes as allowed."""
        return self.stopping.exhausted or self.passes >= self.settings.max_epochs

    def learn(self, feed: Feed, bags: np.ndarray) -> None:
        """Steps over some bags, each once."""
        with self._own_random_numbers():
            self.network.train()
            for batch in feed.batches(bags, self.settings.batch_size, self.order, self.settings.unions):
                _step(self.network, self.optimiser, batch, self.settings)

    def end_pass(self, feed: Feed | None, held_out: Any) -> None:
        """Count a pass over the bags and judge it by bags held out, where there are any."""
        self.passes += 1
        if feed is None or not len(held_out):
            return
        self.history.append(held_out_loss(self.network, feed, held_out, self.settings))
        # A single pass's loss on few bags is noisy: the mean of the last three decides.
        if self.stopping.better(float(np.mean(self.history[-3:]))):
            self.stopping.best = weights_of(self.network)

    def trained(self) -> Trained:
        """The weights of the pass that was best on the bags held out; with none held out, the last ones."""
        if self.history:
            return Trained(
                self.stopping.best, self.stopping.best_round, self.history, self.optimiser.moments()
            )
        return Trained(weights_of(self.network), self.settings.max_epochs, [], self.optimiser.moments())

    # ------------------------------------------------------------------ to be stopped and to go on

    def state(self) -> dict[str, Any]:
        """All that another process needs to go on with the same bits."""
        return {
            "weights": weights_of(self.network),
            "moments": self.optimiser.moments(),
            "drawn": [numbers.numpy() for numbers in self._drawn],
            "order": self.order.get_state(legacy=True),
            "history": self.history,
            "passes": self.passes,
            "stopping": vars(self.stopping).copy(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave."""
        take_weights(self.network, state["weights"])
        self.optimiser.remember(state["moments"])
        self.history, self.passes = state["history"], state["passes"]
        self.stopping = Patience(**state["stopping"])
        self._drawn = [torch.as_tensor(numbers) for numbers in state["drawn"]]
        self.order.set_state(tuple(state["order"]))

    @contextmanager
    def _own_random_numbers(self) -> Iterator[None]:
        """Inside the block torch draws where this member stopped drawing."""
        with torch.random.fork_rng(devices=self._gpus):
            torch.set_rng_state(self._drawn[0])
            for gpu, numbers in zip(self._gpus, self._drawn[1:]):
                torch.cuda.set_rng_state(numbers, gpu)
            yield
            self._drawn = self._random_state()

    def _random_state(self) -> list[torch.Tensor]:
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(gpu) for gpu in self._gpus)]


def catching_up(plan: Plan, settings: Settings, device: Any, seed: int, trained: Trained) -> Member:
    """A member that goes on from its best weights, for a fifth of the passes that led to them.

    The bags that it held out are among those that it learns from now. They are seen less often than the
    others, but a member that begins anew takes five times as long and is no better.
    """
    again = settings._replace(max_epochs=-(-trained.epoch // 5))
    return Member(plan, again, device, seed + 1, trained.weights)


def _step(network: Network, optimiser: AdamW, batch: Batch, settings: Settings) -> None:
    """One step; a batch that does not fit the GPU is cut in halves whose gradients add up."""
    total = len(batch.Y) if batch.weights is None else max(float(batch.weights.sum()), 1e-12)
    pieces = [batch]
    while True:
        optimiser.zero()  # also of what had been added when the GPU was full
        try:
            for piece in pieces:
                _add_gradients(piece, network, settings, total)
            break
        except torch.cuda.OutOfMemoryError:
            if max(len(piece.Y) for piece in pieces) < 2:
                raise
        torch.cuda.empty_cache()
        pieces = [half for piece in pieces for half in piece.halves() if len(half.Y)]
    optimiser.step()


def _add_gradients(batch: Batch, network: Network, settings: Settings, total: float) -> None:
    losses = _losses(batch, network, settings)
    losses = losses if batch.weights is None else losses * batch.weights
    (losses.sum() / total).backward()


def _losses(batch: Batch, network: Network, settings: Settings) -> torch.Tensor:
    if not settings.mixed_precision:
        return bag_losses(settings.loss, network(batch.X, batch.at), batch.Y)
    with torch.autocast(batch.X.device.type, torch.bfloat16):
        Z = network(batch.X, batch.at)
    return bag_losses(settings.loss, Z.float(), batch.Y)


@torch.no_grad()
def held_out_loss(network: Network, feed: Feed, bags: np.ndarray, settings: Settings) -> float:
    """Mean loss over bags."""
    network.eval()
    total = sum(
        _losses(batch, network, settings).sum() for batch in feed.batches(bags, 4 * settings.batch_size)
    )
    return float(total) / len(bags)


# ---------------------------------------------------------------------- losses


def bag_losses(name: str, Z: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
    """Loss of every bag, for scores ``Z`` and labels ``Y`` of 1, 0 or below 0 (not known)."""
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
