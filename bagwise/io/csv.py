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
``feature:<name>``         a feature, whatever its name
``instance``               left out: a number that only counts rows
other numbers              features, except columns whose names say that they are ids, row numbers, labels,
                           places or times, or groups: those are kept as facts (row numbers are left out),
                           and a warning names them
=========================  ==================================================================================

When ``labels`` are given as columns of 0 and 1, further columns of 0 and 1 that never differ within a bag are
likely labels, too, and left out with a warning. ``Dataset.roles`` shows what was chosen. A file without
labels is read as bags to be predicted. A column is one of numbers if most of its values are: a missing value,
a decimal comma or a thousands mark in it is an error with its line, never a reason to take it for text.

Bag ids and groups that are all written as whole numbers, or all as decimals, are read as such; ``01``, ``1``
and ``1.0`` stay different. Facts under ``info:`` that look like numbers are read as numbers. Features called
f1, f2, ... in order count as unnamed. There is no place for a set's description, citation and licence.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bagwise.bags import Bags
from bagwise.bags.dataset import Dataset
from bagwise.errors import DataError
from bagwise.io._checks import check_labels, check_size
from bagwise.io._csv_labels import Rows, read_labels
from bagwise.io._csv_roles import FEATURE, Roles, find_roles
from bagwise.io._csv_table import CsvText, is_number
from bagwise.io._csv_write import check_writable, lost, write
from bagwise.io._grouping import classes_to_labels, natural_names
from bagwise.io._numbers import whole_numbers
from bagwise.io._source import MAX_BYTES, read_bytes, read_text
from bagwise.utils.arrow import to_numpy
from bagwise.utils.columns import LIKE_LABELS, like_labels, warn_of_labels

__all__ = ["NAME", "SUFFIXES", "check_writable", "lost", "read", "recognises", "write"]

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
    decimal: str = ".",
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
        Columns to take as features (these alone) and as facts about instances. By default as above.
    label_names : sequence of str, optional
        The labels in order; by default the sorted names that occur, or the order of the 0/1 columns.
    layout : {"header", "label_bag"}, optional
        Whether there is a header; by default the first line tells.
    dtype : float32 or float64
        Number type of the features.
    delimiter : str
        What stands between the fields.
    decimal : {".", ","}
        What stands before the decimals of a number.

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
    text = CsvText(_content(path, max_bytes), path, delimiter, decimal)
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
    for k in roles.empty:
        if text.check_text(k, columns[k]):
            roles.info.setdefault(text.first[k], (k, to_numpy))
        elif text.first[k]:
            roles.doubtful[text.first[k]] = "no value in any row"
    rows = Rows(text, columns[roles.bag])
    if labels is not None and roles.flags and features is None:
        alike = {
            k: LIKE_LABELS
            for k in roles.features
            if not text.first[k].startswith(FEATURE)
            and like_labels(columns[k].to_numpy()[rows.order], rows.offsets)
        }
        roles.drop_features(alike, text.first)
    public = roles.public(text.first)
    if not roles.features:
        raise DataError(
            f"no column of numbers is left for features; name them with features=[...]. Chosen were {public}",
            path=path,
            line=1,
        )
    roles.name_features(text.first)
    public.warn(path)
    bags = Bags(
        rows.matrix([columns[k] for k in roles.features], dtype, [text.first[k] for k in roles.features]),
        rows.offsets,
        bag_ids=rows.ids,
        instance_info={name: convert(columns[k])[rows.order] for name, (k, convert) in roles.info.items()},
        feature_names=roles.feature_names,
    )
    Y, names, known = read_labels(text, roles, columns, rows, label_names)
    if Y is None and features is None:
        titles = [text.first[k] for k in roles.features]
        warn_of_labels(dict(zip(titles, bags.X.T)), bags.offsets, path)
    check_labels(len(bags), len(names), max_bytes, path)
    return Dataset(
        bags, Y, names, instance_Y=known, name=_stem(path), roles=public, **_beside(roles, columns, rows)
    )


def _content(path: Path, max_bytes: int) -> bytes:
    content = read_bytes(path, max_bytes)
    # Only other text than ASCII can be wrong, or begin with a byte order mark.
    return content if content.isascii() else read_text(path, max_bytes).encode()


def _beside(roles: Roles, columns: dict[int, pa.Array], rows: Rows) -> dict[str, Any]:
    """Groups and published parts."""
    found: dict[str, Any] = {}
    if roles.group is not None:
        found["groups"] = natural_names(rows.per_bag(columns[roles.group], roles.group))
    if roles.splits is not None:
        parts = [cell.split(";") for cell in rows.per_bag(columns[roles.splits], roles.splits)]
        names = dict.fromkeys(name for cell in parts for name in cell if name)
        found["splits"] = {part: np.flatnonzero([part in cell for cell in parts]) for part in names}
    return found


def _stem(path: Path) -> str:
    return path.name.partition(".")[0]


def _read_bare(text: CsvText, label_names: Sequence[str] | None, dtype: Any, max_bytes: int) -> Dataset:
    text.has_header = False
    wide = range(2, len(text.first))
    columns = text.parse([0, *wide], [1])
    rows = Rows(text, columns[1])
    classes = whole_numbers(columns[0].to_numpy(), text.lines.tolist(), text.path, "label")
    per_bag = rows.per_bag(pa.array(classes), 0)
    check_size(len(per_bag) * len(set(per_bag)), max_bytes, text.path, "has label sets of")
    Y, names, _ = classes_to_labels(np.array(per_bag), label_names)
    X = rows.matrix([columns[k] for k in wide], dtype, [str(k + 1) for k in wide])
    return Dataset(Bags(X, rows.offsets, bag_ids=rows.ids), Y, names, name=_stem(text.path))
