"""From the settings of the estimator to trained members, from bags in memory, parts or one more piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from bagwise.base.blocks import Block, Blocks, gathered
from bagwise.compute.journal import EMPTIED, current_journal
from bagwise.compute.parts import report_part
from bagwise.compute.scaling import Scaling, learn_scaling, scaling_of
from bagwise.compute.threads import read_ahead
from bagwise.models._shared.held_out import Calibration, calibrate
from bagwise.models.deep import tune as choices
from bagwise.models.deep.fit_members import (
    Course,
    Ensemble,
    Member,
    Settings,
    Trained,
    catching_up,
    learn_piece,
    train_in_memory,
)
from bagwise.models.deep.network import Plan
from bagwise.models.deep.predict import Feed
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


# ----------------------------------------------------------------------
# Training on parts that are read one after the other, all members side by side
#
# A pass reads every part once, in an order drawn anew, and every member that has not stopped takes its
# steps on it. Parts may be sorted (by year, by species): half of a part, drawn anew, is learned with half
# of the part before. Bags held out are gathered from all parts and stay in memory, as many as `_HELD_OUT`
# bytes hold. What the members have come to after a pass goes to the journal of a `bagwise.checkpoint`.


_HELD_OUT = 1 << 28  # bytes of bags held out, of all members together
_LEAST_HELD_OUT = 50  # bags of each member, however large they are


class HeldOut(NamedTuple):
    """Bags held out, in memory, and which member holds out each."""

    block: Block
    parts: np.ndarray

    def of(self, k: int) -> np.ndarray:
        """Places of the bags of one member."""
        return np.flatnonzero(self.parts == k)


def scaling_of_blocks(blocks: Blocks, kind: str, n_features: int, dtype: Any) -> Scaling:
    """The scaling of instances in parts."""
    return scaling_of(blocks.map(_instances), kind, n_features, dtype)


def _instances(block: Block) -> tuple[Any, None]:
    return block.bags.X, None


def fewer_held_out(parts: np.ndarray, n_members: int, bytes_per_bag: float, rng: Any) -> np.ndarray:
    """Who holds out which bag, if all of these are to fit `_HELD_OUT` bytes; -1: nobody.

    Examples
    --------
    >>> parts = np.arange(1000) % 5
    >>> held = fewer_held_out(parts, 2, 2.0**28 / 200, np.random.RandomState(0))
    >>> [int((held == k).sum()) for k in (-1, 0, 1)]
    [800, 100, 100]
    """
    most = max(_LEAST_HELD_OUT, int(_HELD_OUT / max(bytes_per_bag, 1.0)) // n_members)
    held = np.full(len(parts), -1)
    for k in range(n_members):
        mine = np.flatnonzero(parts == k)
        mine = mine if len(mine) <= most else rng.choice(mine, most, replace=False)
        held[mine] = k
    return held


def train_on_parts(
    course: Course, blocks: Blocks, parts: np.ndarray, advance: Callable[..., None]
) -> Ensemble:
    """Train all members on blocks; ``parts`` says who holds a bag out, -1: nobody."""
    held = None
    if (parts >= 0).any():
        which = np.flatnonzero(parts >= 0)
        held = HeldOut(gathered(blocks, which), parts[which])
    members = [Member(course.plan, course.settings, course.device, seed) for seed in course.seeds]
    with course.threads(blocks.part_rows.sum() / blocks.n_bags):
        found = _passes(course, members, blocks, parts, held, advance)
        epochs = [member.epoch for member in found]
        histories = [np.array(member.history) for member in found]
        if held is None:
            nothing = np.full((0, blocks.n_labels), np.nan)
            return Ensemble(found, epochs, histories, nothing, nothing.astype(np.int8))
        answers = np.full(held.block.Y.shape, np.nan)
        for k, member in enumerate(found):
            answers[held.of(k)] = course.scores(held.block.bags[held.of(k)], [member])
        Y = held.block.Y
        if course.refit:
            held = None
            members = [
                catching_up(course.plan, course.settings, course.device, seed, member)
                for seed, member in zip(course.seeds, found)
            ]
            found = _passes(course, members, blocks, np.full(len(parts), -1), None)
    return Ensemble(found, epochs, histories, answers, Y)


def _passes(
    course: Course,
    members: list[Member],
    blocks: Blocks,
    parts: np.ndarray,
    held: HeldOut | None,
    advance: Callable[..., None] | None = None,
) -> list[Trained]:
    """Passes over all blocks until every member has stopped."""
    tested = None if held is None else course.feed(held.block.bags, held.block.Y)
    journal, number = current_journal(), 0
    while number == 0 or not all(member.done for member in members):
        number += 1
        known = None
        if journal is not None:
            asked = (
                tuple(course.seeds),
                held is None,
                number,
                [tuple(member.settings) for member in members],
            )
            known = journal.recall(f"{__name__}.network_pass", asked, blocks.key)
        if known is None:
            network_pass(course, members, blocks, parts, held, tested, number)
            if journal is not None:
                journal.keep([member.state() for member in members])
                if number > 1:
                    journal.empty_last_but_one()
        elif known[0] != EMPTIED:  # else the journal has a later pass, too
            for member, state in zip(members, known[0]):
                member.restore(state)
        if advance is not None:
            advance(len(members))
    return [member.trained() for member in members]


def network_pass(
    course: Course,
    members: list[Member],
    blocks: Blocks,
    parts: np.ndarray,
    held: HeldOut | None,
    tested: Feed | None,
    number: int,
) -> None:
    """One pass over all blocks by all members that have not stopped."""
    busy = [k for k, member in enumerate(members) if not member.done]
    rng = np.random.RandomState([course.seeds[0], number])
    for bags, Y, held_by in _mixed_parts(blocks, parts, rng):
        feed = course.feed(bags, Y)
        del bags, Y
        for k in busy:
            mine = np.flatnonzero(held_by != k)
            if len(mine):
                members[k].learn(feed, mine)
    for k in busy:
        members[k].end_pass(tested, np.empty(0, dtype=np.int64) if held is None else held.of(k))


def _mixed_parts(blocks: Blocks, parts: np.ndarray, rng: Any) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
    """All bags once: half of every part with the half of the part before that was not drawn then.

    Yields bags, their labels, and who holds each of them out.
    """
    order = rng.permutation(len(blocks)).tolist()
    held_by = np.split(parts, np.cumsum(blocks.part_bags)[:-1])
    loaded = read_ahead(blocks.load, order, int(blocks.streamed))
    waiting: list[Any] = []
    for done, k in enumerate(order, start=1):
        now, waiting = _halves(next(loaded), held_by[k], waiting, rng)
        if now:
            yield now.pop()  # what was handed out is not held on to here
        report_part(network_pass, done, len(order))
    if waiting:
        yield _joined(waiting)


def _halves(block: Block, held_by: np.ndarray, waiting: list[Any], rng: Any) -> tuple[list[Any], list[Any]]:
    """What waited together with some bags of a block, joined; and the rest of the block, which waits now."""
    drawn = rng.random_sample(len(block.Y)) < 0.5
    first, second = (
        [(block.bags[rows], block.Y[rows], held_by[rows])] if len(rows) else []
        for rows in (np.flatnonzero(drawn), np.flatnonzero(~drawn))
    )
    now = [*waiting, *first]
    return ([_joined(now)] if now else []), second


def _joined(pieces: list[tuple[Any, np.ndarray, np.ndarray]]) -> tuple[Any, np.ndarray, np.ndarray]:
    if len(pieces) == 1:
        return pieces[0]
    bags, Y, held_by = zip(*pieces)
    return type(bags[0]).concat(bags), np.concatenate(Y), np.concatenate(held_by)
