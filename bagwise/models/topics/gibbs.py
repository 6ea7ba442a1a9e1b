"""Gibbs sampling of M3LDA: what goes into the compiled loops, and what comes out of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from bagwise.compute.numeric import frozen
from bagwise.compute.segment import segment_sum
from bagwise.compute.threads import cores, in_threads
from bagwise.models.topics import gibbs_kernels as kernels
from bagwise.utils.progress import track

__all__ = ["Layout", "answer", "lay_out", "train"]

_WORTH_A_THREAD = 1 << 16  # likelihoods of a range below which a second thread costs more than it saves


class Layout(NamedTuple):
    """Instances of all views bag by bag, and where each came from."""

    rows: kernels.Rows
    places: dict[str, np.ndarray]  # row of every instance of a view
    same: np.ndarray  # equal instances of a bag and view have the same number
    keys: np.ndarray  # a number per row that its words decide


def lay_out(counts: Mapping[str, Any], offsets: Mapping[str, np.ndarray]) -> Layout:
    """Bring the instances of all views into one order, in which those of a bag follow their words.

    The order in which they came then does not matter, although labels are drawn one after the other.
    """
    n_bags = len(next(iter(offsets.values()))) - 1
    bag, view, key, parts, before = [], [], [], [], 0
    width = sum(X.shape[1] for X in counts.values())
    marks = np.random.RandomState(0).random_sample(width)  # any numbers will do, as long as they stay
    for v, (name, X) in enumerate(counts.items()):
        bag.append(np.repeat(np.arange(n_bags), np.diff(offsets[name])))
        view.append(np.full(X.shape[0], v))
        key.append(np.asarray(X @ marks[before : before + X.shape[1]]))
        shape = (X.shape[0], width)
        parts.append(sparse.csr_array((X.data, X.indices.astype(np.int64) + before, X.indptr), shape=shape))
        before += X.shape[1]
    bags, views, keys = np.concatenate(bag), np.concatenate(view), np.concatenate(key)
    order = np.lexsort((keys, views, bags))
    X = sparse.csr_array(sparse.vstack(parts, format="csr")[order])
    new = np.ones(len(order), dtype=bool)
    new[1:] = (np.diff(bags[order]) > 0) | (np.diff(views[order]) > 0) | (np.diff(keys[order]) > 0)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    ends = np.cumsum([X.shape[0] for X in counts.values()])
    places = dict(zip(counts, np.split(place, ends[:-1])))
    start = np.concatenate([[0], np.cumsum(np.bincount(bags, minlength=n_bags))])
    start, seen, indptr, indices = (
        frozen(a.astype(np.int64)) for a in (start, views[order], X.indptr, X.indices)
    )
    rows = kernels.Rows(start, seen, indptr, indices, frozen(X.data.astype(np.float64)))
    return Layout(rows, places, np.cumsum(new) - 1, keys[order])


class Sampler:
    """Labels of training instances, drawn within the sets of their bags, and the tables that count them."""

    def __init__(
        self, layout: Layout, sets: np.ndarray, n_words: list[int], eta: float, beta: float, rng: Any
    ) -> None:
        self.rows = layout.rows
        n_labels, n_views = sets.shape[1], len(n_words)
        sizes = sets.sum(axis=1)
        start = np.concatenate([[0], np.cumsum(sizes)])
        self.sets = kernels.Sets(frozen(start.astype(np.int64)), frozen(np.nonzero(sets)[1].astype(np.int64)))
        word = np.full(n_views, float(beta))
        self.priors = kernels.Priors(float(eta), frozen(word), frozen(word * np.array(n_words, dtype=float)))
        self.state = np.array([rng.randint(2**31 - 1)], dtype=np.uint64)
        self.room = np.empty(int(sizes.max(initial=1)))
        per_bag = np.diff(self.rows.start)
        choices = np.repeat(sizes, per_bag)
        self.z = (rng.random_sample(len(choices)) * choices).astype(np.int64)
        self.tables = self._count(n_labels, n_views, sum(n_words))

    def _count(self, n_labels: int, n_views: int, n_words: int) -> kernels.Tables:
        """Tables of the present labels, from nothing."""
        at = np.repeat(self.sets.start[:-1], np.diff(self.rows.start)) + self.z
        label = self.sets.labels[at]
        members = np.bincount(at, minlength=len(self.sets.labels)).astype(np.float64)
        lengths = np.repeat(label, np.diff(self.rows.indptr))
        cells = self.rows.indices * n_labels + lengths
        words = np.bincount(cells, self.rows.data, minlength=n_words * n_labels).reshape(n_words, n_labels)
        views = np.repeat(self.rows.views, np.diff(self.rows.indptr))
        totals = np.bincount(views * n_labels + lengths, self.rows.data, minlength=n_views * n_labels)
        return kernels.Tables(members, words, totals.reshape(n_views, n_labels))

    def sweep(self) -> None:
        """Draw the labels of all instances once."""
        kernels.sweep(self.rows, self.sets, self.tables, self.priors, self.z, self.state, self.room)


def train(sampler: Sampler, burn_in: int, n_sweeps: int) -> np.ndarray:
    """Mean number of every word under every label (n_words, n_labels), over the sweeps after the first."""
    total = np.zeros_like(sampler.tables.words)
    if (np.diff(sampler.sets.start) < 2).all():  # nothing to draw
        return total + sampler.tables.words
    for s in track(range(burn_in + n_sweeps), "Gibbs sweeps"):
        sampler.sweep()
        if s >= burn_in:
            total += sampler.tables.words
    return total / n_sweeps


def answer(layout: Layout, P: np.ndarray, known: kernels.Answer, seed: int) -> np.ndarray:
    """Distribution over labels of the rows of a layout, from their likelihoods ``P`` under labels.

    Every bag has random numbers of its own, that follow from its words: neither the bags around it nor the
    number of threads matter. Equal instances of a bag get the mean of their answers.
    """
    start, n_labels = layout.rows.start, P.shape[1]
    n_views, n_topics = len(known.weights), known.topics.shape[1]
    largest = int(np.diff(start).max(initial=1))
    bits = segment_sum(layout.keys, start).view(np.uint64)
    seeds = np.ascontiguousarray(bits + np.uint64(seed))
    out = np.zeros_like(P)
    view, likelihoods = layout.rows.views, frozen(P)

    def some(first: int, last: int) -> None:
        room = kernels.Room(
            np.zeros(largest, np.int64),
            np.zeros(largest, np.int64),
            np.zeros((n_views, n_labels)),
            np.zeros(n_topics),
            np.zeros(n_labels),
            np.zeros(max(n_labels, n_topics)),
            np.zeros(n_views),
        )
        kernels.answer_bags(first, last, start, view, likelihoods, known, seeds, room, out)

    smallest = max(1, _WORTH_A_THREAD // n_labels)
    in_threads(some, len(start) - 1, cores(), work=start, smallest=smallest)
    if not len(out):
        return out
    groups = np.concatenate([[0], np.cumsum(np.bincount(layout.same))]).astype(np.int64)
    return (segment_sum(out, groups) / np.diff(groups)[:, None])[layout.same]
