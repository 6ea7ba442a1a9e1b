"""Small bags for the checks, and what the checks share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone

from bagwise.bags import Bags
from bagwise.base import MIMLClassifier
from bagwise.compute.threads import forced_threads


def sample_bags(n_bags: int = 40, n_labels: int = 3, seed: int = 0) -> tuple[Bags, np.ndarray]:
    """Small bags whose labels are the union of well-separated instance classes, kept as a fact."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, n_bags)
    z = rng.integers(0, n_labels, sizes.sum())
    X = 3.0 * np.eye(n_labels, n_labels + 2)[z] + rng.normal(scale=0.5, size=(len(z), n_labels + 2))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    bags = Bags(X, offsets, instance_info={"label": z})
    Y = np.zeros((n_bags, n_labels), dtype=np.int64)
    Y[bags.index, z] = 1
    return bags, Y


def thin_bags(n_empty_columns: int = 0) -> tuple[Bags, Bags, np.ndarray]:
    """The sample with small values set to zero, dense and as CSR; with many empty columns it is like text."""
    bags, Y = sample_bags()
    dense = np.where(np.abs(bags.X) > 0.3, bags.X, 0.0)
    dense = np.concatenate([dense, np.zeros((len(dense), n_empty_columns))], axis=1)
    return _with_X(bags, dense), _with_X(bags, sparse.csr_array(dense)), Y


def _with_X(bags: Bags, X: Any) -> Bags:
    return Bags(X, bags.offsets, instance_info=bags.instance_info)


_kept: dict[tuple[Any, str], tuple[MIMLClassifier, Bags, np.ndarray]] = {}
_MOST_KEPT = 200  # models of 40 bags; two of every class


def fitted(estimator: MIMLClassifier) -> tuple[MIMLClassifier, Bags, np.ndarray]:
    """The estimator fitted to the sample by one thread, and the sample. Checks that only look share a fit."""
    settings = {name: repr(value) for name, value in estimator.get_params().items()}
    key = (type(estimator), str(sorted(settings.items())))
    if key not in _kept:
        bags, Y = sample_bags()
        with forced_threads(1):
            model = clone(estimator).fit(bags, Y)
        if len(_kept) == _MOST_KEPT:
            del _kept[next(iter(_kept))]
        _kept[key] = model, bags, Y
    return _kept[key]


def assert_refuses(call: Callable[[], Any], word: str) -> None:
    """Assert that a call raises ValueError or TypeError with a certain word in its message."""
    try:
        call()
    except (ValueError, TypeError) as error:
        assert word in str(error), f"the error does not mention {word!r}: {error}"
    else:
        raise AssertionError(f"bad input was taken without an error (expected one that mentions {word!r})")
