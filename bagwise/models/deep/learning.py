"""From the settings of the estimator to trained members, from bags in memory, parts or one more piece."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from bagwise.base.blocks import Blocks
from bagwise.compute.scaling import learn_scaling
from bagwise.models._shared.held_out import Calibration, calibrate
from bagwise.models.deep import tune as choices
from bagwise.models.deep.ensemble import Course, Ensemble, learn_piece, train_in_memory
from bagwise.models.deep.network import Plan
from bagwise.models.deep.shards import fewer_held_out, scaling_of_blocks, train_on_parts
from bagwise.models.deep.training import Settings
from bagwise.utils.progress import progress

_LATEST, _ENOUGH = 2000, 200  # bags scored before they were learned that calibration looks at, and needs


def learn(
    model: Any, bags: Any, Y: np.ndarray, weights: np.ndarray | None = None, *, more_to_come: bool = False
) -> None:
    """Learn from bags in memory; what later pieces go on from is kept if there will be any."""
    rng = check_random_state(model.random_state)
    used = np.arange(len(bags)) if weights is None else np.flatnonzero(weights > 0)
    parts = np.full(len(bags), -2)  # who holds a bag out; -2: of weight zero
    parts[used] = choices.held_out_parts(len(used), model.n_members, rng, lambda: Y[used])
    model._scaling = learn_scaling(bags.X, model.scaling)
    course = _course(model, Y.shape[1], len(used), bags.n_instances, rng)
    with _progress(model) as advance:
        found = train_in_memory(course, bags, Y, weights, parts, advance)
    _publish(model, found)
    known = np.where(Y >= 0, found.answers, np.nan)
    _calibrate(model, known, np.maximum(Y, 0), weights)
    if more_to_come:
        model._moments = [member.moments for member in found.members]
        model._scored = [found.answers[-_LATEST:], Y[-_LATEST:]]


def learn_from_parts(model: Any, blocks: Blocks) -> None:
    """Learn from shards, all members side by side, part after part."""
    rng = check_random_state(model.random_state)
    shards, n_instances = blocks.shards, int(blocks.part_rows.sum())  # type: ignore[attr-defined]
    parts = choices.held_out_parts(blocks.n_bags, model.n_members, rng, lambda: blocks.labels()[0])
    bytes_per_bag = model.n_features_in_ * shards.dtype.itemsize * n_instances / blocks.n_bags
    parts = fewer_held_out(parts, model.n_members, bytes_per_bag, rng)
    model._scaling = scaling_of_blocks(blocks, model.scaling, model.n_features_in_, shards.dtype)
    course = _course(model, blocks.n_labels, blocks.n_bags, n_instances, rng)
    with _progress(model) as advance:
        found = train_on_parts(course, blocks, parts, advance)
    _publish(model, found)
    always = shards.label_counts == len(shards)
    _calibrate(model, found.answers, found.Y, always=always, n_bags=len(shards))


def go_on(model: Any, bags: Any, Y: np.ndarray) -> None:
    """One pass over one more piece, which is scored before it is learned."""
    scores = model._mean_scores(bags, "forward")
    before = getattr(model, "_scored", [scores[:0], Y[:0]])
    answers, labels = (np.concatenate(pair)[-_LATEST:] for pair in zip(before, (scores, Y)))
    moments = getattr(model, "_moments", [None] * len(model.members_))
    # other random numbers for every piece, the same ones where all pieces come again
    seed = check_random_state(model.random_state).randint(2**31 - 1)
    rng = np.random.RandomState([seed, model._pieces])
    course = _course(model, Y.shape[1], len(bags), bags.n_instances, rng, piece=True)
    trained = learn_piece(course, model.members_, moments, bags, Y)
    model.members_ = [member.weights for member in trained]
    model._moments, model._scored = [member.moments for member in trained], [answers, labels]
    model._pieces += 1
    known = np.where(labels >= 0, answers, np.nan)
    if np.isfinite(known).any(axis=1).sum() >= _ENOUGH:
        _calibrate(model, known, np.maximum(labels, 0))


def plan_of(model: Any) -> Plan:
    """What the networks of a model are made of."""
    shape = (model.n_features_in_, model._n_labels, model.hidden, model.depth, model.dropout)
    return Plan(model.head, choices.chosen_pooling(model.head, model.pooling), *shape)


def _course(
    model: Any, n_labels: int, n_bags: int, n_instances: int, rng: Any, *, piece: bool = False
) -> Course:
    """What all members are told; draws their seeds. Pieces are learned in one pass, in steps as before."""
    model._n_labels = n_labels
    device = choices.chosen_device(model.device, n_instances * model.n_features_in_)
    if not piece:
        model._batch = choices.bags_per_step(model.batch_size, device, n_bags, n_instances)
    settings = Settings(
        model.loss,
        choices.chosen_rate(model.head, model.learning_rate),
        model.weight_decay,
        model._batch,
        1 if piece else model.max_epochs,
        model.patience,
        choices.share_of_unions(model.unions, n_bags),
        choices.chosen_precision(model.mixed_precision, device, n_instances),
    )
    seeds = [int(rng.randint(2**31 - 1)) for _ in range(len(model.members_) if piece else model.n_members)]
    return Course(plan_of(model), settings, model._scaling, device, seeds, model.refit)


def _progress(model: Any) -> Any:
    return progress("DeepMIML", model.n_members * model.max_epochs, enabled=model.verbose)


def _publish(model: Any, found: Ensemble) -> None:
    model.members_ = [member.weights for member in found.members]
    model.epochs_, model.histories_ = found.epochs, found.histories
    model._pieces = 1
    for kept in ("_moments", "_scored"):  # of pieces learned before
        vars(model).pop(kept, None)


def _calibrate(model: Any, scores: np.ndarray, Y: np.ndarray, weights: Any = None, **facts: Any) -> None:
    found = calibrate(scores, Y, weights, **facts)
    if not np.isfinite(scores).any():  # too few bags to hold some out: scores stay as they are
        found = Calibration(np.ones(Y.shape[1]), np.zeros(Y.shape[1]))
    model.calibration_slope_, model.calibration_intercept_ = found
