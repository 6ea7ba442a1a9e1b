"""CPU time of a reproduction from its rows: python benchmarks/reproduction_cost.py FOLDER [--without NAMES]
                                              python benchmarks/reproduction_cost.py FOLDER --against CHECKOUT

One line per experiment: its fits that no experiment before it needs, how many of them are there, CPU seconds
of these, CPU seconds to be expected of all of them (the mean of those there, for each data set and method),
and minutes on two cores if the experiment is run alone, predictions included. Then the dearest methods.
``--without`` leaves methods out, so that runs of different catalogues can be compared.

``--against`` takes the pairs of data set and method that cost most in the rows, and runs the first fit of
each in another checkout of bagwise and in this one, in turn: the short runs of both on the same machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

from papers.rows import Store
from papers.suites import find_experiments
from papers.tasks import tasks_of


class Cost(NamedTuple):
    """Of some fits: how many there are and were run, seconds of these and of all, places without any."""

    n: int
    there: int
    spent: float
    expected: float
    unknown: list[tuple[str, str]]


def cost_of(tasks, rows, key="fit_cpu_seconds", more=None) -> Cost:
    """Add up what fits took, with means in place of those that are not there."""
    places = defaultdict(list)
    for task in tasks:
        row = rows.get(task.digest)
        places[task.dataset, task.method].append(
            None if row is None else (row[key] or 0.0) + (0.0 if more is None else row[more] or 0.0)
        )
    spent = expected = 0.0
    there, unknown = 0, []
    for place, values in places.items():
        known = [value for value in values if value is not None]
        there, spent = there + len(known), spent + sum(known)
        if known:
            expected += sum(known) / len(known) * len(values)
        else:
            unknown.append(place)
    return Cost(sum(map(len, places.values())), there, spent, expected, unknown)


_FIRST_FIT = """
import sys
from papers.execute import execute
from papers.suites import find_experiments
from papers.tasks import tasks_of
suite, experiment = find_experiments(sys.argv[1])[0]
tasks = tasks_of(suite, experiment, short=True, datasets=[sys.argv[2]], methods=[sys.argv[3]])
row = execute(tasks[0])[0] if tasks else {"fit_cpu_seconds": None}
print("found", len(tasks), row["fit_cpu_seconds"])
"""


def first_fit(checkout: str, place: tuple[str, str, str]) -> tuple[int, float] | None:
    """Number of fits of a pair in a checkout, and CPU seconds of the first; None where it is unknown."""
    environment = {**os.environ, "PYTHONPATH": os.path.abspath(checkout), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _FIRST_FIT, *place],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
    )
    said = done.stdout.split()
    return (int(said[1]), float(said[2])) if said[:1] == ["found"] and said[2] != "None" else None


def side_by_side(then: str, places: list[tuple[str, str, str]]) -> None:
    """Print what the fits of these pairs cost in another checkout and here, from one fit each."""
    sums, here = [0.0, 0.0], str(Path(__file__).parent.parent)
    print(f"{'then: s a fit x fits':>22s} {'now: s a fit x fits':>22s} {'ratio':>6s}")
    for place in places:
        found = first_fit(then, place), first_fit(here, place)
        if found[0] is None or found[1] is None:
            print(f"{'':22s} {'':22s} {'':6s}  {', '.join(place)}: not in both")
            continue
        totals = [n * seconds for n, seconds in found]
        sums = [a + b for a, b in zip(sums, totals)]
        cells = " ".join(f"{seconds:14.2f} x {n:5d}" for n, seconds in found)
        print(f"{cells} {totals[0] / totals[1]:6.1f}  {', '.join(place)}", flush=True)
    print(
        f"all fits of these pairs: {sums[0]:.0f} s then, {sums[1]:.0f} s now, ratio {sums[0] / sums[1]:.1f}"
    )


def main() -> None:
    """Read the rows and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--without", nargs="*", default=[])
    parser.add_argument("--against", metavar="CHECKOUT", help="another checkout, to run the same fits in")
    parser.add_argument("--pairs", type=int, default=20, help="how many pairs to run there (default 20)")
    given = parser.parse_args()
    rows = Store(given.folder).rows()
    seen: set[str] = set()
    totals, dearest = [], Counter()
    print(f"{'experiment':20s} {'fits':>6s} {'there':>6s} {'CPU s':>8s} {'expected':>8s} {'alone, min':>10s}")
    for suite, experiment in find_experiments("all"):
        tasks = [
            t for t in tasks_of(suite, experiment, short=not given.full) if t.method not in given.without
        ]
        new = [task for task in tasks if task.digest not in seen]
        seen |= {task.digest for task in new}
        cost = cost_of(new, rows)
        alone = cost_of(tasks, rows, more="predict_seconds").expected / 120
        totals.append(cost)
        for task in new:
            if task.digest in rows:
                place = experiment.id, task.dataset, task.method
                dearest[place] += rows[task.digest]["fit_cpu_seconds"] or 0.0
        missing = f"  not run: {', '.join(' '.join(place) for place in cost.unknown)}" if cost.unknown else ""
        counts = f"{cost.n:6d} {cost.there:6d} {cost.spent:8.0f} {cost.expected:8.0f} {alone:10.1f}"
        print(f"{experiment.id:20s} {counts}{missing}")
    spent, expected = sum(c.spent for c in totals), sum(c.expected for c in totals)
    n, there = sum(c.n for c in totals), sum(c.there for c in totals)
    print(f"{'all':20s} {n:6d} {there:6d} {spent:8.0f} {expected:8.0f}   expected: {expected / 3600:.2f} h")
    for names, seconds in dearest.most_common(12):
        print(f"{seconds:8.0f} s  {', '.join(names)}")
    if given.against:
        side_by_side(given.against, [place for place, _ in dearest.most_common(given.pairs)])


if __name__ == "__main__":
    main()
