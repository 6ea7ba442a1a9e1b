"""Tables with one row per instance, cut into what bags are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise.errors import DataError, listed, quoted
from bagwise.utils.arrow import (
    as_table,
    first_null,
    group_rows,
    is_list,
    is_number,
    numbers,
    to_numpy,
    unpack_lists,
)
from bagwise.utils.columns import LIKE_LABELS, doubt, like_labels


class LongTable(NamedTuple):
    """A table with one row per instance, cut into what bags are made of."""

    table: pa.Table
    X: np.ndarray
    order: np.ndarray  # rows of the table in the order of the bags
    offsets: np.ndarray
    bag_ids: np.ndarray
    info: dict[str, np.ndarray]
    feature_names: list[str] | None
    roles: dict[str, str]
    doubtful: dict[str, str]


def long_table(
    frame: Any,
    bag: str,
    features: str | Sequence[str] | None,
    info: Sequence[str],
    taken: Mapping[str, str] | None = None,
    flags: bool = False,
) -> LongTable:
    """Cut a table with one row per instance.

    Parameters
    ----------
    frame : table
        See `as_table`; the bag column may also be a level of a pandas index.
    bag, features, info
        Columns, as in `Bags.from_frame`.
    taken : mapping of str to str, optional
        Columns that are spoken for, with their roles.
    flags : bool, default=False
        Whether labels are columns of 0 and 1, so that further such columns are likely labels as well.
    """
    if bag in (getattr(getattr(frame, "index", None), "names", None) or ()) and bag not in frame.columns:
        frame = frame.reset_index(level=bag)
    table = as_table(frame)
    roles = {bag: "bag", **(taken or {}), **dict.fromkeys(info, "fact")}
    check_columns(table, [*roles, *([features] if isinstance(features, str) else features or ())])
    order, offsets, bag_ids = group_rows(table.column(bag), bag)
    doubtful: dict[str, str] = {}
    names: list[str] | None = None
    if isinstance(features, str) and is_list(table.schema.field(features).type):
        X = _matrix_of_lists(table.column(features), features, bag_ids, order, offsets)
        roles[features] = "feature"
    else:
        chosen = [features] if isinstance(features, str) else features
        if chosen is None:
            chosen, doubtful = _feature_columns(table, roles)
            if flags:
                for name in chosen:
                    if like_labels(to_numpy(table.column(name))[order], offsets):
                        doubtful[name] = LIKE_LABELS
                chosen = [name for name in chosen if name not in doubtful]
            if not chosen:
                raise DataError(_no_features(table, bag, doubtful))
        X, names = _matrix_of_columns(table, chosen, order), list(chosen)
        roles |= dict.fromkeys(chosen, "feature")
    facts = {name: to_numpy(table.column(name))[order] for name in info}
    roles = {name: roles.get(name, "left out") for name in table.column_names}
    return LongTable(table, X, order, offsets, bag_ids, facts, names, roles, doubtful)


def check_columns(table: pa.Table, names: Iterable[str]) -> None:
    """Refuse a column that the table does not have."""
    for name in names:
        if name not in table.column_names:
            found = ", ".join(map(repr, table.column_names))
            raise DataError(f"no column {name!r}; the columns are {found}")


def _matrix_of_columns(table: pa.Table, chosen: Sequence[str], order: np.ndarray) -> np.ndarray:
    X = np.empty((table.num_rows, len(chosen)), dtype=_common_float(table, chosen))
    for k, name in enumerate(chosen):
        column = table.column(name)
        if not is_number(column.type):
            hint = "; one column of lists is named features='...'" if is_list(column.type) else ""
            raise DataError(f"feature column {name!r} holds {column.type}, expected numbers{hint}")
        if column.null_count:
            row = pc.index(column.is_null(), True).as_py()
            raise DataError(f"row {row} has no value in column {name!r}; fill or drop such rows first")
        X[:, k] = column.to_numpy()[order]
    return X


def _matrix_of_lists(
    column: pa.ChunkedArray, name: str, bag_ids: np.ndarray, order: np.ndarray, offsets: np.ndarray
) -> np.ndarray:
    """One list of numbers per row, all of one length."""

    def place(row: int) -> str:
        bag = bag_ids[np.searchsorted(offsets, np.flatnonzero(order == row)[0], side="right") - 1]
        return f"row {row} (bag {quoted(bag)})"

    if column.null_count:
        raise DataError(f"{place(first_null(column))} has no list in column {name!r}")
    joined = column.combine_chunks()
    if isinstance(joined, pa.ChunkedArray):
        joined = pa.concat_arrays(joined.chunks)
    if pa.types.is_fixed_size_list(joined.type):
        width, values = joined.type.list_size, joined.flatten()
    else:
        cuts, values = unpack_lists(joined)
        widths = np.diff(cuts)
        width = int(widths[0]) if len(widths) else 0
        odd = np.flatnonzero(widths != width)
        if odd.size:
            raise DataError(
                f"{place(int(odd[0]))} has {widths[odd[0]]} numbers in column {name!r}, row 0 has {width}"
            )
    if values.null_count:
        raise DataError(f"{place(first_null(values) // width)} has a null in column {name!r}")
    return numbers(values).reshape(len(joined), width)[order]


def _feature_columns(table: pa.Table, taken: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Columns of numbers that nobody has spoken for, and those whose names make them doubtful."""
    numbers = [f.name for f in table.schema if f.name not in taken and is_number(f.type)]
    doubtful = {name: reason for name in numbers if (reason := doubt(name))}
    return [name for name in numbers if name not in doubtful], doubtful


def _no_features(table: pa.Table, bag: str, doubtful: Mapping[str, str]) -> str:
    lists = [f.name for f in table.schema if is_list(f.type) and is_number(f.type.value_type)]
    if lists:
        return f"no numeric column beside {bag!r}; take the lists in {lists[0]!r} with features={lists[0]!r}"
    why = f" ({listed(doubtful)}: not taken by their names)" if doubtful else ""
    return f"no numeric column beside {bag!r}{why}; name the feature columns with features=[...]"


def _common_float(table: pa.Table, names: Sequence[str]) -> np.dtype:
    kinds = {table.schema.field(name).type for name in names}
    return np.dtype(np.float32) if kinds <= {pa.float32(), pa.float16()} else np.dtype(np.float64)
