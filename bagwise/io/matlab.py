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
from scipy import io as scipy_io
from scipy import sparse

from bagwise.bags.dataset import Dataset
from bagwise.errors import DataError
from bagwise.io import _mat_layouts
from bagwise.io._mat5 import byte_order, read_variables
from bagwise.io._numbers import parse_rows, whole_numbers
from bagwise.io._source import MAX_BYTES, blame, numbered_lines
from bagwise.io._writable import lost_facts, writable_bags

NAME = "matlab"
DESCRIPTION = "MATLAB 5 file: cells of bags with a label matrix, partial labels, or a table"
SUFFIXES = (".mat",)


def recognises(path: Path, head: bytes) -> bool:
    """Whether this begins like a MATLAB file (7.3 too, for the sake of a clear error)."""
    return byte_order(head) is not None or head.startswith(b"MATLAB ")


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
    >>> write(Dataset(Bags.from_list([np.ones((2, 3)), np.zeros((1, 3))]), [["wren"], []]), path)
    >>> read(path)
    Dataset(Bags(2 bags, 3 instances, 3 features, dense float64), 1 labels)
    """
    path = Path(path)
    if instances not in (None, "rows", "columns"):
        raise ValueError(f"instances must be 'rows' or 'columns', got {instances!r}")
    variables = read_variables(path, max_bytes)
    layout = _mat_layouts.choose(variables, path)
    if bag_index is not None and layout != "partial_labels":
        raise DataError("bag_index is for files with data, target and partial_target", path=path)
    with blame(path):
        if layout == "cells":
            data = _mat_layouts.cells(variables, path, labels, instances)
        elif layout == "partial_labels":
            n_instances = getattr(variables["data"], "shape", (0,))[0]
            index = None if bag_index is None else _bag_index(bag_index, n_instances, max_bytes)
            data = _mat_layouts.partial_labels(variables, path, index)
        else:
            return _mat_layouts.tables([(path, variables)], label_names)
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
        return _mat_layouts.tables(parts, label_names)


def check_writable(dataset: Dataset) -> None:
    """Refuse what the layout of cells cannot hold."""
    writable_bags(dataset, "MATLAB")


def lost(dataset: Dataset) -> list[str]:
    """What the layout of cells has no place for."""
    facts = ("instance_info", "groups", "splits", "description", "citation", "licence", "recipe")
    return lost_facts(dataset, facts)


def write(dataset: Dataset, path: str | Path) -> None:
    """Write the layout of cells: ``bags``, ``Y``, names, and instance labels (from 1, 0 for unknown).

    Instance facts, groups and splits are left out.
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
        raise DataError(
            f"cannot be written as MATLAB 5 ({error}); parquet has no such limits", path=path
        ) from None


def _column(items: Any) -> np.ndarray:
    found = list(items)
    column = np.empty((len(found), 1), dtype=object)
    for k, item in enumerate(found):  # assigning the list would try to stack equal matrices
        column[k, 0] = item
    return column


def _bag_index(given: Any, n_instances: int, max_bytes: int) -> np.ndarray:
    """Bag number of each instance, from an array or from a CSV file with columns instance and bag."""
    if not isinstance(given, (str, Path)):
        return np.asarray(given).ravel()
    lines = list(numbered_lines(given, max_bytes))
    if not lines:
        raise DataError("an empty bag index", path=given)
    columns = [name.strip() for name in lines[0][1].split(",")]
    for name in ("instance", "bag"):
        if name not in columns:
            raise DataError(
                f"no column {name!r}; the columns are {', '.join(columns)}", path=given, line=lines[0][0]
            )
    numbers = [line for line, _ in lines[1:]]
    table = parse_rows([text for _, text in lines[1:]], numbers, len(columns), given)
    instance = whole_numbers(
        table[:, columns.index("instance")], numbers, given, "the instance number", low=1
    )
    bag = whole_numbers(table[:, columns.index("bag")], numbers, given, "the bag number")
    if len(bag) != n_instances:
        raise DataError(f"{len(bag)} instances, the data have {n_instances}", path=given)
    wrong = np.flatnonzero(instance > n_instances)
    if not wrong.size:
        wrong = np.flatnonzero(np.bincount(instance)[instance] > 1) if len(instance) else wrong
    if wrong.size:
        raise DataError(
            f"instance {instance[wrong[-1]]} occurs twice or is beyond {n_instances}",
            path=given,
            line=numbers[wrong[-1]],
        )
    index = np.empty(n_instances, dtype=np.int64)
    index[instance - 1] = bag
    return index
