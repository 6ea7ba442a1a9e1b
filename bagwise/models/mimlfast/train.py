"""Training of MIMLfast with held-out bags: when to stop, and what the offset is chosen on."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from bagwise.compute.calibration import best_offset
from bagwise.models.mimlfast.batches import BatchTrainer
from bagwise.models.mimlfast.forward import Forward
from bagwise.models.mimlfast.memory import LabelRows
from bagwise.models.mimlfast.plan import MOST_HELD_OUT, Plan
from bagwise.models.mimlfast.sgd import SGDTrainer
from bagwise.models.mimlfast.sgd_kernels import ranking_sum

__all__ = ["Learned", "Outcome", "initial_state", "learn", "make_trainer", "train"]

_CLEARLY = 0.95  # share of the held-out loss that more sub-concepts must come down to


def initial_state(rng: np.random.Generator, forward: Forward) -> dict[str, Any]:
    """Mean 0, standard deviation 1/sqrt(d), as in the paper; ``A`` is W_0 transposed with a constant last."""
    K, n_all, m = forward.shape
    spread = 1.0 / np.sqrt(forward.n_inputs - 1)
    return {
        "A": (spread * rng.standard_normal((forward.n_inputs, m))).astype(np.float32),
        "W": (spread * rng.standard_normal((n_all, K, m))).astype(np.float32),
        "t": 0,
    }


def make_trainer(
    plan: Plan,
    forward: Forward,
    labels: Any,
    ids: np.ndarray,
    state: dict[str, Any],
    rng: np.random.Generator,
    n_epochs: int | None,
) -> Any:
    """The solver of a plan for some bags; ``n_epochs`` is None for an endless stream.

    ``labels`` are `LabelRows`; on a card the matrix they come from.
    """
    if not isinstance(forward, Forward):  # on a card; that room imports torch
        from bagwise.models.mimlfast.card import CardTrainer

        return CardTrainer(plan, forward, labels, ids, state, rng, n_epochs or 1)
    if plan.solver == "minibatch":
        return BatchTrainer(plan, forward, labels, ids, state, rng, n_epochs)
    return SGDTrainer(plan, forward, labels, ids, state, rng)


class Outcome(NamedTuple):
    """What training with held-out bags found."""

    n_epochs: int
    history: list[float]  # held-out ranking loss after each epoch, mean over folds
    margins: np.ndarray  # held-out f_l - f_dummy at the best epoch
    held_out: np.ndarray  # the bags they belong to
    state: dict[str, Any] | None  # of the first trainer at the best epoch, if it is to be kept
    used: np.ndarray


def train(
    trainers: Sequence[Any],
    held_out: Sequence[np.ndarray],
    Y: np.ndarray,
    max_iter: int,
    patience: int,
    *,
    keep: bool = False,
    before: Outcome | None = None,
) -> Outcome:
    """Run trainers side by side until the mean ranking loss on their held-out bags no longer falls.

    ``before`` is what the same trainers found in fewer passes: they go on from there.
    """
    history: list[float] = [] if before is None else before.history
    best, best_loss = before, min(history, default=np.inf)
    if best is not None and len(history) - best.n_epochs >= patience:
        return best
    for epoch in range(len(history) + 1, max_iter + 1):
        margins = []
        for trainer, bags in zip(trainers, held_out):
            trainer.epoch()
            margins.append(_margins(trainer, bags))
        loss = float(np.mean([held_out_loss(Y[bags], m) for bags, m in zip(held_out, margins)]))
        history.append(loss)
        if best is None or loss < best_loss:
            best_loss = loss
            state = copy.deepcopy(trainers[0].state) if keep else None
            used = sum(trainer.used for trainer in trainers)
            best = Outcome(epoch, history, np.concatenate(margins), np.concatenate(held_out), state, used)
        elif epoch - best.n_epochs >= patience:
            break
    assert best is not None
    return best


def held_out_loss(Y: np.ndarray, margins: np.ndarray) -> float:
    """Ranking loss; where no bag has both kinds of labels, the error of the best offset instead."""
    total, n_proper = ranking_sum(Y, margins)
    if n_proper:
        return total / n_proper
    return float(np.mean((margins > best_offset(margins, Y)) != (Y > 0)))


class Learned(NamedTuple):
    """A trained model, and all that training may go on from."""

    state: dict[str, Any]
    used: np.ndarray  # how often each sub-concept was the best of its label
    window: list[np.ndarray]  # margins of bags, held out where any were, and their labels
    n_epochs: int
    history: list[float]


def learn(
    forward_of: Callable[[int], Forward], Y: np.ndarray, plan: Plan, rng: np.random.Generator
) -> Learned:
    """Train as planned: bags held out tell the number of passes; then the best state, or all bags.

    ``forward_of`` gives the scores of models with that many sub-concepts. Where the plan leaves a choice,
    more of them must lower the held-out loss by a twentieth: on few bags it differs by as much by chance.
    """
    everything, rows = np.arange(len(Y)), cache(partial(LabelRows.from_matrix, Y))
    order = rng.permutation(len(Y))
    seeds = rng.integers(0, 2**63, 2)

    def trainer(forward: Forward, ids: np.ndarray) -> Any:  # all folds begin at the same point
        state = initial_state(np.random.default_rng(seeds[0]), forward)
        labels = rows() if isinstance(forward, Forward) else Y
        return make_trainer(plan, forward, labels, ids, state, np.random.default_rng(seeds[1]), plan.max_iter)

    if plan.folds == 0:
        only = trainer(forward_of(plan.n_sub_concepts), everything)
        for _ in range(plan.max_iter):
            only.epoch()
        some = np.sort(order[:MOST_HELD_OUT])
        return Learned(only.state, only.used, [_margins(only, some), Y[some]], plan.max_iter, [])
    if plan.folds == 1:
        held_out = [np.sort(order[: plan.n_held_out])]
    else:
        held_out = [np.sort(part) for part in np.array_split(order, plan.folds)]
    found = None
    for n_sub in plan.choices:
        forward = forward_of(n_sub)
        trainers = [trainer(forward, _others(len(Y), bags)) for bags in held_out]
        outcome = train(trainers, held_out, Y, plan.max_iter, plan.patience, keep=not plan.refit)
        if found is None or min(outcome.history) < _CLEARLY * min(found.history):
            found, best_forward = outcome, forward
    assert found is not None
    window = [found.margins, Y[found.held_out]]
    if found.state is not None:
        return Learned(found.state, found.used, window, found.n_epochs, found.history)
    final = trainer(best_forward, everything)
    for _ in range(found.n_epochs):
        final.epoch()
    return Learned(final.state, final.used, window, found.n_epochs, found.history)


def _others(n: int, ids: np.ndarray) -> np.ndarray:
    kept = np.ones(n, dtype=bool)
    kept[ids] = False
    return np.flatnonzero(kept)


def _margins(trainer: Any, ids: np.ndarray) -> np.ndarray:
    """f_l - f_dummy of some bags."""
    scores = trainer.scores(ids)
    return scores[:, :-1] - scores[:, -1:]
