"""The one check of offsets."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from bagwise.errors import DataError


def checked_offsets(offsets: Any, n_instances: int, *, empty: bool = True) -> np.ndarray:
    """Offsets as contiguous int64, or an error that says what is wrong with them.

    Compiled loops do not check bounds: a wrong offset would read foreign memory.

    Parameters
    ----------
    offsets : array of shape (n_bags + 1,)
        Bag ``b`` owns the rows ``offsets[b]:offsets[b + 1]``.
    n_instances : int
        Number of rows.
    empty : bool, default=True
        Whether bags may be empty.

    Examples
    --------
    >>> checked_offsets([0, 2, 2], 2)
    array([0, 2, 2])
    >>> checked_offsets([0, 2, 2], 2, empty=False)
    Traceback (most recent call last):
    bagwise.errors.DataError: bag 1 is empty; every bag needs at least one instance
    """
    given = np.asarray(offsets)
    if given.ndim != 1 or given.size == 0 or given.dtype.kind not in "iu":
        raise DataError(
            "expected offsets as a one-dimensional array of n_bags + 1 integers, "
            f"received {given.dtype} of shape {given.shape}"
        )
    result = np.ascontiguousarray(given, dtype=np.int64)
    if result[0] != 0 or result[-1] != n_instances:
        raise DataError(
            f"expected offsets from 0 to the number of instances, {n_instances}; "
            f"received offsets from {result[0]} to {result[-1]}"
        )
    falls = np.flatnonzero(result[1:] < result[:-1])
    if falls.size:
        b = falls[0]
        raise DataError(
            f"expected offsets that never decrease; bag {b} runs from {result[b]} to {result[b + 1]}"
        )
    if not empty and (result[1:] == result[:-1]).any():
        b = np.flatnonzero(result[1:] == result[:-1])[0]
        raise DataError(f"bag {b} is empty; every bag needs at least one instance")
    return result


# ----------------------------------------------------------------------
# Refusing, in time and with advice, what would not fit into memory


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
    try:
        total = float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on every system
        return
    if n_bytes > _SHARE * total:
        raise MemoryError(
            f"{what} needs {n_bytes / 1e9:.3g} GB, and this machine has {total / 1e9:.3g} GB; {advice}"
        )
