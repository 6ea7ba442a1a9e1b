"""Any scikit-learn transformer of rows, applied to the instances of bags."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from bagwise.bags import Bags, MultiViewBags
from bagwise.base import BagTransformer, Traits
from bagwise.base._fits import remember_input
from bagwise.base.blocks import is_sharded


class OnInstances(BagTransformer):
    """Apply a scikit-learn transformer to the instance matrix; bags, ids and facts stay as they are.

    Parameters
    ----------
    transformer : transformer
        For example ``StandardScaler()``; it is fitted on the instances of all training bags.
    view : str, optional
        For several views: the one to transform. The others pass through.

    Attributes
    ----------
    transformer_ : transformer
        The fitted transformer.

    Examples
    --------
    >>> from sklearn.preprocessing import StandardScaler
    >>> from bagwise import Bags
    >>> bags = Bags.from_list([[[1.0], [3.0]], [[5.0]]])
    >>> OnInstances(StandardScaler()).fit_transform(bags).X.ravel().round(2)
    array([-1.22,  0.  ,  1.22])
    """

    traits = Traits(sparse=True, views=True, empty_bags=True)

    def __init__(self, transformer: Any, *, view: str | None = None) -> None:
        self.transformer = transformer
        self.view = view

    def fit(self, X: Any, y: Any = None) -> OnInstances:
        """Fit the transformer to the instances of all bags; on shards by its ``partial_fit``."""
        if is_sharded(X):
            return self._fit_shards(X)
        bags = self._one_view(self._as_bags(X, reset=True))
        self._start()
        self.transformer_.fit(bags.X)
        return self

    def _start(self) -> None:
        self.transformer_ = clone(self.transformer)
        if hasattr(self.transformer_, "set_output"):
            # a global transform_output="pandas" would turn instances into frames behind our back
            self.transformer_.set_output(transform="default")

    def _fit_shards(self, shards: Any) -> OnInstances:
        remember_input(self, shards)
        self._start()
        parts = (part.bags.X for part in shards if part.bags.n_instances)
        if shards.n_parts == 1 or not get_tags(self.transformer_).requires_fit:
            self.transformer_.fit(next(parts))
        elif hasattr(self.transformer_, "partial_fit"):
            for X in parts:
                self.transformer_.partial_fit(X)
        else:
            name = type(self.transformer_).__name__
            raise TypeError(
                f"{name} needs all instances at once; on shards use a transformer with partial_fit "
                "(StandardScaler, MinMaxScaler, IncrementalPCA), or fit it to shards.sample(n).bags"
            )
        return self

    def transform(self, X: Any) -> Bags | MultiViewBags:
        """Transform the instances of bags; shards are transformed part by part when they are read."""
        check_is_fitted(self)
        if is_sharded(X):
            return X.after(self)
        given = self._as_bags(X, reset=False)
        bags = self._one_view(given)
        result = bags.with_X(self.transformer_.transform(bags.X))
        if isinstance(given, MultiViewBags):
            return MultiViewBags({**given.views, str(self.view): result})
        return result

    def _one_view(self, bags: Bags | MultiViewBags) -> Bags:
        if isinstance(bags, Bags):
            return bags
        if self.view is None:
            raise TypeError(f"say which view to transform: OnInstances(..., view={bags.view_names[0]!r})")
        return bags[self.view]
