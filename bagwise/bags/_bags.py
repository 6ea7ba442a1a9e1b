"""One view: instances in one matrix, bags as runs of its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from scipy import sparse

from bagwise.bags._rows import (
    Matrix,
    as_column,
    as_info,
    as_matrix,
    bag_numbers,
    instance_rows,
    row_range,
    rows_of_list,
    stack_rows,
)
from bagwise.bags._store import open_bags, save_bags
from bagwise.bags.frames import bags_frame, bags_html
from bagwise.errors import DataError
from bagwise.utils.arrays import checked_offsets


class Bags:
    """Bags of instances: one contiguous matrix and the places where bags begin.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_instances, n_features)
        Instances, those of a bag next to each other. float32 and float64 are kept and, when
        C-contiguous, not copied (memory maps included); other numbers are converted. Sparse input
        is kept as CSR.
    offsets : array-like of shape (n_bags + 1,)
        Where bags begin; starts at 0, ends at ``n_instances``. Equal neighbours make an empty bag.
    bag_ids : array-like of shape (n_bags,), optional
        Names of the bags for messages and files; positions when left out. They travel with the bags.
    instance_info : mapping or DataFrame, optional
        Facts about each instance (a box, a time span, a text span): name -> array whose first
        dimension is ``n_instances``. They are cut along with the bags; models never see them.
    feature_names : sequence of str, optional
        Names of the columns of ``X``.

    Attributes
    ----------
    ids_given : bool
        Whether ``bag_ids`` were given. Cutting keeps the difference: bags without names keep their places
        as ids, but those name nothing beyond this container.

    Examples
    --------
    >>> import numpy as np
    >>> bags = Bags.from_list([np.ones((2, 3)), np.zeros((1, 3)), np.ones((4, 3))])
    >>> bags
    Bags(3 bags, 7 instances, 3 features, dense float64)
    >>> bags.sizes
    array([2, 1, 4])
    >>> bags[1:]            # shares memory
    Bags(2 bags, 5 instances, 3 features, dense float64)
    >>> bags[[2, 0]].bag_ids
    array([2, 0])
    """

    def __init__(
        self,
        X: Any,
        offsets: Any,
        *,
        bag_ids: Any = None,
        instance_info: Any = None,
        feature_names: Iterable[str] | None = None,
    ) -> None:
        self.X: Matrix = as_matrix(X)
        self.offsets: np.ndarray = checked_offsets(offsets, self.X.shape[0])
        self._bag_ids = None if bag_ids is None else as_column("bag_ids", bag_ids, len(self.offsets) - 1)
        self.ids_given: bool = bag_ids is not None
        info = {} if instance_info is None else as_info(instance_info, self.X.shape[0])
        self.instance_info: dict[str, np.ndarray] = info
        self.feature_names: tuple[str, ...] | None = None
        if feature_names is not None:
            self.feature_names = tuple(str(name) for name in feature_names)
            if len(self.feature_names) != self.n_features:
                raise DataError(
                    f"feature_names has {len(self.feature_names)} names for {self.n_features} columns of X"
                )

    # ------------------------------------------------------------------ other ways to make bags

    @classmethod
    def from_list(
        cls,
        arrays: Iterable[Any],
        *,
        bag_ids: Any = None,
        instance_info: Any = None,
        feature_names: Iterable[str] | None = None,
    ) -> Bags:
        """Make bags from one 2-D array (dense or sparse) per bag, or from a 3-D array of bags of equal size.

        Examples
        --------
        >>> Bags.from_list([[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]]).offsets
        array([0, 1, 3])
        >>> Bags.from_list(np.ones((4, 3, 2)))
        Bags(4 bags, 12 instances, 2 features, dense float64)
        """
        if isinstance(arrays, np.ndarray) and arrays.ndim == 3:
            n_bags, size, width = arrays.shape
            return cls(
                arrays.reshape(n_bags * size, width),
                np.arange(n_bags + 1) * size,
                bag_ids=bag_ids,
                instance_info=instance_info,
                feature_names=feature_names,
            )
        X, offsets = rows_of_list(list(arrays), bag_ids)
        return cls(X, offsets, bag_ids=bag_ids, instance_info=instance_info, feature_names=feature_names)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        bag: str = "bag_id",
        features: str | Sequence[str] | None = None,
        info: Sequence[str] = (),
    ) -> Bags:
        """Make bags from a long table with one row per instance.

        Parameters
        ----------
        frame : DataFrame or table
            pandas, polars, pyarrow or anything else that speaks the Arrow C stream protocol.
        bag : str, default="bag_id"
            Column (or level of a pandas index) that says to which bag a row belongs. Rows need not be
            sorted; bags keep the order of their first row, rows their order within a bag.
        features : str or sequence of str, optional
            Feature columns, or one column of lists of numbers such as an embedding. By default every
            numeric column that is neither ``bag`` nor in ``info``, except those whose names say that they
            are something else (ids, row numbers, labels, places and times, groups); a warning names them.
        info : sequence of str, default=()
            Columns kept as ``instance_info``.

        Examples
        --------
        >>> import pyarrow as pa
        >>> table = pa.table({"bag_id": ["x", "y", "x"], "f1": [1.0, 2.0, 3.0], "word": ["a", "b", "c"]})
        >>> bags = Bags.from_frame(table, info=["word"])
        >>> bags.bag_ids.tolist(), bags.sizes.tolist(), bags.instance_info["word"].tolist()
        (['x', 'y'], [2, 1], ['a', 'c', 'b'])
        >>> table = pa.table({"bag_id": ["x", "x"], "embedding": [[1.0, 2.0], [3.0, 4.0]]})
        >>> Bags.from_frame(table, features="embedding").X.tolist()
        [[1.0, 2.0], [3.0, 4.0]]
        """
        from bagwise.bags.table import parts_of_frame  # pyarrow is slow to import

        return parts_of_frame(frame, bag, features, info=info, by_name=False)["bags"]

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per instance: ``bag_id``, features, ``info:<name>``.

        Features without names are called f1, f2, ...; a sparse matrix becomes sparse columns. Facts with
        more than one value per instance are lists. A bag without instances has no row.

        Examples
        --------
        >>> Bags.from_list([[[1.0]], [[2.0], [3.0]]], bag_ids=["x", "y"]).to_frame()
          bag_id   f1
        0      x  1.0
        1      y  2.0
        2      y  3.0
        """
        return bags_frame(self)

    def _repr_html_(self) -> str:
        return bags_html(self)

    @classmethod
    def from_arrow(
        cls,
        column: Any,
        *,
        n_features: int | None = None,
        bag_ids: Any = None,
        feature_names: Iterable[str] | None = None,
    ) -> Bags:
        """Make bags from an Arrow list column: one list of instances per row.

        ``list<fixed_size_list<float, d>>`` (also ``large_list``) becomes a dense matrix without copy,
        ``list<list<struct<index, value>>>`` a CSR matrix; see `to_arrow`. Sparse lists do not know
        how wide they are: give ``n_features``, or the highest index found decides.

        Examples
        --------
        >>> import pyarrow as pa
        >>> Bags.from_arrow(pa.array([[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]]))
        Bags(2 bags, 3 instances, 2 features, dense float64)
        """
        from bagwise.bags.arrow import ragged_from_arrow

        X, offsets = ragged_from_arrow(column, n_features)
        return cls(X, offsets, bag_ids=bag_ids, feature_names=feature_names)

    def to_arrow(self) -> Any:
        """Return the instances as an Arrow list array with ``self.offsets`` (no copy if dense)."""
        from bagwise.bags.arrow import ragged_to_arrow

        return ragged_to_arrow(self.X, self.offsets)

    @classmethod
    def concat(cls, parts: Iterable[Bags]) -> Bags:
        """Join several containers with the same features, one after the other."""
        items = list(parts)
        if not items:
            raise DataError("concat needs at least one Bags")
        first = items[0]
        for k, part in enumerate(items):
            if part.n_features != first.n_features:
                raise DataError(f"part {k} has {part.n_features} features, part 0 has {first.n_features}")
            if part.feature_names is not None and first.feature_names is not None:
                if part.feature_names != first.feature_names:
                    raise DataError(
                        f"part {k} has other feature names than part 0; reorder its columns first"
                    )
            if set(part.instance_info) != set(first.instance_info):
                raise DataError(
                    f"part {k} has instance_info {sorted(part.instance_info)}, "
                    f"part 0 has {sorted(first.instance_info)}; keep the same facts in all parts"
                )
        starts = np.cumsum([0] + [part.n_instances for part in items])
        offsets = np.concatenate([[0], *(part.offsets[1:] + s for part, s in zip(items, starts))])
        info = {
            name: np.concatenate([part.instance_info[name] for part in items]) for name in first.instance_info
        }
        kept = any(part._bag_ids is not None for part in items)
        ids = np.concatenate([part.bag_ids for part in items]) if kept else None
        X = stack_rows([part.X for part in items])
        joined = cls(X, offsets, bag_ids=ids, instance_info=info, feature_names=first.feature_names)
        joined.ids_given = any(part.ids_given for part in items)
        return joined

    # ------------------------------------------------------------------ what is inside

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def shape(self) -> tuple[int, int]:
        """(n_bags, n_features): what scikit-learn needs in order to split bags like rows of an array."""
        return len(self), self.n_features

    @property
    def n_features(self) -> int:
        """Number of columns of ``X``."""
        return int(self.X.shape[1])

    @property
    def n_instances(self) -> int:
        """Number of rows of ``X``."""
        return int(self.X.shape[0])

    @property
    def dtype(self) -> np.dtype:
        """Number type of the instances."""
        return self.X.dtype

    @property
    def is_sparse(self) -> bool:
        """Whether ``X`` is a CSR matrix."""
        return sparse.issparse(self.X)

    @property
    def bag_ids(self) -> np.ndarray:
        """Names of the bags; positions if none were given."""
        return np.arange(len(self)) if self._bag_ids is None else self._bag_ids

    @property
    def has_bag_ids(self) -> bool:
        """Whether bags carry ids other than their positions: given ones, or places before a cut."""
        return self._bag_ids is not None

    @property
    def sizes(self) -> np.ndarray:
        """Number of instances of each bag."""
        return np.diff(self.offsets)

    @cached_property
    def index(self) -> np.ndarray:
        """Bag number of every instance: the other spelling of ``offsets``."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def __repr__(self) -> str:
        kind = "sparse" if self.is_sparse else "dense"
        return (
            f"Bags({len(self)} bags, {self.n_instances} instances, {self.n_features} features, "
            f"{kind} {self.dtype})"
        )

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            "Bags is not an array: bags differ in size. Use bags.X for the instance matrix, "
            "OnInstances(transformer) to apply a scikit-learn transformer to it, or a bag embedding."
        )

    def equals(self, other: object) -> bool:
        """Whether the other container holds the same bags, ids, facts and names."""
        if not isinstance(other, Bags) or self.shape != other.shape or self.is_sparse != other.is_sparse:
            return False
        same_X = (self.X != other.X).nnz == 0 if self.is_sparse else np.array_equal(self.X, other.X)
        return bool(
            np.array_equal(self.offsets, other.offsets)
            and same_X
            and np.array_equal(self.bag_ids, other.bag_ids)
            and self.feature_names == other.feature_names
            and self.instance_info.keys() == other.instance_info.keys()
            and all(np.array_equal(v, other.instance_info[k]) for k, v in self.instance_info.items())
        )

    # ------------------------------------------------------------------ cutting

    def __iter__(self) -> Iterator[Matrix]:
        for a, b in zip(self.offsets[:-1], self.offsets[1:]):
            yield row_range(self.X, a, b)

    def __getitem__(self, key: Any) -> Any:
        """``bags[i]`` is one bag's matrix; slices share memory, arrays, masks and lists gather.

        ``bags[key, ...]`` is ``bags[key]``; ``bags[key, columns]`` also selects features.
        """
        columns: Any = Ellipsis
        if isinstance(key, tuple):
            if len(key) != 2:
                raise IndexError(f"bags take one or two indices (bags, features), got {len(key)}")
            key, columns = key
        if isinstance(key, (int, np.integer)):
            i = range(len(self))[int(key)]  # negative numbers, and IndexError when out of range
            rows = row_range(self.X, self.offsets[i], self.offsets[i + 1])
            return rows if columns is Ellipsis else rows[:, columns]
        cut = self if key is Ellipsis else self._cut(key)
        if columns is Ellipsis:
            return cut
        names = None if cut.feature_names is None else np.asarray(cut.feature_names)[columns].tolist()
        return cut.with_X(cut.X[:, columns], feature_names=names)

    def _cut(self, key: Any) -> Bags:
        """The bags that a slice, numbers or a mask name; consecutive ones share memory with these."""
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step == 1:
                stop = max(stop, start)
                a, b = self.offsets[start], self.offsets[stop]
                info = {name: values[a:b] for name, values in self.instance_info.items()}
                offsets = self.offsets[start : stop + 1] - a
                return self._derive(row_range(self.X, a, b), offsets, self.bag_ids[start:stop], info)
            key = np.arange(start, stop, step)
        which = bag_numbers(key, len(self))
        rows, offsets = instance_rows(self.offsets, which)
        X = self.X[rows] if sparse.issparse(self.X) else self.X.take(rows, axis=0)
        info = {name: values[rows] for name, values in self.instance_info.items()}
        return self._derive(X, offsets, self.bag_ids[which], info)

    def _derive(self, X: Matrix, offsets: np.ndarray, bag_ids: Any, info: dict[str, np.ndarray]) -> Bags:
        """Build bags from parts already known to be right, without checking them again."""
        new = object.__new__(Bags)
        new.X, new.offsets, new._bag_ids = X, offsets, bag_ids
        new.instance_info, new.feature_names = info, self.feature_names
        new.ids_given = self.ids_given
        return new

    def with_X(self, X: Any, feature_names: Iterable[str] | None = None) -> Bags:
        """Return the same bags with other features for the same instances."""
        new = Bags(
            X,
            self.offsets,
            bag_ids=self._bag_ids,
            instance_info=self.instance_info,
            feature_names=feature_names,
        )
        new.ids_given = self.ids_given
        return new

    def with_info(self, **facts: Any) -> Bags:
        """Return the same bags with further facts about their instances.

        Examples
        --------
        >>> Bags.from_list([[[1.0], [2.0]]]).with_info(word=["a", "b"]).instance_info["word"].tolist()
        ['a', 'b']
        """
        info = {**self.instance_info, **as_info(facts, self.n_instances)}
        return self._derive(self.X, self.offsets, self._bag_ids, info)

    def with_ids(self, bag_ids: Any) -> Bags:
        """Return the same bags under other names.

        Examples
        --------
        >>> Bags.from_list([[[1.0]], [[2.0]]]).with_ids(["a", "b"]).bag_ids.tolist()
        ['a', 'b']
        """
        ids = as_column("bag_ids", bag_ids, len(self))
        new = self._derive(self.X, self.offsets, ids, self.instance_info)
        new.ids_given = True
        return new

    def singletons(self) -> Bags:
        """Every instance as its own bag, without copying; ids become row numbers of ``X``."""
        offsets = np.arange(self.n_instances + 1, dtype=np.int64)
        return self._derive(self.X, offsets, None, self.instance_info).numbered()

    def numbered(self, first: int | None = None) -> Bags:
        """Return the same bags without names, called by position, or by numbers from ``first`` on."""
        ids = None if first is None else np.arange(first, first + len(self))
        new = self._derive(self.X, self.offsets, ids, self.instance_info)
        new.ids_given = False
        return new

    # ------------------------------------------------------------------ a folder of memory maps

    def save(self, folder: str | Path) -> None:
        """Write a folder of ``.npy`` files that `open` maps into memory.

        An earlier state in the folder is replaced in one step when all is written; a folder with files of
        others is refused.
        """
        save_bags(self, folder)

    @classmethod
    def open(cls, folder: str | Path, *, check: bool = True) -> Bags:
        """Open what `save` wrote as memory maps, which take no memory of their own.

        Parameters
        ----------
        folder : path
            The folder.
        check : bool, default=True
            Whether to read everything once, to be sure that indices fit and numbers are finite. Without it a
            damaged folder may end the process later.
        """
        return open_bags(cls, folder, check)
