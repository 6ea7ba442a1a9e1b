"""Compiled loops of MIMLfast: Algorithm 1 of the paper, one triplet at a time.

A triplet is a bag, one of its relevant labels y and a label y_bar that violates the margin. Vectors are rows:
``space`` (n_inputs, m) is the transpose of the paper's ``W_0``, whose columns are capped, and ``weights``
(K (L + 1), m) holds the sub-concepts of label l in rows ``l K`` to ``l K + K - 1``, the dummy label last.
Arrays are made by the caller: what a loop allocates or reshapes itself takes longer to compile.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bagwise.compute.compiled import kernel, part
from bagwise.compute.numeric import reordered_dot, splitmix64


class Instances(NamedTuple):
    """Scaled instances, rows of ``dense`` or of a CSR matrix; the other is empty: one type serves both."""

    is_sparse: bool
    dense: np.ndarray
    values: np.ndarray
    columns: np.ndarray
    row_starts: np.ndarray


class TrainingBags(NamedTuple):
    """Bags and their relevant labels, ascending and without the dummy: CSR-like, too."""

    instances: Instances
    offsets: np.ndarray
    labels: np.ndarray
    label_starts: np.ndarray


class Factors(NamedTuple):
    """What is learned; changed in place."""

    space: np.ndarray
    weights: np.ndarray
    n_sub: int


class Sums(NamedTuple):
    """Sums of the states that enter the average; a vector is added when it next changes, not every time."""

    space: np.ndarray
    weights: np.ndarray
    space_summed: np.ndarray  # states of this pass that the sum of each vector holds
    weights_summed: np.ndarray


class Schedule(NamedTuple):
    """Constants of a run: C, gamma_0, eta, and how many iterations lie between two states of the average."""

    max_norm: float
    step_size: float
    step_decay: float
    average_every: int  # 0: there is no average


class Scratch(NamedTuple):
    """Memory that is overwritten in every iteration, and the harmonic numbers H(0), H(1), ..."""

    projected: np.ndarray  # instances of the longest bag, projected
    old: np.ndarray  # two vectors
    harmonic: np.ndarray


class Triplet(NamedTuple):
    """Key instances i of y and j of y_bar, counted from row ``first`` of the bag, and their vectors."""

    first: int
    i: int
    j: int
    vector: int
    vector_bar: int


@part
def _draw(random, n):
    """Uniform integer below ``n``."""
    return np.int64(((splitmix64(random) >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@part
def cap_norm(v, limit):
    """Scale a vector down to norm ``limit`` if it is longer; never up. Tell whether it was."""
    norm = np.sqrt(reordered_dot(v, v, v.size))
    if norm > limit:
        factor = limit / norm
        for c in range(v.size):
            v[c] *= factor
    return norm > limit


@part
def _add_row(v, x, out):
    for c in range(out.size):
        out[c] += x * v[c]


@part
def _project(instances, row, space, out):
    """W_0 x for one instance."""
    for c in range(out.size):
        out[c] = 0.0
    if instances.is_sparse:
        for q in range(instances.row_starts[row], instances.row_starts[row + 1]):
            _add_row(space[instances.columns[q]], instances.values[q], out)
        return
    x, n_fours = instances.dense[row], space.shape[0] // 4 * 4
    for j in range(0, n_fours, 4):  # four at a time: the result is read and written a fourth as often
        v0, v1, v2, v3 = space[j], space[j + 1], space[j + 2], space[j + 3]
        x0, x1, x2, x3 = x[j], x[j + 1], x[j + 2], x[j + 3]
        for c in range(out.size):
            out[c] += x0 * v0[c] + x1 * v1[c] + x2 * v2[c] + x3 * v3[c]
    for j in range(n_fours, space.shape[0]):
        _add_row(space[j], x[j], out)


@part
def _best(projected, n_rows, factors, label):
    """Value, instance and vector of max over i, k of w_{label,k} . P_i; the first wins a tie."""
    begin = label * factors.n_sub
    m = projected.shape[1]
    top, best_row, best_vector = reordered_dot(factors.weights[begin], projected[0], m), 0, begin
    for i in range(n_rows):
        for vector in range(begin, begin + factors.n_sub):
            value = reordered_dot(factors.weights[vector], projected[i], m)
            if value > top:
                top, best_row, best_vector = value, i, vector
    return top, best_row, best_vector


@part
def _irrelevant(place, relevant):
    """The ``place``-th label that is not in the ascending ``relevant``; past the last one, the dummy."""
    for label in relevant:
        if label > place:
            break
        place += 1
    return place


@kernel
def triplet_step(instances, factors, triplet, scratch, rate, max_norm):
    """Eqs. (7) to (9) and the caps, in place; ``rate`` is gamma_t S, all right-hand sides are old values.

    Returns how many vectors were over the cap.
    """
    w, w_bar = factors.weights[triplet.vector], factors.weights[triplet.vector_bar]
    p, p_bar = scratch.projected[triplet.i], scratch.projected[triplet.j]
    old, old_bar = scratch.old[0], scratch.old[1]
    for c in range(w.size):
        old[c], old_bar[c] = w[c], w_bar[c]
        w[c] += rate * p[c]  # Eq. (8)
        w_bar[c] -= rate * p_bar[c]  # Eq. (9)
    n_capped = np.int64(cap_norm(w, max_norm)) + np.int64(cap_norm(w_bar, max_norm))
    row, row_bar = triplet.first + triplet.i, triplet.first + triplet.j
    space = factors.space
    if not instances.is_sparse:  # Eq. (7)
        for f in range(space.shape[0]):
            a, b = rate * instances.dense[row, f], rate * instances.dense[row_bar, f]
            column = space[f]
            for c in range(old.size):
                column[c] += a * old[c] - b * old_bar[c]
            n_capped += cap_norm(column, max_norm)
        return n_capped
    # columns of features that are zero in both instances do not move
    starts, columns, values = instances.row_starts, instances.columns, instances.values
    for q in range(starts[row], starts[row + 1]):
        _add_row(old, rate * values[q], space[columns[q]])
    for q in range(starts[row_bar], starts[row_bar + 1]):
        _add_row(old_bar, -rate * values[q], space[columns[q]])
    for q in range(starts[row], starts[row + 1]):
        n_capped += cap_norm(space[columns[q]], max_norm)
    for q in range(starts[row_bar], starts[row_bar + 1]):
        n_capped += cap_norm(space[columns[q]], max_norm)
    return n_capped


@part
def _settle(vectors, totals, summed, row, n_summed):
    """Add a vector to its sum once for every state that was due since it last changed."""
    due = n_summed - summed[row]
    if due > 0:
        v, total = vectors[row], totals[row]
        for c in range(v.size):
            total[c] += due * v[c]
        summed[row] = n_summed


@part
def _settle_changing(instances, triplet, everything, factors, sums, n_summed):
    """Settle the vectors that a triplet is about to change, or all of the shared space."""
    _settle(factors.weights, sums.weights, sums.weights_summed, triplet.vector, n_summed)
    _settle(factors.weights, sums.weights, sums.weights_summed, triplet.vector_bar, n_summed)
    if everything or not instances.is_sparse:
        for f in range(factors.space.shape[0]):
            _settle(factors.space, sums.space, sums.space_summed, f, n_summed)
        return
    for key in (triplet.i, triplet.j):
        row = triplet.first + key
        for q in range(instances.row_starts[row], instances.row_starts[row + 1]):
            _settle(factors.space, sums.space, sums.space_summed, instances.columns[q], n_summed)


@part
def _violator(random, relevant, n_bar, best, n_rows, projected, factors):
    """Draw from Y_bar until a label violates the margin of ``best``; how many draws, its instance and vector.

    None among as many draws as Y_bar has labels: 0 draws.
    """
    for v in range(1, n_bar + 1):
        y_bar = _irrelevant(_draw(random, n_bar), relevant)
        value, j, vector = _best(projected, n_rows, factors, y_bar)
        if value > best - 1.0:
            return v, j, vector
    return 0, 0, 0


@kernel
def sgd_steps(first, last, bags, factors, sums, scratch, schedule, random, used):
    """Run iterations ``first`` to ``last - 1`` of Algorithm 1 in place.

    ``random`` is the state of the random numbers, advanced in place; ``used[vector]`` counts how often it was
    the best one of a relevant label. Returns how many states are due to be in ``sums`` and how often a vector
    was over the cap.
    """
    instances, space, projected = bags.instances, factors.space, scratch.projected
    dummy = factors.weights.shape[0] // factors.n_sub - 1
    max_norm = space.dtype.type(schedule.max_norm)
    n_summed, n_capped = np.int64(0), np.int64(0)
    untouched = first == 0  # vectors that no step has touched yet may begin above the cap
    for t in range(first, last):
        b = _draw(random, bags.offsets.size - 1)
        relevant = bags.labels[bags.label_starts[b] : bags.label_starts[b + 1]]
        draw = _draw(random, relevant.size + 1)
        y = dummy if draw == relevant.size else relevant[draw]
        # Y_bar: the irrelevant labels, and the dummy unless it is y itself
        n_bar = dummy - relevant.size + (y != dummy)
        begin, n_rows = bags.offsets[b], bags.offsets[b + 1] - bags.offsets[b]
        n_draws = np.int64(0)
        if n_bar > 0:
            for i in range(n_rows):
                _project(instances, begin + i, space, projected[i])
            top, i, vector = _best(projected, n_rows, factors, y)
            used[vector] += 1
            n_draws, j, other = _violator(random, relevant, n_bar, top, n_rows, projected, factors)
        if n_draws > 0:
            triplet = Triplet(begin, i, j, vector, other)
            if schedule.average_every > 0:
                _settle_changing(instances, triplet, untouched, factors, sums, n_summed)
            gamma = schedule.step_size / (1.0 + schedule.step_decay * schedule.step_size * t)
            rate = space.dtype.type(gamma * scratch.harmonic[n_bar // n_draws])
            n_capped += triplet_step(instances, factors, triplet, scratch, rate, max_norm)
            for f in range(space.shape[0] if untouched else 0):
                n_capped += cap_norm(space[f], max_norm)
            untouched = False
        if schedule.average_every > 0 and t % schedule.average_every == 0:
            n_summed += 1
    return n_summed, n_capped


@kernel
def ranking_sum(Y, S):
    """Ranking loss summed over bags that have both kinds of labels, and their number; a tie is an error.

    In one thread: held-out sets are small, and starting threads for each would take longer.
    """
    n_labels = Y.shape[1]
    total, n_proper = 0.0, 0
    for b in range(Y.shape[0]):
        n_relevant, wrong = 0, 0
        for y in range(n_labels):
            if Y[b, y] > 0:
                n_relevant += 1
                for j in range(n_labels):
                    wrong += (Y[b, j] <= 0) & (S[b, j] >= S[b, y])
        if 0 < n_relevant < n_labels:
            total += wrong / (n_relevant * (n_labels - n_relevant))
            n_proper += 1
    return total, n_proper
