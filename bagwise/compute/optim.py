"""Many climbs, one pass: questions that several optimisers ask are answered together.

Optimisers such as SciPy's call back for a value and wait. Where a value is a pass over all data, ten
optimisers (one per label, say) would make ten times as many passes. Here each runs in a thread of its own
until it asks; when all of them wait, one call answers all questions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar, copy_context
from typing import Any

__all__ = ["Lockstep"]


_path: ContextVar[tuple[int, ...]] = ContextVar("bagwise_lockstep", default=())


class _Stopped(BaseException):
    """Ends a thread that waits for an answer which will not come."""


class _Asked:
    """A question and the lock that its thread waits at; without an answer there is none to come."""

    __slots__ = ("answer", "answered", "question", "ready")

    def __init__(self, question: Any) -> None:
        self.question, self.answer, self.answered = question, None, False
        self.ready = threading.Lock()
        self.ready.acquire()


class _Family:
    """Functions that one `Lockstep.each` runs: who waits for them, and what they came to."""

    def __init__(self, n: int, nested: bool) -> None:
        self.left, self.nested = n, nested
        self.results: list[Any] = [None] * n
        self.done = threading.Event()


class Lockstep:
    """Functions that ask, and one that answers the questions of all.

    Parameters
    ----------
    answer : callable
        Takes the list of questions of all functions that wait, in the order of the functions whatever the
        timing, and returns the list of answers.

    Examples
    --------
    >>> passes = []
    >>> def squares(questions):
    ...     passes.append(questions)
    ...     return [x * x for x in questions]
    >>> steps = Lockstep(squares)
    >>> steps.each([lambda: steps.ask(2) + steps.ask(3), lambda: steps.ask(10)])
    [13, 100]
    >>> passes
    [[2, 10], [3]]
    """

    def __init__(self, answer: Callable[[list[Any]], list[Any]]) -> None:
        self._answer = answer
        self._lock = threading.Condition()  # only the thread that answers waits for it
        self._running = 0  # threads that neither wait for an answer nor for functions of their own
        self._asked: dict[tuple[int, ...], _Asked] = {}
        self._error: BaseException | None = None

    def ask(self, question: Any) -> Any:
        """Wait for the answer to a question; called by functions inside `each`."""
        asked = _Asked(question)
        with self._lock:
            if self._error is not None:
                raise _Stopped
            self._asked[_path.get()] = asked
            self._running -= 1
            if not self._running:
                self._lock.notify()
        # each waits at a lock of its own: with one for all, every answer would wake hundreds of threads
        asked.ready.acquire()
        if not asked.answered:
            raise _Stopped
        return asked.answer

    def each(self, functions: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run functions side by side and return what they return; functions may call this themselves."""
        if not functions:
            return []
        path = _path.get()
        family = _Family(len(functions), nested=bool(path))
        threads = [
            threading.Thread(
                target=copy_context().run, args=(self._run, family, k, (*path, k), function), daemon=True
            )
            for k, function in enumerate(functions)
        ]
        with self._lock:
            self._running += len(threads) - family.nested
        for thread in threads:
            thread.start()
        if family.nested:
            family.done.wait()
            if self._error is not None:
                raise _Stopped
        else:
            try:
                self._serve(family)
            except BaseException as error:  # of the answer, or an interrupt while waiting: nobody waits on
                with self._lock:
                    self._fail(error)
            for thread in threads:
                thread.join()
            if self._error is not None:
                raise self._error
        return family.results

    def _run(self, family: _Family, k: int, path: tuple[int, ...], function: Callable[[], Any]) -> None:
        _path.set(path)
        try:
            family.results[k] = function()
        except _Stopped:
            pass
        except BaseException as error:
            with self._lock:
                self._fail(error)
        with self._lock:
            family.left -= 1
            if family.left or not family.nested:
                self._running -= 1  # else who waits for the family goes on in its place
            if not family.left:
                family.done.set()
            if not self._running:
                self._lock.notify()

    def _fail(self, error: BaseException) -> None:
        """End all threads: who waits gets no answer; called with the lock held."""
        self._error = self._error or error
        for asked in self._asked.values():
            asked.ready.release()
        self._asked.clear()
        self._lock.notify()

    def _serve(self, family: _Family) -> None:
        """Answer questions, in the thread that called first, until all functions are done."""
        while True:
            with self._lock:
                while self._error is None and self._running and family.left:
                    self._lock.wait()
                if self._error is not None or not family.left:
                    return
                paths = sorted(self._asked)
                asked = [self._asked[path] for path in paths]
            answers = self._answer([each.question for each in asked])
            with self._lock:
                self._running += len(asked)
                for each, answer in zip(asked, answers):
                    each.answer, each.answered = answer, True
                for path in paths:
                    self._asked.pop(path).ready.release()
