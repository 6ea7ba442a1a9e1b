"""What we wrote ourselves beside the library that could do it, taken in turns in one run.

    python benchmarks/own_or_library.py [trees] [text] [adam] [--repeats 3] [--device cuda]

Seconds are those of the processor (of a GPU: of the clock, after synchronising), medians of ``--repeats``
turns; a ratio is the library's time over ours. ``trees`` reads public sets from the folder BAGWISE_DATA,
``adam`` needs torch. Files and downloads: ``own_or_library_input.py``.
"""

import argparse
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.tree import ExtraTreeRegressor

from bagwise import load_dataset, metrics
from bagwise.model_selection import MultilabelKFold
from bagwise.models import BagClassifier

try:
    import torch
except ImportError:  # needed by one part
    torch = None


def median_seconds(ways, repeats, clock=time.process_time):
    """Median seconds of each of some functions, called in turns after one call each that does not count."""
    seconds = {name: [] for name in ways}
    for turn in range(repeats + 1):
        for name, way in ways.items():
            start = clock()
            way()
            if turn:
                seconds[name].append(clock() - start)
    return {name: float(np.median(taken)) for name, taken in seconds.items()}


# ---------------------------------------------------------------------- trees

TREE_SETS = ("miml_birds", "letter_frost", "msrcv2")


class LibraryForest:
    """Trees of scikit-learn on the bootstraps of whole bags that BagClassifier asks for.

    ``ExtraTreesRegressor`` draws rows, not groups of rows: its trees are used by themselves.
    """

    def __init__(self, trees):
        self.trees = trees

    def predict(self, X, n_jobs=None):
        """Mean over trees."""
        X = np.ascontiguousarray(X, dtype=np.float32)
        return np.mean(
            [tree.tree_.predict(X).reshape(len(X), tree.n_outputs_) for tree in self.trees], axis=0
        )

    def predict_unseen(self, X, used, n_jobs=None):
        """Mean over the trees that did not use a row, and how many they are."""
        X = np.ascontiguousarray(X, dtype=np.float32)
        total, counts = np.zeros((len(X), self.trees[0].n_outputs_)), (used == 0).sum(axis=0)
        for tree, seen in zip(self.trees, used):
            rows = np.flatnonzero(seen == 0)
            total[rows] += tree.tree_.predict(X[rows]).reshape(len(rows), tree.n_outputs_)
        return total / np.maximum(counts, 1)[:, None], counts


def library_forest(
    X, T, *, n_trees, seed, groups=None, weights=None, max_features=None, min_leaf=1, n_jobs=None
):
    """The arguments and answers of ``grow_forest``."""
    X, n = np.ascontiguousarray(X, dtype=np.float32), len(X)
    T = np.ascontiguousarray(T.toarray() if sparse.issparse(T) else T, dtype=np.float64)
    groups = np.arange(n) if groups is None else groups
    base = np.ones(n) if weights is None else weights
    tries, n_groups = max_features or max(1, int(np.sqrt(X.shape[1]))), groups.max() + 1
    trees, used = [], np.zeros((n_trees, n), dtype=np.uint8)
    for t in range(n_trees):
        rng = np.random.default_rng([seed, t])
        weight = base * np.bincount(rng.integers(0, n_groups, n_groups), minlength=n_groups)[groups]
        weight = weight if weight.any() else base
        tree = ExtraTreeRegressor(
            max_features=tries, min_samples_leaf=min_leaf, random_state=int(rng.integers(2**31))
        )
        trees.append(tree.fit(X, T, sample_weight=weight, check_input=False))
        used[t] = weight > 0
    return LibraryForest(trees), used


@contextmanager
def forests_by(grow):
    """BagClassifier with this in place of ``grow_forest``."""
    from bagwise.models.auto import fit, fit_instances

    before = fit.grow_forest
    fit.grow_forest = fit_instances.grow_forest = grow
    try:
        yield
    finally:
        fit.grow_forest = fit_instances.grow_forest = before


