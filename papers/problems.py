"""Data sets as the papers use them: parts, joins and targets of the sets that bagwise can load."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from bagwise import Bags
from bagwise.bags.dataset import UNKNOWN, Dataset
from bagwise.datasets import GENERATORS, entries, load_dataset
from bagwise.errors import DataError

_KEYS = {"load", "options", "target", "labels", "classes", "join", "part", "distinct"}


@dataclass(frozen=True)
class Problem:
    """Bags with their targets.

    Parameters
    ----------
    bags : Bags
        The bags.
    labelled : Bags
        The same with the labels of instances as a fact, for methods that are shown them.
    y : ndarray
        Label matrix, or one class per bag.
    """

    bags: Any
    labelled: Any
    y: np.ndarray

    @property
    def has_instance_labels(self) -> bool:
        """Whether the labels of instances are known."""
        return isinstance(self.labelled, Bags) and "label" in self.labelled.instance_info

    @property
    def is_matrix(self) -> bool:
        """Whether bags carry sets of labels rather than one class."""
        return self.y.ndim == 2


def load_problem(spec: Mapping[str, Any], seed: int) -> Problem:
    """Load a data set as a suite describes it.

    Parameters
    ----------
    spec : mapping
        ``load``: name of a set (or ``join``: several, one after the other, with equal columns); ``options``
        for it; ``target``: "labels" (default), "class" (one class per bag) or "binary" (the last label);
        ``labels``: "occurring" leaves out labels that no bag carries; ``classes``: only bags of these
        classes, numbered from 0, or of the first so many; ``part``: bags of these classes against as many
        others, drawn anew for every seed; ``distinct``: one bag for all equal ones, positive if one of them
        is.
    seed : int
        Only ``part`` depends on it.
    """
    unknown = sorted(set(spec) - _KEYS)
    if unknown:
        raise DataError(f"a data set of a suite has no key {unknown[0]!r}; its keys are {sorted(_KEYS)}")
    return _load(json.dumps(spec, sort_keys=True), seed if "part" in spec else 0)


@lru_cache(maxsize=4)
def _load(text: str, seed: int) -> Problem:
    spec = json.loads(text)
    if "join" in spec:
        return _joined(spec)
    data = load_dataset(spec["load"], **spec.get("options", {}))
    if spec.get("labels") == "occurring":
        data = _without_absent_labels(data)
    known = data.instance_Y is not None and isinstance(data.bags, Bags)
    labelled = data.labelled_bags() if known else data.bags
    which = np.arange(len(data.Y))
    classes = data.Y.argmax(axis=1)
    y: np.ndarray = data.Y
    if "classes" in spec:
        chosen = spec["classes"]
        which = np.flatnonzero(classes < chosen if isinstance(chosen, int) else np.isin(classes, chosen))
    if "part" in spec:
        positive = np.isin(classes, spec["part"])
        others = np.flatnonzero(~positive)
        count = min(positive.sum(), len(others))
        drawn = np.random.default_rng(seed).choice(others, count, replace=False)
        which = np.concatenate([np.flatnonzero(positive), np.sort(drawn)])
        y = positive.astype(np.int8)
    elif spec.get("target") == "class":
        y = classes
    elif spec.get("target") == "binary":
        y = data.Y[:, -1]
    if len(which) < len(y):
        return Problem(data.bags[which], labelled[which], y[which])
    return Problem(data.bags, labelled, y)


def _without_absent_labels(data: Dataset) -> Dataset:
    kept = np.flatnonzero(data.Y.any(axis=0))
    place = np.full(data.Y.shape[1] + 1, UNKNOWN)  # the last entry serves -1, an unknown label
    place[kept] = np.arange(len(kept))
    return replace(
        data,
        Y=data.Y[:, kept],
        label_names=tuple(np.asarray(data.label_names, dtype=object)[kept]) if data.label_names else (),
        instance_Y=None if data.instance_Y is None else place[data.instance_Y],
    )


def _joined(spec: Mapping[str, Any]) -> Problem:
    sets = [load_dataset(name) for name in spec["join"]]  # their bags must have the same features
    matrices = [matrix for data in sets for matrix in data.bags]
    y = np.concatenate([data.Y[:, -1] for data in sets])
    if spec.get("distinct"):
        seen: dict[tuple[bytes, ...], tuple[Any, int]] = {}
        for matrix, label in zip(matrices, y):
            key = tuple(sorted(row.tobytes() for row in np.ascontiguousarray(matrix)))
            seen[key] = (matrix, max(int(label), seen.get(key, (matrix, 0))[1]))
        matrices, y = [m for m, _ in seen.values()], np.array([label for _, label in seen.values()])
    bags = Bags.from_list(matrices)
    return Problem(bags, bags, y)


def status_of(spec: Mapping[str, Any]) -> str:
    """Whether a set is "at hand", "download", "by hand", "generated" or "not public"."""
    if "absent" in spec:
        return "not public"
    names = spec.get("join", [spec.get("load", "")])
    found = ["generated" if name in GENERATORS else entries()[name].status() for name in names]
    order = ("by hand", "download", "at hand", "generated")
    return min(found, key=order.index)
