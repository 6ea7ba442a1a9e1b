"""MIML-GP: quality and time beside the published tables, and the large problem.

    python benchmarks/miml_gp.py [SECTION ...] [--data FOLDER] [--folds N] [--seed N]

Sections: scene, covariance, reuters, times, scale, newsgroups, corel, calibration (all by default). Prints
Markdown tables. FOLDER (or the variable BAGWISE_DATA) holds the public sets. CPU times are those of the
process, all threads together; wall times depend on what else runs. Every scaling and every choice is learned
on the training part of a fold.
"""

import argparse
import os
import resource
import time
import warnings

import numpy as np
from sklearn.model_selection import KFold, StratifiedKFold, StratifiedShuffleSplit

from bagwise import Bags, load_dataset
from bagwise.metrics import average_precision, coverage, hamming_loss, one_error, ranking_loss
from bagwise.models.gp.estimator import MIMLGP

MEASURES = ("1-AP", "coverage", "Hamming", "one-error", "ranking loss")
PAPER = {
    "scene": {"normal": (0.183, 0.857, 0.165, 0.286, 0.146), "special": (0.225, 1.002, 0.186, 0.346, 0.181)},
    "reuters": {
        "normal": (0.029, 0.252, 0.030, 0.046, 0.015),
        "special": (0.033, 0.273, 0.033, 0.052, 0.018),
    },
}
TABLE_5 = {  # standard, collective
    "alt_atheism": (84.5, 47.4),
    "comp_graphics": (83.8, 51.0),
    "comp_os_ms-windows_misc": (67.4, 48.0),
    "comp_sys_ibm_pc_hardware": (77.8, 50.4),
    "comp_sys_mac_hardware": (79.6, 49.0),
    "comp_windows_x": (79.5, 50.2),
    "misc_forsale": (71.5, 50.8),
    "rec_autos": (79.2, 49.6),
    "rec_motorcycles": (82.0, 50.0),
    "rec_sport_baseball": (85.2, 48.2),
    "rec_sport_hockey": (90.0, 49.2),
    "sci_crypt": (77.8, 48.8),
    "sci_electronics": (91.6, 53.0),
    "sci_med": (84.2, 49.8),
    "sci_space": (80.4, 49.5),
    "soc_religion_christian": (82.0, 45.5),
    "talk_politics_guns": (75.4, 48.0),
    "talk_politics_mideast": (80.2, 48.3),
    "talk_politics_misc": (70.5, 55.0),
    "talk_religion_misc": (76.0, 50.0),
}


def row(*cells):
    print("| " + " | ".join(str(c) for c in cells) + " |", flush=True)


def header(title, *cells):
    print(f"\n{title}\n")
    row(*cells)
    row(*("---" for _ in cells))


class Clock:
    """CPU and wall seconds of a block."""

    def __enter__(self):
        self.start = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *_):
        self.cpu = time.process_time() - self.start[0]
        self.wall = time.perf_counter() - self.start[1]


def measures(Y, S):
    return (
        1.0 - average_precision(Y, S),
        coverage(Y, S),
        hamming_loss(Y, (S > 0).astype(int)),
        one_error(Y, S),
        ranking_loss(Y, S),
    )


def crossed(data, model, folds, seed):
    """Measures of every fold, the models' choices, and seconds of fitting and predicting."""
    values, chosen, fits, tests = [], [], [], []
    for train, test in KFold(folds, shuffle=True, random_state=seed).split(data.Y):
        with Clock() as fit:
            model.fit(data.bags[train], data.Y[train])
        with Clock() as predict:
            S = model.decision_function(data.bags[test])
        values.append(measures(data.Y[test], S))
        chosen.append((model.scaling_, round(model.width_, 3), model.rank_, model.n_iter_))
        fits.append((fit.cpu, fit.wall))
        tests.append((predict.cpu, predict.wall))
    return np.array(values), chosen, np.median(fits, axis=0), np.median(tests, axis=0)