def trees(given):
    """BagClassifier as a whole with either forest, and growing and asking a forest alone."""
    from bagwise.models.auto.fit_forest import grow_forest

    ways = {"ours": grow_forest, "sklearn": library_forest}
    names = ("average_precision", "ranking_loss", "hamming_loss", "fit", "predict")
    print(f"{'set':<14}{'trees of':<10}" + "".join(f"{name:>18}" for name in names))
    for name in TREE_SETS:
        data, rows = load_dataset(name), {way: [] for way in ways}
        BagClassifier(random_state=0).fit(data.bags, data.Y).predict(data.bags)  # compiled before it counts
        for seed in range(100, 100 + given.splits):
            for train, test in MultilabelKFold(5, random_state=seed).split(data.bags, data.Y):
                for way, grow in ways.items():
                    with forests_by(grow):
                        start = time.process_time()
                        model = BagClassifier(random_state=0).fit(data.bags[train], data.Y[train])
                        fitted = time.process_time()
                        scores = model.decision_function(data.bags[test])
                    spent = fitted - start, time.process_time() - fitted
                    Y = data.Y[test]
                    measures = (
                        metrics.average_precision(Y, scores),
                        metrics.ranking_loss(Y, scores),
                        metrics.hamming_loss(Y, scores > 0),
                    )
                    rows[way].append((*measures, *spent))
        for way, found in rows.items():
            print(f"{name:<14}{way:<10}" + "".join(f"{value:>18.4f}" for value in np.mean(found, axis=0)))
        differences = np.subtract(rows["sklearn"], rows["ours"])[:, :3]
        error = differences.std(axis=0, ddof=1) / np.sqrt(len(differences))
        print(f"{'':<14}{'+- error':<10}" + "".join(f"{e:>18.4f}" for e in error))
    print(
        f"\n{'a forest alone':<16}{'rows':>8}{'labels':>8}{'ours s':>9}{'sklearn s':>11}{'ratio':>8}", end=""
    )
    print(f"{'ours MB':>10}{'sklearn MB':>12}")
    for name in (*TREE_SETS, "miml_scene", "msra_like"):
        data = load_dataset(name, **({"n_bags": 3000, "random_state": 0} if name == "msra_like" else {}))
        X, T, groups = data.bags.X.astype(np.float32), data.Y[data.bags.index], data.bags.index
        forests = {}

        def grown(way, X=X, T=T, groups=groups, forests=forests):
            forests[way], used = ways[way](X, T, n_trees=20, seed=0, groups=groups, min_leaf=3)
            forests[way].predict_unseen(X, used)

        taken = median_seconds({way: partial(grown, way) for way in ways}, given.repeats)
        ours, theirs = taken["ours"], taken["sklearn"]
        own = sum(a.nbytes for a in vars(forests["ours"]).values() if isinstance(a, np.ndarray))
        inside = [tree.tree_.__getstate__() for tree in forests["sklearn"].trees]
        other = sum(state["nodes"].nbytes + state["values"].nbytes for state in inside)
        print(f"{name:<16}{len(X):>8}{T.shape[1]:>8}{ours:>9.3f}{theirs:>11.3f}{theirs / ours:>8.2f}", end="")
        print(f"{own / 1e6:>10.2f}{other / 1e6:>12.2f}")


# ---------------------------------------------------------------------- text


def text(given):
    """Hashed words of the sentences of our own documentation, and where the features are not the same."""
    from bagwise.media.text.tokens import hashed, tokens

    documents = [path.read_text() for path in sorted(Path(__file__).parents[1].glob("docs/*.md"))]
    cases = {"documents of sentences": documents, "one document": ["\n".join(documents)]}
    cases["short notes"] = [line for line in "\n".join(documents).split("\n") if len(line) > 20]

    def cut(document):
        ends = np.cumsum([len(line) + 1 for line in document.split("\n")])
        return np.column_stack([np.r_[0, ends[:-1]], ends - 1])

    print(f"{'text':<26}{'words':>8}{'ours s':>9}{'sklearn s':>11}{'ratio':>8}{'largest difference':>20}")
    for title, given_texts in cases.items():
        spans = [cut(document) for document in given_texts]
        for n_grams in ((1, 1), (1, 2)):
            vectorizer = HashingVectorizer(n_features=2**18, ngram_range=n_grams, dtype=np.float32)

            def ours(texts=given_texts, spans=spans, n_grams=n_grams):
                pairs = zip(texts, spans)
                return [hashed(tokens(t, s), len(s), 2**18, n_grams=n_grams) for t, s in pairs]

            def theirs(texts=given_texts, vectorizer=vectorizer):
                return [vectorizer.transform(t.split("\n")) for t in texts]

            taken = median_seconds({"ours": ours, "sklearn": theirs}, given.repeats)
            gap = max(abs(a - b).max() for a, b in zip(ours(), theirs()))
            ratio = taken["sklearn"] / taken["ours"]
            label = f"{title}, {n_grams[0]}-{n_grams[1]}"
            print(f"{label:<31}{len(given_texts):>5}{taken['ours']:>9.3f}", end="")
            print(f"{taken['sklearn']:>11.3f}{ratio:>8.2f}{gap:>18.1e}")
    dense = "我们今天在森林里听到了很多鸟叫"
    ours = hashed(tokens(dense, np.array([[0, len(dense)]])), 1, 2**18).nnz
    theirs = HashingVectorizer(n_features=2**18).transform([dense]).nnz
    print(f"features of a Chinese clause of {len(dense)} letters: ours {ours}, sklearn's {theirs}")


