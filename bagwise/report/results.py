"""What a model says about bags and instances, as tables with names in place of numbers, in files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from bagwise.bags import Bags
from bagwise.bags.labels import label_sets
from bagwise.errors import DataError
from bagwise.utils.files import replacing

SUFFIXES = (".parquet", ".pq", ".csv")


def prediction_table(
    bag_ids: Any, scores: np.ndarray, predicted: np.ndarray, names: Sequence[str]
) -> pa.Table:
    """One row per bag: its id, the labels predicted, and the score of every label.

    A label that is called like one of the first two columns gets the column ``score.<label>``.

    Examples
    --------
    >>> scores = np.array([[0.5, -1.0], [0.25, 2.0]])
    >>> found = prediction_table(["a", "b"], scores, scores > 0, ["robin", "wren"])
    >>> found.column_names, found.column("labels").to_pylist()
    (['bag_id', 'labels', 'robin', 'wren'], [['robin'], ['robin', 'wren']])
    """
    columns = {
        "bag_id": _column(bag_ids),
        "labels": pa.array(label_sets(np.asarray(predicted), names), pa.list_(pa.string())),
    }
    for k, name in enumerate(names):
        title = f"score.{name}" if name in ("bag_id", "labels") else name
        columns[title] = pa.array(scores[:, k], from_pandas=True)  # no score, NaN, is a gap
    return pa.table(columns)


def annotation_table(
    bags: Bags,
    labels: np.ndarray,
    values: np.ndarray,
    names: Sequence[str],
    value_name: str = "score",
    *,
    view: str | None = None,
    bag_ids: Any = None,
) -> pa.Table:
    """One row per instance: its bag, its place there from 0, the label found, and how sure that is.

    Parameters
    ----------
    bags : Bags
        The bags. Facts about instances that are one value each become further columns.
    labels : int array of shape (n_instances,)
        Label index of every instance; -1, no label, becomes a null.
    values : array of shape (n_instances, n_labels)
        Scores or probabilities; the table holds that of the label found.
    names : sequence of str
        Names of the labels.
    value_name : str, default="score"
        Title of that column.
    view : str, optional
        Of several views, the one that the bags are: a column of its own, and facts, which differ between
        views, are left out.
    bag_ids : array of shape (n_bags,), optional
        Ids to use in place of those of the bags.

    Examples
    --------
    >>> bags = Bags.from_list([[[1.0]], [[2.0], [3.0]]], bag_ids=["a", "b"])
    >>> values = np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]])
    >>> found = annotation_table(bags, np.array([1, 0, -1]), values, ["robin", "wren"])
    >>> found.select(["bag_id", "instance", "label"]).to_pydict()
    {'bag_id': ['a', 'b', 'b'], 'instance': [0, 0, 1], 'label': ['wren', 'robin', None]}
    >>> found.column("score").to_pylist()
    [0.9, 0.8, None]
    """
    labels = np.asarray(labels)
    without = labels < 0
    place = np.where(without, 0, labels)
    chosen = np.take_along_axis(np.asarray(values), place[:, None], axis=1)[:, 0]
    ids = np.asarray(bags.bag_ids if bag_ids is None else bag_ids)
    columns = {
        "bag_id": _column(ids[bags.index]),
        **({} if view is None else {"view": pa.array([view] * bags.n_instances, pa.string())}),
        "instance": pa.array(np.arange(bags.n_instances) - bags.offsets[:-1][bags.index]),
        "label": pa.array(np.asarray(names, dtype=object)[place], pa.string(), mask=without),
        value_name: pa.array(chosen, mask=without),
    }
    for fact, column in bags.instance_info.items():
        if column.ndim == 1 and view is None:
            columns[f"info.{fact}" if fact in columns else fact] = _column(column)
    return pa.table(columns)


def check_suffix(path: str | PathLike[str]) -> None:
    """Refuse a table file whose suffix names no format."""
    if Path(path).suffix.lower() not in SUFFIXES:
        raise DataError(
            f"a table is written as {', '.join(SUFFIXES)}; the suffix is {Path(path).suffix!r}", path=path
        )


def write_tables(tables: Iterable[pa.Table], path: str | PathLike[str]) -> int:
    """Write tables of one form below each other to Parquet or CSV, by suffix; return the number of rows.

    The file appears when all of it is written. In CSV a list is one cell, its parts joined by ``;``.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "found.csv"
    >>> write_tables([pa.table({"bag_id": [1], "labels": [["robin", "wren"]]})], path)
    1
    >>> print(path.read_text(), end="")
    "bag_id","labels"
    1,"robin;wren"
    """
    check_suffix(path)
    as_csv = Path(path).suffix.lower() == ".csv"
    n_rows, writer = 0, None
    with replacing(path) as temporary:
        try:
            for part in tables:
                for k, field in enumerate(part.schema if as_csv else ()):
                    if pa.types.is_list(field.type):
                        joined = pa.array([";".join(row) for row in part.column(k).to_pylist()], pa.string())
                        part = part.set_column(k, field.name, joined)
                if writer is None:
                    make = pyarrow.csv.CSVWriter if as_csv else pyarrow.parquet.ParquetWriter
                    writer = make(temporary, part.schema)
                writer.write_table(part)
                n_rows += part.num_rows
        finally:
            if writer is not None:
                writer.close()
        if writer is None:
            raise DataError("there is nothing to write", path=path)
    return n_rows


def plain(value: Any) -> Any:
    """Bring results into what JSON can say: NumPy becomes Python, NaN and infinity become null.

    Examples
    --------
    >>> plain({"a": np.float64("nan"), "b": np.arange(2), "c": Path("x")})
    {'a': None, 'b': [0, 1], 'c': 'x'}
    """
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def as_json(value: Any) -> str:
    """Results as JSON that every reader accepts."""
    return json.dumps(plain(value), ensure_ascii=False, indent=2, allow_nan=False)


def _column(values: Any) -> pa.Array:
    """An Arrow column; what Arrow cannot hold as it is becomes text."""
    array = np.asarray(values)
    try:
        return pa.array(array)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return pa.array([str(value) for value in array.tolist()])
