"""What starts and solvers of MM-MIL ask of the bags of one label, in memory; see `parts` for shards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bagwise.base.blocks import evenly
from bagwise.compute.memo import remembered
from bagwise.compute.optim import minimise
from bagwise.compute.segment import segment_argmax
from bagwise.models.mm_mil.objective import BagLosses, Descended

EXPERT_ITERATIONS = 30  # of the regression that only makes a start
MOST_ROWS = 2000  # instances, and witnesses, of positive bags that are clustered


def inherited_weights(n_positive: float, n_bags: int) -> tuple[float, float]:
    """Weights of negative and of positive bags: both kinds weigh the same, together as many as there are."""
    return 0.5 * n_bags / max(n_bags - n_positive, 1), 0.5 * n_bags / max(n_positive, 1)


def inherited_losses(Phi: Any, offsets: np.ndarray, labels: np.ndarray, weights: Any) -> BagLosses:
    """Losses of instances that inherit the label of their bag and share its weight."""
    sizes = np.diff(offsets)
    of_bags = np.where(labels > 0, weights[1], weights[0]) / sizes
    singles = np.arange(Phi.shape[0] + 1)
    return BagLosses(Phi, singles, np.repeat(labels, sizes), np.repeat(of_bags, sizes))


def inherited_expert(objective: Descended) -> np.ndarray:
    """Logistic regression of instances on the labels of their bags, (n_features + 1,).

    An instance weighs one over the size of its bag; both classes weigh the same, as many bags as there are.
    """
    start = np.zeros(objective.shape).ravel()
    return minimise(objective, start, max_iter=EXPERT_ITERATIONS).x.reshape(objective.shape)[:, 0]


@remembered
def _expert_of(Phi: Any, offsets: np.ndarray, labels: np.ndarray, beta: float) -> np.ndarray:
    """The same for bags in memory: settings share it whose features and penalty of experts are the same."""
    return inherited_expert(Problem(Phi, offsets, labels, 1, 1.0, beta).inherited())


def to_cluster(
    labels: np.ndarray, offsets: np.ndarray, rng: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of positive bags whose witnesses are clustered, and of instances of all positive bags."""
    positive = np.flatnonzero(labels > 0)
    rows = np.flatnonzero(np.repeat(labels > 0, np.diff(offsets)))
    if len(rows) > MOST_ROWS:
        rows = np.sort(rng.choice(rows, MOST_ROWS, replace=False))
    return positive[evenly(len(positive), MOST_ROWS)], rows


def dense_rows(Phi: Any, rows: np.ndarray) -> np.ndarray:
    """Some rows as an array."""
    return Phi[rows].toarray() if hasattr(Phi, "indptr") else Phi[rows]


def mean_activation(Phi: Any, P: np.ndarray) -> float:
    """Mean size of activations."""
    return float(np.abs(np.asarray(Phi @ P[:-1]) + P[-1]).mean())


class Problem(NamedTuple):
    """What all solvers work on: features, bags, labels, number of clusters and penalties of Eq. (7)."""

    Phi: Any
    offsets: np.ndarray
    labels: np.ndarray
    n_clusters: int
    lam: float
    beta: float

    def smooth(self) -> Descended:
        """Eq. (7) with a soft maximum."""
        losses = BagLosses(self.Phi, self.offsets, self.labels)
        return Descended(losses, self.Phi.shape[1], self.n_clusters, self.lam, self.beta)

    def inherited(self) -> Descended:
        """Logistic regression of instances on the labels of their bags."""
        weights = inherited_weights(self.labels.sum(), len(self.labels))
        losses = inherited_losses(self.Phi, self.offsets, self.labels, weights)
        return Descended(losses, self.Phi.shape[1], 1, 1.0, self.beta)

    def expert(self) -> np.ndarray:
        """What `inherited_expert` finds."""
        return _expert_of(self.Phi, self.offsets, self.labels, self.beta)

    def rows(self, expert: np.ndarray, rng: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
        """Of positive bags the instance that the expert likes best, and some of all their instances."""
        bags, rows = to_cluster(self.labels, self.offsets, rng)
        found = segment_argmax(np.asarray(self.Phi @ expert[:-1]), self.offsets)[bags]
        return dense_rows(self.Phi, found), dense_rows(self.Phi, rows)

    def activation(self, P: np.ndarray) -> float:
        """Mean size of activations of all instances."""
        return mean_activation(self.Phi, P)

    def each(self, functions: Sequence[Callable[[], Any]]) -> list[Any]:
        """What functions return, one after the other."""
        return [function() for function in functions]
