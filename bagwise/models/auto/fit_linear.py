"""Members for text: sparse throughout, all labels in one problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import expit

from bagwise.bags import Bags
from bagwise.compute.optim import minimise
from bagwise.models.mimlfast.estimator import MIMLFast
from bagwise.models.mimlfast.predict import bag_scores
from bagwise.models.svm.base import bag_matrix


@dataclass(frozen=True)
class TermWeights:
    """Logarithmic counts times inverse document frequency, rows of length 1; documents are bags."""

    idf: np.ndarray

    @classmethod
    def learn(cls, X: Any, offsets: np.ndarray) -> TermWeights:
        """Learn from training bags in how many of them each word occurs."""
        n = len(offsets) - 1
        documents = sum_rows(abs(X), offsets)
        frequency = np.bincount(documents.indices, minlength=X.shape[1])
        return cls(np.log((1.0 + n) / (1.0 + frequency)) + 1.0)

    def rows(self, X: Any) -> Any:
        """Weighted rows, each of length 1 (or empty)."""
        data = np.sign(X.data) * np.log1p(np.abs(X.data)) * self.idf[X.indices]
        squares = np.bincount(_row_of(X), np.square(data), minlength=X.shape[0])
        lengths = np.where(squares > 0, np.sqrt(squares), 1.0)
        return sparse.csr_array((data / lengths[_row_of(X)], X.indices, X.indptr), shape=X.shape)

    def bags(self, X: Any, offsets: np.ndarray) -> Any:
        """The same of the sums of bags."""
        return self.rows(sum_rows(X, offsets))


def _row_of(X: Any) -> np.ndarray:
    return np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))


def sum_rows(X: Any, offsets: np.ndarray) -> Any:
    """Sums of the sparse instances of each bag, as CSR.

    Examples
    --------
    >>> sum_rows(sparse.csr_array(np.eye(3)), np.array([0, 2, 3])).toarray()
    array([[1., 1., 0.],
           [0., 0., 1.]])
    """
    total = sparse.csr_array(bag_matrix(offsets, np.ones(X.shape[0])) @ X)
    total.eliminate_zeros()
    return total


@dataclass(frozen=True)
class Logistic:
    """Independent logistic regressions of all labels."""

    coef: np.ndarray
    intercept: np.ndarray

    def logits(self, X: Any) -> np.ndarray:
        """Logits (n, n_labels)."""
        return np.asarray(X @ self.coef) + self.intercept


def fit_logistic(
    X: Any,
    Y: np.ndarray,
    alpha: float,
    weights: np.ndarray | None = None,
    start: Logistic | None = None,
    max_iter: int = 30,
) -> Logistic:
    r"""Minimise weighted log loss plus ``alpha / 2 |W|^2``, intercepts free, by some iterations of L-BFGS.

    Examples
    --------
    >>> X, Y = sparse.csr_array(np.repeat(np.eye(2), 20, axis=0)), np.repeat([[1], [0]], 20, axis=0)
    >>> fit_logistic(X, Y, 0.1).logits(X)[[0, -1], 0].round(1)
    array([ 3.9, -3.9])
    """
    d, L = X.shape[1], Y.shape[1]
    Xt = X.T.tocsr()
    w = np.ones(len(Y)) if weights is None else weights
    total = float(w.sum())
    if start is None:
        share = np.clip(w @ Y / total, 1e-3, 1.0 - 1e-3)
        start = Logistic(np.zeros((d, L)), np.log(share / (1.0 - share)))

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        F = X @ theta[:-1] + theta[-1]
        R = (expit(F) - Y) * w[:, None]
        value = float(((np.logaddexp(0.0, F) - F * Y) * w[:, None]).sum())
        value += 0.5 * alpha * float(np.vdot(theta[:-1], theta[:-1]))
        gradient = np.vstack([Xt @ R + alpha * theta[:-1], R.sum(axis=0)])
        return value, gradient

    theta = minimise(loss, np.vstack([start.coef, start.intercept]), max_iter=max_iter, unit=total).x
    return Logistic(theta[:-1].copy(), theta[-1].copy())


def choose_alpha(
    X: Any, Y: np.ndarray, train: np.ndarray, test: np.ndarray, alphas: Sequence[float], weights: np.ndarray
) -> float:
    """The penalty with the least log loss on rows left out; tried from strong to weak, each from the last."""
    best, model = (np.inf, alphas[0]), None
    for alpha in sorted(alphas, reverse=True):
        model = fit_logistic(X[train], Y[train], alpha, weights[train], model)
        F = model.logits(X[test])
        loss = float(((np.logaddexp(0.0, F) - F * Y[test]) * weights[test][:, None]).sum())
        if loss >= best[0]:
            break
        best = (loss, alpha)
    return best[1]


# ----------------------------------------------------------------------
# A linear member for many bags: MIMLfast, which learns from all of them where others take samples


MANY_BAGS = 3000  # beyond so many it joins in: of fewer it learns less than kernels and forests do


@dataclass(frozen=True)
class LinearRanker:
    """What MIMLFast needs in order to answer, by its own names; what only training needs is left behind."""

    shared_space_: np.ndarray
    shared_intercept_: np.ndarray
    label_weights_: np.ndarray
    offset_: float
    device: str = "cpu"


@dataclass(frozen=True)
class LinearRankers:
    """Mean of some rankers; of an empty bag nothing is known, and it gets the usual score."""

    rankers: list[LinearRanker]
    usual: np.ndarray

    def scores(self, bags: Bags) -> np.ndarray:
        """Scores (n_bags, n_labels), positive for what is more likely there."""
        out = np.tile(self.usual, (len(bags), 1))
        filled = np.flatnonzero(bags.sizes > 0)
        if len(filled):
            some = bags if len(filled) == len(bags) else bags[filled]
            out[filled] = np.mean([bag_scores(ranker, some) for ranker in self.rankers], axis=0)
        return out


def fit_rankers(
    bags: Bags,
    Y: np.ndarray,
    folds: Sequence[tuple[np.ndarray, np.ndarray]],
    *,
    seed: int,
    n_jobs: int | None,
) -> tuple[LinearRankers, np.ndarray, dict[str, Any]]:
    """A ranker per fold; returns them, their answers to the bags of the other part, and facts.

    Examples
    --------
    >>> from bagwise.datasets import make_miml
    >>> data = make_miml(n_bags=90, random_state=0)
    >>> folds = [(np.arange(45), np.arange(45, 90)), (np.arange(45, 90), np.arange(45))]
    >>> model, answers, facts = fit_rankers(data.bags, data.Y, folds, seed=0, n_jobs=None)
    >>> bool(((answers > 0) == data.Y).mean() > 0.8), facts["n_folds"]
    (True, 2)
    """
    answers, rankers = np.full(Y.shape, np.nan), []
    for k, (train, test) in enumerate(folds):
        train, test = (part[bags.sizes[part] > 0] for part in (train, test))
        model = MIMLFast(random_state=(seed + k) % 2**31, n_jobs=n_jobs).fit(bags[train], Y[train])
        rankers.append(
            LinearRanker(
                model.shared_space_, model.shared_intercept_, model.label_weights_, float(model.offset_)
            )
        )
        if len(test):
            answers[test] = bag_scores(rankers[-1], bags[test])
    usual = np.nan_to_num(np.nanmean(answers, axis=0))
    answers = np.where(np.isnan(answers), usual, answers)
    facts = {"n_folds": len(folds), "sub_concepts": int(model.n_sub_concepts_), "solver": model.solver_}
    return LinearRankers(rankers, usual), answers, facts
