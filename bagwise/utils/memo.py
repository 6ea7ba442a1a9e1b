"""Results that several fits in a row would each compute anew, kept for as long as a search lasts.

Settings of a search differ in a penalty or two and ask for the same distances and kernels again and again.
Inside `shared_work` functions marked by `remembered` give what they gave before for the same arguments;
outside they are as they always were. Arguments are compared by their contents, so that nobody needs to know
which fold or setting a matrix belongs to; contents are looked at once for results kept here, which are
read-only, and for arrays that `unchanging` names.
"""

from __future__ import annotations

import functools
import hashlib
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from typing import Any, ParamSpec, TypeVar

import numpy as np
from scipy import sparse

P = ParamSpec("P")
T = TypeVar("T")

_LIMIT = 1 << 30  # bytes kept; the longest unused go first


class _Memory:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self.kept: OrderedDict[bytes, tuple[Any, int]] = OrderedDict()
        self.marks: dict[int, tuple[weakref.ref, bytes]] = {}  # of arrays that do not change, by identity

    def mark(self, array: np.ndarray) -> bytes:
        """Hash of an array's contents."""
        array_then, mark = self.marks.get(id(array), (lambda: None, b""))
        return mark if array_then() is array else _mark_of(array)

    def fix(self, value: Any) -> None:
        """Remember the hashes of arrays that do not change."""
        for array in _arrays(value):
            self.marks[id(array)] = weakref.ref(array), _mark_of(array)

    def get(self, key: bytes, compute: Callable[[], Any]) -> Any:
        if key in self.kept:
            self.kept.move_to_end(key)
            return self.kept[key][0]
        value = compute()
        size = 8
        for array in _arrays(value):
            array.flags.writeable = False
            size += array.nbytes
        if size <= self.limit:
            self.fix(value)
            self.kept[key] = value, size
            self.size += size
            while self.size > self.limit:
                self.size -= self.kept.popitem(last=False)[1][1]
        return value


_memory: ContextVar[_Memory | None] = ContextVar("memory", default=None)


@contextmanager
def shared_work(limit: int = _LIMIT) -> Iterator[None]:
    """Keep results of `remembered` functions inside the block, up to so many bytes.

    An inner block uses the memory of the outer one.

    Examples
    --------
    >>> calls = []
    >>> @remembered
    ... def double(x):
    ...     calls.append(len(x))
    ...     return 2 * x
    >>> with shared_work():
    ...     first, again = double(np.arange(3)), double(np.arange(3))
    >>> len(calls), first is again, first.flags.writeable
    (1, True, False)
    """
    if _memory.get() is not None:
        yield
        return
    token = _memory.set(_Memory(limit))
    try:
        yield
    finally:
        _memory.reset(token)


def unchanging(*values: Any) -> None:
    """Say that nobody writes to these arrays inside `shared_work`: contents are hashed now, not each time.

    Outside it says nothing.
    """
    memory = _memory.get()
    if memory is not None:
        memory.fix(values)


def remembered(function: Callable[P, T]) -> Callable[P, T]:
    """Mark a function whose result depends on the contents of its arguments alone.

    Arguments are arrays, sparse matrices, numbers, strings, None, and dataclasses of these. What it returns,
    the same or a tuple, belongs to all callers inside `shared_work`, and cannot be written to there.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        memory = _memory.get()
        if memory is None:
            return function(*args, **kwargs)
        mark = hashlib.blake2b(f"{function.__module__}.{function.__qualname__}".encode(), digest_size=16)
        for value in (*args, *(part for pair in sorted(kwargs.items()) for part in pair)):
            _add(mark, value, memory)
        return memory.get(mark.digest(), lambda: function(*args, **kwargs))

    return call


def _add(mark: Any, value: Any, memory: _Memory) -> None:
    """Add an argument to the hash of a call."""
    if sparse.issparse(value) or is_dataclass(value):
        mark.update(f"{type(value).__name__}{getattr(value, 'shape', '')}".encode())
        for part in _parts(value):
            _add(mark, part, memory)
    elif isinstance(value, np.ndarray):
        mark.update(memory.mark(value))
    elif value is None or isinstance(value, str | int | float | np.number):
        mark.update(f"{type(value).__name__}{value!r};".encode())
    else:
        raise TypeError(
            f"a remembered function takes arrays, numbers and strings, not {type(value).__name__}"
        )


def _mark_of(array: np.ndarray) -> bytes:
    mark = hashlib.blake2b(f"{array.dtype}{array.shape}".encode(), digest_size=16)
    mark.update(np.ascontiguousarray(array).data)
    return mark.digest()


def _parts(value: Any) -> Iterator[Any]:
    """What a sparse matrix, a dataclass or a tuple is made of."""
    if sparse.issparse(value):
        yield from (value.data, value.indices, value.indptr)
    elif is_dataclass(value):
        yield from (getattr(value, part.name) for part in fields(value))
    elif isinstance(value, tuple):
        yield from value


def _arrays(value: Any) -> Iterator[np.ndarray]:
    """All arrays inside."""
    if isinstance(value, np.ndarray):
        yield value
    for part in _parts(value):
        yield from _arrays(part)
