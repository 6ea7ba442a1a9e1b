"""skops, imported without torch and Dask.

To learn which classes it may trust, skops imports every module of scikit-learn, among them its adapters to
torch and Dask: where these are installed, loading any model would take seconds and hundreds of megabytes
more. While skops is imported for the first time they count as not installed, which that search allows for.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def not_installed(*names: str) -> Iterator[None]:
    """Let imports of packages that nobody imported yet fail for a while.

    Examples
    --------
    >>> with not_installed("turtle"):
    ...     try:
    ...         import turtle
    ...     except ImportError:
    ...         print("as if it were not there")
    as if it were not there
    """
    hidden = [name for name in names if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in hidden:
            if sys.modules.get(name, 0) is None:
                del sys.modules[name]


with not_installed("torch", "dask", "cupy", "jax"):
    import skops
    import skops.io

__all__ = ["skops"]
