"""The topic-label part of MIMLmix: topics of labels, their number, and how well they complete label sets."""

from __future__ import annotations

from typing import Any

import numpy as np

from bagwise.compute.numeric import frozen
from bagwise.metrics import average_precision
from bagwise.models.mimlmix import topic_kernels as kernels
from bagwise.models.mimlmix.em import starts
from bagwise.models.mimlmix.loops import spread

_PIECES = 4
CANDIDATES = (1, 5, 10, 20, 50, 100, 200)


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
        spread(kernels.sweep_topics, _PIECES, *known, q, fresh, own, pairs=q.size, cost=2.0)
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
        room = kernels.TopicRoom.make(n_topics, widest)
        kernels.fold_in(first, last, sets, beta, float(alpha), sharp, max_sweeps, theta, room)

    pairs = len(sets.labels) * n_topics
    spread(loop, n_sets, pairs=pairs, cost=10.0, work=sets.start + np.arange(n_sets + 1))
    return theta


def label_sets(bag: np.ndarray, labels: np.ndarray, amounts: np.ndarray, n_bags: int) -> kernels.LabelSets:
    """Labels of bags, ready for the loops; ``bag`` rises."""
    start = starts(np.bincount(bag, minlength=n_bags))
    return kernels.LabelSets(frozen(start), frozen(labels), frozen(amounts))


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
