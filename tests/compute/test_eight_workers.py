"""Eight workers, each a process: the bits of one machine for all that learns from shards, whoever is killed.

The workers are forked from one process that has imported everything, so that eight take no longer than one.
"""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from learned_bits import same_bits

from bagwise import ShardedBags, load_dataset, on_cluster
from bagwise.compute import dask as room
from bagwise.compute.parts import watched
from bagwise.models import MIMLGP, MMMIL, MIMLFast, MIMLMix, ORedLogisticRegression

distributed = pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="forks"),
]

MIX = {"eta": 1.0, "xi": 0.1, "kappa": 300.0, "nu": 10.0, "alpha_train": 5.0, "n_topics": 3}
LEARNERS = {
    "ored": lambda: ORedLogisticRegression(alpha=1.0, background=False, decision="union", max_iter=4),
    "mimlfast": lambda: MIMLFast(n_components=8, n_sub_concepts=1, max_iter=3, random_state=0),
    "gp": lambda: MIMLGP(width=3.0, rank=10, label_covariance="identity", scale=5.0, max_iter=2),
    "mm_mil": lambda: MMMIL(1, max_iter=2, random_state=0),
    "mimlmix": lambda: MIMLMix(**MIX, max_iter=4, random_state=0),
}

WORKERS = """
import asyncio, os, runpy, sys, warnings
from bagwise import ShardedBags
from distributed import Worker

address, folder, shards, learners = sys.argv[1:]
sys.path.append(os.path.dirname(os.path.dirname(learners)))  # what tests share
warnings.simplefilter("ignore")
for make in runpy.run_path(learners)["LEARNERS"].values():  # compiled loops are there before the fork
    make().fit(ShardedBags.open(shards).in_memory())

async def serve():
    async with Worker(address, nthreads=1, memory_limit=2**30, local_directory=folder) as worker:
        await worker.finished()

children = []
for _ in range(8):
    child = os.fork()
    if not child:
        asyncio.run(serve())
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
"""


@pytest.fixture(autouse=True)
def parts_by_themselves(monkeypatch):
    """Parts as small as these would go to one or two workers."""
    monkeypatch.setattr(room, "_BYTE_SECONDS", 1.0)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    data = load_dataset("digits", n_bags=80)
    shards = ShardedBags.write(data, tmp_path_factory.mktemp("eight") / "s", part_bytes=8_000)
    assert shards.n_parts >= 12
    return shards


@pytest.fixture(scope="module")
def expected(shards):
    """Fits that stream, which have the bits of fits with all parts held; and how many parts each reported."""
    held, found, n_reports = shards.in_memory(), {}, {}
    for name, make in LEARNERS.items():
        reports = []
        with watched(lambda *report, to=reports: to.append(report)):
            found[name] = make().fit(shards)
        same_bits(make().fit(held), found[name])
        n_reports[name] = len(reports)
    return found, n_reports


@pytest.fixture(scope="module")
def client(tmp_path_factory, shards):
    import dask

    folder = str(tmp_path_factory.mktemp("workers"))
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 100}),
        distributed.LocalCluster(n_workers=0, dashboard_address=":0", silence_logs=50) as local,
        distributed.Client(local) as client,
    ):
        words = [local.scheduler_address, folder, shards.place.folder, __file__]
        command = [sys.executable, "-c", WORKERS, *map(str, words)]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                client.wait_for_workers(8, timeout=180)
                yield client
            finally:
                for pid in client.run(os.getpid, on_error="ignore").values():
                    os.kill(pid, signal.SIGKILL)
                process.wait()


def test_eight_processes(client, shards, expected):
    models, _ = expected
    with on_cluster(client) as cluster:
        assert cluster.n_workers == 8 and len(set(client.run(os.getpid).values())) == 8
        for name in ("ored", "mimlfast"):
            same_bits(LEARNERS[name]().fit(shards), models[name])
        owners = cluster._plans[-1].owners
        assert len(set(owners)) == 8 and max(map(owners.count, owners)) <= 2
        model = models["ored"]
        np.testing.assert_array_equal(model.predict(shards), model.predict(shards.load().bags))


@pytest.mark.parametrize("name", ["gp", "mm_mil", "mimlmix"])
def test_workers_that_are_killed(client, shards, expected, name):
    """One is killed in an early pass, another in a late one; nobody takes their place."""
    models, n_reports = expected
    moments = [n_reports[name] // 4, 3 * n_reports[name] // 4]
    reports, killed = [], []

    def kill(*report):
        reports.append(report)
        if len(reports) in moments:
            killed.append(max(client.run(os.getpid, on_error="ignore").values()))
            os.kill(killed[-1], signal.SIGKILL)

    with on_cluster(client) as cluster:
        before = cluster.n_workers
        with watched(kill):
            found = LEARNERS[name]().fit(shards)
        assert len(killed) == 2 and len(reports) >= n_reports[name]
        same_bits(found, models[name])
        while cluster.n_workers > before - 2:  # the scheduler learns of the second death in a moment
            time.sleep(0.05)
