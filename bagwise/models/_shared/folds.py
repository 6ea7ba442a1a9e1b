"""Folds in which every label is spread as evenly as its bags allow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_random_state

from bagwise.errors import DataError
from bagwise.labels import binary_matrix


class MultilabelKFold(BaseCrossValidator):
    """K folds by iterative stratification: rare labels first, each bag to the fold that lacks its label most.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds.
    shuffle : bool, default=True
        Whether bags are taken in random order (ties between folds are then broken at random too).
    random_state : int, RandomState instance or None, default=None
        Seed of that order.

    References
    ----------
    .. [1] K. Sechidis, G. Tsoumakas, I. Vlahavas: On the stratification of multi-label data.
       ECML PKDD 2011.

    Examples
    --------
    >>> Y = np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    >>> [Y[test].sum(axis=0).tolist() for _, test in MultilabelKFold(2, random_state=0).split(Y, Y)]
    [[1, 1], [1, 1]]
    """

    def __init__(self, n_splits: int = 5, *, shuffle: bool = True, random_state: Any = None) -> None:
        self.n_splits = n_splits
        self.shuffle = shuffle
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds."""
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield bag numbers for training and testing; ``y`` is the 0/1 matrix of labels (or classes)."""
        if y is None:
            raise DataError("MultilabelKFold needs the labels: split(X, Y)")
        fold = self._assign(_matrix(y))
        for k in range(self.n_splits):
            yield np.flatnonzero(fold != k), np.flatnonzero(fold == k)

    def _assign(self, Y: np.ndarray) -> np.ndarray:
        n_bags, n_folds = len(Y), self.n_splits
        if not 2 <= n_folds <= n_bags:
            raise DataError(
                f"n_splits={n_folds} for {n_bags} bags; it must be between 2 and the number of bags"
            )
        rng = check_random_state(self.random_state)
        order = rng.permutation(n_bags) if self.shuffle else np.arange(n_bags)
        Y = Y[order].astype(np.int64)
        wanted = Y.sum(axis=0) / n_folds * np.ones((n_folds, 1))  # of each label, still missing in each fold
        room = np.full(n_folds, n_bags / n_folds)
        luck = rng.random(n_folds) if self.shuffle else np.arange(n_folds) / n_folds
        fold = np.full(n_bags, -1)
        free = np.ones(n_bags, dtype=bool)
        left = Y.sum(axis=0)
        while left.any():
            label = np.where(left > 0, left, n_bags + 1).argmin()  # the rarest label is the hardest to spread
            for bag in np.flatnonzero(free & (Y[:, label] > 0)):
                k = np.lexsort((luck, -room, -wanted[:, label]))[0]
                fold[bag], free[bag] = k, False
                wanted[k] -= Y[bag]
                room[k] -= 1
                left -= Y[bag]
        for bag in np.flatnonzero(free):  # bags without labels even out the sizes
            k = np.lexsort((luck, -room))[0]
            fold[bag] = k
            room[k] -= 1
        result = np.empty(n_bags, dtype=np.int64)
        result[order] = fold
        return result


def _matrix(y: Any) -> np.ndarray:
    array = y.toarray() if hasattr(y, "toarray") else np.asarray(y)
    if array.ndim == 1:  # one class per bag
        _, codes = np.unique(array, return_inverse=True)
        array = (codes[:, None] == np.arange(codes.max(initial=0) + 1)).astype(np.int8)
    return binary_matrix(array)
