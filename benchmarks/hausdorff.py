"""Distances between bags: the compiled loops beside other ways.

    python benchmarks/hausdorff.py [SECTION ...] [--data FOLDER] [--seed N] [--repeats N]

Sections: kernel, wide (all by default). Prints Markdown tables. FOLDER (or BAGWISE_DATA) holds the public
sets. CPU times are those of the process, all threads together.
"""

import argparse
import os
import time

import numpy as np
from printing import header, row
from scipy import sparse
from scipy.spatial.distance import cdist

from bagwise import load_dataset
from bagwise.models.distance.kernels import hausdorff_distances


def cpu(function, repeats):
    """Least CPU seconds of some calls, and the result."""
    best = np.inf
    for _ in range(repeats):
        start = time.process_time()
        result = function()
        best = min(best, time.process_time() - start)
    return best, result


def by_products(X):
    """Distances to X by matrix products; equal rows come out at up to some 1e-8 of their length."""
    lengths = np.einsum("ij,ij->i", X, X)

    def pairs(A, X):
        squares = np.einsum("ij,ij->i", A, A)[:, None] + lengths - 2.0 * (A @ X.T)
        return np.sqrt(np.maximum(squares, 0.0))

    return pairs


def by_rows(X, offsets, kind, n, pairs):
    """The first ``n`` bags against all: distances of a bag's rows to all instances, then segments."""
    out, starts, sizes = np.empty((n, len(offsets) - 1)), offsets[:-1], np.diff(offsets)
    for a in range(n):
        D = pairs(X[offsets[a] : offsets[a + 1]], X)
        rows, columns = np.minimum.reduceat(D, starts, axis=1), D.min(axis=0)
        if kind == "max":
            out[a] = np.maximum(rows.max(axis=0), np.maximum.reduceat(columns, starts))
        elif kind == "average":
            out[a] = (rows.sum(axis=0) + np.add.reduceat(columns, starts)) / (sizes[a] + sizes)
        else:
            out[a] = rows.min(axis=0)
    return out


def by_loop(X, offsets, kind, n):
    """The first ``n`` bags against all: a plain loop over pairs of bags."""
    out = np.empty((n, len(offsets) - 1))
    bags = [X[a:b] for a, b in zip(offsets[:-1], offsets[1:])]
    for a in range(n):
        for b, other in enumerate(bags):
            D = np.sqrt(((bags[a][:, None, :] - other[None, :, :]) ** 2).sum(axis=2))
            rows, columns = D.min(axis=1), D.min(axis=0)
            if kind == "max":
                out[a, b] = max(rows.max(), columns.max())
            elif kind == "average":
                out[a, b] = (rows.sum() + columns.sum()) / (len(rows) + len(columns))
            else:
                out[a, b] = D.min()
    return out


def kernel(options):
    header(
        "### Distances of all pairs of bags, CPU seconds (least of the repeats)",
        "data", "kind", "bagwise", "bagwise, CSR", "cdist + reduceat", "product + reduceat", "NumPy loop",
        "ratios", "difference",
    )  # fmt: skip
    for name in ("miml_scene", "miml_reuters"):
        bags = load_dataset(name).bags
        X, offsets = np.ascontiguousarray(bags.X, dtype=np.float64), bags.offsets
        csr, part = sparse.csr_array(X), 40
        pairs = by_products(X)
        share = len(bags) / part / 2  # the others are given credit for doing half the matrix
        for kind in ("max", "average", "min"):
            for warm in (X, csr):
                hausdorff_distances(warm[: offsets[3]], offsets[:4], kind=kind)
            ours, D = cpu(lambda: hausdorff_distances(X, offsets, kind=kind), options.repeats)  # noqa: B023
            thin, S = cpu(lambda: hausdorff_distances(csr, offsets, kind=kind), options.repeats)  # noqa: B023
            theirs, C = cpu(lambda: by_rows(X, offsets, kind, part, cdist), options.repeats)  # noqa: B023
            product = cpu(lambda: by_rows(X, offsets, kind, part, pairs), options.repeats)[0]  # noqa: B023
            plain, P = cpu(lambda: by_loop(X, offsets, kind, part), 1)  # noqa: B023
            theirs, product, plain = theirs * share, product * share, plain * share
            gap = max(np.abs(D[:part] - C).max(), np.abs(D[:part] - P).max(), np.abs(D - S).max())
            row(
                f"{name}, {len(bags)} bags, {len(X)} x {X.shape[1]}", kind, f"{ours:.2f}", f"{thin:.2f}",
                f"{theirs:.2f}", f"{product:.2f}", f"{plain:.1f}",
                f"{theirs / ours:.1f}, {product / ours:.1f}, {plain / ours:.0f}", f"{gap:.0e}",
            )  # fmt: skip
    print(f"\nThe others are timed on {part} rows of the matrix and scaled to half of it.")


def wide(options):
    header(
        "### Many features, 4000 generated instances, maximum distances, CPU seconds",
        "features", "instances per bag", "bagwise", "matrix product + reduceat", "ratio",
    )  # fmt: skip
    rng = np.random.default_rng(options.seed)
    for d in (100, 500, 2000):
        X = rng.normal(size=(4000, d))
        pairs = by_products(X)
        for size in (4, 40):
            offsets = np.arange(0, len(X) + 1, size)
            n = len(offsets) - 1
            part = n // 20
            hausdorff_distances(X[: offsets[3]], offsets[:4], kind="max")
            ours = cpu(lambda: hausdorff_distances(X, offsets, kind="max"), options.repeats)[0]  # noqa: B023
            product = cpu(lambda: by_rows(X, offsets, "max", part, pairs), options.repeats)[0]  # noqa: B023
            product *= n / part / 2
            row(d, size, f"{ours:.2f}", f"{product:.2f}", f"{product / ours:.1f}")


def main():
    sections = {"kernel": kernel, "wide": wide}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(sections))
    parser.add_argument("--data", help="folder with the public sets")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    if options.data:
        os.environ["BAGWISE_DATA"] = options.data
    for name in options.sections or sections:
        sections[name](options)


if __name__ == "__main__":
    main()
