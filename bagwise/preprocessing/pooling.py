"""The simplest bag embeddings: one row per bag by pooling its instances."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from bagwise.base import BagTransformer, Traits
from bagwise.kernels.segment import segment_max, segment_mean, segment_sum


class BagPooling(BagTransformer):
    """Turn bags into a table by pooling each feature over the instances.

    Parameters
    ----------
    how : {"mean", "sum", "max"}, default="mean"
        The pooling. Empty bags give a row of zeros.

    Examples
    --------
    >>> from bagwise import Bags
    >>> bags = Bags.from_list([[[1.0, 0.0], [3.0, 4.0]], [[5.0, 5.0]]])
    >>> BagPooling().fit_transform(bags)
    array([[2., 2.],
           [5., 5.]])
    """

    traits = Traits(sparse=True, empty_bags=True)

    def __init__(self, how: str = "mean") -> None:
        self.how = how

    def fit(self, X: Any, y: Any = None) -> BagPooling:
        """Check the bags; there is nothing to learn."""
        if self.how not in ("mean", "sum", "max"):
            raise ValueError(f"how must be 'mean', 'sum' or 'max', got {self.how!r}")
        self._as_bags(X, reset=True)
        return self

    def transform(self, X: Any) -> Any:
        """Pool the instances of every bag; CSR stays CSR for mean and sum."""
        check_is_fitted(self, "n_features_in_")
        bags = self._as_bags(X, reset=False)
        filled = (bags.sizes > 0)[:, None]
        if bags.is_sparse:
            if self.how == "max":
                raise ValueError("max pooling of sparse instances would fill the table; use 'mean' or 'sum'")
            member = np.ones(bags.n_instances, dtype=bags.dtype)
            shape = (len(bags), bags.n_instances)
            pool = sparse.csr_array((member, np.arange(bags.n_instances), bags.offsets), shape=shape)
            if self.how == "mean":
                pool = sparse.diags_array(1.0 / np.maximum(bags.sizes, 1)) @ pool
            return pool @ bags.X
        pooled = {"mean": segment_mean, "sum": segment_sum, "max": segment_max}[self.how](
            bags.X, bags.offsets
        )
        return np.where(filled, pooled, 0)
