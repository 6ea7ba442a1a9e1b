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
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

from bagwise.bags import Bags
from bagwise.bags.columns import FEATURE, INFO, LABEL, choose_columns, doubt, warn_of_labels
from bagwise.bags.dataset import MOST_FLAGS, UNKNOWN, Dataset, bag_columns
from bagwise.bags.frames import feature_titles
from bagwise.bags.labels import KEPT_DENSE
from bagwise.bags.table import Rows, parts_of_table
from bagwise.errors import DataError, listed, quoted
from bagwise.io._csv_text import CsvText, is_number
from bagwise.io._facts import kind_of, lost_facts, writable_bags
from bagwise.io._numbers import classes_to_labels, whole_numbers
from bagwise.io._parquet_tables import to_column
from bagwise.io._source import (
    MAX_BYTES,
    check_finite,
    check_size,
    of_file,
    read_bytes,
    read_text,
)

LABEL_BAG = "label_bag"
MAX_VALUES = 10_000_000  # a sparse matrix with more places than this is not written in full


def recognises(path: Path, head: bytes) -> bool:
    """Whether the first line is a header with a column of bags."""
    fields = [field.strip().strip(b'"') for field in head.partition(b"\n")[0].split(b",")]
    return len(fields) > 2 and (b"bag_id" in fields or b"bag" in fields)


@of_file
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
    content = read_bytes(path, max_bytes)
    if not content.isascii():  # only other text than ASCII can be wrong, or begin with a byte order mark
        content = read_text(path, max_bytes).encode()
    text = CsvText(content, path, delimiter, decimal)
    check_size(len(text.names) * 1000, max_bytes, path, "is so wide that its columns take")
    if layout is None:
        bare = len(text.names) > 2 and all(is_number(f) for k, f in enumerate(text.names) if k != 1)
        layout = LABEL_BAG if bare else "header"
    if layout == LABEL_BAG:
        return _read_bare(text, label_names, dtype, max_bytes)
    if layout != "header":
        raise ValueError(f"layout must be 'header' or {LABEL_BAG!r}, got {layout!r}")
    kinds = text.kinds()
    try:
        columns = choose_columns(kinds, bag, features, labels, instance_label, info, keep=True)
    except DataError as error:
        raise error.at(path, 1) from None
    of_bags = [columns.bag, columns.labels, columns.instance_label, columns.group, columns.splits]
    texts = [name for name in of_bags if name is not None] + [*columns.facts.values(), *columns.empty]
    table = text.parse([*columns.features, *columns.flags], texts)
    for name in columns.empty:
        if text.check_text(table, name):
            columns.facts.setdefault(name, name)
            columns.plain_text.add(name)
        elif name:
            columns.doubtful[name] = "no value in any row"
    rows = Rows(table, columns.bag, text.lines, path)
    if labels is not None and columns.flags and features is None:
        columns.drop_like_labels(lambda name: table.column(name).to_numpy()[rows.order], rows.offsets)
    roles = columns.roles(kinds)
    if not columns.features:
        raise DataError(
            f"no column of numbers is left for features; name them with features=[...]. Chosen were {roles}",
            line=1,
        )
    roles.warn(path)
    parts = parts_of_table(rows, columns, dtype=dtype, label_names=label_names)
    X = parts["bags"].X
    check_finite(X, rows.offsets, rows.ids, path, rows.lines, columns.features)
    if parts["Y"] is None and features is None:
        warn_of_labels(dict(zip(columns.features, X.T)), rows.offsets, path)
    n_entries = min(len(rows.ids) * len(parts["label_names"]), KEPT_DENSE)
    check_size(n_entries, max_bytes, path, "has label sets of")
    return Dataset(**parts, name=path.name.partition(".")[0], roles=roles)


def _read_bare(text: CsvText, label_names: Sequence[str] | None, dtype: Any, max_bytes: int) -> Dataset:
    """A table without header: label, bag, features."""
    text.n_heads, text.names = 0, [str(k) for k in range(1, len(text.names) + 1)]
    label, bag, *features = text.names
    table = text.parse([label, *features], [bag])
    whole = whole_numbers(table.column(label).to_numpy(), text.lines.tolist(), "label")
    table = table.set_column(0, label, pa.array(whole))
    rows = Rows(table, bag, text.lines, text.path, text.title)
    codes, values = rows.codes(label)
    classes = values.to_numpy()[codes]
    check_size(len(classes) * len(values), max_bytes, text.path, "has label sets of")
    Y, names, _ = classes_to_labels(classes, label_names)
    bags = rows.bags(choose_columns(dict.fromkeys(text.names, ""), bag, features, ()), dtype)
    check_finite(bags.X, rows.offsets, rows.ids, text.path, rows.lines, features)
    bags.feature_names = None
    return Dataset(bags, Y, names, name=text.path.name.partition(".")[0])


# ---------------------------------------------------------------------- writing


