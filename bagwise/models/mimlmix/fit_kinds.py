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
from bagwise.compute.parts import Parts, map_parts, map_reduce
from bagwise.compute.scaling import TEXT_SHARE, scaling_of
from bagwise.errors import DataError, quoted
from bagwise.models.mimlmix.tune import by_view

_ZEROS_OF_COUNTS = 0.75  # share of zeros from which whole numbers are taken for counts of words
_MANY = 256  # features in use from which a sparse view is not made dense unless it is said to be Gaussian
_MOST_BYTES = 2**31  # of the covariances of one view; training holds a few such tables


def view_settings(model: Any, views: Mapping[str, Parts], n_components: int) -> dict[str, dict[str, Any]]:
    """Kind of every view and what is fixed about it before training; views are parts of Bags."""
    result = {}
    named = by_view("view_kinds", model.view_kinds, list(views))
    for name, parts in views.items():
        facts = map_reduce(_facts, None, parts, _joined)
        kind = model.view_kinds if named is None else named[name]
        if kind == "auto":
            kind = kind_of(name, parts, facts)
        if kind == "counts":
            result[name] = _count_settings(name, parts, facts, model.background)
        else:
            result[name] = _gaussian_settings(name, parts, facts, n_components, model.covariance, model.width)
        result[name]["empty"] = not facts["rows"]
    return result


def _facts(_: None, bags: Bags) -> dict[str, Any]:
    values = bags.X.data if bags.is_sparse else bags.X
    return {
        "rows": bags.n_instances,
        "filled": int(np.count_nonzero(values)),
        "negative": int((values < 0).sum()),
        "broken": int((values != np.floor(values)).sum()),  # not whole
        "features": bags.n_features,
        "sparse": bags.is_sparse,
        "dtype": bags.dtype.str,
    }


def _joined(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    return a | {name: a[name] + b[name] for name in ("rows", "filled", "negative", "broken")}


def kind_of(name: str, parts: Parts, facts: dict[str, Any] | None = None) -> str:
    """What a view is taken for."""
    facts = map_reduce(_facts, None, parts, _joined) if facts is None else facts
    size = facts["rows"] * facts["features"]
    if size == 0:
        return "counts" if facts["sparse"] else "gaussian"
    if facts["filled"] > (1.0 - _ZEROS_OF_COUNTS) * size:
        return "gaussian"
    text = facts["filled"] < TEXT_SHARE * size
    if facts["negative"]:
        if text and facts["sparse"] and map_reduce(_used, None, parts, np.logical_or).sum() > _MANY:
            raise DataError(
                f"view {name!r} is sparse and has negative numbers ({_first_negative(parts)}): counts and "
                "weights of words are not negative. Take weights that are not (tf-idf), reduce the features "
                f"(TruncatedSVD gives a dense view), or say view_kinds={{{name!r}: 'gaussian'}}"
            )
        return "gaussian"
    return "counts" if text or not facts["broken"] else "gaussian"


def _used(_: None, bags: Bags) -> np.ndarray:
    """Which features any instance has, of sparse bags."""
    return np.bincount(bags.X.indices, minlength=bags.n_features) > 0


def _first_negative(parts: Parts) -> str:
    return next(found for found in map_parts(_negative_number, None, parts) if found)


def _negative_number(_: None, bags: Bags) -> str:
    if not _facts(None, bags)["negative"]:
        return ""
    at = int(np.flatnonzero(bags.X.data < 0)[0]) if bags.is_sparse else -1
    if bags.is_sparse:
        row, value = int(np.searchsorted(bags.X.indptr, at, side="right")) - 1, bags.X.data[at]
    else:
        row = int(np.flatnonzero((bags.X < 0).any(axis=1))[0])
        value = bags.X[row].min()
    bag = bags.bag_ids[np.searchsorted(bags.offsets, row, side="right") - 1]
    return f"{value:g} in bag {quoted(bag)}"


def _count_settings(name: str, parts: Parts, facts: dict[str, Any], background: str) -> dict[str, Any]:
    if facts["negative"]:
        raise DataError(
            f"view {name!r} has negative numbers ({_first_negative(parts)}); a view of counts cannot, "
            "see view_kinds"
        )
    sums = map_reduce(_sums, None, parts)
    counts = 1.0 + (sums if background == "counts" else np.zeros(len(sums)))  # no word is impossible
    informative = not map_reduce(_proportional, sums, parts, np.logical_and)
    return {"kind": "counts", "background": counts / counts.sum(), "informative": informative}


def _sums(_: None, bags: Bags) -> np.ndarray:
    return np.asarray(bags.X.sum(axis=0), dtype=np.float64).ravel()


def _proportional(sums: np.ndarray, bags: Bags) -> bool:
    """Whether all rows with any counts have the same shares of words, so that no label can differ."""
    X = bags.X if bags.is_sparse else sparse.csr_array(bags.X)
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
    name: str, parts: Parts, facts: dict[str, Any], n_components: int, covariance: str, width: float
) -> dict[str, Any]:
    """Location and scale of every feature, and the covariance (or variances) of the view once standardised.

    A constant feature has the scale 0 and takes no part: its density would favour the labels with most
    instances.
    """
    D, n = facts["features"], facts["rows"]
    location, factor = np.zeros(D), np.zeros(D)
    if n:
        scaling = scaling_of(parts.map(_dense), "standard", D, np.dtype(facts["dtype"]), text=False)
        location, factor = scaling.shift, scaling.factor
    kept = factor > 0
    _check_size(name, int(kept.sum()), n_components, covariance)
    scale = np.divide(1.0, factor, out=np.zeros(D), where=kept)
    second = map_reduce(_second_moments, (location, scale, covariance == "diag"), parts)
    prior = width if covariance == "diag" else width * np.eye(int(kept.sum()))
    return {
        "kind": "gaussian",
        "location": location,
        "scale": scale,
        "total": second / max(n, 1) + prior,
        "covariance": covariance,
        "width": float(width),
        "informative": bool(kept.any()),
    }


def _dense(bags: Bags) -> tuple[np.ndarray, None]:
    return (bags.X.toarray() if bags.is_sparse else bags.X), None


def _second_moments(params: Any, bags: Bags) -> np.ndarray:
    """Sums of squares, or of products, of the features that vary, once standardised."""
    location, scale, diagonal = params
    kept = scale > 0
    Z = (_dense(bags)[0][:, kept].astype(np.float64) - location[kept]) / scale[kept]
    return np.square(Z).sum(axis=0) if diagonal else Z.T @ Z
