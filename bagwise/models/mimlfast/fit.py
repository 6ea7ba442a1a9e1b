"""How MIMLfast learns: settings once the data are known, held-out bags that say when to stop, pieces, shards.

The solvers are in ``fit_minibatch.py`` and ``fit_sgd.py``. On shards every part takes the state of a round,
makes one pass of mini-batches over its bags in an order that the seed, the round and the part fix, and gives
back where it came to; the next state is the average, weighted by bags. Held-out bags, drawn from all parts,
say when to stop and where the offset lies, as in memory.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bagwise.base.blocks import Block, Blocks
from bagwise.compute.calibration import best_offset
from bagwise.compute.parts import map_parts, map_reduce
from bagwise.compute.scaling import is_text, scaling_of
from bagwise.compute.stopping import Patience
from bagwise.compute.threads import Workers
from bagwise.models.mimlfast.fit_minibatch import BatchTrainer
from bagwise.models.mimlfast.fit_sgd import SGDTrainer
from bagwise.models.mimlfast.kernels_sgd import ranking_sum
from bagwise.models.mimlfast.predict import CELLS, Forward, Scale, make_forward, of_length

SMALL = 3000  # bags up to which averaged SGD is at least as good as mini-batches, and fast enough
SMALL_TEXT = 20_000  # the same for text, where rare words mislead mini-batches and sparse steps are cheap
MOST_HELD_OUT = 2000
SUB_CONCEPTS = (1, 5)  # what "auto" chooses from
_FEW = 500  # bags up to which "auto" takes folds, and one sub-concept where none are held out
_CLEARLY = 0.95  # share of the held-out loss that more sub-concepts must come down to


class Plan(NamedTuple):
    """Every setting of a training."""

    solver: str
    n_components: int
    n_sub_concepts: int
    choices: tuple[int, ...]  # sub-concepts to choose from on held-out bags, fewest first
    max_norm: float
    step_size: float
    step_decay: float
    learning_rate: float
    batch_bags: int
    max_iter: int
    patience: int
    norm: float  # root mean square length of scaled instances
    folds: int  # 0: none held out, 1: a part, more: that many folds
    n_held_out: int  # bags of the part
    refit: bool


def make_plan(model: Any, n_bags: int, X: Any = None) -> Plan:
    """Fill in "auto" for a number of bags and, if known, their instances."""
    solver = model.solver
    if solver == "auto":
        few = n_bags <= SMALL or (X is not None and n_bags <= SMALL_TEXT and is_text(X))
        solver = "asgd" if few else "minibatch"
    by_batch = solver == "minibatch"
    usual_batch = int(np.clip(2 ** (n_bags // 60).bit_length(), 16, 512))
    # enough passes for about 360 updates, which is where generated data of many shapes level off
    passes = int(np.clip(round(180_000 / n_bags), 5, 30)) if by_batch else 40

    def given(value: Any, usual: Any) -> Any:
        return usual if isinstance(value, str) else value  # the only word is "auto"

    folds, n_held_out = _held_out(model.validation, solver, n_bags)
    choices: tuple[int, ...] = SUB_CONCEPTS
    if model.n_sub_concepts != "auto":
        choices = (model.n_sub_concepts,)
    elif folds == 0 or n_bags > SMALL:  # nothing to choose by, or enough bags for all of them
        choices = SUB_CONCEPTS[:1] if n_bags <= _FEW else SUB_CONCEPTS[-1:]
    by_size = solver != "sgd" and n_bags <= SMALL
    return Plan(
        solver=solver,
        n_components=model.n_components,
        n_sub_concepts=choices[-1],
        choices=choices,
        max_norm=float(model.max_norm),
        step_size=float(model.step_size),
        step_decay=float(model.step_decay),
        learning_rate=float(model.learning_rate),
        batch_bags=given(model.batch_size, usual_batch),
        max_iter=given(model.max_iter, passes),
        patience=given(model.n_iter_no_change, 1 if solver == "sgd" else 5),
        norm=float(given(model.feature_norm, 15.0 if by_batch else 3.0)),
        folds=folds,
        n_held_out=n_held_out,
        refit=folds > 1 or bool(given(model.refit, by_size)),
    )


def _held_out(validation: Any, solver: str, n_bags: int) -> tuple[int, int]:
    """Number of folds, and of bags in the only one; see ``validation`` of MIMLFast."""
    if validation == "auto":
        if n_bags < 10:
            return 0, 0
        if solver != "sgd" and n_bags <= _FEW:
            return 3, 0
        share = 0.2 if solver != "sgd" and n_bags <= SMALL else min(0.1, MOST_HELD_OUT / n_bags)
        return 1, max(1, round(share * n_bags))
    folds = int(validation) if validation >= 1 else int(validation > 0)
    n_held_out = max(1, round(validation * n_bags)) if folds == 1 else 0
    if folds > n_bags or (folds == 1 and n_held_out >= n_bags):
        raise ValueError(
            f"validation of MIMLFast leaves no bag to train on: {validation!r} with {n_bags} bags; "
            "give fewer folds, a smaller share, or 0 for none"
        )
    return folds, n_held_out


# ---------------------------------------------------------------------- held-out bags


class Learned(NamedTuple):
    """A trained model, and all that training may go on from."""

    state: Any  # None where it was not to be kept
    used: np.ndarray  # how often each sub-concept was the best of its label
    window: list[np.ndarray]  # margins f_l - f_dummy of bags, held out where any were, and their labels
    n_epochs: int
    history: list[float]  # held-out ranking loss after each epoch, mean over folds


def learn(
    forward_of: Callable[[int], Forward], Y: np.ndarray, plan: Plan, rng: np.random.Generator
) -> Learned:
    """Train as planned: bags held out tell the number of passes; then the best state, or all bags.

    ``forward_of`` gives the scores of models with that many sub-concepts. Where the plan leaves a choice,
    more of them must lower the held-out loss by a twentieth: on few bags it differs by as much by chance.
    """
    everything, order = np.arange(len(Y)), rng.permutation(len(Y))
    seeds = rng.integers(0, 2**63, 2)

    def trainer(forward: Forward, ids: np.ndarray) -> Any:  # all folds begin at the same point
        state = initial_state(np.random.default_rng(seeds[0]), forward.shape, forward.n_inputs)
        return make_trainer(plan, forward, ids, state, np.random.default_rng(seeds[1]), plan.max_iter)

    if plan.folds == 0:
        only = trainer(forward_of(plan.n_sub_concepts), everything)
        return _passes(only, plan.max_iter, np.sort(order[:MOST_HELD_OUT]), Y)
    if plan.folds == 1:
        held_out = [np.sort(order[: plan.n_held_out])]
    else:
        held_out = [np.sort(part) for part in np.array_split(order, plan.folds)]
    found = None
    for n_sub in plan.choices:
        forward = forward_of(n_sub)
        trainers = [trainer(forward, np.setdiff1d(everything, bags)) for bags in held_out]
        outcome = train(trainers, held_out, Y, plan.max_iter, plan.patience, keep=not plan.refit)
        if found is None or min(outcome.history) < _CLEARLY * min(found.history):
            found, best_forward = outcome, forward
    assert found is not None
    if found.state is not None:
        return found
    final = _passes(trainer(best_forward, everything), found.n_epochs)
    return found._replace(state=final.state, used=final.used)


def initial_state(rng: np.random.Generator, shape: tuple[int, int, int], n_inputs: int) -> dict[str, Any]:
    """Mean 0, standard deviation 1/sqrt(d), as in the paper; ``A`` is W_0 transposed with a constant last."""
    K, n_all, m = shape
    spread = 1.0 / np.sqrt(n_inputs - 1)
    return {
        "A": (spread * rng.standard_normal((n_inputs, m))).astype(np.float32),
        "W": (spread * rng.standard_normal((n_all, K, m))).astype(np.float32),
        "t": 0,
    }


def make_trainer(
    plan: Plan,
    forward: Forward,
    ids: np.ndarray,
    state: dict[str, Any],
    rng: np.random.Generator,
    n_epochs: int | None,
) -> Any:
    """The solver of a plan for some bags; ``n_epochs`` is None for an endless stream."""
    if plan.solver == "minibatch":
        return BatchTrainer(plan, forward, ids, state, rng, n_epochs)
    return SGDTrainer(plan, forward, ids, state, rng)


def train(
    trainers: Sequence[Any],
    held_out: Sequence[np.ndarray],
    Y: np.ndarray,
    max_iter: int,
    patience: int,
    *,
    keep: bool = False,
    before: Learned | None = None,
) -> Learned:
    """Run trainers side by side until the mean ranking loss on their held-out bags no longer falls.

    A trainer has ``epoch()``, and after it ``state``, ``used`` and ``scores(ids)``. With ``keep`` the best
    state of the first is kept. ``before`` is what the same trainers found in fewer passes: they go on from
    there.
    """
    history: list[float] = [] if before is None else before.history
    stopping = Patience(patience, rounds=len(history), best_score=min(history, default=np.inf), best=before)
    stopping.best_round = 0 if before is None else before.n_epochs
    while stopping.rounds < max_iter and not stopping.exhausted:
        margins = []
        for trainer, bags in zip(trainers, held_out):
            trainer.epoch()
            margins.append(margins_of(trainer.scores(bags)))
        loss = float(np.mean([held_out_loss(Y[bags], m) for bags, m in zip(held_out, margins)]))
        history.append(loss)
        if stopping.better(loss) or stopping.best is None:
            state = copy.deepcopy(trainers[0].state) if keep else None
            used = sum(trainer.used for trainer in trainers)
            window = [np.concatenate(margins), Y[np.concatenate(held_out)]]
            stopping.best = Learned(state, used, window, stopping.rounds, history)
    return stopping.best


def _passes(trainer: Any, n_epochs: int, some: np.ndarray | None = None, Y: Any = None) -> Learned:
    """So many passes; the offset is then chosen on some of the bags."""
    for _ in range(n_epochs):
        trainer.epoch()
    window = [] if some is None else [margins_of(trainer.scores(some)), Y[some]]
    return Learned(trainer.state, trainer.used, window, n_epochs, [])


def held_out_loss(Y: np.ndarray, margins: np.ndarray) -> float:
    """Ranking loss; where no bag has both kinds of labels, the error of the best offset instead."""
    total, n_proper = ranking_sum(Y, margins)
    if n_proper:
        return total / n_proper
    return float(np.mean((margins > best_offset(margins, Y)) != (Y > 0)))


def margins_of(scores: np.ndarray) -> np.ndarray:
    """f_l - f_dummy."""
    return scores[:, :-1] - scores[:, -1:]


# ---------------------------------------------------------------------- data in pieces


def piece_plan(model: Any, n_bags: int, *, first: bool) -> Plan:
    """Settings for a piece; training goes on from the shape and with the solver that it began with."""
    plan = make_plan(model, SMALL + 1)  # pieces may be small, but there will be many
    if model.batch_size == "auto":
        plan = plan._replace(batch_bags=int(np.clip(n_bags // 8, 16, 512)))
    if first:
        return plan
    _, K, m = model._state["W"].shape
    return plan._replace(solver=model.solver_, n_sub_concepts=K, n_components=m)


def learn_piece(
    forward: Forward,
    Y: np.ndarray,
    plan: Plan,
    state: dict[str, Any],
    window: list[np.ndarray] | None,
    rng: np.random.Generator,
) -> Learned:
    """One pass over a piece, going on from a state; without a ``window`` it is the first piece.

    The offset is chosen on the latest bags, each scored before it is learned; of the first piece the last
    fifth, or all of it, once learned, if it is too small to be divided.
    """
    ids = rng.permutation(len(Y))
    parts, ahead = [ids], [True]
    if window is None:
        window = [np.zeros((0, Y.shape[1]), np.float32), Y[:0]]
        parts, ahead = [ids], [False]
        if len(ids) >= 5:
            parts, ahead = np.split(ids, [len(ids) - len(ids) // 5]), [False, True]
    used = np.zeros(state["W"].shape[:2], np.int64)
    for part, scored_ahead in zip(parts, ahead):
        trainer = make_trainer(plan, forward, part, state, rng, None)
        if scored_ahead:
            window = _remember(window, trainer.scores(part), Y[part])
        trainer.epoch()
        state, used = trainer.state, used + trainer.used
    if not any(ahead):
        window = _remember(window, trainer.scores(ids), Y[ids])
    return Learned(state, used, window, 1, [])


def _remember(window: list[np.ndarray], scores: np.ndarray, Y: np.ndarray) -> list[np.ndarray]:
    """The latest margins and the labels that belong to them."""
    most = max(1, min(MOST_HELD_OUT, CELLS // Y.shape[1]))
    return [np.concatenate(pair)[-most:] for pair in zip(window, (margins_of(scores), Y))]


# ---------------------------------------------------------------------- shards


def scale_of_parts(blocks: Blocks, scaling: str, norm: float, n_features: int, dtype: Any) -> Scale:
    """The scale of `learn_scale` from instances in parts."""
    cells, filled, n = map_reduce(_filled, None, blocks)
    if scaling == "none":
        sparse = bool(blocks.shards.is_sparse)  # type: ignore[attr-defined]
        return Scale(np.zeros(n_features, dtype), np.ones(n_features, dtype), 0.0, sparse)
    text_like = bool(filled < 0.1 * cells)
    learned = scaling_of(blocks.map(_instances), "standard", n_features, dtype, text=text_like)
    return of_length(norm, learned, filled / n if text_like else None, dtype)


def _filled(_: None, block: Block) -> tuple[int, int, int]:
    X = block.bags.X
    values = X.data if block.bags.is_sparse else X
    return X.shape[0] * X.shape[1], int(np.count_nonzero(values)), X.shape[0]


def _instances(block: Block) -> tuple[Any, None]:
    return block.bags.X, None


class Round(NamedTuple):
    """What every part gets: the state to begin from, and how to go."""

    state: dict[str, Any]
    number: int
    seed: int
    plan: Plan
    scale: Scale


def learn_from_parts(blocks: Blocks, plan: Plan, scale: Scale, rng: np.random.Generator) -> Learned:
    """Rounds of local passes until the ranking loss of held-out bags no longer falls."""
    order, seeds = rng.permutation(blocks.n_bags), rng.integers(0, 2**31, 2)
    held = np.sort(order[: min(max(plan.n_held_out, 1), MOST_HELD_OUT, blocks.n_bags // 2)])
    if plan.folds:
        blocks, tested = blocks.take(np.setdiff1d(np.arange(blocks.n_bags), held)), blocks.take(held)
    else:
        tested = blocks.take(np.sort(order[:MOST_HELD_OUT]))
    Y = tested.labels()[0]
    shape = (plan.n_sub_concepts, Y.shape[1] + 1, plan.n_components)
    state = initial_state(np.random.default_rng(seeds[0]), shape, len(scale.mean) + 1)
    trainer = RoundTrainer(blocks, tested, Round(state, 0, int(seeds[1]), plan, scale))
    everything = np.arange(len(Y))
    if not plan.folds:
        return _passes(trainer, plan.max_iter, everything, Y)
    return train([trainer], [everything], Y, plan.max_iter, plan.patience, keep=True)


class RoundTrainer:
    """Rounds over the blocks, for `train`; scores are those of all bags of ``tested``."""

    def __init__(self, blocks: Blocks, tested: Blocks, first: Round) -> None:
        self.blocks, self.tested, self.next = blocks, tested, first

    @property
    def state(self) -> dict[str, Any]:
        """All that training goes on from."""
        return self.next.state

    def epoch(self) -> None:
        """One round."""
        total = map_reduce(local_pass, self.next, self.blocks)
        state, self.used = averaged(total, self.state["t"]), total["used"]
        self.next = self.next._replace(state=state, number=self.next.number + 1)

    def scores(self, _: np.ndarray) -> np.ndarray:
        """Scores of labels and dummy."""
        return np.concatenate(list(map_parts(_scores_of, self.next, self.tested)))


def local_pass(given: Round, block: Block) -> dict[str, Any]:
    """One pass over a part from the state of the round, times the bags of the part."""
    n, plan = len(block.Y), given.plan
    # the part is known by its first bag, whatever worker has it
    first = int.from_bytes(str(block.bags.bag_ids[0]).encode()[-8:], "little")
    rng = np.random.default_rng([given.seed, given.number, first])
    with Workers(1) as workers:
        forward = make_forward(block.bags, block.Y, given.scale, plan, workers)
        state = copy.deepcopy(given.state)
        trainer = BatchTrainer(plan, forward, np.arange(n), state, rng, plan.max_iter)
        trainer.done = given.number * (len(trainer.cuts) - 1)  # the step falls over all rounds
        trainer.epoch()
    state = trainer.state
    found = {name: n * state[name].astype(np.float64) for name in ("A", "W")}
    found["moments"] = [n * moment.astype(np.float64) for moment in state["moments"]]
    counts = {"n": float(n)} | {name: float(n * state[name]) for name in ("updates", "batch_bags")}
    return found | counts | {"used": trainer.used, "loss": float(n * trainer.losses[-1])}


def averaged(total: dict[str, Any], t: int) -> dict[str, Any]:
    """The state that all parts came to, weighted by their bags."""
    n = total["n"]
    return {
        "A": (total["A"] / n).astype(np.float32),
        "W": (total["W"] / n).astype(np.float32),
        "t": t + int(n),
        "moments": [(moment / n).astype(np.float32) for moment in total["moments"]],
        "updates": round(total["updates"] / n),
        "batch_bags": max(1, round(total["batch_bags"] / n)),
    }


def _scores_of(given: Round, block: Block) -> np.ndarray:
    """Scores of labels and dummy for the bags of a block."""
    state = given.state
    with Workers(1) as workers:
        vectors = np.ascontiguousarray(state["W"].transpose(1, 0, 2))
        forward = make_forward(block.bags, block.Y, given.scale, given.plan, workers)
        return forward.scores(np.arange(len(block.Y)), state["A"], vectors)
