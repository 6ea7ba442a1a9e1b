"""The only room that knows joblib, thread pools and the threads of BLAS."""

from bagwise.parallel.ahead import read_ahead
from bagwise.parallel.aligned import aligned, aligned_empty, memory_used_again
from bagwise.parallel.blas import openmp_threads, small_products, torch_threads
from bagwise.parallel.journal import checkpoint, current_journal
from bagwise.parallel.local import cores, forced_threads, in_threads, run, stream, threads
from bagwise.parallel.lockstep import Lockstep
from bagwise.parallel.parts import Parts, add, held, map_parts, map_reduce, report_part, watched
from bagwise.parallel.pool import Workers

__all__ = [
    "Lockstep",
    "Parts",
    "Workers",
    "add",
    "aligned",
    "aligned_empty",
    "checkpoint",
    "cores",
    "current_journal",
    "forced_threads",
    "held",
    "in_threads",
    "map_parts",
    "map_reduce",
    "memory_used_again",
    "openmp_threads",
    "read_ahead",
    "report_part",
    "run",
    "small_products",
    "stream",
    "threads",
    "torch_threads",
    "watched",
]
