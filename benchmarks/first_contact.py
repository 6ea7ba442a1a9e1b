"""CPU seconds of everything that a newcomer does first, with nothing compiled yet, on one core.

python benchmarks/first_contact.py [--models MIMLFast MIMLGP] [--bags 200]

Every line is a process of its own with an empty cache of compiled loops: the first ``fit`` and ``predict`` of
each estimator on bags of digits (the import before it is a column of its own), ``bagwise --help``,
``bagwise list`` and ``bagwise demo``. Seconds are those of the processor, user and system together.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile

FIT = """
import json, sys, time, warnings
start = time.process_time()
import bagwise
from bagwise import load_dataset
from bagwise.registry import get_estimator
warnings.simplefilter("ignore")
data = load_dataset("digits", n_bags=int(sys.argv[2]), random_state=0)
cls = get_estimator(sys.argv[1])
bags = data.labelled_bags() if cls.traits.instance_labels else data.bags
imported = time.process_time()
seed = {"random_state": 0} if "random_state" in cls().get_params() else {}
seconds = []
for _ in range(2):
    begin = time.process_time()
    cls(**seed).fit(bags, data.Y).predict(data.bags)
    seconds.append(time.process_time() - begin)
print(json.dumps([imported - start, *seconds]))
"""


def child_seconds(command):
    """CPU seconds of a command on one core with an empty cache, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as cache:
        settings = {"NUMBA_CACHE_DIR": cache, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        core = min(os.sched_getaffinity(0))
        done = subprocess.run(
            command,
            env=os.environ | settings,
            capture_output=True,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def main():
    words = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    words.add_argument("--models", nargs="*", help="only these estimators")
    words.add_argument("--bags", type=int, default=200)
    given = words.parse_args()
    base = [sys.executable, "-m", "bagwise"]
    with tempfile.TemporaryDirectory() as out:
        for name, more in (("--help", []), ("list", []), ("demo", ["--out", out])):
            seconds, _ = child_seconds([*base, name, *more])
            print(f"bagwise {name:<9} {seconds:6.1f} s", flush=True)
    listed = json.loads(child_seconds([*base, "list", "--json"])[1])
    names = given.models or [row["name"] for row in listed["estimators"]]
    print(f"\n{'estimator':<34}{'import':>8}{'first':>8}{'again':>8}   (s; fit + predict, {given.bags} bags)")
    for name in names:
        _, printed = child_seconds([sys.executable, "-c", FIT, name, str(given.bags)])
        imported, first, again = json.loads(printed)
        print(f"{name:<34}{imported:8.1f}{first:8.1f}{again:8.2f}{'   over 8 s' * (first > 8)}", flush=True)


if __name__ == "__main__":
    main()
