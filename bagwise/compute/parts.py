"""Sums over parts of data: here, one part after the other with the next being read, or on a cluster.

A learner whose training is a sum over bags writes a pure function ``step(params, data) -> statistics``, and
`map_reduce` gives the sum over all parts. Parts are added in pairs, pairs of pairs and so on: a tree whose
shape depends on their number alone, so that the result has the same bits wherever and by however many workers
it was made. Runs of 2, 4, 8, ... parts are branches of it: a worker may add up any such run by itself.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, Protocol

from bagwise.compute.aligned import aligned, memory_used_again
from bagwise.compute.journal import current_journal
from bagwise.compute.threads import blas_threads, read_ahead

__all__ = [
    "Engine",
    "Held",
    "Part",
    "Parts",
    "add",
    "map_parts",
    "map_reduce",
    "ordered_sum",
    "steps",
    "watched",
]


SMALL = 2.0**27  # bytes, of one part: what is made from all parts may be kept in memory up to this size

Step = Callable[[Any, Any], Any]
Combine = Callable[[Any, Any], Any]


class Part(Protocol):
    """Something that can be loaded, here or in another process; ``key`` says what it is, for ever."""

    @property
    def key(self) -> str:
        """What the part is, for ever."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def n_bytes(self) -> int:
        """About how much it takes in memory."""

    def load(self) -> Any:
        """The data of the part."""


class Engine(Protocol):
    """What runs the steps of all parts somewhere else."""

    def each(self, step: Step, params: Any, parts: Parts) -> Iterator[Any]:
        """Results of all parts, in order."""

    def total(self, step: Step, params: Any, parts: Parts, combine: Combine) -> Any:
        """Results of all parts put together in the order of `ordered_sum`."""


current_engine: ContextVar[Engine | None] = ContextVar("bagwise_engine", default=None)
_watcher: ContextVar[Callable[[str, int, int], None] | None] = ContextVar("bagwise_watcher", default=None)


class Parts:
    """Data in parts, in order.

    Parameters
    ----------
    items : sequence of Part
        The parts.
    streamed : bool, default=True
        Whether each pass loads them again; otherwise they are loaded once and kept, and stay in this process.
    one_thread : bool, default=True
        Whether matrix products keep to one thread, and arrays are aligned, so that the numbers are those of
        any other way to go over the same parts. Plain data in memory need neither.
    """

    def __init__(self, items: Sequence[Part], *, streamed: bool = True, one_thread: bool = True) -> None:
        self.items, self.streamed, self.one_thread = list(items), streamed, one_thread
        self.before: Parts | None = None  # what streamed parts are made from, by a function each
        self._kept: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self.items)

    @property
    def key(self) -> str:
        """What all parts together are."""
        return hashlib.sha256("".join(part.key for part in self.items).encode()).hexdigest()

    def map(self, function: Callable[..., Any], each: Sequence[Any] | None = None) -> Parts:
        """The same parts after a function; it must be found by name in other processes, or be a partial.

        ``each`` holds something for every part, which the function gets before the part.
        """
        common = _digest(function) if self.streamed else ""
        items = [_Mapped(self, k, function, common) for k in range(len(self))]
        for item, own in zip(items, each or ()):
            item.function = partial(function, own)
            item.content += _digest(own) if self.streamed else ""
        mapped = Parts(items, streamed=self.streamed, one_thread=self.one_thread)
        mapped.before = self if self.streamed else None
        return mapped

    def in_memory(self, n_bytes: float) -> Parts:
        """The same parts, made once and kept without what they were made from.

        Parts that are streamed stay as they are, unless all of them together are at most `SMALL` bytes, as
        ``n_bytes`` says, and no cluster works on them.
        """
        if self.streamed and (n_bytes > SMALL or current_engine.get() is not None):
            return self
        limits = blas_threads(1) if self.one_thread else nullcontext()
        with limits:
            items = [
                _Value(value, part.key, part.name)
                for part, value in zip(
                    self.items, read_ahead(self.load, range(len(self)), int(self.streamed))
                )
            ]
        return Parts(items, streamed=False, one_thread=self.one_thread)

    def load(self, k: int) -> Any:
        """Part ``k``, ready for a step."""
        if k in self._kept:
            return self._kept[k]
        value = self.items[k].load()
        if self.one_thread:
            value = aligned(value)
        if not self.streamed:
            self._kept[k] = value
        return value

    def only(self) -> Any:
        """The only part, of methods that cannot do with several."""
        if len(self) != 1:
            raise ValueError(f"there are {len(self)} parts, expected one")
        return self.load(0)


