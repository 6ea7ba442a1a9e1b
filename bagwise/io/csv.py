"""Long CSV: one row per instance, with a header, or without one as ``label,bag,f1,f2,...``.

=========================  ==================================================================================
column                     holds
=========================  ==================================================================================
``bag_id`` or ``bag``      the bag of the instance; rows of a bag need not be next to each other
``labels``                 names of the bag's labels, with ``;`` between them, the same on each of its rows
``label:<name>``           instead of ``labels``: 1 if the bag has the label, else 0
``instance_label``         name of the instance's label, empty where unknown (also a text column ``label`` or
                           ``letter``); without label columns a bag has the labels of its instances
``group``, ``splits``      group of the bag; published parts that hold it, with ``;`` between them
``info:<name>``, ``row``   facts about the instance, as are all columns of text
``instance``               ignored: a number that only counts rows
any other                  a feature
=========================  ==================================================================================

Bag ids and groups that all look like whole numbers are read as such, so are facts under ``info:``. Features
called f1, f2, ... in order count as unnamed. There is no place for a
set's name, description, citation and licence.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bagwise.bags import Bags
from bagwise.dataset import Dataset
from bagwise.errors import DataError
from bagwise.io._checks import check_finite, check_size
from bagwise.io._csv_roles import Roles, find_roles
from bagwise.io._csv_table import CsvText, is_number, natural
from bagwise.io._csv_write import check_writable, write
from bagwise.io._grouping import classes_to_labels, natural_ids
from bagwise.io._numbers import whole_numbers
from bagwise.io._source import MAX_BYTES, read_bytes, read_text
from bagwise.labels import unknown_label
from bagwise.utils.arrow import group_rows

__all__ = ["NAME", "SUFFIXES", "check_writable", "read", "recognises", "write"]

NAME = "csv"
SUFFIXES = (".csv",)
LABEL_BAG = "label_bag"


def recognises(path: Path, head: bytes) -> bool:
    """Whether the first line is a header with a column of bags."""
    fields = [field.strip().strip(b'"') for field in head.partition(b"\n")[0].split(b",")]
    return len(fields) > 2 and (b"bag_id" in fields or b"bag" in fields)


def read(
    path: str | Path,
    *,
    max_bytes: int = MAX_BYTES,
    bag: str | None = None,
    labels: str | Sequence[str] | None = None,
    instance_label: str | None = None,
    features: Sequence[str] | None = None,
    info: Sequence[str] = (),
    label_names: Sequence[str] | None = None,
    layout: str | None = None,
    dtype: Any = np.float64,
    delimiter: str = ",",
) -> Dataset:
    r"""Read a table with one row per instance.

    Parameters
    ----------
    path : path
        The file, plain or gzip.
    max_bytes : int
        Refuse a file with more bytes than this when unpacked.
    bag, instance_label : str, optional
        Columns, where the header does not call them as above.
    labels : str or sequence of str, optional
        One column of label names, or the columns of 0 and 1 of the labels.
    features, info : sequence of str, optional
        Columns to take as features (these alone) and as facts about instances.
    label_names : sequence of str, optional
        The labels in order; by default the sorted names that occur, or the order of the 0/1 columns.
    layout : {"header", "label_bag"}, optional
        Whether there is a header; by default the first line tells.
    dtype : float32 or float64
        Number type of the features.
    delimiter : str
        What stands between the fields.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "words.csv"
    >>> _ = path.write_text("bag,letter,f1\n1,A,0.5\n1,N,2\n2,A,1\n")
    >>> data = read(path)
    >>> data.label_sets, data.instance_Y.tolist()
    ([['A', 'N'], ['A']], [0, 1, 0])
    """
    path = Path(path)
    text = CsvText(_content(path, max_bytes), path, delimiter)
    check_size(len(text.first) * 1000, max_bytes, path, "is so wide that its columns take")
    if layout is None:
        bare = len(text.first) > 2 and all(is_number(f) for k, f in enumerate(text.first) if k != 1)
        layout = LABEL_BAG if bare else "header"
    if layout == LABEL_BAG:
        return _read_bare(text, label_names, dtype, max_bytes)
    if layout != "header":
        raise ValueError(f"layout must be 'header' or {LABEL_BAG!r}, got {layout!r}")
    roles = find_roles(text, bag, labels, instance_label, features, info)
    columns = text.parse([*roles.features, *roles.flags], roles.texts)
    rows = _Rows(text, columns[roles.bag])
    bags = Bags(
        rows.matrix([columns[k] for k in roles.features], dtype, [text.first[k] for k in roles.features]),
        rows.offsets,
        bag_ids=rows.ids,
        instance_info={name: convert(columns[k])[rows.order] for name, (k, convert) in roles.info.items()},
        feature_names=roles.feature_names,
    )
    return _dataset(text, roles, columns, rows, bags, label_names, max_bytes)


def _content(path: Path, max_bytes: int) -> bytes:
    content = read_bytes(path, max_bytes)
    # Only other text than ASCII can be wrong, or begin with a byte order mark.
    return content if content.isascii() else read_text(path, max_bytes).encode()


class _Rows:
    """Where the rows of the file stand among the bags."""

    def __init__(self, text: CsvText, column: pa.Array) -> None:
        self.text = text
        self.order, self.offsets, names = group_rows(pa.chunked_array([column]), "bag")
        self.lines = text.lines[self.order]
        self.ids = natural_ids(names.tolist(), self.lines[self.offsets[:-1]].tolist(), text.path)

    def matrix(self, columns: list[pa.Array], dtype: Any, names: list[str]) -> np.ndarray:
        X = np.empty((len(self.order), len(columns)), dtype=np.dtype(dtype))
        sorted_already = (np.diff(self.order) == 1).all()
        with np.errstate(over="ignore"):  # too large for float32 is infinite, and reported as such
            for k, column in enumerate(columns):
                values = column.to_numpy()
                X[:, k] = values if sorted_already else values[self.order]
        check_finite(X, self.offsets, self.ids, self.text.path, self.lines, names)
        return X

    def per_bag(self, column: pa.Array, position: int) -> list[Any]:
        """The one value of each bag in a column that repeats it on every row."""
        encoded = column.dictionary_encode()
        codes = encoded.indices.to_numpy()[self.order]
        first = codes[self.offsets[:-1]]
        differs = np.flatnonzero(codes != np.repeat(first, np.diff(self.offsets)))
        values = encoded.dictionary.to_pylist()
        if differs.size:
            row = int(differs[0])
            bag = int(np.searchsorted(self.offsets, row, side="right")) - 1
            raise DataError(
                f"bag {self.ids[bag].item()!r} has {values[codes[row]]!r} here in {self.text.title(position)}"
                f" and {values[first[bag]]!r} on an earlier row; it must be the same on all rows of a bag",
                path=self.text.path,
                line=int(self.lines[row]),
            )
        return [values[k] for k in first]


def _dataset(
    text: CsvText,
    roles: Roles,
    columns: dict[int, pa.Array],
    rows: _Rows,
    bags: Bags,
    label_names: Sequence[str] | None,
    max_bytes: int,
) -> Dataset:
    instances = None if roles.instance_label is None else columns[roles.instance_label].to_pylist()
    sets = _label_sets(text, roles, columns, rows, instances)
    if label_names is None and roles.flags:
        label_names = [text.first[k].removeprefix("label:") for k in roles.flags]
    elif label_names is None:
        label_names = sorted({name for members in [*sets, instances or []] for name in members} - {""})
    names = tuple(map(str, label_names))
    check_size(len(bags) * len(names), max_bytes, text.path, "has label sets of")
    index = {name: k for k, name in enumerate(names)}
    Y = np.zeros((len(bags), len(names)), dtype=np.int8)
    for bag, members in enumerate(sets):
        for name in members:
            if name not in index:
                line = int(rows.lines[rows.offsets[bag]])
                raise unknown_label(name, names, rows.ids[bag].item()).at(text.path, line)
            Y[bag, index[name]] = 1
    known = None
    if instances is not None:
        for row, name in enumerate(instances):
            if name and name not in index:
                raise unknown_label(name, names).at(text.path, int(text.lines[row]))
        known = np.array([index[name] if name else -1 for name in instances])[rows.order]
    groups = None
    if roles.group is not None:
        groups = natural(pa.array(rows.per_bag(columns[roles.group], roles.group), pa.string()))
    splits = {}
    if roles.splits is not None:
        parts = [cell.split(";") for cell in rows.per_bag(columns[roles.splits], roles.splits)]
        for part in dict.fromkeys(name for cell in parts for name in cell if name):
            splits[part] = np.flatnonzero([part in cell for cell in parts])
    return Dataset(bags, Y, names, instance_Y=known, groups=groups, splits=splits, name=_stem(text.path))


def _label_sets(
    text: CsvText, roles: Roles, columns: dict[int, pa.Array], rows: _Rows, instances: list[str] | None
) -> list[list[str]]:
    """Names of the labels of each bag, from whichever columns hold them."""
    sets: list[list[str]] = [[] for _ in range(len(rows.ids))]
    if roles.flags:
        for k in roles.flags:
            wrong = np.flatnonzero(~np.isin(columns[k].to_numpy(), [0.0, 1.0]))
            if wrong.size:
                text.wrong(int(wrong[0]), k, f"holds {columns[k][wrong[0]].as_py():g}, expected 0 or 1")
            for bag in np.flatnonzero(rows.per_bag(columns[k], k)):
                sets[bag].append(text.first[k].removeprefix("label:"))
        return sets
    if roles.labels is not None:
        cells = rows.per_bag(columns[roles.labels], roles.labels)
        return [[name for part in cell.split(";") if (name := part.strip())] for cell in cells]
    assert instances is not None
    for k, (a, b) in enumerate(zip(rows.offsets[:-1], rows.offsets[1:])):
        sets[k] = sorted({instances[row] for row in rows.order[a:b]} - {""})
    return sets


def _stem(path: Path) -> str:
    return path.name.partition(".")[0]


def _read_bare(text: CsvText, label_names: Sequence[str] | None, dtype: Any, max_bytes: int) -> Dataset:
    text.has_header = False
    wide = range(2, len(text.first))
    columns = text.parse([0, *wide], [1])
    rows = _Rows(text, columns[1])
    classes = whole_numbers(columns[0].to_numpy(), text.lines.tolist(), text.path, "label")
    per_bag = rows.per_bag(pa.array(classes), 0)
    check_size(len(per_bag) * len(set(per_bag)), max_bytes, text.path, "has label sets of")
    Y, names, _ = classes_to_labels(np.array(per_bag), label_names)
    X = rows.matrix([columns[k] for k in wide], dtype, [str(k + 1) for k in wide])
    return Dataset(Bags(X, rows.offsets, bag_ids=rows.ids), Y, names, name=_stem(text.path))
