"""One training loop for all heads: AdamW on batches of bags, early stopping on bags held out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from bagwise.compute.scaling import Scaling
from bagwise.compute.threads import torch_threads
from bagwise.models.deep.network import Network, Plan, weights_of
from bagwise.models.deep.optimiser import AdamW
from bagwise.models.deep.predict import Batch, Feed, mean_scores


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

    Parameters
    ----------
    plan : Plan
        What the network is made of.
    settings : Settings
        How it is trained.
    device : torch.device
        Where.
    seed : int
        Of weights, order of bags and dropout; other networks trained in between change nothing.
    start : dict of ndarray, optional
        Weights to go on from.
    moments : list of dict, optional
        What the optimiser remembers of the steps that led to them.
    """

    def __init__(
        self, plan: Plan, settings: Settings, device: Any, seed: int, start: Any = None, moments: Any = None
    ) -> None:
        self.settings, self.device = settings, device
        self._cards = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=self._cards):
            torch.manual_seed(seed)
            self.network = Network(plan)
            if start is not None:
                self._load(start)
            self.network.to(device)
            self._drawn = self._random_state()
        self.order = np.random.RandomState(seed)
        self.optimiser = AdamW(self.network, settings.learning_rate, settings.weight_decay)
        if moments:
            self.optimiser.remember(moments)
        self.history: list[float] = []
        self.best = weights_of(self.network)
        self.best_loss, self.chosen, self.passes, self.since = np.inf, 0, 0, 0

    @property
    def done(self) -> bool:
        """Whether there is nothing left to learn: no better loss for long, or as many passes as allowed."""
        return self.since >= self.settings.patience or self.passes >= self.settings.max_epochs

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
        recent = float(np.mean(self.history[-3:]))
        if recent < self.best_loss - 1e-5:
            self.best, self.best_loss = weights_of(self.network), recent
            self.since, self.chosen = 0, self.passes
        else:
            self.since += 1

    def trained(self) -> Trained:
        """The weights of the pass that was best on the bags held out; with none held out, the last ones."""
        if self.history:
            return Trained(self.best, self.chosen, self.history, self.optimiser.moments())
        return Trained(weights_of(self.network), self.settings.max_epochs, [], self.optimiser.moments())

    # ------------------------------------------------------------------ to be stopped and to go on

    def state(self) -> dict[str, Any]:
        """All that another process needs to go on with the same bits."""
        return {
            "weights": weights_of(self.network),
            "moments": self.optimiser.moments(),
            "best": self.best,
            "drawn": [numbers.numpy() for numbers in self._drawn],
            "order": self.order.get_state(legacy=True),
            "history": self.history,
            "counts": [self.best_loss, self.chosen, self.passes, self.since],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave."""
        self._load(state["weights"])
        self.optimiser.remember(state["moments"])
        self.best, self.history = state["best"], state["history"]
        self._drawn = [torch.as_tensor(numbers) for numbers in state["drawn"]]
        self.order.set_state(tuple(state["order"]))
        self.best_loss, self.chosen, self.passes, self.since = state["counts"]

    def _load(self, weights: dict[str, np.ndarray]) -> None:
        tensors = {name: torch.as_tensor(np.array(value)) for name, value in weights.items()}
        self.network.load_state_dict(tensors)

    @contextmanager
    def _own_random_numbers(self) -> Iterator[None]:
        """Inside the block torch draws where this member stopped drawing."""
        with torch.random.fork_rng(devices=self._cards):
            torch.set_rng_state(self._drawn[0])
            for card, numbers in zip(self._cards, self._drawn[1:]):
                torch.cuda.set_rng_state(numbers, card)
            yield
            self._drawn = self._random_state()

    def _random_state(self) -> list[torch.Tensor]:
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(card) for card in self._cards)]


def catching_up(plan: Plan, settings: Settings, device: Any, seed: int, trained: Trained) -> Member:
    """A member that goes on from its best weights, for a fifth of the passes that led to them.

    The bags that it held out are among those that it learns from now. They are seen less often than the
    others, but a member that begins anew takes five times as long and is no better.
    """
    again = settings._replace(max_epochs=-(-trained.epoch // 5))
    return Member(plan, again, device, seed + 1, trained.weights)


def train_member(
    member: Member, feed: Feed, train: np.ndarray, held_out: Any = (), on_epoch: Any = None
) -> Trained:
    """Train one network on bags in memory, in passes over the bags ``train``."""
    while not member.done:
        member.learn(feed, train)
        if on_epoch is not None:
            on_epoch()
        member.end_pass(feed, held_out)
    return member.trained()


def _step(network: Network, optimiser: AdamW, batch: Batch, settings: Settings) -> None:
    """One step; a batch that does not fit the card is cut in halves whose gradients add up."""
    total = len(batch.Y) if batch.weights is None else max(float(batch.weights.sum()), 1e-12)
    pieces = [batch]
    while True:
        optimiser.zero()  # also of what had been added when the card was full
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


# ----------------------------------------------------------------------
# Losses over score matrices: mean over bags, labels that are not known (below 0) left out


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


# ----------------------------------------------------------------------
# Training of all members on bags in memory: each leaves out some, answers for them, then learns from all


class Course(NamedTuple):
    """What all members have in common, the seed of each, and whether they learn from all bags at last."""

    plan: Plan
    settings: Settings
    scaling: Scaling
    device: Any
    seeds: list[int]
    refit: bool

    def feed(self, bags: Any, Y: np.ndarray, weights: Any = None) -> Feed:
        """Bags and labels, ready to be handed out in batches."""
        dtype = torch.bfloat16 if self.settings.mixed_precision else torch.float32
        return Feed(bags, self.scaling, self.device, Y, weights, dtype)

    def scores(self, bags: Any, members: list[Trained]) -> np.ndarray:
        """Mean scores of members for bags."""
        weights = [member.weights for member in members]
        return mean_scores(self.plan, weights, self.scaling, bags, "forward", self.device)

    def threads(self, instances_per_bag: float) -> Any:
        """As many threads as the products of a step are worth."""
        rows = self.settings.batch_size * instances_per_bag
        return torch_threads(rows * self.plan.hidden * max(self.plan.n_features, self.plan.hidden))


class Ensemble(NamedTuple):
    """Members with their last weights, and what they were chosen by.

    ``answers`` are scores of bags by the member that did not see them (NaN where there is none), ``Y`` the
    labels of these bags.
    """

    members: list[Trained]
    epochs: list[int]
    histories: list[np.ndarray]
    answers: np.ndarray
    Y: np.ndarray


def train_in_memory(
    course: Course,
    bags: Any,
    Y: np.ndarray,
    weights: np.ndarray | None,
    parts: np.ndarray,
    advance: Callable[..., None],
) -> Ensemble:
    """Train one member after the other; ``parts`` says who holds a bag out, -2: nobody learns from it."""
    feed = course.feed(bags, Y, weights)
    used = np.flatnonzero(parts > -2)
    answers = np.full(Y.shape, np.nan)
    members, epochs, histories = [], [], []
    with course.threads(bags.n_instances / len(bags)):
        for k, seed in enumerate(course.seeds):
            held_out, rest = used[parts[used] == k], used[parts[used] != k]
            member = Member(course.plan, course.settings, course.device, seed)
            trained = train_member(member, feed, rest, held_out, advance)
            epochs.append(trained.epoch)
            histories.append(np.array(trained.history))
            if len(held_out):
                answers[held_out] = course.scores(bags[held_out], [trained])
                if course.refit:
                    member = catching_up(course.plan, course.settings, course.device, seed, trained)
                    trained = train_member(member, feed, used)
            members.append(trained)
    return Ensemble(members, epochs, histories, answers, Y)


def learn_piece(
    course: Course, members: list[dict[str, np.ndarray]], moments: list[Any], bags: Any, Y: np.ndarray
) -> list[Trained]:
    """One pass over a piece by every member, from its weights and what its optimiser remembers."""
    feed, everything = course.feed(bags, Y), np.arange(len(bags))
    trained = []
    with course.threads(bags.n_instances / len(bags)):
        for seed, weights, moment in zip(course.seeds, members, moments):
            member = Member(course.plan, course.settings, course.device, seed, weights, moment)
            member.learn(feed, everything)
            trained.append(member.trained())
    return trained
