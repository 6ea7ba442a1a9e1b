"""Expectation step of ORed logistic regression: accuracy and speed beside the algorithms of the paper.

    python benchmarks/ored_estep.py [--quick] [--plot FILE] [--data FOLDER]

Prints Markdown tables. All times are CPU times of one thread, the best of several runs, softmax over all
classes included; the paper's algorithms are compiled by the same compiler. FOLDER (or the variable
BAGWISE_DATA) holds `mltm_dbpedia` and `letter_frost`; only bag sizes and label sets are read from it.
"""

import argparse
import csv
import gzip
import os
import time
from pathlib import Path

import numba
import numpy as np
from printing import header, row

from bagwise.models.ored.predict import UnionPass, union_posterior

GRID = [
    (4000, 5, 4),
    (2000, 15, 6),
    (500, 20, 8),
    (100, 20, 10),
    (25, 20, 12),
    (8, 20, 14),
    (100, 10, 10),
    (500, 100, 2),
]
N_CLASSES = 24


def best_ms(function, *arguments, budget=0.4, least=3, **options):
    """Shortest CPU time of a call in milliseconds; the first call compiles and is not counted."""
    function(*arguments, **options)
    times, end = [], time.perf_counter() + budget
    while len(times) < least or time.perf_counter() < end:
        start = time.thread_time()
        function(*arguments, **options)
        times.append(time.thread_time() - start)
    return 1e3 * min(times)


def reference(logits, dtype=np.longdouble):
    """Posterior when the bag has every class: log-domain forward and backward sums in extended precision."""
    x = np.asarray(logits, dtype=dtype)
    x = x - np.logaddexp.reduce(x, axis=1, keepdims=True)
    n, k = x.shape
    sets = np.arange(1 << k)
    A = np.full((n + 1, 1 << k), -np.inf, dtype=dtype)
    B = A.copy()
    A[0, 0] = B[n, -1] = 0
    for i in range(n):
        for c in range(k):
            has = sets[sets >> c & 1 == 1]
            step = x[i, c] + np.logaddexp(A[i, has], A[i, has ^ (1 << c)])
            A[i + 1, has] = np.logaddexp(A[i + 1, has], step)
    Q = np.empty((n, k))
    for i in range(n - 1, -1, -1):
        for c in range(k):
            after = B[i + 1, sets | 1 << c]
            B[i] = np.logaddexp(B[i], x[i, c] + after)
            Q[i, c] = np.exp(np.logaddexp.reduce(A[i] + after) + x[i, c] - A[n, -1])
    return Q


def numpy_estep(logits, offsets, Y):
    """Forward and backward sums bag by bag, each step a NumPy operation over all sets."""
    Q = np.zeros_like(logits)
    for b in range(len(Y)):
        labels = np.flatnonzero(Y[b])
        x = logits[offsets[b] : offsets[b + 1], labels]
        n, k = x.shape
        r = np.exp(x - x.max(axis=1, keepdims=True))
        r /= r.sum(axis=1, keepdims=True)
        sets = np.arange(1 << k)
        joined = sets[:, None] | 1 << np.arange(k)
        A, B = np.zeros((n + 1, 1 << k)), np.zeros(1 << k)
        A[0, 0] = B[-1] = 1
        for i in range(n):
            for c in range(k):
                A[i + 1] += np.bincount(joined[:, c], weights=A[i] * r[i, c], minlength=1 << k)
        for i in range(n - 1, -1, -1):
            J = A[i] @ B[joined] * r[i]
            # An impossible bag has nothing to divide by.
            Q[offsets[b] + i, labels] = J / max(J.sum(), 1e-300)
            B = B[joined] @ r[i]
    return Q


def equal_bags(rng, n_bags, n, k, scale=1.0, n_classes=N_CLASSES):
    Y = np.zeros((n_bags, n_classes), dtype=np.int8)
    for labels in Y:
        labels[rng.choice(n_classes, k, replace=False)] = 1
    return rng.normal(size=(n_bags * n, n_classes)) * scale, np.arange(n_bags + 1) * n, Y


