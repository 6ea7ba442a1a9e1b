"""Segment kernels against NumPy's reduceat, and measures against scikit-learn, as ratios within one run.

Each pair is timed in turns, so that whatever else the machine does falls on both; the table gives medians.
scikit-learn's functions are timed on a part and scaled up: on the first bags where they loop over bags, on
the first labels where they loop over labels.
"""

import argparse
import os
import time

import numba
import numpy as np
import sklearn
from sklearn import metrics as sk

from bagwise import metrics
from bagwise.compute.segment import segment_logsumexp, segment_max, segment_sum
from bagwise.compute.threads import cores


def reduceat_logsumexp(X, offsets):
    top = np.maximum.reduceat(X, offsets[:-1], axis=0)
    shifted = np.exp(X - np.repeat(top, np.diff(offsets), axis=0))
    return top + np.log(np.add.reduceat(shifted, offsets[:-1], axis=0))


def seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def in_turns(ours, theirs, repeats):
    """Median seconds of each, after one call of ours that may compile."""
    ours()
    times = np.array([(seconds(ours), seconds(theirs)) for _ in range(repeats)])
    return np.median(times, axis=0)


def segments(n_instances, n_bags, k, repeats):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_instances, k), dtype=np.float32)
    cuts = np.sort(
        rng.choice(np.arange(1, n_instances), n_bags - 1, replace=False)
    )  # no empty bag: reduceat fails
    offsets = np.concatenate([[0], cuts, [n_instances]]).astype(np.int64)
    size = f"{n_instances:,} x {k} float32, {n_bags:,} bags"
    for name, ours, theirs in [
        ("max", segment_max, lambda X, o: np.maximum.reduceat(X, o[:-1], axis=0)),
        ("sum", segment_sum, lambda X, o: np.add.reduceat(X, o[:-1], axis=0)),
        ("logsumexp", segment_logsumexp, reduceat_logsumexp),
    ]:
        difference = np.abs(ours(X, offsets) - theirs(X, offsets)).max()
        a, b = in_turns(lambda f=ours: f(X, offsets), lambda f=theirs: f(X, offsets), repeats)
        yield f"segment {name}", size, a, b, "NumPy reduceat", f"{difference:.1e}"


def sklearn_ranking(Y, S):
    return (
        sk.label_ranking_loss(Y, S),
        sk.label_ranking_average_precision_score(Y, S),
        sk.coverage_error(Y, S) - 1,
    )


def bagwise_ranking(Y, S):
    result = metrics.evaluate(Y, S, ties="sklearn", degenerate="count")
    return result["ranking_loss"], result["average_precision"], result["coverage"]


def measures(n_bags, n_labels, n_part, labels_per_bag, repeats):
    rng = np.random.default_rng(1)
    Y = (rng.random((n_bags, n_labels), dtype=np.float32) < labels_per_bag / n_labels).astype(np.int8)
    Y[rng.integers(n_bags, size=n_labels), np.arange(n_labels)] = (
        1  # scikit-learn has no AUC for absent labels
    )
    S = rng.random(Y.shape, dtype=np.float32) + 0.3 * Y.astype(np.float32)
    size = f"{n_bags:,} x {n_labels:,}, {labels_per_bag} labels per bag"
    rules = {"ties": "sklearn", "degenerate": "count"}
    some_bags, some_labels = np.s_[:n_part], np.s_[:, : n_labels // 50]
    cases = [
        ("ranking_loss", lambda Y, S: metrics.ranking_loss(Y, S, **rules), sk.label_ranking_loss, some_bags),
        (
            "average_precision",
            lambda Y, S: metrics.average_precision(Y, S, **rules),
            sk.label_ranking_average_precision_score,
            some_bags,
        ),
        ("coverage", lambda Y, S: metrics.coverage(Y, S, ties="sklearn") + 1, sk.coverage_error, some_bags),
        ("mean_average_precision", metrics.mean_average_precision, sk.average_precision_score, some_labels),
        ("roc_auc", metrics.roc_auc, sk.roc_auc_score, some_labels),
        ("evaluate, 8 measures (other: the first 3)", bagwise_ranking, sklearn_ranking, some_bags),
    ]
    for name, ours, theirs, part in cases:
        y, s = Y[part], S[part]
        scale = Y.size / y.size
        difference = np.abs(np.subtract(ours(y, s), theirs(y, s))).max()
        a, b = in_turns(lambda f=ours: f(Y, S), lambda f=theirs, y=y, s=s: f(y, s), repeats)
        part_size = f"scikit-learn, {y.shape[0]:,} x {y.shape[1]:,} times {scale:g}"
        yield name, size, a, b * scale, part_size, f"{difference:.1e}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a hundredth of the size, to try the script")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, {cores()} threads, numba {numba.__version__}, ", end="")
    print(f"NumPy {np.__version__}, scikit-learn {sklearn.__version__}; medians of {options.repeats}\n")
    print("| what | size | bagwise, s | other, s | ratio | other | largest difference |")
    print("|---|---|---:|---:|---:|---|---:|")
    shrink = 100 if options.small else 1
    rows = [(segments, (1_000_000 // shrink, 50_000 // shrink, 100, options.repeats))]
    for labels_per_bag in (3, 100):
        rows.append((measures, (100_000 // shrink, 1000, 2000 // shrink, labels_per_bag, options.repeats)))
    for function, arguments in rows:
        for what, size, ours, other, against, difference in function(*arguments):
            times = f"{ours:.4f} | {other:.3f} | {other / ours:.1f}"
            print(f"| {what} | {size} | {times} | {against} | {difference} |")


if __name__ == "__main__":
    main()
