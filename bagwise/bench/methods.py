"""Models from their description in a suite: settings, scaling of instances, search in the training bags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, Normalizer, StandardScaler

from bagwise.bench.search import division, search, search_mimlfast
from bagwise.errors import DataError
from bagwise.preprocessing import OnInstances, RBFDictionary
from bagwise.registry import get_estimator

_KEYS = {"estimator", "params", "classifier", "divide", "rbf", "steps", "search", "scores", "record", "view"}


def fit_model(spec: Mapping[str, Any], bags: Any, y: np.ndarray, seed: int) -> tuple[Any, dict[str, Any]]:
    """Fit a model as a suite describes it; return it with the settings that a search has chosen.

    Parameters
    ----------
    spec : mapping
        ``estimator``: name; ``params``: its settings; ``classifier``: what it wraps ("logistic":
        standardised logistic regression); ``divide``: a number that features are divided by;
        ``rbf``: similarities to all training instances in their place, the width in mean squared distances;
        ``steps``: what is done to instances first ("standard", "minmax", "sqrt", "l2", "single" for
        numbers of single precision); ``view``: the number, from 1 on, of the only view that it sees;
        ``search``: choice of
        settings inside the training bags, see `bagwise.bench.search`, or ``kind = "mimlfast"`` for the search
        of that method's own paper.
    bags, y : Bags, ndarray
        The training bags.
    seed : int
        Seed of the model and of the folds inside.
    """
    unknown = sorted(set(spec) - _KEYS)
    if unknown:
        raise DataError(f"a method of a suite has no key {unknown[0]!r}; its keys are {sorted(_KEYS)}")
    model = get_estimator(spec["estimator"])(**spec.get("params", {}))
    if "classifier" in spec:
        model.set_params(estimator=_classifier(spec["classifier"], bags))
    if "random_state" in model.get_params() and "random_state" not in spec.get("params", {}):
        model.set_params(random_state=seed)
    steps = [OnInstances(_transformer(step)) for step in spec.get("steps", ())]
    if "divide" in spec:
        steps.append(division(spec["divide"]))
    if "rbf" in spec:
        steps.append(OnInstances(RBFDictionary(scale=spec["rbf"])))
    if "view" in spec:
        steps.insert(0, OneView(spec["view"]))
    how = spec.get("search")
    if how is not None and how.get("kind") == "mimlfast":
        return search_mimlfast(model, steps, how, bags, y, seed)
    whole = make_pipeline(*steps, model) if steps else model
    return (whole.fit(bags, y), {}) if how is None else search(whole, how, bags, y, seed)


class OneView(TransformerMixin, BaseEstimator):
    """One of several views alone, by its number from 1 on."""

    def __init__(self, number: int) -> None:
        self.number = number

    def fit(self, X: Any, y: Any = None) -> OneView:
        """Learn the name of the view."""
        if not 1 <= self.number <= len(X.view_names):
            raise DataError(f"there is no view {self.number}; views are {', '.join(X.view_names)}")
        self.name_ = X.view_names[self.number - 1]
        return self

    def transform(self, X: Any) -> Any:
        """Bags of that view."""
        return X[self.name_]


def _classifier(name: str, bags: Any) -> Any:
    if name != "logistic":
        raise DataError(f"no classifier {name!r} to wrap; there is logistic")
    centred = not getattr(bags, "is_sparse", False)
    return make_pipeline(StandardScaler(with_mean=centred), LogisticRegression(max_iter=1000))


def _transformer(step: str) -> Any:
    known = {
        "standard": StandardScaler(),
        "minmax": MinMaxScaler(),
        "sqrt": FunctionTransformer(np.sqrt),
        "single": FunctionTransformer(_single),
        "l2": Normalizer(),
    }
    if step not in known:
        raise DataError(f"no step {step!r} for instances; there are {', '.join(known)}")
    return known[step]


def _single(X: Any) -> Any:
    return X.astype(np.float32)
