"""Baseline methods of the papers: what a fit costs, beside plain loops where those can be waited for.

    python benchmarks/baseline_methods.py [SECTION ...] [--data FOLDER] [--seed N]

A section is a method; all of them by default. Any other estimator that is named is fitted to Scene at its
defaults. Prints Markdown. FOLDER (or BAGWISE_DATA) holds the public sets. Times are CPU
seconds of the process; both of a ratio are taken in the same run.
"""

import argparse
import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from scipy.special import digamma
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import minmax_scale, scale
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from bagwise import Bags, load_dataset
from bagwise.models import (
    CSMISVM,
    CSSVM,
    DBA,
    DDSVM,
    DMIMLSVM,
    EMDD,
    KISAR,
    M3LDA,
    M3MIML,
    MCEMDD,
    MILIS,
    CitationKNN,
    DiverseDensity,
    MIForest,
    MIGraph,
    MIMLBoost,
)
from bagwise.models.diverse_density.diverse_density import densest
from bagwise.models.diverse_density.kernels import NoisyOr
from bagwise.models.svm.miles import bag_similarities
from bagwise.models.svm.milis import _machine
from bagwise.models.topics import dba as alignment
from bagwise.registry import get_estimator

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


def diverse_density(options):
    """All starts together beside SciPy's L-BFGS, one start after the other, with the same objective."""
    for name, n_starts in (("musk1", 100), ("elephant", 30), ("corel2000", 100)):
        data = load_dataset(name)
        X, offsets, y = scale(data.bags.X), data.bags.offsets, data.Y[:, 0]
        n, d = X.shape
        points = X[np.repeat(y > 0, np.diff(offsets))][:n_starts]
        settings = {"init_scale": d**-0.5, "max_scale": 10.0, "max_iter": 200, "tol": 1e-8}
        limit, function = [(None, None)] * d + [(-10.0, 10.0)] * d, NoisyOr(X, offsets, y)

        def one(x, function=function):
            value, gradient = function(x[None], None)
            return value[0], gradient[0]

        def alone(points=points, one=one, limit=limit, d=d):
            rest = {"jac": True, "method": "L-BFGS-B", "bounds": limit}
            rest["options"] = {"maxiter": 200, "ftol": 1e-8, "gtol": 1e-6}
            return [minimize(one, np.concatenate([p, np.full(d, d**-0.5)]), **rest).fun for p in points]

        quick, found = cpu(lambda y=y, X=X, o=offsets, p=points, s=settings: densest(y, X, o, p, s))
        slow, values = cpu(alone)
        print(
            f"- {name} ({n} instances, {d} features), {len(points)} starts: one by one {slow:.2f} s "
            f"(lowest {min(values):.2f}, mean {np.mean(values):.2f}), together {quick:.2f} s (lowest "
            f"{found.values.min():.2f}, mean {found.values.mean():.2f}), ratio {slow / quick:.1f}",
            flush=True,
        )
    scene(DiverseDensity(random_state=options.seed))


def em_dd(options):
    scene(EMDD(random_state=options.seed))


def mc_emdd(options):
    scene(MCEMDD(random_state=options.seed))


def dd_svm(options):
    scene(DDSVM(random_state=options.seed))


def milis(options):
    """Newton's method for the machine beside liblinear."""
    data = load_dataset("miml_scene")
    bags, t = data.bags[:800], np.where(data.Y[:800, 0] > 0, 1.0, -1.0)
    X = scale(bags.X)
    S = bag_similarities(X, bags.offsets, X[bags.offsets[:-1]], 1.0 / X.shape[1])
    for C in (1.0, 10.0):
        svm = LinearSVC(C=C, dual=False, tol=1e-8, intercept_scaling=10.0, max_iter=100_000)
        slow, svm = cpu(lambda svm=svm: svm.fit(S, t))
        quick, (w, b, _) = cpu(lambda C=C: _machine(S, t, C))
        apart = np.abs(S @ w + b - svm.decision_function(S)).max()
        print(
            f"- machine of 800 bags, C = {C:g}: liblinear {slow:.2f} s, Newton {quick:.2f} s, ratio "
            f"{slow / quick:.1f}, scores differ by {apart:.0e}",
            flush=True,
        )
    scene(MILIS())


