"""Tasks: one fit and its predictions each, with a hash of everything that decides their outcome."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from sklearn.model_selection import KFold, StratifiedKFold, StratifiedShuffleSplit

from bagwise.errors import DataError
from bagwise.model_selection import MultilabelKFold
from papers.suites import Experiment, Suite, overlaid, shortened

_COUNTS = ("repeats", "seeds", "first_seed", "title")  # which repeats there are, not what one is
NO_METHOD = "-"  # rows of tables that describe the data sets themselves


@dataclass(frozen=True)
class Task:
    """Data set x method x setting x split.

    Parameters
    ----------
    dataset, method : str
        Names in the paper, for people; the hash does not depend on them.
    data, model, split : mapping
        What to load, what to fit, how to divide the bags.
    repeat : mapping
        Which of the splits: ``seed`` and, with folds, ``fold``.
    x : float or None
        Place on the axis of a figure.
    """

    dataset: str
    method: str
    data: Mapping[str, Any]
    model: Mapping[str, Any]
    split: Mapping[str, Any]
    repeat: Mapping[str, int]
    x: float | None = None

    @cached_property
    def digest(self) -> str:
        """Hash of what decides the outcome; tables that need the same fit share it."""
        parts = {"data": self.data, "model": self.model, "split": self.split, "repeat": self.repeat}
        return hashlib.sha256(_canonical(parts).encode()).hexdigest()[:24]

    @property
    def setting(self) -> str:
        """The model's settings as text, the same for all splits."""
        return _canonical(self.model)

    @property
    def data_key(self) -> str:
        """What is loaded, as text; a change to a table's data may not be there where the table's own is."""
        return _canonical(self.data)

    @property
    def cell(self) -> str:
        """All that decides the outcome but the repeat, as text: what means and deviations are over."""
        return _canonical({"data": self.data, "model": self.model, "split": self.split})

    @property
    def key(self) -> str:
        """Which split, as text; values of two methods under the same key are paired."""
        return ", ".join(f"{name} {value}" for name, value in self.repeat.items())


def tasks_of(
    suite: Suite,
    experiment: Experiment,
    *,
    short: bool = False,
    methods: Collection[str] | None = None,
    datasets: Collection[str] | None = None,
) -> list[Task]:
    """All tasks of an experiment whose data set and method exist, in the order in which they run."""
    spec = shortened(experiment.spec, short)
    protocol = shortened(suite.protocols[spec["protocol"]], short)
    points = spec.get("points", [{}])
    found = []
    for name, method, point in product(spec["datasets"], spec.get("methods", [NO_METHOD]), points):
        if (datasets is not None and name not in datasets) or (methods is not None and method not in methods):
            continue
        data = overlaid(_plain(shortened(suite.datasets[name], short)), point.get("data", {}))
        model = {} if method == NO_METHOD else shortened(suite.methods[method], short)
        model = overlaid(_plain(model), data.pop("models", {}).get(method, {}))
        if "absent" in data or "absent" in model:
            continue
        model = overlaid(model, point.get("model", {}))
        model = {key: value for key, value in model.items() if value is not False}  # taken away by a change
        split = overlaid(overlaid(protocol, data.pop("split", {})), point.get("split", {}))
        # The number of repeats is not part of a task: more of them keep the first ones.
        plan = {key: value for key, value in split.items() if key not in _COUNTS}
        for setting, repeat in product(_settings(model), repeats(split)):
            found.append(Task(name, method, data, setting, plan, repeat, point.get("x")))
    return found


def repeats(split: Mapping[str, Any]) -> Iterator[dict[str, int]]:
    """Every repeat of a protocol.

    Examples
    --------
    >>> list(repeats({"kind": "folds", "n_splits": 2, "seeds": 2}))
    [{'seed': 0, 'fold': 0}, {'seed': 0, 'fold': 1}, {'seed': 1, 'fold': 0}, {'seed': 1, 'fold': 1}]
    >>> list(repeats({"kind": "holdout", "repeats": 2}))
    [{'seed': 0}, {'seed': 1}]
    """
    if split["kind"] == "folds":
        first = split.get("first_seed", 0)
        for seed, fold in product(range(split.get("seeds", 1)), range(split["n_splits"])):
            yield {"seed": first + seed, "fold": fold}
    else:
        for seed in range(split.get("repeats", 1)):
            yield {"seed": seed}


def _settings(model: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The model once per setting of its grid, where it has one."""
    plain = {key: value for key, value in model.items() if key != "settings"}
    grid = model.get("settings")
    if not grid:
        yield plain
        return
    for values in product(*grid.values()):
        chosen = dict(zip(grid, values))
        # What is done to features first is no setting of the estimator.
        own = {name: chosen.pop(name) for name in ("divide", "rbf") if name in chosen}
        yield overlaid(plain, {"params": chosen} | own)


def _plain(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is written for people."""
    return {key: value for key, value in spec.items() if key not in ("note", "shown_as", "stands_for")}


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


# ----------------------------------------------------------------------
# Protocols: which bags are for training and which for testing in one repeat


def split_bags(
    split: Mapping[str, Any], y: np.ndarray, repeat: Mapping[str, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Training and test bags, both in increasing order.

    Parameters
    ----------
    split : mapping
        ``kind``: "folds" (``n_splits`` shuffled folds), "holdout" (``train``: share or number of training
        bags) or "all" (train and test on everything); ``stratify``: whether each part holds its share of
        every class ("labels": of every label, for folds).
    y : ndarray
        Targets.
    repeat : mapping
        ``seed`` of the shuffle and, with folds, the ``fold`` to test on.

    Examples
    --------
    >>> train, test = split_bags({"kind": "holdout", "train": 0.75}, np.zeros((4, 2)), {"seed": 0})
    >>> len(train), len(test), sorted([*train.tolist(), *test.tolist()])
    (3, 1, [0, 1, 2, 3])
    """
    n, kind, seed = len(y), split["kind"], repeat["seed"]
    if kind == "all":
        return np.arange(n), np.arange(n)
    classes = y if y.ndim == 1 else y.argmax(axis=1)
    if kind == "folds":
        if split.get("stratify") == "labels" and y.ndim == 2:
            spread = MultilabelKFold(split["n_splits"], random_state=seed).split(y, y)
            return list(spread)[repeat["fold"]]
        make = StratifiedKFold if split.get("stratify") else KFold
        folds = make(split["n_splits"], shuffle=True, random_state=seed).split(classes, classes)
        return list(folds)[repeat["fold"]]
    if kind == "holdout":
        share = split["train"]
        size = share if isinstance(share, int) else max(1, round(share * n))
        if not 1 <= size < n:
            raise DataError(f"{share} training bags of {n} leave nothing to train or to test on")
        if split.get("stratify"):
            halves = StratifiedShuffleSplit(1, train_size=size, random_state=seed)
            train, test = next(halves.split(classes, classes))
        else:
            order = np.random.default_rng(seed).permutation(n)
            train, test = order[:size], order[size:]
        return np.sort(train), np.sort(test)
    raise DataError(f"no protocol of the kind {kind!r}; there are folds, holdout and all")
