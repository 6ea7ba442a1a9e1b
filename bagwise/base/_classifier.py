"""The classifier: every public method written once, two private ones left to the algorithm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from bagwise.bags import Bags, MultiViewBags
from bagwise.bags.labels import in_bag_order
from bagwise.base._fits import over_parts, score_sharded
from bagwise.base._input import NO_LABEL, UNKNOWN_LABEL, LabelInput, Traits, carries_names, fit_for
from bagwise.base.blocks import Blocks, is_sharded
from bagwise.base.parameters import Rules
from bagwise.errors import DataError


class MIMLClassifier(ClassifierMixin, LabelInput):
    """Base of all classifiers of bags.

    ``X`` is a `Bags`, a list of 2-D arrays, or a table (each row a bag of one instance); ``Y`` a 0/1
    matrix (n_bags, n_labels), a DataFrame of such columns, lists of label names, or a 1-D array with one
    class per bag. See the table in ``docs/contract.md`` for what each method returns.

    Attributes
    ----------
    classes_ : ndarray
        Of shape (n_labels, 2), every row ``[0, 1]``, for label sets; the classes for 1-D ``Y``.
    n_features_in_ : int
        Number of features.
    label_names_ : tuple of str
        Names of the labels, where ``Y`` carried them.
    """

    # One rule, or several of which one must hold, for every argument of the constructor.
    _parameters: ClassVar[Rules] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Give ``fit`` a ``sample_weight`` where the traits promise it; scikit-learn looks at it."""
        super().__init_subclass__(**kwargs)
        if "traits" in vars(cls) and "fit" not in vars(cls):
            cls.fit = fit_for(cls.traits if isinstance(cls.traits, Traits) else Traits())  # type: ignore

    # ------------------------------------------------------------------ what an algorithm writes

    def _fit(self, bags: Any, Y: np.ndarray, *weights: Any) -> None:
        """Learn from bags and an int8 matrix of labels; with the trait, weights of bags (or None) too."""
        raise NotImplementedError

    def _fit_blocks(self, blocks: Blocks) -> None:
        """Learn from bags and labels in blocks, where traits promise ``shards``; `_fit` gives them one."""
        raise NotImplementedError

    def _scores(self, bags: Any) -> np.ndarray:
        """Score of every label for every bag; above 0 means predicted."""
        raise NotImplementedError

    def _predict(self, bags: Any, scores: np.ndarray) -> np.ndarray:
        """Decide from the bags and their scores which labels each bag carries: a matrix of truth values."""
        return scores > 0

    def _instance_scores(self, bags: Any) -> Any:
        """Score of every label for every instance; by default that of a bag with this instance alone.

        With several views, a dict of view to array.
        """
        return self._scores(bags.singletons())

    def _probabilities(self, bags: Any) -> np.ndarray:
        """Marginal probability of every label for every bag, where traits promise it."""
        raise NotImplementedError

    def _instance_probabilities(self, bags: Bags, Y: np.ndarray | None) -> np.ndarray:
        """Distribution over labels of every instance, within the bag's set if it is known."""
        P = self._probabilities(bags.singletons())
        if Y is not None:
            P = np.where(Y[bags.index] > 0, P, 0.0)
        total = P.sum(axis=1, keepdims=True)
        return np.divide(P, total, out=np.zeros_like(P), where=total > 0)

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        """Small settings for the common checks, when the defaults are slow."""
        return {}

    @classmethod
    def _expected_failed_checks(cls) -> dict[str, str]:
        """Checks of scikit-learn or of bagwise that cannot hold, each by name with the reason."""
        return {}

    # ------------------------------------------------------------------ what users call

    fit = fit_for(Traits())

    def decision_function(self, X: Any) -> np.ndarray:
        """Score every label for every bag; above 0 means predicted.

        Returns
        -------
        ndarray of shape (n_bags, n_labels), or (n_bags,) after fitting a 1-D ``Y`` of two classes
        """
        check_is_fitted(self)
        if is_sharded(X):
            return over_parts(self, "decision_function", X)
        scores = self._scores(self._as_bags(X, reset=False))
        return scores[:, 0] if self._target == "binary" else scores

    def predict(self, X: Any) -> np.ndarray:
        """Predict the label set (or class) of every bag, in the number type of the training ``Y``."""
        return self.scores_and_labels(X)[1]

    def scores_and_labels(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Results of ``decision_function`` and ``predict`` for the price of one."""
        check_is_fitted(self)
        if is_sharded(X):
            return over_parts(self, "scores_and_labels", X)
        bags = self._as_bags(X, reset=False)
        scores = self._scores(bags)
        if self._target == "multiclass":
            return scores, self.classes_[scores.argmax(axis=1)]
        chosen = self._predict(bags, scores)
        if self._target == "binary":
            return scores[:, 0], self.classes_[chosen[:, 0].astype(np.intp)]
        return scores, chosen.astype(self._target_dtype)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Share of bags whose predicted label set (or class) is exactly the true one.

        Parameters
        ----------
        X : Bags, list of 2-D arrays, or table
            The bags.
        y : labels as in ``fit``
            Their labels; a DataFrame is matched to the bags by id and to the labels by name. Shards carry
            them inside.
        sample_weight : array of shape (n_bags,), optional
            Weights of the bags.
        """
        check_is_fitted(self)
        if is_sharded(X):
            return score_sharded(self, X)
        bags = self._as_bags(X, reset=False)
        truth = self._known_labels(y, bags) if carries_names(y) else in_bag_order(y, bags)
        weights = None if sample_weight is None else self._check_weights(sample_weight, bags)
        return float(super().score(bags, truth, sample_weight=weights))

    @available_if(lambda self: self.traits.probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability that each bag carries each label.

        Returns
        -------
        ndarray of shape (n_bags, n_labels); columns are the classes after fitting a 1-D ``Y``
        """
        check_is_fitted(self)
        if is_sharded(X):
            return over_parts(self, "predict_proba", X)
        P = self._probabilities(self._as_bags(X, reset=False))
        if self._target == "binary":
            return np.column_stack([1.0 - P[:, 0], P[:, 0]])
        if self._target == "multiclass":
            total = P.sum(axis=1, keepdims=True)
            return np.divide(P, total, out=np.full_like(P, 1.0 / P.shape[1]), where=total > 0)
        return P

    def instance_scores(self, X: Any) -> np.ndarray:
        """Score every label for every instance; rows are those of ``bags.X``.

        Returns
        -------
        ndarray of shape (n_instances, n_labels)
        """
        check_is_fitted(self)
        if is_sharded(X):
            return over_parts(self, "instance_scores", X)
        return self._instance_scores(self._as_bags(X, reset=False))

    def key_instances(self, X: Any, k: int = 1) -> Any:
        """Find the instances that speak most for each label; with several views, a dict view -> array.

        Returns
        -------
        ndarray of shape (n_bags, n_labels, k)
            Row numbers of ``bags.X``, best first; -1 where a bag has fewer than ``k`` instances.
            Among equal scores the earlier row wins.
        """
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        check_is_fitted(self)
        bags = self._as_bags(X, reset=False)
        scores = self._instance_scores(bags)
        if isinstance(bags, MultiViewBags):
            return {view: best_rows(F, bags[view].offsets, k) for view, F in scores.items()}
        return best_rows(scores, bags.offsets, k)

    def annotate(self, X: Any, Y: Any = None, *, return_proba: bool = False) -> Any:
        """Say which label each instance carries; with several views, dicts view -> array.

        Parameters
        ----------
        X : Bags, list of 2-D arrays, or table
            The bags.
        Y : labels as in ``fit``, optional
            The bags' known labels. Without them the answer is inductive; with them transductive:
            never a label outside the bag's set. For shards True takes the labels inside.
        return_proba : bool, default=False
            Whether to return the distribution over labels as well.

        Returns
        -------
        labels : ndarray of shape (n_instances,)
            Label index of every instance; -1 where it carries none (its bag's set is empty, or the
            model has room for instances without a label and prefers that).
        proba : ndarray of shape (n_instances, n_labels)
            Only with ``return_proba=True``.
        """
        check_is_fitted(self)
        if is_sharded(X):
            return over_parts(self, "annotate", X, Y, return_proba=return_proba)
        bags = self._as_bags(X, reset=False)
        known = None if Y is None else self._known_labels(Y, bags)
        labels, proba = self._annotations(bags, known, return_proba)
        return (labels, proba) if return_proba else labels

    def _annotations(self, bags: Any, Y: np.ndarray | None, want_proba: bool) -> tuple[Any, Any]:
        """Label of every instance and, if wanted, the distribution behind it; dicts for several views."""
        labels = self._annotate(bags, Y)
        if not want_proba:
            return labels, None
        if not self.traits.probabilities:
            raise TypeError(f"{type(self).__name__} has no probabilities; call annotate without return_proba")
        return labels, self._instance_probabilities(bags, Y)

    def _annotation_scores(self, bags: Any) -> np.ndarray:
        """What labels of an instance are compared by: its scores, unless these mean something else."""
        return self._instance_scores(bags)

    def _annotate(self, bags: Bags, Y: np.ndarray | None) -> np.ndarray:
        return best_labels(self._annotation_scores(bags), bags, Y)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


# ----------------------------------------------------------------------
# From scores to choices: the best label of every instance, the best instances of every label


def best_labels(scores: np.ndarray, bags: Bags, Y: np.ndarray | None) -> np.ndarray:
    """Label with the largest score of every instance, among those of its bag where they are known.

    Examples
    --------
    >>> bags = Bags(np.zeros((2, 1)), np.array([0, 1, 2]))
    >>> scores = np.array([[1.0, 2.0], [3.0, 0.0]])
    >>> best_labels(scores, bags, None), best_labels(scores, bags, np.array([[1, 0], [0, 0]]))
    (array([1, 0]), array([ 0, -1]))
    """
    if Y is None:
        labels = scores.argmax(axis=1)
        if scores.shape[1] == 1:  # one label: carried or not
            labels = np.where(scores[:, 0] > 0, labels, NO_LABEL)
        return labels
    allowed = Y[bags.index] > 0
    labels = np.where(allowed, scores, -np.inf).argmax(axis=1)
    # argmax of a row of -inf is 0, allowed or not
    inside = allowed[np.arange(len(labels)), labels]
    first_allowed = np.where(allowed.any(axis=1), allowed.argmax(axis=1), NO_LABEL)
    return np.where(inside, labels, first_allowed)


def best_rows(F: np.ndarray, offsets: np.ndarray, k: int) -> np.ndarray:
    """Rows with the ``k`` largest scores of each bag and label, -1 where there are fewer.

    Examples
    --------
    >>> best_rows(np.array([[1.0], [3.0], [2.0], [5.0]]), np.array([0, 3, 4]), k=2).squeeze().tolist()
    [[1, 2], [3, -1]]
    """
    sizes = np.diff(offsets)
    index = np.repeat(np.arange(len(sizes)), sizes)
    result = np.full((len(sizes), F.shape[1], k), -1, dtype=np.int64)
    for label in range(F.shape[1]):
        order = np.lexsort((-F[:, label], index))  # stable: the earlier row wins a tie
        for rank in range(k):
            has = sizes > rank
            result[has, label, rank] = order[offsets[:-1][has] + rank]
    return result


# ----------------------------------------------------------------------
# Data that come piece by piece: what ``partial_fit`` checks


def check_piece(model: Any, X: Any, y: Any, classes: Any, *, first: bool) -> tuple[Any, np.ndarray]:
    """Bags and labels of a piece, compared with what came first."""
    if not first:
        bags = model._as_bags(X, reset=False)
        y, unknown = _without_unknown(model, y)
        Y = model._known_labels(y, bags)
        Y = Y if unknown is None else np.where(unknown, np.int8(UNKNOWN_LABEL), Y)
    elif classes is not None and np.ndim(y) == 1:
        bags = model._as_bags(X, reset=True)
        model._target_dtype = "int64"
        model._encode_classes(np.asarray(classes))
        Y = model._known_labels(y, bags)
    else:
        return model._check_training(X, y)
    if len(Y) != len(bags):
        raise DataError(f"inconsistent numbers of samples: {len(bags)} bags, {len(Y)} rows of labels")
    return bags, np.ascontiguousarray(Y)


def _without_unknown(model: Any, y: Any) -> tuple[Any, np.ndarray | None]:
    """A matrix of labels with 0 for those that are not known (NaN), and where these are."""
    if not (
        model.traits.missing_labels and isinstance(y, np.ndarray) and y.dtype.kind == "f" and y.ndim == 2
    ):
        return y, None
    unknown = np.isnan(y)
    return np.where(unknown, 0.0, y), unknown


def pieces_of_shards(model: Any, shards: Any, y: Any) -> Iterator[tuple[Any, np.ndarray]]:
    """Bags and labels of parts as later pieces, the next one read while the last is worked on."""
    name, path = type(model).__name__, shards.place.folder
    if y is not None:
        raise DataError("shards carry their labels inside; leave out y: partial_fit(shards)")
    if not shards.has_labels:
        raise DataError("these shards hold no labels to learn from", path=path)
    n_labels = 1 if model._target == "binary" else len(model.classes_)
    names = getattr(model, "label_names_", None)
    if len(shards.label_names) != n_labels or (names is not None and tuple(names) != shards.label_names):
        some = ", ".join(shards.label_names[:5])
        raise DataError(
            f"{name} goes on with the {n_labels} labels that it began with, in their order; these shards "
            f"have {len(shards.label_names)}: {some}{', ...' if len(shards.label_names) > 5 else ''}",
            path=path,
        )
    for part in shards:
        yield model._as_bags(part.bags, reset=False), np.ascontiguousarray(part.Y)
