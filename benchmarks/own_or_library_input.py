"""Reading MATLAB files and fetching published ones: what we wrote ourselves beside SciPy and pooch.

    python benchmarks/own_or_library_input.py [matlab] [downloads] [--files 3000] [--repeats 5]

``matlab`` reads public sets from the folder BAGWISE_DATA and spoils copies of them and of small files: SciPy
is asked behind a check that nothing unpacks to more than allowed. ``downloads`` counts what a server sends
that cuts its answers. Seconds are those of the processor.
"""

import argparse
import hashlib
import http.server
import io
import os
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from pathlib import Path

import numpy as np
import pooch
from scipy import io as scipy_io
from scipy import sparse

from bagwise.datasets.download import fetch
from bagwise.errors import DownloadError
from bagwise.io._mat5 import read_variables


def median_seconds(ways, repeats, clock=time.process_time):
    """Median seconds of each of some functions, called in turns after one call each that does not count."""
    seconds = {name: [] for name in ways}
    for turn in range(repeats + 1):
        for name, way in ways.items():
            start = clock()
            way()
            if turn:
                seconds[name].append(clock() - start)
    return {name: float(np.median(taken)) for name, taken in seconds.items()}


# ---------------------------------------------------------------------- MATLAB files

ASK = """
import io, resource, sys, zlib
from pathlib import Path
way, folder, first, limit = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
from scipy import io as scipy_io
from bagwise.errors import DataError
import bagwise.io._mat5 as mat5
start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

def checked(path):
    content, at, left = memoryview(path.read_bytes()), 128, limit
    while at + 8 <= len(content):
        kind, size = (int.from_bytes(content[k : k + 4], "little") for k in (at, at + 4))
        if size > len(content) - at - 8:
            raise ValueError("truncated")
        if kind == 15:
            left -= len(zlib.decompressobj().decompress(content[at + 8 : at + 8 + size], left + 1))
            if left < 0:
                raise ValueError("unpacks to more than allowed")
        at += 8 + size
    return scipy_io.loadmat(io.BytesIO(content))

ways = {"ours": lambda path: mat5.read_variables(path, limit), "scipy": checked}
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
for k in range(first, len(list(folder.iterdir()))):
    print("file", k, flush=True)
    try:
        ways[way](folder / f"{k}.mat")
    except DataError:
        pass
    except Exception as error:
        print("error", type(error).__name__, flush=True)
print("MB", (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start) // 1024)
"""


def mat_element(kind, body):
    return struct.pack("<II", kind, len(body)) + body + b"\0" * (-len(body) % 8)


def mat_head(kind, shape):
    flags = mat_element(6, struct.pack("<II", kind, 0))
    return flags + mat_element(5, struct.pack("<2i", *shape)) + mat_element(1, b"")


def hostile_files():
    """Files that are no accident: cells within cells, and cells, numbers and entries that are not there."""
    start = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"
    head, inner = mat_head(1, (1, 1)), mat_element(14, mat_head(6, (1, 1)) + mat_element(9, b"\0" * 8))
    parts, size = [inner], len(inner)
    for _ in range(20_000):
        parts.append(struct.pack("<II", 14, len(head) + size) + head)
        size += len(head) + 8
    nested = b"".join(reversed(parts))
    yield start + nested
    yield start + mat_element(15, zlib.compress(nested))[: 8 + len(zlib.compress(nested))]
    for kind in (1, 2, 6):
        yield start + mat_element(14, mat_head(kind, (2**28, 1)) + mat_element(9, b"\0" * 8))


