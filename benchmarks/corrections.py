"""What corrections are worth: accuracy over the number of corrected parts, by uncertainty and at random.

    python benchmarks/corrections.py            # digits, and Letter Frost where BAGWISE_DATA holds it
    python benchmarks/corrections.py --plot docs/images/corrections.png --csv corrections.csv

Bags come with their label sets only. In each round a person says the label of ten more parts of the training
bags: those whose posterior given the label set is least certain, or any. ORed logistic regression is fitted
again with these parts held fixed. Accuracy is the share of parts of other bags whose label is found without
knowing the set of their bag ("new parts"), and of training parts given their sets ("own parts"; what was
corrected is right).
"""

import argparse
import csv
import os
import warnings

import numpy as np

from bagwise import load_dataset
from bagwise.datasets import make_digits
from bagwise.models import ORedLogisticRegression

ROUND = 10


def sets():
    yield "digits", make_digits(n_bags=400, min_size=4, max_size=8, pictures=False), 40, 100
    if os.environ.get("BAGWISE_DATA"):
        yield "Letter Frost", load_dataset("letter_frost"), 72, 100


def choose(posterior, known, how, rng):
    """Parts to ask about next."""
    open_ = np.flatnonzero(known < 0)
    if how == "at random":
        return rng.permutation(open_)[:ROUND]
    two = np.sort(posterior[open_], axis=1)[:, -2:]
    margin = two[:, 1] - two[:, 0] + 1e-9 * rng.random(len(open_))
    return open_[np.argsort(margin)[:ROUND]]


def curve(data, n_train, most, how, seed):
    """Rows (corrections, accuracy of new parts, accuracy of own parts)."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(data))
    train, test = data[np.sort(order[:n_train])], data[np.sort(order[n_train : n_train + 200])]
    known = np.full(train.bags.n_instances, -1)
    rows = []
    while True:
        model = ORedLogisticRegression(decision="union", alpha=1.0).fit(train.bags, train.Y, instance_y=known)
        new = (model.annotate(test.bags) == test.instance_Y).mean()
        labels, posterior = model.annotate(train.bags, train.Y, return_proba=True)
        own = ((labels == train.instance_Y) | (known >= 0)).mean()
        rows.append((int((known >= 0).sum()), float(new), float(own)))
        if rows[-1][0] >= most:
            return rows
        asked = choose(posterior, known, how, rng)
        known[asked] = train.instance_Y[asked]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--plot", help="figure to write")
    parser.add_argument("--csv", help="table to write")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")  # sets with more labels than parts are candidates
    results = {}
    for name, data, n_train, most in sets():
        for how in ("by uncertainty", "at random"):
            runs = np.array([curve(data, n_train, most, how, seed) for seed in range(asked.repeats)])
            results[name, how] = runs
        first, second = results[name, "by uncertainty"], results[name, "at random"]
        print(f"\n{name}: {n_train} bags with label sets, mean of {asked.repeats} draws of bags")
        print("corrections   new parts: by uncertainty  at random    own parts: by uncertainty  at random")
        for k in range(first.shape[1]):
            values = [r[:, k, c].mean() for c in (1, 2) for r in (first, second)]
            print(
                f"{first[0, k, 0]:11.0f}{values[0]:28.3f}{values[1]:11.3f}{values[2]:29.3f}{values[3]:11.3f}"
            )
    if asked.csv:
        with open(asked.csv, "w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["set", "order", "seed", "corrections", "new_parts", "own_parts"])
            for (name, how), runs in results.items():
                for seed, rows in enumerate(runs):
                    table.writerows([name, how, seed, int(n), f"{a:.4f}", f"{b:.4f}"] for n, a, b in rows)
    if asked.plot:
        plot(results, asked.plot)


def plot(results, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(name for name, _ in results))
    figure, axes = plt.subplots(1, len(names), figsize=(4.2 * len(names), 3.1), squeeze=False)
    for axis, name in zip(axes[0], names):
        for how, colour, dash in (("by uncertainty", "#0072b2", "-"), ("at random", "#d55e00", "--")):
            runs = results[name, how]
            x, y = runs[0, :, 0], runs[:, :, 1]
            axis.plot(x, y.mean(axis=0), dash, color=colour, label=how, marker="o", markersize=3)
            error = y.std(axis=0, ddof=1) / np.sqrt(len(y)) if len(y) > 1 else np.zeros(len(x))
            axis.fill_between(
                x, y.mean(axis=0) - error, y.mean(axis=0) + error, color=colour, alpha=0.15, lw=0
            )
        axis.set(title=name, xlabel="corrected parts", ylabel="accuracy of new parts")
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
    axes[0, 0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
