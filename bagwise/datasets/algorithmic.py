"""Sets that only a method which respects the standard multi-instance assumption can solve.

A bag carries a label exactly if it holds an instance that causes it; nothing that is absent, counted or
ordered matters. Each set offers a shortcut that breaks this rule, works on the training part and points the
wrong way on the test part. A correct method reaches an AUC of 1 on both; a method that takes the
shortcut falls below 0.5 on the test part, which guessing would not. The idea of such tests is that of [1]_.

References
----------
.. [1] E. Raff and J. Holt. Reproducibility in multiple instance learning: a case for algorithmic unit
       tests. Advances in Neural Information Processing Systems 36, 2023.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bagwise.bags.dataset import Dataset
from bagwise.datasets.draws import (
    BACKGROUND,
    check_range,
    described,
    gaussian_instances,
    generator,
    shuffle_within,
    to_offsets,
)

_SPREAD = 0.3  # standard deviation of all clusters; centres are several units apart


def make_absence_trap(
    n_bags: int = 400,
    n_labels: int = 1,
    n_features: int = 10,
    *,
    n_poison: int = 3,
    min_size: int = 3,
    max_size: int = 8,
    random_state: Any = 0,
) -> Dataset:
    """What is missing must not count: each label has a target and a poison.

    A bag carries a label exactly if it holds one target instance of the label. In the training part
    bags *without* the label hold ``n_poison`` poison instances and bags with the label none; in the
    test part it is the other way round. Poison never causes a label, but in training its absence
    foretells one.

    Parameters
    ----------
    n_bags : int, default=400
        Number of bags; the first half is the part "train", the second "test".
    n_labels : int, default=1
        Labels, each with a target and a poison of its own; one label is called "positive".
    n_features : int, default=10
        Number of features, at least ``2 * n_labels``: each target and each poison has an axis.
    n_poison : int, default=3
        Poison instances per bag and label.
    min_size, max_size : int
        Range of the number of background instances that every bag holds besides.
    random_state : int, Generator or None, default=0
        Seed.

    Returns
    -------
    Dataset
        With splits "train" and "test" and ``instance_Y`` (-1 for background and poison);
        ``bags.instance_info["role"]``: 0 background, 1 target, 2 poison.

    Notes
    -----
    Scoring a bag by its largest instance score for the target gives a test AUC of 1; logistic regression
    on bag means gives a test AUC near 0.

    Examples
    --------
    >>> data = make_absence_trap(n_bags=100)
    >>> train = data["train"]
    >>> poisoned = [bool((role == 2).any()) for role in np.split(train.bags.instance_info["role"],
    ...                                                          train.bags.offsets[1:-1])]
    >>> [bool(y) for y in train.Y[:, 0]] == [not p for p in poisoned]
    True
    """
    check_range(min_size, max_size)
    if n_features < 2 * n_labels:
        raise ValueError(
            f"{n_labels} label(s) need at least {2 * n_labels} features, one per target and poison; "
            f"got n_features={n_features}"
        )
    rng = generator(random_state)
    is_test, Y = _halves(rng, n_bags, n_labels)
    poisoned = np.where(is_test[:, None], Y == 1, Y == 0)
    background = rng.integers(min_size, max_size + 1, (n_bags, 1))
    counts = np.hstack([background, Y.astype(np.int64), n_poison * poisoned])
    kinds, offsets = _instances_of_kinds(rng, counts)
    centres = np.zeros((1 + 2 * n_labels, n_features), dtype=np.float32)
    centres[np.arange(1, 1 + 2 * n_labels), np.arange(2 * n_labels)] = 4.0
    is_target = (kinds >= 1) & (kinds <= n_labels)
    truth = np.where(is_target, kinds - 1, BACKGROUND)
    role = np.where(is_target, 1, np.where(kinds > n_labels, 2, 0))
    X = gaussian_instances(rng, centres, kinds, _SPREAD)
    about = "A shortcut by absence: poison marks bags without the label in training, with it in test."
    return _trap("absence_trap", X, offsets, Y, truth, role, is_test, about)


def make_counting_trap(
    n_bags: int = 400,
    n_features: int = 10,
    *,
    n_many: int = 8,
    min_size: int = 3,
    max_size: int = 8,
    random_state: Any = 0,
) -> Dataset:
    """How many must not count: negative test bags hold many half-way decoys.

    A bag is positive exactly if it holds a target. Decoys lie half-way between background and target and
    cause nothing; training shows that, since all training bags hold one. Training positives hold several
    targets, test positives a single one, and test negatives hold ``n_many`` decoys: together they outweigh
    a target.

    Parameters
    ----------
    n_bags : int, default=400
        Number of bags; the first half is the part "train", the second "test".
    n_features : int, default=10
        Number of features; the first carries targets and decoys.
    n_many : int, default=8
        Decoys of a negative test bag.
    min_size, max_size : int
        Range of the number of background instances that every bag holds besides.
    random_state : int, Generator or None, default=0
        Seed.

    Returns
    -------
    Dataset
        As in `make_absence_trap`; role 2 is a decoy.

    Notes
    -----
    The largest instance score gives a test AUC of 1; sums and means of instance scores give one near 0.

    Examples
    --------
    >>> data = make_counting_trap(n_bags=100)
    >>> sums = np.bincount(data.bags.index, weights=data.bags.X[:, 0])
    >>> test, positive = data.splits["test"], data.Y[:, 0] == 1
    >>> bool(sums[test][positive[test]].mean() < sums[test][~positive[test]].mean())
    True
    """
    check_range(min_size, max_size)
    rng = generator(random_state)
    is_test, Y = _halves(rng, n_bags, 1)
    y = Y[:, 0] == 1
    background = rng.integers(min_size, max_size + 1, n_bags)
    targets = np.where(y, np.where(is_test, 1, 3), 0)
    decoys = np.where(is_test, np.where(y, 0, n_many), 1)
    kinds, offsets = _instances_of_kinds(rng, np.column_stack([background, targets, decoys]))
    centres = np.zeros((3, n_features), dtype=np.float32)
    centres[1, 0], centres[2, 0] = 6.0, 3.0
    X = gaussian_instances(rng, centres, kinds, _SPREAD)
    truth = np.where(kinds == 1, 0, BACKGROUND)
    about = "A shortcut by counting: many decoys outweigh the one target in the test part."
    return _trap("counting_trap", X, offsets, Y, truth, kinds, is_test, about)


def make_order_trap(
    n_bags: int = 400,
    n_features: int = 10,
    *,
    min_size: int = 3,
    max_size: int = 8,
    random_state: Any = 0,
) -> Dataset:
    """The order of instances must not count: a marker stands first or last.

    A bag is positive exactly if it holds a target, somewhere inside. Every bag holds one marker, which
    causes nothing: in training last in positive bags and first in negative ones, in test the other way round.

    Parameters
    ----------
    n_bags : int, default=400
        Number of bags; the first half is the part "train", the second "test".
    n_features : int, default=10
        Number of features, at least 2.
    min_size, max_size : int
        Range of the number of background instances that every bag holds besides.
    random_state : int, Generator or None, default=0
        Seed.

    Returns
    -------
    Dataset
        As in `make_absence_trap`; role 2 is the marker.

    Notes
    -----
    The largest instance score gives a test AUC of 1; logistic regression on the first and last instance,
    side by side, gives one near 0.

    Examples
    --------
    >>> data = make_order_trap(n_bags=100)
    >>> first_role = data.bags.instance_info["role"][data.bags.offsets[:-1]]
    >>> train, test = data.splits["train"], data.splits["test"]
    >>> set(first_role[train][data.Y[train, 0] == 0].tolist())
    {2}
    >>> set(first_role[test][data.Y[test, 0] == 1].tolist())
    {2}
    """
    check_range(min_size, max_size)
    if n_features < 2:
        raise ValueError(
            f"target and marker need an axis each: n_features must be 2 or more, got {n_features}"
        )
    rng = generator(random_state)
    is_test, Y = _halves(rng, n_bags, 1)
    y = Y[:, 0] == 1
    # Background stands on both sides of the target, or it could itself be first or last.
    background = np.maximum(rng.integers(min_size, max_size + 1, n_bags), 2)
    kinds, offsets = _instances_of_kinds(rng, np.column_stack([background, y.astype(np.int64)]))
    index = np.repeat(np.arange(n_bags), np.diff(offsets))
    ends = np.isin(np.arange(len(kinds)), np.concatenate([offsets[:-1], offsets[1:] - 1]))
    # Targets that fell on an end change places with their neighbour inside.
    rows = np.flatnonzero((kinds == 1) & ends)
    inward = np.where(rows == offsets[index[rows]], rows + 1, rows - 1)
    kinds[rows], kinds[inward] = 0, 1
    # one instance of kind 2, the marker, at the beginning or at the end of each bag
    kinds = np.insert(kinds, np.where(y == is_test, offsets[:-1], offsets[1:]), 2)
    offsets = offsets + np.arange(len(offsets))
    centres = np.zeros((3, n_features), dtype=np.float32)
    centres[1, 0], centres[2, 1] = 4.0, 8.0
    X = gaussian_instances(rng, centres, kinds, _SPREAD)
    truth = np.where(kinds == 1, 0, BACKGROUND)
    about = "A shortcut by order: the place of a marker foretells the label in training, misleads in test."
    return _trap("order_trap", X, offsets, Y, truth, kinds, is_test, about)


def _halves(rng: np.random.Generator, n_bags: int, n_labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Which bags are test, and labels on for half of the bags of each part."""
    if n_bags < 4:
        raise ValueError(f"two parts with both kinds of bags need 4 bags or more, got n_bags={n_bags}")
    is_test = np.arange(n_bags) >= n_bags // 2
    Y = np.empty((n_bags, n_labels), dtype=np.int8)
    for part in (is_test, ~is_test):
        balanced = np.arange(part.sum()) % 2
        Y[part] = np.column_stack([rng.permutation(balanced) for _ in range(n_labels)])
    return is_test, Y


def _instances_of_kinds(rng: np.random.Generator, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Kinds of instances in random order within bags, given how many of each kind a bag holds."""
    n_bags, n_kinds = counts.shape
    kinds = np.repeat(np.tile(np.arange(n_kinds), n_bags), counts.ravel())
    sizes = counts.sum(axis=1)
    return kinds[shuffle_within(rng, np.repeat(np.arange(n_bags), sizes))], to_offsets(sizes)


def _trap(
    name: str,
    X: np.ndarray,
    offsets: np.ndarray,
    Y: np.ndarray,
    truth: np.ndarray,
    role: np.ndarray,
    is_test: np.ndarray,
    about: str,
) -> Dataset:
    return described(
        name,
        X,
        offsets,
        Y,
        truth,
        about,
        {"role": role.astype(np.int8)},
        ("positive",) if Y.shape[1] == 1 else (),
        citation="E. Raff and J. Holt. Reproducibility in multiple instance learning: a case for "
        "algorithmic unit tests. NeurIPS 2023 (the idea).",
        splits={"train": np.flatnonzero(~is_test), "test": np.flatnonzero(is_test)},
    )
