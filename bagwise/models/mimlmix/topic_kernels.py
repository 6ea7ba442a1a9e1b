"""Compiled loops over label sets: latent Dirichlet allocation by zeroth-order collapsed variational Bayes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bagwise.compute.compiled import kernel, part
from bagwise.compute.numeric import exp_digamma, reordered_dot, splitmix64
from bagwise.models.mimlmix.kernels import aligned

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
    """One pass over label sets with the topic counts of the pass before.

    Parameters
    ----------
    first, last : int
        Range of pieces; a piece is a fixed share of the sets.
    sets : LabelSets
        The sets.
    counts : float64 array (n_labels, n_topics)
        Expected number of tokens of each label in each topic.
    inverse : float64 array (n_topics,)
        Reciprocal smoothed column sums of ``counts``.
    alpha, smoothing : float
        Dirichlet parameters of a set's topics and of a topic's labels.
    q : float64 array (n_tokens, n_topics), in and out
        Topic of every token.
    fresh : float64 array (n_pieces, n_labels, n_topics), in and out
        The new counts are added, to one table per piece.
    own : float64 array (n_pieces, 2, n_topics)
        Room to work in, and ones.
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
def fold_in(first, last, sets, beta, alpha, sharp, max_sweeps, theta, room):
    """Topic distributions of label sets under fixed topics.

    Parameters
    ----------
    first, last : int
        Range of sets.
    sets : LabelSets
        The sets.
    beta : float64 array (n_labels, n_topics)
        Probability of each label in each topic, transposed.
    alpha : float
        Dirichlet parameter.
    sharp : bool
        Whether E ln theta is used (variational Bayes) or ln E theta (CVB0).
    max_sweeps : int
        Limit of sweeps; they end when theta moves by less than 1e-3.
    theta : float64 array (n_sets, n_topics), out
        The distributions.
    room : TopicRoom
        To work in.
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