def quality_row(name, values):
    mean, deviation = values.mean(axis=0), values.std(axis=0, ddof=1)
    row(name, *(f"{m:.4f} ± {s:.3f}" for m, s in zip(mean, deviation)))


def quality(data, settings, options, title, published):
    header(f"### {title}, {options.folds}-fold, mean ± deviation over folds", "setting", *MEASURES)
    for name, values in published.items():
        row(f"paper, {name}", *(f"{v:.3f}" for v in values))
    notes = []
    for name, model in settings.items():
        values, chosen, fit, test = crossed(data, model, options.folds, options.seed)
        quality_row(name, values)
        widths = sorted({f"{c[0]} {c[1]}" for c in chosen})
        notes.append(
            (
                name,
                "; ".join(widths),
                sorted({c[2] for c in chosen}),
                sorted({c[3] for c in chosen}),
                fit,
                test,
            )
        )
    header(
        "Choices and median seconds per fold (CPU / wall)",
        "setting",
        "scaling, width",
        "rank",
        "M steps",
        "fit",
        "test",
    )
    for name, widths, ranks, steps, fit, test in notes:
        row(
            name,
            widths,
            f"{ranks[0]}-{ranks[-1]}",
            f"{steps[0]}-{steps[-1]}",
            *(f"{t[0]:.2f} / {t[1]:.2f}" for t in (fit, test)),
        )


def scene(options):
    data = load_dataset("miml_scene")
    settings = {
        "paper mode (width 1)": MIMLGP(scaling="minmax", mode="paper"),
        "paper mode, identity": MIMLGP(scaling="minmax", mode="paper", label_covariance="identity"),
        "width by evidence": MIMLGP(scaling="minmax"),
    }
    quality(data, settings, options, "Scene (Table 2)", PAPER["scene"])


def covariance(options):
    data = load_dataset("miml_scene")
    settings = {
        kind: MIMLGP(scaling="minmax", width=0.5, label_covariance=kind)
        for kind in ("identity", "scalar", "diagonal", "full")
    }
    quality(data, settings, options, "Scene, width 0.5: what the covariance of labels brings", {})
    data = load_dataset("miml_reuters")
    settings = {
        kind: MIMLGP("linear", label_covariance=kind) for kind in ("identity", "scalar", "diagonal", "full")
    }
    quality(data, settings, options, "Reuters, raw counts: what the covariance of labels brings", {})


def reuters(options):
    data = load_dataset("miml_reuters")
    several = ("none", "l2", "sqrt", "log", "sqrt-l2", "log-l2")
    settings = {
        "raw counts": MIMLGP("linear"),
        "paper mode": MIMLGP("linear", mode="paper"),
        "paper mode, identity": MIMLGP("linear", mode="paper", label_covariance="identity"),
        "transform by evidence": MIMLGP("linear", scaling=several),
    }
    quality(data, settings, options, "Reuters (Table 3)", PAPER["reuters"])


def times(options):
    header(
        "### Time of one fold beside Table 4 (medians of 3 runs, seconds)",
        "task",
        "CPU",
        "wall",
        "paper",
        "paper / wall",
    )
    scenes, texts = load_dataset("miml_scene"), load_dataset("miml_reuters")
    tasks = [
        ("Scene train, width 1 (paper mode)", scenes, MIMLGP(scaling="minmax", mode="paper"), 133.43 * 60),
        ("Scene train, width .5", scenes, MIMLGP(scaling="minmax", width=0.5), 133.43 * 60),
        ("Scene train, 8 widths compared", scenes, MIMLGP(scaling="minmax"), None),
        ("Reuters train, raw counts", texts, MIMLGP("linear"), 42.55 * 60),
    ]
    for name, data, model, published in tasks:
        train, test = next(iter(KFold(10, shuffle=True, random_state=options.seed).split(data.Y)))
        bags, Y, others = data.bags[train], data.Y[train], data.bags[test]
        model.fit(bags[:50], Y[:50]).predict(others)  # compile
        fits, tests = [], []
        for _ in range(3):
            with Clock() as fit:
                model.fit(bags, Y)
            with Clock() as predict:
                model.predict_proba(others)
            fits.append((fit.cpu, fit.wall))
            tests.append((predict.cpu, predict.wall))
        for label, seconds, reference in (
            (name, np.median(fits, axis=0), published),
            (name.split(" ")[0] + " test, 200 bags", np.median(tests, axis=0), None),
        ):
            ratio = "" if reference is None else f"{reference / seconds[1]:.0f}"
            row(label, f"{seconds[0]:.2f}", f"{seconds[1]:.2f}", reference or "", ratio)