# ---------------------------------------------------------------------- Adam


def library_adam(shapes, device, **options):
    """Torch's AdamW on parameters of these shapes with a limited gradient, as `models.deep` takes a step."""
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(shape, device=device)) for shape in shapes]
    gradients = [torch.randn_like(parameter) for parameter in parameters]
    optimiser = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=1e-2, **options)

    def step():
        for parameter, gradient in zip(parameters, gradients):
            parameter.grad = gradient.clone()
        torch.nn.utils.clip_grad_norm_(parameters, 5.0)
        optimiser.step()

    return step


def our_adam(shapes, device):
    """The same step by the one-vector AdamW."""
    from bagwise.models.deep.fit_members import AdamW

    torch.manual_seed(0)
    network = torch.nn.ParameterList([torch.randn(shape, device=device) for shape in shapes])
    optimiser = AdamW(network, 1e-3, 1e-2)
    gradients = [torch.randn_like(parameter) for parameter in network]

    def step():
        optimiser.zero()
        for parameter, gradient in zip(network, gradients):
            parameter.grad += gradient
        optimiser.step()

    return step


FIRST_STEP = """
import time, torch
from own_or_library import library_adam, our_adam
make = {"ours": our_adam, "fused": lambda *a: library_adam(*a, fused=True),
        "foreach": lambda *a: library_adam(*a, foreach=True)}["%s"]
start = time.process_time()
make([(8, 8), (8,)], "%s")()
print(time.process_time() - start)
"""


def adam(given):
    """A step of AdamW on networks of several sizes, and the first step of a process."""

    def clock():
        if given.device != "cpu":
            torch.cuda.synchronize()
            return time.perf_counter()
        return time.process_time()

    def often(step):
        def run():
            for _ in range(200):
                step()

        return run

    torch.set_num_threads(1)
    print(f"{'weights':<30}{'ours us':>9}{'fused us':>10}{'ratio':>7}{'foreach us':>12}{'ratio':>7}")
    for d, hidden, depth, labels in ((30, 64, 2, 10), (200, 256, 2, 20), (768, 512, 3, 50)):
        widths = [d] + [hidden] * depth + [labels]
        shapes = [shape for a, b in zip(widths[:-1], widths[1:]) for shape in ((b, a), (b,))]
        ways = {"ours": often(our_adam(shapes, given.device))}
        for name in ("fused", "foreach"):
            ways[name] = often(library_adam(shapes, given.device, **{name: True}))
        taken = {name: s / 200 * 1e6 for name, s in median_seconds(ways, given.repeats, clock).items()}
        n = sum(int(np.prod(shape)) for shape in shapes)
        line = f"{n:>9,} in {len(shapes)} tensors{'':<9}{taken['ours']:>8.0f}"
        for name in ("fused", "foreach"):
            line += f"{taken[name]:>11.0f}{taken[name] / taken['ours']:>7.2f}"
        print(line)
    for name in ("ours", "fused", "foreach"):
        command = [sys.executable, "-c", FIRST_STEP % (name, given.device)]
        place = {
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        }
        runs = [subprocess.run(command, env=os.environ | place, capture_output=True, text=True, check=True)]
        print(f"first step of a process, {name}: {float(runs[0].stdout):.3f} s")


PARTS = {part.__name__: part for part in (trees, text, adam)}


def main():
    """Run the parts that are named, or all."""
    words = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    words.add_argument(
        "parts", nargs="*", choices=[[], *PARTS], default=[], metavar="PART", help=", ".join(PARTS)
    )
    words.add_argument("--repeats", type=int, default=3)
    words.add_argument("--splits", type=int, default=2, help="trees: times that bags are dealt to five folds")
    words.add_argument("--device", default="cpu", help="adam: where")
    given = words.parse_args()
    for name in given.parts or PARTS:
        print(f"\n{name}: {PARTS[name].__doc__}")
        PARTS[name](given)


if __name__ == "__main__":
    main()
