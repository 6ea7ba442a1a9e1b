"""Checks of what the measures are given; each error names what was expected and where it was not met."""

from __future__ import annotations

import numpy as np
from scipy.sparse import issparse

from bagwise.errors import DataError


def as_label_sets(Y, name="Y", ndim=2):
    """Return ``Y`` as a bool array, or complain."""
    Y = Y.toarray() if issparse(Y) else np.asarray(Y)
    if Y.ndim != ndim:
        shape = "(n_bags, n_labels)" if ndim == 2 else "(n_bags,)"
        raise DataError(f"expected {name} of shape {shape}, received shape {Y.shape}")
    if ndim == 2 and Y.shape[1] == 0:
        raise DataError(f"expected at least one label, received {name} of shape {Y.shape}")
    if Y.dtype == np.bool_:
        return Y
    if Y.dtype.kind not in "iuf":
        raise DataError(f"expected {name} to hold 0 and 1, received values of type {Y.dtype}")
    sets = Y.astype(np.bool_)
    wrong = sets != Y
    if wrong.any():
        place = np.unravel_index(np.argmax(wrong), Y.shape)
        raise DataError(f"expected {name} to hold 0 and 1 only, found {Y[place]} in {_where(place)}")
    return sets


def as_scores(S, shape, name="S"):
    """Return ``S`` as float32 or float64 of the given shape and free of NaN, or complain."""
    S = np.asarray(S)
    if S.dtype.kind not in "biuf":
        raise DataError(f"expected {name} to hold numbers, received values of type {S.dtype}")
    S = np.ascontiguousarray(S, dtype=np.float32 if S.dtype == np.float32 else np.float64)
    same_shape(S, shape, name)
    # The minimum of anything with a NaN is NaN, and it takes no second array to find out.
    if S.size and np.isnan(S.min()):
        place = np.unravel_index(np.argmax(np.isnan(S)), S.shape)
        raise DataError(f"expected {name} without NaN, found one in {_where(place)}; score every label")
    return S


def same_shape(A, shape, name, other="Y"):
    """Complain unless ``A`` has the shape of the other array."""
    if A.shape != tuple(shape):
        raise DataError(f"expected {name} of the shape of {other}, {tuple(shape)}; received shape {A.shape}")


def one_of(value, choices, name):
    """Complain unless ``value`` is one of the choices."""
    if value not in choices:
        raise DataError(f"expected {name} to be one of {', '.join(map(repr, choices))}; received {value!r}")


def _where(place):
    return " of ".join(
        [f"label column {place[1]}", f"bag row {place[0]}"] if len(place) == 2 else [f"row {place[0]}"]
    )
