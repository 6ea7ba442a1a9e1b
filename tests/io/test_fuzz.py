"""Whatever is in a file, a reader returns a data set or a clear error, soon and within its memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bagwise.io import formats

COUNT = int(os.environ.get("BAGWISE_FUZZ", "1000"))  # mutated files of each format
SEED = int(os.environ.get("BAGWISE_FUZZ_SEED", "0"))


@pytest.mark.parametrize("name", [f.name for f in formats()])
def test_mutated_files(tmp_path, name):
    worker = Path(__file__).with_name("fuzz_worker.py")
    done = subprocess.run(
        [sys.executable, worker, name, str(SEED), str(COUNT), tmp_path],
        capture_output=True,
        text=True,
        timeout=60 + COUNT // 5,
    )
    assert done.returncode == 0, (
        f"the reader took the process down ({done.returncode}): {done.stderr[-2000:]}"
    )
    report = json.loads(done.stdout)
    assert not report["wrong"], "\n\n".join(report["wrong"][:5])
    assert report["read"] + report["refused"] == COUNT
    assert report["refused"] > COUNT // 10  # the mutations do hurt
    assert report["slowest"] < 5.0  # seconds, on a busy machine
    assert report["growth_mib"] < 200
