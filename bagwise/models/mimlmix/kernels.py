"""Compiled loops of MIMLmix over bags: variational inference of labels, and likelihoods and counts of words.

The pairs (instance, label of its bag) lie in one flat array ``P``. Bag ``n`` owns the block
``P[pair_start[n]:]`` of shape (instances of the bag in all views, labels of the bag), C order: the labels
that a bag carries in training, all labels in prediction. Every loop takes a range ``first, last`` and writes
to what belongs to that range alone: results do not depend on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import digamma, logsumexp

from bagwise.compute.aligned import frozen
from bagwise.compute.compiled import kernel, part
from bagwise.compute.numeric import exp_digamma, reordered_dot
from bagwise.compute.threads import cores, in_threads

_TINY, _LEAST = 1e-290, 1e-300
# Labels with a smaller share of a bag's mass are set aside until the last sweep, which sees all again.
_NEGLIGIBLE = 1e-5
# Roughly, in nanoseconds: what is worth another thread, and what one pair of an instance and a label costs.
_WORTH_A_THREAD = 3e5
_SWEEPS, _LOOK_UP = 50.0, 4.0


class Pairs(NamedTuple):
    """Where labels, instances and pairs of bags lie, and how much each instance counts."""

    which: np.ndarray  # numbers of the bags to work on; ranges of the loops are ranges of this array
    label_start: np.ndarray  # (n_bags + 1,)
    inst_start: np.ndarray
    pair_start: np.ndarray
    weight: np.ndarray  # of each instance: view weight times multiplicity

    @classmethod
    def of(cls, label_start: Any, inst_start: Any, pair_start: Any, weight: Any) -> Pairs:
        """All bags, ready for the loops."""
        arrays = (np.arange(len(label_start) - 1), label_start, inst_start, pair_start, weight)
        return cls(*(frozen(a) for a in arrays))


class Bounds(NamedTuple):
    """When the sweeps of a bag end, and what they may do."""

    max_sweeps: int
    tol: float  # mean change of gamma
    sharp: bool  # E ln theta (variational Bayes) or ln E theta (CVB0)
    # Whether labels that die out may be set aside; one more sweep at the end then sees all labels. Not in
    # training, where it could lower the bound.
    cold: bool


class Room(NamedTuple):
    """Memory that a thread works in: numbers per label, and the pairs of one bag."""

    g: np.ndarray
    e: np.ndarray
    acc: np.ndarray
    kept: np.ndarray  # labels that still take part
    alive: np.ndarray  # those of them that go on
    block: np.ndarray  # their likelihoods

    @classmethod
    def make(cls, n_labels: int, n_pairs: int) -> Room:
        """Room for bags with up to so many labels and, where labels may be set aside, pairs."""
        g, e, acc = (aligned(n_labels) for _ in range(3))
        kept, alive = np.empty((2, n_labels), np.int64)
        return cls(g, e, acc, kept, alive, aligned(n_pairs))


def aligned(n: int) -> np.ndarray:
    """Room for numbers that begins at a cache line; vector loops over it are up to a quarter faster."""
    room = np.empty(n + 7)
    first = -(room.ctypes.data // 8) % 8
    return room[first : first + n]


# ---------------------------------------------------------------------- inference


@part
def _sweep(P, p, n, weight, first, last, e, acc):
    """acc_y = sum_m w_m phi_my of the rows of a block that begins at ``p``; False if a row underflows."""
    for k in range(n):
        acc[k] = 0.0
    for m in range(first, last):
        row = P[p : p + n]
        r = reordered_dot(row, e, n)
        if not r > _TINY:
            return False
        t = weight[m] / r
        for k in range(n):
            acc[k] += row[k] * t
        p += n
    for k in range(n):
        acc[k] *= e[k]
    return True


@part
def _gather(P, p, n, n_rows, n_alive, room):
    """Set all labels aside but those that are alive; may be in place: targets never lie behind sources."""
    for m in range(n_rows):
        row, target = P[p + m * n : p + m * n + n], room.block[m * n_alive : (m + 1) * n_alive]
        for j in range(n_alive):
            target[j] = row[room.alive[j]]
    for j in range(n_alive):
        room.kept[j] = room.kept[room.alive[j]]
        room.g[j] = room.g[room.alive[j]]


@kernel
def infer_bags(first, last, pairs, P, alpha, gamma, psi, bounds, room):
    """E-step of the bags ``pairs.which[first:last]``: eqs. 5-6 to convergence.

    ``P`` holds likelihoods, each row up to a factor, and is not changed. ``gamma`` is where to start and the
    result; its first entry is NaN for a bag with an instance that no label explains within the range of
    numbers. ``psi`` receives the E ln theta, up to psi(sum gamma), that the last sweep used.
    """
    g, e, acc, kept = room.g, room.e, room.acc, room.kept
    for at in range(first, last):
        bag = pairs.which[at]
        a, n_labels = pairs.label_start[bag], pairs.label_start[bag + 1] - pairs.label_start[bag]
        lo, hi, p = pairs.inst_start[bag], pairs.inst_start[bag + 1], pairs.pair_start[bag]
        prior, found = alpha[a : a + n_labels], gamma[a : a + n_labels]
        rows, n, sweeps, ending = P, n_labels, 0, False
        while n > 0:
            if n == n_labels:
                for k in range(n):
                    g[k] = found[k]
                    kept[k] = k
            for k in range(n):
                e[k] = exp_digamma(g[k]) if bounds.sharp else g[k]
            if not _sweep(rows, p, n, pairs.weight, lo, hi, e, acc):
                found[0] = np.nan
                break
            change, mass, n_alive = 0.0, 0.0, np.int64(0)
            for k in range(n):
                before, g[k] = g[k], prior[kept[k]] + acc[k]
                change += abs(g[k] - before)
                found[kept[k]] = g[k]
                mass += acc[k]
            sweeps += 1
            converged = change < bounds.tol * n_labels or sweeps >= bounds.max_sweeps
            if ending or (converged and not bounds.cold):
                break
            if converged:
                rows, p, n, ending = P, pairs.pair_start[bag], n_labels, True
            elif bounds.cold and sweeps % 2 == 0:
                for k in range(n):
                    room.alive[n_alive] = k
                    n_alive += acc[k] > _NEGLIGIBLE * mass
                if n_alive < 0.8 * n:
                    _gather(rows, p, n, hi - lo, n_alive, room)
                    rows, p, n = room.block, np.int64(0), n_alive
        for k in range(n_labels):
            psi[a + k] = math.log(max(e[k], _LEAST))


@kernel
def share_out(first, last, pairs, P, psi, log_r, e):
    """Turn the likelihoods of pairs into phi, under what `infer_bags` found.

    ``log_r`` receives ln sum_y exp(psi_y) p_y of every instance, its part of the bound; NaN where that is
    outside the range of numbers, and the likelihoods stay. ``e`` is room to work in.
    """
    for at in range(first, last):
        bag = pairs.which[at]
        a, n = pairs.label_start[bag], pairs.label_start[bag + 1] - pairs.label_start[bag]
        p, top = pairs.pair_start[bag], -np.inf
        for k in range(n):
            top = max(top, psi[a + k])
        for k in range(n):
            e[k] = math.exp(psi[a + k] - top)
        for m in range(pairs.inst_start[bag], pairs.inst_start[bag + 1] if n > 0 else 0):
            row = P[p : p + n]
            r = reordered_dot(row, e, n)
            log_r[m] = np.nan
            if r > _TINY:
                log_r[m] = math.log(r) + top
                for k in range(n):
                    row[k] *= e[k] / r
            p += n


@kernel
def scale_rows(first, last, start, n_labels, instance, P, shift):
    """Turn logarithms into likelihoods with a largest value of 1 per row; ``shift`` of its instance is it."""
    for r in range(first, last):
        p, best = start[r], -np.inf
        for k in range(n_labels[r]):
            best = max(best, P[p + k])
        for k in range(n_labels[r]):
            P[p + k] = math.exp(P[p + k] - best)
        shift[instance[r]] = best


# ---------------------------------------------------------------------- words


class CountRows(NamedTuple):
    """Rows of a view of counts, and where each begins among the pairs and among their places."""

    indptr: np.ndarray
    data: np.ndarray
    multiplicity: np.ndarray
    n_labels: np.ndarray  # of the row's bag
    pair: np.ndarray
    place: np.ndarray


@kernel
def find_places(first, last, rows, indices, row_label, labels, word_start, word_labels, places):
    """Where in the (word, label) statistics each (word of a row, label of its bag) lies.

    ``row_label`` is where the labels of the row's bag begin; ``word_labels[word_start[i]:]`` are the labels
    that occur with word i, rising.
    """
    for r in range(first, last):
        p = rows.place[r]
        for t in range(rows.indptr[r], rows.indptr[r + 1]):
            lo = word_start[indices[t]]
            for k in range(rows.n_labels[r]):  # labels of a bag rise: each search starts where the last ended
                hi = word_start[indices[t] + 1]
                wanted = labels[row_label[r] + k]
                while lo < hi:
                    mid = (lo + hi) >> 1
                    if word_labels[mid] < wanted:
                        lo = mid + 1
                    else:
                        hi = mid
                places[p] = lo
                p += 1


@kernel
def fill_counts(first, last, rows, places, table, tokens, P):
    """Log-likelihoods of rows of counts, eq. 1, from log probabilities; of single words, likelihoods."""
    for r in range(first, last):
        n, p, q = rows.n_labels[r], rows.pair[r], rows.place[r]
        if tokens:
            for k in range(n):
                P[p + k] = table[places[q + k]]
            continue
        for k in range(n):
            P[p + k] = 0.0
        for t in range(rows.indptr[r], rows.indptr[r + 1]):
            for k in range(n):
                P[p + k] += rows.data[t] * table[places[q + k]]
            q += n


@kernel
def add_counts(first, last, rows, places, P, S):
    """S_vyi = sum phi x_i, a table per fixed piece of rows; the caller adds the pieces."""
    n_rows, n_pieces = rows.pair.size, S.shape[0]
    for piece in range(first, last):
        for r in range(piece * n_rows // n_pieces, (piece + 1) * n_rows // n_pieces):
            n, p, q = rows.n_labels[r], rows.pair[r], rows.place[r]
            for t in range(rows.indptr[r], rows.indptr[r + 1]):
                x = rows.data[t] * rows.multiplicity[r]
                for k in range(n):
                    S[piece, places[q + k]] += x * P[p + k]
                q += n


class Csr(NamedTuple):
    """The arrays of a CSR matrix."""

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray


@kernel
def rows_of_counts(first, last, X, S, prior, totals, tokens, place, P):
    """Log-likelihoods of rows of counts under all labels, up to a term of the row; of words, likelihoods.

    Eq. 1 with the smoothed eq. 7 is prod_i [kappa b_i (1 + S_yi / (kappa b_i)) / (S_y. + kappa)]^x_i: a part
    that depends on the label alone, and a sparse one.

    ``S`` are the statistics (words, labels), ``prior`` kappa b_i of the words, ``totals`` ln(S_y. + kappa) of
    the labels; where rows are single words (``tokens``), the reciprocal without logarithm. Row r goes to row
    ``place[r]`` of ``P`` (n, n_labels).
    """
    for r in range(first, last):
        row, length = P[place[r]], 0.0
        for t in range(X.indptr[r], X.indptr[r + 1]):
            length += X.data[t]
        if tokens:
            length = -prior[X.indices[X.indptr[r]]]
        for y in range(totals.size):
            row[y] = -length * totals[y]
        for t in range(X.indptr[r], X.indptr[r + 1]):
            i = X.indices[t]
            for j in range(S.indptr[i], S.indptr[i + 1]):
                y = S.indices[j]
                if tokens:
                    row[y] += S.data[j] * totals[y]
                else:
                    row[y] += X.data[t] * math.log1p(S.data[j] / prior[i])


# ---------------------------------------------------------------------- spread over the cores


def spread(
    loop: Callable[..., Any], n: int, *arguments: Any, pairs: int, cost: float = _LOOK_UP, work: Any = None
) -> None:
    """Call ``loop(first, last, *arguments)`` on ranges that cover ``range(n)``.

    The whole range has so many ``pairs`` of an instance and a label, of ``cost`` nanoseconds each; ``work``
    (n + 1,) is what has come together of it, where it is uneven.
    """
    total = n if work is None else int(work[-1])
    smallest = max(1, int(total * _WORTH_A_THREAD / max(pairs * cost, 1.0)))
    in_threads(lambda first, last: loop(first, last, *arguments), n, cores(), work=work, smallest=smallest)


def infer(pairs: Pairs, P: np.ndarray, alpha: np.ndarray, gamma: np.ndarray, bounds: Bounds) -> np.ndarray:
    """`infer_bags` of the bags ``pairs.which``; gamma changes in place, E ln theta is returned."""
    psi, start, alpha = np.zeros(len(gamma)), gamma.copy(), frozen(alpha)
    work = _work(pairs)
    widest, largest = _widest(pairs), int(np.diff(work).max(initial=0))

    def loop(first: int, last: int) -> None:
        room = Room.make(widest, largest if bounds.cold else 0)
        infer_bags(first, last, pairs, P, alpha, gamma, psi, bounds, room)

    spread(loop, len(pairs.which), pairs=int(work[-1]), cost=_SWEEPS, work=work)
    with_labels = pairs.which[np.diff(pairs.label_start)[pairs.which] > 0]
    for bag in with_labels[np.isnan(gamma[pairs.label_start[with_labels]])]:
        own = slice(*pairs.label_start[bag : bag + 2])
        weight = pairs.weight[slice(*pairs.inst_start[bag : bag + 2])]
        block = P[slice(*pairs.pair_start[bag : bag + 2])]
        log_p = np.log(np.maximum(block, _TINY)).reshape(len(weight), -1)
        gamma[own], psi[own] = _infer_in_logs(log_p, weight, alpha[own], start[own], bounds)
    return psi


def phi(pairs: Pairs, P: np.ndarray, psi: np.ndarray) -> np.ndarray:
    """`share_out`: likelihoods become phi in place; ln sum_y exp(psi_y) p_y of every instance is returned."""
    log_r, psi = np.zeros(len(pairs.weight)), frozen(psi)
    widest, work = _widest(pairs), _work(pairs)

    def loop(first: int, last: int) -> None:
        share_out(first, last, pairs, P, psi, log_r, np.empty(widest))

    spread(loop, len(pairs.which), pairs=int(work[-1]), work=work)
    for m in np.flatnonzero(np.isnan(log_r)):  # rare: in logarithms, row by row
        bag = int(np.searchsorted(pairs.inst_start, m, side="right")) - 1
        own = slice(*pairs.label_start[bag : bag + 2])
        first = pairs.pair_start[bag] + (m - pairs.inst_start[bag]) * (own.stop - own.start)
        row = slice(first, first + own.stop - own.start)
        s = np.log(np.maximum(P[row], _TINY)) + psi[own]
        log_r[m] = logsumexp(s)
        P[row] = np.exp(s - log_r[m])
    return log_r


def _infer_in_logs(
    log_p: np.ndarray, weight: np.ndarray, alpha: np.ndarray, gamma: np.ndarray, bounds: Bounds
) -> tuple[np.ndarray, np.ndarray]:
    """The E-step of one bag where plain products underflow: minute priors, as with ``xi`` below .002."""
    psi = gamma
    for _ in range(bounds.max_sweeps):
        psi = digamma(gamma) if bounds.sharp else np.log(gamma)
        s = log_p + psi
        before, gamma = gamma, alpha + weight @ np.exp(s - logsumexp(s, axis=1, keepdims=True))
        if np.abs(gamma - before).mean() < bounds.tol:
            break
    return gamma, psi


def _work(pairs: Pairs) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.diff(pairs.pair_start)[pairs.which])])


def _widest(pairs: Pairs) -> int:
    return int(np.diff(pairs.label_start).max(initial=1))
