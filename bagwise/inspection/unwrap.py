"""The methods of the contract through pipelines and searches, which do not forward them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from bagwise.bags import Bags
from bagwise.base import best_rows, is_list_of_bags


def unwrap(model: Any, X: Any) -> tuple[Any, Any]:
    """Return the last estimator inside searches and pipelines, and the bags as it sees them."""
    while True:
        if hasattr(model, "best_estimator_"):
            model = model.best_estimator_
        elif isinstance(model, Pipeline):
            X = model[:-1].transform(X) if len(model.steps) > 1 else X
            model = model.steps[-1][1]
        else:
            return model, X


def instance_scores(model: Any, X: Any) -> np.ndarray:
    """Score every label for every instance with any model of bags.

    A model without `instance_scores` is asked about bags of one instance each.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from bagwise.models import MIMLDummy
    >>> from bagwise.preprocessing import OnInstances
    >>> bags = Bags.from_list([[[1.0], [2.0]], [[3.0]]])
    >>> pipeline = make_pipeline(OnInstances(StandardScaler()), MIMLDummy()).fit(bags, [[1, 0], [1, 1]])
    >>> instance_scores(pipeline, bags).shape
    (3, 2)
    """
    inner, seen = unwrap(model, X)
    if hasattr(inner, "instance_scores"):
        return inner.instance_scores(seen)
    scores = model.decision_function(_bags(X).singletons())
    return scores[:, None] if scores.ndim == 1 else scores


def key_instances(model: Any, X: Any, k: int = 1) -> np.ndarray:
    """Rows of the ``k`` instances that speak most for each label, for any model of bags; see the contract."""
    return best_rows(instance_scores(model, X), _bags(X).offsets, k)


def annotate(model: Any, X: Any, Y: Any = None, *, return_proba: bool = False) -> Any:
    """Label of each instance by any model, pipeline or search of bagwise; see the contract."""
    inner, seen = unwrap(model, X)
    if not hasattr(inner, "annotate"):
        raise TypeError(f"{type(inner).__name__} is no classifier of bagwise and cannot annotate instances")
    return inner.annotate(seen, Y, return_proba=return_proba)


def _bags(X: Any) -> Bags:
    if isinstance(X, Bags):
        return X
    return Bags.from_list(X) if is_list_of_bags(X) else Bags(X, np.arange(len(X) + 1))
