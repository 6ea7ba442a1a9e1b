"""MIMLfast's view of instances: ``z = ((x - mean) * factor, constant)``, of a fixed mean length.

The model is bilinear with a fixed margin and fixed caps, so the length of instances is a setting of its own;
centre and spread of features are those of `bagwise.compute.scaling`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from bagwise.compute.scaling import is_text, learn_scaling

__all__ = ["Scale", "learn_scale", "matching_form"]


class Scale(NamedTuple):
    """Affine change of features; ``text_like`` tells that zeros stay zeros (no centring)."""

    mean: np.ndarray
    factor: np.ndarray
    constant: float
    text_like: bool


def learn_scale(X: Any, scaling: str, norm: float) -> Scale:
    """Estimate the scale; ``norm`` is the root mean square length that instances shall have.

    Examples
    --------
    >>> scale = learn_scale(np.array([[1.0, 0.1], [5.0, 0.1]]), "auto", 3.0)
    >>> float(scale.mean[0]), scale.factor  # a constant feature says nothing
    (3.0, array([1.5, 0. ]))
    """
    n, d = X.shape
    if scaling == "none":
        return Scale(np.zeros(d, X.dtype), np.ones(d, X.dtype), 0.0, sparse.issparse(X))
    text_like = is_text(X)
    X = _in_form(X, text_like)
    learned = learn_scaling(X, "standard")
    # mean square of the length of an instance that is scaled so: of text, one for each value that is there
    squares = X.count_nonzero() / n if text_like else np.count_nonzero(learned.factor)
    factor = learned.factor * (norm / np.sqrt(squares) if squares > 0 else 0.0)
    return Scale(learned.shift.astype(X.dtype), factor.astype(X.dtype), 1.0, text_like)


def matching_form(X: Any, scale: Scale) -> Any:
    """Dense or CSR as the scale asks, so that both forms of the same data are learned alike."""
    return _in_form(X, scale.text_like)


def _in_form(X: Any, as_csr: bool) -> Any:
    if as_csr:
        return X if sparse.issparse(X) else sparse.csr_array(X)
    return X.toarray() if sparse.issparse(X) else X
