"""The one reader of tables with one row per instance: data frames, CSV files, Parquet of other software.

A format hands over an Arrow table and, if it was text, the line of each row. `bagwise.bags.columns` says
which column is what, `Rows` brings the rows of a bag together, and `parts_of_table` makes of them the
arguments of `Dataset`. What belongs to a bag (labels, group, parts) stands on each of its rows. Errors name
the column and, where there are any, the file and the line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from bagwise.bags import Bags
from bagwise.bags.arrow import (
    as_table,
    first_null,
    group_rows,
    is_list,
    is_number,
    natural,
    natural_names,
    numbers,
    plain,
    text_of,
    to_numpy,
    unpack_lists,
)
from bagwise.bags.columns import (
    FEATURE,
    LABEL,
    NUMBER,
    TEXT,
    Columns,
    check_columns,
    choose_columns,
    warn_of_labels,
)
from bagwise.bags.labels import binary_matrix, unknown_label
from bagwise.errors import DataError, listed, quoted

SEPARATOR = ";"  # between the names of labels in one cell


class Rows:
    """The rows of a table, brought together bag by bag: bags in the order of their first row.

    With ``lines``, the line of each row, the table was text: ids, groups and facts then are what they look
    like. ``path`` and ``title`` say in messages what the file and a column are called.
    """

    def __init__(
        self,
        table: pa.Table,
        bag: str,
        lines: np.ndarray | None = None,
        path: str | PathLike[str] | None = None,
        title: str = "column {!r}",
    ) -> None:
        self.table, self.path, self.title, self.is_text = table, path, title, lines is not None
        self.order, self.offsets, self.ids = group_rows(table.column(bag), bag)
        if lines is not None:
            self.lines = lines[self.order]
            self.ids = natural_names(self.ids.tolist(), self.lines[self.offsets[:-1]].tolist())

    def wrong(self, row: int, problem: str) -> DataError:
        """The error for a row, counted in the order of the bags."""
        line = int(self.lines[row]) if self.is_text else None
        return DataError(problem, path=self.path, line=line)

    def codes(self, column: str) -> tuple[np.ndarray, pa.Array]:
        """A number for the value of each bag in a column that repeats it on every row, and the values."""
        encoded = pc.dictionary_encode(plain(self.table.column(column)), null_encoding="encode")
        return self._same(encoded.indices.to_numpy(), encoded.dictionary, column), encoded.dictionary

    def _same(self, codes: np.ndarray, values: Any, column: str) -> np.ndarray:
        codes = codes[self.order]
        first = codes[self.offsets[:-1]]
        differs = np.flatnonzero(codes != np.repeat(first, np.diff(self.offsets)))
        if differs.size:
            row = int(differs[0])
            bag = int(np.searchsorted(self.offsets, row, side="right")) - 1
            what = f"different values in the column {column!r}"
            if self.is_text:
                here, before = values[int(codes[row])].as_py(), values[int(first[bag])].as_py()
                what = f"{here!r} here in {self.title.format(column)} and {before!r} on an earlier row"
            problem = f"bag {quoted(self.ids[bag])} has {what}; it must be the same on all rows of a bag"
            raise self.wrong(row, problem)
        return first

    def names(self, column: str, *, trim: bool = True) -> tuple[np.ndarray, np.ndarray, list[str]]:
        """Bag and name of every entry of a column of names, ``a;b`` or lists of them, and the names."""
        found = plain(self.table.column(column))
        if is_list(found.type):
            cells = [tuple(map(str, cell or ())) for cell in found.to_pylist()]
            place = {cell: k for k, cell in enumerate(dict.fromkeys(cells))}
            codes = self._same(np.array([place[cell] for cell in cells], dtype=np.int64), None, column)
            parts = pa.array([list(cell) for cell in place], pa.list_(pa.string()))
            ends, texts = unpack_lists(parts)
        else:
            codes, cells = self.codes(column)
            ends, texts = unpack_lists(pc.split_pattern(text_of(cells), SEPARATOR))
            texts = pc.utf8_trim_whitespace(texts) if trim else texts
        words = texts.dictionary_encode()
        word = words.indices.to_numpy().astype(np.int64)
        sizes = np.diff(ends)[codes]
        bag = np.repeat(np.arange(len(codes)), sizes)
        starts = np.repeat(ends[:-1][codes] - np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes)
        entries = word[np.arange(len(bag)) + starts]
        names = words.dictionary.to_pylist()
        filled = (
            np.array([bool(name) for name in names], dtype=bool)[entries] if len(entries) else entries > 0
        )
        return bag[filled], entries[filled], names

    # ------------------------------------------------------------------ features and facts

    def bags(self, columns: Columns, dtype: Any = None) -> Bags:
        """The instances and the facts about them."""
        names = [name.removeprefix(FEATURE) for name in columns.features]
        unnamed = columns.lists or (self.is_text and names == [f"f{k}" for k in range(1, len(names) + 1)])
        X = self.lists(names[0]) if columns.lists else self._matrix(columns.features, dtype)
        info = {}
        for name, column in columns.facts.items():
            as_they_look = self.is_text and name not in columns.plain_text
            values = (natural if as_they_look else to_numpy)(self.table.column(column))
            info[name] = values[self.order]
        return Bags(
            X, self.offsets, bag_ids=self.ids, instance_info=info, feature_names=None if unnamed else names
        )

    def _matrix(self, chosen: Sequence[str], dtype: Any) -> np.ndarray:
        if dtype is None:
            single = {self.table.schema.field(name).type for name in chosen} <= {pa.float32(), pa.float16()}
            dtype = np.float32 if single else np.float64
        X = np.empty((self.table.num_rows, len(chosen)), dtype=np.dtype(dtype))
        as_they_stand = (np.diff(self.order) == 1).all()
        with np.errstate(over="ignore"):  # too large for float32 is infinite, and reported as such
            for k, name in enumerate(chosen):
                column = self.table.column(name)
                if not is_number(column.type):
                    hint = "; one column of lists is named features='...'" if is_list(column.type) else ""
                    raise DataError(f"feature column {name!r} holds {column.type}, expected numbers{hint}")
                if column.null_count:
                    row = first_null(column)
                    raise DataError(
                        f"row {row} has no value in column {name!r}; fill or drop such rows first"
                    )
                X[:, k] = column.to_numpy() if as_they_stand else column.to_numpy()[self.order]
        return X

    def lists(self, name: str) -> np.ndarray:
        """One list of numbers per row, all of one length."""

        def refuse(row: int, problem: str) -> NoReturn:
            place = np.flatnonzero(self.order == row)[0]
            bag = self.ids[np.searchsorted(self.offsets, place, side="right") - 1]
            raise DataError(f"row {row} (bag {quoted(bag)}) {problem}")

        column = self.table.column(name)
        if column.null_count:
            refuse(first_null(column), f"has no list in column {name!r}")
        joined = plain(column)
        if pa.types.is_fixed_size_list(joined.type):
            width, values = joined.type.list_size, joined.flatten()
        else:
            cuts, values = unpack_lists(joined)
            widths = np.diff(cuts)
            width = int(widths[0]) if len(widths) else 0
            odd = np.flatnonzero(widths != width)
            if odd.size:
                found = f"has {widths[odd[0]]} numbers in column {name!r}, row 0 has {width}"
                refuse(int(odd[0]), found)
        if values.null_count:
            refuse(first_null(values) // width, f"has a null in column {name!r}")
        return numbers(values).reshape(len(joined), width)[self.order]

    # ------------------------------------------------------------------ labels

    def labels(
        self, columns: Columns, given: Sequence[str] | None = None, beside: tuple[Any, Any] | None = None
    ) -> tuple[Any, tuple[str, ...], np.ndarray | None]:
        """Label matrix (CSR, None without labels), label names, and label of each instance where known.

        Tens of thousands of labels are nothing unusual, so no matrix of all of them is made. ``given`` are
        the labels in order; ``beside`` the label names of each bag, or a matrix and its names.
        """
        instances = None
        if columns.instance_label is not None:
            instances = text_of(self.table.column(columns.instance_label)).dictionary_encode()
        flags = columns.flags
        if columns.labels is not None and is_number(plain(self.table.column(columns.labels)).type):
            flags = [columns.labels]
        words: Sequence[str] = []
        bag = word = np.empty(0, dtype=np.int64)
        if flags:
            bag, word = self._flags(flags)
            words = [column.removeprefix(LABEL) for column in flags]
        elif columns.labels is not None:
            bag, word, words = self.names(columns.labels)
        elif beside is not None:
            bag, word, words = _entries(*beside, self.ids)
        elif instances is None:
            if given is not None:
                raise DataError("label_names are given, but the file has no labels")
            return None, (), None
        if given is not None or flags or (beside is not None and beside[1] is not None):
            names = tuple(map(str, words if given is None else given))
        else:
            inside = set() if instances is None else set(instances.dictionary.to_pylist())
            names = tuple(sorted({*words, *inside} - {""}))
        place = {name: k for k, name in enumerate(names)}
        label = np.array([place.get(name, -1) for name in words], dtype=np.int64)[word]
        if (label < 0).any():  # a word in use that is no label
            k = int(np.flatnonzero(label < 0)[0])
            unknown = unknown_label(words[word[k]], names, self.ids[bag[k]].item())
            raise self.wrong(int(self.offsets[bag[k]]), unknown.message)
        known = None if instances is None else self._instance_labels(instances, names)
        if known is not None and not (flags or columns.labels or beside):  # a bag has those of its instances
            index = np.repeat(np.arange(len(self.ids)), np.diff(self.offsets))
            bag, label = index[known >= 0], known[known >= 0]
        ones = np.ones(len(bag), dtype=np.int8)
        Y = sparse.coo_array((ones, (bag, label)), shape=(len(self.ids), len(names))).tocsr()
        Y.data[:] = 1  # a label named twice is there once
        return Y, names, known

    def _flags(self, flags: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Bag and column of every 1 in columns of 0 and 1."""
        bags, labels = [], []
        for k, column in enumerate(flags):
            values = to_numpy(self.table.column(column))[self.order]
            wrong = np.flatnonzero((values != 0) & (values != 1))
            if wrong.size:
                value = values[wrong[0]]
                shown = f"{value:g}" if values.dtype.kind in "iuf" else repr(value)
                raise self.wrong(wrong[0], f"{self.title.format(column)} holds {shown}, expected 0 or 1")
            codes, found = self.codes(column)
            carried = np.flatnonzero(to_numpy(found)[codes])
            bags.append(carried)
            labels.append(np.full(len(carried), k))
        return np.concatenate(bags), np.concatenate(labels)

    def _instance_labels(self, encoded: pa.DictionaryArray, names: tuple[str, ...]) -> np.ndarray:
        """Label of every row in the order of the bags, -1 where the cell is empty."""
        known = {name: k for k, name in enumerate(names)} | {"": -1}
        words = encoded.dictionary.to_pylist()
        place = np.array([known.get(name, -2) for name in words], dtype=np.int64)
        codes = encoded.indices.to_numpy()[self.order]
        lost = np.flatnonzero(place[codes] == -2)
        if lost.size:
            row = int(lost[np.argmin(self.order[lost])])
            raise self.wrong(row, unknown_label(words[codes[row]], names).message)
        return place[codes]


