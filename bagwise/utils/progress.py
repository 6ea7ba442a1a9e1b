"""Progress bars on a terminal; in a pipe, in a log and in a library, nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

Item = TypeVar("Item")
Advance = Callable[..., None]


def on_terminal() -> bool:
    """Whether standard error, where bars are drawn, is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def progress(description: str, total: float | None = None, *, enabled: bool = True) -> Iterator[Advance]:
    """Show a bar while the body runs; give the body a function that moves it.

    Parameters
    ----------
    description : str
        What is being done.
    total : float, optional
        Number of steps; unknown when left out, and then only the time is shown.
    enabled : bool, default=True
        Whether to draw at all; a bar appears only if standard error is a terminal, too.

    Yields
    ------
    advance : callable
        ``advance(steps=1, description=None, total=None)``; a total that was not known before may be given.

    Examples
    --------
    >>> with progress("counting", total=3) as advance:
    ...     for k in range(3):
    ...         advance(description=f"number {k}")
    """
    if not (enabled and on_terminal()):
        yield _nothing
        return
    try:
        from rich.console import Console  # a fifth of a second that pipes and libraries need not pay
        from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
        from rich.text import Text
    except ImportError:  # a fit goes without its bar
        yield _nothing
        return

    class Left(ProgressColumn):
        """Time left, once it can be told."""

        max_refresh = 0.5

        def render(self, task: Task) -> Text:
            seconds = task.time_remaining
            return Text("" if seconds is None or task.finished else f"{timedelta(seconds=int(seconds))} left")

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), Left())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total)

        def advance(steps: float = 1, description: str | None = None, total: float | None = None) -> None:
            bar.update(task, advance=steps, description=description, total=total)  # None changes nothing

        yield advance


def track(
    items: Iterable[Item], description: str, total: float | None = None, *, enabled: bool = True
) -> Iterator[Item]:
    """Go through the items with a bar that moves after each.

    Examples
    --------
    >>> list(track("ab", "letters"))
    ['a', 'b']
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    with progress(description, total, enabled=enabled) as advance:
        for item in items:
            yield item
            advance()


def _nothing(steps: float = 1, description: str | None = None, total: float | None = None) -> None:
    pass