def stress(quick):
    rng = np.random.default_rng(0)
    cases = [(f"8 instances, 5 labels, scale {s}", 8, 5, s, 40) for s in (1, 10, 20, 40, 80, 160)]
    cases += [("8 instances, 5 labels, logits -1000 or 1000", 8, 5, None, 40)]
    cases += [
        ("500 instances, 6 labels, scale 1", 500, 6, 1, 2),
        ("500 instances, 6 labels, scale 100", 500, 6, 100, 2),
    ]
    cases += [("500 instances, 5 labels, logits -1000 or 1000", 500, 5, None, 2)]
    cases += (
        []
        if quick
        else [("30 instances, 16 labels, scale 1", 30, 16, 1, 1), ("... scale 100", 30, 16, 100, 1)]
    )
    header(
        "Largest error of a posterior (NaN entries)",
        "bags",
        "default",
        "paper: substitution",
        "paper: forward",
    )
    for name, n, k, scale, repeats in cases:
        worst = {m: [0.0, 0] for m in ("auto", "substitution", "forward")}
        for _ in range(repeats):
            if scale is None:
                # One label wanted by nobody, or every bag would be decided by a few instances.
                logits = rng.choice([-1000.0, 1000.0], size=(n, k))
                logits[:, 0] = -1000 + rng.random(n)
            else:
                logits = rng.normal(size=(n, k)) * scale
            exact = reference(logits, np.float64 if k > 10 else np.longdouble)
            for method, entry in worst.items():
                if method == "forward" and n * 2**k > 2**17:
                    entry[0] = np.nan
                    continue
                Y = np.ones((1, k), dtype=np.int8)
                with np.errstate(all="ignore"):
                    Q = union_posterior(logits, np.array([0, n]), Y, method=method)[0]
                error = np.abs(Q - exact)
                entry[0] = max(entry[0], np.nanmax(error, initial=0.0))
                entry[1] += int(np.isnan(error).sum())
        row(name, *("not run" if np.isnan(e) else f"{e:.1e} ({n_nan})" for e, n_nan in worst.values()))


