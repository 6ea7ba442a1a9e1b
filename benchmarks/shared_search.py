"""CPU seconds of searches with and without shared work, side by side: python benchmarks/shared_search.py

The same settings, folds and results; only what settings have in common is computed once instead of anew.
"""

from __future__ import annotations

import contextlib
import time
import warnings

import numpy as np

import papers.methods as room
from bagwise.datasets import make_miml
from bagwise.registry import get_estimator

ROUNDS = 2
GRIDS = {
    "MIMLRBF": {"ratio": [0.1, 0.4], "width_scale": [0.3, 0.6, 1.0]},
    "MIMLSVM": {"ratio": [0.2], "gamma": [0.1, 0.2, 0.4], "C": [1.0, 4.0]},
    "MIMLKNN": {"n_references": [10, 20], "n_citers": [10, 20]},
    "SetKernelSVM": {"gamma": [0.1, 0.3], "C": [1.0, 10.0, 100.0]},
    "CodebookSVM": {"n_words": [50, 100], "C": [1.0, 10.0]},
    "MMMIL": {"kernel": ["rbf"], "n_clusters": [1, 3], "width_scale": [0.5], "gate_penalty": [0.01, 0.1]},
}


def cpu(name: str, shared: bool) -> tuple[float, np.ndarray]:
    """Seconds of one search, and what its choice says of the bags."""
    data = make_miml(n_bags=300, n_labels=3, min_size=6, max_size=12, random_state=0)
    model = get_estimator(name)()
    if "random_state" in model.get_params():
        model.set_params(random_state=0)
    spec = {"grid": GRIDS[name], "cv": 2, "scoring": "average_precision"}
    kept = room.shared_work
    room.shared_work = kept if shared else contextlib.nullcontext
    try:
        start = time.process_time()
        fitted, _ = room.search(model, spec, data.bags, data.Y, 0)
        return time.process_time() - start, fitted.decision_function(data.bags)
    finally:
        room.shared_work = kept


def main() -> None:
    """Print a line per method: best of some rounds of each way in turn."""
    warnings.simplefilter("ignore")
    for name in GRIDS:
        cpu(name, True)  # compiles
        alone, together = [], []
        for _ in range(ROUNDS):
            seconds, apart = cpu(name, False)
            alone.append(seconds)
            seconds, scores = cpu(name, True)
            together.append(seconds)
            assert np.allclose(scores, apart, rtol=1e-6)
        ratio = min(alone) / min(together)
        print(f"{name:14s} alone {min(alone):6.2f} s   shared {min(together):6.2f} s   {ratio:4.1f} x less")


if __name__ == "__main__":
    main()
