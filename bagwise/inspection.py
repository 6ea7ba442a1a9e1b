"""Looking inside: instance scores, key instances and annotations of any model, pipeline or search.

Pipelines and searches do not forward the methods of the contract; the functions here look through them.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from sklearn.pipeline import Pipeline

from bagwise.bags import Bags, MultiViewBags
from bagwise.bags.frames import pandas
from bagwise.base import best_rows, is_list_of_bags

__all__ = [
    "annotate",
    "instance_scores",
    "key_instances",
    "label_names",
    "last_estimator",
    "prediction_frame",
    "scores_and_labels",
    "unwrap",
]

Method = Literal["predict", "predict_proba", "decision_function", "instance_scores"]


def unwrap(model: Any, X: Any) -> tuple[Any, Any]:
    """Return the last estimator inside searches and pipelines, and the bags as it sees them."""
    while True:
        if hasattr(model, "best_estimator_"):
            model = model.best_estimator_
        elif isinstance(model, Pipeline):
            X = X if X is None or len(model.steps) == 1 else model[:-1].transform(X)
            model = model.steps[-1][1]
        else:
            return model, X


def last_estimator(model: Any) -> Any:
    """The classifier at the end of searches and pipelines."""
    return unwrap(model, None)[0]


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


def scores_and_labels(model: Any, X: Any) -> tuple[np.ndarray, np.ndarray]:
    """Scores and predicted labels of any model, pipeline or search: two matrices with a column per label.

    What is predicted is what ``model.predict`` says, as a matrix of truth values also for 1-D classes.

    Examples
    --------
    >>> from bagwise.models import MIMLDummy
    >>> scores, chosen = scores_and_labels(MIMLDummy().fit([[[1.0]], [[2.0]], [[3.0]]], [1, 1, 0]), [[[5.0]]])
    >>> scores.round(2), chosen
    (array([[0.17]]), array([[ True]]))
    """
    inner, seen = unwrap(model, X)
    if hasattr(inner, "scores_and_labels"):
        scores, labels = inner.scores_and_labels(seen)
    elif hasattr(model, "decision_function"):
        scores, labels = np.asarray(model.decision_function(X)), np.asarray(model.predict(X))
    else:
        raise TypeError(f"{type(inner).__name__} has no decision_function and cannot score labels")
    scores = scores[:, None] if scores.ndim == 1 else scores
    if labels.ndim == 2:
        return scores, labels > 0
    classes = np.asarray(inner.classes_)
    chosen = labels[:, None] == (classes[1:] if len(classes) == 2 else classes)
    return scores, chosen


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


# ---------------------------------------------------------------------- names of labels, tables by name


def label_names(model: Any) -> tuple[str, ...]:
    """Names of the labels (or classes) that the scores of a fitted model, pipeline or search stand for.

    Examples
    --------
    >>> from bagwise.models import MIMLDummy
    >>> label_names(MIMLDummy().fit([[[1.0]], [[2.0]]], [["wren"], ["robin"]]))
    ('robin', 'wren')
    """
    inner = last_estimator(model)
    if hasattr(inner, "label_names_"):
        return tuple(inner.label_names_)
    classes = np.asarray(inner.classes_)
    if classes.ndim == 2:
        return tuple(f"label_{k}" for k in range(len(classes)))  # as for data without names
    return tuple(str(name) for name in (classes[1:] if len(classes) == 2 else classes))


def prediction_frame(model: Any, X: Any, method: Method = "predict") -> Any:
    """Predictions as a pandas DataFrame: bag ids as index, a column per label.

    Parameters
    ----------
    model : classifier, pipeline or search
        Fitted.
    X : Bags, list of 2-D arrays, or table
        The bags; those without ids are numbered.
    method : {"predict", "predict_proba", "decision_function", "instance_scores"}, default="predict"
        What to ask the model. After fitting one class per bag, ``predict`` gives the column ``class``.
        ``instance_scores`` has a row per instance, with its bag and its place there as index.

    Examples
    --------
    >>> from bagwise.models import MIMLDummy
    >>> bags = Bags.from_list([[[1.0]], [[2.0], [3.0]]], bag_ids=["a", "b"])
    >>> model = MIMLDummy().fit(bags, [["wren"], ["robin", "wren"]])
    >>> prediction_frame(model, bags)
            robin  wren
    bag_id
    a           0     1
    b           0     1
    """
    pd = pandas()
    bags = X if isinstance(X, (Bags, MultiViewBags)) or not is_list_of_bags(X) else Bags.from_list(X)
    names = list(label_names(model))
    if method == "instance_scores":
        if isinstance(bags, MultiViewBags):
            raise TypeError("scores of instances are for one view; pick one with bags[name]")
        bags = bags if isinstance(bags, Bags) else Bags(bags, np.arange(len(bags) + 1))
        places = np.arange(bags.n_instances) - bags.offsets[:-1][bags.index]
        index = pd.MultiIndex.from_arrays([bags.bag_ids[bags.index], places], names=["bag_id", "instance"])
        return pd.DataFrame(instance_scores(model, bags), index=index, columns=names)
    if method not in ("predict", "predict_proba", "decision_function"):
        raise ValueError(f"method is one of {', '.join(Method.__args__)}, got {method!r}")  # type: ignore
    values = np.asarray(getattr(model, method)(X))
    ids = bags.bag_ids if isinstance(bags, (Bags, MultiViewBags)) else np.arange(len(values))
    if method == "predict" and values.ndim == 1:
        names = ["class"]
    elif method == "predict_proba" and values.shape[1] != len(names):
        names = [str(name) for name in last_estimator(model).classes_]
    return pd.DataFrame(values.reshape(len(values), -1), index=pd.Index(ids, name="bag_id"), columns=names)
