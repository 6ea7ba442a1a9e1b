"""Compiled loops of MIMLmix over bags: variational inference of labels, and likelihoods and counts of words.

The pairs (instance, label of its bag) lie in one flat array ``P``. Bag ``n`` owns the block
``P[pair_start[n]:]`` of shape (instances of the bag in all views, labels of the bag), C order: the labels
that a bag carries in training, all labels in prediction. Every loop takes a range ``first, last`` and writes
to what belongs to that range alone: results do not depend on the number of threads.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from bagwise.compute.compiled import kernel, part
from bagwise.compute.numeric import exp_digamma, frozen, reordered_dot

_TINY, _LEAST = 1e-290, 1e-300
# Labels with a smaller share of a bag's mass are set aside until the last sweep, which sees all again.
_NEGLIGIBLE = 1e-5


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
            settled = change < bounds.tol * n_labels or sweeps >= bounds.max_sweeps
            if ending or (settled and not bounds.cold):
                break
            if settled:
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
