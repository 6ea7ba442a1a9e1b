"""Options that several commands take together: declared once, handed to a command as one value."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any


def takes(**groups: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Put the parameters of functions into a command, which gets what each returns, under its name.

    Examples
    --------
    >>> def size(width: int = 2, height: int = 3):
    ...     return width * height
    >>> @takes(area=size)
    ... def show(name: str, *, area: int, loud: bool = False):
    ...     print(name, area, loud)
    >>> inspect.signature(show)
    <Signature (*, name: str, width: int = 2, height: int = 3, loud: bool = False)>
    >>> show(name="room", height=5)
    room 10 False
    """
    inner = {name: _parameters(function) for name, function in groups.items()}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**given: Any) -> None:
            for name, function in groups.items():
                given[name] = function(**{p.name: given.pop(p.name) for p in inner[name] if p.name in given})
            return command(**given)

        flat = [one for own in _parameters(command) for one in inner.get(own.name, [own])]
        run.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in flat}
        return run

    return decorate


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    found = inspect.signature(function, eval_str=True).parameters.values()
    return [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in found]
