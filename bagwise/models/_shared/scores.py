"""One binary problem per label, labels that never change, probabilities of bags: what several rooms share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import logit

from bagwise.compute.segment import segment_max, segment_mean, segment_sum
from bagwise.compute.threads import run


def each_label(learn: Callable[..., Any], Y: np.ndarray, n_jobs: int | None, *shared: Any) -> list[Any]:
    """Call ``learn(y, *shared)`` for every label that some bags carry and some do not; None for the others.

    What is shared is handed to all calls as it is; worker processes map large arrays instead of copying them.

    Examples
    --------
    >>> Y = np.array([[0, 1, 1], [1, 1, 0]])
    >>> each_label(lambda y: y.tolist(), Y, None)
    [[0, 1], None, [1, 0]]
    """
    varies = Y.min(axis=0) < Y.max(axis=0)
    columns = np.ascontiguousarray(Y.T)
    results = iter(run(learn, [(columns[l], *shared) for l in np.flatnonzero(varies)], n_jobs))
    return [next(results) if there else None for there in varies]


def constant_score(y: np.ndarray) -> float:
    """Log-odds of a label that all bags carry, or none, as if half a bag had said otherwise.

    Examples
    --------
    >>> round(constant_score(np.ones(10)), 3), round(constant_score(np.zeros(10)), 3)
    (3.045, -3.045)
    """
    return float(np.log(2.0 * len(y) + 1.0) * (1.0 if y[0] > 0 else -1.0))


# ---------------------------------------------------------------------- scores of classes against each other


def constant_scores(Y: np.ndarray) -> np.ndarray:
    """1 for a label that all bags carry, -1 for one that none does, NaN for others.

    Examples
    --------
    >>> constant_scores(np.array([[1, 0, 1], [1, 0, 0]]))
    array([ 1., -1., nan])
    """
    return np.where(Y.min(axis=0) < Y.max(axis=0), np.nan, np.where(Y[0] > 0, 1.0, -1.0))


def put_constants(S: np.ndarray, constants: np.ndarray) -> np.ndarray:
    """Scores with those of constant labels put in place."""
    return np.where(np.isnan(constants), S, constants)


def margins(F: np.ndarray) -> np.ndarray:
    """Score of each class less the best score of the others; a class without others keeps its score.

    Examples
    --------
    >>> margins(np.array([[3.0, 1.0, 2.0]])), margins(np.array([[3.0]]))
    (array([[ 1., -2., -1.]]), array([[3.]]))
    """
    if F.shape[1] == 1:
        return F.copy()
    rows, best = np.arange(len(F)), F.argmax(axis=1)
    top_two = np.partition(F, F.shape[1] - 2, axis=1)[:, -2:]
    result = F - top_two[:, 1:]
    result[rows, best] = top_two[:, 1] - top_two[:, 0]
    return result


# ----------------------------------------------------------------------
# Probabilities of bags from those of their instances


EDGE = 1e-4  # probabilities are kept this far from 0 and 1 before logits are taken


def safe_logit(P: np.ndarray) -> np.ndarray:
    """Logits of probabilities, at most 9.2 from zero.

    Examples
    --------
    >>> safe_logit(np.array([0.0, 0.5])).round(2)
    array([-9.21,  0.  ])
    """
    return logit(np.clip(P, EDGE, 1.0 - EDGE))


def pooled(P: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Largest, mean, and noisy-or ``1 - prod(1 - p)`` of the instances of each bag; 0 for an empty one.

    Examples
    --------
    >>> [part.tolist() for part in pooled(np.array([[0.5], [0.5]]), np.array([0, 2, 2]))]
    [[[0.5], [0.0]], [[0.5], [0.0]], [[0.75], [0.0]]]
    """
    filled = (np.diff(offsets) > 0)[:, None]
    largest = np.where(filled, segment_max(P, offsets), 0.0)
    mean = np.where(filled, segment_mean(P, offsets), 0.0)
    absent = segment_sum(np.log1p(-np.clip(P, 0.0, 1.0 - 1e-9)), offsets)
    return largest, mean, np.where(filled, -np.expm1(absent), 0.0)
