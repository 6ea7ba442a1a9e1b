"""Out-of-fold instance scores: what scikit-learn's cross_val_predict cannot do for ragged output."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import check_cv

from bagwise.bags import Bags, instance_rows
from bagwise.base import is_list_of_bags
from bagwise.compute.threads import run
from bagwise.inspection import instance_scores
from bagwise.models._shared.held_out import MultilabelKFold


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
