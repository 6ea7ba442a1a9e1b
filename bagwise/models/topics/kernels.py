"""Compiled loops of M3LDA: collapsed Gibbs sampling of the labels of instances.

Words of all views share one numbering, that of a view following that of the view before, so that one table
holds the words of every label. Instances lie bag by bag, in each bag view by view.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from bagwise.compute.compiled import kernel, part
from bagwise.compute.numeric import splitmix64


class Rows(NamedTuple):
    """Instances of bags: counts of words as CSR, and the view of each."""

    start: np.ndarray  # (n_bags + 1,)
    views: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray


class Sets(NamedTuple):
    """Labels that the instances of each bag may have."""

    start: np.ndarray  # (n_bags + 1,)
    labels: np.ndarray


class Tables(NamedTuple):
    """What is counted: instances per bag and label, words per label, lengths per view and label."""

    members: np.ndarray  # beside Sets.labels
    words: np.ndarray  # (n_words, n_labels)
    lengths: np.ndarray  # (n_views, n_labels)


class Priors(NamedTuple):
    """Pseudo-counts of labels in a bag, of a word, and of all words of a view."""

    eta: float
    word: np.ndarray  # (n_views,)
    all_words: np.ndarray  # (n_views,)


@part
def uniform(state):
    """A number from 0 to 1, the latter excluded."""
    return float(splitmix64(state) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@part
def draw(weights, n, state):
    """One of the first ``n`` numbers, each as likely as its weight."""
    total = 0.0
    for k in range(n):
        total += weights[k]
    left = uniform(state) * total
    for k in range(n):
        left -= weights[k]
        if left < 0.0:
            return k
    return n - 1


@part
def move(i, label, sign, rows, tables):
    """Put the words of an instance under a label, or take them away."""
    view = rows.views[i]
    for p in range(rows.indptr[i], rows.indptr[i + 1]):
        tables.words[rows.indices[p], label] += sign * rows.data[p]
        tables.lengths[view, label] += sign * rows.data[p]


@part
def log_chance(i, label, rows, tables, priors):
    """Logarithm of the Dirichlet-multinomial probability of the words of an instance under a label."""
    view = rows.views[i]
    beta = priors.word[view]
    value = 0.0
    length = 0.0
    for p in range(rows.indptr[i], rows.indptr[i + 1]):
        x = rows.data[p]
        had = max(tables.words[rows.indices[p], label], 0.0) + beta  # rounding leaves less than nothing
        value += math.log(had) if x == 1.0 else math.lgamma(had + x) - math.lgamma(had)
        length += x
    had = max(tables.lengths[view, label], 0.0) + priors.all_words[view]
    return value - (math.log(had) if length == 1.0 else math.lgamma(had + length) - math.lgamma(had))


@kernel
def sweep(rows, sets, tables, priors, z, state, room):
    """Draw the label of every instance anew, given those of all others; ``z`` are places in the bag's set."""
    for b in range(rows.start.size - 1):
        first = sets.start[b]
        n = sets.start[b + 1] - first
        if n < 2:
            continue
        for i in range(rows.start[b], rows.start[b + 1]):
            tables.members[first + z[i]] -= 1.0
            move(i, sets.labels[first + z[i]], -1.0, rows, tables)
            top = -np.inf
            for s in range(n):
                prior = math.log(tables.members[first + s] + priors.eta)
                room[s] = prior + log_chance(i, sets.labels[first + s], rows, tables, priors)
                top = max(top, room[s])
            for s in range(n):
                room[s] = math.exp(room[s] - top)
            z[i] = draw(room, n, state)
            tables.members[first + z[i]] += 1.0
            move(i, sets.labels[first + z[i]], 1.0, rows, tables)


