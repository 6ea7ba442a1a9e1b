"""MIML-GP: seconds of fitting, predicting and of its kernels, on generated bags.

    python benchmarks/miml_gp.py [SECTION ...] [--sizes 15000x99x150 ...]

Sections: kernels, fits, maxima, scale, large (all by default). Prints Markdown tables. CPU seconds are those
of the process, all threads together; wall seconds depend on what else runs. Nothing is said about quality:
see the suite of the paper (``python -m papers miml-gp``) and ``bagwise compare``.
"""

import argparse
import resource
import time
import warnings

import numpy as np
from printing import header, row

from bagwise import Bags
from bagwise.models import MIMLGP
from bagwise.models.gp.kernels_gaussian import InstanceKernel
from bagwise.models.gp.predict import LARGEST, integrate_maxima, standard_draws


class Clock:
    """CPU and wall seconds of a block."""

    def __enter__(self):
        self.start = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *_):
        self.cpu = time.process_time() - self.start[0]
        self.wall = time.perf_counter() - self.start[1]

    def __str__(self):
        return f"{self.cpu:.2f} / {self.wall:.2f}"


def generated(n_bags, n_labels=5, size=9, n_features=15, seed=0):
    """Bags around 200 centres in the unit cube; labels from a random teacher of bag means."""
    rng = np.random.default_rng(seed)
    centres = rng.random((200, size, n_features))
    X = centres[rng.integers(0, 200, n_bags)].reshape(n_bags * size, n_features)
    X = X + rng.normal(scale=0.1, size=X.shape)
    means = X.reshape(n_bags, size, n_features).mean(axis=1)
    F = np.tanh(3.0 * (means - means.mean(axis=0)) @ rng.normal(size=(n_features, 20)))
    F = F @ rng.normal(size=(20, n_labels))
    F = F / F.std(axis=0) * 2.0 - 1.5
    Y = (rng.random(F.shape) < 1.0 / (1.0 + np.exp(-F))).astype(np.int8)
    return Bags(X, np.arange(n_bags + 1) * size), Y


def kernels(options):
    header(
        "### Mean Gaussian kernel between bags of 9 instances",
        "bags",
        "features",
        "all pairs: CPU / wall s",
        "ns per kernel value (CPU)",
        "with itself: CPU / wall s",
    )
    for n_bags, d in ((500, 15), (2000, 15), (1000, 100)):
        bags, _ = generated(n_bags, n_features=d)
        kernel = InstanceKernel("gaussian", 1.0, 0.0)
        kernel.gram(bags.X[:90], bags.offsets[:11])  # compile
        kernel.with_itself(bags.X[:90], bags.offsets[:11])
        with Clock() as pairs:
            kernel.gram(bags.X, bags.offsets)
        with Clock() as own:
            kernel.with_itself(bags.X, bags.offsets)
        values = bags.n_instances * (bags.n_instances + 9) / 2
        row(n_bags, d, pairs, f"{1e9 * pairs.cpu / values:.2f}", own)


def fits(options):
    header(
        "### One fit on 1800 bags of 9 x 15, five labels; prediction of 200 (medians of 3, CPU / wall s)",
        "settings",
        "fit",
        "predict",
    )
    bags, Y = generated(2000)
    settings = {
        "defaults (two scalings, eight widths)": {},
        "width 1": {"width": 1.0},
        'width 1, mode="paper"': {"width": 1.0, "mode": "paper"},
        'kernel="linear"': {"kernel": "linear"},
        "standard, width 1, rank 100": {"width": 1.0, "assumption": "standard", "rank": 100},
    }
    for name, chosen in settings.items():
        MIMLGP(**chosen).fit(bags[:60], Y[:60]).predict(bags[:60])  # compile
        runs = []
        for _ in range(options.repeats):
            with Clock() as fit:
                model = MIMLGP(**chosen).fit(bags[:1800], Y[:1800])
            with Clock() as predict:
                model.predict_proba(bags[1800:])
            runs.append((fit, predict))
        runs.sort(key=lambda pair: pair[0].cpu)
        row(name, *runs[len(runs) // 2])


def maxima(options):
    header("### Averages of sigma(max f), 100 features, one label", "bags", "instances each", "CPU / wall s")
    rng = np.random.default_rng(0)
    draws = standard_draws(LARGEST, MIMLGP().n_draws)
    A = rng.normal(size=(100, 100)) / 10.0
    for n_bags, size in ((1000, 5), (1000, 10), (300, 40), (50, 200)):
        P = rng.normal(size=(n_bags * size, 100)) / 10.0
        arguments = P.sum(axis=1), P, A @ A.T, np.full(len(P), 0.1)
        integrate_maxima(arguments[0][:4], P[:4], *arguments[2:3], arguments[3][:4], np.array([0, 4]), draws)
        with Clock() as clock:
            integrate_maxima(*arguments, np.arange(n_bags + 1) * size, draws)
        row(n_bags, size, clock)


def scale(options):
    header(
        "### Large problems: bags of 9 x 15, width 1, pivoted factor, tol 0.01, two probes",
        "bags",
        "labels",
        "rank",
        "fit: CPU / wall s",
        "M steps",
        "peak GB of the process",
    )
    for size in options.sizes:
        n_bags, n_labels, rank = (int(part) for part in size.split("x"))
        bags, Y = generated(n_bags, n_labels)
        model = MIMLGP(width=1.0, rank=rank, factor="pivoted", n_probes=2, tol=0.01)
        with Clock() as fit:
            model.fit(bags, Y)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        row(n_bags, n_labels, rank, fit, model.n_iter_, f"{peak:.2f}")


def large(options):
    header(
        "### One bag of 100,000 instances beside 199 of 10, ten features, three labels",
        "settings",
        "fit: CPU / wall s",
        "rank",
        "peak GB of the process",
    )
    rng = np.random.default_rng(0)
    sizes = [100_000, *[10] * 199]
    bags = Bags(rng.normal(size=(sum(sizes), 10)), np.cumsum([0, *sizes]))
    Y = (rng.random((200, 3)) < 0.4).astype(int)
    for name, chosen in {
        "defaults": {},
        "standard, width 1": {"assumption": "standard", "width": 1.0},
    }.items():
        with Clock() as fit:
            model = MIMLGP(**chosen).fit(bags, Y)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        row(name, fit, model.rank_, f"{peak:.2f}")


SECTIONS = {"kernels": kernels, "fits": fits, "maxima": maxima, "scale": scale, "large": large}


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    words.add_argument("--repeats", type=int, default=3)
    words.add_argument("--sizes", nargs="*", default=["15000x99x150", "30000x99x150", "30000x99x300"])
    options = words.parse_args()
    unknown = set(options.sections) - set(SECTIONS)
    if unknown:
        words.error(f"no section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    warnings.simplefilter("ignore")
    for name in options.sections or SECTIONS:
        SECTIONS[name](options)


if __name__ == "__main__":
    main()
