"""Whatever bytes a sound file has, the decoder gives samples or one clear line, soon and in little memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

soundfile = pytest.importorskip("soundfile")
COUNT = int(os.environ.get("BAGWISE_FUZZ", "200"))
SEED = int(os.environ.get("BAGWISE_FUZZ_SEED", "0"))


SUFFIXES = ["wav", "flac", "ogg", "mp3", "aiff"]


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """One process for all formats that this libsndfile has; it may print by itself, too."""
    here = [suffix for suffix in SUFFIXES if suffix.upper() in soundfile.available_formats()]
    worker, folder = Path(__file__).with_name("fuzz_audio_worker.py"), tmp_path_factory.mktemp("fuzz")
    done = subprocess.run(
        [sys.executable, worker, ",".join(here), str(SEED), str(COUNT), folder],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60 + len(here) * COUNT // 5,
    )
    lines = [line[7:] for line in done.stdout.splitlines() if line.startswith("report {")]
    return done, dict(zip(here, map(json.loads, lines)))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_mutated_files(reports, suffix):
    if suffix.upper() not in soundfile.available_formats():
        pytest.skip("this build of libsndfile lacks the format")
    done, found = reports
    assert suffix in found, f"the decoder took the process down ({done.returncode}): {done.stderr[-2000:]}"
    report = found[suffix]
    assert not report["wrong"], "\n\n".join(report["wrong"][:5])
    assert report["read"] + report["refused"] == COUNT
    assert report["refused"] > COUNT // 20  # the mutations do hurt
    assert report["slowest"] < 5.0  # seconds, on a busy machine
    assert report["growth_mib"] < 200