def write(dataset: Dataset, path: str | Path) -> list[str]:
    """Write one row per instance; a suffix .gz packs it. Returns what CSV cannot say, which is left out."""
    bags = writable_bags(dataset, "CSV")
    if not bags.n_instances or not bags.n_features:
        what = "no bag has instances" if not bags.n_instances else "there are no features to be written"
        raise DataError(f"{what}, and CSV has one row per instance; write .parquet or .npz instead")
    if bags.is_sparse and bags.n_instances * bags.n_features > MAX_VALUES:
        raise DataError(
            f"a sparse matrix is written to CSV with all its zeros up to {MAX_VALUES:,} values, this one has "
            f"{bags.n_instances * bags.n_features:,}; write .parquet or .npz instead"
        )
    simple, gone = _simplified(dataset)
    compression: Any = "gzip" if str(path).lower().endswith(".gz") else None
    with pa.output_stream(str(path), compression=compression) as stream:
        arrow_csv.write_csv(_table(simple), stream)
    return gone


def _simplified(dataset: Dataset) -> tuple[Dataset, list[str]]:
    """What can be written, and the names of what cannot."""
    gone: list[str] = []
    bags = dataset.bags
    assert isinstance(bags, Bags)
    filled = np.flatnonzero(bags.sizes)
    if len(filled) < len(bags):
        ids = bags.bag_ids[bags.sizes == 0].tolist()
        gone.append(f"bags without instances ({listed(ids, 5, show=quoted)})")
        place = np.full(len(bags), -1)
        place[filled] = np.arange(len(filled))
        parts = {part: place[which] for part, which in dataset.splits.items()}
        parts = {part: which[which >= 0] for part, which in parts.items()}
        dataset = replace(dataset[filled], splits=parts)
        assert isinstance(dataset.bags, Bags)
        bags = dataset.bags
    info = {}
    for name, values in bags.instance_info.items():
        plain = _plain_info(values)
        if plain is None:
            gone.append(f"the fact {name!r}, which is not one number or text per instance")
        else:
            info[name] = plain
    names = bags.feature_names
    if names is not None and len(set(names)) != len(names):
        gone.append("the names of features, which are not all different")
        names = None
    plain_bags = Bags(bags.X, bags.offsets, bag_ids=bags.bag_ids, instance_info=info, feature_names=names)
    splits, known = {}, dataset.instance_Y
    for part, which in dataset.splits.items():
        if not which.size or not part or ";" in part:
            gone.append(f"the part {part!r}, which is empty or has ';' in its name")
            continue
        if (np.diff(which) <= 0).any():
            gone.append(f"the order of the part {part!r}")
        splits[part] = np.unique(which)
    if known is not None and "" in dataset.label_names:
        nameless = dataset.label_names.index("")
        if (known == nameless).any():
            gone.append("the label '' of instances")
            known = np.where(known == nameless, UNKNOWN, known)
    gone += lost_facts(dataset, ("description", "citation", "licence", "recipe"))
    if len(dataset.label_names) > MOST_FLAGS:  # written as names, whatever gets lost
        if list(dataset.label_names) != sorted(dataset.label_names):
            gone.append("the order of the labels")
        if (dataset.label_counts == 0).any():
            gone.append("labels that no bag has")
    return replace(dataset, bags=plain_bags, Y=dataset.Y_sparse, instance_Y=known, splits=splits), gone


def _plain_info(values: np.ndarray) -> np.ndarray | None:
    """One number or text per instance, or None if they are not."""
    if values.ndim > 1:
        return None
    if values.dtype.kind in "Mm":
        return values.astype(str)
    try:
        kind = kind_of(values)
    except DataError:
        return None
    return values if kind != "object" else np.array([v or "" for v in values.tolist()])


def _table(dataset: Dataset) -> pa.Table:
    bags = dataset.bags
    assert isinstance(bags, Bags)
    rows = pa.array(bags.index)
    columns: list[tuple[str, Any]] = [("bag_id", _exact(bags.bag_ids, "bag ids").take(rows))]
    for title, values in bag_columns(dataset).items():
        columns.append((title, _exact(np.asarray(values), title).take(rows)))
    names = dataset.label_names
    if dataset.instance_Y is not None:
        columns.append(
            ("instance_label", pa.array([*names, ""]).take(pa.array(dataset.instance_Y % (len(names) + 1))))
        )
    for name, values in bags.instance_info.items():
        columns.append((f"info:{name}", _exact(values, f"instance_info {name!r}")))
    X = bags.X.toarray() if bags.is_sparse else bags.X
    for k, title in enumerate(feature_titles(bags)):
        # In full double precision also for float32, so that the same values come back.
        unclear = title.startswith((FEATURE, INFO, LABEL)) or doubt(title) is not None
        columns.append((FEATURE + title if unclear else title, pa.array(X[:, k].astype(np.float64))))
    return pa.table([column for _, column in columns], names=[name for name, _ in columns])


def _exact(values: np.ndarray, what: str) -> pa.Array:
    """A column whose text is read back as the same values: Arrow writes 1.0 as 1."""
    if values.dtype.kind == "b":
        return pa.array(np.where(values, "True", "False"))
    if values.dtype.kind == "f":
        return pa.array([repr(v) for v in values.astype(np.float64).tolist()], pa.string())
    return to_column(values, what)
