"""``Dataset``: bags with what is known about them; the only place where the truth about instances lives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from bagwise.bags import ONE_VIEW, Bags, MultiViewBags, bag_numbers, instance_rows, views_of
from bagwise.bags.columns import Roles
from bagwise.bags.frames import MOST_FLAGS, bag_columns, bags_frame, dataset_html
from bagwise.bags.labels import dense_labels, in_bag_order, label_sets, stored_labels, unknown_label
from bagwise.errors import DataError, quoted

__all__ = ["MOST_FLAGS", "UNKNOWN", "Dataset", "bag_columns"]


UNKNOWN = -1  # instance label that nobody wrote down


class _LabelMatrix:
    """The attribute ``Y``: a plain array for all who ask, kept as ``_Y``, sparse where it is very large."""

    def __get__(self, data: Any, owner: Any = None) -> Any:
        return None if data is None else dense_labels(data._Y)

    def __set__(self, data: Any, value: Any) -> None:
        data.__dict__["_Y"] = value


@dataclass(frozen=True, eq=False)
class Dataset:
    """Bags, their label sets and, where known, the label of each instance.

    Parameters
    ----------
    bags : Bags or MultiViewBags
        The bags.
    Y : matrix, DataFrame, lists of label names, or mapping, optional
        Bag labels; an int8 0/1 matrix (n_bags, n_labels). A DataFrame or Series with an index of bag ids is
        matched to the bags by id, see `bagwise.bags.labels.in_bag_order`. Without labels (None) the matrix
        has no columns and ``has_labels`` is False.
    label_names : sequence of str, optional
        Names of the labels; see `bagwise.bags.labels.label_matrix` for the defaults.
    instance_Y : array of shape (n_instances,), optional
        Label index of each instance, -1 where unknown. A mapping view -> array for several views.
    name, description, citation, licence : str, optional
        Where the data come from.
    groups : array of shape (n_bags,), optional
        Bags of one group belong on the same side of a split (recordings of one day, slides of one patient).
    splits : mapping of str to bag numbers, optional
        Published parts, such as ``{"train": ..., "test": ...}``.
    roles : Roles, optional
        For data from a table, what each column was taken for; ``print(data.roles)`` is one line.
    recipe : dict, optional
        How the bags were made from files, for data that `bagwise.media.gather` made: a model that is fitted
        to them by ``bagwise fit`` makes bags from new files in the same way.

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

    _Y: ClassVar[Any]
    bags: Bags | MultiViewBags
    Y: np.ndarray = _LabelMatrix()  # type: ignore[assignment]
    label_names: tuple[str, ...] = ()
    instance_Y: Any = None
    name: str = ""
    description: str = ""
    citation: str = ""
    licence: str = ""
    groups: np.ndarray | None = None
    splits: Mapping[str, np.ndarray] = field(default_factory=dict)
    roles: Roles | None = None
    recipe: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.bags, (Bags, MultiViewBags)):
            raise TypeError(f"bags must be Bags or MultiViewBags, got {type(self.bags).__name__}")
        n_bags, ids, names = len(self.bags), self.bags.bag_ids, tuple(self.label_names)
        given = self._Y
        if given is not None:
            Y, names = stored_labels(in_bag_order(given, self.bags), names or None, ids)
        elif names:
            raise DataError(f"{len(names)} label names, but no labels (Y is None)")
        else:
            Y = np.zeros((n_bags, 0), dtype=np.int8)
        if Y.shape[0] != n_bags:
            raise DataError(f"{Y.shape[0]} rows of labels for {n_bags} bags")
        set_once = object.__setattr__
        set_once(self, "Y", Y)
        set_once(self, "label_names", names)
        known, bags = self.instance_Y, self.bags
        if known is not None and isinstance(bags, Bags):
            known = _instance_labels(known, bags, names)
        elif known is not None:
            if not isinstance(known, Mapping):
                raise TypeError("several views need instance_Y as a mapping view -> labels of its instances")
            known = {view: _instance_labels(values, bags[view], names) for view, values in known.items()}
        set_once(self, "instance_Y", known)
        if self.groups is not None:
            groups = np.asarray(in_bag_order(self.groups, self.bags, "groups"))
            if len(groups) != n_bags:
                raise DataError(f"{len(groups)} groups for {n_bags} bags")
            set_once(self, "groups", groups)
        splits = {str(k): bag_numbers(v, n_bags) for k, v in self.splits.items()}
        set_once(self, "splits", splits)
        if self.recipe is not None and not isinstance(self.recipe, Mapping):
            raise TypeError(f"recipe must be a mapping, got {type(self.recipe).__name__}")

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        bag: str = "bag_id",
        features: str | Sequence[str] | None = None,
        *,
        labels: Any = None,
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
            As in `Bags.from_frame`; label columns are never taken for features, and neither are further
            columns of 0 and 1 that are constant within bags when ``labels`` are such columns.
        labels : str, sequence of str, mapping, Series or DataFrame, optional
            Columns of 0/1 per label, constant within a bag; one column of names ("a;b" or lists); or labels
            by bag id: a mapping or Series of names (lists or "a;b"), a DataFrame of 0/1 columns whose index
            or column ``bag`` holds the ids. By default the columns ``label:<name>``, or ``labels``.
        instance_label : str, optional
            Column with the label name of each instance, empty or null where unknown; by default
            ``instance_label``. Without labels of bags, a bag has those of its instances.
        **about
            Further arguments of `Dataset`. The columns ``group`` and ``splits``, and ``info:<name>`` for
            facts, are found by their names.

        Examples
        --------
        >>> import pyarrow as pa
        >>> table = pa.table({"bag_id": ["x", "x", "y"], "f": [0.0, 1.0, 2.0], "wren": [1, 1, 0]})
        >>> data = Dataset.from_frame(table, labels=["wren"])
        >>> data.Y.ravel().tolist()
        [1, 0]
        >>> print(data.roles)
        bag: bag_id; label: wren; feature: f
        >>> Dataset.from_frame(table, features=["f"], labels={"x": "wren;robin", "y": ""}).label_sets
        [['robin', 'wren'], []]
        """
        from bagwise.bags.table import parts_of_frame  # pyarrow is slow to import

        return cls(**{**parts_of_frame(frame, bag, features, labels, instance_label, info), **about})

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per instance, in the layout of our long CSV.

        Columns are ``bag_id``, ``labels`` (names with ``;`` between them; ``label:<name>`` of 0 and 1 where
        that would not give the same labels back), ``instance_label``, ``group``, ``splits``, the features and
        ``info:<name>``. `from_frame` reads it back.

        Examples
        --------
        >>> data = Dataset(Bags.from_list([[[1.0]], [[2.0], [3.0]]]), [["robin", "wren"], ["wren"]])
        >>> data.to_frame()
           bag_id      labels   f1
        0       0  robin;wren  1.0
        1       1        wren  2.0
        2       1        wren  3.0
        """
        if isinstance(self.bags, MultiViewBags):
            views = ", ".join(self.bags.view_names)
            raise DataError(
                f"a frame has one row per instance, and views ({views}) have their own; "
                "use data.bags[view].to_frame()"
            )
        index = self.bags.index
        beside = {name: np.asarray(values)[index] for name, values in bag_columns(self).items()}
        if self.instance_Y is not None:
            beside["instance_label"] = np.asarray([*self.label_names, ""], dtype=object)[self.instance_Y]
        return bags_frame(self.bags, beside)

    @classmethod
    def concat(cls, pieces: Iterable[Dataset]) -> Dataset:
        """One data set of several, in order; label names that differ become their sorted union.

        Examples
        --------
        >>> one = Dataset(Bags([[1.0]], [0, 1]), [["wren"]])
        >>> two = Dataset(Bags([[2.0]], [0, 1]), [["robin"]])
        >>> Dataset.concat([one, two]).label_sets
        [['wren'], ['robin']]
        """
        pieces = list(pieces)
        if not pieces:
            raise DataError("concat needs at least one Dataset")
        first = pieces[0]
        if len(pieces) == 1:
            return first
        several = isinstance(first.bags, MultiViewBags)
        names = joined_names([piece.label_names for piece in pieces])
        starts = np.cumsum([0] + [len(piece) for piece in pieces])
        splits: dict[str, list[np.ndarray]] = {}
        for piece, start in zip(pieces, starts):
            for name, which in piece.splits.items():
                splits.setdefault(name, []).append(which + start)
        groups = [piece.groups for piece in pieces]
        if any(g is None for g in groups) != all(g is None for g in groups):
            raise DataError("some pieces have groups and others have none; give them all, or none")
        known = None
        if any(piece.instance_Y is not None for piece in pieces):
            known = {}
            for view in views_of(first.bags):
                parts = []
                for piece in pieces:
                    its = piece.instance_Y
                    its = its.get(view) if isinstance(its, Mapping) else its
                    n = views_of(piece.bags)[view].n_instances
                    parts.append(np.full(n, UNKNOWN) if its is None else _places(piece, names)[its])
                known[view] = np.concatenate(parts)
        Y = sparse.vstack([_in_columns(piece, names) for piece in pieces], format="csr") if names else None
        return replace(
            first,
            bags=(MultiViewBags if several else Bags).concat([piece.bags for piece in pieces]),  # type: ignore
            Y=Y,  # type: ignore[arg-type]
            label_names=names,
            instance_Y=known if several or known is None else known[ONE_VIEW],
            groups=None if groups[0] is None else np.concatenate(groups),  # type: ignore[arg-type]
            splits={name: np.concatenate(which) for name, which in splits.items()},
            roles=None,
            recipe=first.recipe if all(piece.recipe == first.recipe for piece in pieces) else None,
        )

    def __len__(self) -> int:
        return len(self.bags)

    def __repr__(self) -> str:
        known = "" if self.instance_Y is None else ", instance labels known"
        title = f"{self.name!r}: " if self.name else ""
        labels = f"{len(self.label_names)} labels" if self.has_labels else "no labels"
        return f"Dataset({title}{self.bags!r}, {labels}{known})"

    def _repr_html_(self) -> str:
        return dataset_html(self)

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
            self, bags=self.bags[cut], Y=self._Y[which], instance_Y=instance_Y, groups=groups, splits={}
        )

    def labelled_bags(self, fact: str = "label") -> Bags:
        """Bags that carry their instances' labels as a fact, for models that are shown the truth.

        The labels sit in ``instance_info[fact]``, so splitting bags splits them too.
        """
        if self.instance_Y is None or isinstance(self.bags, MultiViewBags):
            raise DataError("instance labels are not known for this data set, or it has several views")
        return self.bags.with_info(**{fact: self.instance_Y})

    @property
    def has_labels(self) -> bool:
        """Whether there are labels at all; a data set to be predicted may have none."""
        return len(self.label_names) > 0

    @property
    def Y_sparse(self) -> sparse.csr_array:
        """The label matrix as CSR of int8, also where it is too large to be written out as ``Y``."""
        return sparse.csr_array(self._Y)

    @property
    def label_counts(self) -> np.ndarray:
        """Number of bags with each label."""
        return np.asarray(self._Y.sum(axis=0, dtype=np.int64)).ravel()

    @property
    def label_sets(self) -> list[list[str]]:
        """Names of the labels of every bag."""
        return label_sets(self._Y, self.label_names)

    @property
    def cardinality(self) -> float:
        """Mean number of labels per bag."""
        return float(self.label_counts.sum() / len(self)) if len(self) else 0.0


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


def joined_names(names: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Label names in the order that all have, or sorted where they differ."""
    different = set(names)
    if len(different) == 1:
        return tuple(names[0])
    return tuple(sorted(set().union(*different)))


def _places(piece: Dataset, names: tuple[str, ...]) -> np.ndarray:
    """Place of each label of a piece among the common names; the last entry is for -1."""
    place = {name: k for k, name in enumerate(names)}
    return np.array([place[name] for name in piece.label_names] + [UNKNOWN], dtype=np.int64)


def _in_columns(piece: Dataset, names: tuple[str, ...]) -> sparse.csr_array:
    """Labels of a piece in columns of the common names."""
    Y = piece.Y_sparse
    if piece.label_names == names:
        return Y
    moved = sparse.csr_array(
        (Y.data, _places(piece, names)[Y.indices], Y.indptr), shape=(len(piece), len(names))
    )
    moved.sort_indices()
    return moved
