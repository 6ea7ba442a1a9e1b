"""Scores of training bags by models that did not see them, and the folds for that.

A model's own probabilities are too sure, and its label sets too large or too small, because it was fitted to
the very bags they are judged by. `bagwise.compute.calibration` learns from held-out scores how sure a score
makes us.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_random_state

from bagwise.bags.labels import binary_matrix
from bagwise.base.blocks import Blocks
from bagwise.errors import DataError

MOST_HELD_OUT = 10_000  # bags that are ever held out: more would not move two numbers per label


def held_out_scores(
    score: Callable[[np.ndarray, np.ndarray], np.ndarray],
    Y: np.ndarray,
    weights: np.ndarray | None = None,
    *,
    n_folds: int = 3,
    most: int = 2000,
) -> np.ndarray:
    """Scores of bags by models of the other bags; NaN where a bag had no turn or its label was not seen.

    Parameters
    ----------
    score : callable
        ``score(train, test)`` fits a model to the bags with the numbers ``train`` and returns scores of the
        bags ``test``, of shape (len(test), n_labels), or several kinds of scores, (n_kinds, len(test),
        n_labels).
    Y : ndarray of shape (n_bags, n_labels)
        Labels, spread evenly over folds. The folds depend on them and the order of bags alone.
    weights : ndarray of shape (n_bags,), optional
        Bags of weight 0 take no part.
    n_folds : int, default=3
        Number of models, each of all bags but one in ``n_folds``.
    most : int, default=2000
        With more bags, one fold alone is held out: that is enough for two numbers per label, and cheaper.

    Returns
    -------
    ndarray of shape (n_bags, n_labels) or (n_kinds, n_bags, n_labels)

    Examples
    --------
    >>> Y = np.tile([[0, 1], [1, 1]], (6, 1))
    >>> held_out_scores(lambda train, test: np.full((len(test), 2), len(train)), Y)[:2].tolist()
    [[8.0, 8.0], [8.0, 8.0]]
    """
    scores = np.full(Y.shape, np.nan)
    used = np.arange(len(Y)) if weights is None else np.flatnonzero(weights > 0)
    for train, test in _folds(used, Y, n_folds, most):
        part = np.asarray(score(train, test), dtype=np.float64)
        seen = (Y[train] > 0).any(axis=0)
        if part.ndim > scores.ndim:
            scores = np.full((len(part), *Y.shape), np.nan)
        scores[..., test, :] = np.where(seen, part, np.nan)
    return scores


def _folds(
    used: np.ndarray, Y: Any, n_folds: int = 3, most: int = 2000
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Bags to train on and bags to score, among those that take part; none where these are too few.

    ``Y`` may be a function that gives the labels: with more than ``most`` bags nobody looks at them.
    """
    if len(used) < 2 * n_folds:
        return []
    if len(used) > most:
        mixed = np.random.RandomState(0).permutation(len(used))
        n_test = min(len(used) // n_folds, MOST_HELD_OUT)
        return [(used[np.sort(mixed[n_test:])], used[np.sort(mixed[:n_test])])]
    Y = Y() if callable(Y) else Y
    folds = MultilabelKFold(n_folds, random_state=0).split(Y[used], Y[used])
    return [(used[train], used[test]) for train, test in folds]


class HeldOut(NamedTuple):
    """Blocks of bags to train on, and those to be scored with their numbers."""

    train: Blocks
    test: Blocks
    which: np.ndarray


def held_out_blocks(blocks: Blocks) -> list[HeldOut]:
    """Folds of `held_out_scores` for bags in blocks, in memory or in shards."""
    if blocks.kind == "shards":
        used = np.arange(blocks.n_bags)  # shards have no weights
        folds = _folds(used, lambda: blocks.labels()[0])
    else:
        Y, weights = blocks.labels()
        folds = _folds(np.flatnonzero(weights > 0), Y)
    return [HeldOut(blocks.take(train), blocks.take(test), test) for train, test in folds]


def labels_of(folds: list[HeldOut]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels and weights of all bags held out, and the order that brings folds into that of the bags."""
    which = np.concatenate([fold.which for fold in folds])
    found = [fold.test.labels() for fold in folds]
    order = np.argsort(which, kind="stable")
    return np.concatenate([Y for Y, _ in found])[order], np.concatenate([w for _, w in found])[order], order


# ----------------------------------------------------------------------
# Folds in which every label is spread as evenly as its bags allow


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
        labels = y.toarray() if hasattr(y, "toarray") else np.asarray(y)
        if labels.ndim == 1:  # one class per bag
            _, codes = np.unique(labels, return_inverse=True)
            labels = codes[:, None] == np.arange(codes.max(initial=0) + 1)
        fold = self._assign(binary_matrix(labels))
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
