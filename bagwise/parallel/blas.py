"""Threads of libraries: matrix products on one core where more would only wait, OpenMP as asked for."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from threadpoolctl import threadpool_limits

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
    return threadpool_limits(1, user_api="blas") if multiplications < _WORTH_A_THREAD else nullcontext()


def openmp_threads(n_jobs: int | None) -> AbstractContextManager[Any]:
    """Keep OpenMP, as k-means of scikit-learn uses it, on so many threads inside the block; None is 1.

    A process that was forked from one whose OpenMP had several threads hangs in its own first loop.
    """
    return threadpool_limits(threads(n_jobs), user_api="openmp")
