"""Arrays at addresses of one kind, wherever they were made.

Matrix libraries round differently where an array begins at another multiple of its registers: the same part,
read from disk here and sent by a worker there, would give sums that differ in the last digits. So whatever a
step works on is brought to multiples of 64 bytes first.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

__all__ = ["Carried", "aligned", "aligned_empty"]

ALIGNMENT = 64


def aligned_empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array, not filled, that begins at a multiple of 64 bytes.

    Examples
    --------
    >>> aligned_empty((3, 5), np.float32).ctypes.data % 64
    0
    """
    dtype = np.dtype(dtype)
    n_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = np.empty(n_bytes + ALIGNMENT, dtype=np.uint8)
    first = -memory.ctypes.data % ALIGNMENT
    return memory[first : first + n_bytes].view(dtype).reshape(shape)


def aligned(value: Any) -> Any:
    """The same object with all arrays inside at multiples of 64 bytes; those that are so already are shared.

    Examples
    --------
    >>> moved = aligned({"a": np.arange(100)[1:], "b": [np.ones(9)[2:]]})
    >>> moved["a"].ctypes.data % 64, moved["b"][0].ctypes.data % 64, moved["a"][0].item()
    (0, 0, 1)
    """
    return _Packed(value).value


class _Packed:
    """An object as bytes and the memory of its arrays, each piece of memory once."""

    def __init__(self, value: Any) -> None:
        found: list[pickle.PickleBuffer] = []
        self.content = pickle.dumps(value, protocol=5, buffer_callback=found.append)
        self.places: list[int] = []
        self.pieces: list[np.ndarray] = []
        known: dict[tuple[int, int], int] = {}
        for buffer in found:  # a matrix and its transpose are one piece
            piece = np.frombuffer(buffer.raw(), dtype=np.uint8)
            where = (piece.ctypes.data, piece.nbytes)
            if where not in known:
                known[where] = len(self.pieces)
                self.pieces.append(piece)
            self.places.append(known[where])

    @property
    def value(self) -> Any:
        pieces = [_moved(piece) for piece in self.pieces]
        return pickle.loads(self.content, buffers=[pieces[k] for k in self.places])


def _moved(piece: np.ndarray) -> np.ndarray:
    if piece.ctypes.data % ALIGNMENT == 0 or not piece.nbytes:
        return piece
    out = aligned_empty((piece.nbytes,), np.uint8)
    out[:] = piece
    return out


class Carried:
    """A value that may travel between processes and arrives with its arrays aligned.

    Examples
    --------
    >>> Carried(np.arange(3)).value
    array([0, 1, 2])
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def __reduce__(self) -> Any:
        return _arrived, (_Packed(self.value),)

    def __sizeof__(self) -> int:  # what Dask plans its memory by
        return sum(piece.nbytes for piece in _Packed(self.value).pieces) + 64


def _arrived(packed: _Packed) -> Carried:
    return Carried(packed.value)
