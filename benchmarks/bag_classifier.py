"""CPU seconds and measures of BagClassifier on public sets, one core, whole pipeline in every fold.

python benchmarks/bag_classifier.py miml_birds msrcv2 --effort fast --seeds 100 101 --folds 5
"""

import argparse
import time

import numpy as np

from bagwise import load_dataset, metrics
from bagwise.model_selection import MultilabelKFold
from bagwise.models import BagClassifier

SETS = ["miml_birds", "letter_frost", "letter_carroll", "msrcv2", "miml_scene"]


def calibration_error(P, Y, n_bins=10):
    """Mean distance of predicted and observed shares over ten bins of all entries."""
    bins = np.minimum((P * n_bins).astype(int), n_bins - 1).ravel()
    p, y = P.ravel(), Y.ravel()
    return sum(abs(p[bins == k].mean() - y[bins == k].mean()) * (bins == k).mean() for k in np.unique(bins))


def one_fold(data, train, test, effort):
    """Measures of one fold."""
    started = time.process_time()
    model = BagClassifier(effort, random_state=0).fit(data.bags[train], data.Y[train])
    fitted = time.process_time()
    bags, Y = data.bags[test], data.Y[test]
    scores = model.decision_function(bags)
    row = {
        "fit": fitted - started,
        "predict": time.process_time() - fitted,
        "average_precision": metrics.average_precision(Y, scores),
        "ranking_loss": metrics.ranking_loss(Y, scores),
        "hamming_loss": metrics.hamming_loss(Y, scores > 0),
        "calibration": calibration_error(model.predict_proba(bags), Y),
    }
    if data.instance_Y is not None:
        truth = np.asarray(data.instance_Y)[np.isin(data.bags.index, test)]
        row["instances_new"] = (model.annotate(bags) == truth).mean()
        row["instances_known"] = (model.annotate(bags, Y) == truth).mean()
    return row


def main():
    """Print a row per set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--effort", default="full", choices=["auto", "fast", "full"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[100, 101])
    parser.add_argument("--folds", type=int, default=5, help="of five, how many are run")
    options = parser.parse_args()
    for name in options.sets:
        data = load_dataset(name)
        rows = []
        for seed in options.seeds:
            folds = list(MultilabelKFold(5, random_state=seed).split(data.Y, data.Y))[: options.folds]
            rows += [one_fold(data, train, test, options.effort) for train, test in folds]
        means = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
        print(
            name, options.effort, " ".join(f"{key}={value:.3f}" for key, value in means.items()), flush=True
        )


if __name__ == "__main__":
    main()
