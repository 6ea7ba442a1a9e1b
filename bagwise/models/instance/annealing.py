"""Deterministic annealing of the labels of instances, round by round with a forest grown on them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from bagwise.compute.segment import segment_argmax
from bagwise.compute.threads import in_threads
from bagwise.models.instance.trees import grow_tree, votes_of


class Plan(NamedTuple):
    """What all labels share."""

    seeds: list[int]  # of the trees
    settings: dict[str, Any]  # of the trees
    temperatures: np.ndarray
    balanced: bool  # whether both classes weigh the same in the sample of a tree
    unseen: bool  # whether margins come from trees that have not seen an instance
    n_jobs: int | None


def anneal(y: np.ndarray, X: np.ndarray, offsets: np.ndarray, plan: Plan) -> tuple[list[Any], np.ndarray]:
    """Forest of one label, and the probabilities from which its trees drew their labels."""
    n, sizes = X.shape[0], np.diff(offsets)
    inside = np.flatnonzero(np.repeat(y > 0, sizes))  # instances of positive bags
    starts = np.concatenate([[0], np.cumsum(sizes[y > 0])])
    p = np.zeros(n)
    p[inside] = 1.0
    samples = [Sample.of(seed, n, inside) for seed in plan.seeds]
    forest = _grow(X, p, samples, [], plan)
    if len(inside) == len(starts) - 1:  # bags of one instance: nothing to draw
        return forest, p
    rows = X[inside]
    seen = np.array([sample.counts[inside] > 0 for sample in samples])
    silent = seen if plan.unseen else np.zeros_like(seen)
    for temperature in plan.temperatures:
        F = _votes_without(silent, forest, rows, plan.n_jobs)
        p[inside] = expit((2.0 * F - 1.0) / temperature)
        p[inside[segment_argmax(F, starts)]] = 1.0
        forest = _grow(X, p, samples, forest, plan)
    return forest, p


class Sample(NamedTuple):
    """What a tree sees: how often each instance, and the numbers that decide on labels in positive bags."""

    counts: np.ndarray
    numbers: np.ndarray  # below the probability of an instance: it is positive for this tree
    labels: np.ndarray  # those of the tree as it is now

    @classmethod
    def of(cls, seed: int, n: int, inside: np.ndarray) -> Sample:
        """Bootstrap as scikit-learn draws it; numbers for the instances of positive bags."""
        counts = np.bincount(np.random.RandomState(seed).randint(0, n, n), minlength=n)
        numbers = np.zeros(n)
        numbers[inside] = np.random.default_rng(seed).random(len(inside))
        return cls(counts, numbers, np.zeros(n))


def _grow(X: Any, p: np.ndarray, samples: list[Sample], forest: list[Any], plan: Plan) -> list[Any]:
    """Every tree anew on its sample, with labels of its own by the probabilities p.

    A tree none of whose labels has changed would be the same again, and stays.
    """

    def some(first: int, last: int) -> list[Any]:
        trees = []
        for t in range(first, last):
            counts, numbers, before = samples[t]
            labels = (numbers < p).astype(np.float64)
            if forest and np.array_equal(labels[counts > 0], before[counts > 0]):
                trees.append(forest[t])
                continue
            before[:] = labels
            weights = counts.astype(np.float64)
            positive, total = weights @ labels, weights.sum()
            if plan.balanced and 0 < positive < total:
                # whole numbers, in which sums over instances are exact; trees mind no common factor
                weights *= np.where(labels > 0, total - positive, positive)
            trees.append(grow_tree(X, labels, weights, plan.seeds[t], plan.settings))
        return trees

    parts = in_threads(some, len(plan.seeds), plan.n_jobs)
    return [tree for trees in parts for tree in trees]


def _votes_without(silent: np.ndarray, trees: list[Any], X: Any, n_jobs: int | None) -> np.ndarray:
    """Mean vote of the trees that are not silent on an instance; of all trees where all are."""
    votes = np.empty((len(trees), X.shape[0]))

    def some(first: int, last: int) -> None:
        for t in range(first, last):
            votes[t] = votes_of(trees[t], X)

    in_threads(some, len(trees), n_jobs)
    allowed = ~silent | silent.all(axis=0)
    return (votes * allowed).sum(axis=0) / allowed.sum(axis=0)


def mean_votes(trees: list[Any], X: Any, n_jobs: int | None) -> np.ndarray:
    """Mean over trees of the share of positive training instances in the leaf of each row."""
    out = np.zeros(X.shape[0])

    def some(first: int, last: int) -> None:
        rows = X[first:last]
        for tree in trees:
            out[first:last] += votes_of(tree, rows)

    in_threads(some, X.shape[0], n_jobs, smallest=1024)
    return out / len(trees)