def parts_of_table(
    rows: Rows,
    columns: Columns,
    *,
    dtype: Any = None,
    label_names: Sequence[str] | None = None,
    beside: tuple[Any, Any] | None = None,
) -> dict[str, Any]:
    """Arguments of `Dataset` but for the roles of the columns."""
    found: dict[str, Any] = {"bags": rows.bags(columns, dtype)}
    found["Y"], found["label_names"], found["instance_Y"] = rows.labels(columns, label_names, beside)
    if columns.group is not None:
        codes, values = rows.codes(columns.group)
        found["groups"] = (natural_names(values.to_pylist()) if rows.is_text else to_numpy(values))[codes]
    if columns.splits is not None:
        bag, part, names = rows.names(columns.splits, trim=not rows.is_text)
        found["splits"] = {name: np.unique(bag[part == k]) for k, name in enumerate(names) if name}
    return found


# ---------------------------------------------------------------------- data frames


def parts_of_frame(
    frame: Any,
    bag: str,
    features: str | Sequence[str] | None = None,
    labels: Any = None,
    instance_label: str | None = None,
    info: Sequence[str] = (),
    *,
    by_name: bool = True,
) -> dict[str, Any]:
    """Arguments of `Dataset` from a data frame; see `Dataset.from_frame`.

    Without ``by_name`` there are bags alone, and nothing is found by its name.
    """
    if bag in (getattr(getattr(frame, "index", None), "names", None) or ()) and bag not in frame.columns:
        frame = frame.reset_index(level=bag)
    table = as_table(frame)
    kinds = {field.name: NUMBER if is_number(field.type) else TEXT for field in table.schema}
    by_id = labels if isinstance(labels, Mapping) or _is_table(labels) else None
    if by_id is not None:
        labels = ()
    elif labels is not None and not isinstance(labels, str):
        labels = list(labels)
        if not all(isinstance(name, str) for name in labels):
            raise DataError(
                "labels are names of columns, or labels by bag id (a mapping, Series or DataFrame); those in "
                "the order of the bags go to Dataset(Bags.from_frame(...), Y)"
            )
    one = [features] if isinstance(features, str) else features
    columns = choose_columns(kinds, bag, one, labels, instance_label, info, by_name=by_name)
    columns.lists = isinstance(features, str) and is_list(table.schema.field(features).type)
    rows = Rows(table, bag)
    if columns.flags and features is None:
        columns.drop_like_labels(lambda name: to_numpy(table.column(name))[rows.order], rows.offsets)
    if not columns.features:
        raise DataError(_no_features(table, columns))
    roles = columns.roles(table.column_names)
    roles.warn()
    if not by_name:
        return {"bags": rows.bags(columns)}
    beside = None if by_id is None else labels_by_id(by_id, bag, rows.ids)
    found = parts_of_table(rows, columns, beside=beside)
    if found["Y"] is None and features is None:
        bags = found["bags"]
        warn_of_labels(dict(zip(bags.feature_names, bags.X.T)), bags.offsets)
    return {**found, "roles": roles}


