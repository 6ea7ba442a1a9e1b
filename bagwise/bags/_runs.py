"""Runs of bags that fit a limit on memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


def runs(offsets: np.ndarray, n_rows: float) -> Iterator[tuple[int, int]]:
    """First bag, and the one after the last, of runs with at most ``n_rows`` instances together.

    A larger bag is a run by itself. Every bag is in one run, in order.

    Examples
    --------
    >>> list(runs(np.array([0, 2, 3, 6]), 3))
    [(0, 2), (2, 3)]
    """
    first = 0
    while first < len(offsets) - 1:
        last = max(int(np.searchsorted(offsets, offsets[first] + n_rows, side="right")) - 1, first + 1)
        yield first, last
        first = last
