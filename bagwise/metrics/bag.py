r"""Measures that judge one bag at a time and average over bags.

``Y`` holds the true label sets as 0 and 1, shape ``(n_bags, n_labels)``; ``S`` the scores, larger meaning
more relevant; ``P`` the predicted sets. The rules by default are those of the evaluation files that came with
the first MIML packages, which the literature quotes; both can be exchanged for scikit-learn's.

``ties="reference"``
    One-error is optimistic: a bag is right if any label tied at the maximum is relevant. In coverage and
    average precision, of two labels with equal scores the one with the *higher* index ranks better.
``ties="sklearn"``
    Labels with equal scores all take the worst rank of their group, and in average precision all relevant
    ones of the group count as found. One-error, which scikit-learn lacks, follows suit: a bag is right only
    if all labels tied at the maximum are relevant.
``degenerate="skip"``
    Bags with no label or all labels do not take part; if no bag remains, the measure is NaN.
``degenerate="count"``
    They count as scikit-learn has it: ranking loss 0 and average precision 1. In one-error a bag without
    labels is an error and a bag with all of them is not.

In ranking loss a tie is a full error under both rules.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bagwise.errors import DataError
from bagwise.metrics import _kernels
from bagwise.metrics._kernels import as_label_sets, as_scores, one_of, same_shape

__all__ = ["average_precision", "calibration_error", "coverage", "hamming_loss", "one_error", "ranking_loss"]


class BagValues(NamedTuple):
    """One value per bag of each ranking measure."""

    one_error: np.ndarray
    depth: np.ndarray
    ranking_loss: np.ndarray
    average_precision: np.ndarray
    proper: np.ndarray  # neither without labels nor with all of them

    def mean(self, name, degenerate):
        """Average over the bags that take part."""
        one_of(degenerate, ("skip", "count"), "degenerate")
        values = getattr(self, name)
        return _mean(values if degenerate == "count" else values[self.proper])

    def coverage(self):
        """Mean depth of the worst relevant label, less 1; a bag without labels has depth 0."""
        return _mean(self.depth) - 1.0


def bag_values(Y, S, ties):
    """Compute all ranking measures of all bags in one pass; ``Y`` and ``S`` are checked already."""
    one_of(ties, ("reference", "sklearn"), "ties")
    out, n_relevant = _kernels.rank_bags(Y, S, ties == "sklearn")
    one, depth, loss, precision = out.T
    return BagValues(one, depth, loss, precision, (n_relevant > 0) & (n_relevant < S.shape[1]))


def _checked_values(Y, S, ties):
    Y = as_label_sets(Y)
    return bag_values(Y, as_scores(S, Y.shape), ties)


def _mean(values):
    return float(values.mean()) if values.size else float("nan")


def hamming_loss(Y, P):
    """Fraction of the entries of the label matrix that are predicted wrongly; every bag counts.

    Parameters
    ----------
    Y, P : arrays of 0 and 1, shape (n_bags, n_labels)
        True and predicted label sets.

    Returns
    -------
    float
        Between 0 (best) and 1.

    Examples
    --------
    >>> hamming_loss([[1, 0, 0, 1], [0, 1, 0, 0]], [[1, 0, 1, 1], [0, 1, 0, 1]])
    0.25
    """
    Y, P = as_label_sets(Y), as_label_sets(P, "P")
    same_shape(P, Y.shape, "P")
    return float(np.count_nonzero(Y != P) / Y.size) if Y.size else float("nan")


def one_error(Y, S, *, ties="reference", degenerate="skip"):
    """Fraction of bags whose best-scored label is irrelevant.

    Parameters
    ----------
    Y : array of 0 and 1, shape (n_bags, n_labels)
        True label sets.
    S : array of shape (n_bags, n_labels)
        Scores.
    ties : {"reference", "sklearn"}
        See the head of this module.
    degenerate : {"skip", "count"}
        See the head of this module.

    Returns
    -------
    float
        Between 0 (best) and 1.

    Examples
    --------
    >>> one_error([[1, 0, 0], [0, 1, 0]], [[0.9, 0.5, 0.1], [0.7, 0.2, 0.1]])
    0.5
    >>> one_error([[1, 0, 0]], [[0.5, 0.5, 0.5]]), one_error([[1, 0, 0]], [[0.5, 0.5, 0.5]], ties="sklearn")
    (0.0, 1.0)
    """
    return _checked_values(Y, S, ties).mean("one_error", degenerate)


def coverage(Y, S, *, normalised=False, ties="reference"):
    """Steps down the ranking until all relevant labels are covered, on average over all bags.

    The mean of the rank of the worst-ranked relevant label (best = 1), less 1. A bag without labels has rank
    0 in this mean.

    Parameters
    ----------
    Y, S, ties
        As in `one_error`.
    normalised : bool
        Divide by the number of labels.

    Returns
    -------
    float
        Lower is better; at best the mean number of labels per bag, less 1.

    Examples
    --------
    >>> Y, S = [[1, 0, 0, 1], [0, 1, 0, 0]], [[0.9, 0.5, 0.1, 0.3], [0.7, 0.8, 0.1, 0.2]]
    >>> coverage(Y, S), coverage(Y, S, normalised=True)
    (1.0, 0.25)
    """
    Y = as_label_sets(Y)
    return _checked_values(Y, S, ties).coverage() / (Y.shape[1] if normalised else 1)


def ranking_loss(Y, S, *, ties="reference", degenerate="skip"):
    """Fraction of the (relevant, irrelevant) pairs of a bag in the wrong order, a tie being wrong.

    Parameters and return value as in `one_error`.

    Examples
    --------
    >>> ranking_loss([[1, 0, 0], [1, 1, 0]], [[0.5, 0.9, 0.1], [0.7, 0.2, 0.1]])
    0.25
    """
    return _checked_values(Y, S, ties).mean("ranking_loss", degenerate)


def average_precision(Y, S, *, ties="reference", degenerate="skip"):
    """Mean, over the relevant labels of a bag, of the fraction of relevant labels at or above each.

    Parameters as in `one_error`.

    Returns
    -------
    float
        Between 0 and 1 (best).

    Examples
    --------
    >>> average_precision([[1, 0, 1]], [[0.9, 0.5, 0.1]])  # (1/1 + 2/3) / 2
    0.8333333333333333
    """
    return _checked_values(Y, S, ties).mean("average_precision", degenerate)


# ----------------------------------------------------------------------
# Whether probabilities mean what they say


def calibration_error(Y, probabilities, n_bins=10):
    """Expected calibration error over all pairs of a bag and a label.

    Pairs are sorted into bins of equal width by their probability; the error is the mean distance, weighted
    by the pairs of a bin, between the mean probability and the share of pairs whose label is there.

    Parameters
    ----------
    Y : array of 0 and 1, shape (n_bags, n_labels)
        True label sets.
    probabilities : array of shape (n_bags, n_labels)
        Predicted probabilities.
    n_bins : int, default=10
        Number of bins.

    Examples
    --------
    >>> round(calibration_error([[1, 0], [1, 0]], [[0.9, 0.1], [0.9, 0.1]]), 3)
    0.1
    """
    Y = as_label_sets(Y)
    P = as_scores(probabilities, Y.shape, "probabilities")
    if P.size and (P.min() < 0 or P.max() > 1):
        raise DataError(f"expected probabilities from 0 to 1, received {P.min():g} to {P.max():g}")
    p, y = P.ravel(), Y.ravel()
    bins = np.minimum((p * n_bins).astype(np.int64), n_bins - 1)
    gaps = np.bincount(bins, p - y, minlength=n_bins)
    return float(np.abs(gaps).sum() / max(len(p), 1))
