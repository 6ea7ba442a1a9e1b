"""One training loop for all heads: AdamW on batches of bags, early stopping on bags held out."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from bagwise.models.deep.feed import Feed
from bagwise.models.deep.losses import bag_losses
from bagwise.models.deep.network import Network, Plan, weights_of


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
    """A member: weights, the epoch they are of, and the loss on held-out bags after every epoch."""

    weights: dict[str, np.ndarray]
    epoch: int
    history: list[float]


def train_member(
    plan: Plan,
    settings: Settings,
    feed: Feed,
    train: np.ndarray,
    held_out: np.ndarray,
    seed: int,
    start: dict[str, np.ndarray] | None = None,
    on_epoch: Any = None,
) -> Trained:
    """Train one network; the weights returned are those of the epoch that was best on the bags held out.

    With no bag held out, the last ones. ``start`` goes on from given weights.
    """
    device = feed.device
    cards = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cards):
        torch.manual_seed(seed)
        network = Network(plan)
        if start is not None:
            network.load_state_dict({name: torch.as_tensor(value) for name, value in start.items()})
        network.to(device)
        order = np.random.RandomState(seed)
        optimiser = torch.optim.AdamW(
            network.parameters(),
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            fused=bool(cards),
        )
        best, best_loss, since, history = weights_of(network), np.inf, 0, []
        chosen = 0
        for epoch in range(settings.max_epochs):
            network.train()
            for batch in feed.batches(train, settings.batch_size, order, settings.unions):
                _step(network, optimiser, batch, settings)
            if on_epoch is not None:
                on_epoch()
            if not len(held_out):
                continue
            history.append(held_out_loss(network, feed, held_out, settings))
            # A single epoch's loss on few bags is noisy: the mean of the last three decides.
            recent = float(np.mean(history[-3:]))
            if recent < best_loss - 1e-5:
                best, best_loss, since, chosen = weights_of(network), recent, 0, epoch + 1
            else:
                since += 1
                if since >= settings.patience:
                    break
        if not len(held_out) or not history:
            best, chosen = weights_of(network), settings.max_epochs
    return Trained(best, chosen, history)


def _step(network: Network, optimiser: Any, batch: Any, settings: Settings) -> None:
    """One step; a batch that does not fit the card is cut in halves whose gradients add up."""
    optimiser.zero_grad(set_to_none=True)
    _backward(
        network, batch, settings, float(batch.weights.sum()) if batch.weights is not None else len(batch.Y)
    )
    torch.nn.utils.clip_grad_norm_(network.parameters(), 5.0, foreach=True)
    optimiser.step()


def _backward(network: Network, batch: Any, settings: Settings, total: float) -> None:
    try:
        losses = _losses(network, batch, settings)
        if batch.weights is not None:
            losses = losses * batch.weights
        (losses.sum() / max(total, 1e-12)).backward()
    except torch.cuda.OutOfMemoryError:
        if len(batch.Y) < 2:
            raise
        losses = None
        torch.cuda.empty_cache()
        for half in batch.halves():
            _backward(network, half, settings, total)


def _losses(network: Network, batch: Any, settings: Settings) -> torch.Tensor:
    device = batch.X.device
    with torch.autocast(device.type, torch.bfloat16, enabled=settings.mixed_precision):
        Z = network(batch.X, batch.at)
    return bag_losses(settings.loss, Z.float(), batch.Y)


@torch.no_grad()
def held_out_loss(network: Network, feed: Feed, bags: np.ndarray, settings: Settings) -> float:
    """Mean loss over bags."""
    network.eval()
    total = sum(
        _losses(network, batch, settings).sum() for batch in feed.batches(bags, 4 * settings.batch_size)
    )
    return float(total) / len(bags)
