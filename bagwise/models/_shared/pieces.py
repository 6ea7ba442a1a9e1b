"""Data that come piece by piece: what ``partial_fit`` checks."""

from __future__ import annotations

from typing import Any

import numpy as np

from bagwise.errors import DataError


def check_piece(model: Any, X: Any, y: Any, classes: Any, *, first: bool) -> tuple[Any, np.ndarray]:
    """Bags and labels of a piece, compared with what came first."""
    if not first:
        bags = model._as_bags(X, reset=False)
        Y = model._known_labels(y, bags)
    elif classes is not None and np.ndim(y) == 1:
        bags = model._as_bags(X, reset=True)
        model._target_dtype = "int64"
        model._encode_classes(np.asarray(classes))
        Y = model._known_labels(y, bags)
    else:
        return model._check_training(X, y)
    if len(Y) != len(bags):
        raise DataError(f"inconsistent numbers of samples: {len(bags)} bags, {len(Y)} rows of labels")
    return bags, np.ascontiguousarray(Y)
