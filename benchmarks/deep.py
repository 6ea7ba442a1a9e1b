"""Quality of the deep heads: k-fold cross-validation with defaults, beside models that need no torch.

    BAGWISE_DATA=... python benchmarks/deep.py [--sets ...] [--models ...] [--folds 10] [--seed 100]
                                               [--jobs 4] [--rows rows.jsonl]
    python benchmarks/deep.py --show rows.jsonl ...

Every fit is a line of ``--rows``, written when it is done: set, model, fold, average precision of bags,
Hamming loss, accuracy of instances on new bags and with known label sets, seconds of the fit. Rows that are
there already are not made again. All models are compared on the same folds; the table gives mean and
standard deviation over the folds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed

from bagwise import load_dataset, read
from bagwise.metrics import average_precision, hamming_loss
from bagwise.model_selection import MultilabelKFold
from bagwise.models import (
    MIMLGP,
    BagClassifier,
    DeepMIML,
    ORedLogisticRegression,
    PooledClassifier,
    PooledLogisticRegression,
    SetKernelSVM,
)

SETS = ("miml_scene", "miml_reuters", "msrcv2", "letter_frost", "letter_carroll", "miml_birds")
HEADS = ("attention", "instance", "pool", "prototype", "transformer")
OTHERS = {
    "BagClassifier": lambda seed: BagClassifier(random_state=seed),
    "ORedLogisticRegression": lambda seed: ORedLogisticRegression(),
    "MIMLGP": lambda seed: MIMLGP(random_state=seed),
    "SetKernelSVM": lambda seed: SetKernelSVM(),
    "pooled forest": lambda seed: PooledClassifier(random_state=seed),
    "PooledLogisticRegression": lambda seed: PooledLogisticRegression(),
}
MEASURES = {"ap": "average precision", "hamming": "Hamming loss", "new": "instances", "known": "given labels"}


def data_of(name: str):
    """A registered set, or a file of ours."""
    return read(name) if name.endswith(".npz") else load_dataset(name)


def make(name: str, seed: int, given: dict):
    return OTHERS[name](seed) if name in OTHERS else DeepMIML(name, random_state=seed, **given)


def one_fold(set_name, name, fold, seed, train, test, given):
    data = data_of(set_name)
    model = make(name, seed, given)
    start, work = time.perf_counter(), time.process_time()
    model.fit(data.bags[train], data.Y[train])
    seconds = time.perf_counter() - start
    row = {"set": set_name, "model": name, "fold": fold, "seed": seed, "n_folds": None}
    bags, Y = data.bags[test], data.Y[test]
    scores, predicted = model.scores_and_labels(bags)
    row |= {"ap": average_precision(Y, scores), "hamming": hamming_loss(Y, predicted)}
    if data.instance_Y is not None:
        truth = data[test].instance_Y
        known = truth >= 0
        right = {"new": model.annotate(bags) == truth, "known": model.annotate(bags, Y) == truth}
        row |= {what: float(found[known].mean()) for what, found in right.items()}
    return row | {"seconds": seconds, "cpu": time.process_time() - work}


def run(arguments, done: list[dict]) -> list[dict]:
    """Fits that are not there yet, in the order of the models."""
    there = {(row["set"], row["model"], row["fold"], row["seed"], row["n_folds"]) for row in done}
    tasks = []
    for name in arguments.models:
        for set_name in arguments.sets:
            Y = data_of(set_name).Y
            folds = MultilabelKFold(arguments.folds, random_state=arguments.seed).split(Y, Y)
            for k, (train, test) in enumerate(folds):
                if (set_name, name, k, arguments.seed, arguments.folds) not in there:
                    tasks.append((set_name, name, k, arguments.seed, train, test, arguments.given))
    rows = []
    workers = Parallel(arguments.jobs, return_as="generator_unordered", batch_size=1, max_nbytes=None)
    for row in workers(delayed(one_fold)(*task) for task in tasks):
        row["n_folds"] = arguments.folds
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
        if arguments.rows:
            with Path(arguments.rows).open("a", encoding="utf-8") as out:
                out.write(json.dumps(row) + "\n")
    return rows


def show(rows: list[dict]) -> None:
    """A table of models and sets for every measure, as Markdown."""
    sets = [name for name in SETS if any(row["set"] == name for row in rows)]
    sets += sorted({row["set"] for row in rows} - set(sets))
    models = [name for name in (*HEADS, *OTHERS) if any(row["model"] == name for row in rows)]
    for measure, title in MEASURES.items():
        columns = [s for s in sets if any(measure in row for row in rows if row["set"] == s)]
        if not columns:
            continue
        print(f"\n{title}, mean (standard deviation) over folds\n")
        print("| model | " + " | ".join(columns) + " |\n|---" + "|---:" * len(columns) + "|")
        for name in models:
            cells = []
            for column in columns:
                mine = [r for r in rows if (r["set"], r["model"]) == (column, name)]
                cells.append(_cell([r[measure] for r in mine], mine[0]["n_folds"] if mine else 0))
            print(f"| {name} | " + " | ".join(cells) + " |")
    print("\nfits, and seconds of one, mean\n")
    for name in models:
        for column in sets:
            mine = [r for r in rows if (r["set"], r["model"]) == (column, name)]
            if mine:
                print(f"{name:26} {column:16} {len(mine):4} {np.mean([r['seconds'] for r in mine]):8.1f}")


def _cell(values: list[float], n_folds: int) -> str:
    """Mean and deviation; how many folds, if some are missing."""
    if not values:
        return "–"
    some = "" if len(values) == n_folds else f", {len(values)} folds"
    return f"{np.mean(values):.3f} ({np.std(values):.3f}{some})"


def rows_of(paths) -> list[dict]:
    lines = [line for path in paths if Path(path).exists() for line in Path(path).read_text().splitlines()]
    return [json.loads(line) for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--models", nargs="+", default=[*HEADS, *OTHERS])
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--given", type=json.loads, default={}, help="parameters of DeepMIML, as JSON")
    parser.add_argument("--rows", help="where rows are kept, and go on from")
    parser.add_argument("--show", nargs="+", help="print the tables of rows made before")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if arguments.show:
        show(rows_of(arguments.show))
        return
    done = rows_of([arguments.rows]) if arguments.rows else []
    show(done + run(arguments, done))


if __name__ == "__main__":
    main()
