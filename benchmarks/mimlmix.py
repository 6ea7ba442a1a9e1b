"""MIMLmix: speed at the published sizes, generated multi-view data, public single-view data.

Run ``python benchmarks/mimlmix.py PART ...`` with parts among ``speed``, ``views``, ``missing`` and
``single``, which reads public sets through ``bagwise.load_dataset`` (folder from ``--data`` or
``BAGWISE_DATA``). Markdown tables go to standard output. Settings are chosen inside the training bags unless
a table says otherwise.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings

import numpy as np
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, normalize

from bagwise import load_dataset
from bagwise.datasets import mimlmix_like
from bagwise.datasets.mimlmix_like import make_mimlmix_like
from bagwise.metrics import (
    average_precision,
    hamming_loss,
    instance_accuracy,
    macro_f1,
    mean_average_precision,
    top_labels,
)
from bagwise.models.mimlmix.estimator import MIMLMix
from bagwise.models.mimlmix.predict import predict_views
from bagwise.models.mimlmix.settings import fixed_settings
from bagwise.preprocessing import OnInstances

GIVEN = {"eta": 3.0, "xi": 0.1, "kappa": 300.0, "nu": 10.0, "alpha_train": 5.0, "random_state": 0}
# mode="paper" with every setting spelled out, so that GIVEN cannot replace one
PAPER = {"mode": "paper", "eta": 0.3, "xi": 0.1, "kappa": 0.1, "nu": 1.0, "alpha_train": 0.3, "n_topics": 200}
PUBLISHED_SECONDS = {"citeseer": 3448, "imageclef": 150, "iaprtc": 915}


def table(title, head, rows):
    print(f"\n### {title}\n")
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for cells in rows:
        row(cells)


def row(cells):
    print("| " + " | ".join(f"{v:.3f}" if isinstance(v, float) else str(v) for v in cells) + " |", flush=True)


def timed(call):
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    return result, time.perf_counter() - wall, time.process_time() - cpu


# ---------------------------------------------------------------------- speed


def speed(args):
    for size in PUBLISHED_SECONDS:  # compile, or read compiled code
        small = make_mimlmix_like(size, 40)
        MIMLMix(**GIVEN, n_topics=5, max_iter=12).fit(small.bags, small.Y).predict(small.bags)
    rows = []
    for size, published in PUBLISHED_SECONDS.items():
        n_topics = 50 if size == "iaprtc" else 200
        data = make_mimlmix_like(size)
        for tol in (1e-5, 1e-6):  # the default, and a finer one
            best = None
            for _ in range(args.repeats):
                model = MIMLMix(**GIVEN, n_topics=n_topics, tol=tol)
                _, wall, cpu = timed(lambda m=model, d=data: m.fit(d.bags, d.Y))
                best = min(best or (wall, cpu), (wall, cpu))
            seconds = [f"{best[0]:.2f}", f"{best[1]:.2f}", published, f"{published / best[0]:.0f}"]
            rows.append([size, len(data), n_topics, f"{tol:g}", model.n_iter_, *seconds])
    head = [
        "size",
        "bags",
        "topics",
        "tol",
        "iterations",
        "wall s",
        "CPU s",
        "published s",
        "published / wall",
    ]
    table("Training with label topics, settings given", head, rows)

    rows = []
    for n_bags in (2430, 4860, 9719):
        data = make_mimlmix_like("citeseer", n_bags)
        model = MIMLMix(**GIVEN, n_topics=200, tol=0.0, max_iter=10)
        _, wall, cpu = timed(lambda m=model, d=data: m.fit(d.bags, d.Y))
        rows.append([n_bags, f"{wall:.2f}", f"{cpu:.2f}", f"{1e3 * cpu / n_bags:.3f}"])
    table("Cost against bags (citeseer, 10 iterations)", ["bags", "wall s", "CPU s", "CPU ms per bag"], rows)

    data = make_mimlmix_like("citeseer", 9719 + 1000)
    model = MIMLMix(**GIVEN, n_topics=200).fit(data.bags[:9719], data.Y[:9719])
    test = data.bags[9719:]
    rows = []
    for eta, xi in ((0.0, 0.1), (0.3, 0.1), (3.0, 0.1), (10.0, 0.1), (30.0, 0.1)):
        model.settings_.update(eta=eta, xi=xi)
        _, wall, cpu = timed(lambda: model.label_scores(test))
        rows.append([eta, xi, f"{len(test) / wall:.0f}", f"{len(test) / cpu:.0f}"])
    table("Prediction, 500 labels, 200 topics", ["eta", "xi", "bags per s (wall)", "bags per CPU s"], rows)


# ---------------------------------------------------------------------- generated multi-view data


def measures(Y, scores, train_Y):
    chosen = top_labels(scores, max(1, round(train_Y.sum() / len(train_Y))))
    return [
        average_precision(Y, scores),
        hamming_loss(Y, chosen),
        mean_average_precision(Y, scores, train_Y=train_Y),
        macro_f1(Y, scores, train_Y=train_Y),
    ]


def bag_sums(bags):
    """Counts of each bag and view, each view's row of length 1, side by side."""
    parts = []
    for view in bags.views.values():
        ones = np.ones(view.n_instances)
        adder = sparse.csr_array((ones, np.arange(view.n_instances), view.offsets))
        parts.append(normalize(sparse.csr_matrix(adder @ view.X)))
    return sparse.hstack(parts, format="csr")


