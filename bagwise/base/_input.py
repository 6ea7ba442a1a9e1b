"""One door for data: what may come in as bags, and what is refused by name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import validate_data

from bagwise.bags import Bags, MultiViewBags, first_not_finite
from bagwise.base.blocks import is_sharded
from bagwise.errors import DataError, listed, quoted

_FEW = 1 << 20  # values whose sum is made at once; more are looked at in blocks, by several threads


@dataclass(frozen=True)
class Traits:
    """What an estimator can do; read by the common checks, `all_estimators`, the docs and the command line.

    Parameters
    ----------
    instances : "model" or "singleton"
        Whether instance scores come from a model of instances or from bags of one instance.
    probabilities : bool
        Whether ``predict_proba`` exists.
    sparse : bool
        Whether CSR instances are taken.
    views : bool
        Whether several views (`MultiViewBags`) are taken.
    empty_bags : bool
        Whether bags without instances are taken.
    label_equivariant : bool
        Whether permuting the labels permutes the output and changes nothing else.
    sample_weight : bool
        Whether ``fit`` takes ``sample_weight``, one weight per bag.
    known_instances : bool
        Whether ``fit`` takes ``instance_y``, labels of the instances that are known.
    instance_labels : bool
        Whether training needs the labels of instances (an upper bound, not weak supervision).
    missing_labels : bool
        Whether labels of training bags may be NaN: not known.
    device : tuple of str
        Where it can run.
    requires : tuple of str
        Packages beyond those that bagwise itself needs.
    shards : bool
        Whether ``fit`` takes `bagwise.ShardedBags`, data that need not fit into memory.
    """

    instances: Literal["model", "singleton"] = "singleton"
    probabilities: bool = False
    sparse: bool = True
    views: bool = False
    empty_bags: bool = False
    label_equivariant: bool = True
    sample_weight: bool = False
    known_instances: bool = False
    instance_labels: bool = False
    missing_labels: bool = False
    device: tuple[str, ...] = ("cpu",)
    requires: tuple[str, ...] = ()
    shards: bool = False


class BagInput(BaseEstimator):
    """Shared by classifiers and transformers: one door for data."""

    traits = Traits()
    view_features_in_: dict[str, int]  # where fit saw several views

    def _as_bags(self, X: Any, *, reset: bool) -> Any:
        """Bring ``X`` into bags and check them against what was seen in ``fit``."""
        if isinstance(X, MultiViewBags):
            return self._check_views(X, reset=reset)
        if hasattr(self, "view_features_in_"):
            if not reset:
                some = ", ".join(self.view_features_in_)
                raise DataError(f"X is a single view, but fit saw the views {some}; give a MultiViewBags")
            del self.view_features_in_  # of an earlier fit
        if not isinstance(X, Bags):
            if is_sharded(X):
                raise TypeError("shards are answered in parts here: for part in shards: ...(part.bags)")
            if is_list_of_bags(X):
                X = Bags.from_list(X)
            else:
                return self._table_as_bags(X, reset=reset)
        width = X.X.shape[1]
        if reset:
            self.n_features_in_ = width
            remember_names(self, X.feature_names)
        elif width != self.n_features_in_:
            raise DataError(
                f"X has {width} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )
        elif X.feature_names is not None and hasattr(self, "feature_names_in_"):
            if list(X.feature_names) != list(self.feature_names_in_):
                raise DataError("the features have other names or another order than in fit")
        if sparse.issparse(X.X) and not self.traits.sparse:
            raise DataError(f"{type(self).__name__} does not take sparse instances; use bags.X.toarray()")
        if len(X.offsets) == 1:
            raise DataError("Found array with 0 sample(s): there is no bag to learn from or to predict")
        if not self.traits.empty_bags and not (X.offsets[1:] > X.offsets[:-1]).all():
            raise _empty_bags(X, type(self).__name__)
        refuse_non_finite(X)
        return X

    def _table_as_bags(self, X: Any, *, reset: bool) -> Bags:
        """Take a plain table: every row is a bag of one instance."""
        accepted = "csr" if self.traits.sparse else False
        X = validate_data(self, X, reset=reset, accept_sparse=accepted, dtype=[np.float64, np.float32])
        return Bags(X, np.arange(X.shape[0] + 1))

    def _check_views(self, X: MultiViewBags, *, reset: bool) -> MultiViewBags:
        if not self.traits.views:
            raise TypeError(
                f"{type(self).__name__} takes one view; pick one with bags[name] "
                f"(the views are {', '.join(X.view_names)})"
            )
        shapes = {name: bags.n_features for name, bags in X.views.items()}
        if reset:
            self.n_features_in_ = X.shape[1]
            self.view_features_in_ = shapes
        elif not hasattr(self, "view_features_in_"):
            raise DataError("fit saw a single view; pick one with bags[name]")
        elif shapes != self.view_features_in_:
            raise DataError(f"the views are {shapes}, but fit saw {self.view_features_in_}")
        else:
            X = X.select(list(self.view_features_in_))  # views go by name, not by order
        if not self.traits.empty_bags and not X.sizes.all():
            raise _empty_bags(X, type(self).__name__)
        for bags in X.views.values():
            refuse_non_finite(bags)
        return X

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.traits.sparse
        return tags


def is_list_of_bags(X: Any) -> bool:
    """Whether ``X`` is a list of 2-D arrays, one per bag, or a 3-D array, rather than a table.

    Examples
    --------
    >>> is_list_of_bags([[[1.0, 2.0]], [[3.0, 4.0]]]), is_list_of_bags([[1.0, 2.0], [3.0, 4.0]])
    (True, False)
    """
    if isinstance(X, np.ndarray) and X.ndim == 3:
        return True
    if not isinstance(X, (list, tuple)) or len(X) == 0:
        return isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1 and _any_matrix(X)
    return _any_matrix(X)


def _any_matrix(items: Iterable[Any]) -> bool:
    for item in items:
        if sparse.issparse(item):
            return True
        if isinstance(item, np.ndarray):
            return item.ndim >= 2
        if isinstance(item, (list, tuple)) and len(item):
            return isinstance(item[0], (list, tuple, np.ndarray)) and np.ndim(item[0]) >= 1
        if np.ndim(item) == 0:
            return False
    return False


def refuse_non_finite(bags: Bags) -> None:
    """Raise an error that names the first bag with NaN or infinity."""
    values = bags.X.data if sparse.issparse(bags.X) else bags.X
    with np.errstate(over="ignore", invalid="ignore"):
        if values.size <= _FEW and np.isfinite(values.sum()):  # only then is every value
            return
    found = first_not_finite(bags.X)
    if found is None:
        return
    row = found[0]
    bag = bags.bag_ids[np.searchsorted(bags.offsets, row, side="right") - 1]
    raise DataError(
        f"Input X contains NaN or infinity: instance {row}, in bag {quoted(bag)}; fill or drop it first"
    )


def _empty_bags(bags: Any, name: str) -> DataError:
    some = listed(bags.bag_ids[bags.sizes == 0].tolist(), 5, show=repr)
    return DataError(f"{name} needs at least one instance per bag; empty: {some}; leave them out")


def remember_names(estimator: Any, names: tuple[str, ...] | None) -> None:
    if names is not None:
        estimator.feature_names_in_ = np.asarray(names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


# ----------------------------------------------------------------------
# The transformer: bags to bags, or bags to a table


class BagTransformer(TransformerMixin, BagInput):
    """Base of transformers that turn bags into bags, or bags into a table."""
