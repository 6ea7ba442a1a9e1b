"""What conversion, streams and fits hold in memory at most, measured in processes of their own."""

import json
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="needs Linux's /proc")

PART = 48_000_000  # bytes
ROOM = 64_000_000  # for what does not grow with parts: buffers, compiled code, statistics

MEASURE = """
import json, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
from bagwise import Bags, ShardedBags
from bagwise.models import ORedLogisticRegression
from bagwise.shards.foreign import convert_parquet

def model():
    settings = {"background": False, "decision": "union", "device": "cpu"}  # torch itself takes 220 MB
    return ORedLogisticRegression(alpha=1.0, max_iter=2, **settings)

def peak(action):
    before = int(open("/proc/self/statm").read().split()[1]) * 4096
    open("/proc/self/clear_refs", "w").write("5")
    action()
    top = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(top.split()[1]) * 1024 - before

few, many, out, part = sys.argv[1:5]
convert_parquet(few, out + "/few", part_bytes=500)  # imports and compiles
model().fit(ShardedBags.open(out + "/few")).predict(ShardedBags.open(out + "/few"))
found = {"convert": peak(lambda: convert_parquet(many, out + "/many", part_bytes=int(part)))}
shards = ShardedBags.open(out + "/many")
found["iterate"] = peak(lambda: [len(data) for data in shards])
found["fit"] = peak(lambda: model().fit(shards))
found["n_parts"] = shards.n_parts
print(json.dumps(found))
"""


def foreign(path, n_bags):
    """One row per instance, a column of embeddings, names of labels."""
    ids = np.repeat(np.arange(n_bags), 10)
    X = np.random.default_rng(0).standard_normal((10 * n_bags, 100), dtype=np.float32)
    X[ids % 2 == 0, 0] += 1
    table = {"bag_id": ids, "x": pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 100)}
    pq.write_table(pa.table({**table, "labels": pa.array(np.where(ids % 2, "wren", "robin"))}), path)


def test_at_most_two_parts_to_convert_and_three_to_learn(tmp_path):
    foreign(tmp_path / "few.parquet", 20)
    foreign(tmp_path / "many.parquet", 50_000)  # 200 MB
    words = [tmp_path / "few.parquet", tmp_path / "many.parquet", tmp_path, PART]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *map(str, words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["n_parts"] == 5
    for what, parts in {"convert": 2, "iterate": 2, "fit": 3}.items():
        assert found[what] < parts * PART + ROOM, (what, found[what] / PART)
