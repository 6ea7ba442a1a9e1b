"""BagClassifier on sets with one label or class beside set kernels, miGraph and a forest on bag statistics.

    python benchmarks/mil_sets.py [SET ...] [--seeds 0 1] [--folds N] [--models NAME ...]

Sets: musk1, musk2, elephant, fox, newsgroups (mean over its 20 topics), sival (25 classes). Five folds with
classes spread evenly, the same for all models; accuracy, AUC (of classes: each against the rest, mean) and
CPU seconds of a fit.
"""

import argparse
import time
import warnings

import numpy as np
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold

from bagwise import load_dataset
from bagwise.datasets import list_datasets
from bagwise.models import BagClassifier, PooledClassifier, SetKernelSVM

SETS = ("musk1", "musk2", "elephant", "fox", "newsgroups", "sival")
MODELS = {
    "BagClassifier": lambda: BagClassifier(random_state=0),
    "SetKernelSVM": lambda: SetKernelSVM(),
    "miGraph": lambda: SetKernelSVM("graph"),
    "pooled forest": lambda: PooledClassifier(random_state=0),
}


def problems(name, n_topics):
    """Bags and classes of a set: one pair, or a pair per topic."""
    names = [name]
    if name == "newsgroups":
        names = [one["name"] for one in list_datasets() if one["name"].startswith("newsgroups/")][:n_topics]
    for one in names:
        data = load_dataset(one)
        yield data.bags, data.Y[:, 0] if data.Y.shape[1] == 1 else data.Y.argmax(axis=1)


def one_fold(make, bags, y, train, test):
    """Accuracy, AUC and CPU seconds of a fit."""
    start = time.process_time()
    model = make().fit(bags[train], y[train])
    seconds = time.process_time() - start
    F = model.decision_function(bags[test])
    auc = roc_auc_score(y[test], F) if F.ndim == 1 else roc_auc_score(np.eye(F.shape[1])[y[test]], F)
    return (model.predict(bags[test]) == y[test]).mean(), auc, seconds


def main():
    """Print a line per set and model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--folds", type=int, default=5, help="of five, how many are run")
    parser.add_argument("--topics", type=int, default=20, help="of the newsgroups, how many are run")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in options.sets:
        rows = {title: [] for title in options.models}
        for bags, y in problems(name, options.topics):
            for seed in options.seeds:
                folds = StratifiedKFold(5, shuffle=True, random_state=seed).split(np.zeros(len(y)), y)
                for train, test in list(folds)[: options.folds]:
                    for title in options.models:
                        rows[title].append(one_fold(MODELS[title], bags, y, train, test))
        for title, figures in rows.items():
            accuracy, auc, seconds = np.mean(figures, axis=0)
            print(f"{name} {title}: accuracy={accuracy:.3f} auc={auc:.3f} cpu={seconds:.2f}", flush=True)


if __name__ == "__main__":
    main()
