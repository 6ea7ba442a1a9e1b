"""MATLAB 5 files (``.mat``): cells of bags with a label matrix, partial-label tables, and plain tables.

=============== ====================================================================================
layout          variables
=============== ====================================================================================
cells           ``bags`` or ``X`` (a cell per bag); ``Y``, ``Y_backup`` (bags x labels) or ``targets``
                (labels x bags, -1/1); optional ``y`` (cell of one-hot rows) or ``instance_labels``,
                ``label_names``, ``bag_ids``, ``feature_names``
partial labels  ``data`` (instances x features), ``target``, ``partial_target`` (labels x instances)
table           ``data`` with rows of bag number, features, class
=============== ====================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import io as scipy_io
from scipy import sparse

from bagwise.bags import Bags
from bagwise.bags.arrow import group_rows
from bagwise.bags.dataset import UNKNOWN, Dataset
from bagwise.errors import DataError
from bagwise.io._facts import lost_facts, writable_bags
from bagwise.io._mat5 import Unsupported, byte_order, read_variables
from bagwise.io._numbers import (
    check_instance_labels,
    classes_to_labels,
    label_per_bag,
    parse_rows,
    whole_numbers,
)
from bagwise.io._source import MAX_BYTES, blame, check_finite, check_unique_ids, numbered_lines, of_file


def recognises(path: Path, head: bytes) -> bool:
    """Whether this begins like a MATLAB file (7.3 too, for the sake of a clear error)."""
    return byte_order(head) is not None or head.startswith(b"MATLAB ")


@of_file
def read(
    path: str | Path,
    *,
    max_bytes: int = MAX_BYTES,
    label_names: Sequence[str] | None = None,
    labels: str | None = None,
    instances: str | None = None,
    bag_index: Any = None,
) -> Dataset:
    """Read bags from a MATLAB 5 file.

    Parameters
    ----------
    path : path
        The file.
    max_bytes : int
        What the file may grow to when unpacked.
    label_names : sequence of str, optional
        Names of the labels, in the order of the file.
    labels : str, optional
        Cells: the variable with the bag labels; by default ``Y_backup``, ``Y`` or ``targets``.
    instances : {"rows", "columns"}, optional
        Cells: what an instance is in the matrix of a bag; by default found out.
    bag_index : path or array of int, optional
        Partial labels: bag number of each instance, or a CSV file with the columns ``instance``
        (counted from 1) and ``bag``. By default bags are runs of equal label sets.

    Examples
    --------
    >>> import tempfile
    >>> from bagwise import Bags
    >>> path = Path(tempfile.mkdtemp()) / "toy.mat"
    >>> _ = write(Dataset(Bags.from_list([np.ones((2, 3)), np.zeros((1, 3))]), [["wren"], []]), path)
    >>> read(path)
    Dataset(Bags(2 bags, 3 instances, 3 features, dense float64), 1 labels)
    """
    path = Path(path)
    if instances not in (None, "rows", "columns"):
        raise ValueError(f"instances must be 'rows' or 'columns', got {instances!r}")
    variables = read_variables(path, max_bytes)
    in_cells = "bags" in variables or _is_cell(variables.get("X"))
    partial = not in_cells and {"data", "target", "partial_target"} <= set(variables)
    if bag_index is not None and not partial:
        raise DataError("bag_index is for files with data, target and partial_target")
    if in_cells:
        data = cells(variables, path, labels, instances)
    elif not partial and "data" in variables:
        return tables([(path, variables)], label_names)
    elif not partial:
        raise DataError(
            f"no known layout of bags; the variables are {_listed(variables)}. Expected 'bags' (a cell per "
            "bag) with 'Y', 'X' with 'y' and 'Y', 'data' with 'target' and 'partial_target', or 'data' alone"
        )
    else:
        n_instances = getattr(variables["data"], "shape", (0,))[0]
        given = isinstance(bag_index, (str, Path))
        index = _bag_index(bag_index, n_instances, max_bytes) if given else bag_index
        data = partial_labels(variables, path, None if index is None else np.asarray(index).ravel())
    return data if label_names is None else replace(data, label_names=tuple(label_names))


def read_many(
    paths: Sequence[str | Path], *, max_bytes: int = MAX_BYTES, label_names: Sequence[str] | None = None
) -> Dataset:
    """Read several files of the table layout as one set; a bag is known by its file and its number.

    Parameters
    ----------
    paths : sequence of paths
        The files; their stems become part of the bag ids.
    max_bytes : int
        What each file may grow to when unpacked.
    label_names : sequence of str, optional
        Names of class 1, 2, ...

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for k in (1, 2):
    ...     scipy_io.savemat(folder / f"part{k}.mat", {"data": [[1.0, 0.5, k], [1.0, 0.7, k]]})
    >>> data = read_many(sorted(folder.glob("*.mat")))
    >>> data.bags.bag_ids.tolist(), data.label_sets
    (['part1/1', 'part2/1'], [['1'], ['2']])
    """
    files = [Path(path) for path in paths]
    if not files:
        raise ValueError("read_many needs at least one file")
    parts = [(path, read_variables(path, max_bytes)) for path in files]
    with blame(files[0]):
        return tables(parts, label_names)


_LEFT_OUT = ("instance_info", "groups", "splits", "description", "citation", "licence", "recipe")


def write(dataset: Dataset, path: str | Path) -> list[str]:
    """Write the layout of cells: ``bags``, ``Y``, names, and instance labels (from 1, 0 for unknown).

    Returns what the layout has no place for, such as instance facts, groups and splits.
    """
    path = Path(path)
    with blame(path):
        bags = writable_bags(dataset, "MATLAB")
    variables: dict[str, Any] = {
        "bags": _column(bag.tocsc() if sparse.issparse(bag) else bag for bag in bags),
    }
    if dataset.has_labels:
        variables |= {"Y": dataset.Y.astype(np.uint8), "label_names": _column(dataset.label_names)}
    if bags.has_bag_ids:
        ids = bags.bag_ids
        variables["bag_ids"] = (
            ids.reshape(-1, 1) if ids.dtype.kind in "iu" else _column(map(str, ids.tolist()))
        )
    if bags.feature_names is not None:
        variables["feature_names"] = _column(bags.feature_names)
    if dataset.instance_Y is not None:
        parts = np.split(dataset.instance_Y + 1, bags.offsets[1:-1])
        variables["instance_labels"] = _column(part.reshape(-1, 1) for part in parts[: len(bags)])
    try:
        scipy_io.savemat(path, variables, appendmat=False, do_compression=True)
    except OSError:
        raise
    except Exception as error:
        # MATLAB 5 ends at 4 GiB per variable, which SciPy reports in several ways
        raise DataError(f"cannot be written as MATLAB 5 ({error}); parquet has no such limits") from None
    return lost_facts(dataset, _LEFT_OUT)


def _column(items: Any) -> np.ndarray:
    found = list(items)
    column = np.empty((len(found), 1), dtype=object)
    for k, item in enumerate(found):  # assigning the list would try to stack equal matrices
        column[k, 0] = item
    return column


@of_file
def _bag_index(path: str | Path, n_instances: int, max_bytes: int) -> np.ndarray:
    """Bag number of each instance, from a CSV file with columns instance and bag."""
    lines = list(numbered_lines(path, max_bytes))
    if not lines:
        raise DataError("an empty bag index")
    columns = [name.strip() for name in lines[0][1].split(",")]
    for name in ("instance", "bag"):
        if name not in columns:
            raise DataError(f"no column {name!r}; the columns are {', '.join(columns)}", line=lines[0][0])
    numbers = [line for line, _ in lines[1:]]
    table = parse_rows([text for _, text in lines[1:]], numbers, len(columns))
    instance = whole_numbers(table[:, columns.index("instance")], numbers, "the instance number", low=1)
    bag = whole_numbers(table[:, columns.index("bag")], numbers, "the bag number")
    if len(bag) != n_instances:
        raise DataError(f"{len(bag)} instances, the data have {n_instances}")
    wrong = np.flatnonzero(instance > n_instances)
    if not wrong.size:
        wrong = np.flatnonzero(np.bincount(instance)[instance] > 1) if len(instance) else wrong
    if wrong.size:
        raise DataError(
            f"instance {instance[wrong[-1]]} occurs twice or is beyond {n_instances}",
            line=numbers[wrong[-1]],
        )
    index = np.empty(n_instances, dtype=np.int64)
    index[instance - 1] = bag
    return index


# ----------------------------------------------------------------------
# What MATLAB variables mean as bags: the layouts in which multi-instance data are passed around


# A sparse matrix may state any number of rows in a few bytes.
_MOST_LABELS = 1 << 28  # entries of a label matrix
_MOST_ROWS = 1 << 26  # instances in sparse bags


def cells(variables: dict[str, Any], path: Path, labels: str | None, instances: str | None) -> Dataset:
    """One cell of instances per bag (``bags`` or ``X``) and a label matrix.

    The label matrix is ``Y`` (bags x labels), ``Y_backup`` (same, with further labels) or ``targets``
    (labels x bags, -1 for absent). Instance labels are ``instance_labels`` (a cell of label numbers from 1,
    0 where unknown) or ``y`` (a cell of one-hot rows).
    """
    name = "bags" if "bags" in variables else "X"
    items = list(_cell(variables, name).ravel(order="F"))
    matrices = [_matrix(item, f"{name}{{{k + 1}}}") for k, item in enumerate(items)]
    one_hot = None
    if "y" in variables:
        rows = _cell(variables, "y").ravel(order="F")
        one_hot = [_dense(item, f"y{{{k + 1}}}") for k, item in enumerate(rows)]
        if len(one_hot) != len(items):
            raise DataError(f"y has {len(one_hot)} cells for {len(items)} bags")
    if instances is None and one_hot is not None:
        fit = all(X.shape[1] == len(y) for X, y in zip(matrices, one_hot))
        instances = "columns" if fit else "rows"
    elif instances is None:  # the size that all share is the number of features
        filled = [X.shape for X in matrices if min(X.shape)]
        fit = len({shape[1] for shape in filled}) > 1 and len({shape[0] for shape in filled}) == 1
        instances = "columns" if fit else "rows"
    if instances == "columns":
        matrices = [matrix.T for matrix in matrices]
    # row storage has an entry for each row that a sparse matrix states, beyond all reason
    if sum(matrix.shape[0] for matrix in matrices if sparse.issparse(matrix)) > _MOST_ROWS:
        raise DataError(f"the bags of {name} state more than {_MOST_ROWS:,} instances in sparse matrices")

    ids = _names(variables.get("bag_ids"))
    names = _names(variables.get("label_names"))
    features = _names(variables.get("feature_names"))
    bags = Bags.from_list(matrices, bag_ids=ids, feature_names=features)
    check_unique_ids(ids, path)
    Y = _label_matrix(variables, labels, len(bags))
    known = None
    if not Y.shape[1]:
        if one_hot is not None or "instance_labels" in variables:
            raise DataError("labels of instances, but no label matrix Y of the bags")
    elif one_hot is not None:
        if len({y.shape[1] for y in one_hot}) != 1 or list(map(len, one_hot)) != bags.sizes.tolist():
            raise DataError("y does not fit the bags: one row per instance, one column per label")
        known = _index_of_one(np.concatenate(one_hot), np.arange(bags.n_instances))
        known = np.where(known < Y.shape[1], known, UNKNOWN)  # labels that Y leaves out
    elif "instance_labels" in variables:
        parts = [
            _matrix(item, "instance_labels").ravel() for item in _cell(variables, "instance_labels").flat
        ]
        known = whole_numbers(np.concatenate([np.empty(0), *parts]), None, "the instance label") - 1
        if len(known) != bags.n_instances or (known >= Y.shape[1]).any():
            raise DataError("instance_labels does not fit the bags: one label number for each instance")
    if known is not None:
        check_instance_labels(Y, known, bags.offsets, bags.bag_ids)
    check_finite(bags.X, bags.offsets, bags.bag_ids, path)
    return Dataset(bags, Y, tuple(names or ()) if Y.shape[1] else (), instance_Y=known)


def partial_labels(variables: dict[str, Any], path: Path, bag_index: np.ndarray | None) -> Dataset:
    """``data`` (instances x features), ``target`` and ``partial_target`` (labels x instances).

    ``partial_target`` repeats the label set of a bag for each of its instances. Without an index the bags
    are runs of equal label sets.
    """
    X = _matrix(variables["data"], "data")
    truth = _dense(variables["target"], "target").T
    sets = _dense(variables["partial_target"], "partial_target").T
    if truth.shape != sets.shape or len(sets) != X.shape[0]:
        raise DataError(
            f"data is {X.shape}, target {truth.T.shape} and partial_target {sets.T.shape}; expected "
            "instances x features and twice labels x instances"
        )
    if bag_index is None:
        starts = np.ones(len(sets), dtype=bool)
        starts[1:] = (sets[1:] != sets[:-1]).any(axis=1)
        bag_index = np.cumsum(starts)
    if len(bag_index) != len(sets):
        raise DataError(f"the bag index has {len(bag_index)} entries for {len(sets)} instances")
    order, offsets, ids = group_rows(pa.array(bag_index))
    X, truth, sets = (X.tocsr() if sparse.issparse(X) else X)[order], truth[order], sets[order]
    Y = sets[offsets[:-1]]
    differs = np.flatnonzero((sets != np.repeat(Y, np.diff(offsets), axis=0)).any(axis=1))
    if differs.size:
        bag = ids[np.searchsorted(offsets, differs[0], side="right") - 1].item()
        raise DataError(
            f"bag {bag!r} joins instances with different label sets (instance {order[differs[0]] + 1}); "
            "the bag index does not belong to this file"
        )
    known = _index_of_one(truth, order)
    check_instance_labels(Y, known, offsets, ids)
    check_finite(X, offsets, ids, path)
    return Dataset(Bags(X, offsets, bag_ids=ids), Y, instance_Y=known)


def tables(parts: Sequence[tuple[Path, dict[str, Any]]], label_names: Sequence[str] | None) -> Dataset:
    """``data`` with one row per instance: bag number, features, class from 1.

    Bag numbers start again in each file, so the bags of several files are called ``file/number``.
    """
    found: list[Bags] = []
    keys = []
    for path, variables in parts:
        bags, classes = _table(path, variables, numbered=len(parts) > 1)
        if found and found[0].n_features != bags.n_features:
            first = f"{parts[0][0].name} has {found[0].n_features + 2}"
            raise DataError(f"data has {bags.n_features + 2} columns, {first}", path=path)
        found.append(bags)
        keys.append(classes)
    bags = Bags.concat(found)
    check_unique_ids(bags.bag_ids, parts[-1][0])
    Y, used, _ = classes_to_labels(np.concatenate(keys), label_names, origin=1)
    return Dataset(bags, Y, used)


@of_file
def _table(path: Path, variables: dict[str, Any], numbered: bool) -> tuple[Bags, np.ndarray]:
    """The bags of one table and the class of each."""
    if "data" not in variables:
        raise DataError(f"no variable 'data'; the variables are {_listed(variables)}")
    table = _dense(variables["data"], "data")
    if table.shape[1] < 3 or not len(table):
        raise DataError(f"data is {table.shape}, expected rows of bag, features and class")
    number = whole_numbers(table[:, 0], None, "the bag number")
    label = whole_numbers(table[:, -1], None, "the class", low=1)
    order, offsets, ids = group_rows(pa.array(number))
    classes = label_per_bag(label[order], offsets, ids)
    X = np.ascontiguousarray(table[order, 1:-1])
    check_finite(X, offsets, ids, path)
    names = np.array([f"{path.stem}/{k}" for k in ids.tolist()]) if numbered else ids
    return Bags(X, offsets, bag_ids=names), classes


def _listed(variables: dict[str, Any]) -> str:
    return ", ".join(map(repr, list(variables)[:20])) or "none"


def _is_cell(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == object


def _cell(variables: dict[str, Any], name: str) -> np.ndarray:
    value = variables[name]
    if not _is_cell(value) or value.ndim != 2 or min(value.shape) > 1:
        raise DataError(f"{name!r} must be a cell array with one row or one column, a cell per bag")
    return value


def _matrix(value: Any, name: str) -> Any:
    if isinstance(value, Unsupported):
        raise DataError(f"{name} is a {value.kind}, expected a matrix")
    if sparse.issparse(value):
        return value
    if not isinstance(value, np.ndarray) or value.dtype == object or value.ndim != 2:
        raise DataError(f"{name} must be a matrix of numbers with two dimensions")
    return value


def _dense(value: Any, name: str) -> np.ndarray:
    matrix = _matrix(value, name)
    if not sparse.issparse(matrix):
        return matrix
    if matrix.shape[0] * matrix.shape[1] > _MOST_LABELS:
        raise DataError(
            f"{name} states {matrix.shape[0]} x {matrix.shape[1]} entries, too many to be written out"
        )
    return matrix.toarray()


def _names(value: Any) -> Any:
    """Names from a cell of texts, or numbers from a vector."""
    if value is None:
        return None
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text.rstrip() for text in value]
    if _is_cell(value) and all(isinstance(item, str) for item in value.flat):
        return list(value.flat)
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.ravel()
    raise DataError("names must be a cell array of texts")


def _label_matrix(variables: dict[str, Any], labels: str | None, n_bags: int) -> np.ndarray:
    # Y_backup of the letter sets is Y and the pooled unknown letters: the whole truth
    name = labels or next((name for name in ("Y_backup", "Y", "targets") if name in variables), None)
    if name is None and "bags" in variables:  # bags to be predicted
        return np.zeros((n_bags, 0), dtype=np.int8)
    if name is None or name not in variables:
        raise DataError(f"no label matrix {labels or 'Y'!r}; the variables are {_listed(variables)}")
    Y = _dense(variables[name], name)
    if name == "targets":
        Y = np.where(Y == -1, 0, Y).T
    if len(Y) != n_bags:
        raise DataError(f"{name} has labels for {len(Y)} bags, there are {n_bags}")
    wrong = np.argwhere((Y != 0) & (Y != 1))
    if len(wrong):
        bag, label = wrong[0]
        raise DataError(
            f"bag {bag + 1} has the value {Y[bag, label]:g} for label {label + 1} of {name}; expected 0 or 1"
        )
    return Y.astype(np.int8)


def _index_of_one(truth: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Column of the single 1 in each row, -1 where there is none."""
    wrong = np.flatnonzero((truth != 0).sum(axis=1) > 1)
    if wrong.size:
        raise DataError(f"instance {rows[wrong[0]] + 1} has several labels, expected one")
    if not truth.shape[1]:
        return np.full(len(truth), UNKNOWN)
    return np.where((truth != 0).any(axis=1), (truth != 0).argmax(axis=1), UNKNOWN)
