"""From scores to choices: the best label of every instance, the best instances of every label."""

from __future__ import annotations

import numpy as np

from bagwise.bags import Bags

NO_LABEL = -1  # what `annotate` says of an instance that carries none of the labels


def best_labels(scores: np.ndarray, bags: Bags, Y: np.ndarray | None) -> np.ndarray:
    """Label with the largest score of every instance, among those of its bag where they are known.

    Examples
    --------
    >>> bags = Bags(np.zeros((2, 1)), np.array([0, 1, 2]))
    >>> scores = np.array([[1.0, 2.0], [3.0, 0.0]])
    >>> best_labels(scores, bags, None), best_labels(scores, bags, np.array([[1, 0], [0, 0]]))
    (array([1, 0]), array([ 0, -1]))
    """
    if Y is None:
        labels = scores.argmax(axis=1)
        if scores.shape[1] == 1:  # one label: carried or not
            labels = np.where(scores[:, 0] > 0, labels, NO_LABEL)
        return labels
    allowed = Y[bags.index] > 0
    labels = np.where(allowed, scores, -np.inf).argmax(axis=1)
    # argmax of a row of -inf is 0, allowed or not
    inside = allowed[np.arange(len(labels)), labels]
    first_allowed = np.where(allowed.any(axis=1), allowed.argmax(axis=1), NO_LABEL)
    return np.where(inside, labels, first_allowed)


def best_rows(F: np.ndarray, offsets: np.ndarray, k: int) -> np.ndarray:
    """Rows with the ``k`` largest scores of each bag and label, -1 where there are fewer.

    Examples
    --------
    >>> best_rows(np.array([[1.0], [3.0], [2.0], [5.0]]), np.array([0, 3, 4]), k=2).squeeze().tolist()
    [[1, 2], [3, -1]]
    """
    sizes = np.diff(offsets)
    index = np.repeat(np.arange(len(sizes)), sizes)
    result = np.full((len(sizes), F.shape[1], k), -1, dtype=np.int64)
    for label in range(F.shape[1]):
        order = np.lexsort((-F[:, label], index))  # stable: the earlier row wins a tie
        for rank in range(k):
            has = sizes > rank
            result[has, label, rank] = order[offsets[:-1][has] + rank]
    return result
