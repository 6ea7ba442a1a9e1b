"""Baseline methods of the papers: what a fit costs, beside plain loops where those can be waited for.

    python benchmarks/baseline_methods.py [SECTION ...] [--data FOLDER] [--seed N]

A section is a method; all of them by default. Prints Markdown. FOLDER (or BAGWISE_DATA) holds the public
sets. Times are CPU seconds of the process; both of a ratio are taken in the same run.
"""

import argparse
import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import minmax_scale

from bagwise import Bags, load_dataset
from bagwise.models import CSMISVM, CSSVM, DMIMLSVM, KISAR, M3MIML, MIMLBoost

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "models" / "svm"))


def cpu(call):
    """CPU seconds of a call, and what it returned."""
    start = time.process_time()
    found = call()
    return time.process_time() - start, found


def letters(n_bags):
    data = load_dataset("letter_carroll")
    bags = Bags(minmax_scale(data.bags.X), data.bags.offsets)[:n_bags]
    return bags, data.Y[:n_bags]


def scene(model):
    """CPU and wall seconds on all of Scene, and what the model says about itself."""
    data = load_dataset("miml_scene")
    start = time.perf_counter()
    seconds, fitted = cpu(lambda: model.fit(data.bags, data.Y))
    wall = time.perf_counter() - start
    print(
        f"- {model} on Scene (2,000 bags, 18,000 instances): {seconds:.0f} s CPU, {wall:.0f} s wall", end=""
    )
    missed = getattr(fitted, "kernel_error_", None)
    print("" if missed is None else f"; landmarks miss {missed:.1e}", flush=True)


def miml_boost(options):
    from plain_loops import boosted_votes

    for n_bags in (40, 80):
        bags, Y = letters(n_bags)
        Y = Y[:, Y.min(axis=0) < Y.max(axis=0)]
        T = np.where(Y > 0, 1.0, -1.0)
        rng = np.random.RandomState(options.seed)
        slow, (machines, _) = cpu(
            lambda bags=bags, T=T, rng=rng: boosted_votes(
                list(bags), T, gamma=1.0, C=1.0, n_rounds=3, rng=rng
            )
        )
        model = MIMLBoost(3, scaling="none", random_state=options.seed)
        quick = min(cpu(lambda model=model, bags=bags, Y=Y: model.fit(bags, Y))[0] for _ in range(3))
        rows = bags.n_instances * Y.shape[1]
        print(
            f"- MIMLBoost, {n_bags} bags of Letter Carroll ({rows:,} rows), {model.n_iter_} machines "
            f"(loops: {len(machines)}): loops {slow:.2f} s, here {quick:.2f} s, ratio {slow / quick:.0f}",
            flush=True,
        )
    scene(MIMLBoost(random_state=options.seed))


def d_miml_svm(options):
    from plain_loops import d_miml_svm as loops

    settings = {"gamma": 1.0, "C": 10.0, "alignment": 0.1, "sharing": 1.0}
    for n_bags in (10, 20):
        bags, Y = letters(n_bags)
        Y = Y[:, Y.min(axis=0) < Y.max(axis=0)]
        T = np.where(Y > 0, 1.0, -1.0)
        slow, (lowest, _, _) = cpu(lambda bags=bags, T=T: loops(list(bags), T, **settings))
        model = DMIMLSVM(**settings, scaling="none", tol=1e-4)
        quick = min(cpu(lambda model=model, bags=bags, Y=Y: model.fit(bags, Y))[0] for _ in range(3))
        print(
            f"- D-MIMLSVM, {n_bags} bags of Letter Carroll ({bags.n_instances} instances, {Y.shape[1]} "
            "labels): "
            f"loops {slow:.1f} s (objective {lowest:.2f}), here {quick:.3f} s (objective "
            f"{model.objective_:.2f}), ratio {slow / quick:.0f}",
            flush=True,
        )
    scene(DMIMLSVM())


def m3_miml(options):
    scene(M3MIML())


def kisar(options):
    scene(KISAR(random_state=options.seed))


def cs_svm(options):
    scene(CSSVM())


def cs_mi_svm(options):
    scene(CSMISVM())


SECTIONS = {
    "MIMLBoost": miml_boost,
    "DMIMLSVM": d_miml_svm,
    "M3MIML": m3_miml,
    "KISAR": kisar,
    "CSSVM": cs_svm,
    "CSMISVM": cs_mi_svm,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--data", help="folder with the public sets")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.data:
        os.environ["BAGWISE_DATA"] = options.data
    warnings.simplefilter("ignore", ConvergenceWarning)
    for name in options.sections or SECTIONS:
        print(f"\n### {name}\n", flush=True)
        SECTIONS[name](options)


if __name__ == "__main__":
    main()
