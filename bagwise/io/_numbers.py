"""Rows of numbers written as text: converted in bulk, looked at one by one only to find what is wrong."""

from __future__ import annotations

import re
from collections.abc import Sequence
from os import PathLike

import numpy as np
import pyarrow as pa

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
    path: str | PathLike[str],
    unit: str = "row",
) -> np.ndarray:
    """Convert rows of comma-separated numbers to a matrix.

    Parameters
    ----------
    rows : sequence of str
        One text per row.
    lines : sequence of int
        The line of the file that each row comes from.
    width : int
        Number of values that every row must have.
    path : path
        The file, for messages.
    unit : str, default="row"
        What a row is called in messages.

    Returns
    -------
    ndarray of float64, shape (len(rows), width)

    Examples
    --------
    >>> parse_rows(["1,2.5", "-3, 4E-1"], [7, 8], 2, "toy.arff").tolist()
    [[1.0, 2.5], [-3.0, 0.4]]
    >>> parse_rows(["1,2.5", "-3"], [7, 8], 2, "toy.arff")
    Traceback (most recent call last):
    ...
    bagwise.errors.DataError: toy.arff, line 8: expected 2 values in each row, found 1
    """
    # Before any memory is asked for: the widths bound it by the length of the text.
    for row, line in zip(rows, lines):
        if row.count(",") != width - 1:
            found = row.count(",") + 1 if row.strip() else 0
            raise DataError(f"expected {width} values in each {unit}, found {found}", path=path, line=line)
    X = np.empty((len(rows), width))
    step = max(_BLOCK // width, 1)
    for a in range(0, len(rows), step):
        block = rows[a : a + step]
        values = ",".join(block).replace(", ", ",").split(",")
        try:
            X[a : a + step] = pa.array(values).cast(pa.float64()).to_numpy().reshape(-1, width)
        except (pa.ArrowInvalid, UnicodeError):
            X[a : a + step] = [_slow(row, line, path) for row, line in zip(block, lines[a : a + step])]
    return X


def _slow(row: str, line: int, path: str | PathLike[str]) -> list[float]:
    values = []
    for k, text in enumerate(row.split(","), 1):
        text = text.strip()
        if not _NUMBER.fullmatch(text):
            if text in ("", "?"):
                raise DataError(
                    f"value {k} is missing; fill or drop such instances first", path=path, line=line
                )
            raise DataError(f"value {k} is {text[:40]!r}, expected a number", path=path, line=line)
        values.append(float(text))
    return values


def whole_numbers(
    values: np.ndarray, lines: Sequence[int] | None, path: str | PathLike[str], what: str, low: int = 0
) -> np.ndarray:
    """Check that numbers are integers of at least ``low`` and return them as int64.

    Examples
    --------
    >>> whole_numbers(np.array([3.0, 1.0]), [1, 2], "toy.arff", "class")
    array([3, 1])
    """
    with np.errstate(invalid="ignore"):
        wrong = ~((values >= low) & (values < 2**53) & (values == np.floor(values)))
    if wrong.any():
        k = int(np.flatnonzero(wrong)[0])
        place = f"row {k + 1}: " if lines is None else ""
        raise DataError(
            f"{place}{what} is {values[k]:g}, expected an integer of at least {low}",
            path=path,
            line=None if lines is None else int(lines[k]),
        )
    return values.astype(np.int64)
