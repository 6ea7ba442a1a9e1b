"""Data that come piece by piece: what ``partial_fit`` checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bagwise.base._labels import UNKNOWN_LABEL
from bagwise.errors import DataError


def check_piece(model: Any, X: Any, y: Any, classes: Any, *, first: bool) -> tuple[Any, np.ndarray]:
    """Bags and labels of a piece, compared with what came first."""
    if not first:
        bags = model._as_bags(X, reset=False)
        y, unknown = _without_unknown(model, y)
        Y = model._known_labels(y, bags)
        Y = Y if unknown is None else np.where(unknown, np.int8(UNKNOWN_LABEL), Y)
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


def _without_unknown(model: Any, y: Any) -> tuple[Any, np.ndarray | None]:
    """A matrix of labels with 0 for those that are not known (NaN), and where these are."""
    if not (
        model.traits.missing_labels and isinstance(y, np.ndarray) and y.dtype.kind == "f" and y.ndim == 2
    ):
        return y, None
    unknown = np.isnan(y)
    return np.where(unknown, 0.0, y), unknown


def pieces_of_shards(model: Any, shards: Any, y: Any) -> Iterator[tuple[Any, np.ndarray]]:
    """Bags and labels of parts as later pieces, the next one read while the last is worked on."""
    name, path = type(model).__name__, shards.place.folder
    if y is not None:
        raise DataError("shards carry their labels inside; leave out y: partial_fit(shards)")
    if not shards.has_labels:
        raise DataError("these shards hold no labels to learn from", path=path)
    n_labels = 1 if model._target == "binary" else len(model.classes_)
    names = getattr(model, "label_names_", None)
    if len(shards.label_names) != n_labels or (names is not None and tuple(names) != shards.label_names):
        some = ", ".join(shards.label_names[:5])
        raise DataError(
            f"{name} goes on with the {n_labels} labels that it began with, in their order; these shards "
            f"have {len(shards.label_names)}: {some}{', ...' if len(shards.label_names) > 5 else ''}",
            path=path,
        )
    for part in shards:
        yield model._as_bags(part.bags, reset=False), np.ascontiguousarray(part.Y)
