"""Dask: the bits of one machine, however many workers there are, in runs of any length, whatever dies."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from learned_bits import same_bits

from bagwise import ShardedBags, load_dataset, on_cluster
from bagwise.compute import dask as room
from bagwise.compute.parts import Parts, watched
from bagwise.errors import BagwiseError, DataError
from bagwise.models import MIMLFast, ORedLogisticRegression, PooledLogisticRegression

pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(os.name == "nt", reason="no SIGKILL"),
]

LEARNERS = {
    "ored": lambda: ORedLogisticRegression(alpha=1.0, background=False, decision="union", max_iter=4),
    "mimlfast": lambda: MIMLFast(n_components=8, n_sub_concepts=1, max_iter=2, random_state=0),
    "pooled": lambda: PooledLogisticRegression(statistics=("mean", "max"), max_iter=4),
}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    data = load_dataset("digits", n_bags=60)
    shards = ShardedBags.write(data, tmp_path_factory.mktemp("shards") / "s", part_bytes=7_000)
    assert shards.n_parts > 8
    return shards


@pytest.fixture(scope="module")
def expected(shards):
    """Fits that stream, which have the bits of fits with all parts held."""
    found = {name: make().fit(shards) for name, make in LEARNERS.items()}
    held = shards.in_memory()
    for name, make in LEARNERS.items():
        same_bits(make().fit(held), found[name])
    return found


@pytest.fixture(scope="module")
def cluster(forked_workers):
    with on_cluster("local:2") as there:
        yield there


@pytest.fixture(autouse=True)
def inside(request):
    """Fixtures of a module run in a context of their own: name the engine in that of the test."""
    if "cluster" in request.fixturenames:
        there = request.getfixturevalue("cluster")
        token = room.current_engine.set(there)
        yield
        room.current_engine.reset(token)
    else:
        yield


RUNS = {"parts by themselves": (1.0, 0.0), "runs": (1e-6, 5e-2)}  # seconds of a byte, and of a task


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("keep", [0.5, 0.0], ids=["kept", "streamed"])
def test_same_bits(expected, shards, cluster, monkeypatch, runs, keep):
    each, task = RUNS[runs]
    monkeypatch.setattr(room, "_BYTE_SECONDS", each)
    monkeypatch.setattr(room, "_TASK_SECONDS", task)
    monkeypatch.setattr(room, "_SHARE", keep)
    monkeypatch.setattr(room, "GATHERED", 4)
    cluster.forget()
    for name in LEARNERS if keep and task == 0 else ["ored"]:
        same_bits(LEARNERS[name]().fit(shards), expected[name])
        plan = cluster._plans[-1]
        assert (plan.length == 1) == (task == 0) and (plan.owners is not None) == (keep > 0), plan
    model = expected["ored"]
    np.testing.assert_array_equal(model.predict(shards), model.predict(shards.load().bags))
    cluster.forget()


@pytest.mark.parametrize("name", ["ored", "mimlfast"])
def test_workers_that_are_killed(expected, shards, cluster, monkeypatch, name):
    assert cluster.n_workers == 2 and cluster.dashboard_link.startswith("http")
    monkeypatch.setattr(room, "_BYTE_SECONDS", 1.0)
    cluster.forget()
    killed, reports = [], []

    def report(step, part, n_parts):
        """Kill a worker in the midst of a pass, twice."""
        reports.append(part)
        if len(killed) < 2 and len(reports) in (15, 40):
            alive = list(cluster.client.run(os.getpid, on_error="ignore").values())
            killed.append(next(pid for pid in alive if pid not in killed))
            os.kill(killed[-1], signal.SIGKILL)

    with watched(report):
        found = LEARNERS[name]().fit(shards)
    assert len(killed) == 2
    same_bits(found, expected[name])
    cluster.forget()


def test_one_worker_and_a_part_that_is_spoiled(expected, shards, cluster):
    cluster.client.cluster.scale(1)
    cluster.client.sync(cluster.client.cluster._correct_state)
    same_bits(LEARNERS["ored"]().fit(shards), expected["ored"])
    part = Path(shards.place.folder) / "part-00002.parquet"
    content = part.read_bytes()
    try:
        part.write_bytes(b"nothing")
        cluster.client.restart()  # workers that have not seen it
        model = LEARNERS["ored"]()
        with pytest.raises(DataError, match="part-00002"):
            model.fit(shards)
        assert not hasattr(model, "coef_")
    finally:
        part.write_bytes(content)


def test_clusters_that_are_none():
    with pytest.raises(BagwiseError, match="local:4"), on_cluster("local:many"):
        pass


class Scheduler:
    """What a client says of workers."""

    def __init__(self, threads, at_work=()):
        self.threads, self.at_work = threads, at_work

    def nthreads(self):
        return self.threads

    def processing(self):
        return {"w1": self.at_work}


def test_runs_of_workers_that_are_gone_are_shared_evenly(monkeypatch):
    plan = room._Plan("data", 2, list("abcdef"), ["w1", "w2", "w3"] * 2)
    there, asked = room.Cluster(None), []

    def load(name, function, runs, owners):
        asked.append((runs, owners))
        return [f"{owner} {run}" for run, owner in zip(runs, owners)]

    monkeypatch.setattr(there, "_map", load)
    parts = Parts(list(range(11)))
    assert there._moved(plan, parts, {"w1": 1, "w2": 1, "w3": 1, "w4": 1}) is plan and not asked
    assert there._moved(plan, parts, {}) is plan  # nobody is there to load them
    moved = there._moved(plan, parts, {"w1": 1, "w4": 2})
    assert moved.owners == ["w1", "w4", "w4", "w1", "w4", "w4"]
    assert asked == [([[2, 3], [4, 5], [8, 9], [10]], ["w4"] * 4)]
    assert moved.runs == ["a", "w4 [2, 3]", "w4 [4, 5]", "d", "w4 [8, 9]", "w4 [10]"]


def test_a_pass_that_waits_in_vain_is_made_again(monkeypatch):
    there = room.Cluster(Scheduler({"w1": 1}))
    assert not there._waits_in_vain()  # nobody was asked for
    there._plans = [room._Plan("data", 1, [], ["w1", "w2"])]
    assert there._waits_in_vain()
    there.client = Scheduler({"w1": 1}, at_work=(f"step-{os.getpid()}-7-3",))
    assert not there._waits_in_vain()  # what died is being done again
    there.client = Scheduler({})
    assert not there._waits_in_vain()  # workers may come
    calls = []

    def total(*given):
        calls.append(list(there._plans))
        if len(calls) == 1:
            raise room._Waiting
        return 7

    monkeypatch.setattr(there, "_total", total)
    assert there.total(None, None, None, None) == 7 and len(calls[0]) == 1 and not calls[1]

    def each(step, params, parts, first):
        yield from "abc"[first : first + 2]
        if first == 0:
            raise room._Waiting

    monkeypatch.setattr(there, "_each", each)
    assert "".join(there.each(None, None, "abc")) == "abc"
