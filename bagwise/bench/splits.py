"""Protocols: which bags are for training and which for testing in one repeat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.model_selection import KFold, StratifiedKFold, StratifiedShuffleSplit

from bagwise.errors import DataError
from bagwise.models._shared.held_out import MultilabelKFold


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
