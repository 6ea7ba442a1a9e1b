"""What a round of MIMLBoost needs: places for labels, the vote's weight, and a machine with costs."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq

from bagwise.models.svm.coupled import Coupled, Solution, maximise


def label_places(n_labels: int, n_features: int) -> np.ndarray:
    """Feature that stands for each label.

    Examples
    --------
    >>> label_places(3, 10), label_places(1, 10)
    (array([0. , 0.5, 1. ]), array([0.]))
    >>> label_places(2, 2499).round(3)  # ln 2500 / ln 50
    array([0., 2.])
    """
    longest = 1.0 if n_features + 1 <= 50 else math.log(n_features + 1) / math.log(50)
    return longest * np.arange(n_labels) / max(n_labels - 1, 1)


def best_vote(W: np.ndarray, E: np.ndarray) -> float:
    """Weight c that minimises ``sum W exp((2 E - 1) c)``; 0 where no positive one lowers it.

    There must be an E above one half.

    Examples
    --------
    With all right or all wrong it is that of AdaBoost, ``ln(3) / 2``:

    >>> round(best_vote(np.array([0.75, 0.25]), np.array([0.0, 1.0])), 6)
    0.549306
    """
    a = 2.0 * E.ravel() - 1.0
    w = W.ravel()

    def slope(c: float) -> float:
        return float((w * a * np.exp(a * c - c * a.max())).sum())  # up to a positive factor

    if slope(0.0) >= 0.0:
        return 0.0
    high = 1.0
    while slope(high) < 0.0:
        high *= 2.0
    return float(brentq(slope, 0.0, high, xtol=1e-12))


def weighted_machine(
    problem: Coupled, T: np.ndarray, costs: np.ndarray, *, start=None, tol: float, max_iter: int
) -> tuple[Solution, float]:
    """Machine with an intercept over all rows, each with its own penalty; a penalty of 0 leaves a row out."""
    low, high = np.where(T > 0, 0.0, -costs), np.where(T > 0, costs, 0.0)

    def primal(F, penalty):
        b = best_intercept(F, T, costs)
        return penalty + float((costs * np.maximum(0.0, 1.0 - T * (F + b))).sum())

    found = maximise(
        problem,
        T,
        lambda B: np.clip(B, low, high),
        primal,
        balanced=True,
        tidy=lambda B: balanced_box(B, low, high),
        start=start,
        tol=tol,
        max_iter=max_iter,
    )
    return found, best_intercept(found.values, T, costs)


def best_intercept(F: np.ndarray, T: np.ndarray, costs: np.ndarray) -> float:
    """Intercept b that minimises ``sum costs max(0, 1 - T (F + b))``; the middle where an interval does.

    Examples
    --------
    >>> best_intercept(np.array([0.0, 1.0, 5.0]), np.array([-1.0, 1.0, 1.0]), np.ones(3))
    -0.5
    """
    used = costs.ravel() > 0
    at, cost, t = (T - F).ravel()[used], costs.ravel()[used], T.ravel()[used]  # where each slack begins
    order = np.argsort(at, kind="stable")
    at = at[order]
    slope = np.cumsum(cost[order]) - cost[t > 0].sum()  # right of each place
    total = cost.sum()
    first = int(np.searchsorted(slope, -1e-12 * total))
    last = int(np.searchsorted(slope, 1e-12 * total, side="right"))
    return 0.5 * float(at[min(first, len(at) - 1)] + at[min(last, len(at) - 1)])


def balanced_box(B: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Nearest matrix within limits whose entries add up to 0; the limits must allow one.

    Examples
    --------
    >>> balanced_box(np.array([3.0, -1.0]), np.array([0.0, -2.0]), np.array([2.0, 0.0])).round(9)
    array([ 2., -2.])
    """

    def total(shift: float) -> float:
        return float(np.clip(B - shift, low, high).sum())

    reach = float(np.abs(B).max() + max(high.max(), -low.min())) + 1.0
    return np.clip(B - brentq(total, -reach, reach, xtol=1e-14), low, high)
