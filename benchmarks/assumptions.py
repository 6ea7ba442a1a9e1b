"""Which deep head keeps the multi-instance assumption: AUC on sets with a shortcut that turns round.

    python benchmarks/assumptions.py [--members 1] [--seeds 3] [--jobs 2] [--models ...]

A bag carries a label exactly if it holds an instance that causes it. Each set offers something else that goes
with the label in training and against it in the test part: 1 is a model that learned the rule, below .5
one that took the shortcut. Printed are mean and worst over data and models of several seeds; a model keeps
the assumption of a set if the worst is above .9. Heads are trained with unions of bags (the default) and
without.
"""

from __future__ import annotations

import argparse
import os

import numpy as np
from joblib import Parallel, delayed
from sklearn.metrics import roc_auc_score

from bagwise.datasets import make_absence_trap, make_counting_trap, make_order_trap
from bagwise.models import DeepMIML, ORedLogisticRegression, PooledClassifier

SETS = {"absence": make_absence_trap, "counting": make_counting_trap, "order": make_order_trap}
HEADS = ("attention", "instance", "pool", "prototype", "transformer")
MODELS = [*HEADS, "prototype, max", *(f"{head}, no unions" for head in HEADS)]
MODELS += ["ORedLogisticRegression", "pooled forest"]
KEPT = 0.9


def make(name: str, members: int, seed: int):
    if name == "ORedLogisticRegression":
        return ORedLogisticRegression()
    if name == "pooled forest":
        return PooledClassifier(random_state=seed)
    head, _, more = name.partition(", ")
    given = {"": {}, "max": {"pooling": "max"}, "no unions": {"unions": 0.0}}[more]
    return DeepMIML(head, members, random_state=seed, **given)


def auc(name: str, set_name: str, members: int, seed: int) -> float:
    data = SETS[set_name](random_state=seed)
    train, test = data["train"], data["test"]
    model = make(name, members, seed).fit(train.bags, train.Y)
    return float(roc_auc_score(test.Y, model.decision_function(test.bags)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--models", nargs="+", default=MODELS)
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    names = arguments.models
    tasks = [
        (name, s, arguments.members, seed) for name in names for s in SETS for seed in range(arguments.seeds)
    ]
    found = Parallel(arguments.jobs, batch_size=1)(delayed(auc)(*task) for task in tasks)
    table = np.array(found).reshape(len(names), len(SETS), arguments.seeds)
    print("| model | " + " | ".join(SETS) + " | keeps |\n|---" + "|---" * (len(SETS) + 1) + "|")
    for name, values in zip(names, table):
        cells = [f"{mine.mean():.3f} (worst {mine.min():.3f})" for mine in values]
        kept = [s for s, mine in zip(SETS, values) if mine.min() > KEPT]
        keeps = "all" if len(kept) == len(SETS) else ", ".join(kept) or "none"
        print(f"| {name} | " + " | ".join(cells) + f" | {keeps} |", flush=True)


if __name__ == "__main__":
    main()
