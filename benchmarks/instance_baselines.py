"""RankLossSIM and LSB-CMM: what a fit costs, by setting.

    python benchmarks/instance_baselines.py [--data FOLDER] [--only letter_frost msrcv2] [--repeats 3]

FOLDER (or BAGWISE_DATA) holds the public sets. Times are CPU seconds of this process,
the least of the repeats.
"""

import argparse
import os
import time

from bagwise import load_dataset
from bagwise.models import LSBCMM, RankLossSIM

MODELS = [
    RankLossSIM(),
    RankLossSIM(support="max"),
    RankLossSIM(alpha=1e-4),
    RankLossSIM(solver="pegasos"),
    LSBCMM(decision="union"),
    LSBCMM(),
]


def seconds(model, data, repeats):
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        model.fit(data.bags, data.Y)
        best = min(best, time.process_time() - start)
    return best


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="folder with the public sets")
    parser.add_argument("--only", nargs="*", default=["letter_frost", "msrcv2"])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    if options.data:
        os.environ["BAGWISE_DATA"] = options.data
    sets = {name: load_dataset(name) for name in options.only}
    for data in sets.values():
        RankLossSIM(n_phases=1).fit(data.bags, data.Y)  # compiles
    print("| model | " + " | ".join(f"{name}, CPU s" for name in sets) + " |")
    print("|---|" + "---|" * len(sets))
    for model in MODELS:
        cells = [f"{seconds(model, data, options.repeats):.2f}" for data in sets.values()]
        print(f"| `{model}` | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
