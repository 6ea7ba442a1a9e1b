"""An array in a file, known by its shape before it is read; shapes that cannot be true are refused."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bagwise.errors import DataError

__all__ = ["Stored", "check_claim", "refused"]

# What an array may take in memory whatever its file, and how many times its file: zeros shrink well.
_ALWAYS = 1 << 28
_TIMES = 100


@dataclass(frozen=True)
class Stored:
    """An array that is read when asked for; ``attrs`` are the facts that its file keeps beside it."""

    shape: tuple[int, ...]
    kind: str  # of its numbers, as NumPy names kinds: f, i, u, b; another letter is no number
    read: Callable[[], Any]
    attrs: Mapping[str, Any] = field(default_factory=dict)


def check_claim(path: str, shape: tuple[int, ...], itemsize: int, what: str) -> None:
    """Refuse an array that claims far more bytes than its file could hold."""
    if any(n < 0 for n in shape):
        raise DataError(f"{what} declares the shape {shape}")
    claimed = float(itemsize)
    for n in shape:
        claimed *= n
    if claimed > max(_ALWAYS, _TIMES * _size(path)):
        raise DataError(
            f"{what} declares {' x '.join(map(str, shape))} numbers, {claimed:.3g} bytes in a file of "
            f"{_size(path):,}"
        )


def _size(path: str) -> int:
    if not os.path.isdir(path):
        return os.path.getsize(path)
    return sum(os.path.getsize(os.path.join(folder, f)) for folder, _, files in os.walk(path) for f in files)


def refused(error: BaseException, kind: str) -> DataError:
    """The error of a decoder as one line."""
    what = " ".join(str(error).split())[:150] or type(error).__name__
    return DataError(f"cannot be read as {kind} ({what})")


def as_float(X: np.ndarray) -> np.ndarray:
    """Numbers as float32, wide ones as float64; no copy where none is needed, nor for half precision.

    The base turns half precision into single while it puts bags together, which spares a copy.
    """
    if X.dtype.kind == "f" and X.dtype.itemsize in (2, 4, 8):
        return X if X.dtype.isnative else X.astype(X.dtype.newbyteorder("="))
    return X.astype(np.float32 if X.dtype.itemsize <= 2 else np.float64)


def all_finite(X: np.ndarray) -> bool:
    """Whether no number is infinite or undefined, without a copy of the size of the whole."""
    if X.dtype == np.float16:
        rows = max((1 << 20) // max(X.shape[1], 1), 1)
        bits = X.view(np.uint16) if X.flags.c_contiguous else np.ascontiguousarray(X).view(np.uint16)
        return all((bits[k : k + rows] & 0x7C00).max() < 0x7C00 for k in range(0, len(bits), rows))
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(X.sum())) or bool(np.isfinite(X).all())  # a sum may overflow by itself
