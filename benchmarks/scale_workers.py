"""A thousand workers, simulated: a real scheduler and driver, parts that sleep, workers that die.

    python benchmarks/scale.py simulate --workers 100 1000 [--deaths 3]

Scheduler, driver and workers are processes of their own; a worker's threads stand for workers of one core.
A part sleeps as long as a pass over it would take, give or take a tenth. With deaths, processes that hold a
tenth of the workers are killed in the midst of the pass and started anew. Every sum is compared with that of
one process, to the last bit.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from bagwise import on_cluster
from bagwise.compute.dask import _BYTE_SECONDS, run_length
from bagwise.compute.parts import Parts, map_reduce, ordered_sum

THREADS = 20  # per worker of Dask


class Sleeper:
    """A part that takes so many seconds."""

    def __init__(self, k: int, seconds: float) -> None:
        self.key = self.name = f"sleeper{k}"
        self.k, self.seconds, self.n_bytes = k, seconds, int(seconds / _BYTE_SECONDS)

    def __reduce__(self):
        return Sleeper, (self.k, self.seconds)

    def load(self):
        """The part itself."""
        return self


def asleep(W, part):
    rng = np.random.default_rng(part.k)
    time.sleep(part.seconds * rng.uniform(0.9, 1.1))  # machines differ, and so do parts
    return statistic(W, part.k)


def statistic(W, k):
    return W * (0.1 + k % 97)


def host(scheduler_file: str, n_workers: int) -> None:
    """Some workers in this process, until the scheduler leaves."""
    from distributed import Worker

    async def serve() -> None:
        settings = {"nthreads": THREADS, "memory_limit": 0, "heartbeat_interval": "5s"}
        workers = [
            Worker(scheduler_file=scheduler_file, silence_logs=50, **settings) for _ in range(n_workers)
        ]
        await asyncio.gather(*workers)
        await asyncio.gather(*(worker.finished() for worker in workers))

    asyncio.run(serve())


class Crowd:
    """A scheduler and processes that hold the workers."""

    def __init__(self, n_cores: int, folder: str) -> None:
        self.file = str(Path(folder) / "scheduler.json")
        environment = os.environ | {
            "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "100",
            "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",  # it looks at all threads of the process
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        self.run = {"env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        words = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", self.file]
        self.scheduler = subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_scheduler", *words], **self.run
        )
        while not Path(self.file).exists() or not Path(self.file).read_text():
            time.sleep(0.1)
        self.address = json.loads(Path(self.file).read_text())["address"]
        n = max(1, n_cores // THREADS)
        self.shares = [len(share) for share in np.array_split(np.arange(n), min(10, n))]
        self.hosts = [self._host(share) for share in self.shares]
        self.n_workers = n

    def _host(self, n_workers: int) -> subprocess.Popen:
        words = [sys.executable, __file__, self.file, str(n_workers)]
        return subprocess.Popen(words, **self.run)

    def kill_one(self, which: int) -> None:
        """End one of the processes at once and start another."""
        self.hosts[which].kill()
        self.hosts[which].wait()
        self.hosts[which] = self._host(self.shares[which])

    def scheduler_seconds(self) -> float:
        """Processor time of the scheduler so far."""
        fields = Path(f"/proc/{self.scheduler.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End all of them."""
        for process in [self.scheduler, *self.hosts]:
            process.kill()
            process.wait()


def simulate(cores: list[int], part_seconds: float, parts_each: int, kilobytes: float, deaths: int) -> None:
    """Passes over ``parts_each`` parts per core."""
    from distributed import Client

    print("  cores   parts  tasks   pass  ideal  scheduler  per task  deaths  same bits")
    for n in cores:
        with tempfile.TemporaryDirectory() as folder:
            crowd = Crowd(n, folder)
            try:
                with Client(crowd.address) as client:
                    client.wait_for_workers(crowd.n_workers, timeout=300)
                    for n_deaths in dict.fromkeys([0, deaths]):
                        _one_pass(crowd, client, n, part_seconds, parts_each, kilobytes, n_deaths)
            finally:
                crowd.close()


def _one_pass(crowd, client, n, part_seconds, parts_each, kilobytes, deaths) -> None:
    items = [Sleeper(k, part_seconds) for k in range(n * parts_each)]
    W = np.random.default_rng(0).normal(size=int(kilobytes * 1e3 / 8))
    expected = ordered_sum(statistic(W, item.k) for item in items)
    ideal = part_seconds * parts_each
    done = threading.Event()

    def killer() -> None:
        random = np.random.default_rng(n)
        for which in random.permutation(len(crowd.hosts))[:deaths]:
            if done.wait(ideal * random.uniform(0.1, 0.6) / max(deaths, 1)):
                return
            crowd.kill_one(int(which))

    with on_cluster(client, loops=False):
        map_reduce(asleep, W, Parts(items[:n]))  # workers import
        busy = crowd.scheduler_seconds()
        thread = threading.Thread(target=killer)
        thread.start()
        start = time.perf_counter()
        found = map_reduce(asleep, W, Parts(items))
        took = time.perf_counter() - start
        done.set()
        thread.join()
        busy = crowd.scheduler_seconds() - busy
    n_tasks = -(-len(items) // run_length([item.n_bytes for item in items], n))
    same = np.array_equal(found, expected)
    print(f"{n:7,d} {len(items):7,d} {n_tasks:6,d} {took:5.1f}s {ideal:5.1f}s {busy:8.2f}s "
          f"{1e3 * busy / n_tasks:7.2f}ms {deaths:6d}   {same}", flush=True)  # fmt: skip


if __name__ == "__main__":
    host(sys.argv[1], int(sys.argv[2]))
