"""Multi-instance baselines: what a fit costs.

    python benchmarks/mil_baselines.py [SECTION ...] [--data FOLDER] [--seed N]

Sections: cost, programme (both by default). Prints Markdown tables. FOLDER (or BAGWISE_DATA) holds the public
sets. CPU times are those of the process.
"""

import argparse
import os
import time
import warnings

import numpy as np
from printing import header, row
from scipy.optimize import linprog
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from bagwise import load_dataset
from bagwise.models import MILES, MISVM, CodebookSVM, SetKernelSVM
from bagwise.models.svm.miles import bag_similarities, select_prototypes


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
        "bags", "class", "prototypes", "growing set", "whole programme", "ratio", "difference of the minima",
    )  # fmt: skip
    for n_classes, one in ((5, 0), (10, 0), (10, 1)):  # of class 1 nothing is worth its penalty
        bags, y = images_of(n_classes)
        train = np.random.default_rng(options.seed).permutation(len(bags))[::2]
        bags, y = bags[train], (y[train] == one).astype(int)
        X = StandardScaler().fit_transform(bags.X)
        S = bag_similarities(X, bags.offsets, X, 1.0 / X.shape[1])
        start = time.process_time()
        ours = select_prototypes(y, S, 0.5, 0.5)[3]
        middle = time.process_time()
        whole = whole_programme(S, y)
        end = time.process_time()
        ratio = (end - middle) / (middle - start)
        cells = f"{middle - start:.2f}", f"{end - middle:.2f}", f"{ratio:.1f}", f"{abs(ours - whole):.0e}"
        row(len(bags), one, S.shape[1], *cells)


def whole_programme(S, y):
    n, k = S.shape
    t = np.where(y > 0, 1.0, -1.0)[:, None]
    A = np.hstack([-t * S, t * S, -t, -np.eye(n)])
    c = np.concatenate([np.full(2 * k, 0.5), [0.0], np.full(n, 0.5)])
    bounds = [(0, None)] * (2 * k) + [(None, None)] + [(0, None)] * n
    return linprog(c, A_ub=A, b_ub=-np.ones(n), bounds=bounds, method="highs").fun


def main():
    sections = {
        "cost": cost,
        "programme": programme,
    }
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(sections))
    parser.add_argument("--data", help="folder with the public sets")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.data:
        os.environ["BAGWISE_DATA"] = options.data
    warnings.simplefilter("ignore", ConvergenceWarning)
    for name in options.sections or sections:
        sections[name](options)


if __name__ == "__main__":
    main()
