"""MM-MIL: area under the curve against clusters, solvers side by side, image sets, time.

    python benchmarks/mm_mil.py targets solvers time
    python benchmarks/mm_mil.py merges animals corel sival --data FOLDER

Every table is Markdown. Seconds are CPU time of one process; on a shared machine trust ratios only.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, RepeatedStratifiedKFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import bagwise
from bagwise.bags import Bags
from bagwise.datasets import make_multi_target, make_sub_concepts
from bagwise.kernels.segment import segment_max, segment_mean
from bagwise.models.mm_mil.estimator import MMMIL, select_n_clusters
from bagwise.models.mm_mil.features import gaussian_kernel
from bagwise.models.mm_mil.objective import activations, log_odds
from bagwise.models.mm_mil.solvers import Problem, solve
from bagwise.models.mm_mil.start import starting_points
from bagwise.parallel.blas import small_products

BOOKS, BOXES = (9, 19, 22), (6, 12, 16)
PUBLISHED = {"books": 0.815, "boxes": 0.854, "corel2000": 0.790, "sival": 0.819, "animals": 0.713}


def row(*cells):
    shown = [f"{c:.3f}" if isinstance(c, float) else str(c) for c in cells]
    print("| " + " | ".join(shown) + " |", flush=True)


def header(*names):
    print()
    row(*names)
    row(*["---"] * len(names))


def spread(values):
    return f"{np.mean(values):.3f} ± {np.std(values):.3f}"


def generated(n_targets, seed, n_bags=400):
    """Bags of which half hold instances of one concept with several faces around the background."""
    if n_targets == 1:
        return make_multi_target(n_bags, 1, random_state=seed)
    return make_sub_concepts(
        n_bags, 1, n_targets, min_size=3, max_size=10, cardinality=0.5, noise=1.0, random_state=seed
    )


def simplex(n_targets, seed, n_bags=400, n_features=10, separation=5.0):
    """Half of the bags hold one instance of a target; targets are corners of a regular simplex around 0."""
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(3, 11, n_bags))])
    X = rng.normal(size=(offsets[-1], n_features))
    rotation, _ = np.linalg.qr(rng.normal(size=(n_features, n_features)))
    corners = np.eye(n_targets) - (1.0 / n_targets if n_targets > 1 else 0.0)
    corners *= separation / np.linalg.norm(corners, axis=1, keepdims=True)
    y = rng.permutation(n_bags) % 2
    face = np.full(len(X), -1)
    witness = offsets[:-1] + rng.integers(0, np.diff(offsets))
    face[witness[y == 1]] = rng.integers(0, n_targets, y.sum())
    X[face >= 0] += (corners @ rotation[:n_targets])[face[face >= 0]]
    return Bags(X, offsets, instance_info={"face": face}), y


def random_directions(n_targets, seed):
    """The generator of the library: targets in random directions around 0, some of them close together."""
    data = generated(n_targets, seed)
    face = data.bags.instance_info["target" if n_targets == 1 else "sub_concept"]
    return Bags(data.bags.X, data.bags.offsets, instance_info={"face": face}), data.Y[:, 0]


def bag_means(bags):
    return segment_mean(np.asarray(bags.X, dtype=np.float64), bags.offsets)


def mean_svm():
    return make_pipeline(StandardScaler(), SVC())


def purity(model, bags, faces):
    """Share of true positive instances whose cluster's most frequent face is their own."""
    true = faces >= 0
    found = model.cluster_proba(bags).argmax(axis=1)[true]
    counts = np.zeros((found.max() + 1, faces.max() + 1))
    np.add.at(counts, (found, faces[true]), 1)
    return counts.max(axis=1).sum() / true.sum()


# ---------------------------------------------------------------------- generated sets


def targets(args):
    """Area against M for 1 to 6 true clusters; purity; seconds; chosen M."""
    for make in (simplex, random_directions):
        print(f"\n{make.__doc__}")
        area_by_clusters(make, args)


