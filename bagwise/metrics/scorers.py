"""Measures as scikit-learn scorers: larger is better, so losses appear under the name of their negative.

`sklearn.metrics.make_scorer` is of little use here: it insists on ``classes_``, and where that names two
labels it takes their two columns of probabilities for the two classes of one. A scorer may be any callable
``(estimator, X, y)``, and that is what these are.
"""

from __future__ import annotations

import numpy as np

from bagwise.errors import DataError
from bagwise.metrics.bag import average_precision, coverage, hamming_loss, one_error, ranking_loss
from bagwise.metrics.label import macro_f1, mean_average_precision, roc_auc

__all__ = ["get_scorer", "scorers"]


def _normalised_coverage(Y, S):
    return coverage(Y, S, normalised=True)


# name: (measure, sign, whether it takes scores rather than predicted sets)
_MEASURES = {
    "neg_hamming_loss": (hamming_loss, -1, False),
    "neg_one_error": (one_error, -1, True),
    "neg_coverage": (coverage, -1, True),
    "neg_normalised_coverage": (_normalised_coverage, -1, True),
    "neg_ranking_loss": (ranking_loss, -1, True),
    "average_precision": (average_precision, 1, True),
    "mean_average_precision": (mean_average_precision, 1, True),
    "macro_f1": (macro_f1, 1, True),
    "roc_auc": (roc_auc, 1, True),
}


class _Scorer:
    """Callable ``(estimator, X, Y) -> float``, known by its name alone and hence small to pickle."""

    def __init__(self, name):
        self.name = name

    def __call__(self, estimator, X, Y):
        measure, sign, takes_scores = _MEASURES[self.name]
        Z = _scores(estimator, X) if takes_scores else np.asarray(estimator.predict(X))
        if Z.ndim == 1 and np.ndim(Y) == 2 and np.shape(Y)[1] == 1:
            Z = Z[:, None]  # scikit-learn drops the axis of a single label
        return sign * measure(Y, Z)

    def __repr__(self):
        return f"get_scorer({self.name!r})"

    def __eq__(self, other):
        return isinstance(other, _Scorer) and self.name == other.name

    def __hash__(self):
        return hash(self.name)


def _scores(estimator, X):
    """Decision values, or else probabilities, of shape (n_bags, n_labels)."""
    if hasattr(estimator, "decision_function"):
        return np.asarray(estimator.decision_function(X))
    if not hasattr(estimator, "predict_proba"):
        raise DataError(
            "expected an estimator with decision_function or predict_proba, "
            f'received {type(estimator).__name__}; only "neg_hamming_loss" does without scores'
        )
    scores = estimator.predict_proba(X)
    if not isinstance(scores, list):
        return np.asarray(scores)
    # Forests and neighbours give one array per label, with a column for each class seen in training.
    columns = [p @ (np.asarray(classes) == 1) for p, classes in zip(scores, estimator.classes_)]
    return np.column_stack(columns)


def get_scorer(name):
    """Return the scorer of that name, for ``scoring=`` of `sklearn.model_selection.GridSearchCV` and others.

    Parameters
    ----------
    name : str
        A key of `scorers`.

    Returns
    -------
    callable
        ``scorer(estimator, X, Y)``. It asks ``predict`` for the Hamming loss, and for all else
        ``decision_function`` or, in its absence, ``predict_proba``. The reference rules of
        `bagwise.metrics.bag` apply.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sklearn.multiclass import OneVsRestClassifier
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> model = OneVsRestClassifier(LogisticRegression())
    >>> grid = {"estimator__C": [0.1, 10.0]}
    >>> search = GridSearchCV(model, grid, scoring=get_scorer("neg_ranking_loss"), cv=3)
    >>> bool(search.fit(X, (X > 0).astype(int)).best_score_ <= 0)
    True
    """
    if name not in _MEASURES:
        raise DataError(f"expected a scorer among {', '.join(_MEASURES)}; received {name!r}")
    return _Scorer(name)


def scorers():
    """All scorers by name, as ``scoring=`` of `sklearn.model_selection.cross_validate` takes them.

    Examples
    --------
    >>> sorted(scorers())[:2]
    ['average_precision', 'macro_f1']
    """
    return {name: _Scorer(name) for name in _MEASURES}
