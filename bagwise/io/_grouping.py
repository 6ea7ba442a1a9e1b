"""From rows with a bag name on each to bags: grouping, names, and labels that must agree within a bag."""

from __future__ import annotations

import re
from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np

from bagwise.bags.labels import label_matrix
from bagwise.errors import DataError

POSITIVE = "positive"  # the one label of sets that only tell positive from negative bags
_INTEGER = re.compile(r"-?[1-9][0-9]{0,19}|0", re.ASCII)
_DECIMAL = re.compile(r"-?[0-9]+\.[0-9]+(e[+-][0-9]+)?|-?[0-9](\.[0-9]+)?e[+-][0-9]+", re.ASCII)
LONGEST_NAME = 255  # NumPy gives every name of a column the room of the longest


def natural_ids(texts: Sequence[str], lines: Sequence[int], path: str | PathLike[str]) -> np.ndarray:
    """Names as written: numbers if all of them are written as Python writes them, else text.

    So names that differ stay different: ``01``, ``1`` and ``1.0`` are three.

    Examples
    --------
    >>> natural_ids(["12", "7"], [1, 2], "toy.data")
    array([12,  7])
    >>> natural_ids(["12", "07"], [1, 2], "toy.data").tolist()
    ['12', '07']
    """
    for text, line in zip(texts, lines):
        if not text or len(text) > LONGEST_NAME:
            problem = "an empty name" if not text else f"a name of {len(text):,} characters"
            raise DataError(
                f"{problem}; names have 1 to {LONGEST_NAME} characters", path=path, line=int(line)
            )
    return natural_names(texts)


def natural_names(texts: Sequence[str]) -> np.ndarray:
    """As `natural_ids`, for names that may be empty or long.

    Examples
    --------
    >>> natural_names(["1.5", "2.0"]).tolist(), natural_names(["1.5", "2"]).tolist()
    ([1.5, 2.0], ['1.5', '2'])
    """
    if len(texts) and all(map(_INTEGER.fullmatch, texts)):
        values = [int(text) for text in texts]
        for kind in (np.int64, np.uint64):
            if np.iinfo(kind).min <= min(values) and max(values) <= np.iinfo(kind).max:
                return np.array(values, dtype=kind)
    elif len(texts) and all(_DECIMAL.fullmatch(text) and repr(float(text)) == text for text in texts):
        return np.array([float(text) for text in texts])
    return np.array(texts, dtype=np.str_)


def group_by_first(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bring equal values together: bags in the order of their first row, rows in theirs.

    Returns
    -------
    order : array of row numbers
    offsets : where each bag begins in ``order``
    ids : the value of each bag

    Examples
    --------
    >>> order, offsets, ids = group_by_first(np.array(["b", "a", "b"]))
    >>> order.tolist(), offsets.tolist(), ids.tolist()
    ([0, 2, 1], [0, 2, 3], ['b', 'a'])
    """
    ids, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    by_appearance = np.argsort(first)
    rank = np.empty(len(ids), dtype=np.int64)
    rank[by_appearance] = np.arange(len(ids))
    bag = rank[inverse]
    order = np.argsort(bag, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(bag, minlength=len(ids)))])
    return order, offsets.astype(np.int64), ids[by_appearance]


def label_per_bag(
    values: np.ndarray,
    offsets: np.ndarray,
    ids: np.ndarray,
    path: str | PathLike[str],
    lines: Sequence[int] | np.ndarray | None = None,
) -> np.ndarray:
    """The label of each bag, from a column (in bag order) that repeats it on every row.

    Examples
    --------
    >>> label_per_bag(np.array([1, 1, 0]), np.array([0, 2, 3]), np.array(["a", "b"]), "toy.data")
    array([1, 0])
    """
    first = values[offsets[:-1]]
    differs = np.flatnonzero(values != np.repeat(first, np.diff(offsets)))
    if differs.size:
        row = differs[0]
        bag = int(np.searchsorted(offsets, row, side="right")) - 1
        raise DataError(
            f"bag {ids[bag].item()!r} has the label {values[row].item()!r} here and {first[bag].item()!r} "
            "on an earlier row; a label is the bag's",
            path=path,
            line=None if lines is None else int(lines[row]),
        )
    return first


def classes_to_labels(
    classes: np.ndarray, names: Sequence[str] | None = None, origin: int = 0
) -> tuple[np.ndarray, tuple[str, ...], np.ndarray]:
    """One class per bag as a label matrix: 0/1 become one label, other classes one label each.

    With ``names``, class ``origin + k`` is label ``k``; one name stands for the positive class.

    Returns
    -------
    Y : label matrix
    names : label names
    known : the class of each label

    Examples
    --------
    >>> Y, names, known = classes_to_labels(np.array([0, 1, 1]))
    >>> Y.ravel().tolist(), names, known.tolist()
    ([0, 1, 1], ('positive',), [1])
    >>> classes_to_labels(np.array([4, 1, 2]))[1]
    ('1', '2', '4')
    """
    known = np.unique(classes)
    if origin == 0 and np.isin(known, [0, 1]).all() and (names is None or len(names) == 1):
        return classes.reshape(-1, 1).astype(np.int8), tuple(names or [POSITIVE]), np.array([1])
    if names is not None:
        known = np.arange(origin, origin + len(names))
        outside = classes[~np.isin(classes, known)]
        if outside.size:
            raise DataError(f"class {outside[0]} has no name: {len(names)} label names were given")
    Y = (classes[:, None] == known).astype(np.int8)
    return *label_matrix(Y, [str(k) for k in known] if names is None else names), known


def check_instance_labels(
    Y: np.ndarray,
    instance_Y: np.ndarray,
    offsets: np.ndarray,
    bag_ids: Any,
    path: str | PathLike[str],
    lines: Sequence[int] | np.ndarray | None = None,
) -> None:
    """Refuse an instance whose label its bag does not have: one of the two must be wrong."""
    index = np.repeat(np.arange(len(Y)), np.diff(offsets))
    wrong = np.flatnonzero((instance_Y >= 0) & (Y[index, instance_Y] == 0))
    if wrong.size:
        row = wrong[0]
        bag = index[row]
        raise DataError(
            f"instance {row - offsets[bag] + 1} of bag {np.asarray(bag_ids)[bag].item()!r} has label "
            f"{instance_Y[row]}, which its bag has not",
            path=path,
            line=None if lines is None else int(lines[row]),
        )
