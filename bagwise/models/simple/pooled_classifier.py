"""The baseline that every table needs: statistics of bags, and any classifier of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, logit
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.utils import check_random_state, get_tags

from bagwise.base import MIMLClassifier, Traits
from bagwise.base.parameters import JOBS, Choice, HasMethod, Seed, Several
from bagwise.models._shared.scores import constant_score, each_label
from bagwise.preprocessing.pooling import Statistic, bag_statistics

DEFAULT_STATISTICS = ("mean", "std", "min", "max", 0.1, 0.25, 0.5, 0.75, 0.9, "size")
_TINY = 1e-9  # probabilities are kept this far from 0 and 1, so that their logits are finite


class _TraitsOfRows:
    """Probabilities where the classifier of rows has them."""

    def __get__(self, model: Any, owner: type) -> Traits:
        has = model is None or hasattr(model._inner(), "predict_proba")
        return Traits(probabilities=has, empty_bags=True, label_equivariant=False)


class PooledClassifier(MIMLClassifier):
    """Describe every bag by statistics of its instances, and let a classifier of rows do the rest.

    What a bag method must beat: it ignores which instance carries what.

    Parameters
    ----------
    estimator : classifier, optional
        Any classifier of scikit-learn, a pipeline or a search. One that learns several labels at once is
        fitted once, any other once per label. By default ``ExtraTreesClassifier(n_estimators=200)``.
    statistics : sequence, default=("mean", "std", "min", "max", 0.1, 0.25, 0.5, 0.75, 0.9, "size")
        Of each feature: "mean", "std", "min", "max", "sum", and numbers from 0 to 1, which are quantiles;
        "size" is the number of instances.
    random_state : int, RandomState instance or None, default=None
        Seed of the default estimator, and of a given one that has none.
    n_jobs : int, optional
        Labels learned at the same time, and jobs of the default estimator.

    Attributes
    ----------
    estimators_ : list
        Fitted classifiers: one for all labels that vary, or one per label with None for the others.
    constant_ : ndarray of shape (n_labels,)
        Score of labels that all training bags carry, or none; NaN for the others.

    Notes
    -----
    Empty bags are rows of zeros. Sparse instances give sparse rows. An instance is scored as a bag with this
    instance alone, whose quantiles are all equal: such scores rank the instances of a bag, no more.

    References
    ----------
    .. [1] J. Amores: Multiple instance classification: review, taxonomy and comparative study. Artificial
       Intelligence 201, 2013. The embeddings by statistics.

    Examples
    --------
    >>> from bagwise.datasets import make_miml
    >>> from sklearn.linear_model import LogisticRegression
    >>> data = make_miml(n_bags=200, random_state=0)
    >>> model = PooledClassifier(random_state=0).fit(data.bags[:150], data.Y[:150])
    >>> model.predict_proba(data.bags[150:]).shape == data.Y[150:].shape
    True
    >>> mean = PooledClassifier(LogisticRegression(), statistics=["mean"]).fit(data.bags, data.Y)
    >>> len(mean.estimators_) == data.Y.shape[1]
    True
    """

    traits = _TraitsOfRows()  # type: ignore[assignment]

    _parameters = {
        "estimator": (Choice(None), HasMethod("fit", "predict")),
        "statistics": Several(Statistic()),
        "random_state": Seed(),
        "n_jobs": JOBS,
    }

    def __init__(
        self,
        estimator: Any = None,
        *,
        statistics: Any = DEFAULT_STATISTICS,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.statistics = statistics
        self.random_state = random_state
        self.n_jobs = n_jobs

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"estimator": ExtraTreesClassifier(10, random_state=0)}

    def _inner(self) -> Any:
        if self.estimator is None:
            return ExtraTreesClassifier(200, n_jobs=self.n_jobs)
        return self.estimator

    def _seeded(self) -> Any:
        inner = clone(self._inner())
        if self.random_state is not None and inner.get_params().get("random_state", 0) is None:
            seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
            inner.set_params(random_state=seed)
        return inner

    def _fit(self, bags: Any, Y: np.ndarray) -> None:
        table = bag_statistics(bags, self.statistics)
        varies = Y.min(axis=0) < Y.max(axis=0)
        self.constant_ = np.array([np.nan if v else constant_score(y) for v, y in zip(varies, Y.T)])
        inner = self._seeded()
        tags = get_tags(inner)
        # what learns several outputs only, as MultiOutputClassifier, takes a single label as a table too
        self._together = varies.any() and (
            not tags.target_tags.single_output or (tags.classifier_tags.multi_label and varies.sum() > 1)
        )
        if self._together:
            self.estimators_ = [inner.fit(table, Y[:, varies])]
        else:
            self.estimators_ = each_label(_learn_rows, Y, self.n_jobs, inner, table)

    def _scores(self, bags: Any) -> np.ndarray:
        if self.traits.probabilities:
            return logit(self._probabilities(bags))
        return self._columns(bags, self.constant_, _score_rows)

    def _probabilities(self, bags: Any) -> np.ndarray:
        P = self._columns(bags, expit(self.constant_), _probability_rows)
        return np.clip(P, _TINY, 1.0 - _TINY)

    def _columns(self, bags: Any, constant: np.ndarray, answer: Any) -> np.ndarray:
        table = bag_statistics(bags, self.statistics)
        out = np.tile(constant, (len(bags), 1))
        if self._together:
            out[:, np.isnan(constant)] = answer(self.estimators_[0], table)
            return out
        for l in np.flatnonzero(np.isnan(constant)):
            column = answer(self.estimators_[l], table)
            out[:, l] = column if column.ndim == 1 else column[:, -1]
        return out


def _learn_rows(y: np.ndarray, inner: Any, table: Any) -> Any:
    return clone(inner).fit(table, y)


def _probability_rows(model: Any, table: Any) -> np.ndarray:
    """Probabilities of labels learned together (n, n_labels), or of the one label that was learned (n,)."""
    P = model.predict_proba(table)
    if isinstance(P, list):  # forests and neighbours: one table (n, 2) per label
        return np.column_stack([p[:, 1] for p in P])
    return np.asarray(P)


def _score_rows(model: Any, table: Any) -> np.ndarray:
    """Scores where there are no probabilities: of the model, or half a unit above and below none."""
    if hasattr(model, "decision_function"):
        return np.asarray(model.decision_function(table))
    return np.asarray(model.predict(table), dtype=np.float64) - 0.5
