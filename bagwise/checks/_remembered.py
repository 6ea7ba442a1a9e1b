"""Fits that checks ask for again and again, made once.

Scikit-learn's checks fit an estimator about a hundred times, and half of these fits are of the same settings,
bags and labels: one table as every kind of sparse matrix, or anew in every check. What is public runs every
time, `fit` with its looks at data and parameters and all that comes after it. What is spared is `_fit`, where
the whole object was in the same state before it and got the same arrays.
"""

from __future__ import annotations

import hashlib
import pickle
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bagwise.base import MIMLClassifier
from bagwise.errors import warn


@contextmanager
def remembered_fits(cls: type[MIMLClassifier]) -> Iterator[None]:
    """Inside the block, `_fit` of this class is made once for equal objects with equal arrays."""
    kept: dict[bytes, tuple[dict[str, bytes], list[Any]]] = {}
    learn, own = cls._fit, "_fit" in vars(cls)

    def remembered(self: Any, *given: Any) -> None:
        try:
            before, key = _values(self), _key(self, given)
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


def _key(model: Any, given: tuple[Any, ...]) -> bytes:
    """Everything that `_fit` can see: the object, the arrays, and whether it may write to them."""
    bags = given[0]
    matrix = bags.X.data if bags.is_sparse else bags.X
    seen = (vars(model), type(matrix), matrix.flags.writeable, bags, given[1:])
    return hashlib.sha256(pickle.dumps(seen)).digest()
