"""Choosing width and transform: by the approximate evidence, or by cross-validation of training bags."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import KFold
from sklearn.utils import check_random_state

from bagwise.base.blocks import evenly, thinned
from bagwise.compute.scaling import is_text
from bagwise.models.gp.fit import learn
from bagwise.models.gp.fit_features import Training, is_huge, learn_transform, transformed

MOST_INSTANCES = 1000  # of one bag that take part in comparisons
MOST_BAGS = 1000  # that the evidence is taken of; beyond, decompositions cost more than they tell
_STEPS = 2.0 ** np.arange(-2.0, 2.0, 0.5)  # eight widths around the median distance


def choose(
    model: Any, bags: Any, Y: np.ndarray, random_state: np.random.RandomState
) -> tuple[str, float, Any]:
    """Transform and width for these bags, with all that were compared and how they fared (or None)."""
    how = model.selection
    if how == "auto":
        how = "evidence" if model.assumption == "collective" else "cv"
    given = [model.scaling] if isinstance(model.scaling, str) else list(model.scaling)
    several = how == "evidence" and model.kernel == "gaussian" and model.mode == "fast"
    several = several and isinstance(model.width, str)
    auto: list[str] = []
    if "auto" in given:
        # features in one unit may be better off as they are, which the evidence sees
        plain = ["minmax", "none"] if several and not is_huge(bags.X) else ["minmax"]
        auto = ["log"] if is_text(bags.X) else plain
    transforms = [t for name in given for t in (auto if name == "auto" else [name])]
    candidates = [(t, w) for t in dict.fromkeys(transforms) for w in _widths(model, bags, t)]
    if len(candidates) == 1:
        return *candidates[0], None
    bags = thinned(bags, MOST_INSTANCES)
    if how == "evidence":
        some = evenly(len(bags), MOST_BAGS)
        scores = by_evidence(model, bags[some], Y[some], candidates)
    else:
        seed = int(random_state.randint(2**31 - 1))
        scores = by_cross_validation(model, bags, Y, candidates, seed)
    return *candidates[int(np.argmax(scores))], (candidates, scores)


def _widths(model: Any, bags: Any, transform: str) -> list[float]:
    if model.kernel != "gaussian":
        return [1.0]
    if isinstance(model.width, str):
        return [1.0] if model.mode == "paper" else width_grid(bags, transform).tolist()
    return [float(w) for w in np.atleast_1d(model.width)]


def width_grid(bags: Any, transform: str) -> np.ndarray:
    """Eight widths around the median distance between instances, of which at most 1000 are looked at."""
    X = bags.X
    rows = evenly(X.shape[0], 1000)
    Z = transformed(bags, transform, learn_transform(X, transform))[rows]
    Z = Z.toarray() if sparse.issparse(Z) else Z
    squares = np.einsum("ij,ij->i", Z, Z)
    distances = np.maximum(squares[:, None] + squares[None, :] - 2.0 * Z @ Z.T, 0.0)
    apart = distances[distances > 1e-12 * max(distances.max(), 1e-300)]
    middle = float(np.sqrt(np.median(apart))) if apart.size else 1.0
    return middle * _STEPS


def by_evidence(model: Any, bags: Any, Y: np.ndarray, candidates: list[tuple[str, float]]) -> np.ndarray:
    """Laplace evidence of each candidate, with log-determinants from blocks so that all are comparable."""
    values, K, training, last = [], None, None, None
    for transform, width in candidates:
        if transform != last:
            K = None  # another scale: the covariance of the last candidate is no good start
            X = transformed(bags, transform, learn_transform(bags.X, transform))
            training = Training.of(X, bags.offsets, Y, single=model.assumption == "standard")
        assert training is not None
        found = learn(model, training, width, check_random_state(0), quick=True, K=K)
        values.append(found.log_evidence)
        K = found.learned.K
        last = transform
    return np.array(values)


def by_cross_validation(
    model: Any, bags: Any, Y: np.ndarray, candidates: list[tuple[str, float]], seed: int
) -> np.ndarray:
    """Mean log-likelihood of the labels of bags that were left out."""
    folds = min(model.cv, len(bags))
    values = np.zeros(len(candidates))
    for train, test in KFold(folds, shuffle=True, random_state=seed).split(Y):
        for i, (transform, width) in enumerate(candidates):
            trial = clone(model).set_params(width=width, scaling=transform, mode="fast")
            p = trial.fit(bags[train], Y[train]).predict_proba(bags[test])
            p = np.clip(np.where(Y[test] > 0, p, 1.0 - p), 1e-12, 1.0)
            values[i] += np.log(p).sum()
    return values / Y.size