def area_by_clusters(make, args):
    numbers = range(1, 8)
    header(
        "true clusters",
        "SVM on bag means",
        *(f"M={M}" for M in numbers),
        "purity at true M",
        "cpu s per fit",
        "M by CV",
        "M by BIC",
    )
    for n_targets in range(1, 7):
        areas = {M: [] for M in numbers}
        svm, pure, seconds, by_cv, by_bic = [], [], [], [], []
        for seed in range(args.repeats):
            bags, y = make(n_targets, seed)
            train, test = bags[:200], bags[200:]
            scores = mean_svm().fit(bag_means(train), y[:200]).decision_function(bag_means(test))
            svm.append(roc_auc_score(y[200:], scores))
            for M in numbers:
                start = time.process_time()
                model = MMMIL(M, random_state=seed).fit(train, y[:200])
                if n_targets == M:
                    seconds.append(time.process_time() - start)
                    pure.append(purity(model, test, test.instance_info["face"]))
                areas[M].append(roc_auc_score(y[200:], model.decision_function(test)))
            for criterion, chosen in (("cv", by_cv), ("bic", by_bic)):
                best, _ = select_n_clusters(
                    MMMIL(random_state=seed), train, y[:200], numbers, criterion=criterion
                )
                chosen.append(best)
        row(
            n_targets,
            float(np.mean(svm)),
            *(float(np.mean(a)) for a in areas.values()),
            float(np.mean(pure)),
            float(np.median(seconds)),
            sorted(by_cv),
            sorted(by_bic),
        )


def solvers(args):
    """Eq. (7) of the three solvers from the same starts."""
    header(
        "problem",
        "M",
        "penalty",
        "start",
        "smooth",
        "em",
        "paper",
        "AUC smooth",
        "AUC em",
        "AUC paper",
        "s smooth",
        "s em",
        "s paper",
    )
    problems = [
        (f"3 faces, seed {s}", None, s, reg, M)
        for s in range(2)
        for M in (1, 3, 6)
        for reg in (0.1, 1.0, 10.0)
    ]
    if os.environ.get("BAGWISE_DATA"):
        for name, ids in (("books", BOOKS), ("boxes", BOXES)):
            problems += [(f"{name}, linear", (ids, None), 0, 0.1, M) for M in (1, 3)]
            problems += [
                (f"{name}, rbf", (ids, "rbf"), 0, reg, M) for reg in (0.01, 0.1, 1.0) for M in (1, 3)
            ]
    n_lowest = 0
    for name, merge, seed, reg, M in problems:
        if merge is None:
            data = generated(3, seed)
            train, y, test, y_test = data.bags[:200], data.Y[:200, 0], data.bags[200:], data.Y[200:, 0]
            kernel = None
        else:
            train, y, test, y_test = split(merged(merge[0], seed), seed)
            kernel = merge[1]
        model = MMMIL(M, kernel=kernel, n_landmarks=200, random_state=seed)
        model._check_training(train, y)
        shared = model._shared(train)
        problem = Problem(shared["Phi"], train.offsets, y.astype(float), M, reg, reg)
        values, aucs, seconds = [], [], []
        with small_products(1.0):
            starts = starting_points(*problem, args.starts, np.random.RandomState(seed))
            Phi_test = (test.X - shared["mean"]) / shared["spread"]
            if kernel:
                K = gaussian_kernel(Phi_test, shared["landmarks"], shared["sigma2"])
                Phi_test = K @ shared["whitening"]
            for solver in ("smooth", "em", "paper"):
                begin = time.process_time()
                found = solve(
                    problem, starts, solver, args.em_iterations if solver != "smooth" else 100, 1e-6
                )
                seconds.append(time.process_time() - begin)
                log_p, log_n = log_odds(activations(Phi_test, found.P))
                odds = segment_max(log_p - log_n, test.offsets)
                values.append(found.value)
                aucs.append(float(roc_auc_score(y_test, odds)))
                first = found.history[0]
        n_lowest += values[0] <= min(values[1:]) * (1 + 1e-4)
        row(
            name, M, reg, f"{first:.1f}", *(f"{v:.2f}" for v in values), *aucs, *(f"{s:.2f}" for s in seconds)
        )
    print(f"\nsmooth lowest (to 1e-4) on {n_lowest} of {len(problems)} problems")


