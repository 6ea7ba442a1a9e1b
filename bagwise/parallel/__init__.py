"""The only room that knows joblib, thread pools and the threads of BLAS."""

from bagwise.parallel.ahead import read_ahead
from bagwise.parallel.blas import openmp_threads, small_products, torch_threads
from bagwise.parallel.local import cores, forced_threads, in_threads, run, stream, threads
from bagwise.parallel.pool import Workers

__all__ = [
    "Workers",
    "cores",
    "forced_threads",
    "in_threads",
    "openmp_threads",
    "read_ahead",
    "run",
    "small_products",
    "stream",
    "threads",
    "torch_threads",
]
