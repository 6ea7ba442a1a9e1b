"""CPU time of a reproduction from its rows: python benchmarks/reproduction_cost.py FOLDER [--without NAMES]

One line per experiment: its fits that no experiment before it needs, how many of them are there, CPU seconds
of these, CPU seconds to be expected of all of them (the mean of those there, for each data set and method),
and minutes on two cores if the experiment is run alone, predictions included. Then the dearest methods.
``--without`` leaves methods out, so that runs of different catalogues can be compared.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from typing import NamedTuple

from bagwise.bench.store import Store
from bagwise.bench.suites import find_experiments
from bagwise.bench.tasks import tasks_of


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


def main() -> None:
    """Read the rows and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--without", nargs="*", default=[])
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


if __name__ == "__main__":
    main()
