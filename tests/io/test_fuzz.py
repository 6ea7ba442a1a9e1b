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


NAMES = [f.name for f in formats()]


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """One process for all formats, which spares the imports; a line of its output for each."""
    worker, folder = Path(__file__).with_name("fuzz_worker.py"), tmp_path_factory.mktemp("fuzz")
    done = subprocess.run(
        [sys.executable, worker, ",".join(NAMES), str(SEED), str(COUNT), folder],
        capture_output=True,
        text=True,
        timeout=60 + len(NAMES) * COUNT // 5,
    )
    return done, dict(zip(NAMES, map(json.loads, done.stdout.splitlines())))


@pytest.mark.parametrize("name", NAMES)
def test_mutated_files(reports, name):
    done, found = reports
    assert name in found, f"the reader took the process down ({done.returncode}): {done.stderr[-2000:]}"
    report = found[name]
    assert not report["wrong"], "\n\n".join(report["wrong"][:5])
    assert report["read"] + report["refused"] == COUNT
    assert report["refused"] > COUNT // 10  # the mutations do hurt
    assert report["slowest"] < 5.0  # seconds, on a busy machine
    assert report["growth_mib"] < 200
