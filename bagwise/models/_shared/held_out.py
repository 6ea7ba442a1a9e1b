"""From scores to label sets: a sigmoid per label, learned on training bags that the model did not see.

A model's own probabilities are too sure, and its label sets too large or too small, because it was fitted to
the very bags they are judged by. `held_out_scores` gives scores of bags by models of the other bags, and
`calibrate` learns from them how sure a score makes us. Labels share what they have in common: the slopes and
intercepts are drawn to shared ones, so that a label with three bags does not get a rule of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_random_state

from bagwise.bags.labels import binary_matrix
from bagwise.base.blocks import Blocks
from bagwise.errors import DataError

__all__ = [
    "Calibration",
    "HeldOut",
    "calibrate",
    "held_out_blocks",
    "held_out_scores",
    "labels_of",
    "log_loss",
]


# How strongly slopes and intercepts of labels are drawn to the shared ones, and these to 1 and 0. A quarter
# to five times as much changed the Hamming loss of ORed on birds, Frost and MSRCv2 by .0013 at most.
_SLOPES, _INTERCEPTS, _SHARED = 4.0, 0.3, 0.1
_LARGEST = 30.0  # scores beyond this say no more
MOST_HELD_OUT = 10_000  # bags that are ever held out: more would not move two numbers per label
_MANY = 500  # labels whose matrix of second derivatives is not worth its memory


class Calibration(NamedTuple):
    """Log-odds of a label: ``slope * score + intercept``, both of shape (n_labels,)."""

    slope: np.ndarray
    intercept: np.ndarray

    def log_odds(self, scores: np.ndarray) -> np.ndarray:
        """Calibrated log-odds of scores of shape (n_bags, n_labels)."""
        return scores * self.slope + self.intercept

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        """Calibrated probabilities; a label is predicted above one half."""
        return expit(self.log_odds(scores))


def calibrate(
    scores: np.ndarray,
    Y: np.ndarray,
    weights: np.ndarray | None = None,
    *,
    always: np.ndarray | None = None,
    n_bags: int | None = None,
) -> Calibration:
    """Learn a sigmoid per label from scores of bags that the model did not see.

    Parameters
    ----------
    scores : ndarray of shape (n_bags, n_labels)
        Larger is more probable, best on the scale of log-odds; NaN where unknown.
    Y : ndarray of shape (n_bags, n_labels)
        The labels, 0 or 1.
    weights : ndarray of shape (n_bags,), optional
        Weights of the bags.
    always : ndarray of shape (n_labels,), optional
        Labels that every bag carries, also those that are not among these; by default these tell.
    n_bags : int, optional
        Number of all bags; by default of these.

    Returns
    -------
    Calibration
        Slopes are never negative, so each label ranks bags as its scores do. A label that every bag carries
        is always predicted; one that no bag carries keeps its scores as log-odds.

    Examples
    --------
    Scores that are 3 too high, and twice too sure:

    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(size=(500, 4))
    >>> Y = rng.random((500, 4)) < expit(truth)
    >>> found = calibrate(2 * truth + 3, Y)
    >>> found.slope.round(1).tolist(), found.intercept.round(1).tolist()
    ([0.5, 0.5, 0.4, 0.5], [-1.6, -1.5, -1.3, -1.5])
    """
    n_labels = Y.shape[1]
    known = np.isfinite(scores)
    each = np.where(known, 1.0 if weights is None else weights[:, None], 0.0)
    positive = (each * (Y > 0)).sum(axis=0)
    negative = each.sum(axis=0) - positive
    slope, intercept = np.ones(n_labels), np.zeros(n_labels)
    varies = (positive > 0) & (negative > 0)
    if varies.any():
        S = np.where(known, np.clip(scores, -_LARGEST, _LARGEST), 0.0)[:, varies]
        slope[varies], intercept[varies] = _fit(S, np.where(Y[:, varies] > 0, 1.0, -1.0), each[:, varies])
    n_bags = len(Y) if n_bags is None else n_bags
    everywhere = ((Y > 0).all(axis=0) if always is None else always) & (n_bags > 0)
    slope[everywhere], intercept[everywhere] = 0.0, np.log1p(n_bags)  # rule of succession
    return Calibration(slope, intercept)


def _fit(S: np.ndarray, T: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slopes and intercepts of least penalised log loss; T is 1 or -1. One convex problem with bounds."""
    n = S.shape[1]

    def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
        shared, each = w[:2], w[2:].reshape(2, n)
        margin = T * (S * each[0] + each[1])
        pull = np.array([_SLOPES, _INTERCEPTS])[:, None] * (each - shared[:, None])
        outer = _SHARED * (shared - [1.0, 0.0])
        small = np.exp(-np.abs(margin))  # one exponential for the loss and its slope
        losses = np.log1p(small) + np.maximum(-margin, 0.0)
        value = (weights * losses).sum() + 0.5 * (pull * (each - shared[:, None])).sum()
        slope = -weights * T * (np.where(margin > 0, small, 1.0) / (1.0 + small))
        gradient = np.stack([(slope * S).sum(axis=0), slope.sum(axis=0)]) + pull
        total = np.concatenate([outer - pull.sum(axis=1), gradient.ravel()])
        return value + 0.5 * float(outer @ (shared - [1.0, 0.0])), total

    start, done = _newton(loss, S, T, weights)
    if done:
        return start[2 : 2 + n], start[2 + n :]
    bounds = [(0.0, None), (None, None)] + [(0.0, None)] * n + [(None, None)] * n
    options = {"maxiter": 1000, "ftol": 1e-12, "gtol": 1e-7}
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    return found[2 : 2 + n], found[2 + n :]


