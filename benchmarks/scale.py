"""Shards: rates, memory, clusters, growth, kills, a thousand workers, and what users would do instead.

Every figure of docs/scale.md is one command:

    python benchmarks/scale.py make FOLDER --gb 10          # generated bags as shards
    python benchmarks/scale.py pass FOLDER                  # streamed pass against the pass in memory
    python benchmarks/scale.py limit FOLDER --gb 2          # a whole fit under a hard limit of memory
    python benchmarks/scale.py cluster FOLDER --workers 2   # Dask against one streaming process
    python benchmarks/scale.py growth FOLDER --most 1e8     # seconds per instance from 1e5 instances on
    python benchmarks/scale.py kills FOLDER --kills 30      # workers killed with SIGKILL; bits compared
    python benchmarks/scale.py simulate --workers 100 1000  # a real scheduler, parts that sleep
    python benchmarks/scale.py others FOLDER                # SGDClassifier.partial_fit, torchmil
    python benchmarks/scale.py small                        # all of it in a few minutes

`pass`, `cluster` and `growth` print ratios of things measured in turn in the same run.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from functools import partial
from pathlib import Path

if "limit" in sys.argv:  # other allocators of Arrow keep addresses in store, which the limit would count
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from bagwise import Bags, Dataset, ShardedBags, on_cluster
from bagwise.base.blocks import blocks_of_shards
from bagwise.compute.aligned import memory_used_again
from bagwise.compute.parts import map_reduce
from bagwise.compute.scaling import Scaling
from bagwise.models import MIMLFast, ORedLogisticRegression
from bagwise.models.ored.fit import Setup, Treatment, likelihood_of, value_and_gradient

D, L, SIZE = 100, 10, 10  # features, labels, instances per bag


def pieces(n_instances: float, seed: int = 0, at_once: int = 20_000, d: int = D):
    """Bags whose labels are those of their instances, which stand around a centre per label."""
    centres = np.random.default_rng(99).normal(size=(L, d)).astype(np.float32)
    n_bags, first = int(n_instances // SIZE), 0
    while first < n_bags:
        rng = np.random.default_rng([seed, first])
        n = min(at_once, n_bags - first)
        own = rng.integers(0, L, (n, 3))
        which = own[np.arange(n)[:, None], rng.integers(0, 3, (n, SIZE))]
        X = centres[which].reshape(-1, d) * 0.35 + rng.standard_normal((n * SIZE, d), dtype=np.float32)
        Y = np.zeros((n, L), np.int8)
        Y[np.arange(n)[:, None], which] = 1
        ids = np.arange(first, first + n)
        yield Dataset(Bags(X, np.arange(n + 1) * SIZE, bag_ids=ids), Y, [f"l{k}" for k in range(L)])
        first += n


def learner(max_iter: int = 10) -> ORedLogisticRegression:
    settings = {"background": False, "decision": "union", "device": "cpu"}
    return ORedLogisticRegression(alpha=1.0, max_iter=max_iter, **settings)


def likelihoods(shards: ShardedBags):
    """The parts of a fit after its first look at the data, and parameters to ask them about."""
    how = Treatment(False, 16, "candidates", 0.0, {"method": "auto", "max_labels": 16, "n_threads": 1})
    d = shards.n_features
    setup = Setup(how, np.arange(L), Scaling("standard", np.zeros(d), np.ones(d)), None, True)
    return blocks_of_shards(shards).map(partial(likelihood_of, setup, None)), np.zeros((L, d + 1))


def measured(function, repeats: int = 3) -> tuple[float, float]:
    """Seconds on the wall and of processor time, the best of some calls each."""
    wall = busy = np.inf
    for _ in range(repeats):
        start, began = time.perf_counter(), time.process_time()
        function()
        wall, busy = min(wall, time.perf_counter() - start), min(busy, time.process_time() - began)
    return wall, busy


def make(folder: str, gb: float, part_mb: float, flat: bool = True) -> None:
    start = time.perf_counter()
    n = gb * 1e9 / (4 * D)
    shards = ShardedBags.write(pieces(n), folder, part_bytes=int(part_mb * 2**20), flat=flat)
    print(f"{shards}\nwritten in {time.perf_counter() - start:.0f} s; peak memory {peak():.2f} GB")


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def one_pass(folder: str, parts: int) -> None:
    """A streamed pass (read, scale, value and gradient) against the same with all parts held."""
    shards = ShardedBags.open(folder)
    parts = min(parts, shards.n_parts)
    shards = shards[: int(shards.part_bags[:parts].sum())]
    held, W = likelihoods(shards.in_memory())
    map_reduce(value_and_gradient, W, held)  # compiles, and prepares the parts
    streamed, _ = likelihoods(shards)
    n = shards.n_instances
    size = sum(p.n_bytes for p in shards.manifest.parts[:parts]) / 1e6
    print(f"{n:,} instances, {size:,.0f} MB in {parts} parts")

    def row(what: str, took: tuple[float, float], rest: str = "") -> None:
        rates = f"{size / took[0]:6.0f} MB/s, {n / took[0]:8.3g} instances/s"
        print(f"{what:32s} {rates}, {1e3 * took[1] / parts:4.0f} ms of processor time per part{rest}")

    files = [shards.place.join(p.file) for p in shards.manifest.parts[:parts]]
    row("files, as bytes", measured(lambda: [Path(f).read_bytes() for f in files]))
    row("parts read", measured(lambda: [len(shards.part(k)) for k in range(parts)]))
    row("parts read and scaled", measured(lambda: [len(streamed.load(k).X) for k in range(parts)]))
    in_memory = measured(lambda: map_reduce(value_and_gradient, W, held))
    row("pass, parts in memory", in_memory)
    with memory_used_again():  # as in a fit
        from_disk = measured(lambda: map_reduce(value_and_gradient, W, streamed))
    row("pass, streamed", from_disk, f": {in_memory[0] / from_disk[0]:.0%} of the rate in memory")


def limit(folder: str, gb: float, max_iter: int) -> None:
    """A fit in a process that may not have more memory than this."""
    learner(1).fit(*_warm())  # compiled code is mapped before the limit is drawn
    # private memory: heap and anonymous maps, not the code of libraries
    resource.setrlimit(resource.RLIMIT_DATA, (int(gb * 1e9), int(gb * 1e9)))
    shards = ShardedBags.open(folder)
    size = shards.n_instances * D * 4 / 1e9
    start = time.perf_counter()
    model = learner(max_iter).fit(shards)
    took = time.perf_counter() - start
    part = max(p.n_instances for p in shards.manifest.parts) * D * 4 / 1e9
    print(f"{size:.2f} GB of instances under a hard limit of {gb:g} GB: {took:.0f} s for "
          f"{model.n_iter_} iterations; peak {peak():.2f} GB, parts of {part:.3f} GB")  # fmt: skip


def _warm():
    data = next(pieces(2000))
    return data.bags, data.Y


def cluster(folder: str, workers: int, max_iter: int) -> None:
    """A fit on Dask workers of one core against one streaming process; bits compared."""
    shards = ShardedBags.open(folder)
    alone, streaming, each = _fit_and_pass(shards, max_iter)
    print(f"one streaming process      {streaming:8.1f} s, an iteration {each:.2f} s")
    for n in dict.fromkeys([1, workers]):
        with on_cluster(f"local:{n}", loops=False) as there:
            learner(1).fit(shards)  # workers import and compile
            found, took, one = _fit_and_pass(shards, max_iter, there.forget)
        same = np.array_equal(found.coef_, alone.coef_)
        print(f"Dask, {n} workers            {took:8.1f} s, {streaming / took:.2f} times as fast; an "
              f"iteration {one:.2f} s, {each / one:.2f} times as fast; same bits: {same}")  # fmt: skip


def _fit_and_pass(shards, max_iter: int, forget=lambda: None):
    """A fitted model, its seconds, and seconds of an iteration, without what comes before the first."""
    took = []
    for n in (2, max_iter):
        forget()
        start = time.perf_counter()
        model = learner(n).fit(shards)
        took.append(time.perf_counter() - start)
    return model, took[1], (took[1] - took[0]) / (max_iter - 2)


def growth(folder: str, most: float, least: float, d: int) -> None:
    """Seconds per instance of one pass, ORed and MIMLfast, over sizes a factor of ten apart."""

    def fast():
        return MIMLFast(max_iter=1, validation=0, n_sub_concepts=1, n_components=50, solver="minibatch",
                        random_state=0)  # fmt: skip

    rows = []
    n = least
    fast().fit(*_warm())  # compiles
    learner(1).fit(*_warm())
    print(f"{d} features; times per instance of a pass of ORed, and of scaling and a round of MIMLfast")
    while n <= most * 1.001:
        place = Path(folder) / f"n{n:.0e}-{d}"
        shards = ShardedBags.open(place) if place.exists() else ShardedBags.write(pieces(n, d=d), place)
        parts, W = likelihoods(shards)
        repeats = 3 if n < 1e7 else 1
        map_reduce(value_and_gradient, W, parts) if n < 1e7 else shards.check()  # in the cache of the disk
        ored = measured(partial(map_reduce, value_and_gradient, W, parts), repeats)[0]
        once = measured(lambda: fast().fit(shards), repeats)[0]  # noqa: B023
        rows.append((shards.n_instances, ored, once))
        each = f"ORed {1e9 * ored / n:6.0f} ns, MIMLfast {1e9 * once / n:6.0f} ns"
        print(f"{shards.n_instances:>13,} instances: {each}", flush=True)
        n *= 10
    logs = np.log(np.array(rows))
    for k, name in ((1, "ORed"), (2, "MIMLfast")):
        print(f"{name}: slope {np.polyfit(logs[:, 0], logs[:, k], 1)[0]:.3f}")


def kills(folder: str, kills: int, workers: int, max_iter: int) -> None:
    """Kill a worker every second or so while fits run; every result must have the bits of the first."""
    shards = ShardedBags.open(folder)
    expected = learner(max_iter).fit(shards)
    killed: list[int] = []
    with on_cluster(f"local:{workers}", loops=False) as there:
        done = threading.Event()
        random = np.random.default_rng()

        def killer() -> None:
            while not done.wait(random.uniform(0.2, 2.0)) and len(killed) < kills:
                try:
                    found = there.client.run(os.getpid, on_error="ignore").values()
                except Exception:  # the worker that was asked has just died
                    continue
                alive = [p for p in found if isinstance(p, int) and p not in killed]
                if len(alive) > 1:  # another goes on meanwhile
                    killed.append(int(random.choice(alive)))
                    os.kill(killed[-1], signal.SIGKILL)

        thread = threading.Thread(target=killer)
        thread.start()
        fits = different = 0
        start = time.perf_counter()
        while len(killed) < kills:
            before = len(killed)
            found = learner(max_iter).fit(shards)
            fits += 1
            different += not np.array_equal(found.coef_, expected.coef_)
            took = f"{time.perf_counter() - start:.0f} s"
            print(f"{took}: {fits} fits, {len(killed)} kills, {len(killed) - before} of them in this fit, "
                  f"{different} differ", flush=True)  # fmt: skip
        done.set()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "what", choices=["make", "pass", "limit", "cluster", "growth", "kills", "simulate", "others", "small"]
    )
    parser.add_argument("folder", nargs="?", default="")
    parser.add_argument("--gb", type=float, default=1.0)
    parser.add_argument("--part-mb", type=float, default=128.0)
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--workers", type=int, nargs="+", default=[2])
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--least", type=float, default=1e5)
    parser.add_argument("--most", type=float, default=1e6)
    parser.add_argument("--features", type=int, default=D)
    parser.add_argument("--packed", action="store_true")
    parser.add_argument("--deaths", type=int, default=3)
    given = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)  # fits are stopped on purpose
    if given.what == "make":
        make(given.folder, given.gb, given.part_mb, not given.packed)
    elif given.what == "pass":
        one_pass(given.folder, given.parts)
    elif given.what == "limit":
        limit(given.folder, given.gb, given.iterations)
    elif given.what == "cluster":
        cluster(given.folder, given.workers[0], given.iterations)
    elif given.what == "growth":
        growth(given.folder, given.most, given.least, given.features)
    elif given.what == "kills":
        kills(given.folder, given.kills, given.workers[0], given.iterations)
    elif given.what == "simulate":
        from scale_workers import simulate

        simulate(given.workers, 0.2, 30, 8.0, given.deaths)
    elif given.what == "others":
        from scale_others import others

        others(given.folder, given.parts)
    else:
        small()


def limit_in_a_process_of_its_own(folder: str) -> None:
    words = ["limit", folder, "--gb", "1", "--iterations", "2"]
    subprocess.run([sys.executable, __file__, *words], check=True)


def small() -> None:
    """All of it at a size for a few minutes."""
    folder = tempfile.mkdtemp()
    try:
        make(f"{folder}/s", 0.2, 32)
        one_pass(f"{folder}/s", 4)
        cluster(f"{folder}/s", 2, 5)
        limit_in_a_process_of_its_own(f"{folder}/s")
        kills(f"{folder}/s", 2, 2, 3)
        growth(f"{folder}/g", 1e6, 1e5, 10)
        from scale_others import others
        from scale_workers import simulate

        simulate([100], 0.2, 30, 8.0, 1)
        others(f"{folder}/s", 1)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