class _Value(NamedTuple):
    """Something in memory as a part."""

    value: Any
    key: str = "memory"
    name: str = "memory"
    n_bytes: int = 0

    def load(self) -> Any:
        return self.value


class Held(Parts):
    """Something in memory as the only part: steps are called on it at once, in this process.

    Examples
    --------
    >>> Held(3).only(), Held(3).map(str).only()
    (3, '3')
    """

    key, before = "memory", None
    streamed = one_thread = False

    def __init__(self, value: Any) -> None:
        self.value = value

    def __len__(self) -> int:
        return 1

    def map(self, function: Callable[..., Any], each: Sequence[Any] | None = None) -> Parts:
        """The part after a function, which is called now."""
        return Held(function(*(each or ()), self.value))

    def in_memory(self, n_bytes: float) -> Parts:
        """The same: it is made already."""
        return self

    def load(self, k: int) -> Any:
        """The part."""
        return self.value

    def only(self) -> Any:
        """The part."""
        return self.value


class _Mapped:
    """A part after a function."""

    def __init__(self, parts: Parts, k: int, function: Callable[[Any], Any], content: str) -> None:
        self._parts: Parts | None = None if parts.streamed else parts  # where the part may be kept
        self._k = k
        self.part, self.function, self.content = parts.items[k], function, content

    @property
    def key(self) -> str:
        return hashlib.sha256((self.part.key + self.content).encode()).hexdigest()

    @property
    def name(self) -> str:
        return self.part.name

    @property
    def n_bytes(self) -> int:
        return self.part.n_bytes

    def load(self) -> Any:
        return self.function(self.part.load() if self._parts is None else self._parts.load(self._k))


def _digest(value: Any) -> str:
    return hashlib.sha256(pickle.dumps(value)).hexdigest()


# ---------------------------------------------------------------------- going over parts


def map_parts(step: Step, params: Any, parts: Parts) -> Iterator[Any]:
    """``step(params, part)`` of every part, in order; streamed parts are read ahead, or go to the cluster."""
    if isinstance(parts, Held):
        result = step(params, parts.value)
        report_part(step, 1, 1)
        yield result
        return
    engine = current_engine.get()
    if engine is not None and parts.streamed:
        yield from engine.each(step, params, parts)
        return
    n = len(parts)
    if parts.one_thread:
        limits: Any = blas_threads(1)
        with suppress(pickle.PicklingError, AttributeError, TypeError):
            params = aligned(params)  # as workers get them; what cannot be sent (a lambda) stays here anyway
    else:
        limits = nullcontext()
    with limits, memory_used_again() if parts.streamed else nullcontext():
        ahead = 1 if parts.streamed and n > 1 else 0
        for k, result in enumerate(steps(step, params, read_ahead(parts.load, range(n), ahead))):
            report_part(step, k + 1, n)
            yield result


def steps(step: Step, params: Any, loaded: Iterable[Any]) -> Iterator[Any]:
    """``step(params, data)`` of what comes; data are let go of before the next are asked for."""
    for data in loaded:
        result = step(params, data)
        del data
        yield result


