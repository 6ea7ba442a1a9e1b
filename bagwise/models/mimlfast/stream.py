"""Training of MIMLfast on data that arrive in pieces."""

from __future__ import annotations

from typing import Any

import numpy as np

from bagwise.models.mimlfast.forward import Forward
from bagwise.models.mimlfast.memory import LabelRows
from bagwise.models.mimlfast.plan import MOST_HELD_OUT, SMALL, Plan, make_plan
from bagwise.models.mimlfast.predict import CELLS
from bagwise.models.mimlfast.train import Learned, make_trainer

__all__ = ["learn_piece", "piece_plan"]


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
    rows, ids = LabelRows.from_matrix(Y), rng.permutation(len(Y))
    parts, ahead = [ids], [True]
    if window is None:
        window = [np.zeros((0, Y.shape[1]), np.float32), Y[:0]]
        parts, ahead = [ids], [False]
        if len(ids) >= 5:
            parts, ahead = np.split(ids, [len(ids) - len(ids) // 5]), [False, True]
    used = np.zeros(state["W"].shape[:2], np.int64)
    for part, scored_ahead in zip(parts, ahead):
        trainer = make_trainer(plan, forward, rows, part, state, rng, None)
        if scored_ahead:
            window = _remember(window, trainer.scores(part), Y[part])
        trainer.epoch()
        used += trainer.used
    if not any(ahead):
        window = _remember(window, trainer.scores(ids), Y[ids])
    return Learned(state, used, window, 1, [])


def _remember(window: list[np.ndarray], scores: np.ndarray, Y: np.ndarray) -> list[np.ndarray]:
    """The latest margins f_l - f_dummy and the labels that belong to them."""
    latest = scores[:, :-1] - scores[:, -1:], Y
    most = max(1, min(MOST_HELD_OUT, CELLS // Y.shape[1]))
    return [np.concatenate(pair)[-most:] for pair in zip(window, latest)]
