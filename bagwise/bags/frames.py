"""Data sets from and to long tables: one row per instance, what belongs to a bag on each of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.errors import DataError, quoted

SEPARATOR = ";"  # between the names of labels in one cell
MOST_FLAGS = 1000  # labels that are ever written as columns of their own


# ---------------------------------------------------------------------- from tables


def parts_of_frame(
    frame: Any,
    bag: str,
    features: str | Sequence[str] | None,
    labels: Any,
    instance_label: str | None,
    info: Sequence[str],
) -> dict[str, Any]:
    """Arguments of `Dataset` from a table with one row per instance; see `Dataset.from_frame`."""
    from bagwise.utils.arrow import as_table, to_numpy
    from bagwise.utils.columns import Roles, warn_of_labels
    from bagwise.utils.long_table import long_table

    columns = list(frame.columns) if not hasattr(frame, "column_names") else frame.column_names
    columns = columns if all(isinstance(c, str) for c in columns) else as_table(frame).column_names
    spoken = {bag, *info, *([features] if isinstance(features, str) else features or ())}
    free = [c for c in columns if c not in spoken]
    taken: dict[str, str] = {}
    flags: list[str] = []
    if labels is None:
        flags = [c for c in free if c.startswith("label:")]
        labels = None if flags or "labels" not in free else "labels"
    elif not isinstance(labels, (str, Mapping)) and not _is_table(labels):
        flags, labels = list(labels), None
        if not all(isinstance(name, str) for name in flags):
            raise DataError(
                "labels are names of columns, or labels by bag id (a mapping, Series or DataFrame); those in "
                "the order of the bags go to Dataset(Bags.from_frame(...), Y)"
            )
    taken |= dict.fromkeys(flags, "label")
    if isinstance(labels, str):
        taken[labels] = "labels"
    if instance_label is None and "instance_label" in free:
        instance_label = "instance_label"
    if instance_label is not None:
        taken[instance_label] = "instance label"
    for column in ("group", "splits"):
        if column in free and column not in taken:
            taken[column] = column
    prefixed = [c for c in free if c.startswith("info:")]
    parts = long_table(frame, bag, features, [*info, *prefixed], taken, bool(flags))
    table, order, offsets, ids = parts.table, parts.order, parts.offsets, parts.bag_ids
    roles = Roles(parts.roles, parts.doubtful)
    roles.warn()
    found: dict[str, Any] = {
        "bags": Bags(
            parts.X,
            offsets,
            bag_ids=ids,
            instance_info={name.removeprefix("info:"): v for name, v in parts.info.items()},
            feature_names=parts.feature_names,
        ),
        "roles": roles,
    }

    def values(column: str) -> np.ndarray:
        return per_bag(to_numpy(table.column(column))[order], offsets, ids, column)

    if flags:
        found["Y"] = np.column_stack([values(c) for c in flags])
        found["label_names"] = [c.removeprefix("label:") for c in flags]
    elif isinstance(labels, str):
        found |= _labels_of_column(table.column(labels), order, offsets, ids, labels)
    elif labels is not None:
        found |= _labels_by_id(labels, bag, ids)
    if instance_label is not None:
        known = [None if v in (None, "") else str(v) for v in table.column(instance_label).to_pylist()]
        found["instance_Y"] = [known[k] for k in order]
        if "Y" not in found:  # a bag has the labels of its instances
            known = found["instance_Y"]
            found["Y"] = [
                sorted({v for v in known[a:b] if v is not None}) for a, b in zip(offsets[:-1], offsets[1:])
            ]
        elif "label_names" not in found:
            sets = {name for row in found["Y"] for name in row}
            found["label_names"] = sorted(sets | {v for v in known if v is not None})
    if "Y" not in found and features is None and parts.feature_names is not None:
        warn_of_labels(dict(zip(parts.feature_names, parts.X.T)), offsets, None)
    if taken.get("group") == "group":
        found["groups"] = values("group")
    if taken.get("splits") == "splits":
        cells = [_names(cell) for cell in values("splits").tolist()]
        parts_named = dict.fromkeys(name for cell in cells for name in cell)
        found["splits"] = {p: np.flatnonzero([p in cell for cell in cells]) for p in parts_named}
    return found


def _is_table(labels: Any) -> bool:
    return hasattr(labels, "columns") or hasattr(labels, "column_names") or hasattr(labels, "iloc")


def _names(cell: Any) -> list[str]:
    """Names in one cell: "a;b", a list, or nothing."""
    if cell is None or (isinstance(cell, float) and np.isnan(cell)):
        return []
    if isinstance(cell, str):
        return [name for part in cell.split(SEPARATOR) if (name := part.strip())]
    return [str(name) for name in cell]


def _labels_of_column(
    column: Any, order: np.ndarray, offsets: np.ndarray, ids: np.ndarray, name: str
) -> dict[str, Any]:
    """A column of names ("a;b" or lists) or of 0 and 1, the same on all rows of a bag."""
    from bagwise.utils.arrow import is_list, to_numpy

    kind = column.type.value_type if hasattr(column.type, "indices") else column.type
    if is_list(kind):
        sets = [tuple(_names(cell)) for cell in column.to_pylist()]
        codes = {names: k for k, names in enumerate(dict.fromkeys(sets))}
        coded = np.array([codes[names] for names in sets], dtype=np.int64)[order]
        different = list(codes)
        chosen = [different[k] for k in per_bag(coded, offsets, ids, name)]
        return {"Y": chosen, "label_names": _occurring(chosen)}
    values = to_numpy(column)
    if values.dtype.kind in "biuf":
        return {"Y": per_bag(values[order], offsets, ids, name)[:, None], "label_names": [name]}
    texts = np.array(["" if v is None else str(v) for v in values.tolist()], dtype=object)
    sets = [tuple(_names(cell)) for cell in per_bag(texts[order], offsets, ids, name)]
    return {"Y": sets, "label_names": _occurring(sets)}


def _occurring(sets: Sequence[Sequence[str]]) -> list[str]:
    return sorted({name for names in sets for name in names})


def _labels_by_id(labels: Any, bag: str, ids: np.ndarray) -> dict[str, Any]:
    """Labels beside the table, by bag id; those of bags that are not in the table are passed over."""
    keys, rows, names = _rows_by_id(labels, bag)
    place = {key: k for k, key in enumerate(keys)}
    if len(place) != len(keys):
        twice = next(key for k, key in enumerate(keys) if place[key] != k)
        raise DataError(f"bag {quoted(twice)} has two rows of labels")
    missing = [i for i in ids.tolist() if i not in place]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        known = ", ".join(map(repr, keys[:3]))
        raise DataError(
            f"no labels for bag {quoted(missing[0])}{more}; a bag without labels has the entry []. The "
            f"labels are of {known}, ...: bag ids are their index, keys, or column {bag!r}"
        )
    chosen = [rows[place[i]] for i in ids.tolist()]
    if names is not None:
        return {"Y": np.asarray(chosen).reshape(len(chosen), len(names)), "label_names": names}
    sets = [_names(row) for row in chosen]
    return {"Y": sets, "label_names": _occurring(sets)}


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
    from bagwise.utils.arrow import as_table
    from bagwise.utils.long_table import check_columns

    table = as_table(labels)
    check_columns(table, [bag])
    others = [c for c in table.column_names if c != bag]
    keys = table.column(bag).to_pylist()
    rows = [table.column(c).to_pylist() for c in others]
    if len(others) == 1 and not all(isinstance(v, (int, float)) for v in rows[0]):
        return keys, rows[0], None
    return keys, list(zip(*rows)), others


def per_bag(values: np.ndarray, offsets: np.ndarray, ids: np.ndarray, column: str) -> np.ndarray:
    """The one value of each bag in a column (in bag order) that repeats it on every row."""
    first = values[offsets[:-1]]
    differs = values != np.repeat(first, np.diff(offsets))
    if differs.any():
        row = np.flatnonzero(differs)[0]
        bag = ids[np.searchsorted(offsets, row, side="right") - 1]
        raise DataError(
            f"bag {quoted(bag)} has different values in the column {column!r}; it is the bag's, the same on "
            "all of its rows"
        )
    return first


# ---------------------------------------------------------------------- to tables


def bag_columns(dataset: Any) -> dict[str, Any]:
    """What belongs to bags, a value each, under the names of a long table: labels, group, splits."""
    columns: dict[str, Any] = {}
    names = dataset.label_names
    if dataset.has_labels:
        if readable_sets(dataset) or len(names) > MOST_FLAGS:
            columns["labels"] = [SEPARATOR.join(names) for names in dataset.label_sets]
        else:
            dense = dataset.Y
            columns |= {f"label:{name}": dense[:, k] for k, name in enumerate(names)}
    if dataset.groups is not None:
        columns["group"] = dataset.groups
    if dataset.splits:
        parts: list[list[str]] = [[] for _ in range(len(dataset))]
        for part, which in dataset.splits.items():
            for k in np.unique(which):
                parts[k].append(part)
        columns["splits"] = list(map(SEPARATOR.join, parts))
    return columns


def readable_sets(dataset: Any) -> bool:
    """Whether a reader of one column of label names finds the same labels in the same order."""
    occurring = [name for name, n in zip(dataset.label_names, dataset.label_counts) if n]
    plain = all(name and SEPARATOR not in name and name == name.strip() for name in dataset.label_names)
    return plain and list(dataset.label_names) == sorted(occurring)


def dataset_frame(dataset: Any) -> Any:
    """One row per instance; see `Dataset.to_frame`."""
    from bagwise.utils.frames import bags_frame

    bags = dataset.bags
    if not isinstance(bags, Bags):
        raise DataError(
            f"a frame has one row per instance, and views ({', '.join(bags.view_names)}) have their own; "
            "use data.bags[view].to_frame()"
        )
    beside = {name: np.asarray(values)[bags.index] for name, values in bag_columns(dataset).items()}
    if dataset.instance_Y is not None:
        beside["instance_label"] = np.asarray([*dataset.label_names, ""], dtype=object)[dataset.instance_Y]
    return bags_frame(bags, beside)
