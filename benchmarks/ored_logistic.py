"""Time of ORed logistic regression: fits of the paper's size, and what the default's held-out bags cost.

    python benchmarks/ored_logistic.py [--data FOLDER]

CPU seconds of one process; compilation is outside the clock. Quality beside published figures: the suite
"ored-logistic" (docs/reproduction.md); beside simple rules: ored_quality.py.
"""

import argparse
import os
import time
import warnings

import numpy as np
from sklearn.model_selection import KFold

from bagwise import load_dataset
from bagwise.datasets import make_miml
from bagwise.models import ORedLogisticRegression

RECIPES = {
    "default": {},
    "union": {"decision": "union"},
    "paper: 50 EM steps": {"alpha": 0.0, "solver": "em", "decision": "union"},
}


def cpu_seconds(data, recipe):
    """Of one 10-fold cross-validation: fit, then labels of instances in new bags."""
    ORedLogisticRegression(**{**recipe, "max_iter": 2}).fit(data.bags, data.Y)  # compile
    start = time.process_time()
    for train, test in KFold(10, shuffle=True, random_state=0).split(np.arange(len(data.bags))):
        ORedLogisticRegression(**recipe).fit(data.bags[train], data.Y[train]).annotate(data.bags[test])
    return time.process_time() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", metavar="FOLDER", default=os.environ.get("BAGWISE_DATA"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    sets = {"generated, of the size of HJA": make_miml(548, 13, 38, min_size=5, max_size=13, random_state=0)}
    if options.data:
        for name in ("letter_frost", "letter_carroll", "msrcv2", "miml_birds"):
            sets[name] = load_dataset(name, data_home=options.data)
    print(f"| 10-fold cross-validation | bags | instances | labels | {' | '.join(RECIPES)} |")
    print("|---" * (4 + len(RECIPES)) + "|")
    for name, data in sets.items():
        seconds = " | ".join(f"{cpu_seconds(data, recipe):.2f}" for recipe in RECIPES.values())
        print(
            f"| {name} | {len(data.bags)} | {data.bags.n_instances} | {data.Y.shape[1]} | {seconds} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
