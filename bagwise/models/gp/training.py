"""Training data as the kernel sees them, part by part, and what computes features of other bags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bagwise.bags import Bags, instance_rows
from bagwise.base.blocks import thinned
from bagwise.compute.parts import Held, Parts, map_parts
from bagwise.models.gp.covariances import InstanceKernel, bag_means

LANDMARK_INSTANCES = 100  # of a landmark bag at the most, of bags in several parts


@dataclass
class FeatureMap:
    """How to compute features of any bags: from their mean instance, or from kernels with landmarks.

    Parameters
    ----------
    projection : ndarray of shape (d or n_landmarks, m)
        What multiplies the mean instance or the mean kernel with the landmark bags.
    landmarks, offsets : instances and their bags, or None
        None for explicit features of a linear kernel.
    intercept : ndarray of shape (m,)
        Added to the product: the constant's share of explicit features, else 0.
    whole : bool
        Whether ``base`` of the training bags is the kernel itself, or its exact factor.
    """

    kernel: InstanceKernel
    projection: np.ndarray
    intercept: np.ndarray
    landmarks: Any = None
    offsets: np.ndarray | None = None
    whole: bool = False

    def base(self, X: Any, offsets: np.ndarray) -> Any:
        """What features are linear in: mean instances (CSR if given so), or kernels with the landmarks."""
        if self.landmarks is None or self.offsets is None:
            return bag_means(X, offsets)
        return self.kernel.between(X, offsets, self.landmarks, self.offsets)


class Data(NamedTuple):
    """Transformed instances: rows of the kernel by ``offsets``, and the bags with their labels."""

    X: Any
    offsets: np.ndarray
    Y: np.ndarray
    bags: np.ndarray

    def single(self) -> Data:
        """The same with every instance as a row of the kernel."""
        return self._replace(offsets=np.arange(self.X.shape[0] + 1))


class Features(NamedTuple):
    """Features of the rows of some bags, and what `Data` says of the bags."""

    P: np.ndarray
    Y: np.ndarray
    bags: np.ndarray


@dataclass
class Training:
    """All training bags in parts.

    Parameters
    ----------
    parts : Parts
        Each loads as `Data`.
    part_rows : ndarray of int
        Rows of the kernel in each.
    n_features, n_labels : int
        Number of features and of labels.
    """

    parts: Parts
    part_rows: np.ndarray
    n_features: int
    n_labels: int

    @classmethod
    def of(cls, X: Any, offsets: np.ndarray, Y: np.ndarray, *, single: bool = False) -> Training:
        """Transformed bags in memory; ``single`` makes every instance a row of the kernel."""
        data = Data(X, offsets, Y, offsets).single() if single else Data(X, offsets, Y, offsets)
        return cls(Held(data), np.array([len(data.offsets) - 1]), X.shape[1], Y.shape[1])

    @property
    def n_rows(self) -> int:
        """Rows of the kernel in all parts."""
        return int(self.part_rows.sum())

    def only(self) -> tuple[Any, np.ndarray]:
        """Instances and offsets of the only part."""
        return self.parts.only()[:2]

    def some(self, which: np.ndarray) -> tuple[Any, np.ndarray]:
        """Instances and offsets of some rows; of several parts at most `LANDMARK_INSTANCES` of each."""
        if len(self.parts) == 1:
            return take_bags(*self.only(), which)
        ends = np.cumsum(self.part_rows)
        cuts = np.split(which, np.searchsorted(which, ends[:-1]))
        each = [cut - (end - n) for cut, end, n in zip(cuts, ends, self.part_rows)]
        found = Bags.concat(list(map_parts(_as_is, None, self.parts.map(_taken, each))))
        return found.X, found.offsets


def _taken(which: np.ndarray, data: Data) -> Bags:
    return thinned(Bags(*take_bags(data.X, data.offsets, which)), LANDMARK_INSTANCES)


def _as_is(_: None, part: Any) -> Any:
    return part


def take_bags(X: Any, offsets: np.ndarray, bags: np.ndarray) -> tuple[Any, np.ndarray]:
    """Instances of some bags, and their offsets."""
    rows, cut = instance_rows(offsets, bags)
    return X[rows], cut
