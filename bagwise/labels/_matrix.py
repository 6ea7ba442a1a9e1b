"""From what people have (0/1 tables, lists of names, DataFrames) to one 0/1 matrix, and back."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from bagwise.errors import DataError, quoted
from bagwise.utils.columns import doubt

KEPT_DENSE = 1 << 27  # entries of a label matrix that are kept as a plain array
MOST_DENSE = 1 << 31  # entries that are ever written out as one


def label_matrix(
    labels: Any, names: Iterable[str] | None = None, bag_ids: Any = None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Bring bag labels into a 0/1 matrix and a tuple of label names.

    Parameters
    ----------
    labels : matrix, DataFrame, sequence of label names per bag, or mapping
        A 0/1 (or boolean) matrix of shape (n_bags, n_labels), dense or sparse; a DataFrame whose
        columns are the labels; for each bag an iterable of names, or one name; or a mapping of bag ids to
        such names. Rows are taken in order; `in_bag_order` brings frames into it.
    names : sequence of str, optional
        The labels in order. By default the columns of the DataFrame, ``label_0``, ``label_1``, ...
        for a bare matrix, and the sorted names that occur for lists.
    bag_ids : sequence, optional
        Names of the bags, for messages and mappings.

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
    Y, found = stored_labels(labels, names, bag_ids)
    return dense_labels(Y), found


def stored_labels(
    labels: Any, names: Iterable[str] | None = None, bag_ids: Any = None
) -> tuple[Any, tuple[str, ...]]:
    """As `label_matrix`, but lists and sparse matrices of very many entries stay sparse (CSR of int8)."""
    if names is not None:
        names = _unique_names(names)
    if isinstance(labels, Mapping) and not hasattr(labels, "columns"):
        labels = _from_mapping(labels, bag_ids)
    if sparse.issparse(labels):
        Y = _binary_csr(labels, bag_ids)
        return _compact(Y), _names_of(Y, names)
    if hasattr(labels, "column_names"):  # an Arrow table, whose .columns are not names
        labels = labels.to_pandas() if not hasattr(labels, "iloc") else labels
    if hasattr(labels, "to_frame") and getattr(getattr(labels, "dtype", None), "kind", "O") in "biuf":
        labels = labels.to_frame()  # a Series of numbers is one label
    if hasattr(labels, "columns") and hasattr(labels, "__array__"):  # a DataFrame
        columns = _unique_names(str(column) for column in labels.columns)
        Y = binary_matrix(labels, bag_ids, columns)
        return (Y, columns) if names is None else (Y[:, _order(columns, names)], names)
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "biuf":
        Y = binary_matrix(labels, bag_ids)
        return Y, _names_of(Y, names)
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
    Y = binary_matrix(matrix, bag_ids)
    return Y, _names_of(Y, names)


def dense_labels(Y: Any) -> np.ndarray:
    """A label matrix as a plain array, unless that would fill the memory."""
    if not sparse.issparse(Y):
        return Y
    n_bags, n_labels = Y.shape
    if n_bags * n_labels > MOST_DENSE:
        raise DataError(
            f"{n_bags:,} bags x {n_labels:,} labels would take {n_bags * n_labels / 2**30:.1f} GiB as a "
            "plain matrix; use the sparse one (Dataset.Y_sparse), or choose fewer labels or bags"
        )
    return Y.toarray()


def _from_mapping(labels: Mapping[Any, Any], bag_ids: Any) -> list[Any]:
    if bag_ids is None:
        raise DataError("labels by bag id need bags with ids")
    ids = np.asarray(bag_ids).tolist()
    missing = [i for i in ids if i not in labels]
    if missing:
        raise DataError(f"no labels for bag {quoted(missing[0])}; a bag without labels has the entry []")
    return [labels[i] for i in ids]


def label_sets(Y: Any, names: Sequence[str]) -> list[list[str]]:
    """Names of the labels of every bag: the inverse of `label_matrix`.

    Examples
    --------
    >>> label_sets(np.array([[1, 1], [0, 0]]), ("robin", "wren"))
    [['robin', 'wren'], []]
    """
    text = np.asarray([*names, ""], dtype=object)
    bags, columns = Y.nonzero()
    ends = np.searchsorted(bags, np.arange(Y.shape[0] + 1))
    found = text[columns].tolist()
    return [found[a:b] for a, b in zip(ends[:-1], ends[1:])]


def binary_matrix(Y: Any, bag_ids: Any = None, names: Sequence[str] | None = None) -> np.ndarray:
    """Check that a matrix holds 0 and 1 alone and return it as int8."""
    matrix = np.asarray(Y)
    if matrix.ndim != 2:
        raise DataError(f"labels must be a matrix (bags x labels), got {matrix.ndim} dimension(s)")
    if matrix.dtype.kind not in "biuf":
        # one value at a time: pandas has missing values that cannot be compared
        wrong = np.array([[not _is_binary(value) for value in row] for row in matrix.tolist()], dtype=bool)
        wrong = wrong.reshape(matrix.shape)
    else:
        wrong = (matrix != 0) & (matrix != 1)
    if wrong.any():
        row, column = (int(k[0]) for k in np.nonzero(wrong))
        bag = row if bag_ids is None or row >= len(bag_ids) else bag_ids[row]
        label = column if names is None else repr(names[column])
        value = matrix[row, column]
        hint = _hint(value, None if names is None else names[column])
        raise DataError(f"bag {quoted(bag)} has the value {value} for label {label}; expected 0 or 1{hint}")
    return np.ascontiguousarray(matrix, dtype=np.int8)


def _hint(value: Any, name: str | None) -> str:
    if name is not None and doubt(name) == "an id":
        return f". If these are bag ids, make them the index: .set_index({name!r})"
    if name is not None and isinstance(value, (str, list, np.ndarray)):
        return f". If these are label names, give that column alone, as lists: frame[{name!r}]"
    return ""


def _is_binary(value: Any) -> bool:
    try:
        return bool(value == 0 or value == 1)
    except TypeError:
        return False


def _binary_csr(labels: Any, bag_ids: Any) -> sparse.csr_array:
    Y = sparse.csr_array(labels, copy=True)
    Y.sum_duplicates()
    Y.eliminate_zeros()
    wrong = np.flatnonzero(Y.data != 1)
    if wrong.size:
        row = int(np.searchsorted(Y.indptr, wrong[0], side="right")) - 1
        bag = row if bag_ids is None or row >= len(bag_ids) else bag_ids[row]
        raise DataError(
            f"bag {quoted(bag)} has the value {Y.data[wrong[0]]} for label {Y.indices[wrong[0]]}; "
            "expected 0 or 1"
        )
    return Y.astype(np.int8)


def _compact(Y: sparse.csr_array) -> Any:
    return Y.toarray() if Y.shape[0] * Y.shape[1] <= KEPT_DENSE else Y


def unknown_label(name: Any, known: Sequence[str], bag: Any = None) -> DataError:
    """Build the error for a label that is not in the list, with the nearest one that is."""
    close = difflib.get_close_matches(str(name), list(known), n=1)
    hint = f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(map(repr, known[:20]))}"
    place = "" if bag is None else f"bag {quoted(bag)}: "
    return DataError(f"{place}unknown label {name!r}{hint}")


def _names_of(Y: Any, names: Any) -> tuple[str, ...]:
    if names is None:
        return tuple(f"label_{k}" for k in range(Y.shape[1]))
    if len(names) != Y.shape[1]:
        raise DataError(f"{len(names)} label names for {Y.shape[1]} columns of labels")
    return names


def _from_names(rows: list[Any], names: Any, bag_ids: Any) -> tuple[Any, tuple[str, ...]]:
    # one name stands for a list with that name alone
    for i, row in enumerate(rows):
        if row is None or (np.ndim(row) == 0 and not isinstance(row, (str, Iterable))):
            bag = i if bag_ids is None else bag_ids[i]
            raise DataError(f"bag {quoted(bag)} has {row!r} in place of label names; write [] for no label")
    sets = [[row] if isinstance(row, str) else [str(name) for name in row] for row in rows]
    if names is None:
        names = tuple(sorted({name for row in sets for name in row}))
    column = {name: k for k, name in enumerate(names)}
    indices: list[int] = []
    indptr = [0]
    for i, row in enumerate(sets):
        for name in row:
            if name not in column:
                raise unknown_label(name, names, i if bag_ids is None else bag_ids[i])
        indices += sorted({column[name] for name in row})
        indptr.append(len(indices))
    ones = np.ones(len(indices), dtype=np.int8)
    return _compact(sparse.csr_array((ones, indices, indptr), shape=(len(sets), len(names)))), names


def _holds_text(row: Any) -> bool:
    try:
        return any(isinstance(item, str) for item in row)
    except TypeError:
        return False


def _unique_names(names: Iterable[str]) -> tuple[str, ...]:
    result = tuple(str(name) for name in names)
    if len(set(result)) != len(result):
        seen: set[str] = set()
        twice = next(name for name in result if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise DataError(f"the label name {twice!r} occurs twice")
    return result


def _order(columns: tuple[str, ...], names: tuple[str, ...]) -> list[int]:
    for name in names:
        if name not in columns:
            raise unknown_label(name, columns)
    place = {column: k for k, column in enumerate(columns)}
    return [place[name] for name in names]
