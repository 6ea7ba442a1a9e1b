"""How many clusters: by cross-validation or by the Bayesian information criterion."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import KFold, StratifiedKFold, check_cv

from bagwise.base.parameters import check_parameters
from bagwise.kernels.numeric import frozen
from bagwise.models._shared.each_label import each_label
from bagwise.models.mm_mil.kernels import bag_losses
from bagwise.models.mm_mil.objective import activations, log_odds, penalty, witnesses
from bagwise.models.mm_mil.solvers import Solution, learn_label
from bagwise.parallel import run


def select_n_clusters(
    model: Any,
    X: Any,
    y: Any,
    n_clusters: Iterable[int] = range(1, 7),
    *,
    criterion: str = "cv",
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
    criterion : {"cv", "bic"}, default="cv"
        "cv": area under the ROC curve of held-out bags, higher is better. "bic": twice the negative
        log-likelihood and log(number of bags) times the effective number of parameters, lower is better; one
        fit per number, but a rough guide on few bags.
    cv : int or splitter, default=2
        Folds of "cv"; an int makes shuffled folds, stratified for one label.
    slack : float, default=0.005
        The smallest number of clusters is taken whose area is not further than this below the best.
    n_jobs : int, optional
        Fits at the same time.

    Returns
    -------
    best : int
        The number chosen.
    values : dict
        The criterion for every number tried, averaged over labels.

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
    if criterion not in ("cv", "bic"):
        raise ValueError(f"criterion must be 'cv' or 'bic', got {criterion!r}")
    if not numbers or numbers[0] < 1:
        raise ValueError(f"n_clusters must be numbers of at least 1, got {numbers}")
    check_parameters(model, model._parameters)
    bags, Y = clone(model)._check_training(X, y)
    if criterion == "bic":
        values = dict(zip(numbers, _criteria(clone(model), bags, Y, numbers, n_jobs)))
        return min(numbers, key=lambda M: (values[M], M)), values
    folds = _folds(cv, Y, model.random_state)
    tasks = [(model, bags, Y, M, train, test) for M in numbers for train, test in folds.split(Y, Y[:, 0])]
    areas = np.reshape(run(_held_out_area, tasks, n_jobs), (len(numbers), -1)).mean(axis=1)
    good = areas >= areas.max() - slack
    return numbers[int(good.argmax())], dict(zip(numbers, areas.tolist()))


def _folds(cv: Any, Y: np.ndarray, random_state: Any) -> Any:
    if not isinstance(cv, int):
        return check_cv(cv)
    kind = StratifiedKFold if Y.shape[1] == 1 else KFold
    return kind(cv, shuffle=True, random_state=random_state)


def _held_out_area(model: Any, bags: Any, Y: np.ndarray, M: int, train: Any, test: Any) -> float:
    """Area under the ROC curve, averaged over the labels for which it is defined."""
    fitted = clone(model).set_params(n_clusters=M).fit(bags[train], Y[train])
    scores = fitted.decision_function(bags[test])
    defined = np.flatnonzero(Y[test].min(axis=0) < Y[test].max(axis=0))
    return float(np.mean([roc_auc_score(Y[test, l], scores[:, l]) for l in defined])) if defined.size else 0.5


def _criteria(model: Any, bags: Any, Y: np.ndarray, numbers: list[int], n_jobs: int | None) -> list[float]:
    shared = model._shared(bags)
    found = []
    for M in numbers:
        settings = {**model._settings(shared["seed"]), "n_clusters": M}
        solutions = each_label(learn_label, Y, n_jobs, shared["Phi"], bags.offsets, settings)
        values = [
            information_criterion(s, shared["Phi"], bags.offsets, y, settings["lam"], settings["beta"])
            for s, y in zip(solutions, Y.T)
            if s is not None
        ]
        found.append(float(np.mean(values)) if values else 0.0)
    return found


def information_criterion(
    solution: Solution, Phi: Any, offsets: np.ndarray, labels: np.ndarray, lam: float, beta: float
) -> float:
    """``2 E + ln(n_bags) k`` with the likelihood of Eq. (6) and the effective number of parameters k."""
    E = solution.value - penalty(solution.P, lam, beta)
    k = effective_parameters(solution.P, Phi, offsets, lam, beta)
    return 2.0 * E + np.log(len(labels)) * k


def effective_parameters(P: np.ndarray, Phi: Any, offsets: np.ndarray, lam: float, beta: float) -> float:
    """Trace of ``H (H + penalty)^-1`` with the Fisher information H of the bags' log-odds at the witnesses.

    The penalty takes parameters out of service that it holds near zero; counting all of a kernel's weights
    would always choose one cluster. The trace is that of a matrix of bags by bags.
    """
    M = P.shape[1] // 2
    rows = witnesses(activations(Phi, P), offsets)
    chosen = Phi[rows].toarray() if hasattr(Phi, "indptr") else Phi[rows]
    F = chosen @ P[:-1] + P[-1]
    n = len(rows)
    J = np.empty_like(F)
    # bags of one instance and weight 1: the gradient of the loss is -(1 - p) dr/dF for positive labels
    bag_losses(F, frozen(np.arange(n + 1)), frozen(np.ones(n)), frozen(np.ones(n)), np.inf, J)
    log_p, log_n = log_odds(F)
    J /= -np.exp(log_n)[:, None].clip(min=1e-300)
    J *= np.sqrt(expit(log_p - log_n) * expit(log_n - log_p))[:, None]
    inner = chosen @ chosen.T
    free = 1e-6  # stands for no penalty on intercepts
    G = np.zeros((n, n))
    for columns, weight in ((slice(0, M), beta), (slice(M, 2 * M), lam)):
        G += (J[:, columns] @ J[:, columns].T) * (inner / (2.0 * max(weight, free)) + 1.0 / (2.0 * free))
    values = np.linalg.eigvalsh(G).clip(min=0.0)
    return float((values / (1.0 + values)).sum())
