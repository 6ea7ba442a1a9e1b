"""Small bags for the checks, and what the checks share."""

from __future__ import annotations

import hashlib
import pickle
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone

from bagwise.bags import Bags
from bagwise.base import MIMLClassifier
from bagwise.compute.threads import forced_threads
from bagwise.errors import warn


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


# ----------------------------------------------------------------------
# Fits that checks ask for again and again, made once
#
# Scikit-learn's checks fit an estimator about a hundred times, and half of these fits are of the same
# settings, bags and labels: one table as every kind of sparse matrix, or anew in every check. What is
# public runs every time, `fit` with its looks at data and parameters and all that comes after it. What is
# spared is `_fit`, where the whole object was in the same state before it and got the same arrays.


@contextmanager
def remembered_fits(cls: type[MIMLClassifier]) -> Iterator[None]:
    """Inside the block, `_fit` of this class is made once for equal objects with equal arrays."""
    kept: dict[bytes, tuple[dict[str, bytes], list[Any]]] = {}
    learn, own = cls._fit, "_fit" in vars(cls)

    def remembered(self: Any, *given: Any) -> None:
        try:
            # everything that `_fit` can see: the object, the arrays, and whether it may write to them
            matrix = given[0].X.data if given[0].is_sparse else given[0].X
            seen = (vars(self), type(matrix), matrix.flags.writeable, *given)
            before, key = _values(self), hashlib.sha256(pickle.dumps(seen)).digest()
        except (pickle.PicklingError, AttributeError, TypeError):  # a parameter that is a nameless function
            return learn(self, *given)
        if key in kept:
            after, said = kept[key]
            for name in before.keys() - after.keys():
                delattr(self, name)
            for name, value in after.items():
                if before.get(name) != value:  # what stays is not replaced by a copy
                    setattr(self, name, pickle.loads(value))
        else:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                learn(self, *given)
            kept[key] = _values(self), said
        for warning in said:
            warn(warning.message)

    cls._fit = remembered  # type: ignore
    try:
        yield
    finally:
        if own:
            cls._fit = learn  # type: ignore
        else:
            del cls._fit


def _values(model: Any) -> dict[str, bytes]:
    return {name: pickle.dumps(value) for name, value in vars(model).items()}
