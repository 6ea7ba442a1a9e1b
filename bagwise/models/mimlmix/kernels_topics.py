"""Topics of labels: latent Dirichlet allocation over label sets by zeroth-order collapsed variational Bayes.

Compiled loops, and what is made of them: topics, their number, and how well they complete label sets.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bagwise.compute.aligned import frozen
from bagwise.compute.compiled import kernel, part
from bagwise.compute.numeric import exp_digamma, reordered_dot, splitmix64
from bagwise.metrics import average_precision
from bagwise.models.mimlmix.fit_em import starts
from bagwise.models.mimlmix.kernels import aligned, spread

CANDIDATES = (1, 5, 10, 20, 50, 100, 200)  # numbers of topics
_PIECES = 4  # of the label sets, each with a table of counts, whatever the number of threads
_NEGLIGIBLE = 1e-4  # share of a label set below which a topic is set aside


class LabelSets(NamedTuple):
    """Label sets one after the other, each label with its (expected) number."""

    start: np.ndarray  # (n_sets + 1,)
    labels: np.ndarray
    amounts: np.ndarray


class TopicRoom(NamedTuple):
    """Memory that a thread works in: numbers per topic, and the labels of one set at the active topics."""

    gamma: np.ndarray
    e: np.ndarray
    active: np.ndarray
    left: np.ndarray
    near: np.ndarray  # (labels, active topics), flat

    @classmethod
    def make(cls, n_topics: int, n_labels: int) -> TopicRoom:
        """Room for sets of up to so many labels."""
        active, left = np.empty((2, n_topics), np.int64)
        return cls(aligned(n_topics), aligned(n_topics), active, left, aligned(n_labels * n_topics))


@kernel
def sweep_topics(first, last, sets, counts, inverse, alpha, smoothing, q, fresh, own):
    """One pass over label sets, of which a piece is a fixed share, with the topic counts of the pass before.

    ``counts`` (n_labels, n_topics) are expected numbers of tokens, ``inverse`` (n_topics,) the reciprocals of
    their smoothed column sums, ``alpha`` and ``smoothing`` Dirichlet parameters of a set's topics and of a
    topic's labels. ``q`` (n_tokens, n_topics), the topic of every token, changes in place; the new counts are
    added to ``fresh`` (n_pieces, n_labels, n_topics). ``own`` (n_pieces, 2, n_topics) is room to work in, and
    ones.
    """
    n_pieces, K, n_sets = fresh.shape[0], q.shape[1], sets.start.size - 1
    for piece in range(first, last):
        mine, ones = own[piece, 0], own[piece, 1]
        for n in range(piece * n_sets // n_pieces, (piece + 1) * n_sets // n_pieces):
            for k in range(K):
                mine[k] = alpha
            for t in range(sets.start[n], sets.start[n + 1]):
                row = q[t]
                for k in range(K):
                    mine[k] += row[k]
            for t in range(sets.start[n], sets.start[n + 1]):
                row, c, out = q[t], counts[sets.labels[t]], fresh[piece, sets.labels[t]]
                for k in range(K):
                    s = row[k]
                    # 1 / (totals - s + spread) to first order in s / totals: no division in the inner loop
                    rest = inverse[k] * (1.0 + s * inverse[k])
                    row[k] = (mine[k] - s) * (c[k] - s + smoothing) * rest
                share = 1.0 / reordered_dot(row, ones, K)
                for k in range(K):
                    row[k] *= share
                    out[k] += row[k]


@part
def _add_topics(first, last, n_active, sets, beta, room):
    """gamma_k = sum over labels of amount * beta_k / (beta . e), at the active topics."""
    gamma, e = room.gamma, room.e
    for t in range(first, last):
        row = beta[sets.labels[t]]
        if n_active < beta.shape[1]:
            row = room.near[(t - first) * n_active : (t - first + 1) * n_active]
        r = reordered_dot(e, row, n_active)
        if r > 0.0:
            share = sets.amounts[t] / r
            for i in range(n_active):
                gamma[i] += share * row[i]


@part
def _set_aside(first, last, n_active, least, sets, beta, room):
    """Topics that hold next to nothing take no further part; how many are left."""
    left = 0
    for i in range(n_active):
        if room.gamma[i] > least:
            room.left[left] = i
            left += 1
    if left >= 0.8 * n_active:
        return n_active
    for t in range(first, last):
        row = beta[sets.labels[t]]
        if n_active < beta.shape[1]:
            row = room.near[(t - first) * n_active : (t - first + 1) * n_active]
        target = room.near[(t - first) * left : (t - first + 1) * left]
        for i in range(left):  # may be in place: targets never lie behind sources
            target[i] = row[room.left[i]]
    for i in range(left):
        room.gamma[i] = room.gamma[room.left[i]]
        room.active[i] = room.active[room.left[i]]
    return left


@kernel
def fold_in_sets(first, last, sets, beta, alpha, sharp, max_sweeps, theta, room):
    """Topic distributions ``theta`` (n_sets, n_topics) of label sets under fixed topics.

    ``beta`` (n_labels, n_topics) are probabilities of labels in topics, transposed; ``sharp`` says whether
    E ln theta is used (variational Bayes) or ln E theta (CVB0). Sweeps end when theta moves by less than
    1e-3.
    """
    K = beta.shape[1]
    for n in range(first, last):
        a, b = sets.start[n], sets.start[n + 1]
        total = alpha * K
        for t in range(a, b):
            total += sets.amounts[t]
        for i in range(K):
            room.gamma[i] = total / K
            room.active[i] = i
            theta[n, i] = alpha / total
        n_active = K
        for sweep in range(max_sweeps):
            for i in range(n_active):
                room.e[i] = exp_digamma(room.gamma[i]) if sharp else room.gamma[i]
                room.gamma[i] = 0.0
            _add_topics(a, b, n_active, sets, beta, room)
            change = 0.0
            for i in range(n_active):
                room.gamma[i] = alpha + room.gamma[i] * room.e[i]
                change += abs(room.gamma[i] / total - theta[n, room.active[i]])
                theta[n, room.active[i]] = room.gamma[i] / total
            if change < 1e-3:
                break
            if sweep % 2 == 1:
                n_active = _set_aside(a, b, n_active, alpha + _NEGLIGIBLE * total, sets, beta, room)


@kernel
def draw_tokens(first, last, tokens, n_draws, state, drawn):
    """Multinomial draws of labels in proportion to the rows of ``tokens``; counts into ``drawn``.

    ``state`` holds the state of a random generator per row.
    """
    for n in range(first, last):
        total = 0.0
        for k in range(tokens.shape[1]):
            drawn[n, k] = 0.0
            total += tokens[n, k]
        for _ in range(n_draws[n]):
            u = float(splitmix64(state[n : n + 1]) >> np.uint64(11)) * (total / 9007199254740992.0)
            k = 0
            while k < tokens.shape[1] - 1 and u >= tokens[n, k]:
                u -= tokens[n, k]
                k += 1
            drawn[n, k] += 1.0


# ---------------------------------------------------------------------- topics, their number, what they know


def fit_topics(
    Y: np.ndarray,
    n_topics: int,
    rng: Any,
    *,
    alpha: float = 0.1,
    smoothing: float = 0.01,
    n_sweeps: int = 60,
    tol: float = 1e-3,
) -> np.ndarray:
    """Expected numbers of labels in topics, (n_topics, n_labels), by CVB0 over the label sets.

    All labels of a set start in one topic drawn at random: topics then hold labels that occur together from
    the first sweep on, while a flat start stays on the plateau where every topic is the popularity of
    labels.
    """
    doc, labels = np.nonzero(Y)
    sets = label_sets(doc, labels, np.ones(len(doc)), len(Y))
    n_labels = Y.shape[1]
    first = rng.randint(n_topics, size=len(Y))[doc]
    q = np.full((len(labels), n_topics), 0.1 / n_topics)
    q[np.arange(len(labels)), first] += 0.9
    counts = np.zeros((n_labels, n_topics))
    np.add.at(counts, labels, q)
    fresh, own = np.empty((_PIECES, n_labels, n_topics)), np.ones((_PIECES, 2, n_topics))
    for _ in range(n_sweeps if n_topics > 1 else 0):
        fresh.fill(0.0)
        inverse = 1.0 / (counts.sum(axis=0) + smoothing * n_labels)
        known = (sets, frozen(counts), frozen(inverse), alpha, smoothing)
        spread(sweep_topics, _PIECES, *known, q, fresh, own, pairs=q.size, cost=2.0)
        new = fresh.sum(axis=0)
        moved = np.abs(new - counts).sum() / max(len(labels), 1)
        counts = new
        if moved < tol:
            break
    return np.ascontiguousarray(counts.T)


def label_distributions(counts: np.ndarray, smoothing: float) -> np.ndarray:
    """Probability of each label in each topic: rows sum to 1."""
    smoothed = counts + smoothing
    return smoothed / smoothed.sum(axis=1, keepdims=True)


def completion(
    Y: np.ndarray, topics: np.ndarray, rng: Any, *, alpha: float = 0.1, sharp: bool = True
) -> float:
    """Average precision of the other half of label sets, given one half; NaN if no set has two labels.

    The measure of what topics know about labels that occur together; one topic is the popularity of labels.
    """
    Y = Y[Y.sum(axis=1) >= 2] > 0
    if not len(Y):
        return float("nan")
    keys = np.where(Y, rng.random_sample(Y.shape), 2.0)
    rank = np.argsort(np.argsort(keys, axis=1), axis=1)
    given = Y & (rank < np.maximum(Y.sum(axis=1, keepdims=True) // 2, 1))
    theta = topic_shares(given, topics, alpha=alpha, sharp=sharp)
    scores = np.where(given, -1.0, theta @ topics)
    return average_precision((Y & ~given).astype(np.int8), scores)


def topic_shares(Y: np.ndarray, topics: np.ndarray, *, alpha: float = 0.1, sharp: bool = True) -> np.ndarray:
    """Topic distribution of every label set under given topics."""
    doc, labels = np.nonzero(Y)
    sets = label_sets(doc, labels, np.ones(len(doc)), len(Y))
    return fold_in(sets, transposed(topics), alpha, sharp, 50)


def transposed(topics: np.ndarray) -> np.ndarray:
    """Topics as the loops read them, (n_labels, n_topics).

    Writable, unlike all else that loops only read: a row may be one of these or one of the loop's own.
    """
    return np.array(topics.T, order="C")


def fold_in(sets: Any, beta: np.ndarray, alpha: float, sharp: bool, max_sweeps: int) -> np.ndarray:
    """Topic distributions of label sets with amounts; ``beta`` as `transposed` gives it."""
    n_sets, n_topics = len(sets.start) - 1, beta.shape[1]
    theta = np.empty((n_sets, n_topics))
    widest = int(np.diff(sets.start).max(initial=0))

    def loop(first: int, last: int) -> None:
        room = TopicRoom.make(n_topics, widest)
        fold_in_sets(first, last, sets, beta, float(alpha), sharp, max_sweeps, theta, room)

    pairs = len(sets.labels) * n_topics
    spread(loop, n_sets, pairs=pairs, cost=10.0, work=sets.start + np.arange(n_sets + 1))
    return theta


def label_sets(bag: np.ndarray, labels: np.ndarray, amounts: np.ndarray, n_bags: int) -> LabelSets:
    """Labels of bags, ready for the loops; ``bag`` rises."""
    start = starts(np.bincount(bag, minlength=n_bags))
    return LabelSets(frozen(start), frozen(labels), frozen(amounts))


def choose_n_topics(Y: np.ndarray, rng: Any, *, alpha: float = 0.1, smoothing: float = 0.01) -> int:
    """Number of topics that best completes the label sets of held-out bags (a quarter of at most 4,000)."""
    order = rng.permutation(len(Y))[:4000]
    held = max(len(order) // 4, 1)
    train, test = Y[order[held:]], Y[order[:held]]
    best, best_value = 1, -np.inf
    half = rng.randint(2**31 - 1)
    for n_topics in CANDIDATES:
        if n_topics > max(len(train) // 5, 1):
            break
        topics = label_distributions(fit_topics(train, n_topics, rng, alpha=alpha, n_sweeps=30), smoothing)
        value = completion(test, topics, np.random.RandomState(half), alpha=alpha)
        if value > best_value + 0.005:  # more topics must pay for themselves
            best, best_value = n_topics, value
    return best
