"""Training bags that say the opposite of each other."""

from __future__ import annotations

import warnings

import numpy as np

from bagwise.bags import Bags
from bagwise.errors import quoted


def warn_of_contradictions(bags: Bags, Y: np.ndarray) -> None:
    """Warn if bags with the same instances, in whatever order, carry different labels."""
    first: dict[tuple[bytes, ...], int] = {}
    contradicted: set[int] = set()
    pair = None
    for b, rows in enumerate(_fingerprints(bags)):
        a = first.setdefault(rows, b)
        if a != b and (Y[a] != Y[b]).any():
            contradicted.add(a)
            pair = pair or (a, b)
    if pair is None:
        return
    one, other = (quoted(bags.bag_ids[i]) for i in pair)
    warnings.warn(
        f"{len(contradicted)} bags occur again with other labels (first: bags {one} and {other}), of "
        f"{len(first)} distinct bags among {len(bags)}; no model can satisfy both, and random splits will "
        "leak: merge the copies or drop them",
        UserWarning,
        stacklevel=4,
    )


def _fingerprints(bags: Bags) -> list[tuple[bytes, ...]]:
    """The set of instances of each bag, in a form that can be compared at once."""
    X = bags.X
    if bags.is_sparse:
        X = X.copy()
        X.sort_indices()
        X.eliminate_zeros()
        keys = [X.indices[a:b].tobytes() + X.data[a:b].tobytes() for a, b in zip(X.indptr[:-1], X.indptr[1:])]
    else:
        X = np.ascontiguousarray(X + 0.0)  # -0.0 becomes 0.0
        keys = [row.tobytes() for row in X]
    return [tuple(sorted(keys[a:b])) for a, b in zip(bags.offsets[:-1], bags.offsets[1:])]
