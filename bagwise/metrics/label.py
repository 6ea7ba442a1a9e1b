"""Measures that judge one label at a time over all bags and average over labels.

A label takes part if it occurs in the bags at hand and, where ``train_Y`` is given, in the training bags too;
if none does, the measure is NaN.
"""

from __future__ import annotations

import numpy as np

from bagwise.errors import DataError
from bagwise.metrics import _kernels
from bagwise.metrics._kernels import as_label_sets, as_scores, same_shape

__all__ = ["macro_f1", "mean_average_precision", "roc_auc", "top_labels"]

# Rows selected at a time, so that the work arrays stay in the cache.
_N_ROWS = 1024


def label_values(Y, S):
    """Return average precision and ROC area of each label; ``Y`` and ``S`` are checked already."""
    return _kernels.rank_labels(Y, S).T


def kept_labels(Y, train_Y):
    """Mark the labels that occur in ``Y`` and, if given, in ``train_Y``."""
    kept = Y.any(axis=0)
    if train_Y is not None:
        train_Y = as_label_sets(train_Y, "train_Y")
        if train_Y.shape[1] != Y.shape[1]:
            raise DataError(
                f"expected train_Y with {Y.shape[1]} labels, as Y; received shape {train_Y.shape}"
            )
        kept &= train_Y.any(axis=0)
    return kept


def mean_or_nan(values):
    """Average of what is defined."""
    values = values[~np.isnan(values)]
    return float(values.mean()) if values.size else float("nan")


def mean_average_precision(Y, S, *, train_Y=None):
    """Rank the bags by each label's score, take the average precision, average over labels.

    The average precision of a label is not interpolated and takes bags with equal scores together, as
    `sklearn.metrics.average_precision_score` does.

    Parameters
    ----------
    Y : array of 0 and 1, shape (n_bags, n_labels)
        True label sets.
    S : array of shape (n_bags, n_labels)
        Scores.
    train_Y : array of 0 and 1, shape (n_train_bags, n_labels), optional
        Label sets of the training bags; labels that never occur there are left out.

    Returns
    -------
    float
        Between 0 and 1 (best).

    Examples
    --------
    >>> mean_average_precision([[1, 0], [0, 0], [1, 0]], [[0.9, 0.5], [0.5, 0.5], [0.1, 0.5]])
    0.8333333333333333
    """
    Y = as_label_sets(Y)
    S = as_scores(S, Y.shape)
    return mean_or_nan(label_values(Y, S)[0][kept_labels(Y, train_Y)])


def roc_auc(Y, S):
    """Area under the ROC curve, ties being half; for label sets, the mean over labels.

    Parameters
    ----------
    Y : array of 0 and 1, shape (n_bags,) or (n_bags, n_labels)
        True classes or label sets.
    S : array of the shape of Y
        Scores.

    Returns
    -------
    float
        Between 0 and 1 (best). Labels that all bags or no bags have are left out.

    Examples
    --------
    >>> roc_auc([1, 0, 1, 0], [0.8, 0.8, 0.6, 0.1])
    0.625
    >>> roc_auc([[1, 0], [0, 0], [1, 0]], [[0.9, 0.5], [0.5, 0.5], [0.1, 0.5]])
    0.5
    """
    if np.ndim(Y) == 1:
        Y = as_label_sets(Y, ndim=1)
        S = as_scores(S, Y.shape)
        Y, S = Y[:, None], S[:, None]
    else:
        Y = as_label_sets(Y)
        S = as_scores(S, Y.shape)
    return mean_or_nan(label_values(Y, S)[1])


def top_labels(S, n):
    """Predict the ``n`` best-scored labels of each bag; of equal scores the lower index is taken.

    Parameters
    ----------
    S : array of shape (n_bags, n_labels)
        Scores.
    n : int
        Labels per bag; all, if there are fewer.

    Returns
    -------
    bool array of shape (n_bags, n_labels)
        Label sets.

    Examples
    --------
    >>> top_labels([[0.3, 0.9, 0.3]], 2).astype(int)
    array([[1, 1, 0]])
    """
    S = np.asarray(S)
    if S.ndim != 2:
        raise DataError(f"expected S of shape (n_bags, n_labels), received shape {S.shape}")
    S = as_scores(S, S.shape)
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0:
        raise DataError(f"expected n as a number of labels, 0 or more; received {n!r}")
    n_labels = S.shape[1]
    if n == 0 or n >= n_labels:
        return np.full(S.shape, n > 0)
    chosen = np.empty(S.shape, np.bool_)
    for start in range(0, S.shape[0], _N_ROWS):
        rows = S[start : start + _N_ROWS]
        last = np.partition(rows, n_labels - n, axis=1)[:, n_labels - n, None]  # n-th best
        out = chosen[start : start + _N_ROWS]
        np.greater_equal(rows, last, out=out)
        crowded = np.flatnonzero(np.count_nonzero(out, axis=1) > n)
        tied = rows[crowded] == last[crowded]
        surplus = np.count_nonzero(out[crowded], axis=1) - n
        room = np.count_nonzero(tied, axis=1) - surplus
        out[crowded] &= ~(tied & (np.cumsum(tied, axis=1) > room[:, None]))
    return chosen


def macro_f1(Y, S, *, n_top="auto", train_Y=None):
    """F1 of each label's predicted bags, averaged over labels.

    Parameters
    ----------
    Y : array of 0 and 1, shape (n_bags, n_labels)
        True label sets.
    S : array of shape (n_bags, n_labels)
        Scores, of which the best few of each bag are predicted; see `top_labels`.
    n_top : int, "auto" or None
        How many. ``"auto"``: the mean number of labels per training bag, rounded, at least 1; per bag of
        ``Y`` where ``train_Y`` is not given. ``None``: ``S`` holds predicted label sets as 0 and 1.
    train_Y : array of 0 and 1, shape (n_train_bags, n_labels), optional
        Label sets of the training bags; labels that never occur there are left out.

    Returns
    -------
    float
        Between 0 and 1 (best).

    Examples
    --------
    >>> Y, S = [[1, 0], [0, 1], [1, 0]], [[0.9, 0.5], [0.5, 0.2], [0.3, 0.1]]
    >>> macro_f1(Y, S)  # (0.8 + 0) / 2
    0.4
    >>> macro_f1(Y, Y, n_top=None)
    1.0
    """
    Y = as_label_sets(Y)
    kept = kept_labels(Y, train_Y)
    if n_top is None:
        P = as_label_sets(S, "S")
        same_shape(P, Y.shape, "S")
    else:
        if isinstance(n_top, str):
            if n_top != "auto":
                raise DataError(f'expected n_top as an int, "auto" or None; received {n_top!r}')
            n_top = _labels_per_bag(Y if train_Y is None else as_label_sets(train_Y, "train_Y"))
        P = top_labels(as_scores(S, Y.shape), n_top)
    both = np.count_nonzero(Y & P, axis=0)
    either = np.count_nonzero(Y, axis=0) + np.count_nonzero(P, axis=0)  # 2 TP + FP + FN, > 0 where kept
    return mean_or_nan(2 * both[kept] / either[kept])


def _labels_per_bag(Y):
    return max(1, round(np.count_nonzero(Y) / max(1, Y.shape[0])))
