"""A threshold that label scores must exceed, chosen for the fewest errors."""

from __future__ import annotations

import numpy as np

__all__ = ["best_offset"]


def best_offset(margins: np.ndarray, Y: np.ndarray) -> float:
    """Offset that makes ``margins > offset`` wrong least often; the one nearest to 0 among equals.

    Examples
    --------
    >>> best_offset(np.array([[3.0, 1.0], [2.0, -1.0]]), np.array([[1, 0], [1, 0]]))
    1.5
    """
    values = margins.ravel()
    order = np.argsort(values, kind="stable")
    values, truth = values[order], Y.ravel()[order] > 0
    zero = int(np.count_nonzero((values > 0) != truth))
    # errors[k]: the k smallest are refused, the rest predicted
    errors = np.empty(len(values) + 1, np.int32)
    errors[0] = np.count_nonzero(~truth)
    np.cumsum(np.where(truth, np.int8(1), np.int8(-1)), dtype=np.int32, out=errors[1:])
    errors[1:] += errors[0]
    errors[1:-1][values[1:] == values[:-1]] = len(values) + 1  # no cut through equal scores
    if zero <= errors.min():
        return 0.0
    best = []
    for k in np.flatnonzero(errors == errors.min()).tolist():
        below, above = float(values[max(k - 1, 0)]), float(values[min(k, len(values) - 1)])
        outermost = {0: above - 1.0, len(values): below + 1e-3 * (1.0 + abs(below))}
        best.append(outermost.get(k, (below + above) / 2.0))
    return min(best, key=abs)