def speed(quick):
    methods = ["forward", "substitution", "forward_backward", "auto"]
    header(
        f"E-step of bags with {N_CLASSES} classes, ms", "bags x (instances, labels)", "paper: forward",
        "paper: substitution", "forward-backward", "default", "NumPy per bag", "substitution / default",
        "NumPy / default",
    )  # fmt: skip
    for n_bags, n, k in GRID:
        logits, offsets, Y = equal_bags(np.random.default_rng(1), n_bags, n, k)
        weights, out = np.ones(n_bags), np.empty_like(logits)
        ms = {}
        for m in methods:
            if m == "forward" and (quick or n_bags * n * n * k * 2**k > 3e8):
                continue
            bags = UnionPass(offsets, Y, method=m)  # made once per fit
            ms[m] = best_ms(bags.run, logits, weights, out=out, residual=True)
        # A few bags tell the time of all, they are of one size.
        few = max(1, n_bags // 50)
        plain = best_ms(numpy_estep, logits, offsets, Y[:few], budget=0.1, least=2) * n_bags / few
        row(f"{n_bags} x ({n}, {k})", *(f"{ms[m]:.2f}" if m in ms else "-" for m in methods), f"{plain:.0f}",
            f"{ms['substitution'] / ms['auto']:.1f}", f"{plain / ms['auto']:.0f}")  # fmt: skip


def read_dbpedia(folder):
    with gzip.open(folder / "mltm_dbpedia" / "train-data.dat.gz", "rt") as lines:
        sizes = [int(line[1 : line.index(">")]) for line in lines]
    Y = np.loadtxt(folder / "mltm_dbpedia" / "train-label.dat.gz", dtype=np.int8)
    return np.concatenate([[0], np.cumsum(sizes)]), Y


def read_frost(folder):
    with open(folder / "letter_frost" / "letter_frost_instances.csv", newline="") as lines:
        pairs = [(int(r["bag"]), r["letter"]) for r in csv.DictReader(lines)]
    bags = sorted({b for b, _ in pairs})
    Y = np.zeros((len(bags), 26), dtype=np.int8)
    for b, letter in pairs:
        Y[bags.index(b), ord(letter.upper()) - ord("A")] = 1
    sizes = [sum(1 for b, _ in pairs if b == bag) for bag in bags]
    return np.concatenate([[0], np.cumsum(sizes)]), Y


def real_bags(folder):
    columns = ("data", "logits", "paper: substitution", "default", "NumPy per bag", "substitution / default")
    header("E-step of real label sets, random logits, ms", *columns)
    for name, read in (("DBpedia train", read_dbpedia), ("Letter Frost", read_frost)):
        offsets, Y = read(folder)
        rng = np.random.default_rng(0)
        logits = rng.normal(size=(offsets[-1], Y.shape[1]))
        # As a trained model has them: every instance is fairly sure of one label, and that is one of its bag.
        sure = logits.copy()
        for b, labels in enumerate(Y):
            here = np.arange(offsets[b], offsets[b + 1])
            if labels.any():
                own = rng.permutation(np.flatnonzero(labels))
                sure[here, np.resize(own, len(here))] += 5
        weights, out = np.ones(len(Y)), np.empty_like(logits)
        plain = best_ms(numpy_estep, logits, offsets, Y, budget=0.1, least=1)
        for kind, x in (
            ("N(0, 1)", logits),
            ("3 N(0, 1)", 3 * logits),
            ("10 N(0, 1)", 10 * logits),
            ("trained", sure),
        ):
            slow, fast = (
                best_ms(UnionPass(offsets, Y, method=m).run, x, weights, out=out, budget=1.0, residual=True)
                for m in ("substitution", "auto")
            )
            row(f"{name}: {len(Y)} bags, {offsets[-1]} instances", kind, f"{slow:.2f}", f"{fast:.2f}",
                f"{plain:.0f}", f"{slow / fast:.1f}")  # fmt: skip


def plot(path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    def seconds_per_bag(method, n, k):
        n_bags = max(1, int(2e5 / (n * 2**k)))
        logits, offsets, Y = equal_bags(np.random.default_rng(2), n_bags, n, k)
        weights, out = np.ones(n_bags), np.empty_like(logits)
        bags = UnionPass(offsets, Y, method=method)
        return best_ms(bags.run, logits, weights, out=out, budget=0.02, residual=True) / 1e3 / n_bags

    names = {"auto": "default", "forward_backward": "forward-backward", "substitution": "paper: substitution"}
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    labels, instances = np.arange(1, 15), np.array([2, 5, 10, 20, 50, 100, 200, 500, 1000])
    for method, name in names.items():
        left.plot(labels, [seconds_per_bag(method, 20, k) for k in labels], marker="o", label=name)
        # A bag of two instances has two labels at most.
        right.plot(
            instances, [seconds_per_bag(method, n, min(n, 6)) for n in instances], marker="o", label=name
        )
    left.set(xlabel="labels of a bag of 20 instances", ylabel="seconds per bag, one thread", yscale="log")
    right.set(xlabel="instances of a bag with 6 labels", xscale="log")
    left.legend()
    figure.savefig(path, dpi=150)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="leave out what takes long")
    parser.add_argument("--plot", metavar="FILE", help="draw time over labels and over instances")
    parser.add_argument("--data", metavar="FOLDER", default=os.environ.get("BAGWISE_DATA"))
    options = parser.parse_args()
    numba.set_num_threads(1)
    stress(options.quick)
    speed(options.quick)
    if options.data:
        real_bags(Path(options.data))
    if options.plot:
        plot(options.plot)


if __name__ == "__main__":
    main()
