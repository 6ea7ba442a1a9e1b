"""Read every public set that is at hand, each in a process of its own; print time and memory as Markdown.

    python benchmarks/read_all_sets.py --data FOLDER

"First" is the first ``load_dataset`` of a process, which also imports what the reader needs; "again" the next
one. Peak memory is that of the whole process after the first (interpreter and libraries included); "above
start" leaves out what was there before, imports of the reader still counted.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time


def peak_mb() -> float:
    """Most memory that this process has held so far (Linux counts kilobytes, macOS bytes)."""
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / (2**20 if sys.platform == "darwin" else 2**10)


def read_one(name: str) -> None:
    from bagwise.datasets import load_dataset, loaders  # noqa: F401

    before = peak_mb()
    start = time.perf_counter()
    data = load_dataset(name, download=False)
    first, peak = time.perf_counter() - start, peak_mb()
    start = time.perf_counter()
    load_dataset(name, download=False)
    again = time.perf_counter() - start
    facts = {
        "bags": len(data),
        "instances": data.bags.n_instances,
        "features": data.bags.n_features,
        "labels": len(data.label_names),
        "first": first,
        "again": again,
        "peak": peak,
        "above": peak - before,
    }
    print(json.dumps(facts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", help="folder with the files; by default BAGWISE_DATA")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.data:
        os.environ["BAGWISE_DATA"] = arguments.data
    if arguments.one:
        read_one(arguments.one)
        return

    from bagwise.datasets import list_datasets

    print("| set | bags | instances | features | labels | first s | again s | peak MB | above start MB |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    first, again, most, missing = 0.0, 0.0, 0.0, []
    for row in list_datasets():
        name = row["name"]
        if row["status"] == "generated":
            continue
        if row["status"] != "at hand":
            missing.append(name)
            continue
        run = subprocess.run(
            [sys.executable, __file__, "--one", name], capture_output=True, text=True, check=False
        )
        if run.returncode:
            print(f"| {name} | failed: {run.stderr.strip().splitlines()[-1]} | | | | | | | |")
            continue
        facts = json.loads(run.stdout)
        first += facts["first"]
        again += facts["again"]
        most = max(most, facts["peak"])
        print(
            f"| {name} | {facts['bags']} | {facts['instances']} | {facts['features']} | {facts['labels']} "
            f"| {facts['first']:.2f} | {facts['again']:.2f} | {facts['peak']:.0f} | {facts['above']:.0f} |"
        )
    print(f"| all | | | | | {first:.2f} | {again:.2f} | {most:.0f} | |")
    if missing:
        print(f"\nNot at hand: {', '.join(missing)}.")


if __name__ == "__main__":
    main()
