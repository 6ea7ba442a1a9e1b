"""Labels of a long CSV file, as a sparse matrix: tens of thousands of labels are nothing unusual."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from bagwise.bags.arrow import group_rows
from bagwise.bags.labels import unknown_label
from bagwise.errors import DataError, quoted
from bagwise.io._csv_roles import LABEL, Roles
from bagwise.io._csv_table import CsvText
from bagwise.io._numbers import natural_ids
from bagwise.io._source import check_finite


class Rows:
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
        codes, values = self.first_codes(column, position)
        texts = values.to_pylist()
        return [texts[k] for k in codes]

    def first_codes(self, column: pa.Array, position: int) -> tuple[np.ndarray, pa.Array]:
        """A number for the value of each bag in a column that repeats it on every row, and the values."""
        encoded = column.dictionary_encode()
        codes = encoded.indices.to_numpy()[self.order]
        first = codes[self.offsets[:-1]]
        differs = np.flatnonzero(codes != np.repeat(first, np.diff(self.offsets)))
        if differs.size:
            row = int(differs[0])
            bag = int(np.searchsorted(self.offsets, row, side="right")) - 1
            here, before = (encoded.dictionary[int(k)].as_py() for k in (codes[row], first[bag]))
            raise DataError(
                f"bag {quoted(self.ids[bag])} has {here!r} here in {self.text.title(position)}"
                f" and {before!r} on an earlier row; it must be the same on all rows of a bag",
                path=self.text.path,
                line=int(self.lines[row]),
            )
        return first, encoded.dictionary


def read_labels(
    text: CsvText,
    roles: Roles,
    columns: dict[int, pa.Array],
    rows: Rows,
    label_names: Sequence[str] | None,
) -> tuple[Any, tuple[str, ...], np.ndarray | None]:
    """Label matrix (CSR, None without labels), label names, and label of each instance where known."""
    given = None if label_names is None else tuple(map(str, label_names))
    instances = None if roles.instance_label is None else columns[roles.instance_label]
    if roles.flags:
        names = given or tuple(text.first[k].removeprefix(LABEL) for k in roles.flags)
        titles = [text.first[k].removeprefix(LABEL) for k in roles.flags]
        bag, label = _flags(text, roles.flags, columns, rows)
        if given is not None and given != tuple(titles):
            place = _index(titles, names, text, rows, bag, label)
            label = place[label]
    elif roles.labels is not None:
        bag, label, words = _cells(columns[roles.labels], roles.labels, rows)
        names = given or _sorted_names(words, instances)
        label = _index(words, names, text, rows, bag, label)[label]
    elif instances is not None:
        names = given or _sorted_names([], instances)
        bag = label = np.empty(0, dtype=np.int64)
    else:
        if given is not None:
            raise DataError("label_names are given, but the file has no labels", path=text.path, line=1)
        return None, (), None
    known = None if instances is None else _instance_labels(instances, names, text)[rows.order]
    if known is not None and not roles.flags and roles.labels is None:  # a bag has those of its instances
        index = np.repeat(np.arange(len(rows.ids)), np.diff(rows.offsets))
        bag, label = index[known >= 0], known[known >= 0]
    Y = sparse.coo_array(
        (np.ones(len(bag), dtype=np.int8), (bag, label)), shape=(len(rows.ids), len(names))
    ).tocsr()
    Y.data[:] = 1  # a label named twice is there once
    return Y, names, known


def _sorted_names(words: Sequence[str], instances: pa.Array | None) -> tuple[str, ...]:
    found = set(words)
    if instances is not None:
        found |= set(pc.unique(instances).to_pylist())
    return tuple(sorted(found - {""}))


def _flags(
    text: CsvText, flags: Sequence[int], columns: dict[int, pa.Array], rows: Rows
) -> tuple[np.ndarray, np.ndarray]:
    """Bag and column of every 1 in columns of 0 and 1."""
    bags, labels = [], []
    for j, k in enumerate(flags):
        values = columns[k].to_numpy()
        wrong = np.flatnonzero((values != 0) & (values != 1))
        if wrong.size:
            text.wrong(int(wrong[0]), k, f"holds {values[wrong[0]]:g}, expected 0 or 1")
        codes, found = rows.first_codes(columns[k], k)
        carried = np.flatnonzero(found.to_numpy()[codes])
        bags.append(carried)
        labels.append(np.full(len(carried), j))
    return np.concatenate(bags), np.concatenate(labels)


def _cells(column: pa.Array, position: int, rows: Rows) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Bag and word of every name in cells such as ``a;b``, and the words."""
    codes, cells = rows.first_codes(column, position)
    split = pc.split_pattern(cells, ";")
    ends = split.offsets.to_numpy().astype(np.int64)
    words = pc.utf8_trim_whitespace(split.values).dictionary_encode()
    word = words.indices.to_numpy().astype(np.int64)
    sizes = np.diff(ends)[codes]
    bag = np.repeat(np.arange(len(codes)), sizes)
    starts = np.repeat(ends[:-1][codes] - np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes)
    found = word[np.arange(len(bag)) + starts]
    texts = words.dictionary.to_pylist()
    filled = np.array([bool(t) for t in texts], dtype=bool)[found] if len(found) else np.empty(0, bool)
    return bag[filled], found[filled], texts


def _index(
    words: Sequence[str], names: tuple[str, ...], text: CsvText, rows: Rows, bag: np.ndarray, word: np.ndarray
) -> np.ndarray:
    """Label of every word; a word in use that is no label is refused with its line."""
    known = {name: k for k, name in enumerate(names)}
    place = np.array([known.get(name, -1) for name in words], dtype=np.int64)
    lost = np.flatnonzero(place[word] < 0) if len(word) else np.empty(0, np.int64)
    if lost.size:
        k = int(lost[0])
        line = int(rows.lines[rows.offsets[bag[k]]])
        raise unknown_label(words[word[k]], names, rows.ids[bag[k]].item()).at(text.path, line)
    return place


def _instance_labels(column: pa.Array, names: tuple[str, ...], text: CsvText) -> np.ndarray:
    """Label of every row of the file, -1 where the cell is empty."""
    encoded = column.dictionary_encode()
    known = {name: k for k, name in enumerate(names)}
    words = encoded.dictionary.to_pylist()
    place = np.array([-1 if not name else known.get(name, -2) for name in words], dtype=np.int64)
    found = place[encoded.indices.to_numpy()]
    lost = np.flatnonzero(found == -2)
    if lost.size:
        row = int(lost[0])
        raise unknown_label(column[row].as_py(), names).at(text.path, int(text.lines[row]))
    return found