def copies(data, n_bags, n_labels, seed):
    """Jittered copies of Scene bags with as many labels as wanted, drawn from a random linear teacher."""
    rng = np.random.default_rng(seed)
    X = data.bags.X / np.ptp(data.bags.X, axis=0)
    pick = rng.integers(0, len(data.bags), n_bags)
    X = X.reshape(len(data.bags), 9, -1)[pick].reshape(n_bags * 9, -1)
    X = X + rng.normal(scale=0.05, size=X.shape)
    offsets = np.arange(n_bags + 1) * 9
    means = X.reshape(n_bags, 9, -1).mean(axis=1)
    F = np.tanh(3.0 * (means - means.mean(axis=0)) @ rng.normal(size=(15, 20))) @ rng.normal(
        size=(20, n_labels)
    )
    F = F / F.std(axis=0) * 2.0 - 3.0
    Y = (rng.random(F.shape) < 1.0 / (1.0 + np.exp(-F))).astype(np.int8)
    return Bags(X, offsets), Y


def scale(options):
    data = load_dataset("miml_scene")
    header(
        f"### Large problems: bags of 9 instances, 15 features, width 1, tol {options.tol}",
        "bags",
        "labels",
        "rank",
        "features s (CPU / wall)",
        "fit s (CPU / wall)",
        "M steps",
        "peak GB",
        "test 1-AP",
    )
    for size in options.sizes:
        n_bags, n_labels, rank = (int(part) for part in size.split("x"))
        bags, Y = copies(data, n_bags + 1000, n_labels, 0)
        model = MIMLGP(width=1.0, rank=rank, factor="pivoted", n_probes=options.probes, tol=options.tol)
        seen, build = [], model._features

        def timed(*arguments, build=build, seen=seen):
            with Clock() as clock:
                result = build(*arguments)
            seen.append(clock)
            return result

        model._features = timed
        with Clock() as whole:
            model.fit(bags[:n_bags], Y[:n_bags])
        S = model.decision_function(bags[n_bags:])
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        row(
            n_bags,
            n_labels,
            rank,
            f"{seen[0].cpu:.1f} / {seen[0].wall:.1f}",
            f"{whole.cpu - seen[0].cpu:.1f} / {whole.wall - seen[0].wall:.1f}",
            model.n_iter_,
            f"{peak:.2f}",
            f"{1.0 - average_precision(Y[n_bags:], S):.4f}",
        )


def newsgroups(options):
    header(
        "### 20 newsgroups, 10-fold accuracy in per cent (Table 5); one setting for all: linear kernel",
        "set",
        "standard",
        "collective",
        "paper standard",
        "paper collective",
    )
    results = []
    with Clock() as clock:
        for name, published in TABLE_5.items():
            data = load_dataset(f"newsgroups/{name}")
            y = data.Y[:, -1]
            scores = []
            for assumption in ("standard", "collective"):
                model = MIMLGP(
                    "linear",
                    assumption=assumption,
                    constant=0.01,
                    label_covariance="identity",
                    scale=options.scale,
                )
                right = 0
                for train, test in StratifiedKFold(10, shuffle=True, random_state=options.seed).split(y, y):
                    model.fit(data.bags[train], y[train])
                    right += int((model.predict(data.bags[test]) == y[test]).sum())
                scores.append(100.0 * right / len(y))
            results.append((*scores, *published))
            row(name, *(f"{v:.1f}" for v in results[-1]))
    row("mean", *(f"{v:.1f}" for v in np.mean(results, axis=0)))
    print(f"\nAll sets and both assumptions: {clock.cpu:.0f} s CPU, {clock.wall:.0f} s wall.")


