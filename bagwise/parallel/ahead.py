"""The next thing is made in a thread of its own while the last is worked on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

__all__ = ["read_ahead"]


def read_ahead(
    make: Callable[[Any], Any],
    items: Iterable[Any],
    ahead: int = 1,
    pool: ThreadPoolExecutor | None = None,
) -> Iterator[Any]:
    """Yield ``make(item)`` of every item in order, ``ahead`` of them being made meanwhile.

    Parameters
    ----------
    make : callable
        Takes an item; releases the interpreter's lock while it reads or decodes.
    items : iterable
        The items.
    ahead : int, default=1
        How many are made beyond the one that was given out; 0 makes each when it is asked for.
    pool : ThreadPoolExecutor, optional
        Threads to make them in, which stay; by default threads of its own, which end with it.

    Examples
    --------
    >>> list(read_ahead(str.upper, "abc"))
    ['A', 'B', 'C']
    """
    if ahead < 1:
        yield from map(make, items)
        return
    threads = pool or ThreadPoolExecutor(ahead, thread_name_prefix="bagwise-ahead")
    waiting: deque[Future[Any]] = deque()
    try:
        for item in items:
            waiting.append(threads.submit(make, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        wait([future for future in waiting if not future.cancel()])
        if pool is None:
            threads.shutdown(wait=True)
