"""Prototypes: the local maxima of diverse density that are kept, and distances of bags to them."""

from __future__ import annotations

import numpy as np

from bagwise.compute.memo import remembered
from bagwise.compute.segment import segment_max
from bagwise.models.diverse_density.diverse_density import learn_densest
from bagwise.models.diverse_density.objective import distances
from bagwise.models.svm.base import CELLS


@remembered
def find_prototypes(y, X, offsets, **settings):
    """Points and scales of all prototypes, how many are of positive bags, and most iterations of a start."""
    kept, n_iter = [], 0
    for signs in (y, 1 - y):
        found = learn_densest(signs, X, offsets, settings)
        kept.append(found.x[select_maxima(found.x, found.values, settings["merge"])])
        n_iter = max(n_iter, int(found.n_iter.max()))
    points, scales = np.hsplit(np.concatenate(kept), 2)
    return points.copy(), np.abs(scales), len(kept[0]), n_iter


def select_maxima(theta: np.ndarray, values: np.ndarray, merge: float) -> np.ndarray:
    """Numbers of the maxima that are kept, densest first; ``values`` are negative log densities.

    Examples
    --------
    >>> theta = np.array([[2.0, 1.0], [2.01, -1.0], [5.0, 1.0], [9.0, 1.0]])
    >>> select_maxima(theta, np.array([1.0, 1.1, 2.0, 9.0]), 0.05)
    array([0, 2])
    """
    h, s = np.hsplit(theta, 2)
    V = h * np.abs(s)
    lengths = np.maximum(np.linalg.norm(V, axis=1), np.linalg.norm(s, axis=1))
    left = np.argsort(values, kind="stable")
    left = left[values[left] <= 0.5 * (values.min() + values.max())]
    kept = []
    while left.size:
        best = left[0]
        kept.append(best)
        apart = np.linalg.norm(V[left] - V[best], axis=1) >= merge * lengths[best]
        apart[0] = False
        left = left[apart]
    return np.array(kept)


def nearest_distances(X, offsets, points, scales):
    """Squared scaled distance of every bag to every point."""
    out = np.empty((len(offsets) - 1, len(points)))
    step = max(1, CELLS // len(X))
    for a in range(0, len(points), step):
        Q = distances(X, points[a : a + step], scales[a : a + step])
        out[:, a : a + step] = -segment_max(-Q, offsets)
    return out


def nearness(X, points, scales):
    """Minus the distance of every instance to the nearest point."""
    out = np.full(len(X), -np.inf)
    step = max(1, CELLS // len(X))
    for a in range(0, len(points), step):
        Q = distances(X, points[a : a + step], scales[a : a + step])
        np.maximum(out, -np.sqrt(Q.min(axis=1)), out=out)
    return out