def one_vs_rest(train, test):
    """Logistic regression per label on summed bags; C by held-out average precision."""
    A, B, Y = bag_sums(train.bags), bag_sums(test.bags), train.Y

    def scores(A, Y, B, C):
        S = np.full((B.shape[0], Y.shape[1]), -50.0)
        for y in np.flatnonzero(Y.any(axis=0) & ~Y.all(axis=0)):
            S[:, y] = LogisticRegression(C=C, solver="liblinear").fit(A, Y[:, y]).decision_function(B)
        return S

    n = min(len(Y), 3000)
    cut = n * 3 // 4
    quality = {
        C: average_precision(Y[cut:n], scores(A[:cut], Y[:cut], A[cut:n], C)) for C in (1.0, 10.0, 100.0)
    }
    return scores(A, Y, B, max(quality, key=quality.get))


def fit_and_score(train, validation, test, names, more, given):
    """A fitted model and its scores; with ``given`` only eta is chosen, on the validation bags."""
    pick = (lambda bags: bags.select(names)) if names else (lambda bags: bags)
    if not given:
        model = MIMLMix(random_state=0, **more)
        _, wall, _ = timed(lambda: model.fit(pick(train.bags), train.Y))
        return model, model.label_scores(pick(test.bags)), wall
    model = MIMLMix(**({**GIVEN, "n_topics": 50 if train.Y.shape[1] > 100 else 12} | more))
    _, wall, _ = timed(lambda: model.fit(pick(train.bags), train.Y))
    if "eta" not in more and "mode" not in more:
        quality = {}
        for eta in (0.3, 3.0, 10.0, 30.0):
            model.settings_["eta"] = eta
            quality[eta] = average_precision(validation.Y, model.label_scores(pick(validation.bags)))
        model.settings_["eta"] = max(quality, key=quality.get)
    return model, model.label_scores(pick(test.bags)), wall


def spelled(settings):
    """Settings in one line; nu is left out where no view is continuous."""
    parts = []
    for name, value in settings.items():
        if isinstance(value, dict):
            parts.extend(f"{name} {view} {x:g}" for view, x in value.items())
        elif name != "nu":
            parts.append(f"{name} {value:g}")
    return ", ".join(parts)