def labels_by_id(labels: Any, bag: str, ids: np.ndarray) -> tuple[Any, Sequence[str] | None]:
    """Label names of each bag, or a matrix and its names, from labels by bag id.

    Those of bags that are not in the table are passed over.
    """
    keys, rows, names = _rows_by_id(labels, bag)
    place = {key: k for k, key in enumerate(keys)}
    if len(place) != len(keys):
        twice = next(key for k, key in enumerate(keys) if place[key] != k)
        raise DataError(f"bag {quoted(twice)} has two rows of labels")
    missing = [i for i in ids.tolist() if i not in place]
    if missing:
        raise DataError(
            f"no labels for bag {listed(missing, 1, show=quoted)}; a bag without labels has the entry []. "
            f"The labels are of {', '.join(map(repr, keys[:3]))}, ...: bag ids are their index, keys, or "
            f"column {bag!r}"
        )
    return [rows[place[i]] for i in ids.tolist()], names


def _rows_by_id(labels: Any, bag: str) -> tuple[list[Any], Sequence[Any], list[str] | None]:
    """Ids, a row for each, and the label names if rows are 0/1 instead of names."""
    if isinstance(labels, Mapping) and not _is_table(labels):
        return list(labels), list(labels.values()), None
    if hasattr(labels, "iloc") and not hasattr(labels, "columns"):  # a Series
        if getattr(labels.dtype, "kind", "O") in "biuf":
            return labels.index.tolist(), labels.to_numpy()[:, None], [str(labels.name or "label_0")]
        return labels.index.tolist(), labels.tolist(), None
    if hasattr(labels, "iloc"):
        frame = labels.set_index(bag) if bag in labels.columns else labels
        if frame.shape[1] == 1 and getattr(frame.dtypes.iloc[0], "kind", "O") not in "biuf":
            return frame.index.tolist(), frame.iloc[:, 0].tolist(), None
        return frame.index.tolist(), frame.to_numpy(), [str(c) for c in frame.columns]
    table = as_table(labels)
    check_columns(table.column_names, [bag])
    others = [c for c in table.column_names if c != bag]
    keys = table.column(bag).to_pylist()
    rows = [table.column(c).to_pylist() for c in others]
    if len(others) == 1 and not all(isinstance(v, (int, float)) for v in rows[0]):
        return keys, rows[0], None
    return keys, list(zip(*rows)), others


