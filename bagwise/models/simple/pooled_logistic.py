"""Pooled logistic regression: statistics of bags and one linear model per label, in memory or on shards."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning

from bagwise.base import MIMLClassifier, Traits
from bagwise.base.blocks import Block, Blocks, blocks_in_memory
from bagwise.base.parameters import Number, Several, Whole
from bagwise.compute.optim import minimise
from bagwise.compute.parts import map_reduce
from bagwise.compute.scaling import Scaling, apply_scaling, scaling_of
from bagwise.compute.threads import small_products
from bagwise.errors import warn
from bagwise.preprocessing.pooling import Statistic, bag_statistics


class PooledLogisticRegression(MIMLClassifier):
    r"""Describe every bag by statistics of its instances, and learn one logistic regression per label.

    A sum over bags, so that it learns from `bagwise.ShardedBags` as from bags in memory; any other classifier
    of rows goes into `PooledClassifier`, in memory.

    Parameters
    ----------
    alpha : float, default=1.0
        L2 penalty ``alpha / 2 * |w|^2`` on the weights of standardised statistics; intercepts are free.
    statistics : sequence, default=("mean", "std", "max", "min", "size")
        Of each feature: "mean", "std", "min", "max", "sum", and numbers from 0 to 1, which are quantiles;
        "size" is the number of instances.
    max_iter : int, default=200
        Limit on iterations of L-BFGS.
    tol : float, default=1e-5
        Stop when no entry of the gradient per bag is larger.

    Attributes
    ----------
    coef_ : ndarray of shape (n_labels, n_columns)
        Weights of the statistics as they are.
    intercept_ : ndarray of shape (n_labels,)
        Intercepts.
    objective_ : ndarray
        Penalised log loss at the start and after every iteration.
    n_iter_ : int
        Number of iterations.

    Notes
    -----
    All labels are one convex problem, :math:`\sum_{bl} \log(1 + e^{-y_{bl} f_l(b)}) + \alpha / 2 |W|^2`. A
    label that all training bags carry, or none, is answered by how many those are.

    References
    ----------
    .. [1] J. Amores: Multiple instance classification: review, taxonomy and comparative study. Artificial
       Intelligence 201, 2013. The embeddings by statistics.

    Examples
    --------
    >>> from bagwise.datasets import make_miml
    >>> data = make_miml(n_bags=200, random_state=0)
    >>> model = PooledLogisticRegression().fit(data.bags[:150], data.Y[:150])
    >>> bool((model.predict(data.bags[150:]) == data.Y[150:]).mean() > 0.75)
    True
    """

    traits = Traits(probabilities=True, empty_bags=True, shards=True)

    _parameters = {
        "alpha": Number(0),
        "statistics": Several(Statistic()),
        "max_iter": Whole(1),
        "tol": Number(0),
    }

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        statistics: Any = ("mean", "std", "max", "min", "size"),
        max_iter: int = 200,
        tol: float = 1e-5,
    ) -> None:
        self.alpha = alpha
        self.statistics = statistics
        self.max_iter = max_iter
        self.tol = tol

    def _fit(self, bags: Any, Y: np.ndarray, *weights: Any) -> None:
        self._fit_blocks(blocks_in_memory(bags, Y))

    def _fit_blocks(self, blocks: Blocks) -> None:
        carried, n_bags = map_reduce(_counts, None, blocks)
        names = tuple(self.statistics)
        n_columns = sum(1 if name == "size" else self.n_features_in_ for name in names)
        tables = blocks.map(partial(_table, names)).in_memory(8.0 * n_bags * n_columns)
        scaling = scaling_of(tables.map(_rows), "standard", n_columns, np.float64)
        # the deviation of a feature that never changes is rounding, which no spread over bags would tell
        dtype = blocks.only().bags.dtype if blocks.kind == "memory" else blocks.shards.dtype  # type: ignore
        says = scaling_of(blocks.map(_instances), "standard", self.n_features_in_, dtype).factor > 0
        counts = np.concatenate([np.ones(1, bool) if name == "size" else says for name in names])
        scaling = Scaling(scaling.kind, scaling.shift, np.where(counts, scaling.factor, 0.0))
        rows = tables.map(partial(_scaled, scaling))
        L = blocks.n_labels
        share = np.clip(carried / n_bags, 1e-3, 1.0 - 1e-3)
        start = np.concatenate([np.zeros((L, n_columns)), np.log(share / (1.0 - share))[:, None]], axis=1)

        def penalised(W: np.ndarray) -> tuple[float, np.ndarray]:
            value, G = map_reduce(loss_and_gradient, W, rows)
            G = G.copy()
            G[:, :-1] += self.alpha * W[:, :-1]
            return value + 0.5 * self.alpha * float(np.square(W[:, :-1]).sum()), G

        with small_products(0.0):
            W, _, at_rest, history = minimise(
                penalised,
                start,
                max_iter=self.max_iter,
                tol=self.tol,
                least_fall=64 * np.finfo(float).eps,
                tries=50,
                unit=n_bags,
            )
        if not at_rest:
            warn(f"stopped after {self.max_iter} iterations; raise max_iter or alpha", ConvergenceWarning)
        for label in np.flatnonzero((carried == 0) | (carried == n_bags)):
            W[label] = 0.0
            W[label, -1] = np.log(2.0 * n_bags + 1.0) * (1.0 if carried[label] else -1.0)
        self.coef_, self.intercept_ = scaling.weights_as_given(W[:, :-1], W[:, -1])
        self.objective_, self.n_iter_ = np.array(history), len(history) - 1

    def _scores(self, bags: Any) -> np.ndarray:
        table = bag_statistics(bags, self.statistics)
        return np.asarray(table @ self.coef_.T) + self.intercept_

    def _probabilities(self, bags: Any) -> np.ndarray:
        return expit(self._scores(bags))


# ---------------------------------------------------------------------- sums over blocks


def _counts(_: None, block: Block) -> tuple[np.ndarray, float]:
    """Bags that carry each label, and the number of bags."""
    return (block.Y > 0).sum(axis=0), float(len(block.Y))


def _table(names: tuple[Any, ...], block: Block) -> tuple[Any, np.ndarray]:
    return bag_statistics(block.bags, names), block.Y


def _instances(block: Block) -> tuple[Any, None]:
    return block.bags.X, None


def _rows(data: Any) -> tuple[Any, None]:
    return data[0], None


def _scaled(scaling: Scaling, data: Any) -> tuple[Any, np.ndarray]:
    table, Y = data
    return apply_scaling(table, scaling), Y


def loss_and_gradient(W: np.ndarray, data: Any) -> tuple[float, np.ndarray]:
    """Log loss of the rows of a block and its gradient; the last column of ``W`` is the intercept."""
    X, Y = data
    F = np.asarray(X @ W[:, :-1].T) + W[:, -1]
    R = expit(F) - Y
    value = float((np.logaddexp(0.0, F) - F * Y).sum())
    G = np.empty_like(W)
    G[:, :-1] = (X.T @ R).T if not sparse.issparse(X) else np.asarray(X.T.tocsr() @ R).T
    G[:, -1] = R.sum(axis=0)
    return value, G
