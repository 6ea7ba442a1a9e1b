"""Finding every estimator: what the common checks, the docs and the command line go by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from difflib import get_close_matches

from bagwise import models
from bagwise.base import MIMLClassifier, Traits


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
    for trait in traits:
        if trait not in {field.name for field in fields(Traits)}:
            raise ValueError(f"no trait {trait!r}; see bagwise.base.Traits")
    return [
        (name, cls)
        for name in sorted(models.__all__)
        if isinstance(cls := getattr(models, name), type)
        and issubclass(cls, MIMLClassifier)
        and all(getattr(cls.traits, trait) == value for trait, value in traits.items())
    ]


def suggestion(name: str, known: Iterable[str]) -> str:
    """Advice on a name that nobody knows: those that are like it, or all.

    Examples
    --------
    >>> suggestion("MIMLfats", ["MIMLFast", "MIMLGP", "MISVM"])
    'did you mean MIMLFast?'
    >>> suggestion("x", ["MIMLFast", "MIMLGP"])
    'known are MIMLFast, MIMLGP'
    """
    names = {other.lower(): other for other in known}
    wanted = name.lower()
    part = [low for low in names if wanted in low] if len(wanted) > 2 else []
    like = dict.fromkeys([*part, *get_close_matches(wanted, names, cutoff=0.7)])
    if not like:
        return f"known are {', '.join(names.values())}"
    return f"did you mean {' or '.join(names[low] for low in list(like)[:4])}?"


def get_estimator(name: str) -> type[MIMLClassifier]:
    """Find the estimator of this name, whatever the case of its letters."""
    known = {other.lower(): other for other in models.__all__}
    cls = getattr(models, known.get(name.lower(), ""), None)
    if isinstance(cls, type) and issubclass(cls, MIMLClassifier):
        return cls  # without importing all others
    raise ValueError(f"no estimator {name!r}; {suggestion(name, dict(all_estimators()))}")
