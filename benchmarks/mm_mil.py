"""MM-MIL: CPU seconds per fit against instances, clusters, kernel and solver, on generated bags.

    python benchmarks/mm_mil.py [fits] [solvers] [--largest 3000]

Prints Markdown tables. Nothing is said about quality: see the suite of the paper (``python -m papers
mm-mil``) and ``bagwise compare``.
"""

import argparse
import time
import warnings

from bagwise.datasets import make_sub_concepts
from bagwise.models import MMMIL

CLUSTERS = (1, 3, 6)


def row(*cells):
    print("| " + " | ".join(f"{c:.3f}" if isinstance(c, float) else str(c) for c in cells) + " |", flush=True)


def header(*names):
    row(*names)
    row(*("---" for _ in names))


def generated(n_bags):
    return make_sub_concepts(
        n_bags, 1, 3, min_size=3, max_size=10, cardinality=0.5, noise=1.0, random_state=0
    )


def seconds(model, data):
    begin = time.process_time()
    model.fit(data.bags, data.Y[:, 0])
    return time.process_time() - begin


def fits(options):
    """Seconds per fit against instances and clusters M."""
    header("instances", *(f"{kind} M={M}" for kind in ("linear", "rbf 300") for M in CLUSTERS))
    for n_bags in (100, 300, 1000, 3000, 10000):
        if n_bags <= options.largest:
            data = generated(n_bags)
            models = [
                MMMIL(M, kernel=kernel, n_landmarks=300, random_state=0)
                for kernel in (None, "rbf")
                for M in CLUSTERS
            ]
            row(data.bags.n_instances, *(seconds(model, data) for model in models))


def solvers(options):
    """Seconds per fit of the three solvers; the last columns say where Eq. (7) ended, lower is further."""
    names = ("smooth", "em", "paper")
    header("M", *(f"s {name}" for name in names), *(f"Eq. (7) {name}" for name in names))
    data = generated(200)
    for M in CLUSTERS:
        models = [MMMIL(M, solver=name, max_iter=30, random_state=0) for name in names]
        times = [seconds(model, data) for model in models]
        row(M, *times, *(float(model.objective_[0][-1]) for model in models))


PARTS = {"fits": fits, "solvers": solvers}


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("parts", nargs="*", choices=[[], *PARTS], help="all by default")
    words.add_argument("--largest", type=int, default=3000, help="largest number of bags")
    options = words.parse_args()
    warnings.simplefilter("ignore")
    MMMIL(2, random_state=0).fit(generated(50).bags, generated(50).Y[:, 0])  # compiles
    for name in options.parts or PARTS:
        print(f"\n{PARTS[name].__doc__}\n")
        PARTS[name](options)


if __name__ == "__main__":
    main()