def timing(args):
    """Seconds per fit against instances and M."""
    header("instances", *(f"linear M={M}" for M in (1, 3, 6)), *(f"rbf 300 M={M}" for M in (1, 3, 6)))
    sets = [generated(3, 0, n_bags) for n_bags in (100, 300, 1000, 3000)]
    sets.append(make_sub_concepts(1500, 1, 3, 30, min_size=31, max_size=32, cardinality=0.5, noise=1.0))
    MMMIL(2, random_state=0).fit(sets[0].bags, sets[0].Y[:, 0])  # compiles
    for data in sets:
        cells = []
        for kernel in (None, "rbf"):
            for M in (1, 3, 6):
                start = time.process_time()
                MMMIL(M, kernel=kernel, n_landmarks=300, random_state=0).fit(data.bags, data.Y[:, 0])
                cells.append(time.process_time() - start)
        row(data.bags.n_instances, *cells)


# ---------------------------------------------------------------------- image sets


def merged(ids, seed):
    """Bags of three SIVAL categories against as many random others."""
    data = bagwise.load_dataset("sival")
    positive = np.isin(data.Y.argmax(axis=1) + 1, ids)
    others = np.random.RandomState(seed).choice(np.flatnonzero(~positive), positive.sum(), replace=False)
    which = np.concatenate([np.flatnonzero(positive), others])
    return data.bags[which], np.repeat([1, 0], positive.sum())


def split(data, seed):
    bags, y = data
    train, test = train_test_split(np.arange(len(y)), test_size=0.5, stratify=y, random_state=seed)
    return bags[train], y[train], bags[test], y[test]


def grid(numbers):
    return [
        {
            "n_clusters": list(numbers),
            "width_scale": [0.25, 0.5, 1.0],
            "gate_penalty": [reg],
            "expert_penalty": [reg],
        }
        for reg in (0.003, 0.01, 0.03, 0.1)
    ]


def nested(name, make, args):
    """AUC over half splits with everything tuned inside, beside M fixed to 1 and 3."""
    areas = {key: [] for key in ("tuned", "M=1", "M=3", "SVM on bag means")}
    seconds, chosen = [], []
    for seed in range(args.first_seed, args.first_seed + args.splits):
        train, y, test, y_test = split(make(seed), seed)
        inner = RepeatedStratifiedKFold(n_splits=2, n_repeats=args.inner_repeats, random_state=seed)
        search = GridSearchCV(
            MMMIL(kernel="rbf", n_landmarks=args.landmarks, n_init=args.starts, random_state=seed),
            grid((1, 3)),
            scoring="roc_auc",
            cv=inner,
            n_jobs=args.jobs,
            refit=False,
        ).fit(train, y)
        results = search.cv_results_
        for key, allowed in (("tuned", (1, 3)), ("M=1", (1,)), ("M=3", (3,))):
            usable = np.isin(results["param_n_clusters"].astype(int), allowed)
            best = results["params"][int(np.where(usable, results["mean_test_score"], -1).argmax())]
            model = clone(search.estimator).set_params(**best)
            start = time.process_time()
            model.fit(train, y)
            if key == "M=3":
                seconds.append(time.process_time() - start)
            if key == "tuned":
                chosen.append((best["n_clusters"], best["width_scale"], best["gate_penalty"]))
            areas[key].append(roc_auc_score(y_test, model.decision_function(test)))
        svm = GridSearchCV(
            mean_svm(),
            {"svc__C": [0.1, 1, 10, 100], "svc__gamma": [0.003, 0.01, 0.03, 0.1, 0.3]},
            scoring="roc_auc",
            cv=inner,
        )
        svm.fit(bag_means(train), y)
        areas["SVM on bag means"].append(roc_auc_score(y_test, svm.decision_function(bag_means(test))))
    row(
        name,
        PUBLISHED.get(name, "-"),
        *(spread(a) for a in areas.values()),
        float(np.median(seconds)),
        chosen,
    )


