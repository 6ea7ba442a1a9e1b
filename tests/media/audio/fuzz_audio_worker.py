"""Throw mutated sound files at the decoder; run as ``fuzz_audio_worker.py SUFFIX,... SEED COUNT FOLDER``.

A process of its own, so that a crash, a hang or a huge allocation is seen from outside. Prints one JSON
object per suffix, as the fuzzing of the readers does.
"""

import json
import random
import resource
import sys
import time
import traceback
from pathlib import Path

import numpy as np
import soundfile

sys.path.insert(0, str(Path(__file__).parents[2] / "io"))
from fuzz_worker import fresh_peak, mutate, peak

from bagwise.errors import DataError
from bagwise.media import AudioToBags


def seeds(suffix, folder):
    rng = np.random.default_rng(0)
    path = folder / f"seed.{suffix}"
    kinds = {"wav": ("PCM_16", "FLOAT", "MS_ADPCM"), "aiff": ("PCM_16",)}.get(suffix, (None,))
    for kind in kinds:
        for channels in (1, 2):
            soundfile.write(path, 0.1 * rng.standard_normal((3000, channels)), 16000, subtype=kind)
            yield path.read_bytes()


def main():
    suffixes, seed, count, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    for suffix in suffixes.split(","):
        print("report", json.dumps(spoil(suffix, seed, count, folder)), flush=True)


def spoil(suffix, seed, count, folder):
    rng = random.Random(f"{suffix} {seed}")
    good = list(seeds(suffix, folder))
    path = folder / f"case.{suffix}"
    transformer = AudioToBags()
    for content in good:
        path.write_bytes(content)
        assert len(transformer._part(path).X) == 1
    before = fresh_peak()
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    report = {"read": 0, "refused": 0, "slowest": 0.0, "wrong": []}
    for k in range(count):
        content = bytearray(rng.choice(good))
        if rng.random() < 0.6:  # headers are short: most mutations would miss them
            content[:100] = mutate(bytes(content[:100]), rng)
        else:
            content = bytearray(mutate(bytes(content), rng))
        path.unlink()  # to write over a file may wait for the disk
        path.write_bytes(content)
        start = time.perf_counter()
        try:
            part = transformer._part(path)
            assert np.isfinite(part.X).all() and len(part.X) == len(part.places["start"])
            report["read"] += 1
        except DataError as error:
            report["refused"] += 1
            if str(path) not in str(error) or "\n" in str(error):
                report["wrong"].append(f"{k}: not one line that names the file: {error}")
        except Exception:
            report["wrong"].append(f"{k}: {traceback.format_exc()[-1500:]}")
        report["slowest"] = max(report["slowest"], time.perf_counter() - start)
    report["growth_mib"] = peak() - before
    return report


if __name__ == "__main__":
    main()