class Answer(NamedTuple):
    """What prediction knows: topics of labels, weights of views, strengths, numbers of sweeps."""

    topics: np.ndarray  # (n_labels, n_topics)
    popular: np.ndarray  # (n_labels,): sum over topics of their distributions
    weights: np.ndarray  # (n_views,)
    alpha: float  # of the topics of a bag
    eta: float  # of the topics in the prior of labels
    burn_in: int
    n_sweeps: int


class Room(NamedTuple):
    """Memory that a thread works in."""

    z: np.ndarray
    topic: np.ndarray
    shares: np.ndarray  # (n_views, n_labels): share of every label in the bag, times the weight of the view
    of_topics: np.ndarray  # (n_topics,)
    base: np.ndarray  # (n_labels,): what topics say
    p: np.ndarray  # (max(n_labels, n_topics),)
    step: np.ndarray  # (n_views,): what one instance adds to a share


@part
def begin(b, rows_start, view, P, answer, room, state):
    """First labels by words alone, first topics by chance; steps of the views that the bag has."""
    n_labels, n_topics = answer.topics.shape
    room.shares[:] = 0.0
    room.of_topics[:] = 0.0
    room.step[:] = 0.0
    for i in range(rows_start[b], rows_start[b + 1]):
        room.step[view[i]] += 1.0
    present = 0.0
    for v in range(room.step.size):
        present += answer.weights[v] if room.step[v] > 0.0 else 0.0
    for v in range(room.step.size):
        if room.step[v] > 0.0:
            room.step[v] = answer.weights[v] / (room.step[v] * max(present, 1e-300))
    for i in range(rows_start[b], rows_start[b + 1]):
        k = i - rows_start[b]
        room.z[k] = draw(P[i], n_labels, state)
        room.shares[view[i], room.z[k]] += room.step[view[i]]
        for t in range(n_topics):
            room.p[t] = answer.topics[room.z[k], t]
        room.topic[k] = draw(room.p, n_topics, state)
        room.of_topics[room.topic[k]] += 1.0


@part
def tell_topics(n, answer, room):
    """What the topics of a bag of ``n`` instances say of every label."""
    n_labels, n_topics = answer.topics.shape
    scale = answer.eta / (n + n_topics * answer.alpha)
    for l in range(n_labels):
        room.base[l] = answer.alpha * answer.popular[l] * scale
    for t in range(n_topics):
        if room.of_topics[t] > 0.0:
            for l in range(n_labels):
                room.base[l] += room.of_topics[t] * answer.topics[l, t] * scale


@kernel
def answer_bags(first, last, start, view, P, answer, seeds, room, out):
    """Mean distribution over labels of every instance, over the sweeps after the first ones.

    ``P`` holds the likelihoods of instances under labels, each row up to a factor.
    """
    n_labels, n_topics = answer.topics.shape
    n_views = room.step.size
    for b in range(first, last):
        state = seeds[b : b + 1]
        begin(b, start, view, P, answer, room, state)
        for s in range(answer.burn_in + answer.n_sweeps):
            tell_topics(float(start[b + 1] - start[b]), answer, room)
            for i in range(start[b], start[b + 1]):
                k = i - start[b]
                room.shares[view[i], room.z[k]] -= room.step[view[i]]
                total = 0.0
                for l in range(n_labels):
                    prior = room.base[l]
                    for v in range(n_views):
                        prior += max(room.shares[v, l], 0.0)
                    room.p[l] = prior * P[i, l]
                    total += room.p[l]
                room.z[k] = draw(room.p, n_labels, state)
                room.shares[view[i], room.z[k]] += room.step[view[i]]
                if s >= answer.burn_in and total > 0.0:
                    for l in range(n_labels):
                        out[i, l] += room.p[l] / (total * answer.n_sweeps)
                room.of_topics[room.topic[k]] -= 1.0
                for t in range(n_topics):
                    room.p[t] = (room.of_topics[t] + answer.alpha) * answer.topics[room.z[k], t]
                room.topic[k] = draw(room.p, n_topics, state)
                room.of_topics[room.topic[k]] += 1.0