NESTED = (
    "set",
    "published",
    "tuned",
    "M=1 tuned",
    "M=3 tuned",
    "SVM on bag means",
    "cpu s per fit, M=3",
    "chosen (M, width, penalty)",
)


def merges(args):
    header(*NESTED)
    for name in args.sets:
        ids = {"books": BOOKS, "boxes": BOXES}[name]
        nested(name, lambda seed, ids=ids: merged(ids, seed), args)


def animals(args):
    """Elephant and Fox, copies of a bag taken together: positive if positive anywhere."""
    parts = [bagwise.load_dataset(name) for name in ("elephant", "fox")]
    seen = {}
    for data in parts:
        for matrix, label in zip(data.bags, data.Y[:, 0]):
            key = tuple(sorted(r.tobytes() for r in np.ascontiguousarray(matrix)))
            old = seen.get(key, (matrix, 0))
            seen[key] = (matrix, max(old[1], int(label)))
    bags = Bags.from_list([m for m, _ in seen.values()])
    y = np.array([label for _, label in seen.values()])
    print(f"\n{sum(len(d.Y) for d in parts)} bags, {len(y)} distinct, {y.sum()} of them positive")
    header(*NESTED)
    nested("elephant + fox", lambda seed: (bags, y), args)


def categories(name, args):
    """Every category against the rest, the same fixed setting for all of them."""
    data = bagwise.load_dataset(name)
    settings = [(M, w, r) for M in args.clusters for w in args.widths for r in args.penalties]
    published = PUBLISHED[name]
    header("set", "published", *(f"M={M} width {w} penalty {r}" for M, w, r in settings), "minutes")
    start = time.perf_counter()
    areas = {s: [] for s in settings}
    for seed in range(args.splits):
        train, test = train_test_split(
            np.arange(len(data.Y)), test_size=0.5, stratify=data.Y.argmax(axis=1), random_state=seed
        )
        for M, width, reg in settings:
            model = MMMIL(
                M,
                n_landmarks=args.landmarks,
                kernel="rbf",
                width_scale=width,
                gate_penalty=reg,
                expert_penalty=reg,
                random_state=seed,
                n_jobs=args.jobs,
                n_init=args.starts,
            ).fit(data.bags[train], data.Y[train])
            areas[M, width, reg].append(
                roc_auc_score(data.Y[test], model.decision_function(data.bags[test]), average="macro")
            )
    row(name, published, *(spread(a) for a in areas.values()), (time.perf_counter() - start) / 60)


PARTS = {
    "targets": targets,
    "solvers": solvers,
    "time": timing,
    "merges": merges,
    "animals": animals,
    "corel": lambda args: categories("corel2000", args),
    "sival": lambda args: categories("sival", args),
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="+", choices=list(PARTS))
    parser.add_argument("--data", help="folder with the public sets; default: BAGWISE_DATA")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--inner-repeats", type=int, default=1, help="of the two folds inside")
    parser.add_argument("--sets", nargs="+", default=["books", "boxes"])
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--landmarks", type=int, default=500)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--em-iterations", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("--clusters", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--widths", type=float, nargs="+", default=[0.5])
    parser.add_argument("--penalties", type=float, nargs="+", default=[0.1])
    args = parser.parse_args()
    if args.data:
        os.environ["BAGWISE_DATA"] = args.data
    warnings.simplefilter("ignore", ConvergenceWarning)
    for part in args.parts:
        PARTS[part](args)


if __name__ == "__main__":
    main()
