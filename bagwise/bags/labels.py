"""Label sets: one 0/1 matrix and its names, from and to everything that people have; rows matched to bags."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from bagwise.bags.columns import doubt
from bagwise.errors import DataError, listed, quoted

__all__ = [
    "KEPT_DENSE",
    "MOST_DENSE",
    "binary_matrix",
    "dense_labels",
    "in_bag_order",
    "label_matrix",
    "label_sets",
    "stored_labels",
    "unknown_label",
]


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
        return _named(_binary_csr(labels, bag_ids), names)
    if hasattr(labels, "column_names"):  # an Arrow table, whose .columns are not names
        labels = labels.to_pandas() if not hasattr(labels, "iloc") else labels
    if hasattr(labels, "to_frame") and getattr(getattr(labels, "dtype", None), "kind", "O") in "biuf":
        labels = labels.to_frame()  # a Series of numbers is one label
    if hasattr(labels, "columns") and hasattr(labels, "__array__"):  # a DataFrame
        columns = _unique_names(str(column) for column in labels.columns)
        Y = binary_matrix(labels, bag_ids, columns)
        if names is None:
            return Y, columns
        for name in names:
            if name not in columns:
                raise unknown_label(name, columns)
        return Y[:, [columns.index(name) for name in names]], names
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "biuf":
        return _named(binary_matrix(labels, bag_ids), names)
    rows = list(labels)
    inside = (item for row in rows if np.iterable(row) for item in ([row] if isinstance(row, str) else row))
    if any(isinstance(item, str) for item in inside):
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
    return _named(binary_matrix(matrix, bag_ids), names)


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
        hint = ""
        if names is not None and doubt(names[column]) == "an id":
            hint = f". If these are bag ids, make them the index: .set_index({names[column]!r})"
        elif names is not None and isinstance(value, (str, list, np.ndarray)):
            hint = f". If these are label names, give that column alone, as lists: frame[{names[column]!r}]"
        raise DataError(f"bag {quoted(bag)} has the value {value} for label {label}; expected 0 or 1{hint}")
    return np.ascontiguousarray(matrix, dtype=np.int8)


def _is_binary(value: Any) -> bool:
    try:
        return bool(value == 0 or value == 1)
    except TypeError:
        return False


def _binary_csr(labels: Any, bag_ids: Any) -> Any:
    """A sparse matrix checked to hold 0 and 1 alone; as a plain array unless it is very large."""
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
    Y = Y.astype(np.int8)
    return Y.toarray() if Y.shape[0] * Y.shape[1] <= KEPT_DENSE else Y


def unknown_label(name: Any, known: Sequence[str], bag: Any = None) -> DataError:
    """Build the error for a label that is not in the list, with the nearest one that is."""
    close = difflib.get_close_matches(str(name), list(known), n=1)
    hint = f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(map(repr, known[:20]))}"
    place = "" if bag is None else f"bag {quoted(bag)}: "
    return DataError(f"{place}unknown label {name!r}{hint}")


def _named(Y: Any, names: Any) -> tuple[Any, tuple[str, ...]]:
    if names is None:
        return Y, tuple(f"label_{k}" for k in range(Y.shape[1]))
    if len(names) != Y.shape[1]:
        raise DataError(f"{len(names)} label names for {Y.shape[1]} columns of labels")
    return Y, names


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
    Y = sparse.csr_array((ones, indices, indptr), shape=(len(sets), len(names)))
    return _binary_csr(Y, bag_ids), names


def _unique_names(names: Iterable[str]) -> tuple[str, ...]:
    result = tuple(str(name) for name in names)
    if len(set(result)) != len(result):
        seen: set[str] = set()
        twice = next(name for name in result if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise DataError(f"the label name {twice!r} occurs twice")
    return result


# ----------------------------------------------------------------------
# Which row belongs to which bag: by id where both sides have ids, by position only where one has none


def in_bag_order(values: Any, bags: Any, what: str = "labels") -> Any:
    """Rows of a pandas DataFrame or Series in the order of the bags, matched by bag id.

    An index counts as bag ids unless it is the default one (0, 1, 2, ...), or holds numbers where ids are
    text; then rows are taken in order. So they are when the bags were given no ids. What has no index
    is returned as it is.

    Parameters
    ----------
    values : anything
        Labels, weights or groups, a row per bag.
    bags : Bags or MultiViewBags
        The bags.
    what : str, default="labels"
        What the values are, for messages.

    Examples
    --------
    >>> import pandas as pd
    >>> from bagwise.bags import Bags
    >>> bags = Bags.from_list([[[1.0]], [[2.0]]], bag_ids=["a", "b"])
    >>> in_bag_order(pd.Series([1, 2], index=["b", "a"]), bags).tolist()
    [2, 1]
    """
    if not (hasattr(values, "iloc") and hasattr(values, "index")):
        return values
    order = _order_by_id(values.index, bags, what)
    return values if order is None else values.iloc[order]


def _order_by_id(index: Any, bags: Any, what: str) -> list[int] | None:
    """Rows in the order of the bags; None where rows go by position."""
    ids, keys = bags.bag_ids.tolist(), index.tolist()
    counted = type(index).__name__ == "RangeIndex" and keys == list(range(len(keys)))
    if keys == ids:
        return None
    place = {key: k for k, key in enumerate(keys)}
    same = len(place) == len(keys) == len(ids) and place.keys() == set(ids)
    if not bags.ids_given:
        return [place[i] for i in ids] if same and not counted else None
    if counted:
        if same:
            raise DataError(
                f"the {what} have the default index 0 to {len(keys) - 1}, and the bags have these numbers as "
                f"ids in another order; set the index to bag ids, or give the {what} in the order of the "
                "bags as an array (.to_numpy())"
            )
        return None
    if all(isinstance(i, str) for i in ids) and all(type(k) is int for k in keys):
        known = set(ids)
        if not any(str(k) in known for k in keys):
            return None  # a part of a default index
        raise DataError(
            f"the index of the {what} holds numbers ({keys[0]}), bag ids are text ({ids[0]!r}); "
            f"bring both to one type, such as {what}.index.astype(str)"
        )
    advice = (
        f"the index of the {what} is taken for bag ids; for rows in the order of the bags give an array "
        "(.to_numpy())"
    )
    if len(place) != len(keys):
        twice = next(key for k, key in enumerate(keys) if place[key] != k)
        raise DataError(f"bag {quoted(twice)} has two rows of {what}; {advice}")
    if len(set(ids)) != len(ids):
        twice = next(i for k, i in enumerate(ids) if i in ids[:k])
        raise DataError(f"two bags have the id {quoted(twice)}; {what} cannot be matched to them by id")
    missing = [i for i in ids if i not in place]
    if missing:
        raise DataError(f"no {what} for bag {listed(missing, 1, show=quoted)}; {advice}")
    if len(keys) != len(ids):
        known = set(ids)
        extra = next(key for key in keys if key not in known)
        raise DataError(
            f"the {what} have a row for {quoted(extra)}, which is not among the bags; "
            "choose the rows with .loc[bags.bag_ids]"
        )
    return [place[i] for i in ids]