def dba(options):
    """A sweep over all instances at once, bag beside bag, and instance after instance."""
    data = load_dataset("miml_reuters")
    bags, Y = data.bags, data.Y.astype(np.float64)
    X = bags.X.toarray() if bags.is_sparse else bags.X
    rng = np.random.RandomState(options.seed)
    log_beta = np.log(rng.dirichlet(np.ones(X.shape[1]), Y.shape[1]))
    lam, nu = np.full(Y.shape[1], 4.0), np.full(Y.shape[1], -1.0)
    log_lik, start = X @ log_beta.T, np.full((bags.n_instances, Y.shape[1]), 1.0 / Y.shape[1])
    model, places = alignment.Alignment(log_beta, lam, nu), alignment.Bags2D(bags.offsets)

    def together():
        phi = start.copy()
        alignment.e_step(log_lik, places, Y, model, 1.0, phi)
        return phi

    def one_by_one():
        phi = start.copy()
        for b, (lo, hi) in enumerate(zip(bags.offsets[:-1], bags.offsets[1:])):
            n, own = hi - lo, phi[lo:hi]
            total = own.sum(axis=0)
            psi = digamma(1.0 + total)
            second = (total + total**2 - (own**2).sum(axis=0)) / n**2
            h = alignment.slope_of_bound(alignment.touching(total / n, second, lam, nu))
            for i in range(lo, hi):
                others = phi[lo:hi].sum(axis=0) - phi[i]
                logs = psi + log_lik[i] + lam * (Y[b] - 0.5) / n
                logs -= h * ((lam / n) ** 2 * (1.0 + 2.0 * others) + 2.0 * lam * nu / n)
                phi[i] = np.exp(logs - logs.max())
                phi[i] /= phi[i].sum()
        return phi

    quick, ours = min((cpu(together) for _ in range(5)), key=lambda found: found[0])
    slow, theirs = cpu(one_by_one)
    print(
        f"- one sweep over Reuters ({bags.n_instances} instances): one by one {slow:.2f} s, together "
        f"{quick:.3f} s, ratio {slow / quick:.0f}, probabilities differ by {np.abs(ours - theirs).max():.0e}",
        flush=True,
    )
    scene(DBA(random_state=options.seed))


def m3_lda(options):
    scene(M3LDA(random_state=options.seed))


def mi_forest(options):
    """Trees whose labels have not changed are kept: how many were grown."""
    data = load_dataset("elephant")
    grown = []
    fit = DecisionTreeClassifier.fit
    DecisionTreeClassifier.fit = lambda tree, *args, **kwargs: grown.append(1) or fit(tree, *args, **kwargs)
    try:
        model = MIForest(random_state=options.seed).fit(data.bags, data.Y[:, 0])
    finally:
        DecisionTreeClassifier.fit = fit
    every = model.n_trees * (1 + len(model.temperatures_))
    print(f"- elephant: {len(grown)} of {every} trees had new labels and were grown", flush=True)
    scene(MIForest(random_state=options.seed, n_jobs=2))


def mi_graph(options):
    scene(MIGraph())


def citation_knn(options):
    """Right answers when one bag at a time is left out."""
    for name in ("musk1", "musk2"):
        data = load_dataset(name)
        y, right = data.Y[:, 0], 0
        for b in range(len(y)):
            rest = np.delete(np.arange(len(y)), b)
            model = CitationKNN().fit(data.bags[rest], y[rest])
            right += model.predict(data.bags[b : b + 1])[0] == y[b]
        print(f"- {name}, one bag left out: {100 * right / len(y):.1f} % right", flush=True)
    scene(CitationKNN())


SECTIONS = {
    "MIMLBoost": miml_boost,
    "DMIMLSVM": d_miml_svm,
    "M3MIML": m3_miml,
    "KISAR": kisar,
    "CSSVM": cs_svm,
    "CSMISVM": cs_mi_svm,
    "DiverseDensity": diverse_density,
    "EMDD": em_dd,
    "MCEMDD": mc_emdd,
    "DDSVM": dd_svm,
    "MILIS": milis,
    "DBA": dba,
    "M3LDA": m3_lda,
    "MIForest": mi_forest,
    "MIGraph": mi_graph,
    "CitationKNN": citation_knn,
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
        if name in SECTIONS:
            SECTIONS[name](options)
        else:
            model = get_estimator(name)()
            seeded = "random_state" in model.get_params()
            scene(model.set_params(random_state=options.seed) if seeded else model)


if __name__ == "__main__":
    main()
