"""Label sets: from what people have (0/1 tables, lists of names, DataFrames) to one 0/1 matrix, and back."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from bagwise.errors import DataError, quoted


def label_matrix(
    labels: Any, names: Iterable[str] | None = None, bag_ids: Any = None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Bring bag labels into a 0/1 matrix and a tuple of label names.

    Parameters
    ----------
    labels : matrix, DataFrame or sequence of label names per bag
        A 0/1 (or boolean) matrix of shape (n_bags, n_labels), dense or sparse; a DataFrame whose
        columns are the labels; or for each bag an iterable of names, or one name.
    names : sequence of str, optional
        The labels in order. By default the columns of the DataFrame, ``label_0``, ``label_1``, ...
        for a bare matrix, and the sorted names that occur for lists.
    bag_ids : sequence, optional
        Names of the bags, for messages.

    Returns
    -------
    Y : ndarray of int8, shape (n_bags, n_labels)
    names : tuple of str

    Examples
    --------
    >>> Y, names = label_matrix([["wren", "robin"], [], ["wren"]])
    >>> names
    ('robin', 'wren')
    >>> Y.tolist()
    [[1, 1], [0, 0], [0, 1]]
    """
    if names is not None:
        names = _unique_names(names)
    if sparse.issparse(labels):
        return _from_matrix(labels.toarray(), names, bag_ids)
    if hasattr(labels, "columns") and hasattr(labels, "__array__"):  # a DataFrame
        columns = _unique_names(str(column) for column in labels.columns)
        Y, _ = _from_matrix(np.asarray(labels), columns, bag_ids)
        return (Y, columns) if names is None else (Y[:, _order(columns, names)], names)
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "biuf":
        return _from_matrix(labels, names, bag_ids)
    rows = list(labels)
    if any(isinstance(row, str) or _holds_text(row) for row in rows):
        return _from_names(rows, names, bag_ids)
    if names is not None and all(np.ndim(row) != 0 and len(row) == 0 for row in rows):
        return np.zeros((len(rows), len(names)), dtype=np.int8), names
    try:
        matrix = np.array([list(row) for row in rows])
        if matrix.dtype.kind not in "biuf":
            raise ValueError
    except (TypeError, ValueError):
        raise DataError(
            "labels must be a 0/1 matrix, a DataFrame, or for each bag a list of label names (text)"
        ) from None
    return _from_matrix(matrix, names, bag_ids)


def label_sets(Y: np.ndarray, names: Sequence[str]) -> list[list[str]]:
    """Names of the labels of every bag: the inverse of `label_matrix`.

    Examples
    --------
    >>> label_sets(np.array([[1, 1], [0, 0]]), ("robin", "wren"))
    [['robin', 'wren'], []]
    """
    text = np.asarray(names, dtype=object)
    bags, columns = np.nonzero(Y)
    ends = np.searchsorted(bags, np.arange(len(Y) + 1))
    found = text[columns].tolist()
    return [found[a:b] for a, b in zip(ends[:-1], ends[1:])]


def binary_matrix(Y: Any, bag_ids: Any = None) -> np.ndarray:
    """Check that a matrix holds 0 and 1 alone and return it as int8."""
    matrix = np.asarray(Y)
    if matrix.ndim != 2:
        raise DataError(f"labels must be a matrix (bags x labels), got {matrix.ndim} dimension(s)")
    wrong = (matrix != 0) & (matrix != 1)
    if wrong.any():
        row, column = (int(k[0]) for k in np.nonzero(wrong))
        bag = row if bag_ids is None else bag_ids[row]
        raise DataError(
            f"bag {quoted(bag)} has the value {matrix[row, column]} for label {column}; expected 0 or 1"
        )
    return np.ascontiguousarray(matrix, dtype=np.int8)


def unknown_label(name: Any, known: Sequence[str], bag: Any = None) -> DataError:
    """Build the error for a label that is not in the list, with the nearest one that is."""
    close = difflib.get_close_matches(str(name), list(known), n=1)
    hint = f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(map(repr, known[:20]))}"
    place = "" if bag is None else f"bag {quoted(bag)}: "
    return DataError(f"{place}unknown label {name!r}{hint}")


def _from_matrix(matrix: np.ndarray, names: Any, bag_ids: Any) -> tuple[np.ndarray, tuple[str, ...]]:
    Y = binary_matrix(matrix, bag_ids)
    if names is None:
        return Y, tuple(f"label_{k}" for k in range(Y.shape[1]))
    if len(names) != Y.shape[1]:
        raise DataError(f"{len(names)} label names for {Y.shape[1]} columns of labels")
    return Y, names


def _from_names(rows: list[Any], names: Any, bag_ids: Any) -> tuple[np.ndarray, tuple[str, ...]]:
    # one name stands for a list with that name alone
    sets = [[row] if isinstance(row, str) else [str(name) for name in row] for row in rows]
    if names is None:
        names = tuple(sorted({name for row in sets for name in row}))
    column = {name: k for k, name in enumerate(names)}
    Y = np.zeros((len(sets), len(names)), dtype=np.int8)
    for i, row in enumerate(sets):
        for name in row:
            if name not in column:
                raise unknown_label(name, names, i if bag_ids is None else bag_ids[i])
            Y[i, column[name]] = 1
    return Y, names


def _holds_text(row: Any) -> bool:
    try:
        return any(isinstance(item, str) for item in row)
    except TypeError:
        return False


def _unique_names(names: Iterable[str]) -> tuple[str, ...]:
    result = tuple(str(name) for name in names)
    if len(set(result)) != len(result):
        twice = next(name for k, name in enumerate(result) if name in result[:k])
        raise DataError(f"the label name {twice!r} occurs twice")
    return result


def _order(columns: tuple[str, ...], names: tuple[str, ...]) -> list[int]:
    for name in names:
        if name not in columns:
            raise unknown_label(name, columns)
    return [columns.index(name) for name in names]
