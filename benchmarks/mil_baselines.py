"""Multi-instance baselines: accuracy beside published figures, and what a fit costs.

    python benchmarks/mil_baselines.py [SECTION ...] [--data FOLDER] [--folds N] [--repeats N] [--seed N]

Sections: molecules, newsgroups, images, cost, programme (all by default). Prints Markdown tables. FOLDER (or
BAGWISE_DATA) holds the public sets. CPU times are those of the process. Scalings and codebooks are learned on
the training part. Accuracies are percentages, mean ± deviation over folds or splits.
"""

import argparse
import os
import time
import warnings

import numpy as np
from scipy.optimize import linprog
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler

from bagwise import load_dataset
from bagwise.models import MILES, MISVM, CodebookSVM, SetKernelSVM
from bagwise.models.svm.miles import bag_similarities, select_prototypes

# Tables 5 and 6 of the MIML-GP paper, which took them from earlier papers with settings of their own.
NEWS = {
    "alt_atheism": {"MI-Kernel": "60.2 ± 3.9", "miGraph": "65.5 ± 4.0"},
    "comp_graphics": {"MI-Kernel": "47.0 ± 3.3", "miGraph": "77.8 ± 1.6"},
    "sci_electronics": {"MI-Kernel": "50.6 ± 2.0", "miGraph": "87.1 ± 1.7"},
}
IMAGES = {"MI-Kernel": 81.8, "miGraph": 81.4, "MILES": 82.6, "MI-SVM": 74.7, "k-means-SVM": 69.8}
# Weights of words as they come: features that are rare carry the large values. Chosen on these very sets.
RAW = {"scaling": "none", "gamma": 1.0}
TEXT = {
    "MI-Kernel": {
        "plain defaults": {},
        '`scaling="none"`, `gamma=1.0`': RAW,
        'and `normalization="mean"`, `C=1000`': RAW | {"normalization": "mean", "C": 1000.0},
    },
    "miGraph": {"plain defaults": {}, '`scaling="none"`, `gamma=1.0`': RAW},
}


def row(*cells):
    print("| " + " | ".join(str(c) for c in cells) + " |", flush=True)


def header(title, *cells):
    print(f"\n{title}\n")
    row(*cells)
    row(*("---" for _ in cells))


def plain(seed):
    return {
        "mi-SVM": MISVM("instance"),
        "MI-SVM": MISVM(),
        "MILES": MILES(),
        "MI-Kernel": SetKernelSVM(),
        "miGraph": SetKernelSVM("graph"),
        "k-means-SVM": CodebookSVM(random_state=seed),
    }


def images_of(n_classes):
    data = load_dataset("corel2000")
    y = data.Y.argmax(axis=1)
    chosen = np.flatnonzero(y < n_classes)
    return data.bags[chosen], y[chosen]


def accuracy(model, bags, y, splits):
    """Accuracies in percent as text, and the median CPU seconds of a fit."""
    values, seconds = [], []
    for train, test in splits:
        start = time.process_time()
        model.fit(bags[train], y[train])
        seconds.append(time.process_time() - start)
        values.append(100.0 * (model.predict(bags[test]) == y[test]).mean())
    return f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}", f"{np.median(seconds):.2f}"


def molecules(options):
    header(
        f"### {options.folds}-fold, plain defaults: accuracy, CPU seconds of a fit",
        "method", "musk1", "s", "elephant", "s", "fox", "s",
    )  # fmt: skip
    sets = [load_dataset(name) for name in ("musk1", "elephant", "fox")]
    for title, model in plain(options.seed).items():
        cells = []
        for data in sets:
            y = data.Y[:, 0]
            folds = StratifiedKFold(options.folds, shuffle=True, random_state=options.seed)
            cells += accuracy(model, data.bags, y, folds.split(y, y))
        row(title, *cells)


def newsgroups(options):
    header(
        f"### Newsgroups, {options.folds}-fold: accuracy, CPU seconds of a fit",
        "set", "method", "settings", "accuracy", "published", "s",
    )  # fmt: skip
    for name in NEWS:
        data = load_dataset(f"newsgroups/{name}")
        y = data.Y[:, 0]
        for title, weights in {"MI-Kernel": "equal", "miGraph": "graph"}.items():
            for words, parameters in TEXT[title].items():
                folds = StratifiedKFold(options.folds, shuffle=True, random_state=options.seed)
                found = accuracy(SetKernelSVM(weights, **parameters), data.bags, y, folds.split(y, y))
                row(name, title, words, found[0], NEWS[name][title], found[1])


