"""Finding every estimator: what the common checks, the docs and the command line go by."""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module

from bagwise import models
from bagwise.base import MIMLClassifier


def all_estimators(**traits: object) -> list[tuple[str, type[MIMLClassifier]]]:
    """List the estimators of bagwise by name, each with its class.

    Parameters
    ----------
    **traits
        Keep only estimators with these traits, such as ``sparse=True``; see `bagwise.base.Traits`.

    Examples
    --------
    >>> "MIMLDummy" in dict(all_estimators())
    True
    >>> "SingleInstanceLogisticRegression" in dict(all_estimators(instance_labels=False))
    False
    """
    found = {}
    for module in pkgutil.iter_modules(models.__path__):
        if module.name.startswith("_"):
            continue
        for name, cls in vars(import_module(f"bagwise.models.{module.name}")).items():
            if name.startswith("_") or not inspect.isclass(cls) or not issubclass(cls, MIMLClassifier):
                continue
            if cls.__module__ != f"bagwise.models.{module.name}":
                continue
            for trait in traits:
                if not hasattr(cls.traits, trait):
                    raise ValueError(f"no trait {trait!r}; see bagwise.base.Traits")
            if all(getattr(cls.traits, trait) == value for trait, value in traits.items()):
                found[name] = cls
    return sorted(found.items())


def get_estimator(name: str) -> type[MIMLClassifier]:
    """Find the estimator of this name, whatever the case of its letters."""
    estimators = dict(all_estimators())
    for known, cls in estimators.items():
        if known.lower() == name.lower():
            return cls
    raise ValueError(f"no estimator {name!r}; known are {', '.join(estimators)}")
