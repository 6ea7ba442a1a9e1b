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


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg", "mp3", "aiff"])
def test_mutated_files(tmp_path, suffix):
    if suffix.upper() not in soundfile.available_formats():
        pytest.skip("this build of libsndfile lacks the format")
    worker = Path(__file__).with_name("fuzz_audio_worker.py")
    done = subprocess.run(
        [sys.executable, worker, suffix, str(SEED), str(COUNT), tmp_path],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60 + COUNT // 5,
    )
    assert done.returncode == 0, (
        f"the decoder took the process down ({done.returncode}): {done.stderr[-2000:]}"
    )
    report = json.loads(done.stdout.splitlines()[-1])
    assert not report["wrong"], "\n\n".join(report["wrong"][:5])
    assert report["read"] + report["refused"] == COUNT
    assert report["refused"] > COUNT // 20  # the mutations do hurt
    assert report["slowest"] < 5.0  # seconds, on a busy machine
    assert report["growth_mib"] < 200
