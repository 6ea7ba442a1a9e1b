"""How fast files become bags, and how well models read them: one function per medium.

python benchmarks/media.py [audio pictures text embeddings quality ...]

Files are generated in a temporary folder. Seconds are those of the processor on one core, best of three, each
in a process of its own; memory is the peak of that process beyond what it took before the first file.
"""

import argparse
import inspect
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

RUNS = 3
CHILD = """
import json, resource, sys, time
sys.path.insert(0, {here!r})
import media
work = media.{name}_work(**json.loads(sys.argv[1]))
next(work)
before = resource.getrusage(resource.RUSAGE_SELF)
answer = next(work)
after = resource.getrusage(resource.RUSAGE_SELF)
seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
print(json.dumps([seconds, after.ru_maxrss / 1024, (after.ru_maxrss - before.ru_maxrss) / 1024, answer]))
"""


def measured(name, runs=RUNS, **arguments):
    """Best CPU seconds, peak memory in MB (whole, and of the work alone) and the answer of ``<name>_work``.

    ``<name>_work(**arguments)`` is a generator: what comes before its first ``yield`` (imports, a first small
    file) is not counted, what comes before its second is; the second value is the answer.
    """
    code = CHILD.format(here=os.path.dirname(os.path.abspath(__file__)), name=name)
    found = []
    for _ in range(runs):
        one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
        done = subprocess.run(
            [sys.executable, "-c", code, json.dumps(arguments)],
            env=os.environ | one,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            sys.exit(done.stderr)
        found.append(json.loads(done.stdout.splitlines()[-1]))
    seconds, peak, more, answer = min(found)
    return seconds, peak, more, answer


# ---------------------------------------------------------------------- audio


def audio(folder):
    """Recorded seconds per second of one core, with the default description; memory of a 2-hour file."""
    for minutes, runs in ((10, RUNS), (120, 1)):
        path = folder / f"{minutes}.wav"
        _write_noise(path, minutes * 60, 48_000)
        seconds, peak, more, n = measured("audio", runs, path=str(path))
        print(
            f"audio, 48 kHz, {minutes} minutes, {n} windows: {minutes * 60 / seconds:.0f} times real time, "
            f"peak {peak:.0f} MB ({more:.0f} MB for the file)"
        )
        path.unlink()


def audio_work(path):
    import numpy as np

    from bagwise.media import AudioToBags

    rng = np.random.default_rng(0)
    AudioToBags().transform([(0.1 * rng.standard_normal(48_000 * 6).astype(np.float32), 48_000)])
    yield
    yield AudioToBags().transform([path]).n_instances


def _write_noise(path, seconds, rate):
    import wave

    import numpy as np

    rng = np.random.default_rng(0)
    block = (3000 * rng.standard_normal(rate * 10)).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        for k in range(seconds // 10):
            file.writeframes(np.roll(block, 977 * k).tobytes())


# ---------------------------------------------------------------------- pictures


def pictures(folder):
    """Pictures of 512 x 512 per second of one core, cut by a grid."""
    from bagwise.datasets.media import make_collages

    make_collages(folder, 40, patch=128, patches=4)
    seconds, peak, more, n = measured("pictures", folder=str(folder))
    rate = f"{40 / seconds:.0f} pictures/s"
    print(f"pictures, 512 x 512, grid, {n} cells: {rate}, peak {peak:.0f} MB ({more:.0f} MB)")


def pictures_work(folder):
    from bagwise.media import ImagesToBags, find_files

    files = find_files(folder)
    ImagesToBags().transform(files[:1])
    yield
    yield ImagesToBags().transform(files).n_instances


# ---------------------------------------------------------------------- text


def text(folder):
    """MB of text per second of one core, in sentences."""
    from bagwise.datasets.media import make_documents

    make_documents(folder, 200, sentences=(400, 600))
    size = sum(path.stat().st_size for path in folder.iterdir())
    seconds, peak, more, n = measured("text", folder=str(folder))
    print(f"text, {n} sentences: {size / 1e6 / seconds:.1f} MB/s, peak {peak:.0f} MB ({more:.0f} MB)")


def text_work(folder):
    from bagwise.media import TextToBags, find_files

    files = find_files(folder)
    TextToBags().transform(files[:1])
    yield
    yield TextToBags().transform(files).n_instances


# ---------------------------------------------------------------------- embeddings


def embeddings(folder):
    """Time to make bags of embeddings beside the time to read their bytes, in one process, by turns."""
    import numpy as np

    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 1024)).astype(np.float32)
    for k in range(16):
        np.save(folder / f"slide_{k:02d}.npy", np.roll(X, k, axis=0))
    seconds, peak, _, ratio = measured("embeddings", folder=str(folder))
    print(
        f"embeddings, 16 npy files of 16 MB: {ratio:.2f} times reading the bytes, {seconds:.2f} s, "
        f"peak {peak:.0f} MB"
    )


def embeddings_work(folder):
    import time

    from bagwise.media import EmbeddingsToBags, find_files

    files = find_files(folder)
    EmbeddingsToBags().transform(files[:1])
    yield
    ratios = []
    for _ in range(5):
        start = time.perf_counter()
        kept = [Path(file.path).read_bytes() for file in files]
        middle = time.perf_counter()
        bags = EmbeddingsToBags().transform(files)
        ratios.append((time.perf_counter() - middle) / (middle - start))
        del kept, bags
    yield sorted(ratios)[len(ratios) // 2]


def main():
    functions = {
        name: function
        for name, function in globals().items()
        if inspect.isfunction(function) and list(inspect.signature(function).parameters) == ["folder"]
        if not name.endswith("_work")
    }
    words = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    words.add_argument("media", nargs="*", help=f"among {', '.join(functions)}; all by default")
    for name in words.parse_args().media or functions:
        with tempfile.TemporaryDirectory() as folder:
            functions[name](Path(folder))


if __name__ == "__main__":
    main()
