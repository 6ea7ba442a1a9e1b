"""A threshold per label, learned on held-out training bags."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import check_cv, cross_val_predict

from bagwise.bags import Bags, instance_rows
from bagwise.base import MIMLClassifier, Traits, is_list_of_bags
from bagwise.base._fits import check_takes_shards
from bagwise.base.blocks import Blocks
from bagwise.base.parameters import JOBS, Choice, HasMethod, Whole
from bagwise.compute.calibration import best_offset
from bagwise.compute.threads import run
from bagwise.inspection import instance_scores
from bagwise.models._shared.held_out import MultilabelKFold

_STRATIFIED = 20_000  # bags of shards up to which folds are stratified, bag by bag


class LabelThresholds(MIMLClassifier):
    """Decide label sets by a threshold per label on the scores of any classifier of bags.

    Scores are those of the classifier, so that rankings stay as they are; thresholds speak in ``predict``.

    Parameters
    ----------
    estimator : classifier
        Anything with ``decision_function`` for label sets: a model, a pipeline, a search.
    measure : {"f1", "accuracy"}, default="f1"
        What each threshold maximises for its label: F1, or accuracy (that is, Hamming loss).
    cv : int or splitter, default=5
        Folds on which the held-out scores are made.
    n_jobs : int, optional
        Folds fitted at the same time.

    Attributes
    ----------
    thresholds_ : ndarray of shape (n_labels,)
        A label is predicted where its score is above.
    estimator_ : classifier
        Fitted on all training bags.

    Notes
    -----
    On `bagwise.ShardedBags` the classifier must learn from shards, too; folds are parts of them that copy
    nothing, one after the other, and the scores of all bags are held.

    Every midpoint between two neighbouring held-out scores of a label is tried; among equally good
    ones the threshold nearest to 0 wins, so a label that gains nothing keeps its own rule.

    Examples
    --------
    >>> from bagwise import load_dataset
    >>> from bagwise.models import MIMLDummy
    >>> data = load_dataset("digits", n_bags=60)
    >>> LabelThresholds(MIMLDummy(), cv=3).fit(data.bags, data.Y).predict(data.bags).shape
    (60, 10)
    """

    traits = Traits(instances="model", empty_bags=True, views=True, shards=True)

    _parameters = {
        "estimator": HasMethod("fit", "predict"),
        "measure": Choice("f1", "accuracy"),
        "cv": (Whole(2), HasMethod("split")),
        "n_jobs": JOBS,
    }

    def __init__(
        self, estimator: Any, *, measure: str = "f1", cv: Any = 5, n_jobs: int | None = None
    ) -> None:
        self.estimator = estimator
        self.measure = measure
        self.cv = cv
        self.n_jobs = n_jobs

    def _fit(self, bags: Any, Y: np.ndarray) -> None:
        cv = MultilabelKFold(self.cv, random_state=0) if isinstance(self.cv, int) else self.cv
        held_out = cross_val_predict(
            clone(self.estimator), bags, Y, cv=cv, method="decision_function", n_jobs=self.n_jobs
        )
        self.thresholds_ = _best_thresholds(held_out, Y, self.measure)
        self.estimator_ = clone(self.estimator).fit(bags, Y)

    def _fit_blocks(self, blocks: Blocks) -> None:
        if len(blocks) == 1:  # no more than bags in memory
            return self._fit(*blocks.only()[:2])
        if hasattr(self.estimator, "traits"):
            check_takes_shards(self.estimator, type(self.estimator).__name__)
        shards = blocks.shards  # type: ignore[attr-defined]
        Y = blocks.labels()[0]
        held_out = np.empty(Y.shape)
        for train, test in self._folds(Y):
            part = clone(self.estimator).fit(shards[train])
            held_out[test] = part.decision_function(shards[test])
        self.thresholds_ = _best_thresholds(held_out, Y, self.measure)
        self.estimator_ = clone(self.estimator).fit(shards)

    def _folds(self, Y: np.ndarray) -> list[Any]:
        """Folds of the bags of several parts; many bags are spread evenly by chance alone."""
        if not isinstance(self.cv, int):
            return [(np.sort(train), np.sort(test)) for train, test in self.cv.split(np.zeros(len(Y)), Y)]
        if len(Y) <= _STRATIFIED:
            return list(MultilabelKFold(self.cv, random_state=0).split(Y, Y))
        fold = np.random.default_rng(0).integers(self.cv, size=len(Y))
        return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(self.cv)]

    def _scores(self, bags: Any) -> np.ndarray:
        return np.asarray(self.estimator_.decision_function(bags))

    def _predict(self, bags: Any, scores: np.ndarray) -> np.ndarray:
        return scores > self.thresholds_

    def _instance_scores(self, bags: Any) -> np.ndarray:
        return instance_scores(self.estimator_, bags)


def _best_thresholds(scores: np.ndarray, Y: np.ndarray, measure: str) -> np.ndarray:
    measure = "f1" if measure == "f1" else "errors"
    return np.array([best_offset(s, y, measure, apart=False) for s, y in zip(scores.T, Y.T)])


# ----------------------------------------------------------------------
# Out-of-fold instance scores: what scikit-learn's cross_val_predict cannot do for ragged output


def cross_val_instance_scores(
    estimator: Any, X: Any, Y: Any, *, cv: Any = 5, groups: Any = None, n_jobs: int | None = None
) -> np.ndarray:
    """Scores of every instance from a model that did not see its bag.

    Parameters
    ----------
    estimator : classifier
        A model, pipeline or search.
    X : Bags or list of 2-D arrays
        The bags.
    Y : labels as in ``fit``
        Their labels.
    cv : int or splitter, default=5
        A number means `MultilabelKFold` with that many folds and seed 0.
    groups : array of shape (n_bags,), optional
        For splitters that keep groups together.
    n_jobs : int, optional
        Folds fitted at the same time.

    Returns
    -------
    ndarray of shape (n_instances, n_labels)
        Rows are those of ``X.X``; NaN for bags that are in no test fold.
    """
    bags = X if isinstance(X, Bags) or not is_list_of_bags(X) else Bags.from_list(X)
    splitter = MultilabelKFold(cv, random_state=0) if isinstance(cv, int) else check_cv(cv)
    Y = np.asarray(Y)
    folds = list(splitter.split(bags, Y, groups))
    parts = run(_held_out, [(estimator, bags, Y, train, test) for train, test in folds], n_jobs=n_jobs)
    result = np.full((bags.n_instances, parts[0].shape[1]), np.nan)
    for (_, test), part in zip(folds, parts):
        result[instance_rows(bags.offsets, test)[0]] = part
    return result


def _held_out(estimator: Any, bags: Bags, Y: np.ndarray, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    return instance_scores(clone(estimator).fit(bags[train], Y[train]), bags[test])
