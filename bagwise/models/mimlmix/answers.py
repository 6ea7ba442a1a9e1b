"""What a fitted mixture answers: labels and topics of bags, labels of instances, what a label looks like."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bagwise.bags import MultiViewBags
from bagwise.base import NO_LABEL, MIMLClassifier
from bagwise.errors import DataError
from bagwise.metrics import top_labels
from bagwise.models.mimlmix.fit_em import as_views
from bagwise.models.mimlmix.predict import infer_within, predict_views
from bagwise.models.mimlmix.tune import distribution_of


class MixtureAnswers(MIMLClassifier):
    """Answers from what `MixtureLearner` has learned."""

    sets: str
    components_: np.ndarray
    view_weights_: dict[str, float]
    views_: dict[str, dict[str, Any]]
    settings_: dict[str, Any]
    n_top_: int
    threshold_: float
    _fixed: dict[str, Any]
    _topics: np.ndarray
    _topic_share: np.ndarray
    _n_real: int
    _n_labels: int

    def _infer(self, bags, want_phi=False):
        settings = {**self._fixed, "eta": self.settings_["eta"], "xi": self.settings_["xi"]}
        weights = np.array(list(self.view_weights_.values()))
        return predict_views(
            as_views(bags),
            self.views_,
            weights,
            self._topics,
            self._topic_share,
            settings,
            want_phi=want_phi,
        )

    def _spread(self, values):
        """Columns of components brought to the labels; 0 for labels without a training bag."""
        result = np.zeros((len(values), self._n_labels))
        result[:, self.components_[: self._n_real]] = values[:, : self._n_real]
        return result

    def label_scores(self, X, *, normalise=False):
        """Dirichlet parameters gamma of every bag: expected number of its instances per label, and the prior.

        Parameters
        ----------
        X : Bags, MultiViewBags, list of 2-D arrays, or table
            The bags.
        normalise : bool, default=False
            Whether to divide by their sum: expected shares of labels.

        Returns
        -------
        ndarray of shape (n_bags, n_labels)
            0 for labels without a training bag.
        """
        check_is_fitted(self)
        gamma = self._infer(self._as_bags(X, reset=False))[0]
        if normalise:
            gamma = gamma / gamma.sum(axis=1, keepdims=True)
        return self._spread(gamma)

    def transform_topics(self, X):
        """Topics theta' of every bag, (n_bags, n_topics)."""
        check_is_fitted(self)
        return self._infer(self._as_bags(X, reset=False))[1]

    def _scores(self, bags):
        gamma = self._infer(bags)[0]
        scores = self._spread(gamma)
        if self.sets == "threshold":
            return scores - self.threshold_
        chosen = top_labels(scores, self.n_top_) & (scores > 0)
        if len(self.components_) > self._n_real:
            chosen &= scores > gamma[:, -1:]
        return np.where(chosen, scores, -1.0 / np.maximum(scores, 1e-12))

    def _instance_scores(self, bags):
        phi = self._infer(bags, want_phi=True)[2]
        return self._by_view(bags, {v: self._spread(values) for v, values in phi.items()})

    def _by_view(self, bags, values):
        """A dict for several views, the only array for one."""
        return values if isinstance(bags, MultiViewBags) else next(iter(values.values()))

    def _annotations(self, bags, Y, want_proba):
        if Y is None:
            phi = self._infer(bags, want_phi=True)[2]
        else:
            sets = Y[:, self.components_[: self._n_real]]
            if len(self.components_) > self._n_real:
                sets = np.column_stack([sets, np.zeros(len(sets), dtype=np.int8)])
            weights = np.array(list(self.view_weights_.values()))
            phi = infer_within(as_views(bags), sets, self.views_, weights, self.settings_["alpha_train"])
        named = np.append(self.components_[: self._n_real], NO_LABEL)
        labels = {}
        for v, values in phi.items():
            best = np.minimum(values.argmax(axis=1), self._n_real)
            labels[v] = np.where(values.any(axis=1), named[best], NO_LABEL)
        proba = {v: self._spread(values) for v, values in phi.items()} if want_proba else None
        return self._by_view(bags, labels), proba and self._by_view(bags, proba)

    def label_distribution(self, label, view=None):
        """What a label looks like in a view, in the units of the data.

        Parameters
        ----------
        label : int
            Label index; one with a training bag.
        view : str, optional
            The view; may be left out if there is only one.

        Returns
        -------
        dict
            ``{"words": probabilities}``, or ``{"mean": ..., "covariance": ...}``.
        """
        check_is_fitted(self)
        at = np.flatnonzero(self.components_[: self._n_real] == label)
        if not at.size:
            raise DataError(f"label {label} has no training bag, so nothing is known about it")
        if view is None and len(self.views_) > 1:
            raise DataError(f"name one of the views {', '.join(self.views_)}")
        learned = self.views_[next(iter(self.views_)) if view is None else view]
        return distribution_of(learned, int(at[0]))
