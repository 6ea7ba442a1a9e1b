"""Shards: rates, memory, clusters, growth, kills, a thousand workers, and what users would do instead.

Every figure of docs/scale.md is one command:

    python benchmarks/scale.py make FOLDER --gb 10          # generated bags as shards
    python benchmarks/scale.py pass FOLDER                  # streamed pass against the pass in memory
    python benchmarks/scale.py limit FOLDER --gb 2          # a whole fit under a hard limit of memory
    python benchmarks/scale.py cluster FOLDER --workers 2   # Dask against one streaming process
    python benchmarks/scale.py growth FOLDER --most 1e8     # seconds per instance from 1e5 instances on
    python benchmarks/scale.py kills FOLDER --kills 30      # workers killed with SIGKILL; bits compared
    python benchmarks/scale.py simulate --workers 1000      # a real scheduler, parts that sleep
    python benchmarks/scale.py others FOLDER                # SGDClassifier.partial_fit on the same data

All but `make`, `limit` and `kills` print ratios of things measured in turn in the same run.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np

from bagwise import Bags, Dataset, ShardedBags, on_cluster
from bagwise.base.blocks import blocks_of_shards
from bagwise.models import MIMLFast, ORedLogisticRegression
from bagwise.models._shared.scaling import Scaling
from bagwise.models.ored.parts import Setup, Treatment, prepared, value_and_gradient
from bagwise.parallel import map_reduce

D, L, SIZE = 100, 10, 10  # features, labels, instances per bag


def pieces(n_instances: float, seed: int = 0, at_once: int = 20_000):
    """Bags whose labels are those of their instances, which stand around a centre per label."""
    centres = np.random.default_rng(99).normal(size=(L, D)).astype(np.float32)
    n_bags, first = int(n_instances // SIZE), 0
    while first < n_bags:
        rng = np.random.default_rng([seed, first])
        n = min(at_once, n_bags - first)
        own = rng.integers(0, L, (n, 3))
        which = own[np.arange(n)[:, None], rng.integers(0, 3, (n, SIZE))]
        X = centres[which].reshape(-1, D) * 0.35 + rng.standard_normal((n * SIZE, D), dtype=np.float32)
        Y = np.zeros((n, L), np.int8)
        Y[np.arange(n)[:, None], which] = 1
        ids = np.arange(first, first + n)
        yield Dataset(Bags(X, np.arange(n + 1) * SIZE, bag_ids=ids), Y, [f"l{k}" for k in range(L)])
        first += n


def learner(max_iter: int = 10) -> ORedLogisticRegression:
    return ORedLogisticRegression(alpha=1.0, background=False, decision="union", max_iter=max_iter)


def likelihoods(shards: ShardedBags):
    """The parts of a fit after its first look at the data, and parameters to ask them about."""
    how = Treatment(False, 16, "candidates", 0.0, {"method": "auto", "max_labels": 16, "n_threads": 1})
    setup = Setup(how, np.arange(L), Scaling("standard", np.zeros(D), np.ones(D)), None, True)
    return prepared(blocks_of_shards(shards), setup), np.zeros((L, D + 1))


def seconds(function, repeats: int = 3) -> float:
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return best


def make(folder: str, gb: float, part_mb: float) -> None:
    start = time.perf_counter()
    n = gb * 1e9 / (4 * D)
    shards = ShardedBags.write(pieces(n), folder, part_bytes=int(part_mb * 2**20))
    print(f"{shards}\nwritten in {time.perf_counter() - start:.0f} s; peak memory {peak():.2f} GB")


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def one_pass(folder: str, parts: int) -> None:
    """A streamed pass (read, decode, scale, value and gradient) against the same with all parts held."""
    shards = ShardedBags.open(folder)
    n_bags = int(shards.part_bags[: min(parts, shards.n_parts)].sum())
    shards = shards[:n_bags]
    held, W = likelihoods(shards.in_memory())
    map_reduce(value_and_gradient, W, held)  # compiles, and prepares the parts
    streamed, _ = likelihoods(shards)
    n = shards.n_instances
    in_memory = seconds(lambda: map_reduce(value_and_gradient, W, held))
    from_disk = seconds(lambda: map_reduce(value_and_gradient, W, streamed))
    decode = seconds(lambda: [None for _ in map(shards.part, range(min(parts, shards.n_parts)))], 2)
    files = [shards.place.join(p.file) for p in shards.manifest.parts[:parts]]
    disk = seconds(lambda: [Path(f).read_bytes() for f in files], 1)
    size = sum(p.n_bytes for p in shards.manifest.parts[:parts]) / 1e6
    print(f"{n:,} instances, {size:,.0f} MB in {min(parts, shards.n_parts)} parts")
    print(f"reading the files          {size / disk:8.0f} MB/s")
    print(f"reading and decoding       {size / decode:8.0f} MB/s")
    print(f"pass, parts in memory      {n / in_memory:8.3g} instances/s")
    print(f"pass, streamed             {n / from_disk:8.3g} instances/s, {in_memory / from_disk:.0%} of that")


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
    start = time.perf_counter()
    alone = learner(max_iter).fit(shards)
    streaming = time.perf_counter() - start
    print(f"one streaming process      {streaming:8.1f} s")
    for n in dict.fromkeys([1, workers]):
        with on_cluster(f"local:{n}", loops=False) as there:
            learner(1).fit(shards)  # workers import and compile
            there.forget()
            start = time.perf_counter()
            found = learner(max_iter).fit(shards)
            took = time.perf_counter() - start
        same = np.array_equal(found.coef_, alone.coef_)
        ratio = f"{streaming / took:.2f} times as fast; same bits: {same}"
        print(f"Dask, {n} workers            {took:8.1f} s, {ratio}")


def growth(folder: str, most: float, least: float) -> None:
    """Seconds per instance of one pass, ORed and MIMLfast, over sizes a factor of ten apart."""
    rows = []
    n = least
    fast_once = MIMLFast(max_iter=1, validation=0, n_sub_concepts=1, n_components=50, solver="minibatch")
    fast_once.fit(*_warm())  # compiles
    learner(1).fit(*_warm())
    while n <= most * 1.001:
        place = Path(folder) / f"n{n:.0e}"
        shards = ShardedBags.open(place) if place.exists() else ShardedBags.write(pieces(n), place)
        parts, W = likelihoods(shards)
        ored = seconds(partial(map_reduce, value_and_gradient, W, parts), 2)
        start = time.perf_counter()
        MIMLFast(max_iter=1, validation=0, n_sub_concepts=1, n_components=50, solver="minibatch",
                 random_state=0).fit(shards)  # fmt: skip
        fast = time.perf_counter() - start
        rows.append((shards.n_instances, ored, fast))
        each = f"ORed {1e9 * ored / n:7.0f} ns per instance and pass, MIMLfast {1e9 * fast / n:7.0f} ns"
        print(f"{shards.n_instances:>13,} instances: {each} (scaling and one round)", flush=True)
        n *= 10
    logs = np.log(np.array(rows))
    for k, name in ((1, "ORed"), (2, "MIMLfast")):
        print(f"{name}: slope {np.polyfit(logs[:, 0], logs[:, k], 1)[0]:.3f}")


def kills(folder: str, kills: int, workers: int, max_iter: int) -> None:
    """Kill a worker every few seconds while fits run; every result must have the bits of the first."""
    shards = ShardedBags.open(folder)
    expected = learner(max_iter).fit(shards)
    killed: list[int] = []
    with on_cluster(f"local:{workers}", loops=False) as there:
        done = threading.Event()
        random = np.random.default_rng()

        def killer() -> None:
            while not done.wait(random.uniform(0.5, 4.0)):
                try:
                    alive = [p for p in there.client.run(os.getpid).values() if p not in killed]
                except Exception:  # the worker that was asked has just died
                    continue
                if len(alive) >= workers:  # the others go on meanwhile
                    killed.append(int(random.choice(alive)))
                    os.kill(killed[-1], signal.SIGKILL)

        thread = threading.Thread(target=killer)
        thread.start()
        fits = different = 0
        while len(killed) < kills:
            found = learner(max_iter).fit(shards)
            fits += 1
            different += not np.array_equal(found.coef_, expected.coef_)
            print(f"{fits} fits, {len(killed)} kills, {different} differ", flush=True)
        done.set()
        thread.join()


def simulate(workers: list[int], part_seconds: float, parts_each: int, megabytes: float) -> None:
    """A real scheduler with workers that are threads; a part sleeps as long as its pass would take."""
    from distributed import Client, LocalCluster

    from bagwise.parallel import Parts

    for n in workers:
        threads = max(1, n // 20)
        shape = {"n_workers": n // threads, "threads_per_worker": threads, "processes": False}
        with LocalCluster(**shape, dashboard_address=None, silence_logs=50) as local, Client(local) as client:
            items = [_Sleeper(k, part_seconds) for k in range(n * parts_each)]
            W = np.zeros(int(megabytes * 1e6 / 8))
            with on_cluster(client, loops=False):
                map_reduce(_asleep, W, Parts(items[:n]))
                start = time.perf_counter()
                map_reduce(_asleep, W, Parts(items))
                took = time.perf_counter() - start
        ideal = part_seconds * parts_each
        each = 1e3 * (took - ideal) / len(items)
        print(f"{n:5d} workers, {len(items)} parts of {part_seconds:g} s, {megabytes:g} MB of statistics:")
        print(
            f"      pass {took:.2f} s, ideal {ideal:.2f} s ({ideal / took:.0%}); {each:.2f} ms more per task"
        )


class _Sleeper:
    def __init__(self, k: int, duration: float) -> None:
        self.key = self.name = f"sleeper{k}"
        self.n_bytes, self.duration, self.k = 1, duration, k

    def load(self):
        return self

    def __reduce__(self):
        return _Sleeper, (self.k, self.duration)


def _asleep(W, part):
    rng = np.random.default_rng(part.k)
    time.sleep(part.duration * rng.uniform(0.9, 1.1))  # delays as machines have them
    return W


def others(folder: str, parts: int) -> None:
    """Instances with the labels of their bags, SGDClassifier.partial_fit, one pass; quality beside ours."""
    from sklearn.linear_model import SGDClassifier

    shards = ShardedBags.open(folder)
    shards = shards[: int(shards.part_bags[: min(parts + 1, shards.n_parts)].sum())]
    train, test = shards.split(0.1)
    held = test.sample(min(2000, len(test)), random_state=0)
    start = time.perf_counter()
    models = [SGDClassifier(loss="log_loss", random_state=0) for _ in range(L)]
    for data in train:
        Y = data.Y[data.bags.index]
        for label, model in enumerate(models):
            model.partial_fit(data.bags.X, Y[:, label], classes=[0, 1])
    sgd = time.perf_counter() - start
    scores = np.column_stack([m.decision_function(held.bags.X) for m in models])
    bag = np.maximum.reduceat(scores, held.bags.offsets[:-1], axis=0)
    from bagwise.metrics import evaluate

    start = time.perf_counter()
    ours = learner(15).fit(train)
    fit = time.perf_counter() - start
    start = time.perf_counter()
    fast = MIMLFast(max_iter=3, random_state=0, n_sub_concepts=1).fit(train)
    third = time.perf_counter() - start
    for name, took, found in (
        ("SGDClassifier.partial_fit, 1 pass", sgd, bag),
        (f"ORed, {ours.n_iter_} iterations", fit, ours.decision_function(held.bags)),
        ("MIMLfast, 3 rounds", third, fast.decision_function(held.bags)),
    ):
        quality = evaluate(held.Y, found)
        print(f"{name:36s} {took:7.1f} s, ranking loss {quality['ranking_loss']:.4f}, "
              f"average precision {quality['average_precision']:.4f}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "what", choices=["make", "pass", "limit", "cluster", "growth", "kills", "simulate", "others", "small"]
    )
    parser.add_argument("folder", nargs="?", default="")
    parser.add_argument("--gb", type=float, default=1.0)
    parser.add_argument("--part-mb", type=float, default=128.0)
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--workers", type=int, nargs="+", default=[2])
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--least", type=float, default=1e5)
    parser.add_argument("--most", type=float, default=1e6)
    given = parser.parse_args()
    if given.what == "make":
        make(given.folder, given.gb, given.part_mb)
    elif given.what == "pass":
        one_pass(given.folder, given.parts)
    elif given.what == "limit":
        limit(given.folder, given.gb, given.iterations)
    elif given.what == "cluster":
        cluster(given.folder, given.workers[0], given.iterations)
    elif given.what == "growth":
        growth(given.folder, given.most, given.least)
    elif given.what == "kills":
        kills(given.folder, given.kills, given.workers[0], given.iterations)
    elif given.what == "simulate":
        simulate(given.workers, 2.0, 3, 0.008)
    elif given.what == "others":
        others(given.folder, given.parts)
    else:
        small()


def small() -> None:
    """All of it at a size for a few minutes."""
    folder = tempfile.mkdtemp()
    try:
        make(f"{folder}/s", 0.2, 32)
        one_pass(f"{folder}/s", 4)
        cluster(f"{folder}/s", 2, 5)
        others(f"{folder}/s", 3)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
