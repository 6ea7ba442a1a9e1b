"""The simplest bag embeddings: one row per bag by pooling its instances."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bagwise.base import BagTransformer, Traits
from bagwise.base.parameters import Several, check_parameters
from bagwise.compute.segment import segment_max, segment_mean, segment_sum
from bagwise.preprocessing.statistics import Statistic, bag_statistics

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
