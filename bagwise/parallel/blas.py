"""Threads of libraries: matrix products on one core where more would only wait, OpenMP as asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import Any

from threadpoolctl import ThreadpoolController

from bagwise.parallel.local import threads

# Below this many multiplications a product is done before a second thread has woken up; on a busy machine
# threads that wait for each other made small fits thirty times slower.
_WORTH_A_THREAD = 2e8


def small_products(multiplications: float) -> AbstractContextManager[Any]:
    """Keep BLAS on one thread inside the block if its products are small.

    Parameters
    ----------
    multiplications : float
        Of one typical product inside the block.
    """
    return blas_threads(1) if multiplications < _WORTH_A_THREAD else nullcontext()


def blas_threads(n: int) -> AbstractContextManager[Any]:
    """Keep BLAS on so many threads, from now to the end of the block."""
    return libraries().limit(limits=n, user_api="blas")


@contextmanager
def torch_threads(multiplications: float) -> Iterator[None]:
    """Keep torch on one core inside the block if its products are small, for the same reason."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1 if multiplications < _WORTH_A_THREAD else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def openmp_threads(n_jobs: int | None) -> AbstractContextManager[Any]:
    """Keep OpenMP, as k-means of scikit-learn uses it, on so many threads inside the block; None is 1.

    A process that was forked from one whose OpenMP had several threads hangs in its own first loop.
    """
    return libraries().limit(limits=threads(n_jobs), user_api="openmp")


def libraries() -> ThreadpoolController:
    """Libraries in memory that have threads of their own."""
    return _libraries(len(sys.modules))


@lru_cache(maxsize=1)
def _libraries(n_modules: int) -> ThreadpoolController:
    """Looking for them takes as long as a small fit, and only imports bring new ones."""
    return ThreadpoolController()
