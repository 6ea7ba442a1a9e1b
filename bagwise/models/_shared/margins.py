"""Scores of classes against each other."""

from __future__ import annotations

import numpy as np


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
