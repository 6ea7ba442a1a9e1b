"""Numbers written as text, and what numbers and classes mean for bags; in bulk, one by one only to blame."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from bagwise.bags.labels import label_matrix
from bagwise.errors import DataError

_BLOCK = 1 << 20  # values converted together: bounds the memory for their texts
# float() alone would also take 1_000 and digits of other scripts
_NUMBER = re.compile(
    r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|[+-]?(?:nan|inf|infinity)", re.ASCII | re.IGNORECASE
)


def parse_rows(
    rows: Sequence[str],
    lines: Sequence[int],
    width: int,
    unit: str = "row",
) -> np.ndarray:
    """Matrix (len(rows), width) of rows of comma-separated numbers that stand on these lines of a file.

    Examples
    --------
    >>> parse_rows(["1,2.5", "-3, 4E-1"], [7, 8], 2).tolist()
    [[1.0, 2.5], [-3.0, 0.4]]
    >>> parse_rows(["1,2.5", "-3"], [7, 8], 2)
    Traceback (most recent call last):
    ...
    bagwise.errors.DataError: line 8: expected 2 values in each row, found 1
    """
    # Before any memory is asked for: the widths bound it by the length of the text.
    for row, line in zip(rows, lines):
        if row.count(",") != width - 1:
            found = row.count(",") + 1 if row.strip() else 0
            raise DataError(f"expected {width} values in each {unit}, found {found}", line=line)
    X = np.empty((len(rows), width))
    step = max(_BLOCK // width, 1)
    for a in range(0, len(rows), step):
        block = rows[a : a + step]
        values = ",".join(block).replace(", ", ",").split(",")
        try:
            X[a : a + step] = pa.array(values).cast(pa.float64()).to_numpy().reshape(-1, width)
        except (pa.ArrowInvalid, UnicodeError):
            X[a : a + step] = [_slow(row, line) for row, line in zip(block, lines[a : a + step])]
    return X


def _slow(row: str, line: int) -> list[float]:
    values = []
    for k, text in enumerate(row.split(","), 1):
        text = text.strip()
        if not _NUMBER.fullmatch(text):
            if text in ("", "?"):
                raise DataError(f"value {k} is missing; fill or drop such instances first", line=line)
            raise DataError(f"value {k} is {text[:40]!r}, expected a number", line=line)
        values.append(float(text))
    return values


def whole_numbers(values: np.ndarray, lines: Sequence[int] | None, what: str, low: int = 0) -> np.ndarray:
    """Check that numbers are integers of at least ``low`` and return them as int64.

    Examples
    --------
    >>> whole_numbers(np.array([3.0, 1.0]), [1, 2], "class")
    array([3, 1])
    """
    with np.errstate(invalid="ignore"):
        wrong = ~((values >= low) & (values < 2**53) & (values == np.floor(values)))
    if wrong.any():
        k = int(np.flatnonzero(wrong)[0])
        place = f"row {k + 1}: " if lines is None else ""
        raise DataError(
            f"{place}{what} is {values[k]:g}, expected an integer of at least {low}",
            line=None if lines is None else int(lines[k]),
        )
    return values.astype(np.int64)


# ----------------------------------------------------------------------
# From rows with a bag name on each to bags: grouping, names, and labels that must agree within a bag


POSITIVE = "positive"  # the one label of sets that only tell positive from negative bags


def label_per_bag(
    values: np.ndarray,
    offsets: np.ndarray,
    ids: np.ndarray,
    lines: Sequence[int] | np.ndarray | None = None,
) -> np.ndarray:
    """The label of each bag, from a column (in bag order) that repeats it on every row.

    Examples
    --------
    >>> label_per_bag(np.array([1, 1, 0]), np.array([0, 2, 3]), np.array(["a", "b"]))
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
            line=None if lines is None else int(lines[row]),
        )
    return first


def classes_to_labels(
    classes: np.ndarray, names: Sequence[str] | None = None, origin: int = 0
) -> tuple[np.ndarray, tuple[str, ...], np.ndarray]:
    """One class per bag as a label matrix: 0/1 become one label, other classes one label each.

    With ``names``, class ``origin + k`` is label ``k``; one name stands for the positive class. Returned are
    the label matrix, its names and the class of each label.

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
            line=None if lines is None else int(lines[row]),
        )