def images(options):
    header(
        f"### 1000 images of ten classes, half for training, {options.repeats} splits",
        "method", "settings", "accuracy", "published", "CPU seconds of a fit",
    )  # fmt: skip
    bags, y = images_of(10)
    chosen = {
        "MI-SVM": MISVM(gamma=0.3, C=10.0),
        "MI-Kernel": SetKernelSVM(gamma=0.3),
        "miGraph": SetKernelSVM("graph", gamma=0.3),
    }
    rows = [(title, "plain defaults", model) for title, model in plain(options.seed).items()]
    rows += [(title, "`gamma=0.3`, `C=10`", model) for title, model in chosen.items()]
    for title, words, model in rows:
        halves = StratifiedShuffleSplit(options.repeats, test_size=0.5, random_state=options.seed)
        found = accuracy(model, bags, y, halves.split(y, y))
        row(title, words, found[0], IMAGES.get(title, ""), found[1])


def cost(options):
    header("### CPU seconds of one fit, plain defaults", "method", *(name for name, _, _ in problems()))
    for title, model in plain(options.seed).items():
        cells = []
        for _, bags, y in problems():
            start = time.process_time()
            model.fit(bags, y)
            cells.append(f"{time.process_time() - start:.2f}")
        row(title, *cells)


def problems():
    """Training parts of the sizes that published tables have."""
    rng = np.random.default_rng(0)
    news = load_dataset("newsgroups/alt_atheism")
    sival = load_dataset("sival")
    y = sival.Y.argmax(axis=1)
    merged = np.concatenate(
        [np.flatnonzero(y < 3)[:180], rng.choice(np.flatnonzero(y >= 3), 180, replace=False)]
    )
    half = rng.permutation(merged)[:180]
    images = images_of(20)
    train = rng.permutation(2000)[:1000]
    return [
        (f"newsgroups, {len(news.bags)} bags, {news.bags.n_instances} x 200", news.bags, news.Y[:, 0]),
        ("half of three merged SIVAL classes, 180 bags, 30 features", sival.bags[half], y[half] < 3),
        ("half of 2000 images, 20 classes, 9 features", images[0][train], images[1][train]),
    ]


def programme(options):
    header(
        "### The linear programme of MILES, one class of the images against the others, CPU seconds",
        "bags", "prototypes", "growing set", "whole programme", "ratio", "difference of the minima",
    )  # fmt: skip
    for n_classes in (5, 10):
        bags, y = images_of(n_classes)
        train = np.random.default_rng(options.seed).permutation(len(bags))[::2]
        bags, y = bags[train], (y[train] == 0).astype(int)
        X = StandardScaler().fit_transform(bags.X)
        S = bag_similarities(X, bags.offsets, X, 1.0 / X.shape[1])
        start = time.process_time()
        ours = select_prototypes(y, S, 0.5, 0.5)[3]
        middle = time.process_time()
        whole = whole_programme(S, y)
        end = time.process_time()
        ratio = (end - middle) / (middle - start)
        cells = f"{middle - start:.2f}", f"{end - middle:.2f}", f"{ratio:.1f}", f"{abs(ours - whole):.0e}"
        row(len(bags), S.shape[1], *cells)


def whole_programme(S, y):
    n, k = S.shape
    t = np.where(y > 0, 1.0, -1.0)[:, None]
    A = np.hstack([-t * S, t * S, -t, -np.eye(n)])
    c = np.concatenate([np.full(2 * k, 0.5), [0.0], np.full(n, 0.5)])
    bounds = [(0, None)] * (2 * k) + [(None, None)] + [(0, None)] * n
    return linprog(c, A_ub=A, b_ub=-np.ones(n), bounds=bounds, method="highs").fun


def main():
    sections = {
        "molecules": molecules,
        "newsgroups": newsgroups,
        "images": images,
        "cost": cost,
        "programme": programme,
    }
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(sections))
    parser.add_argument("--data", help="folder with the public sets")
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.data:
        os.environ["BAGWISE_DATA"] = options.data
    warnings.simplefilter("ignore", ConvergenceWarning)
    for name in options.sections or sections:
        sections[name](options)


if __name__ == "__main__":
    main()
