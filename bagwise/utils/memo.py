"""Results that several fits in a row would each compute anew, kept for as long as a search lasts.

Settings of a search differ in a penalty or two and ask for the same distances and kernels again and again.
Inside `shared_work` functions marked by `remembered` give what they gave before for the same arguments;
outside they are as they always were. Arguments are compared by their contents, so that nobody needs to know
which fold or setting a matrix belongs to.
"""

from __future__ import annotations

import functools
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
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

    def get(self, key: bytes, compute: Callable[[], Any]) -> Any:
        if key in self.kept:
            self.kept.move_to_end(key)
            return self.kept[key][0]
        value = compute()
        size = _freeze(value)
        if size <= self.limit:
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


def remembered(function: Callable[P, T]) -> Callable[P, T]:
    """Mark a function whose result depends on the contents of its arguments alone.

    Arguments are arrays, sparse matrices, numbers, strings and None. What it returns, an array or a tuple of
    arrays and numbers, belongs to all callers inside `shared_work`, and cannot be written to there.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        memory = _memory.get()
        if memory is None:
            return function(*args, **kwargs)
        mark = hashlib.blake2b(f"{function.__module__}.{function.__qualname__}".encode(), digest_size=16)
        for value in (*args, *(part for pair in sorted(kwargs.items()) for part in pair)):
            _add(mark, value)
        return memory.get(mark.digest(), lambda: function(*args, **kwargs))

    return call


def _add(mark: Any, value: Any) -> None:
    """Add an argument to the hash of a call."""
    if sparse.issparse(value):
        mark.update(f"{type(value).__name__}{value.shape}".encode())
        for part in (value.data, value.indices, value.indptr):
            _add(mark, part)
    elif isinstance(value, np.ndarray):
        mark.update(f"{value.dtype}{value.shape}".encode())
        mark.update(np.ascontiguousarray(value).data)
    elif value is None or isinstance(value, str | int | float | np.number):
        mark.update(f"{type(value).__name__}{value!r};".encode())
    else:
        raise TypeError(
            f"a remembered function takes arrays, numbers and strings, not {type(value).__name__}"
        )


def _freeze(value: Any) -> int:
    """Make arrays read-only and tell how many bytes they hold."""
    if isinstance(value, tuple):
        return sum(map(_freeze, value))
    if isinstance(value, np.ndarray):
        value.flags.writeable = False
        return value.nbytes
    return 8
