"""Quality of the deep heads: k-fold cross-validation with defaults, beside models that need no torch.

    BAGWISE_DATA=... python benchmarks/deep.py [--sets ...] [--models ...] [--folds 10] [--seed 100] [--jobs
    4]

Prints a line per model and set: average precision of bags, Hamming loss, accuracy of instances on new bags
and with known label sets, CPU seconds of a fit. Everything is compared on the same folds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

import numpy as np
from joblib import Parallel, delayed

from bagwise import load_dataset, read
from bagwise.metrics import average_precision, hamming_loss
from bagwise.model_selection import MultilabelKFold
from bagwise.models import (
    MIMLGP,
    DeepMIML,
    ORedLogisticRegression,
    PooledClassifier,
    SetKernelSVM,
)

SETS = ("letter_frost", "letter_carroll", "miml_birds", "msrcv2", "miml_scene", "miml_reuters")
HEADS = ("attention", "instance", "pool", "prototype", "transformer")
OTHERS = {
    "pooled forest": lambda seed: PooledClassifier(random_state=seed),
    "ORedLogisticRegression": lambda seed: ORedLogisticRegression(),
    "MIMLGP": lambda seed: MIMLGP(random_state=seed),
    "SetKernelSVM": lambda seed: SetKernelSVM(),
}


def data_of(name: str):
    """A registered set, or a file of ours."""
    return read(name) if name.endswith(".npz") else load_dataset(name)


def make(name: str, seed: int, given: dict):
    return OTHERS[name](seed) if name in OTHERS else DeepMIML(name, random_state=seed, **given)


def one_fold(name, set_name, given, train, test, seed):
    data = data_of(set_name)
    model = make(name, seed, given)
    start = time.process_time()
    model.fit(data.bags[train], data.Y[train])
    seconds = time.process_time() - start
    bags, Y = data.bags[test], data.Y[test]
    scores, predicted = model.scores_and_labels(bags)
    found = [average_precision(Y, scores), hamming_loss(Y, predicted)]
    if data.instance_Y is not None:
        truth = data[test].instance_Y
        known = truth >= 0
        found += [float((model.annotate(bags, given) == truth)[known].mean()) for given in (None, Y)]
    else:
        found += [np.nan, np.nan]
    print(name, set_name, np.round(found, 3), round(seconds, 1), file=sys.stderr, flush=True)
    return [*found, seconds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--models", nargs="+", default=[*HEADS, *OTHERS])
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--given", type=json.loads, default={}, help="parameters of DeepMIML, as JSON")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    tasks = []
    for set_name in arguments.sets:
        Y = data_of(set_name).Y
        folds = list(MultilabelKFold(arguments.folds, random_state=arguments.seed).split(Y, Y))
        for name in arguments.models:
            tasks += [(name, set_name, arguments.given, *fold, arguments.seed) for fold in folds]
    rows = Parallel(arguments.jobs)(delayed(one_fold)(*task) for task in tasks)
    print(f"{'set':16} {'model':24} {'a.p.':>6} {'hamming':>8} {'inst.':>6} {'known':>6} {'CPU s':>7}")
    for set_name in arguments.sets:
        for name in arguments.models:
            mine = [row for row, task in zip(rows, tasks) if task[:2] == (name, set_name)]
            ap, loss, free, known, seconds = np.mean(mine, axis=0)
            print(f"{set_name:16} {name:24} {ap:6.3f} {loss:8.4f} {free:6.3f} {known:6.3f} {seconds:7.1f}")


if __name__ == "__main__":
    main()
