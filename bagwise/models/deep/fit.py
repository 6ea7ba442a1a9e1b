"""From the settings of the estimator to trained members, from bags in memory, parts or one more piece.

All members are trained side by side: a pass goes over all bags once, and every member that has not stopped
takes its steps on them. Bags in memory are one feed. Parts are read one after the other, in an order drawn
anew; they may be sorted (by year, by species), so half of a part, drawn anew, is learned with half of the
part before. Bags held out are gathered from all parts and stay in memory, as many as `_HELD_OUT` bytes hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.utils import check_random_state

from bagwise.base.blocks import Block, Blocks, gathered, unweighted
from bagwise.compute.calibration import Calibration, calibrate
from bagwise.compute.journal import EMPTIED, current_journal
from bagwise.compute.parts import report_part
from bagwise.compute.scaling import Scaling, learn_scaling, scaling_of
from bagwise.compute.threads import read_ahead, torch_threads
from bagwise.models.deep import tune
from bagwise.models.deep.fit_members import Member, Settings, Trained, catching_up
from bagwise.models.deep.network import Plan
from bagwise.models.deep.predict import Feed, mean_scores
from bagwise.utils.progress import progress

UNUSED = -2  # in the place of the member that holds a bag out: nobody learns from it, its weight is zero
_LATEST, _ENOUGH = 2000, 200  # bags scored before they were learned that calibration looks at, and needs
_HELD_OUT = 1 << 28  # bytes of bags held out, of all members together
_LEAST_HELD_OUT = 50  # bags of each member, however large they are


def learn(
    model: Any, bags: Any, Y: np.ndarray, weights: np.ndarray | None = None, *, more_to_come: bool = False
) -> None:
    """Learn from bags in memory; what later pieces go on from is kept if there will be any."""
    rng = check_random_state(model.random_state)
    used = np.arange(len(bags)) if weights is None else np.flatnonzero(weights > 0)
    parts = np.full(len(bags), UNUSED)  # who holds a bag out
    parts[used] = tune.held_out_parts(len(used), model.n_members, rng, lambda: Y[used])
    model._scaling = learn_scaling(bags.X, model.scaling)
    course = _course(model, Y.shape[1], len(used), bags.n_instances, rng)
    feed = course.feed(bags, Y, weights)
    source = Source(lambda parts, _: iter([(feed, parts)]), bags.n_instances / len(bags))
    members, answers, _ = train(model, course, source, parts, HeldOut(bags, Y, feed, parts))
    _learn_probabilities(model, answers, Y, weights)
    if more_to_come:
        model._moments = [member.moments for member in members]
        model._scored = [answers[-_LATEST:], Y[-_LATEST:]]


def learn_from_parts(model: Any, blocks: Blocks) -> None:
    """Learn from shards, all members side by side, part after part."""
    rng = check_random_state(model.random_state)
    shards, n_instances = blocks.shards, int(blocks.part_rows.sum())  # type: ignore[attr-defined]
    parts = tune.held_out_parts(blocks.n_bags, model.n_members, rng, lambda: blocks.labels()[0])
    bytes_per_bag = model.n_features_in_ * shards.dtype.itemsize * n_instances / blocks.n_bags
    parts = fewer_held_out(parts, model.n_members, bytes_per_bag, rng)
    model._scaling = scaling_of(blocks.map(unweighted), model.scaling, model.n_features_in_, shards.dtype)
    course = _course(model, blocks.n_labels, blocks.n_bags, n_instances, rng)
    source = Source(partial(_mixed_feeds, course, blocks), n_instances / blocks.n_bags, blocks.key)
    _, answers, Y = train(model, course, source, parts, _gathered(course, blocks, parts))
    always = shards.label_counts == len(shards)
    _learn_probabilities(model, answers, Y, always=always, n_bags=len(shards))


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
    feed, trained = course.feed(bags, Y), []
    with course.threads(bags.n_instances / len(bags)):
        for member_seed, weights, moment in zip(course.seeds, model.members_, moments):
            member = Member(course.plan, course.settings, course.device, member_seed, weights, moment)
            member.learn(feed, np.arange(len(bags)))
            trained.append(member.trained())
    model.members_ = [member.weights for member in trained]
    model._moments, model._scored = [member.moments for member in trained], [answers, labels]
    model._pieces += 1
    if ((labels >= 0) & np.isfinite(answers)).any(axis=1).sum() >= _ENOUGH:
        _learn_probabilities(model, answers, labels)


def plan_of(model: Any) -> Plan:
    """What the networks of a model are made of."""
    shape = (model.n_features_in_, model._n_labels, model.hidden, model.depth, model.dropout)
    return Plan(model.head, tune.chosen_pooling(model.head, model.pooling), *shape)


def _course(
    model: Any, n_labels: int, n_bags: int, n_instances: int, rng: Any, *, piece: bool = False
) -> Course:
    """What members have in common; draws their seeds. Pieces are learned in one pass, in steps as before."""
    model._n_labels = n_labels
    device = tune.chosen_device(model.device, n_instances * model.n_features_in_)
    if not piece:
        model._batch = tune.bags_per_step(model.batch_size, device, n_bags, n_instances)
    settings = Settings(
        model.loss,
        tune.chosen_rate(model.head, model.learning_rate),
        model.weight_decay,
        model._batch,
        1 if piece else model.max_epochs,
        model.patience,
        tune.share_of_unions(model.unions, n_bags),
        tune.chosen_precision(model.mixed_precision, device, n_instances),
    )
    seeds = [int(rng.randint(2**31 - 1)) for _ in range(len(model.members_) if piece else model.n_members)]
    return Course(plan_of(model), settings, model._scaling, device, seeds, model.refit)


def _learn_probabilities(
    model: Any, answers: np.ndarray, Y: np.ndarray, weights: Any = None, **facts: Any
) -> None:
    known = np.where(Y >= 0, answers, np.nan)
    found = calibrate(known, np.maximum(Y, 0), weights, **facts)
    if not np.isfinite(known).any():  # too few bags to hold some out: scores stay as they are
        found = Calibration(np.ones(Y.shape[1]), np.zeros(Y.shape[1]))
    model.calibration_slope_, model.calibration_intercept_ = found


# ---------------------------------------------------------------------- all members, pass by pass


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

    def threads(self, instances_per_bag: float) -> Any:
        """As many threads as the products of a step are worth."""
        rows = self.settings.batch_size * instances_per_bag
        return torch_threads(rows * self.plan.hidden * max(self.plan.n_features, self.plan.hidden))


class Source(NamedTuple):
    """Where passes come from: ``feeds(parts, rng)`` gives all bags once, with who holds each of them out.

    ``parts`` says so of every bag: the number of a member, -1 for nobody, `UNUSED`. ``key`` says what the
    data are, where a journal is kept of them.
    """

    feeds: Callable[[np.ndarray, Any], Iterator[tuple[Feed, np.ndarray]]]
    instances_per_bag: float
    key: str = ""


class HeldOut(NamedTuple):
    """Bags held out, in memory, as they are and as a feed, and which member holds out each."""

    bags: Any
    Y: np.ndarray
    feed: Feed | None
    parts: np.ndarray

    def of(self, k: int) -> np.ndarray:
        """Places of the bags of one member."""
        return np.flatnonzero(self.parts == k)


def train(
    model: Any, course: Course, source: Source, parts: np.ndarray, held: HeldOut
) -> tuple[list[Trained], np.ndarray, np.ndarray]:
    """Train all members without the bags that each holds out; it scores these, then learns from all.

    Trained members; scores of ``held`` bags by the member that did not see them (else NaN); their labels.
    """
    members = [Member(course.plan, course.settings, course.device, seed) for seed in course.seeds]
    total, answers, Y = model.n_members * model.max_epochs, np.full(held.Y.shape, np.nan), held.Y
    bar = progress("DeepMIML", total, enabled=model.verbose)
    with bar as advance, course.threads(source.instances_per_bag):
        found = _passes(course, members, source, parts, held, advance)
        model.epochs_ = [member.epoch for member in found]
        model.histories_ = [np.array(member.history) for member in found]
        for k, member in enumerate(found):
            mine = held.of(k)
            if len(mine):
                given = [member.weights], course.scaling, held.bags[mine], "forward", course.device
                answers[mine] = mean_scores(course.plan, *given)
        if course.refit and (held.parts >= 0).any():
            del held  # makes room
            members = [
                catching_up(course.plan, course.settings, course.device, seed, member)
                for seed, member in zip(course.seeds, found)
            ]
            found = _passes(course, members, source, np.minimum(parts, -1))
    model.members_ = [member.weights for member in found]
    model._pieces = 1
    for kept in ("_moments", "_scored"):  # of pieces learned before
        vars(model).pop(kept, None)
    return found, answers, Y


def _passes(
    course: Course,
    members: list[Member],
    source: Source,
    parts: np.ndarray,
    held: HeldOut | None = None,
    advance: Callable[..., None] | None = None,
) -> list[Trained]:
    """Passes over all bags until every member has stopped.

    What the members have come to after a pass goes to the journal of a `bagwise.checkpoint`.
    """
    journal = current_journal() if source.key else None
    number = 0
    while number == 0 or not all(member.done for member in members):
        number += 1
        known = None
        if journal is not None:
            settings = [tuple(member.settings) for member in members]
            asked = tuple(course.seeds), held is None, number, settings
            known = journal.recall(f"{__name__}.network_pass", asked, source.key)
        if known is None:
            rng = np.random.RandomState([course.seeds[0], number])
            network_pass(members, source.feeds(parts, rng), held)
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
    members: list[Member], feeds: Iterator[tuple[Feed, np.ndarray]], held: HeldOut | None
) -> None:
    """One pass over all bags by all members that have not stopped."""
    busy = [k for k, member in enumerate(members) if not member.done]
    for feed, held_by in feeds:
        for k in busy:
            mine = np.flatnonzero((held_by != k) & (held_by != UNUSED))
            if len(mine):
                members[k].learn(feed, mine)
    for k in busy:
        members[k].end_pass(None if held is None else held.feed, () if held is None else held.of(k))


# ---------------------------------------------------------------------- parts that are read one by one


def fewer_held_out(parts: np.ndarray, n_members: int, bytes_per_bag: float, rng: Any) -> np.ndarray:
    """Who holds out which bag, if all of these are to fit `_HELD_OUT` bytes; -1: nobody."""
    most = max(_LEAST_HELD_OUT, int(_HELD_OUT / max(bytes_per_bag, 1.0)) // n_members)
    held = np.full(len(parts), -1)
    for k in range(n_members):
        mine = np.flatnonzero(parts == k)
        mine = mine if len(mine) <= most else rng.choice(mine, most, replace=False)
        held[mine] = k
    return held


def _gathered(course: Course, blocks: Blocks, parts: np.ndarray) -> HeldOut:
    """Bags held out, from all parts."""
    which = np.flatnonzero(parts >= 0)
    if not len(which):
        return HeldOut(None, np.empty((0, blocks.n_labels), dtype=np.int8), None, parts[which])
    bags, Y = gathered(blocks, which)[:2]
    return HeldOut(bags, Y, course.feed(bags, Y), parts[which])


def _mixed_feeds(
    course: Course, blocks: Blocks, parts: np.ndarray, rng: Any
) -> Iterator[tuple[Feed, np.ndarray]]:
    for bags, Y, held_by in _mixed_parts(blocks, parts, rng):
        feed = course.feed(bags, Y)
        del bags, Y
        yield feed, held_by


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
