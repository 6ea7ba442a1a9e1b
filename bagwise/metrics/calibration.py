"""Whether probabilities mean what they say."""

from __future__ import annotations

import numpy as np

from bagwise.errors import DataError
from bagwise.metrics._checks import as_label_sets, as_scores

__all__ = ["calibration_error"]


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
