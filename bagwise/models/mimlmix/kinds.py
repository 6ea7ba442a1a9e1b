"""What the numbers of a view are, and what is fixed about a view before training.

- Counts of words, or weights of words such as tf-idf: not negative, and mostly zeros. They get multinomials
  and stay sparse. Whole numbers count as such from three quarters of zeros on, others where so few are not
  zero that they are taken for text everywhere in this library, see `scaling.is_text`.
- Anything else is continuous and gets Gaussians.

Both rules look at the numbers alone: dense and CSR instances are taken for the same. A view that says
nothing, because it has no training instance or all of them are alike, gets no weight beside one that does:
the likelihood of a constant is high, which is no merit of the labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse

from bagwise.bags import Bags
from bagwise.errors import DataError, quoted
from bagwise.models._shared.scaling import is_text, learn_scaling
from bagwise.models.mimlmix.settings import by_view

_ZEROS_OF_COUNTS = 0.75  # share of zeros from which whole numbers are taken for counts of words
_MANY = 256  # features in use from which a sparse view is not made dense unless it is said to be Gaussian
_MOST_BYTES = 2**31  # of the covariances of one view; training holds a few such tables


def view_settings(model: Any, views: Mapping[str, Bags], n_components: int) -> dict[str, dict[str, Any]]:
    """Kind of every view and what is fixed about it before training."""
    result = {}
    named = by_view("view_kinds", model.view_kinds, list(views))
    for name, bags in views.items():
        kind = model.view_kinds if named is None else named[name]
        if kind == "auto":
            kind = kind_of(name, bags)
        if kind == "counts":
            result[name] = _count_settings(name, bags, model.background)
        else:
            result[name] = _gaussian_settings(name, bags, n_components, model.covariance, model.width)
    return result


def kind_of(name: str, bags: Bags) -> str:
    """What a view is taken for.

    Examples
    --------
    >>> kind_of("a", Bags([[0.0, 0.0, 2.0, 0.0]], [0, 1])), kind_of("b", Bags([[0.5, 0.0]], [0, 1]))
    ('counts', 'gaussian')
    >>> kind_of("tf-idf", Bags(0.3 * np.eye(20), [0, 20]))
    'counts'
    """
    values = bags.X.data if bags.is_sparse else bags.X
    size = bags.n_instances * bags.n_features
    if size == 0:
        return "counts" if bags.is_sparse else "gaussian"
    sparse_enough = np.count_nonzero(values) <= (1.0 - _ZEROS_OF_COUNTS) * size
    if not sparse_enough:
        return "gaussian"
    text = is_text(bags.X)
    if (values < 0).any():
        if text and bags.is_sparse and len(np.unique(bags.X.indices)) > _MANY:
            raise DataError(
                f"view {name!r} is sparse and has negative numbers ({_first_negative(bags)}): counts and "
                "weights of words are not negative. Take weights that are not (tf-idf), reduce the features "
                f"(TruncatedSVD gives a dense view), or say view_kinds={{{name!r}: 'gaussian'}}"
            )
        return "gaussian"
    return "counts" if text or (values == np.floor(values)).all() else "gaussian"


def _first_negative(bags: Bags) -> str:
    at = int(np.flatnonzero(bags.X.data < 0)[0]) if bags.is_sparse else -1
    if bags.is_sparse:
        row, value = int(np.searchsorted(bags.X.indptr, at, side="right")) - 1, bags.X.data[at]
    else:
        row = int(np.flatnonzero((bags.X < 0).any(axis=1))[0])
        value = bags.X[row].min()
    bag = bags.bag_ids[np.searchsorted(bags.offsets, row, side="right") - 1]
    return f"{value:g} in bag {quoted(bag)}"


def _count_settings(name: str, bags: Bags, background: str) -> dict[str, Any]:
    values = bags.X.data if bags.is_sparse else bags.X
    if (values < 0).any():
        raise DataError(
            f"view {name!r} has negative numbers ({_first_negative(bags)}); a view of counts cannot, "
            "see view_kinds"
        )
    sums = np.asarray(bags.X.sum(axis=0), dtype=np.float64).ravel()
    counts = 1.0 + (sums if background == "counts" else np.zeros(len(sums)))  # no word is impossible
    informative = not _proportional(bags.X, sums)
    return {"kind": "counts", "background": counts / counts.sum(), "informative": informative}


def _proportional(X: Any, sums: np.ndarray) -> bool:
    """Whether all rows with any counts have the same shares of words, so that no label can differ.

    Examples
    --------
    >>> X = np.array([[1.0, 2.0], [2.0, 4.0], [0.0, 0.0]])
    >>> _proportional(X, X.sum(axis=0)), _proportional(np.eye(2), np.ones(2))
    (True, False)
    """
    X = X if sparse.issparse(X) else sparse.csr_array(X)
    lengths = np.asarray(X.sum(axis=1), dtype=np.float64).ravel()
    rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    expected = lengths[rows] * (sums / max(sums.sum(), 1e-300))[X.indices]
    return bool((np.abs(X.data - expected) <= 1e-9 * lengths[rows]).all())


def _check_size(name: str, n_features: int, n_components: int, covariance: str) -> None:
    size = 8 * n_components * n_features**2
    if covariance != "diag" and size > _MOST_BYTES:
        raise DataError(
            f"view {name!r}: covariances of {n_features} features for each of {n_components} labels take "
            f"{size / 2**30:.0f} GiB; use covariance='diag', fewer features (PCA), or "
            f"view_kinds={{{name!r}: 'counts'}} for counts or weights of words"
        )


def _gaussian_settings(
    name: str, bags: Bags, n_components: int, covariance: str, width: float
) -> dict[str, Any]:
    """Location and scale of every feature, and the covariance (or variances) of the view once standardised.

    A constant feature has the scale 0 and takes no part: its density would favour the labels with most
    instances.
    """
    D = bags.n_features
    location, factor = np.zeros(D), np.zeros(D)
    X = bags.X.toarray() if bags.is_sparse else bags.X
    if len(X):
        scaling = learn_scaling(X, "standard", text=False)
        location, factor = scaling.shift, scaling.factor
    kept = factor > 0
    _check_size(name, int(kept.sum()), n_components, covariance)
    scale = np.divide(1.0, factor, out=np.zeros(D), where=kept)
    Z = (X[:, kept].astype(np.float64) - location[kept]) / scale[kept]
    if covariance == "diag":
        total = np.square(Z).sum(axis=0) / max(len(Z), 1) + width
    else:
        total = Z.T @ Z / max(len(Z), 1) + width * np.eye(Z.shape[1])
    return {
        "kind": "gaussian",
        "location": location,
        "scale": scale,
        "total": total,
        "covariance": covariance,
        "width": float(width),
        "informative": bool(kept.any()),
    }
