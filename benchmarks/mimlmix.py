"""MIMLmix: seconds of training and prediction at the sizes of the paper, on generated views.

    python benchmarks/mimlmix.py [training] [bags] [prediction] [words] [--repeats 2] [--against FOLDER]

Prints Markdown tables. ``--against`` runs the same in another checkout of the library, alternately with this
one, and prints the ratio of CPU seconds (that checkout over this one). Settings are given, so that nothing is
searched. How well labels are found is the business of the suite of the paper (``python -m papers mimlmix``)
and of ``bagwise compare``; what the first fit compiles that of ``benchmarks/first_contact.py``. One core:
``taskset -c 0 python benchmarks/mimlmix.py ...``.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from scipy import sparse

from bagwise import Bags
from bagwise.datasets.mimlmix_like import make_mimlmix_like
from bagwise.models import MIMLMix

GIVEN = {"eta": 3.0, "xi": 0.1, "kappa": 300.0, "nu": 10.0, "alpha_train": 5.0, "random_state": 0}
TOPICS = {"citeseer": 200, "imageclef": 200, "iaprtc": 50}
ETAS = (0.0, 3.0, 30.0)


def seconds(call, repeats):
    """Least CPU seconds of some calls, with the wall seconds of that one."""
    best = (np.inf, np.inf)
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        best = min(best, (time.process_time() - cpu, time.perf_counter() - wall))
    return best


def compiled(size):
    small = make_mimlmix_like(size, 40)
    model = MIMLMix(**GIVEN, n_topics=5, max_iter=12).fit(small.bags, small.Y)
    model.instance_scores(small.bags)


def training(repeats):
    """Training with label topics at the published sizes."""
    for size, n_topics in TOPICS.items():
        compiled(size)
        data = make_mimlmix_like(size)
        model = MIMLMix(**GIVEN, n_topics=n_topics)
        found = seconds(lambda m=model, d=data: m.fit(d.bags, d.Y), repeats)
        yield f"{size}, {len(data)} bags, {n_topics} topics, {model.n_iter_} iterations", found


def bags(repeats):
    """Ten iterations against the number of bags."""
    compiled("citeseer")
    for n_bags in (2430, 4860, 9719):
        data = make_mimlmix_like("citeseer", n_bags)
        model = MIMLMix(**GIVEN, n_topics=200, tol=0.0, max_iter=10)
        yield f"citeseer, {n_bags} bags", seconds(lambda m=model, d=data: m.fit(d.bags, d.Y), repeats)


def prediction(repeats):
    """Scores of 300 bags under all labels, by the strength of the topics; and of their instances."""
    for size, n_topics in TOPICS.items():
        compiled(size)
        data = make_mimlmix_like(size, 1300)
        train, test = data[:1000], data.bags[1000:]
        model = MIMLMix(**GIVEN, n_topics=n_topics, max_iter=12).fit(train.bags, train.Y)
        for eta in ETAS:
            model.settings_["eta"] = eta
            yield f"{size}, eta {eta:g}", seconds(lambda m=model, t=test: m.label_scores(t), repeats)
        found = seconds(lambda m=model, t=test: m.instance_scores(t), repeats)
        yield f"{size}, eta {ETAS[-1]:g}, instances", found


def words(repeats):
    """Training on weights of words (tf-idf), 2,000 of them and 100 labels: the view stays sparse."""
    rng = np.random.default_rng(0)
    n_bags, n_labels, n_words = 2000, 100, 2000
    Y = (rng.random((n_bags, n_labels)) < 0.02).astype(int)
    Y[np.arange(n_bags), rng.integers(0, n_labels, n_bags)] = 1
    sizes = rng.integers(2, 8, n_bags)
    X = sparse.random_array((sizes.sum(), n_words), density=0.01, rng=rng, format="csr")
    data = Bags(X, np.concatenate([[0], np.cumsum(sizes)]))
    model = MIMLMix(**GIVEN, n_topics=20, max_iter=12)
    model.fit(data[:50], Y[:50])
    yield f"tf-idf, {n_bags} bags, {n_labels} labels", seconds(lambda: model.fit(data, Y), repeats)


def measured(part, repeats, folder=None):
    """Rows of one part, measured here or in another checkout."""
    if folder is None:
        warnings.simplefilter("ignore")
        return list(globals()[part](repeats))
    command = [sys.executable, str(Path(__file__).resolve()), part, "--repeats", str(repeats), "--json"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parts = ("training", "bags", "prediction", "words")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*parts, []])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--against", type=Path, help="folder of another checkout")
    parser.add_argument("--json", action="store_true", help="one line of JSON instead of a table")
    options = parser.parse_args()
    for part in options.parts or parts:
        rows = measured(part, options.repeats)
        if options.json:
            print(json.dumps(rows))
            continue
        head = ["", "CPU s", "wall s", *(["other / this"] if options.against else [])]
        print(f"\n### {globals()[part].__doc__}\n\n| {' | '.join(head)} |\n" + len(head) * "|---" + "|")
        others = measured(part, options.repeats, options.against) if options.against else [None] * len(rows)
        for (title, (cpu, wall)), other in zip(rows, others):
            ratio = f" {other[1][0] / cpu:.2f} |" if other else ""
            print(f"| {title} | {cpu:.2f} | {wall:.2f} |{ratio}", flush=True)


if __name__ == "__main__":
    main()
