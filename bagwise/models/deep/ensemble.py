"""Training of all members on bags in memory: each leaves out some, answers for them, then learns from all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from bagwise.compute.scaling import Scaling
from bagwise.compute.threads import torch_threads
from bagwise.models.deep.feed import Feed
from bagwise.models.deep.network import Plan
from bagwise.models.deep.scores import mean_scores
from bagwise.models.deep.training import Member, Settings, Trained, catching_up, train_member


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