def map_reduce(step: Step, params: Any, parts: Parts, combine: Combine | None = None) -> Any:
    """Add up ``step(params, part)`` over all parts.

    Parameters
    ----------
    step : callable
        A pure function of parameters and the data of one part, found by name in other processes. It returns
        numbers, arrays, None, or tuples, lists and dicts of them.
    params : object
        Parameters of the step; the same for all parts.
    parts : Parts
        The data.
    combine : callable, optional
        What puts two statistics together; by default `add`.

    Returns
    -------
    statistics

    Examples
    --------
    >>> class Number:
    ...     def __init__(self, value):
    ...         self.value, self.key, self.name, self.n_bytes = value, str(value), str(value), 8
    ...     def load(self):
    ...         return self.value
    >>> def power(exponent, number):
    ...     return {"sum": float(number**exponent), "count": 1}
    >>> map_reduce(power, 2, Parts([Number(k) for k in range(5)]))
    {'sum': 30.0, 'count': 5}
    """
    if isinstance(parts, Held):
        found = step(params, parts.value)
        report_part(step, 1, 1)
        return found
    combine = add if combine is None else combine
    journal = current_journal() if parts.streamed or parts.one_thread else None
    if journal is not None:
        known = journal.recall(_name(step), params, parts.key)
        if known is not None:
            return known[0]
    engine = current_engine.get()
    if engine is not None and parts.streamed:
        found = engine.total(step, params, parts, combine)
    else:
        found = ordered_sum(map_parts(step, params, parts), combine)
    if journal is not None:
        journal.keep(found)
    return found


def ordered_sum(values: Iterable[Any], combine: Combine | None = None) -> Any:
    """Put values together: neighbours in pairs, then pairs of those, and so on.

    Sums of consecutive runs of 2, 4, 8, ... values (the last may be shorter) put together in this way are the
    sum of all, to the last bit.

    Examples
    --------
    >>> ordered_sum(range(100))
    4950
    >>> ordered_sum("abcde", lambda a, b: f"({a}{b})")
    '(((ab)(cd))e)'
    >>> ordered_sum(["((ab)(cd))", "e"], lambda a, b: f"({a}{b})")
    '(((ab)(cd))e)'
    """
    combine = add if combine is None else combine
    waiting: list[tuple[Any, int]] = []  # sums of ever shorter runs, and how often each was doubled
    for value in values:
        doubled = 0
        while waiting and waiting[-1][1] == doubled:
            value, doubled = combine(waiting.pop()[0], value), doubled + 1
        waiting.append((value, doubled))
    if not waiting:
        raise ValueError("there is no part to add up")
    total, _ = waiting.pop()
    while waiting:
        total = combine(waiting.pop()[0], total)
    return total


def add(a: Any, b: Any) -> Any:
    """The sum of two statistics of one shape.

    Examples
    --------
    >>> import numpy as np
    >>> add((1, {"a": np.ones(2)}, None), (2, {"a": np.ones(2)}, None))
    (3, {'a': array([2., 2.])}, None)
    """
    if a is None and b is None:
        return None
    if isinstance(a, dict):
        if a.keys() != b.keys():
            raise ValueError(f"statistics of parts have other names: {sorted(a)} and {sorted(b)}")
        return {key: add(value, b[key]) for key, value in a.items()}
    if isinstance(a, (tuple, list)):
        if len(a) != len(b):
            raise ValueError(f"statistics of parts have other lengths: {len(a)} and {len(b)}")
        return type(a)(add(x, y) for x, y in zip(a, b))
    return a + b


# ---------------------------------------------------------------------- watching


class watched:
    """Inside the block ``report(step, part, n_parts)`` is called after every part of every pass."""

    def __init__(self, report: Callable[[str, int, int], None]) -> None:
        self.report = report

    def __enter__(self) -> None:
        self._token = _watcher.set(self.report)

    def __exit__(self, *error: Any) -> None:
        _watcher.reset(self._token)


def report_part(step: Callable[..., Any], k: int, n: int) -> None:
    """Tell whoever watches that part ``k`` of ``n`` is done."""
    watch = _watcher.get()
    if watch is not None:
        watch(_name(step), k, n)


def _name(step: Any) -> str:
    inner = getattr(step, "func", step)  # of a partial
    return f"{inner.__module__}.{inner.__qualname__}"
