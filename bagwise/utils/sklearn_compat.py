"""The only file that names private parts of scikit-learn."""

from __future__ import annotations

import inspect

import sklearn.model_selection

# What a fitted search holds beside estimators: how it splits and how it scores. They store parameters and
# nothing else; a scoring function inside is looked at on its own.
_SCORERS = {
    "sklearn.metrics._scorer._PassthroughScorer",
    "sklearn.metrics._scorer._Scorer",
    "sklearn.metrics._scorer._MultimetricScorer",
}


def search_types() -> set[str]:
    """Names of the splitters and scorers that a saved search may hold."""
    splitters = {
        f"{cls.__module__}.{cls.__qualname__}"
        for _, cls in inspect.getmembers(sklearn.model_selection, inspect.isclass)
        if cls.__module__ == "sklearn.model_selection._split"
    }
    return splitters | _SCORERS
