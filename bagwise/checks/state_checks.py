"""The estimator as an object: parameters, fitted state, copies."""

from __future__ import annotations

import inspect
import math
import pickle
from collections.abc import Iterator
from typing import Any

from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from bagwise.base import MIMLClassifier
from bagwise.base.parameters import Number, rules_of
from bagwise.checks.sample import fitted, sample_bags

# what may be called before fit
_BEFORE_FIT = ("fit", "get_", "set_", "partial_fit")


def check_bags_parameters(estimator: MIMLClassifier) -> None:
    """Every parameter refuses what it cannot be, before learning, in one line that names it."""
    bags, Y = sample_bags(n_bags=12)
    for name, wrong in _bad_values(estimator):
        model = clone(estimator)
        setattr(model, name, wrong)  # set_params would look into nested estimators
        try:
            model.fit(bags, Y)
        except (ValueError, TypeError) as error:
            message = str(error)
            assert name in message and "\n" not in message, f"{name}={wrong!r}: the error says {message!r}"
        else:
            raise AssertionError(f"{name}={wrong!r} is taken")


def _bad_values(estimator: MIMLClassifier) -> Iterator[tuple[str, Any]]:
    """Values next to what the rules of each parameter take, and NaN, infinity and -1 where numbers are."""
    for name, entry in estimator._parameters.items():
        rules = rules_of(entry)
        wrong = [value for rule in rules for value in rule.bad_examples()]
        if any(isinstance(rule, Number) for rule in rules):
            wrong += [math.nan, math.inf, -math.inf, -1, -0.5]
        for value in wrong:
            if not any(rule.takes(value) for rule in rules):
                yield name, value


def check_bags_not_fitted(estimator: MIMLClassifier) -> None:
    """Every public method that needs a fit says so before one."""
    bags, Y = sample_bags(n_bags=5)
    for name, method in _public_methods(estimator):
        needed = [
            Y if parameter.name in ("y", "Y") else bags
            for parameter in inspect.signature(method).parameters.values()
            if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        ]
        try:
            method(*needed)
        except NotFittedError:
            continue
        except Exception as error:
            raise AssertionError(f"{name} before fit raises {error!r}, not NotFittedError") from error
        raise AssertionError(f"{name} answers before fit")


def _public_methods(estimator: MIMLClassifier) -> Iterator[tuple[str, Any]]:
    for name in dir(type(estimator)):
        static = inspect.getattr_static(type(estimator), name)
        if name.startswith(("_", *_BEFORE_FIT)) or isinstance(static, (classmethod, staticmethod, property)):
            continue
        method = getattr(estimator, name, None)  # None: not available with these settings
        if inspect.ismethod(method):
            yield name, method


def check_bags_pickle_and_clone(estimator: MIMLClassifier) -> None:
    """A pickled model predicts the same; a clone knows nothing of the fit."""
    model, bags, _ = fitted(estimator)
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.predict(bags), model.predict(bags))
    assert not hasattr(clone(model), "classes_")
