"""Models from their description in a suite: settings, scaling of instances, search in the training bags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import check_scoring
from sklearn.model_selection import ParameterGrid, StratifiedKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, Normalizer, StandardScaler

from bagwise.base import fit_several
from bagwise.compute.memo import shared_work, unchanging
from bagwise.errors import DataError
from bagwise.metrics import get_scorer
from bagwise.model_selection import MultilabelKFold, select_mimlfast
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
        settings inside the training bags, see `papers.methods`, or ``kind = "mimlfast"`` for the search
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


# ----------------------------------------------------------------------
# Choosing settings inside the training bags, with work shared between settings
#
# Distances, kernels and codebooks that several settings need are computed once (`bagwise.compute.memo`).
# A search in rounds looks at many settings with little effort each, and spends more on the ones that do
# well.


_TOGETHER = 1024  # settings whose models are fitted, and kept in memory, at a time
_SEARCH_KEYS = {"grid", "cv", "scoring", "kind", "rounds"}


def search(
    model: Any, spec: Mapping[str, Any], bags: Any, y: np.ndarray, seed: int
) -> tuple[Any, dict[str, Any]]:
    """Fit the setting that scores best in cross-validation of the training bags; return it, and the setting.

    Parameters
    ----------
    model : estimator or Pipeline
        What settings are given to; in a pipeline, to its last step.
    spec : mapping
        ``grid``: values by parameter, or a list of such tables; ``cv``: folds, by class or by label set;
        ``scoring``; ``rounds``: optional list of ``{params, keep}``, see `rounds_of`.
    bags, y : Bags, ndarray
        Training bags.
    seed : int
        Seed of the folds.
    """
    unknown = sorted(set(spec) - _SEARCH_KEYS)
    if unknown:
        raise DataError(f"a search of a suite has no key {unknown[0]!r}; its keys are {sorted(_KEYS)}")
    start = f"{model.steps[-1][0]}__" if isinstance(model, Pipeline) else ""
    settings = list(ParameterGrid(spec["grid"]))
    with shared_work():
        chosen = settings[0] if len(settings) == 1 else _best(model, start, settings, spec, bags, y, seed)
        fitted = _with(model, start, chosen).fit(bags, y)
    return fitted, chosen if len(settings) > 1 else {}


def _best(model, start, settings, spec, bags, y, seed):
    """Settings that are left after every round, the last of which is that of the model as it is."""
    folds, scorer = _folds_and_scorer(model, spec, y, seed)
    parts = [(bags[train], y[train], bags[test], y[test]) for train, test in folds.split(bags, y)]
    if isinstance(model, Pipeline):
        # no setting touches what comes before the last step: once for all of them
        parts = [_prepared(model[:-1], part) for part in parts]
        model, start = model[-1], ""
    for bags_in, _, bags_out, _ in parts:
        unchanging(getattr(bags_in, "X", None), getattr(bags_out, "X", None))
    left = list(range(len(settings)))
    for params, keep in rounds_of(spec):
        if len(left) == 1:
            break
        trial = _with(model, start, params)
        scores = dict(zip(left, _scores(trial, start, [settings[place] for place in left], scorer, parts)))
        # the first of equals, as in a plain grid
        left = sorted(left, key=lambda place: (-scores[place], place))
        left = sorted(left[: max(1, round(keep * len(left)))]) if keep < 1 else left
    return settings[left[0]]


def _prepared(steps, part):
    """Training and test bags after these steps, learned from the former."""
    bags_in, y_in, bags_out, y_out = part
    steps = clone(steps)
    return steps.fit_transform(bags_in, y_in), y_in, steps.transform(bags_out), y_out


def rounds_of(spec: Mapping[str, Any]) -> list[tuple[dict[str, Any], float]]:
    """Parameters of the trials of every round, and the share of the settings that goes on.

    The last round is that of the model as it is, and settles the choice.

    Examples
    --------
    >>> rounds_of({"rounds": [{"params": {"max_iter": 5}, "keep": 0.25}]})
    [({'max_iter': 5}, 0.25), ({}, 1.0)]
    """
    rounds = []
    for part in spec.get("rounds", ()):
        if set(part) != {"params", "keep"} or not 0 < part["keep"] < 1:
            raise DataError(f"a round of a search has params and keep, a share below 1; got {dict(part)}")
        rounds.append((dict(part["params"]), float(part["keep"])))
    return [*rounds, ({}, 1.0)]


def _folds_and_scorer(model, spec, y, seed):
    if y.ndim == 1:
        folds: Any = StratifiedKFold(spec["cv"], shuffle=True, random_state=seed)
        # with thousands of small fits, checks of the general scorers would take longer than some of the fits
        own = {"roc_auc": get_scorer("roc_auc"), "accuracy": _accuracy}
        return folds, own.get(spec["scoring"]) or check_scoring(model, scoring=spec["scoring"])
    return MultilabelKFold(spec["cv"], random_state=seed), get_scorer(spec["scoring"])


def _accuracy(model, bags, y):
    return np.mean(model.predict(bags) == y)


def _with(model, start, params):
    """A fresh copy with these settings."""
    return clone(model).set_params(**{f"{start}{name}": value for name, value in params.items()})


def _scores(trial, start, settings, scorer, parts):
    """Mean score of every setting; many are fitted together, where the model can do that."""
    scores = np.zeros(len(settings))
    step = _TOGETHER if hasattr(type(trial), "_fit_several") else 1  # the models of a step are kept
    for bags_in, y_in, bags_out, y_out in parts:
        for first in range(0, len(settings), step):
            models = [_with(trial, start, setting) for setting in settings[first : first + step]]
            fit_several(models, bags_in, y_in)
            scores[first : first + step] += [scorer(model, bags_out, y_out) for model in models]
    return scores / len(parts)


def search_mimlfast(
    model: Any, steps: list[Any], spec: Mapping[str, Any], bags: Any, y: np.ndarray, seed: int
) -> tuple[Any, dict[str, Any]]:
    """The search of MIMLfast's own paper, whose settings share their work down to the starting points.

    ``divide`` in the grid are numbers that features are divided by before anything else.
    """
    grid = dict(spec["grid"])
    best: Any = None
    for by in grid.pop("divide", [None]):
        first = steps if by is None else [division(by), *steps]
        scaled = bags
        for step in first:
            scaled = step.fit_transform(scaled)
        options = {"cv": spec["cv"], "random_state": seed, "show_progress": False, "refit": False}
        found = select_mimlfast(scaled, y, estimator=model, grid=grid, **options)
        if best is None or found.best_loss < best[0].best_loss:
            best = found, first, scaled, {} if by is None else {"divide": by}
    found, first, scaled, own = best
    fitted = clone(model).set_params(**{name: found.best_params[name] for name in grid}).fit(scaled, y)
    return (make_pipeline(*first, fitted) if first else fitted), {**found.best_params, **own}


def division(by: float) -> OnInstances:
    """Step that divides all features by a number."""
    return OnInstances(FunctionTransformer(_divide, kw_args={"by": by}))


def _divide(X: Any, by: float) -> Any:
    return X / by
