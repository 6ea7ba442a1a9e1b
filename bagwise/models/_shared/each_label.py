"""One binary problem per label: shared by models that are binary by nature and by the wrapper for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bagwise.parallel import run


def each_label(learn: Callable[..., Any], Y: np.ndarray, n_jobs: int | None, *shared: Any) -> list[Any]:
    """Call ``learn(y, *shared)`` for every label that some bags carry and some do not; None for the others.

    What is shared is handed to all calls as it is; worker processes map large arrays instead of copying them.

    Examples
    --------
    >>> Y = np.array([[0, 1, 1], [1, 1, 0]])
    >>> each_label(lambda y: y.tolist(), Y, None)
    [[0, 1], None, [1, 0]]
    """
    varies = Y.min(axis=0) < Y.max(axis=0)
    columns = np.ascontiguousarray(Y.T)
    results = iter(run(learn, [(columns[l], *shared) for l in np.flatnonzero(varies)], n_jobs))
    return [next(results) if there else None for there in varies]


def constant_score(y: np.ndarray) -> float:
    """Log-odds of a label that all bags carry, or none, as if half a bag had said otherwise.

    Examples
    --------
    >>> round(constant_score(np.ones(10)), 3), round(constant_score(np.zeros(10)), 3)
    (3.045, -3.045)
    """
    return float(np.log(2.0 * len(y) + 1.0) * (1.0 if y[0] > 0 else -1.0))
