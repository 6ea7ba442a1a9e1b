"""What each parameter of an estimator may be: one table per class, checked in one place before `_fit`.

A class writes ``_parameters = {"alpha": Number(0), "solver": Choice("lbfgs", "em"), ...}`` with one entry per
argument of its constructor. A value is taken if any of the rules of its entry takes it; otherwise the error
says what was expected and what came. Rules that tie two parameters together, or a parameter to the data, stay
in `_fit`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

__all__ = [
    "Anything",
    "Choice",
    "Device",
    "Flag",
    "HasMethod",
    "Number",
    "PerView",
    "Seed",
    "Several",
    "Whole",
    "check_parameters",
]


class Rule:
    """What a value may be; ``takes`` decides, ``str`` describes it in an error."""

    def takes(self, value: Any) -> bool:
        """Whether the value follows the rule."""
        raise NotImplementedError

    def bad_examples(self) -> list[Any]:
        """Values of the right kind that the rule refuses, for the common checks."""
        return []


@dataclass(frozen=True)
class Number(Rule):
    """A finite number of at least ``low`` and at most ``high``; ``above`` and ``below`` exclude the bound.

    Examples
    --------
    >>> share = Number(above=0, high=1)
    >>> str(share), share.takes(0.5), share.takes(0), share.takes(float("nan")), share.takes(True)
    ('a number above 0 and at most 1', True, False, False, False)
    """

    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None

    _kind = "a number"
    _type: Any = Real

    def takes(self, value: Any) -> bool:
        """Whether the value follows the rule."""
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, self._type):
            return False
        if not math.isfinite(value):
            return False
        return (
            (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def bad_examples(self) -> list[Any]:
        """NaN, infinity, a word, and the numbers just outside."""
        outside = [
            None if self.low is None else self.low - 1,
            None if self.high is None else self.high + 1,
            self.above,
            self.below,
        ]
        return [math.nan, math.inf, "seven"] + [bound for bound in outside if bound is not None]

    def __str__(self) -> str:
        limits = [
            "" if self.low is None else f"of at least {self.low:g}",
            "" if self.above is None else f"above {self.above:g}",
            "" if self.high is None else f"at most {self.high:g}",
            "" if self.below is None else f"below {self.below:g}",
        ]
        return " ".join([self._kind, " and ".join(limit for limit in limits if limit)]).strip()


@dataclass(frozen=True)
class Whole(Number):
    """A whole number within limits.

    Examples
    --------
    >>> str(Whole(1)), Whole(1).takes(3), Whole(1).takes(3.0), Whole(1).takes(-3)
    ('a whole number of at least 1', True, False, False)
    """

    _kind = "a whole number"
    _type: Any = Integral

    def bad_examples(self) -> list[Any]:
        """Half a number besides those of `Number`."""
        return [*super().bad_examples(), 1.5]


class Choice(Rule):
    """One of some words (or None, or a flag among them).

    Examples
    --------
    >>> str(Choice("max", None)), Choice("max", None).takes(None), Choice("auto", True).takes(1)
    ("'max' or None", True, False)
    """

    def __init__(self, *allowed: Any) -> None:
        self.allowed = allowed

    def takes(self, value: Any) -> bool:
        """Whether the value follows the rule."""
        return any(type(value) is type(word) and value == word for word in self.allowed)

    def bad_examples(self) -> list[Any]:
        """A word that is in no list."""
        return ["no such word"]

    def __str__(self) -> str:
        words = [repr(word) for word in self.allowed]
        return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


class Several(Rule):
    """A list, tuple or 1-D array of at least one value, each of which follows the same rule.

    Examples
    --------
    >>> widths = Several(Number(above=0))
    >>> str(widths), widths.takes((0.5, 1.0)), widths.takes([]), widths.takes([1.0, float("nan")])
    ('several values, each a number above 0', True, False, False)
    """

    def __init__(self, each: Rule) -> None:
        self.each = each

    def takes(self, value: Any) -> bool:
        """Whether the value follows the rule."""
        if isinstance(value, np.ndarray):
            value = value.tolist()
        if isinstance(value, str) or not isinstance(value, Sequence):
            return False
        return len(value) > 0 and all(self.each.takes(one) for one in value)

    def bad_examples(self) -> list[Any]:
        """Nothing at all, and single values that the rule of each refuses."""
        return [[], *([bad] for bad in self.each.bad_examples())]

    def __str__(self) -> str:
        return f"several values, each {self.each}"


class PerView(Rule):
    """One value for all views, a sequence with an entry per view, or a mapping of view to value.

    Examples
    --------
    >>> weight = PerView(Choice("auto"), Number(above=0))
    >>> str(weight)
    "'auto' or a number above 0, or one of these per view"
    >>> weight.takes(3.0), weight.takes([1.0, "auto"]), weight.takes({"words": 2.0}), weight.takes([0.0])
    (True, True, True, False)
    """

    def __init__(self, *each: Rule) -> None:
        self.each = each

    def takes(self, value: Any) -> bool:
        """Whether the value follows the rule."""
        if isinstance(value, np.ndarray) and value.ndim == 1:
            value = value.tolist()
        if isinstance(value, Mapping):
            values = list(value.values())
        else:
            values = list(value) if isinstance(value, (list, tuple)) else [value]
        return len(values) > 0 and all(any(rule.takes(one) for rule in self.each) for one in values)

    def bad_examples(self) -> list[Any]:
        """What no rule takes, for all views and for one."""
        bad = [one for rule in self.each for one in rule.bad_examples() if not self.takes(one)]
        return [*bad, *([one] for one in bad), *({"view": one} for one in bad)]

    def __str__(self) -> str:
        return f"{' or '.join(str(rule) for rule in self.each)}, or one of these per view"


class Flag(Rule):
    """True or False."""

    def takes(self, value: Any) -> bool:
        """Whether the value follows the rule."""
        return isinstance(value, (bool, np.bool_))

    def bad_examples(self) -> list[Any]:
        """A word and a number."""
        return ["yes", 2]

    def __str__(self) -> str:
        return "True or False"


class Seed(Rule):
    """What ``random_state`` may be."""

    def takes(self, value: Any) -> bool:
        """Whether the value follows the rule."""
        if value is None or isinstance(value, np.random.RandomState):
            return True
        return Whole(0, 2**32 - 1).takes(value)

    def bad_examples(self) -> list[Any]:
        """What NumPy takes for no seed."""
        return [-1, 1.5, "seven"]

    def __str__(self) -> str:
        return "None, a whole number from 0 to 2**32 - 1 or a RandomState"


class Device(Rule):
    """Where torch may work.

    Examples
    --------
    >>> Device().takes("cuda:1"), Device().takes("gpu")
    (True, False)
    """

    def takes(self, value: Any) -> bool:
        """Whether the value follows the rule."""
        return isinstance(value, str) and re.fullmatch(r"auto|cpu|cuda(:\d+)?", value) is not None

    def bad_examples(self) -> list[Any]:
        """Words that name no device."""
        return ["gpu", "cuda:", None]

    def __str__(self) -> str:
        return "'auto', 'cpu', 'cuda' or 'cuda:<number>'"


class HasMethod(Rule):
    """An object with certain methods, such as an estimator."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def takes(self, value: Any) -> bool:
        """Whether the value follows the rule."""
        return all(hasattr(value, name) for name in self.names) and not isinstance(value, type)

    def bad_examples(self) -> list[Any]:
        """A word is no estimator."""
        return ["an estimator"]

    def __str__(self) -> str:
        return f"an object with {' and '.join(self.names)}"


