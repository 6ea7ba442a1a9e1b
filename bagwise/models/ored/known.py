"""Instances whose labels are known, in whole or in part, as classes that they may have."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Known(NamedTuple):
    """What is known: row numbers of instances, and which classes each of them may have."""

    rows: np.ndarray
    allowed: np.ndarray

    def clamped(self, logits: np.ndarray) -> np.ndarray:
        """Logits without the classes that are ruled out."""
        clamped = logits.copy()
        clamped[self.rows] = np.where(self.allowed, logits[self.rows], -np.inf)
        return clamped

    def of_classes(self, classes: np.ndarray) -> Known | None:
        """What remains when only some classes do; rows of which nothing remains are left open."""
        allowed = self.allowed[:, classes]
        some = allowed.any(axis=1)
        return Known(self.rows[some], allowed[some]) if some.any() else None


def known_classes(known: np.ndarray | None, n_labels: int, background: bool) -> Known | None:
    """Classes that instances may have; None where nothing is known.

    Parameters
    ----------
    known : int array of shape (n_instances,) or (n_instances, n_labels), or None
        Label of every instance, -1 where it is not known; or 1, 0 and -1 for each label.
    n_labels : int
        Number of labels.
    background : bool
        Whether there is one more class, the last, for instances without a label. Without it, an instance that
        carries none of the labels is left open: there is no class for it.

    Examples
    --------
    >>> found = known_classes(np.array([-1, 1]), 2, background=True)
    >>> found.rows, found.allowed
    (array([1]), array([[False,  True, False]]))
    >>> known_classes(np.array([[0, -1], [0, 0]]), 2, background=False).allowed
    array([[False,  True]])
    """
    if known is None:
        return None
    if known.ndim == 1:
        allowed = known[:, None] == np.arange(n_labels + background)
        rows = np.flatnonzero(known >= 0)
    else:
        carried = known == 1
        allowed = np.where(carried.any(axis=1, keepdims=True), carried, known != 0)
        if background:
            allowed = np.column_stack([allowed, ~carried.any(axis=1)])
        rows = np.flatnonzero((known >= 0).any(axis=1) & allowed.any(axis=1))
    return Known(rows, allowed[rows]) if rows.size else None
