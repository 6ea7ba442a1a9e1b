"""Every model that learns from shards, on streamed parts and in memory, in turn in the same run.

    python benchmarks/learn_from_shards.py --instances 1e5 --parts 8

Prints passes over the data, processor seconds of both fits and their ratio, and the ranking quality of both
on bags that neither saw. Settings are the same, iterations few: the price of streaming is what is compared.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings

import numpy as np
from scale import pieces

from bagwise import ShardedBags
from bagwise.compute.parts import watched
from bagwise.metrics import average_precision
from bagwise.models import (
    MIMLGP,
    MMMIL,
    MIMLFast,
    MIMLMix,
    ORedLogisticRegression,
    PooledLogisticRegression,
)

MIX = {"eta": 1.0, "xi": 0.1, "nu": 10.0, "alpha_train": 5.0, "n_topics": 5, "tied_start": 0}
LEARNERS = {
    "ORedLogisticRegression": lambda: ORedLogisticRegression(
        alpha=1.0, background=False, decision="union", max_iter=10
    ),
    "PooledLogisticRegression": lambda: PooledLogisticRegression(max_iter=20),
    "MIMLFast": lambda: MIMLFast(n_sub_concepts=1, max_iter=3, random_state=0),
    "MIMLGP, linear": lambda: MIMLGP("linear", max_iter=4),
    "MIMLGP, 50 landmarks": lambda: MIMLGP(
        width=15.0, scaling="none", factor="nystroem", rank=50, label_covariance="scalar", max_iter=4,
        random_state=0,
    ),
    "MMMIL, one cluster": lambda: MMMIL(1, max_iter=5, random_state=0),
    "MIMLMix, diagonal": lambda: MIMLMix(covariance="diag", max_iter=8, random_state=0, **MIX),
}  # fmt: skip


def timed(fit) -> tuple[object, float]:
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few iterations are meant
        model = fit()
    return model, time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--instances", type=float, default=1e5)
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    test = next(pieces(1e4, seed=1))
    with tempfile.TemporaryDirectory() as folder:
        part_bytes = int(given.instances * 400 / given.parts)
        shards = ShardedBags.write(pieces(given.instances), f"{folder}/s", part_bytes=part_bytes)
        data, warm = shards.load(), next(pieces(500))
        print(shards)
        print(f"{'':26s} passes   streamed  in memory  ratio   average precision")
        for name, make in LEARNERS.items():
            if given.only not in name:
                continue
            timed(lambda make=make: make().fit(warm.bags, warm.Y))  # compiles
            passes = []
            with watched(lambda step, k, n, passes=passes: passes.append(k == 1)):
                streamed, first = timed(lambda make=make: make().fit(shards))
            in_memory, second = timed(lambda make=make: make().fit(data.bags, data.Y))
            quality = [
                average_precision(test.Y, m.decision_function(test.bags)) for m in (streamed, in_memory)
            ]
            print(
                f"{name:26s} {np.sum(passes):6d} {first:8.1f} s {second:8.1f} s {first / second:6.2f}   "
                f"{quality[0]:.4f} and {quality[1]:.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
