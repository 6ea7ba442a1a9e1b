"""MIMLfast on shards: local passes over all parts from one state, then their average, round after round.

Every part takes the state of the round, makes one pass of mini-batches over its bags in an order that the
seed, the round and the part fix, and gives back where it came to; the next state is the average, weighted by
bags. Held-out bags, drawn from all parts, say when to stop and where the offset lies, as in memory.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np

from bagwise.base.blocks import Block, Blocks
from bagwise.compute.parts import map_parts, map_reduce
from bagwise.compute.scaling import scaling_of
from bagwise.compute.threads import Workers
from bagwise.models.mimlfast.batches import BatchTrainer
from bagwise.models.mimlfast.forward import make_forward
from bagwise.models.mimlfast.memory import LabelRows
from bagwise.models.mimlfast.plan import MOST_HELD_OUT, Plan
from bagwise.models.mimlfast.scale import Scale
from bagwise.models.mimlfast.train import Learned, held_out_loss, initial_state

__all__ = ["learn_from_parts", "scale_of_parts"]


class Round(NamedTuple):
    """What a part is told: the state to begin from, and how to go."""

    state: dict[str, Any]
    number: int
    seed: int
    plan: Plan
    scale: Scale


def scale_of_parts(blocks: Blocks, scaling: str, norm: float, n_features: int, dtype: Any) -> Scale:
    """The scale of `learn_scale` from instances in parts."""
    cells, filled, n = map_reduce(_filled, None, blocks)
    if scaling == "none":
        sparse = bool(getattr(blocks, "shards", None) is not None and blocks.shards.is_sparse)  # type: ignore
        return Scale(np.zeros(n_features, dtype), np.ones(n_features, dtype), 0.0, sparse)
    text_like = bool(filled < 0.1 * cells)
    learned = scaling_of(blocks.map(_instances), "standard", n_features, dtype, text=text_like)
    squares = filled / n if text_like else np.count_nonzero(learned.factor)
    factor = learned.factor * (norm / np.sqrt(squares) if squares > 0 else 0.0)
    return Scale(learned.shift.astype(dtype), factor.astype(dtype), 1.0, text_like)


def _filled(_: None, block: Block) -> tuple[int, int, int]:
    X = block.bags.X
    values = X.data if block.bags.is_sparse else X
    return X.shape[0] * X.shape[1], int(np.count_nonzero(values)), X.shape[0]


def _instances(block: Block) -> tuple[Any, None]:
    return block.bags.X, None


def local_pass(told: Round, block: Block) -> dict[str, Any]:
    """One pass over a part from the state of the round, times the bags of the part."""
    state = {**copy.deepcopy(told.state)}
    n, plan = len(block.Y), told.plan
    # the part is known by its first bag, whatever worker has it
    first = int.from_bytes(str(block.bags.bag_ids[0]).encode()[-8:], "little")
    rng = np.random.default_rng([told.seed, told.number, first])
    with Workers(1) as workers:
        forward = make_forward(block.bags, block.Y.shape[1], told.scale, plan, workers)
        rows = LabelRows.from_matrix(block.Y)
        trainer = BatchTrainer(plan, forward, rows, np.arange(n), state, rng, plan.max_iter)
        trainer.done = told.number * trainer.n_batches  # the step falls over all rounds
        trainer.epoch()
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


def learn_from_parts(blocks: Blocks, plan: Plan, scale: Scale, rng: np.random.Generator) -> Learned:
    """Rounds of local passes until the ranking loss of held-out bags no longer falls."""
    order, seeds = rng.permutation(blocks.n_bags), rng.integers(0, 2**31, 2)
    n_held = min(max(plan.n_held_out, 1), MOST_HELD_OUT, blocks.n_bags // 2)
    held = np.sort(order[:n_held])
    if plan.folds:
        blocks, tested = blocks.take(np.setdiff1d(np.arange(blocks.n_bags), held)), blocks.take(held)
    else:
        tested = blocks.take(np.sort(order[:MOST_HELD_OUT]))
    Y = tested.labels()[0]
    state: dict[str, Any] | None = None
    history: list[float] = []
    best: tuple[float, int, Any, np.ndarray, np.ndarray] | None = None
    for number in range(plan.max_iter):
        if state is None:
            shape = (plan.n_sub_concepts, Y.shape[1] + 1, plan.n_components)
            like: Any = _Shape(shape, len(scale.mean) + 1)
            state = initial_state(np.random.default_rng(seeds[0]), like)
        told = Round(state, number, int(seeds[1]), plan, scale)
        total = map_reduce(local_pass, told, blocks)
        state = averaged(total, state["t"])
        margins = np.concatenate(list(map_parts(margins_of, (state, scale, plan), tested)))
        if not plan.folds:
            best = (0.0, number + 1, state, margins, total["used"])
            continue
        loss = held_out_loss(Y, margins)
        history.append(loss)
        if best is None or loss < best[0]:
            best = (loss, number + 1, copy.deepcopy(state), margins, total["used"])
        elif number + 1 - best[1] >= plan.patience:
            break
    assert best is not None
    _, n_epochs, kept, margins, used = best
    return Learned(kept, used, [margins, Y], n_epochs, history)


class _Shape(NamedTuple):
    """What `initial_state` asks of a Forward."""

    shape: tuple[int, int, int]
    n_inputs: int


def margins_of(params: Any, block: Block) -> np.ndarray:
    """f_l - f_dummy of the bags of a block."""
    state, scale, plan = params
    with Workers(1) as workers:
        forward = make_forward(block.bags, block.Y.shape[1], scale, plan, workers)
        vectors = np.ascontiguousarray(state["W"].transpose(1, 0, 2))
        scores = forward.scores(np.arange(len(block.Y)), state["A"], vectors)
    return scores[:, :-1] - scores[:, -1:]
