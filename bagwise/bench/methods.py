"""Models from their description in a suite: settings, scaling of instances, search in the training bags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, ParameterGrid, StratifiedKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, Normalizer, StandardScaler

from bagwise.errors import DataError
from bagwise.metrics import get_scorer
from bagwise.model_selection import MultilabelKFold, select_mimlfast
from bagwise.preprocessing import OnInstances, RBFDictionary
from bagwise.registry import get_estimator

_KEYS = {"estimator", "params", "classifier", "divide", "rbf", "steps", "search", "scores", "record"}


def fit_model(spec: Mapping[str, Any], bags: Any, y: np.ndarray, seed: int) -> tuple[Any, dict[str, Any]]:
    """Fit a model as a suite describes it; return it with the settings that a search has chosen.

    Parameters
    ----------
    spec : mapping
        ``estimator``: name; ``params``: its settings; ``classifier``: what it wraps ("logistic":
        standardised logistic regression); ``divide``: a number that features are divided by;
        ``rbf``: similarities to all training instances in their place, the width in mean squared distances;
        ``steps``: what is done to instances first ("standard", "minmax", "sqrt", "l2"); ``search``: choice of
        settings inside the training bags, with ``grid``, ``cv`` folds and ``scoring``, or
        ``kind = "mimlfast"`` for the search of that method's own paper.
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
        steps.append(OnInstances(FunctionTransformer(_divide, kw_args={"by": spec["divide"]})))
    if "rbf" in spec:
        steps.append(OnInstances(RBFDictionary(scale=spec["rbf"])))
    search = spec.get("search")
    if search is None:
        return (make_pipeline(*steps, model) if steps else model).fit(bags, y), {}
    if search.get("kind") == "mimlfast":
        return _select(model, steps, search, bags, y, seed)
    return _search(make_pipeline(*steps, model) if steps else model, search, bags, y, seed)


def _search(model: Any, search: Mapping[str, Any], bags: Any, y: np.ndarray, seed: int) -> tuple[Any, dict]:
    """Grid search whose folds suit the targets: by class, or by label set."""
    grids = search["grid"] if isinstance(search["grid"], list) else [search["grid"]]
    if isinstance(model, Pipeline):
        last = model.steps[-1][0]
        grids = [{f"{last}__{name}": values for name, values in grid.items()} for grid in grids]
    settings = list(ParameterGrid(grids))
    if len(settings) == 1:
        return model.set_params(**settings[0]).fit(bags, y), {}  # nothing to choose from
    cv, scoring = search["cv"], search["scoring"]
    if y.ndim == 1:
        folds: Any = StratifiedKFold(cv, shuffle=True, random_state=seed)
    else:
        folds, scoring = MultilabelKFold(cv, random_state=seed), get_scorer(scoring)
    found = GridSearchCV(model, grids, scoring=scoring, cv=folds, error_score="raise").fit(bags, y)
    return found.best_estimator_, {name.split("__")[-1]: v for name, v in found.best_params_.items()}


def _select(
    model: Any, steps: list[Any], search: Mapping[str, Any], bags: Any, y: np.ndarray, seed: int
) -> tuple[Any, dict]:
    """The search of MIMLfast's own paper, which shares work between settings."""
    for step in steps:
        bags = step.fit_transform(bags)
    choice = select_mimlfast(
        bags,
        y,
        estimator=model,
        grid=search["grid"],
        cv=search["cv"],
        random_state=seed,
        show_progress=False,
    )
    fitted = choice.best_estimator
    return (make_pipeline(*steps, fitted) if steps else fitted), choice.best_params


def _classifier(name: str, bags: Any) -> Any:
    if name != "logistic":
        raise DataError(f"no classifier {name!r} to wrap; there is logistic")
    centred = not getattr(bags, "is_sparse", False)
    return make_pipeline(StandardScaler(with_mean=centred), LogisticRegression(max_iter=1000))


def _divide(X: Any, by: float) -> Any:
    return X / by


def _transformer(step: str) -> Any:
    known = {
        "standard": StandardScaler(),
        "minmax": MinMaxScaler(),
        "sqrt": FunctionTransformer(np.sqrt),
        "l2": Normalizer(),
    }
    if step not in known:
        raise DataError(f"no step {step!r} for instances; there are {', '.join(known)}")
    return known[step]