def true_parameters(size, noise, seed, validation, test, names, topics=True):
    """Scores under the distributions and topics behind the data; eta and xi by the validation bags."""
    rng = mimlmix_like.generator(seed)
    known, preference, worlds = mimlmix_like._draw_worlds(rng, size, noise)
    n_labels = preference.shape[1]
    learned = {}
    for view, (cumulative, _) in zip(known, worlds):
        if view.name in names:
            words = np.diff(cumulative, axis=1, prepend=0.0).T
            S = sparse.csr_array(1e9 * words)  # so many counts that the background does not matter
            parts = {"data": S.data, "indices": S.indices, "indptr": S.indptr, "shape": S.shape}
            flat = np.full(view.width, 1.0 / view.width)
            totals = np.full(n_labels, 1e9)
            learned[view.name] = {
                "kind": "counts", "background": flat, "kappa": 1e-3, "S": parts, "totals": totals
            }  # fmt: skip
    groups = 0.95 * preference + 0.05 * preference.mean(axis=0)  # the generator's correlation
    fixed = fixed_settings(MIMLMix(), len(names), 0)

    def scores(bags, eta, xi):
        views = {name: bags[name] for name in names}
        weights, share = np.full(len(names), 1.0 / len(names)), np.full(len(groups), 1.0 / len(groups))
        return predict_views(views, learned, weights, groups, share, {**fixed, "eta": eta, "xi": xi})[0]

    grid = [(eta, xi) for eta in ((3.0, 10.0, 30.0) if topics else (0.0,)) for xi in (0.1, 0.3, 1.0)]
    best = max(grid, key=lambda s: average_precision(validation.Y, scores(validation.bags, *s)))
    return scores(test.bags, *best), "eta {:g}, xi {:g}".format(*best)


def views(args):
    noise = {name: float(share) for name, share in (pair.split("=") for pair in args.noise)}
    for size in args.sizes:
        n_train = {"citeseer": 9719, "imageclef": 1000}[size]
        data = make_mimlmix_like(size, n_train + 800, noise=noise, random_state=args.seed)
        train, validation, test = data[:n_train], data[n_train:-400], data[-400:]
        first, second = train.bags.view_names
        cases = [
            ("both views", [first, second], {}),
            ("both, eta = 0 (MIMLmix*)", [first, second], {"eta": 0.0}),
            ("both, one topic (label popularity)", [first, second], {"n_topics": 1}),
            (f"{first} only", [first], {}),
            (f"{second} only", [second], {}),
            ("both, views weighted alike", [first, second], {"weighted_views": False}),
            ("both, published settings", [first, second], PAPER),
        ]
        head = ["model", "a.p.", "h.l.", "m.a.p.", "ma-f1", "fit s", "settings"]
        table(f"{size} {noise or ''}, {n_train} training bags, 400 test bags, seed {args.seed}", head, [])
        for title, names, more in cases[: args.rows]:  # rows as they come: a search takes its time
            model, found, wall = fit_and_score(train, validation, test, names, more, args.given)
            row([title, *measures(test.Y, found, train.Y), f"{wall:.0f}", spelled(model.settings_)])
        both = [first, second]
        for names, topics in ((both, True), ([first], True), ([second], True), (both, False)):
            S, best = true_parameters(size, noise, args.seed, validation, test, names, topics)
            title = f"true parameters, {' and '.join(names)}" + ("" if topics else ", eta = 0")
            row([title, *measures(test.Y, S, train.Y), "", best])
        S, wall, _ = timed(lambda a=train, b=test: one_vs_rest(a, b))
        row(["one-vs-rest logistic regression", *measures(test.Y, S, train.Y), f"{wall:.0f}", ""])