def _is_table(labels: Any) -> bool:
    return hasattr(labels, "columns") or hasattr(labels, "column_names") or hasattr(labels, "iloc")


def _entries(rows: Any, names: Any, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, Sequence[str]]:
    """Bag and name of every label, and the names."""
    if names is not None:
        Y = binary_matrix(np.asarray(rows).reshape(len(rows), len(names)), ids, names)
        return *np.nonzero(Y), names
    sets = [_names(row) for row in rows]
    place = {name: k for k, name in enumerate(dict.fromkeys(name for row in sets for name in row))}
    bag = np.repeat(np.arange(len(sets)), [len(row) for row in sets])
    return bag, np.array([place[name] for row in sets for name in row], dtype=np.int64), list(place)


def _names(cell: Any) -> list[str]:
    """Names in one cell: "a;b", a list, or nothing."""
    if cell is None or (isinstance(cell, float) and np.isnan(cell)):
        return []
    if isinstance(cell, str):
        return [name for part in cell.split(SEPARATOR) if (name := part.strip())]
    return [str(name) for name in cell]


def _no_features(table: pa.Table, columns: Columns) -> str:
    bag = columns.bag
    lists = [f.name for f in table.schema if is_list(f.type) and is_number(f.type.value_type)]
    if lists:
        return f"no numeric column beside {bag!r}; take the lists in {lists[0]!r} with features={lists[0]!r}"
    why = f" ({listed(columns.doubtful)}: not taken by their names)" if columns.doubtful else ""
    return f"no numeric column beside {bag!r}{why}; name the feature columns with features=[...]"
