"""The four forms of ``fit``: scikit-learn looks at the signature, so each class shows what it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bagwise.base._input import Traits
from bagwise.base.blocks import is_sharded
from bagwise.base.parameters import check_parameters
from bagwise.base.sharded import fit_sharded


def fit_plain(self: Any, X: Any, y: Any = None) -> Any:
    """Learn from bags and their labels.

    Parameters
    ----------
    X : Bags, list of 2-D arrays, table, or ShardedBags
        The bags.
    y : 0/1 matrix, DataFrame, lists of label names, or 1-D array of classes
        Their labels; left out for shards, which carry them inside.

    Returns
    -------
    self
    """
    check_parameters(self, self._parameters)
    if is_sharded(X):
        return fit_sharded(self, X, y)
    self._fit(*self._check_training(X, y))
    return self


def fit_weighted(self: Any, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
    """Learn from bags and their labels.

    Parameters
    ----------
    X : Bags, list of 2-D arrays, table, or ShardedBags
        The bags.
    y : 0/1 matrix, DataFrame, lists of label names, or 1-D array of classes
        Their labels; left out for shards, which carry them inside.
    sample_weight : array of shape (n_bags,), optional
        Weights of the bags.

    Returns
    -------
    self
    """
    check_parameters(self, self._parameters)
    if is_sharded(X):
        return fit_sharded(self, X, y, sample_weight=sample_weight)
    bags, targets = self._check_training(X, y)
    self._fit(bags, targets, self._check_weights(sample_weight, bags))
    return self


def fit_with_instances(self: Any, X: Any, y: Any = None, instance_y: Any = None) -> Any:
    """Learn from bags, their labels, and the labels of instances that are known.

    Parameters
    ----------
    X : Bags, list of 2-D arrays, table, or ShardedBags
        The bags.
    y : 0/1 matrix, DataFrame, lists of label names, or 1-D array of classes
        Their labels; left out for shards, which carry them inside.
    instance_y : array of shape (n_instances,) or (n_instances, n_labels), or str, optional
        Label index of every instance, -1 where it is not known; or a matrix: 1 where an instance carries
        a label, 0 where it does not, -1 where that is not known; or the name of the fact in
        ``bags.instance_info`` that holds either, which is cut with the bags in cross-validation.

    Returns
    -------
    self
    """
    check_parameters(self, self._parameters)
    if is_sharded(X):
        return fit_sharded(self, X, y, instance_y=instance_y)
    bags, targets = self._check_training(X, y)
    self._fit(bags, targets, self._check_instance_labels(instance_y, bags, targets))
    return self


def fit_weighted_with_instances(
    self: Any, X: Any, y: Any = None, sample_weight: Any = None, *, instance_y: Any = None
) -> Any:
    """Learn from bags, their labels, and the labels of instances that are known.

    Parameters
    ----------
    X : Bags, list of 2-D arrays, table, or ShardedBags
        The bags.
    y : 0/1 matrix, DataFrame, lists of label names, or 1-D array of classes
        Their labels; left out for shards, which carry them inside.
    sample_weight : array of shape (n_bags,), optional
        Weights of the bags.
    instance_y : array of shape (n_instances,) or (n_instances, n_labels), or str, optional
        Label index of every instance, -1 where it is not known; or a matrix: 1 where an instance carries
        a label, 0 where it does not, -1 where that is not known; or the name of the fact in
        ``bags.instance_info`` that holds either, which is cut with the bags in cross-validation.

    Returns
    -------
    self
    """
    check_parameters(self, self._parameters)
    if is_sharded(X):
        return fit_sharded(self, X, y, sample_weight=sample_weight, instance_y=instance_y)
    bags, targets = self._check_training(X, y)
    known = self._check_instance_labels(instance_y, bags, targets)
    self._fit(bags, targets, self._check_weights(sample_weight, bags), known)
    return self


def fit_several(models: Sequence[Any], X: Any, y: Any) -> None:
    """Fit models of one class to the same bags in memory, as ``fit`` does one after the other.

    A class that can do better has ``_fit_several(models, bags, Y)``, for models that are checked and know
    their features and labels.
    """
    together = getattr(type(models[0]), "_fit_several", None)
    if together is None:
        for model in models:
            model.fit(X, y)
        return
    for model in models:
        check_parameters(model, model._parameters)
        bags, targets = model._check_training(X, y)
    together(models, bags, targets)


for _form in (fit_plain, fit_weighted, fit_with_instances, fit_weighted_with_instances):
    _form.__name__ = "fit"


def fit_for(traits: Traits) -> Callable[..., Any]:
    """The form of ``fit`` that the traits promise."""
    if traits.known_instances:
        return fit_weighted_with_instances if traits.sample_weight else fit_with_instances
    return fit_weighted if traits.sample_weight else fit_plain
