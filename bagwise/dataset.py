"""``Dataset``: bags with what is known about them; the only place where the truth about instances lives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bagwise.bags import Bags, MultiViewBags, bag_numbers, instance_rows
from bagwise.errors import DataError, quoted
from bagwise.labels import label_matrix, label_sets, unknown_label

UNKNOWN = -1  # instance label that nobody wrote down


@dataclass(frozen=True, eq=False)
class Dataset:
    """Bags, their label sets and, where known, the label of each instance.

    Parameters
    ----------
    bags : Bags or MultiViewBags
        The bags.
    Y : matrix, DataFrame or lists of label names
        Bag labels; kept as an int8 0/1 matrix (n_bags, n_labels).
    label_names : sequence of str, optional
        Names of the labels; see `bagwise.labels.label_matrix` for the defaults.
    instance_Y : array of shape (n_instances,), optional
        Label index of each instance, -1 where unknown. A mapping view -> array for several views.
    name, description, citation, licence : str, optional
        Where the data come from.
    groups : array of shape (n_bags,), optional
        Bags of one group belong on the same side of a split (recordings of one day, slides of one patient).
    splits : mapping of str to bag numbers, optional
        Published parts, such as ``{"train": ..., "test": ...}``.

    Examples
    --------
    >>> import numpy as np
    >>> bags = Bags.from_list([np.zeros((2, 3)), np.ones((1, 3))])
    >>> data = Dataset(bags, [["robin", "wren"], ["wren"]], instance_Y=[0, 1, 1])
    >>> data.label_names
    ('robin', 'wren')
    >>> data[[1]].instance_Y
    array([1])
    """

    bags: Bags | MultiViewBags
    Y: np.ndarray
    label_names: tuple[str, ...] = ()
    instance_Y: Any = None
    name: str = ""
    description: str = ""
    citation: str = ""
    licence: str = ""
    groups: np.ndarray | None = None
    splits: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.bags, (Bags, MultiViewBags)):
            raise TypeError(f"bags must be Bags or MultiViewBags, got {type(self.bags).__name__}")
        Y, names = label_matrix(self.Y, self.label_names or None, self.bags.bag_ids)
        if len(Y) != len(self.bags):
            raise DataError(f"{len(Y)} rows of labels for {len(self.bags)} bags")
        set_once = object.__setattr__
        set_once(self, "Y", Y)
        set_once(self, "label_names", names)
        set_once(self, "instance_Y", self._checked_instance_labels())
        if self.groups is not None:
            groups = np.asarray(self.groups)
            if len(groups) != len(self.bags):
                raise DataError(f"{len(groups)} groups for {len(self.bags)} bags")
            set_once(self, "groups", groups)
        splits = {str(k): bag_numbers(v, len(self.bags)) for k, v in self.splits.items()}
        set_once(self, "splits", splits)

    def _checked_instance_labels(self) -> Any:
        if self.instance_Y is None:
            return None
        if isinstance(self.bags, MultiViewBags):
            if not isinstance(self.instance_Y, Mapping):
                raise TypeError("several views need instance_Y as a mapping view -> labels of its instances")
            return {
                view: _instance_labels(values, self.bags[view], self.label_names)
                for view, values in self.instance_Y.items()
            }
        return _instance_labels(self.instance_Y, self.bags, self.label_names)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        bag: str = "bag_id",
        features: Sequence[str] | None = None,
        *,
        labels: Any,
        instance_label: str | None = None,
        info: Sequence[str] = (),
        **about: Any,
    ) -> Dataset:
        """Make a data set from a long table with one row per instance.

        Parameters
        ----------
        frame : DataFrame or table
            See `Bags.from_frame`.
        bag, features, info
            As in `Bags.from_frame`; label columns are never taken for features.
        labels : str, sequence of str, or mapping of bag id to label names
            Columns of 0/1 per label, constant within a bag; or the labels by bag id.
        instance_label : str, optional
            Column with the label name of each instance, empty or null where unknown.
        **about
            Further arguments of `Dataset`.

        Examples
        --------
        >>> import pyarrow as pa
        >>> table = pa.table({"bag_id": ["x", "x", "y"], "f": [0.0, 1.0, 2.0], "wren": [1, 1, 0]})
        >>> Dataset.from_frame(table, labels=["wren"]).Y.ravel().tolist()
        [1, 0]
        """
        from bagwise.utils.arrow import as_table, group_rows, to_numpy

        table = as_table(frame)
        columns = [labels] if isinstance(labels, str) else [] if isinstance(labels, Mapping) else list(labels)
        beside = [*columns, *([instance_label] if instance_label else [])]
        for name in beside:
            if name not in table.column_names:
                raise DataError(f"no column {name!r}; the columns are {', '.join(table.column_names)}")
        bags = Bags.from_frame(table.drop_columns(beside) if beside else table, bag, features, info)
        order, offsets, ids = group_rows(table.column(bag), bag)
        if isinstance(labels, Mapping):
            missing = [i for i in ids.tolist() if i not in labels]
            if missing:
                raise DataError(
                    f"no labels for bag {quoted(missing[0])}; a bag without labels has the entry []"
                )
            Y: Any = [labels[i] for i in ids.tolist()]
        else:
            Y = np.column_stack(
                [_per_bag(to_numpy(table.column(c))[order], offsets, ids, c) for c in columns]
            )
            about.setdefault("label_names", columns)
        known = None
        if instance_label is not None:
            known = [None if v in (None, "") else str(v) for v in table.column(instance_label).to_pylist()]
            known = [known[k] for k in order]
        return cls(bags, Y, instance_Y=known, **about)

    def __len__(self) -> int:
        return len(self.bags)

    def __repr__(self) -> str:
        known = "" if self.instance_Y is None else ", instance labels known"
        title = f"{self.name!r}: " if self.name else ""
        return f"Dataset({title}{self.bags!r}, {len(self.label_names)} labels{known})"

    def __getitem__(self, key: Any) -> Dataset:
        """Cut bags with all that belongs to them; ``data["train"]`` is a published part."""
        if isinstance(key, str):
            if key not in self.splits:
                known = ", ".join(map(repr, self.splits)) or "none"
                raise KeyError(f"no part {key!r}; published parts: {known}")
            return self[self.splits[key]]
        if isinstance(key, slice):
            which = np.arange(len(self))[key]
        else:
            which = bag_numbers(key, len(self))
        cut = key if isinstance(key, slice) else which  # a slice shares memory
        instance_Y = self.instance_Y
        if isinstance(instance_Y, dict):
            assert isinstance(self.bags, MultiViewBags)
            instance_Y = {
                view: values[instance_rows(self.bags[view].offsets, which)[0]]
                for view, values in instance_Y.items()
            }
        elif instance_Y is not None:
            assert isinstance(self.bags, Bags)
            instance_Y = instance_Y[instance_rows(self.bags.offsets, which)[0]]
        groups = None if self.groups is None else self.groups[which]
        return replace(
            self, bags=self.bags[cut], Y=self.Y[which], instance_Y=instance_Y, groups=groups, splits={}
        )

    def labelled_bags(self, fact: str = "label") -> Bags:
        """Bags that carry their instances' labels as a fact, for models that are shown the truth.

        The labels sit in ``instance_info[fact]``, so splitting bags splits them too.
        """
        if self.instance_Y is None or isinstance(self.bags, MultiViewBags):
            raise DataError("instance labels are not known for this data set, or it has several views")
        info = {**self.bags.instance_info, fact: self.instance_Y}
        return Bags(
            self.bags.X,
            self.bags.offsets,
            bag_ids=self.bags.bag_ids,
            instance_info=info,
            feature_names=self.bags.feature_names,
        )

    @property
    def label_sets(self) -> list[list[str]]:
        """Names of the labels of every bag."""
        return label_sets(self.Y, self.label_names)

    @property
    def cardinality(self) -> float:
        """Mean number of labels per bag."""
        return float(self.Y.sum() / len(self)) if len(self) else 0.0


def _per_bag(values: np.ndarray, offsets: np.ndarray, ids: np.ndarray, column: str) -> np.ndarray:
    """The one value of each bag in a column that repeats it on every row."""
    first = values[offsets[:-1]]
    differs = values != np.repeat(first, np.diff(offsets))
    if differs.any():
        bag = ids[np.searchsorted(offsets, np.flatnonzero(differs)[0], side="right") - 1]
        raise DataError(
            f"bag {quoted(bag)} has different values in the label column {column!r}; a label is the bag's"
        )
    return first


def _instance_labels(values: Any, bags: Bags, names: tuple[str, ...]) -> np.ndarray:
    """Label index of each instance, from indices or from names (None or "" for unknown)."""
    given = list(values) if not isinstance(values, np.ndarray) else values
    array = np.asarray(given)
    if array.dtype.kind in "OUT":
        index = {name: k for k, name in enumerate(names)}
        index |= {None: UNKNOWN, "": UNKNOWN}  # type: ignore[dict-item]
        for value in given:
            if value not in index:
                raise unknown_label(value, names)
        array = np.array([index[value] for value in given], dtype=np.int64)
    if array.shape != (bags.n_instances,):
        raise DataError(f"instance_Y has shape {array.shape}, expected ({bags.n_instances},)")
    if not np.issubdtype(array.dtype, np.integer):
        raise DataError(f"instance_Y must hold label indices or names, got {array.dtype}")
    array = array.astype(np.int64, copy=False)
    outside = np.flatnonzero((array < UNKNOWN) | (array >= len(names)))
    if outside.size:
        row = outside[0]
        bag = bags.bag_ids[np.searchsorted(bags.offsets, row, side="right") - 1]
        raise DataError(
            f"instance {row} (bag {quoted(bag)}) has the label {array[row]}; labels are 0..{len(names) - 1}"
        )
    return array
