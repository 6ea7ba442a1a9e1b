"""C4.5 text: ``<stem>.data`` with rows of bag, instance, features, label; ``<stem>.names`` with the columns.

The label is the bag's, repeated on each of its rows, which need not stand together. A dot ends a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from bagwise.bags import Bags
from bagwise.bags.arrow import group_rows, natural_names
from bagwise.bags.dataset import Dataset
from bagwise.bags.labels import label_matrix, unknown_label
from bagwise.errors import DataError
from bagwise.io._numbers import POSITIVE, label_per_bag, parse_rows
from bagwise.io._source import MAX_BYTES, check_finite, numbered_lines, of_file


def recognises(path: Path, head: bytes) -> bool:
    """Whether this is a ``.data`` file whose rows end with a dot, or that has a ``.names`` file beside it."""
    if not path.name.lower().removesuffix(".gz").endswith(".data"):
        return False
    row = head.strip().partition(b"\n")[0].rstrip()
    return row.count(b",") >= 3 and (row.endswith(b".") or _names_path(path) is not None)


@of_file
def read(
    path: str | Path,
    *,
    max_bytes: int = MAX_BYTES,
    names: str | Path | bool | None = None,
    label_names: Sequence[str] | None = None,
) -> Dataset:
    r"""Read bags from C4.5 text.

    The second column is kept as ``bags.instance_info["instance"]``. The labels 0 and 1 become one label,
    ``positive``; others one label for each value.

    Parameters
    ----------
    path : path
        The ``.data`` file, plain or gzip.
    max_bytes : int
        What the file may grow to when unpacked.
    names : path or False, optional
        The ``.names`` file; by default the one beside ``path``, where there is one. False reads none.
    label_names : sequence of str, optional
        Values of the label column, in this order; or one name for the positive class.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "toy.data"
    >>> _ = path.write_text("a,a_1,0.5,7,1.\nb,b_1,0,1,0.\na,a_2,2,3,1.\n")
    >>> data = read(path)
    >>> data.bags.bag_ids.tolist(), data.bags.sizes.tolist(), data.label_sets
    (['a', 'b'], [2, 1], [['positive'], []])
    >>> data.bags.instance_info["instance"].tolist()
    ['a_1', 'a_2', 'b_1']
    """
    path = Path(path)
    lines, bag_column, info_column, rows, label_column = _columns(path, max_bytes)
    width = rows[0].count(",") + 1
    X = parse_rows(rows, lines, width)
    order, offsets, ids = group_rows(pa.array(natural_names(bag_column, lines)))
    ordered_lines = np.array(lines)[order]
    labels = label_per_bag(np.array(label_column)[order], offsets, ids, ordered_lines)
    X = X[order]
    features, declared = _columns_of_names(path, names, width, max_bytes)
    check_finite(X, offsets, ids, path, ordered_lines, features)
    Y, used = _labels(labels, label_names, declared, path, ordered_lines[offsets[:-1]])
    info = {"instance": natural_names(info_column, lines)[order]}
    bags = Bags(X, offsets, bag_ids=ids, instance_info=info, feature_names=features)
    return Dataset(bags, Y, used, name=path.name.removesuffix(".gz").removesuffix(".data"))


def _columns(path: Path, max_bytes: int) -> tuple[list[int], list[str], list[str], list[str], list[str]]:
    """Lines, bags, instances, features (still text) and labels of all rows."""
    lines: list[int] = []
    rows: list[str] = []
    bags, instances, labels = [], [], []
    for line, text in numbered_lines(path, max_bytes):
        start = text.split(",", 2)
        features, comma, label = start[-1].rpartition(",")
        label = label.strip().removesuffix(".")
        if len(start) < 3 or not comma:
            raise DataError(
                f"expected at least 4 columns (bag, instance, features, label), found {text.count(',') + 1}",
                line=line,
            )
        if not label or len(label) > 255:
            raise DataError("no label at the end of the row", line=line)
        if rows and features.count(",") != rows[0].count(","):
            expected = rows[0].count(",") + 4
            raise DataError(
                f"expected {expected} columns as on line {lines[0]}, found {text.count(',') + 1}", line=line
            )
        lines.append(line)
        bags.append(start[0].strip())
        instances.append(start[1].strip())
        rows.append(features)
        labels.append(label)
    if not rows:
        raise DataError("no rows")
    return lines, bags, instances, rows, labels


def _labels(
    labels: np.ndarray,
    label_names: Sequence[str] | None,
    declared: Sequence[str] | None,
    path: Path,
    lines: np.ndarray,
) -> tuple[np.ndarray, tuple[str, ...]]:
    values = list(declared) if declared is not None else sorted(set(labels.tolist()))
    one_name = label_names is not None and len(label_names) == 1
    if set(values) <= {"0", "1"} and (label_names is None or one_name):
        known: list[str] = ["0", "1"]
    else:
        known = list(label_names) if label_names is not None else values
    outside = np.flatnonzero(~np.isin(labels, known))
    if outside.size:
        raise unknown_label(labels[outside[0]].item(), known).at(path, int(lines[outside[0]]))
    if known == ["0", "1"] and (label_names is None or one_name):
        return (labels == "1").astype(np.int8).reshape(-1, 1), tuple(label_names or [POSITIVE])
    return label_matrix(labels.tolist(), known)


def _names_path(path: Path) -> Path | None:
    plain = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    for suffix in (".names", ".names.gz"):
        candidate = plain.with_suffix(suffix)
        if candidate.exists():
            return candidate
    return None


def _columns_of_names(
    path: Path, names: str | Path | bool | None, width: int, max_bytes: int
) -> tuple[list[str] | None, list[str] | None]:
    """Feature names and label values from the ``.names`` file, where there is one."""
    if names is False:
        return None, None
    beside = _names_path(path) if names is None or names is True else Path(names)
    if beside is None:
        return None, None
    classes: list[str] | None = None
    columns: list[tuple[int, str, str]] = []
    for line, text in numbered_lines(beside, max_bytes):
        text = text.partition("|")[0].strip()  # a bar begins a comment
        if not text:
            continue
        if classes is None and ":" not in text:
            classes = [value.strip() for value in text.removesuffix(".").split(",")]
            continue
        name, colon, kind = text.partition(":")
        if not colon:
            raise DataError(f"expected <column>: <values>, found {text[:40]!r}", path=beside, line=line)
        columns.append((line, name.strip(), kind.strip()))
    if len(columns) != width + 2:
        raise DataError(
            f"{len(columns)} columns are named, {path.name} has {width + 2} before the label", path=beside
        )
    for line, name, kind in columns[2:]:
        if not kind.lower().startswith("continuous"):
            raise DataError(
                f"column {name!r} is not continuous; recode it as numbers first", path=beside, line=line
            )
    return [name for _, name, _ in columns[2:]], classes
