"""Time of `import bagwise` beside `import numpy, scipy.sparse`, in fresh processes, turn by turn.

python benchmarks/import_time.py [--repeats 15]
"""

import argparse
import statistics
import subprocess
import sys
import time


def seconds(statement):
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=15)
    repeats = parser.parse_args().repeats
    statements = {"nothing": "pass", "floor": "import numpy, scipy.sparse", "bagwise": "import bagwise"}
    times = {name: [] for name in statements}
    for _ in range(repeats + 1):
        for name, statement in statements.items():
            times[name].append(seconds(statement))
    # the first round fills caches; an interpreter that imports nothing is subtracted
    best = {name: statistics.median(values[1:]) for name, values in times.items()}
    floor, ours = best["floor"] - best["nothing"], best["bagwise"] - best["nothing"]
    print("| import | s | ratio |\n|---|---|---|")
    print(f"| numpy, scipy.sparse | {floor:.3f} | 1 |")
    print(f"| bagwise | {ours:.3f} | {ours / floor:.2f} |")


if __name__ == "__main__":
    main()