def corel(options):
    data = load_dataset("corel2000")
    classes = data.Y.argmax(axis=1)
    header(
        "### Corel, accuracy over 5 random halves (Table 6)",
        "set",
        "setting",
        "accuracy",
        "95 % interval",
        "paper collective",
        "widths",
    )
    for n_classes, published in ((10, 84.6), (20, 73.0)):
        chosen = np.flatnonzero(classes < n_classes)
        bags, y = data.bags[chosen], classes[chosen]
        settings = {
            "width .25": MIMLGP(scaling="minmax", width=0.25),
            "width by evidence": MIMLGP(scaling="minmax"),
            "width by 3-fold": MIMLGP(
                scaling="minmax",
                width=(0.18, 0.25, 0.35, 0.5),
                selection="cv",
                label_covariance="scalar",
                random_state=0,
            ),
        }
        for name, model in settings.items():
            accuracy, widths = [], []
            splits = StratifiedShuffleSplit(5, test_size=0.5, random_state=options.seed)
            for train, test in splits.split(y, y):
                model.fit(bags[train], y[train])
                accuracy.append(100.0 * (model.predict(bags[test]) == y[test]).mean())
                widths.append(round(model.width_, 2))
            half = 2.776 * np.std(accuracy, ddof=1) / np.sqrt(5)  # Student, 4 degrees of freedom
            mean = np.mean(accuracy)
            row(
                f"{n_classes * 100} images",
                name,
                f"{mean:.1f}",
                f"[{mean - half:.1f}, {mean + half:.1f}]",
                published,
                sorted(set(widths)),
            )


def calibration(options):
    data = load_dataset("miml_scene")
    P = np.empty(data.Y.shape)
    for train, test in KFold(options.folds, shuffle=True, random_state=options.seed).split(data.Y):
        model = MIMLGP(scaling="minmax", width=0.5).fit(data.bags[train], data.Y[train])
        P[test] = model.predict_proba(data.bags[test])
    header(
        "### Reliability on Scene, held-out probabilities of all labels, width .5",
        "predicted",
        "pairs",
        "mean predicted",
        "share carried",
    )
    edges = np.linspace(0, 1, 11)
    place = np.clip(np.digitize(P.ravel(), edges) - 1, 0, 9)
    error = 0.0
    for k in range(10):
        inside = place == k
        if inside.any():
            mean, share = P.ravel()[inside].mean(), data.Y.ravel()[inside].mean()
            error += inside.mean() * abs(mean - share)
            row(f"{edges[k]:.1f}-{edges[k + 1]:.1f}", inside.sum(), f"{mean:.3f}", f"{share:.3f}")
    print(f"\nExpected calibration error {error:.4f}, Brier score {((P - data.Y) ** 2).mean():.4f}.")


SECTIONS = {
    "scene": scene,
    "covariance": covariance,
    "reuters": reuters,
    "times": times,
    "scale": scale,
    "newsgroups": newsgroups,
    "corel": corel,
    "calibration": calibration,
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--data", help="folder with the public sets")
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=30.0, help="of the newsgroups' latent functions")
    parser.add_argument("--probes", type=int, default=2, help="random probes in the large problem")
    parser.add_argument("--sizes", nargs="*", default=["15000x99x150", "30000x99x150", "30000x99x300"])
    parser.add_argument("--tol", type=float, default=0.01, help="tolerance in the large problem")
    options = parser.parse_args()
    unknown = set(options.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"no section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    if options.data:
        os.environ["BAGWISE_DATA"] = options.data
    warnings.simplefilter("ignore")
    for name in options.sections or SECTIONS:
        SECTIONS[name](options)


if __name__ == "__main__":
    main()
