"""Dask: the bits of one machine, whatever dies on the way."""

import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

from bagwise import ShardedBags, load_dataset, on_cluster
from bagwise.errors import BagwiseError, DataError
from bagwise.models import ORedLogisticRegression

pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(os.name == "nt", reason="no SIGKILL"),
]


def model():
    return ORedLogisticRegression(alpha=1.0, background=False, decision="union", max_iter=12)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    data = load_dataset("digits", n_bags=120)
    return ShardedBags.write(data, tmp_path_factory.mktemp("shards") / "s", part_bytes=12_000)


def test_same_bits_and_kills(shards):
    expected = model().fit(shards)
    with on_cluster("local:2") as cluster:
        assert cluster.n_workers == 2 and cluster.dashboard_link.startswith("http")
        found = model().fit(shards)
        np.testing.assert_array_equal(found.coef_, expected.coef_)
        np.testing.assert_array_equal(found.predict(shards), expected.predict(shards))
        killed = []

        def killer():
            while len(killed) < 2 and not done.wait(0.7):
                alive = [pid for pid in cluster.client.run(os.getpid).values() if pid not in killed]
                if alive:
                    killed.append(alive[0])
                    os.kill(alive[0], signal.SIGKILL)

        done = threading.Event()
        thread = threading.Thread(target=killer, daemon=True)
        thread.start()
        for _ in range(20):  # until both kills have hit a fit
            found = model().fit(shards)
            np.testing.assert_array_equal(found.coef_, expected.coef_)
            if len(killed) == 2:
                break
        done.set()
        thread.join()
        assert killed
        folder = shards.place.folder
        part = Path(folder) / "part-00002.parquet"
        content = part.read_bytes()
        try:
            part.write_bytes(b"nothing")
            cluster.forget()
            with pytest.raises(DataError, match="part-00002"):
                model().fit(shards[1:])
        finally:
            part.write_bytes(content)


def test_clusters_that_are_none():
    with pytest.raises(BagwiseError, match="local:4"), on_cluster("local:many"):
        pass
