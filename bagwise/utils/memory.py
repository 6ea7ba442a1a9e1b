"""Refusing, in time and with advice, what would not fit into memory."""

from __future__ import annotations

import os

# what is left is for the interpreter, the data and the copies that libraries make
_SHARE = 0.75


def check_memory(n_bytes: float, what: str, advice: str) -> None:
    """Raise MemoryError if an array needs more than three quarters of the machine's memory.

    Examples
    --------
    >>> check_memory(8e6, "the kernel of 1,000 bags", "take a sample of bags")
    >>> check_memory(8e18, "the kernel of 1e9 bags", "take a sample of bags")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    MemoryError: the kernel of 1e9 bags needs 8e+09 GB, and this machine has ...; take a sample of bags
    """
    total = _physical_memory()
    if n_bytes > _SHARE * total:
        raise MemoryError(
            f"{what} needs {n_bytes / 1e9:.3g} GB, and this machine has {total / 1e9:.3g} GB; {advice}"
        )


def _physical_memory() -> float:
    try:
        return float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on every system
        return float("inf")