def missing(args):
    shares = (0.0, 0.2, 0.4, 0.6)
    names = ("MIMLmix", "MIMLmix, eta = 0", "one-vs-rest logistic regression")
    curves = {name: [] for name in names}
    for share in shares:
        data = make_mimlmix_like("imageclef", 1800, missing=share)
        train, validation, test = data[:1000], data[1000:1400], data[1400:]
        for name, more in zip(names, ({}, {"eta": 0.0})):
            found = fit_and_score(train, validation, test, None, more, args.given)[1]
            curves[name].append(average_precision(test.Y, found))
        curves[names[2]].append(average_precision(test.Y, one_vs_rest(train, test)))
    rows = [[name, *values, f"{values[-1] - values[0]:+.3f}"] for name, values in curves.items()]
    head = ["a.p. with this share of bags lacking a view", *(f"{s:.0%}" for s in shares), "0 to 60 %"]
    table("Missing views, training and test (imageclef)", head, rows)
    if args.plot:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot as plt

        figure, axes = plt.subplots(figsize=(5.5, 3.5))
        for name, values in curves.items():
            axes.plot([100 * s for s in shares], values, marker="o", label=name)
        axes.set(xlabel="bags that lack one of two views (%)", ylabel="average precision", ylim=(0, 1))
        axes.legend(frameon=False)
        figure.savefig(args.plot, dpi=120, bbox_inches="tight")


# ---------------------------------------------------------------------- public single-view data


def root(X):
    return np.sqrt(np.maximum(X, 0.0))


PUBLISHED = {
    "letter_carroll": [0.770, 0.126, 0.761, 0.556, 0.623],
    "msrcv2": [0.688, 0.109, 0.600, 0.495, 0.526],
}


def single(args):
    if args.data:
        os.environ["BAGWISE_DATA"] = args.data
    rows = []
    for name in args.datasets:
        data = load_dataset(name)
        if name == "mltm_dbpedia":
            folds = [(data.splits["train"], data.splits["test"])]
        else:
            folds = list(KFold(10, shuffle=True, random_state=args.seed).split(data.Y))
        cases = [("tuned", {}), ("eta = 0", {"eta": 0.0}), ("mode='paper'", {"mode": "paper"})]
        for title, more in [case for case in cases if case[0] in args.cases]:
            values, wall = [], 0.0
            for fit_on, test_on in folds:
                train, test = data[fit_on], data[test_on]
                before = [OnInstances(FunctionTransformer(root))] if name == "msrcv2" else []
                model = make_pipeline(*before, MIMLMix(random_state=0, **more))
                _, seconds, _ = timed(lambda m=model, t=train: m.fit(t.bags, t.Y))
                wall += seconds
                bags = model[:-1].transform(test.bags) if before else test.bags
                found = model[-1].label_scores(bags)
                right = instance_accuracy(test.instance_Y, model[-1].annotate(bags))
                values.append([*measures(test.Y, found, train.Y), right])
            mean, spread = np.mean(values, axis=0), np.std(values, axis=0)
            cells = [f"{m:.3f} ± {s:.3f}" if len(folds) > 1 else f"{m:.3f}" for m, s in zip(mean, spread)]
            rows.append([name, title, *cells, f"{wall / len(folds):.1f}"])
        if name in PUBLISHED:
            rows.append([name, "published", *PUBLISHED[name], ""])
    head = ["set", "model", "a.p.", "h.l.", "m.a.p.", "ma-f1", "ins-acc", "fit s per fold"]
    table(f"Single view (fold seed {args.seed})", head, rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="+", choices=["speed", "views", "missing", "single"])
    parser.add_argument("--data", help="folder of public sets")
    parser.add_argument("--sizes", nargs="+", default=["imageclef", "citeseer"])
    parser.add_argument(
        "--datasets", nargs="+", default=["letter_carroll", "letter_frost", "msrcv2", "mltm_dbpedia"]
    )
    parser.add_argument("--given", action="store_true", help="no search of settings but for eta")
    parser.add_argument("--noise", nargs="*", default=[], help="VIEW=SHARE: noise of a generated view")
    parser.add_argument("--rows", type=int, help="only the first models of the tables of generated views")
    parser.add_argument("--cases", nargs="+", default=["tuned", "eta = 0", "mode='paper'"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--plot", help="file for the plot of missing views")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    for part in args.parts:
        globals()[part](args)


if __name__ == "__main__":
    main()