class Anything(Rule):
    """Looked at by the estimator itself; say in words what it should be.

    Examples
    --------
    >>> str(Anything("a mapping from views to settings"))
    'a mapping from views to settings'
    """

    def __init__(self, description: str) -> None:
        self.description = description

    def takes(self, value: Any) -> bool:
        """Whether the value follows the rule."""
        return True

    def __str__(self) -> str:
        return self.description


JOBS = (Choice(None), Whole(high=-1), Whole(1))  # what n_jobs may be: 0 has no meaning

Rules = Mapping[str, Rule | Sequence[Rule]]


def check_parameters(estimator: Any, table: Rules) -> None:
    """Refuse the first parameter whose value none of its rules takes.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> check_parameters(Ridge(alpha=-1.0), {"alpha": Number(0)})
    Traceback (most recent call last):
    ValueError: alpha of Ridge must be a number of at least 0, got -1.0
    """
    for name, rules in table.items():
        value = getattr(estimator, name)
        options = (rules,) if isinstance(rules, Rule) else rules
        if not any(rule.takes(value) for rule in options):
            expected = ", or ".join(str(rule) for rule in options)
            raise ValueError(f"{name} of {type(estimator).__name__} must be {expected}, got {value!r}")


def rules_of(entry: Rule | Sequence[Rule]) -> tuple[Rule, ...]:
    """An entry of a table as a tuple of rules."""
    return (entry,) if isinstance(entry, Rule) else tuple(entry)
