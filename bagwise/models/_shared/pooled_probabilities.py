"""Probabilities of bags from those of their instances."""

from __future__ import annotations

import numpy as np
from scipy.special import logit

from bagwise.kernels.segment import segment_max, segment_mean, segment_sum

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
