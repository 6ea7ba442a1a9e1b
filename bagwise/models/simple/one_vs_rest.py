"""Label sets from any binary classifier of bags: one copy of it per label."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.base import clone

from bagwise.base import MIMLClassifier, Traits
from bagwise.base.parameters import JOBS, Choice, HasMethod, check_parameters
from bagwise.models._shared.scores import constant_score, each_label
from bagwise.models.mm_mil.estimator import MMMIL


class _TraitsOfInner:
    """Traits of the wrapped estimator for an object, those of the default for the class."""

    def __get__(self, model: Any, owner: type) -> Traits:
        if model is None:
            return replace(MMMIL.traits, shards=False)
        inner = model._inner()
        if hasattr(inner, "traits"):
            return replace(inner.traits, sample_weight=False, shards=False)
        # a pipeline or a search decides by itself what it takes
        return Traits(probabilities=hasattr(inner, "predict_proba"), views=True, empty_bags=True)


class OneVsRestMIL(MIMLClassifier):
    """Learn each label by itself, with a copy of a binary multi-instance classifier.

    Parameters
    ----------
    estimator : classifier, optional
        Learns from bags and a 1-D ``y`` of two classes: any estimator of the library, a pipeline, a search.
        By default multi-instance logistic regression, ``MMMIL(n_clusters=1)``.
    n_jobs : int, optional
        Labels learned at the same time; -1 uses all cores.

    Attributes
    ----------
    estimators_ : list of classifiers
        One per label; None for a label that all training bags carry, or none.
    constant_ : ndarray of shape (n_labels,)
        Score of every bag for such labels; 0 for the others.

    Notes
    -----
    Labels are independent of each other [1]_: what one costs, all cost, and correlations are not used.

    An estimator that spends time on what no label changes, such as the features of a kernel, can offer two
    methods: ``_shared(bags)`` computes it, and ``_learn(bags, Y, shared)`` learns with it. It is then
    computed once for all labels. `MMMIL` does so.

    References
    ----------
    .. [1] G. Tsoumakas, I. Katakis: Multi-label classification: an overview. International Journal of Data
       Warehousing and Mining 3(3), 2007. The transformation PT4.

    Examples
    --------
    >>> from bagwise import load_dataset
    >>> data = load_dataset("digits", n_bags=100)
    >>> model = OneVsRestMIL(MMMIL(n_clusters=2, random_state=0)).fit(data.bags, data.Y)
    >>> model.decision_function(data.bags).shape, len(model.estimators_)
    ((100, 10), 10)
    """

    traits = _TraitsOfInner()  # type: ignore[assignment]
    _parameters = {"estimator": (Choice(None), HasMethod("fit", "decision_function")), "n_jobs": JOBS}

    def __init__(self, estimator: Any = None, *, n_jobs: int | None = None) -> None:
        self.estimator = estimator
        self.n_jobs = n_jobs

    def _inner(self) -> Any:
        return MMMIL(n_clusters=1) if self.estimator is None else self.estimator

    def _fit(self, bags: Any, Y: np.ndarray) -> None:
        inner = self._inner()
        shared = None
        if hasattr(inner, "_shared"):
            check_parameters(inner, inner._parameters)  # its fit, which would do so, is not called
            shared = clone(inner)._shared(bags)
        self.estimators_ = each_label(_learn_label, Y, self.n_jobs, inner, bags, shared)
        self.constant_ = np.array(
            [constant_score(y) if model is None else 0.0 for y, model in zip(Y.T, self.estimators_)]
        )

    def _scores(self, bags: Any) -> np.ndarray:
        return self._columns(lambda model: model.decision_function(bags), len(bags), self.constant_)

    def _instance_scores(self, bags: Any) -> np.ndarray:
        def score(model: Any) -> np.ndarray:
            if hasattr(model, "instance_scores"):
                return model.instance_scores(bags)[:, 0]
            return model.decision_function(bags.singletons())

        return self._columns(score, bags.n_instances, self.constant_)

    def _probabilities(self, bags: Any) -> np.ndarray:
        return self._columns(lambda model: model.predict_proba(bags)[:, 1], len(bags), expit(self.constant_))

    def _columns(self, score: Any, n_rows: int, constant: np.ndarray) -> np.ndarray:
        parts = [
            np.full(n_rows, value) if model is None else score(model)
            for model, value in zip(self.estimators_, constant)
        ]
        return np.column_stack(parts)


def _learn_label(y: np.ndarray, inner: Any, bags: Any, shared: Any) -> Any:
    """A copy of the estimator, fitted to one label."""
    model = clone(inner)
    if shared is None:
        return model.fit(bags, y)
    model._learn(*model._check_training(bags, y), shared)
    return model
