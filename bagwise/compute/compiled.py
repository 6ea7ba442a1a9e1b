"""How loops are compiled: one decorator for those that Python calls, one for their parts.

numba compiles a loop again when its own file has changed, not when a part in another file has, although the
part is inside the compiled loop: after an upgrade an old cache would give old results. Here the stamp of each
cached loop covers the files of all parts that it may have used, and the constants imported with them.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import FunctionType
from typing import Any

from numba import njit
from numba.core.dispatcher import Dispatcher
from numba.extending import register_jitable

__all__ = ["kernel", "part"]

_PARTS: set[Callable[..., Any]] = set()


def kernel(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a loop that Python calls; ``options`` are those of ``numba.njit``.

    Examples
    --------
    >>> @kernel
    ... def total(values):
    ...     result = 0.0
    ...     for value in values:
    ...         result += value
    ...     return result
    >>> import numpy as np
    >>> total(np.ones(3))
    3.0
    """
    if function is None:
        return partial(kernel, **options)
    has_file = Path(function.__code__.co_filename).exists()
    loop = njit(cache=has_file, nogil=True, no_cfunc_wrapper=True, **options)(function)
    if has_file and isinstance(loop, Dispatcher):  # a plain function where compilation is switched off
        _stamp_cache(loop, used_files(function.__module__))
    return loop


def part(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a loop where other compiled loops call it; for Python it stays as it is, not compiled.

    A part raises no errors with numbers in their messages: Python finds those before or after the loop.

    Examples
    --------
    >>> @part
    ... def square(x):
    ...     return x * x
    >>> @kernel
    ... def fourth_power(x):
    ...     return square(square(x))
    >>> fourth_power(2.0), square(3.0)
    (16.0, 9.0)
    """
    if function is None:
        return partial(part, **options)
    _PARTS.add(function)
    return register_jitable(no_cfunc_wrapper=True, **options)(function)


def _stamp_cache(loop: Any, stamp: str) -> None:
    """Make the cache of a loop valid for this stamp only, not for the loop's own file alone."""
    file: Any = getattr(loop._cache, "_cache_file", None)
    if hasattr(file, "_source_stamp"):
        file._source_stamp = (file._source_stamp, stamp)


@cache
def used_files(module: str) -> str:
    """Hash of a module's file and constants, and the same of all modules whose loops and parts it imports."""
    values = vars(sys.modules[module])
    digest = hashlib.sha256(Path(values["__file__"]).read_bytes())
    for name, value in sorted(values.items()):
        if isinstance(value, (bool, int, float, str)) and not name.startswith("__"):
            digest.update(f"{name}={value!r}".encode())
        elif _goes_into_loops(value) and value.__module__ != module:
            digest.update(used_files(value.__module__).encode())
    return digest.hexdigest()


def _goes_into_loops(value: Any) -> bool:
    """Whether this is a compiled loop, a part, or a tuple with names, as loops take them for workspace."""
    if isinstance(value, type):
        return hasattr(value, "_fields")
    return isinstance(value, Dispatcher) or (isinstance(value, FunctionType) and value in _PARTS)
