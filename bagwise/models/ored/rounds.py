"""Union EM around any classifier of instances: exact expectation, maximisation by weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from bagwise.models.ored.known import known_classes
from bagwise.models.ored.likelihood import posterior

FLOOR = 1e-3  # no class is taken for less probable than this: a forest says 0 where it means rarely


def expectation(
    P: np.ndarray,
    offsets: np.ndarray,
    Y: np.ndarray,
    *,
    background: bool,
    known: np.ndarray | None = None,
    max_labels: int = 16,
    n_threads: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Posterior of every instance's class given the label set of its bag, and the log-likelihood of the sets.

    Parameters
    ----------
    P : ndarray of shape (n_instances, n_classes)
        Class probabilities of instances; clipped at `FLOOR`.
    offsets : ndarray of shape (n_bags + 1,)
        Where bags begin.
    Y : ndarray of shape (n_bags, n_labels)
        Label sets.
    background : bool
        Whether ``P`` has one more class, at its end, for instances that carry no label.
    known : ndarray of shape (n_instances,) or (n_instances, n_labels), optional
        Labels of instances that are known, -1 for the others; see `known_classes`.
    max_labels : int, default=16
        Larger sets, and sets that cannot be, restrict the probabilities and no more.
    n_threads : int, default=1
        Threads; they change nothing.

    Returns
    -------
    Q : ndarray of shape (n_instances, n_classes)
        Posteriors.
    loglik : ndarray of shape (n_bags,)
        Log-likelihood of the label set; -inf for one that cannot be, NaN for one that is too large.

    Examples
    --------
    >>> P = np.array([[0.8, 0.1, 0.1], [0.5, 0.4, 0.1]])
    >>> Q, _ = expectation(P, np.array([0, 2]), np.array([[1, 1, 0]]), background=False)
    >>> Q.round(3)  # one of the two carries the second label
    array([[0.865, 0.135, 0.   ],
           [0.135, 0.865, 0.   ]])
    """
    logits = np.log(np.maximum(P, FLOOR))
    clamps = known_classes(known, Y.shape[1], background)
    if clamps is not None:
        logits = clamps.clamped(logits)
    Y = np.ascontiguousarray(Y, dtype=np.int8)
    if background:
        Y = np.column_stack([Y, np.ones(len(Y), dtype=np.int8)])
    Q, loglik, _ = posterior(
        logits,
        offsets,
        Y,
        background=background,
        method="auto",
        max_labels=max_labels,
        n_threads=n_threads,
    )
    return Q, loglik


def maximisation(estimator: Any, X: Any, Q: np.ndarray, *, soft: bool) -> Any:
    """Fit a copy of the classifier to instances whose classes are known in part.

    Parameters
    ----------
    estimator : classifier
        Unfitted; weights are used where it takes them.
    X : array or CSR of shape (n_instances, n_features)
        Instances.
    Q : ndarray of shape (n_instances, n_classes)
        Probabilities of their classes; a row of zeros is left out.
    soft : bool
        Whether an instance counts for each class by its probability, or for the most probable one alone.

    Returns
    -------
    classifier, or the number of the only class that occurs
    """
    if soft:
        rows, classes = np.nonzero(Q > 1e-2)
        weights = Q[rows, classes]
    else:
        rows = np.flatnonzero(Q.max(axis=1) > 0)
        classes, weights = Q[rows].argmax(axis=1), Q[rows].max(axis=1)
    if len(np.unique(classes)) == 1:
        return int(classes[0])
    name = weight_name(estimator)
    return clone(estimator).fit(X[rows], classes, **({} if name is None else {name: weights}))


def weight_name(estimator: Any) -> str | None:
    """The argument of ``fit`` that takes weights of rows, None if there is none.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> weight_name(make_pipeline(LogisticRegression()))
    'logisticregression__sample_weight'
    """
    if isinstance(estimator, Pipeline):
        name, last = estimator.steps[-1]
        inner = weight_name(last)
        return None if inner is None else f"{name}__{inner}"
    return "sample_weight" if has_fit_parameter(estimator, "sample_weight") else None


def class_probabilities(model: Any, X: Any, n_classes: int) -> np.ndarray:
    """Probability of every class for every instance; 0 for classes that training did not show."""
    P = np.zeros((X.shape[0], n_classes))
    if isinstance(model, int):
        P[:, model] = 1.0
    elif X.shape[0]:
        P[:, model.classes_] = model.predict_proba(X)
    return P


def bootstraps(estimator: Any) -> bool:
    """Whether a forest leaves out instances of its own accord, and can tell what it says of them."""
    parameters = estimator.get_params()
    return bool(parameters.get("bootstrap")) and "oob_score" in parameters


def left_out_probabilities(model: Any, X: Any, rows: np.ndarray, n_classes: int) -> np.ndarray:
    """What a forest says of its training rows by the trees that did not use them."""
    P = class_probabilities(model, X, n_classes)
    if isinstance(model, int):
        return P
    votes = np.asarray(model.oob_decision_function_)
    some = np.isfinite(votes).all(axis=1) & (votes.sum(axis=1) > 0)
    P[rows] = 1.0 / n_classes  # used by every tree: nothing is known
    P[np.ix_(rows[some], model.classes_)] = votes[some]
    unseen = np.setdiff1d(np.arange(n_classes), model.classes_)
    P[np.ix_(rows[some], unseen)] = 0.0
    return P
