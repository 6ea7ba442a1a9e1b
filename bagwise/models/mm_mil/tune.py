"""How many clusters: by cross-validation, as in the paper.

The Bayesian information criterion, which the paper mentions and does not use, is not offered: how much the
free choice of one instance per bag adds to the number of parameters is not known, and with the effective
number of parameters at the chosen instances it took 4, 4 and 7 clusters for 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import KFold, StratifiedKFold, check_cv

from bagwise.base.parameters import check_parameters
from bagwise.compute.threads import run


def select_n_clusters(
    model: Any,
    X: Any,
    y: Any,
    n_clusters: Iterable[int] = range(1, 7),
    *,
    cv: Any = 2,
    slack: float = 0.005,
    n_jobs: int | None = None,
) -> tuple[int, dict[int, float]]:
    """Choose the number of clusters of `MMMIL` on training bags.

    Parameters
    ----------
    model : MMMIL
        Settings of everything else; it is not changed.
    X, y
        Bags and labels as for ``fit``.
    n_clusters : iterable of int, default=range(1, 7)
        Numbers to try.
    cv : int or splitter, default=2
        Folds; an int makes shuffled ones, stratified for one label.
    slack : float, default=0.005
        The smallest number of clusters is taken whose area is not further than this below the best.
    n_jobs : int, optional
        Fits at the same time.

    Returns
    -------
    best : int
        The number chosen.
    values : dict
        Area under the ROC curve of held-out bags for every number tried, averaged over labels.

    Examples
    --------
    >>> from bagwise.datasets import make_sub_concepts
    >>> from bagwise.models.mm_mil.estimator import MMMIL
    >>> data = make_sub_concepts(n_bags=200, n_labels=1, n_sub=2, cardinality=0.5, noise=1.0)
    >>> best, areas = select_n_clusters(MMMIL(random_state=0), data.bags, data.Y[:, 0], (1, 2, 3))
    >>> best, areas[1] < 0.85 < areas[2]
    (2, True)
    """
    numbers = sorted(set(n_clusters))
    if not numbers or numbers[0] < 1:
        raise ValueError(f"n_clusters must be numbers of at least 1, got {numbers}")
    check_parameters(model, model._parameters)
    bags, Y = clone(model)._check_training(X, y)
    if isinstance(cv, int):
        kind = StratifiedKFold if Y.shape[1] == 1 else KFold
        folds = kind(cv, shuffle=True, random_state=model.random_state)
    else:
        folds = check_cv(cv)
    tasks = [(model, bags, Y, M, train, test) for M in numbers for train, test in folds.split(Y, Y[:, 0])]
    areas = np.reshape(run(_held_out_area, tasks, n_jobs), (len(numbers), -1)).mean(axis=1)
    good = areas >= areas.max() - slack
    return numbers[int(good.argmax())], dict(zip(numbers, areas.tolist()))


def _held_out_area(model: Any, bags: Any, Y: np.ndarray, M: int, train: Any, test: Any) -> float:
    """Area under the ROC curve, averaged over the labels for which it is defined."""
    fitted = clone(model).set_params(n_clusters=M).fit(bags[train], Y[train])
    scores = fitted.decision_function(bags[test])
    defined = np.flatnonzero(Y[test].min(axis=0) < Y[test].max(axis=0))
    return float(np.mean([roc_auc_score(Y[test, l], scores[:, l]) for l in defined])) if defined.size else 0.5
