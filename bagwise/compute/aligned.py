"""Arrays as loops and products take them: read-only in C order, and at addresses of one kind.

The freeze rule: whatever a compiled loop only reads goes through `frozen` at the door. The compiler takes a
writable and a read-only array for two types and compiles everything twice.

Matrix libraries round differently where an array begins at another multiple of its registers: the same part,
read from disk here and sent by a worker there, would give sums that differ in the last digits. So whatever a
step works on is brought to multiples of 64 bytes first.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from scipy import sparse

__all__ = ["Carried", "aligned", "aligned_empty", "frozen", "memory_used_again"]


ALIGNMENT = 64
_LARGE, _MOST = 1 << 20, 3  # bytes of a piece; pieces that wait: a part as read, and two made of such


def frozen(X: Any) -> Any:
    """A read-only view in C order; of CSR, of its three arrays.

    Examples
    --------
    >>> frozen(np.ones(3)).flags.writeable
    False
    """
    if sparse.issparse(X):
        arrays = (frozen(X.data), frozen(X.indices), frozen(X.indptr))
        return sparse.csr_array(arrays, shape=X.shape, copy=False)
    view = np.ascontiguousarray(X).view()
    view.flags.writeable = False
    return view


def aligned_empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array, not filled, that begins at a multiple of 64 bytes.

    Examples
    --------
    >>> aligned_empty((3, 5), np.float32).ctypes.data % 64
    0
    """
    dtype = np.dtype(dtype)
    n_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if _pool.streams and n_bytes >= _LARGE:
        memory = _pool.take(n_bytes + ALIGNMENT)
    else:
        memory = np.empty(n_bytes + ALIGNMENT, dtype=np.uint8)
    first = -memory.ctypes.data % ALIGNMENT
    return memory[first : first + n_bytes].view(dtype).reshape(shape)


class _MemoryPool:
    """Large pieces of memory that are used again, part after part, while parts are streamed.

    The system clears every page that it gives, and two threads that ask at once wait for each other.
    """

    def __init__(self) -> None:
        self.streams = 0
        self.pieces: list[np.ndarray] = []
        self.lock = threading.RLock()  # arrays may die, and give back theirs, while it is held

    def take(self, n_bytes: int) -> np.ndarray:
        """A piece that waits, where one fits, or a new one."""
        with self.lock:
            fit = [k for k, piece in enumerate(self.pieces) if n_bytes <= len(piece) <= 4 * n_bytes]
            if fit:
                best = min(fit, key=lambda k: len(self.pieces[k]))
                return np.asarray(_PooledPiece(self.pieces.pop(best)))[:n_bytes]
            small = [k for k, piece in enumerate(self.pieces) if len(piece) < n_bytes]
            if small:  # arrays have grown: make room for them
                del self.pieces[small[0]]
        return np.asarray(_PooledPiece(np.empty(n_bytes + n_bytes // 64, dtype=np.uint8)))[:n_bytes]

    def give_back(self, piece: np.ndarray) -> None:
        with self.lock:
            if self.streams and len(self.pieces) < _MOST:
                self.pieces.append(piece)

    @contextmanager
    def used(self) -> Iterator[None]:
        with self.lock:
            self.streams += 1
        try:
            yield
        finally:
            with self.lock:
                self.streams -= 1
                self.pieces = self.pieces if self.streams else []


class _PooledPiece:
    """What arrays on a piece of memory hold on to; when the last of them is gone, so is this."""

    def __init__(self, piece: np.ndarray) -> None:
        self.piece = piece
        self.__array_interface__ = piece.__array_interface__

    def __del__(self) -> None:
        _pool.give_back(self.piece)


_pool = _MemoryPool()
memory_used_again = _pool.used


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

    @property
    def n_bytes(self) -> int:
        """Bytes that travel."""
        packed = _Packed(self.value)
        return len(packed.content) + sum(piece.nbytes for piece in packed.pieces)


def _arrived(packed: _Packed) -> Carried:
    return Carried(packed.value)