def _newton(
    loss: Any, S: np.ndarray, T: np.ndarray, weights: np.ndarray, most: int = 50
) -> tuple[np.ndarray, bool]:
    """Where some Newton steps lead, and whether to the end; slopes at their bound stay there for a step."""
    n = S.shape[1]
    w = np.concatenate([[1.0, 0.0], np.ones(n), np.zeros(n)])
    value, gradient = loss(w)
    for _ in range(most if n <= _MANY else 0):
        each = w[2:].reshape(2, n)
        p = expit(T * (S * each[0] + each[1]))
        curved = weights * p * (1.0 - p)
        H = np.zeros((len(w), len(w)))
        a, b = 2 + np.arange(n), 2 + n + np.arange(n)
        H[a, a], H[b, b] = (curved * S * S).sum(axis=0) + _SLOPES, curved.sum(axis=0) + _INTERCEPTS
        H[a, b] = H[b, a] = (curved * S).sum(axis=0)
        H[0, a] = H[a, 0] = -_SLOPES
        H[1, b] = H[b, 1] = -_INTERCEPTS
        H[0, 0], H[1, 1] = _SHARED + n * _SLOPES, _SHARED + n * _INTERCEPTS
        bounded = np.r_[0, a]
        free = np.ones(len(w), dtype=bool)
        free[bounded] = (w[bounded] > 0) | (gradient[bounded] < 0)
        step = np.zeros(len(w))
        step[free] = np.linalg.solve(H[np.ix_(free, free)], -gradient[free])
        length = 1.0
        while length > 1e-4:
            new = w + length * step
            new[bounded] = np.maximum(new[bounded], 0.0)
            found, slope = loss(new)
            if found <= value + 1e-4 * float(gradient @ (new - w)):
                break
            length *= 0.5
        else:
            return w, False
        gained, moved = value - found, np.abs(new - w).max()
        w, value, gradient = new, found, slope
        if gained <= 1e-12 * (1.0 + abs(value)) and moved <= 1e-6 * np.abs(w).max():
            return w, True
    return w, False


def log_loss(
    calibration: Calibration, scores: np.ndarray, Y: np.ndarray, weights: np.ndarray | None = None
) -> float:
    """Mean log loss of calibrated scores over the labels that are known; NaN if none is.

    Examples
    --------
    >>> plain = Calibration(np.ones(1), np.zeros(1))
    >>> round(log_loss(plain, np.array([[0.0], [np.nan]]), np.array([[1], [0]])), 3)  # log 2
    0.693
    """
    known = np.isfinite(scores)
    each = np.where(known, 1.0 if weights is None else weights[:, None], 0.0)
    odds = calibration.log_odds(np.where(known, np.clip(scores, -_LARGEST, _LARGEST), 0.0))
    losses = np.logaddexp(0.0, np.where(Y > 0, -odds, odds))
    return float((each * losses).sum() / each.sum()) if each.any() else float("nan")


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
    if blocks.streamed or len(blocks) > 1:
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
