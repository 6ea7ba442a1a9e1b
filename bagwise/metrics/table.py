"""All measures of one set of predictions at once, as a small table."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from html import escape
from typing import Any

import numpy as np

from bagwise.errors import DataError
from bagwise.metrics._kernels import as_label_sets, as_scores
from bagwise.metrics.bag import average_precision, bag_values, coverage, hamming_loss, one_error, ranking_loss
from bagwise.metrics.instance import instance_accuracy, key_instance_accuracy
from bagwise.metrics.label import (
    kept_labels,
    label_values,
    macro_f1,
    mean_average_precision,
    mean_or_nan,
    roc_auc,
)

__all__ = ["HIGHER_IS_BETTER", "Evaluation", "evaluate", "get_scorer", "scorers"]


HIGHER_IS_BETTER = {
    "hamming_loss": False,
    "one_error": False,
    "coverage": False,
    "normalised_coverage": False,
    "ranking_loss": False,
    "average_precision": True,
    "mean_average_precision": True,
    "macro_f1": True,
    "roc_auc": True,
    "instance_accuracy": True,
    "key_instance_accuracy": True,
    "instance_accuracy_given_labels": True,
    "accuracy": True,
    "calibration_error": False,
}


class Evaluation(dict):
    """Measures by name: a dict that prints as a table, the arrow pointing to where better values lie.

    Examples
    --------
    >>> print(Evaluation(ranking_loss=0.125, average_precision=0.75))
    ranking_loss       ↓  0.1250
    average_precision  ↑  0.7500
    """

    def __str__(self):
        rows = self._rows()
        widths = [max((len(row[i]) for row in rows), default=0) for i in (0, 2)]
        return "\n".join(f"{name:<{widths[0]}}  {arrow}  {value:>{widths[1]}}" for name, arrow, value in rows)

    def _repr_html_(self):
        cells = "".join(
            f"<tr><th>{escape(name)}</th><td>{arrow}</td><td>{value}</td></tr>"
            for name, arrow, value in self._rows()
        )
        return f"<table><tbody>{cells}</tbody></table>"

    def _repr_pretty_(self, printer, cycle):
        printer.text("Evaluation(...)" if cycle else str(self))

    def _rows(self):
        arrows = {True: "↑", False: "↓", None: " "}
        return [(str(k), arrows[HIGHER_IS_BETTER.get(k)], f"{v:.4f}") for k, v in self.items()]


def evaluate(
    Y,
    scores,
    predictions=None,
    *,
    train_Y=None,
    instance_Y=None,
    instance_predictions=None,
    instance_scores=None,
    offsets=None,
    ties="reference",
    degenerate="skip",
):
    """Compute every measure that the given predictions allow.

    Parameters
    ----------
    Y : array of 0 and 1, shape (n_bags, n_labels)
        True label sets.
    scores : array of shape (n_bags, n_labels)
        Scores, larger meaning more relevant.
    predictions : array of 0 and 1, shape (n_bags, n_labels), optional
        Predicted label sets, for the Hamming loss.
    train_Y : array of 0 and 1, shape (n_train_bags, n_labels), optional
        Label sets of the training bags: mean average precision and macro-F1 leave out labels that never occur
        there, and macro-F1 predicts as many labels per bag as they have on average.
    instance_Y : int array of shape (n_instances,) or 0/1 array of shape (n_instances, n_labels), optional
        True labels of the instances, -1 where unknown.
    instance_predictions : int array of shape (n_instances,), optional
        Predicted labels of the instances, for the instance accuracy; ``instance_Y`` must then be numbers.
    instance_scores : array of shape (n_instances, n_labels), optional
        Scores of the instances, with ``offsets`` for the key-instance accuracy.
    offsets : int array of shape (n_bags + 1,), optional
        Where the instances of each bag begin and end.
    ties, degenerate
        See `bagwise.metrics.bag`; ``degenerate`` does not concern coverage, in which every bag counts.

    Returns
    -------
    Evaluation
        A dict from the name of a measure to its value, which prints as a table.

    Examples
    --------
    >>> Y = [[1, 0, 0], [0, 1, 1]]
    >>> print(evaluate(Y, [[0.9, 0.2, 0.4], [0.6, 0.7, 0.1]], [[1, 0, 0], [1, 1, 0]]))
    hamming_loss            ↓  0.3333
    one_error               ↓  0.0000
    coverage                ↓  1.0000
    normalised_coverage     ↓  0.3333
    ranking_loss            ↓  0.2500
    average_precision       ↑  0.9167
    mean_average_precision  ↑  0.8333
    macro_f1                ↑  0.5556
    roc_auc                 ↑  0.6667
    """
    Y = as_label_sets(Y)
    scores = as_scores(scores, Y.shape, "scores")
    result = Evaluation()
    if predictions is not None:
        result["hamming_loss"] = hamming_loss(Y, predictions)
    bags = bag_values(Y, scores, ties)
    result["one_error"] = bags.mean("one_error", degenerate)
    result["coverage"] = bags.coverage()
    result["normalised_coverage"] = bags.coverage() / Y.shape[1]
    result["ranking_loss"] = bags.mean("ranking_loss", degenerate)
    result["average_precision"] = bags.mean("average_precision", degenerate)
    precision, area = label_values(Y, scores)
    result["mean_average_precision"] = mean_or_nan(precision[kept_labels(Y, train_Y)])
    result["macro_f1"] = macro_f1(Y, scores, train_Y=train_Y)
    result["roc_auc"] = mean_or_nan(area)
    if instance_Y is None and (instance_predictions is not None or instance_scores is not None):
        raise DataError("expected instance_Y along with what is predicted for the instances, received None")
    if instance_predictions is not None:
        result["instance_accuracy"] = instance_accuracy(instance_Y, instance_predictions)
    if instance_scores is not None:
        if offsets is None:
            raise DataError("expected offsets along with instance_scores, received None")
        result["key_instance_accuracy"] = key_instance_accuracy(instance_scores, offsets, instance_Y, Y)
    return result


# ----------------------------------------------------------------------
# Measures as scikit-learn scorers: larger is better, so losses appear under the name of their negative
#
# `sklearn.metrics.make_scorer` is of little use here: it insists on ``classes_``, and where that names
# two labels it takes their two columns of probabilities for the two classes of one. A scorer may be any
# callable ``(estimator, X, y)``, and that is what these are.


# name: (measure, sign, whether it takes scores rather than predicted sets)
_MEASURES: dict[str, tuple[Callable[..., Any], int, bool]] = {
    "neg_hamming_loss": (hamming_loss, -1, False),
    "neg_one_error": (one_error, -1, True),
    "neg_coverage": (coverage, -1, True),
    "neg_normalised_coverage": (partial(coverage, normalised=True), -1, True),
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
