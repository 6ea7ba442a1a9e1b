"""Reading our Parquet against pyarrow's bare read of the same file, and gathering bags against rows.

Run with ``python benchmarks/parquet_read.py [--instances N] [--repeats K]``; prints Markdown. The two sides
take turns, so that a busy machine slows both alike.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import bagwise.io
from bagwise import Bags, Dataset


def make(n_instances: int, n_features: int, n_bags: int) -> Dataset:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_instances, n_features), dtype=np.float32)
    cuts = np.sort(rng.integers(0, n_instances + 1, n_bags - 1))
    offsets = np.concatenate([[0], cuts, [n_instances]])
    Y = rng.random((n_bags, 20)) < 0.1
    return Dataset(Bags(X, offsets), Y, [f"label {k}" for k in range(20)])


def in_turn(first: Callable[[], object], second: Callable[[], object], repeats: int) -> tuple[list, list]:
    times: tuple[list[float], list[float]] = ([], [])
    first(), second()  # warm caches and imports
    for _ in range(repeats):
        for side, function in zip(times, (first, second)):
            start = time.perf_counter()
            result = function()
            side.append(time.perf_counter() - start)
            del result
    return times


def row(name: str, times: list[float]) -> str:
    return f"| {name} | {np.median(times):.3f} | {min(times):.3f} | {max(times):.3f} |"


def table(title: str, names: tuple[str, str], times: tuple[list, list], goal: float) -> None:
    ours, theirs = times
    print(f"\n## {title}\n\n| | median s | min s | max s |\n|---|---|---|---|")
    print(row(names[0], ours))
    print(row(names[1], theirs))
    ratio = np.median(ours) / np.median(theirs)
    print(f"\nRatio of medians {ratio:.2f}, of minima {min(ours) / min(theirs):.2f} (goal: at most {goal}).")


def peak_of(program: str, path: Path) -> int:
    """Peak memory of a fresh process, in MiB (of Linux: getrusage would count the parent's peak too)."""
    tail = "; print([s.split()[1] for s in open('/proc/self/status') if s.startswith('VmHWM')][0])"
    done = subprocess.run(
        [sys.executable, "-c", program + tail, str(path)], capture_output=True, text=True, check=True
    )
    return int(done.stdout) // 1024


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--instances", type=int, default=1_000_000)
    options.add_argument("--features", type=int, default=100)
    options.add_argument("--bags", type=int, default=50_000)
    options.add_argument("--repeats", type=int, default=7)
    given = options.parse_args()
    data = make(given.instances, given.features, given.bags)
    n_bytes = data.bags.X.nbytes
    print(f"# Parquet and gathering: {data.bags!r}, {n_bytes / 2**20:.0f} MiB\n")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "set.parquet"
        start = time.perf_counter()
        bagwise.io.write(data, path)
        print(
            f"Written in {time.perf_counter() - start:.2f} s, {path.stat().st_size / 2**20:.0f} MiB, ", end=""
        )
        print(f"{pq.read_metadata(path).num_row_groups} row groups.")
        times = in_turn(lambda: bagwise.io.read(path), lambda: pq.read_table(path), given.repeats)
        names = ("bagwise.io.read", "pyarrow.parquet.read_table")
        table("Reading", names, times, 1.5)
        ours = peak_of("import sys, bagwise.io; d = bagwise.io.read(sys.argv[1])", path)
        bare = peak_of("import sys, bagwise.io, pyarrow.parquet as pq; t = pq.read_table(sys.argv[1])", path)
        print(f"\nPeak memory of a fresh process: {ours} MiB; of pyarrow's read alone {bare} MiB.")
    rng = np.random.default_rng(1)
    which = rng.permutation(given.bags)[: given.bags * 4 // 5]
    bags = data.bags
    rows = np.concatenate([np.arange(bags.offsets[k], bags.offsets[k + 1]) for k in which])
    times = in_turn(lambda: bags[which], lambda: np.take(bags.X, rows, axis=0), given.repeats)
    table("Gathering 80 % of the bags", ("bags[which]", "np.take of the same rows"), times, 1.3)


if __name__ == "__main__":
    main()
