"""RankLossSIM and LSB-CMM on real data: instance accuracy, bag measures, time; beside published figures.

    python benchmarks/instance_baselines.py --data FOLDER [--only letter_frost msrcv2 scene] [--repeats 3]

FOLDER holds the public sets (or set BAGWISE_DATA). Times are CPU seconds of this process per fit.
"""

import argparse
import os
import time

import numpy as np
from scipy import sparse
from sklearn.model_selection import KFold, ShuffleSplit
from sklearn.preprocessing import normalize

from bagwise import load_dataset
from bagwise.metrics import average_precision, hamming_loss, ranking_loss
from bagwise.models import LSBCMM, RankLossSIM

SETTINGS = [
    *[("RankLossSIM", {"support": s, "alpha": a}) for s in ("softmax", "max") for a in (1e-2, 1e-3, 1e-4)],
    *[("RankLossSIM", {"solver": "pegasos", "alpha": a}) for a in (1e-2, 1e-3, 1e-4)],
    *[("LSBCMM", {"sigma2": s}) for s in (0.1, 1.0, 10.0, 100.0)],
]
CLASSES = {"RankLossSIM": RankLossSIM, "LSBCMM": LSBCMM}
# new bags / label sets known; best setting by test accuracy (Pham et al. 2017, Tables 3 and 5)
ANNOTATION = {
    "letter_frost": {"RankLossSIM": "58.1 / 77.3", "LSBCMM": "55.5 / 66.2"},
    "letter_carroll": {"RankLossSIM": "54.2 / 72.2", "LSBCMM": "55.9 / 70.0"},
    "msrcv2": {"RankLossSIM": "46.7 / 69.7", "LSBCMM": "45.4 / 61.1"},
}
# ranking loss / Hamming loss / average precision (Huang et al. 2014, Table 2)
RANKING = {"scene": ".222 / .204 / .738", "reuters": ".016 / .037 / .967"}


def timed_fit(name, params, bags, Y, seconds):
    start = time.process_time()
    model = CLASSES[name](**params).fit(bags, Y)
    seconds.append(time.process_time() - start)
    return model


def label(name, params):
    return f"{name}({', '.join(f'{k}={v!r}' for k, v in params.items())})"


def annotation(dataset):
    data = load_dataset(dataset)
    print(f"\n#### {dataset}: accuracy at instances, 10 folds\n")
    print("| model | new bags, % | label sets known, % | published | ranking loss, % | CPU s per fit |")
    print("|---|---|---|---|---|---|")
    for name, params in SETTINGS:
        seconds, right, loss = [], [], []
        for train, test in KFold(10, shuffle=True, random_state=0).split(data.bags):
            model = timed_fit(name, params, data[train].bags, data[train].Y, seconds)
            right.append((model.annotate(data[test].bags) == data[test].instance_Y).mean())
            loss.append(ranking_loss(data[test].Y, bag_scores(model, data[test].bags)))
        model = timed_fit(name, params, data.bags, data.Y, seconds)
        known = (model.annotate(data.bags, data.Y) == data.instance_Y).mean()
        print(
            f"| {label(name, params)} | {100 * np.mean(right):.1f} ± {100 * np.std(right):.1f} "
            f"| {100 * known:.1f} | {ANNOTATION[dataset][name]} | {100 * np.mean(loss):.1f} "
            f"| {np.mean(seconds):.2f} |",
            flush=True,
        )


def label_sets():
    print("\n#### Hamming loss of RankLossSIM(), labels that occur, 10 folds, %\n")
    print("| data set | threshold | union | published (union) |\n|---|---|---|---|")
    for dataset, published in (("letter_frost", 10.7), ("letter_carroll", 11.9), ("msrcv2", 8.9)):
        data = load_dataset(dataset)
        Y = data.Y[:, data.Y.any(axis=0)]
        losses = []
        for train, test in KFold(10, shuffle=True, random_state=0).split(data.bags):
            models = (
                RankLossSIM(set_rule=rule).fit(data.bags[train], Y[train]) for rule in ("threshold", "union")
            )
            losses.append([hamming_loss(Y[test], model.predict(data.bags[test])) for model in models])
        first, second = 100 * np.mean(losses, axis=0)
        print(f"| {dataset} | {first:.1f} | {second:.1f} | {published} |", flush=True)


def bag_scores(model, bags):
    """What the papers rank labels by: the largest linear score, or the largest probability."""
    return model.predict_proba(bags) if hasattr(model, "predict_proba") else model.decision_function(bags)


def ranking(dataset, repeats):
    data = load_dataset(f"miml_{dataset}")
    bags = data.bags
    if dataset == "reuters":  # counts of words: sparse, and every instance of length 1
        bags = bags.with_X(sparse.csr_array(normalize(bags.X)))
    print(f"\n#### {dataset}: {repeats} random splits, two thirds for training\n")
    print("| model | ranking loss | Hamming loss | average precision | published | CPU s per fit |")
    print("|---|---|---|---|---|---|")
    for name, params in SETTINGS:
        seconds, rows = [], []
        for train, test in ShuffleSplit(repeats, test_size=1 / 3, random_state=0).split(bags):
            model = timed_fit(name, params, bags[train], data.Y[train], seconds)
            new, Y = bags[test], data.Y[test]
            S = bag_scores(model, new)
            rows.append([ranking_loss(Y, S), hamming_loss(Y, model.predict(new)), average_precision(Y, S)])
        figures = " | ".join(f"{m:.3f}" for m in np.mean(rows, axis=0))
        published = RANKING[dataset] if name == "RankLossSIM" else ""
        print(f"| {label(name, params)} | {figures} | {published} | {np.mean(seconds):.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=os.environ.get("BAGWISE_DATA"))
    parser.add_argument("--only", nargs="*", default=[*ANNOTATION, "sets", *RANKING])
    parser.add_argument("--repeats", type=int, default=3, help="random splits of scene and reuters")
    args = parser.parse_args()
    if args.data:
        os.environ["BAGWISE_DATA"] = args.data
    for dataset in args.only:
        if dataset in ANNOTATION:
            annotation(dataset)
        elif dataset == "sets":
            label_sets()
        else:
            ranking(dataset, args.repeats)


if __name__ == "__main__":
    main()
