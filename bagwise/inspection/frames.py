"""Predictions with names: rows are bags by id, columns labels by name."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from bagwise.bags import Bags, MultiViewBags
from bagwise.bags.frames import pandas
from bagwise.base import is_list_of_bags
from bagwise.inspection.unwrap import instance_scores, last_estimator

Method = Literal["predict", "predict_proba", "decision_function", "instance_scores"]


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
