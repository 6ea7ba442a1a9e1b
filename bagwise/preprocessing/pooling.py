"""One row per bag: statistics of its instances, several at once, dense or sparse.

Bags of equal size are stacked and sorted together, so that no loop runs over bags and no sum depends on the
order of instances. Sparse instances are looked at some bags at a time, in the columns that occur there.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from bagwise.bags import Bags, runs
from bagwise.base import BagTransformer, Traits
from bagwise.base.parameters import Choice, Number, Rule, Several, check_parameters
from bagwise.compute.segment import segment_max, segment_mean, segment_sum

NAMES = ("mean", "std", "min", "max", "sum", "size")
_CELLS = 1 << 22  # values sorted at a time


class Statistic(Rule):
    """The name of a statistic, or a quantile."""

    def takes(self, value: Any) -> bool:
        """Whether the value follows the rule."""
        return Choice(*NAMES).takes(value) or Number(0, 1).takes(value)

    def bad_examples(self) -> list[Any]:
        """A word that is in no list, and a share above 1."""
        return ["no such word", 1.5]

    def __str__(self) -> str:
        return f"{Choice(*NAMES)}, or a quantile from 0 to 1"


def bag_statistics(bags: Bags, statistics: Sequence[str | float]) -> Any:
    """Describe every bag by statistics of each feature.

    Parameters
    ----------
    bags : Bags
        The bags; an empty one gets zeros.
    statistics : sequence
        Among "mean", "std", "min", "max", "sum" and numbers from 0 to 1, which are quantiles, all of each
        feature; "size" is one column, the number of instances.

    Returns
    -------
    float64 array, or CSR if the instances are, of shape (n_bags, n_columns)
        All features by the first statistic, then by the second, and so on.

    Examples
    --------
    >>> bags = Bags.from_list([[[1.0, 0.0], [3.0, 4.0]], [[5.0, 5.0]]])
    >>> bag_statistics(bags, ["mean", 0.5, "max", "size"])
    array([[2., 2., 2., 2., 3., 4., 2.],
           [5., 5., 5., 5., 5., 5., 1.]])
    """
    if not bags.is_sparse:
        return _dense(bags.X, bags.offsets, statistics)
    some = runs(bags.offsets, max(_CELLS // max(bags.n_features, 1), 1))
    table = sparse.vstack([_sparse(bags[a:b], statistics) for a, b in some], format="csr")
    # scikit-learn takes sparse tables with 32-bit indices alone
    table.indices, table.indptr = table.indices.astype(np.int32), table.indptr.astype(np.int32)
    return table


def _sparse(bags: Bags, statistics: Sequence[str | float]) -> Any:
    """Statistics of a few sparse bags; columns without any value have statistics of zero."""
    d = bags.n_features
    columns = np.unique(bags.X.indices)
    table = _dense(bags.X[:, columns].toarray(), bags.offsets, statistics)
    where, start, taken = [], 0, 0
    for name in statistics:
        width, full = (1, 1) if name == "size" else (len(columns), d)
        where.append(start + (np.zeros(1, dtype=np.int64) if name == "size" else columns))
        start, taken = start + full, taken + width
    narrow = sparse.coo_array(table)
    place = np.concatenate(where) if where else np.empty(0, dtype=np.int64)
    return sparse.csr_array((narrow.data, (narrow.row, place[narrow.col])), shape=(len(bags), start))


def _dense(X: np.ndarray, offsets: np.ndarray, statistics: Sequence[str | float]) -> np.ndarray:
    sizes, d = np.diff(offsets), X.shape[1]
    widths = [1 if name == "size" else d for name in statistics]
    out = np.zeros((len(sizes), sum(widths)))
    order = np.argsort(sizes, kind="stable")
    kinds, first = np.unique(sizes[order], return_index=True)
    for size, alike in zip(kinds, np.split(order, first[1:])):
        if size == 0:
            continue
        at_once = max(_CELLS // (size * max(d, 1)), 1)
        for a in range(0, len(alike), at_once):
            some = alike[a : a + at_once]
            rows = offsets[some][:, None] + np.arange(size)
            stacked = X[rows].astype(np.float64)
            stacked.sort(axis=1)
            out[some] = np.concatenate([_one(stacked, name) for name in statistics], axis=1)
    return out


def _one(stacked: np.ndarray, name: str | float) -> np.ndarray:
    """One statistic of bags of equal size (n, size, d) with sorted values."""
    n, size, _ = stacked.shape
    if isinstance(name, Real):
        place = float(name) * (size - 1)
        low = int(place)
        high = min(low + 1, size - 1)
        return stacked[:, low] + (place - low) * (stacked[:, high] - stacked[:, low])
    if name == "size":
        return np.full((n, 1), float(size))
    if name == "min":
        return stacked[:, 0]
    if name == "max":
        return stacked[:, -1]
    if name == "std":
        return stacked.std(axis=1)
    return stacked.sum(axis=1) if name == "sum" else stacked.mean(axis=1)


# ----------------------------------------------------------------------
# The simplest bag embeddings: one row per bag by pooling its instances


_WITHOUT_SORTING = {"mean": segment_mean, "sum": segment_sum, "max": segment_max}


class BagPooling(BagTransformer):
    """Turn bags into a table by pooling each feature over the instances.

    Parameters
    ----------
    how : str, float, or sequence of them, default="mean"
        The pooling: "mean", "sum", "min", "max", "std", a number from 0 to 1, which is a quantile, or "size",
        the number of instances, as one column. Several give a table side by side: all features by the first,
        then all by the second, and so on. Empty bags give a row of zeros.

    Examples
    --------
    >>> from bagwise import Bags
    >>> bags = Bags.from_list([[[1.0, 0.0], [3.0, 4.0]], [[5.0, 5.0]]])
    >>> BagPooling().fit_transform(bags)
    array([[2., 2.],
           [5., 5.]])
    >>> pooling = BagPooling(["max", 0.5, "size"]).fit(bags)
    >>> pooling.transform(bags)
    array([[3., 4., 2., 2., 2.],
           [5., 5., 5., 5., 1.]])
    >>> pooling.get_feature_names_out().tolist()
    ['max_x0', 'max_x1', 'q0.5_x0', 'q0.5_x1', 'size']
    """

    traits = Traits(sparse=True, empty_bags=True)

    _parameters = {"how": (Statistic(), Several(Statistic()))}

    def __init__(self, how: Any = "mean") -> None:
        self.how = how

    def fit(self, X: Any, y: Any = None) -> BagPooling:
        """Check the bags; there is nothing to learn."""
        check_parameters(self, self._parameters)
        self._as_bags(X, reset=True)
        return self

    def transform(self, X: Any) -> Any:
        """Pool the instances of every bag; CSR stays CSR."""
        check_is_fitted(self, "n_features_in_")
        bags = self._as_bags(X, reset=False)
        names = self._names()
        if bags.is_sparse or not all(name in _WITHOUT_SORTING for name in names):
            return bag_statistics(bags, names)
        filled = (bags.sizes > 0)[:, None]
        pooled = [_WITHOUT_SORTING[name](bags.X, bags.offsets) for name in names]
        return np.where(filled, np.concatenate(pooled, axis=1), 0)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns: the pooling before the name of the feature."""
        check_is_fitted(self, "n_features_in_")
        given = getattr(self, "feature_names_in_", None) if input_features is None else input_features
        if given is None:
            given = [f"x{i}" for i in range(self.n_features_in_)]
        if len(given) != self.n_features_in_:
            raise ValueError(f"input_features has {len(given)} names, expected {self.n_features_in_}")
        names: list[str] = []
        for name in self._names():
            prefix = name if isinstance(name, str) else f"q{name:g}"
            names += ["size"] if name == "size" else [f"{prefix}_{feature}" for feature in given]
        return np.array(names, dtype=object)

    def _names(self) -> list[Any]:
        return [self.how] if isinstance(self.how, (str, int, float, np.number)) else list(self.how)