def matlab(given):
    """Time on public files, and what becomes of spoiled ones, behind a check of the unpacked size."""
    folder = Path(os.environ["BAGWISE_DATA"])
    files = [folder / "letter_frost/newlabels.mat", folder / "msrcv2/MSRCv2.mat", folder / "sival/SIVAL1.mat"]
    print(f"{'file':<20}{'ours s':>9}{'scipy s':>9}{'ratio':>8}")
    for path in files:
        ways = {"ours": lambda p=path: read_variables(p), "scipy": lambda p=path: scipy_io.loadmat(p)}
        taken = median_seconds(ways, given.repeats)
        ours, theirs = taken["ours"], taken["scipy"]
        print(f"{path.name:<20}{ours:>9.4f}{theirs:>9.4f}{theirs / ours:>8.2f}")
    cell = np.empty((1, 3), dtype=object)
    cell[0, 0], cell[0, 1], cell[0, 2] = np.eye(3), "ab", sparse.csc_array(np.eye(3))
    kept = {"c": cell, "s": sparse.csc_array(np.eye(4)), "n": np.arange(6.0), "t": "wren", "st": {"f": 1}}
    sources = [files[0].read_bytes()]
    for compress in (False, True):
        buffer = io.BytesIO()
        scipy_io.savemat(buffer, kept, do_compression=compress)
        sources.append(buffer.getvalue())
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        contents = list(hostile_files())
        for k in range(given.files):
            content = bytearray(sources[k % len(sources) if k % 5 else 1])
            for _ in range(rng.integers(1, 5)):
                content[rng.integers(128, len(content))] = rng.integers(256)
            contents.append(bytes(content[: rng.integers(128, len(content) + 1) if k % 3 == 0 else None]))
        for k, content in enumerate(contents):
            (place / f"{k}.mat").write_bytes(content)
        for way in ("ours", "scipy"):
            print(f"{way}: {len(contents)} spoiled files,", outcome(way, place))


def outcome(way, place):
    """Ends of the process, errors that are not plain, and memory, over all files."""
    first, n, died, megabytes, errors = 0, len(list(place.iterdir())), [], 0, {}
    while first < n:
        command = [sys.executable, "-c", ASK, way, str(place), str(first), str(1 << 28)]
        done = subprocess.run(command, capture_output=True, text=True)
        lines = [line.split() for line in done.stdout.splitlines()]
        last = max((int(words[1]) for words in lines if words[0] == "file"), default=n)
        for words in lines:
            if words[0] == "error":
                errors[words[1]] = errors.get(words[1], 0) + 1
            megabytes = max(megabytes, int(words[1])) if words[0] == "MB" else megabytes
        if done.returncode:
            died.append(done.returncode)
        first = last + 1 if done.returncode else n
    ends = f"{len(died)} ended the process (signals {sorted({-code for code in died})})"
    return f"{ends}; errors: {errors or 'DataError alone'}; {megabytes} MB at most"


# ---------------------------------------------------------------------- downloads


def downloads(given):
    """Bytes that a server sends in all where it cuts every answer after 400,000 bytes of a million."""
    content, sent = np.random.default_rng(0).bytes(1_000_000), [0]

    class Cutting(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked = self.headers.get("Range")
            start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
            self.send_response(206 if asked else 200)
            if asked:
                self.send_header("Content-Range", f"bytes {start}-999999/1000000")
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            self.wfile.write(content[start : start + 400_000])
            sent[0] += len(content[start : start + 400_000])

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Cutting)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ["no_proxy"] = "127.0.0.1"
    url, digest = f"http://127.0.0.1:{server.server_port}/data.bin", hashlib.sha256(content).hexdigest()
    with tempfile.TemporaryDirectory() as place:
        theirs = pooch.create(
            Path(place, "pooch"),
            url.removesuffix("data.bin"),
            registry={"data.bin": digest},
            retry_if_failed=3,
        )
        ways = {
            "ours": lambda: fetch(url, Path(place, "ours/data.bin"), digest, 1_000_000, pause=0.01),
            "pooch": lambda: theirs.fetch("data.bin"),
        }
        for name, way in ways.items():
            sent[0] = 0
            try:
                way()
                end = "the file"
            except (DownloadError, OSError, ValueError) as error:
                end = type(error).__name__
            print(f"{name}: {sent[0]:,} bytes for {end}")
    server.shutdown()


PARTS = {part.__name__: part for part in (matlab, downloads)}


def main():
    """Run the parts that are named, or all."""
    words = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    words.add_argument(
        "parts", nargs="*", choices=[[], *PARTS], default=[], metavar="PART", help=", ".join(PARTS)
    )
    words.add_argument("--repeats", type=int, default=5)
    words.add_argument("--files", type=int, default=3000, help="matlab: spoiled files")
    given = words.parse_args()
    for name in given.parts or PARTS:
        print(f"\n{name}: {PARTS[name].__doc__}")
        PARTS[name](given)


if __name__ == "__main__":
    main()
