"""Arrays on their way to a GPU: through two pinned pages, one filled while the other is copied.

Copies from plain memory make the GPU wait and run at a fraction of its speed; pinning all of a large array
would take longer than the copy. The module imports torch; import it inside functions.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch

__all__ = ["as_tensor", "fetched", "fitting", "moved", "streamed"]


Tensor = torch.Tensor
_PAGE = 8 << 20  # bytes of a pinned page: larger ones are no faster, and take long to pin


def as_tensor(array: Any) -> Tensor:
    """A tensor that shares the memory of an array, which may be read-only: it is never written.

    Examples
    --------
    >>> frozen = np.ones(2)
    >>> frozen.flags.writeable = False
    >>> as_tensor(frozen).tolist()
    [1.0, 1.0]
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(array))


def moved(X: Any, out: Tensor, change: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """Fill ``out``, on any device, with a matrix, after a change that is made there, run by run.

    Examples
    --------
    >>> moved(np.eye(2), torch.empty(2, 2), change=lambda rows: 2 * rows).tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """
    n, d = X.shape
    step = max(1, _PAGE // max(X.dtype.itemsize * d, 1))
    bounds = [(first, min(first + step, n)) for first in range(0, n, step)]
    for (first, last), rows in zip(bounds, streamed(X, bounds, out.device)):
        out[first:last] = rows if change is None else change(rows)
    return out


def streamed(X: Any, bounds: Iterable[tuple[int, int]], device: Any) -> Iterator[Tensor]:
    """Runs of rows on the device, each being copied while the one before is worked on.

    A run is valid until the next but one is asked for.

    Examples
    --------
    >>> [rows.shape[0] for rows in streamed(np.ones((5, 2)), [(0, 2), (2, 5)], torch.device("cpu"))]
    [2, 3]
    """
    bounds = list(bounds)
    if device.type != "cuda":
        for first, last in bounds:
            yield as_tensor(X[first:last])
        return
    longest = max((last - first for first, last in bounds), default=0)
    dtype = torch.from_numpy(np.empty(0, X.dtype)).dtype
    pages = [torch.empty((longest, X.shape[1]), dtype=dtype, pin_memory=True) for _ in bounds[:2]]
    places = [torch.empty((longest, X.shape[1]), dtype=dtype, device=device) for _ in bounds[:2]]
    side, here = torch.cuda.Stream(device), torch.cuda.current_stream(device)
    side.wait_stream(here)
    copied = [torch.cuda.Event() for _ in pages]
    used = [torch.cuda.Event() for _ in pages]

    def copy(k: int) -> None:
        first, last = bounds[k]
        copied[k % 2].synchronize()  # the page is free: its last copy is done
        pages[k % 2][: last - first].copy_(as_tensor(X[first:last]))
        with torch.cuda.stream(side):
            side.wait_event(used[k % 2])
            places[k % 2][: last - first].copy_(pages[k % 2][: last - first], non_blocking=True)
            copied[k % 2].record(side)

    if bounds:
        copy(0)
    for k, (first, last) in enumerate(bounds):
        here.wait_event(copied[k % 2])
        if k + 1 < len(bounds):
            copy(k + 1)
        yield places[k % 2][: last - first]
        used[k % 2].record(here)
    for place in places:
        place.record_stream(side)


def fetched(X: Tensor) -> np.ndarray:
    """An array of what a tensor holds, through a pinned page where it comes from a GPU.

    Examples
    --------
    >>> fetched(torch.ones(2))
    array([1., 1.], dtype=float32)
    """
    if not X.is_cuda:
        return X.numpy()
    page = torch.empty(X.shape, dtype=X.dtype, pin_memory=True)
    page.copy_(X, non_blocking=True)
    torch.cuda.current_stream(X.device).synchronize()
    return page.numpy().copy()


def fitting(work: Callable[[int], Any], size: int, what: str, smallest: int = 1) -> tuple[Any, int]:
    """What ``work(size)`` returns, and the size: half of it, again and again, while the GPU has no room.

    Parameters
    ----------
    work : callable
        Takes the size of its pieces; begins anew each time.
    size : int
        Where to begin.
    what : str
        The smallest piece, for the message that says it does not fit.
    smallest : int, default=1
        Size below which there are no pieces.

    Examples
    --------
    >>> def work(size):
    ...     if size > 3:
    ...         raise torch.cuda.OutOfMemoryError
    ...     return "done"
    >>> fitting(work, 10, "a bag")
    ('done', 2)
    """
    while True:
        try:
            return work(size), size
        except torch.cuda.OutOfMemoryError as error:
            if size <= smallest:
                raise torch.cuda.OutOfMemoryError(f"{what} does not fit the GPU; use device='cpu'") from error
        # out here the error is gone, and with it what its frames held on the GPU
        size = max(size // 2, smallest)
        torch.cuda.empty_cache()
