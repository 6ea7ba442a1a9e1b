"""Making, fitting and measuring models by name, on data in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bagwise.actions.matching import (
    align_instance_labels,
    align_labels,
    bags_for,
)
from bagwise.bags import Bags, MultiViewBags
from bagwise.bags.dataset import Dataset
from bagwise.base import MIMLClassifier
from bagwise.errors import BagwiseError, DataError
from bagwise.inspection import annotate, instance_scores, label_names, last_estimator, scores_and_labels
from bagwise.metrics import evaluate, instance_accuracy
from bagwise.registry import get_estimator, suggestion

_NO_LABELS = "the data hold no labels"


def make_model(name: str, params: Mapping[str, Any] | None = None) -> MIMLClassifier:
    """Make an unfitted model by name; a wrong name or parameter is an error that lists the right ones."""
    try:
        cls = get_estimator(name)
    except ValueError as error:
        raise BagwiseError(str(error)) from None
    params = dict(params or {})
    valid = list(cls._get_param_names())
    for key in params:
        if key not in valid:
            known = suggestion(key, valid).replace("known", "its parameters") if valid else "it has none"
            raise BagwiseError(f"{cls.__name__} has no parameter {key!r}; {known}")
    return cls(**params)


def train(dataset: Dataset, name: str, params: Mapping[str, Any] | None = None) -> MIMLClassifier:
    """Fit a model by name to a data set in memory; it then knows the names of the labels."""
    model = make_model(name, params)
    bags = bags_for(model, dataset)
    if not dataset.has_labels:
        advice = "say which columns hold them, such as labels=..."
        if dataset.recipe is not None:  # made of raw files, whose labels stand elsewhere
            advice = "gather them again with their labels (gather --labels)"
        raise DataError(f"{_NO_LABELS} to learn from; {advice}")
    if model.traits.instance_labels:
        if dataset.instance_Y is None or isinstance(bags, MultiViewBags):
            raise DataError(f"{type(model).__name__} learns from instance labels, which are not known here")
        bags = dataset.labelled_bags(fact=getattr(model, "instance_labels", "label"))
    try:
        model.fit(bags, dataset.Y)
    except BagwiseError:
        raise
    except (ValueError, TypeError) as error:
        if isinstance(error, TypeError) and not params:
            raise  # nothing that the caller wrote can be the reason
        given = ", ".join(f"{key}={value!r}" for key, value in (params or {}).items()) or "its defaults"
        raise BagwiseError(f"{type(model).__name__} cannot be fitted with {given}: {error}") from error
    model.label_names_ = dataset.label_names
    return model


def measure(model: Any, dataset: Dataset) -> tuple[dict[str, float], list[str], list[str]]:
    """Every measure that the data allow; labels unknown to the model; labels missing in the data."""
    if not dataset.has_labels:
        raise DataError(f"{_NO_LABELS} to compare with; prediction needs none")
    bags, names = bags_for(model, dataset), label_names(model)
    Y, unknown, missing = align_labels(dataset, names)
    scores, chosen = scores_and_labels(model, bags)
    known: dict[str, Any] = {}
    instance_Y = align_instance_labels(dataset, names)
    if instance_Y is not None and isinstance(bags, Bags) and hasattr(last_estimator(model), "annotate"):
        known = {
            "instance_Y": instance_Y,
            "instance_predictions": annotate(model, bags),
            "instance_scores": instance_scores(model, bags),
            "offsets": bags.offsets,
        }
    measures = dict(evaluate(Y, scores, chosen, **known))
    if known:
        given = annotate(model, bags, Y)
        measures["instance_accuracy_given_labels"] = instance_accuracy(instance_Y, given)
    return measures, unknown, missing
