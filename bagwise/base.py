"""The contract: what every estimator of bagwise takes and gives.

``MIMLClassifier`` writes all public methods once. An algorithm provides ``_fit(bags, Y)`` and
``_scores(bags)``, and ``_instance_scores(bags)`` when it has a real model of instances.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from bagwise.bags import Bags, MultiViewBags
from bagwise.errors import DataError, quoted
from bagwise.labels import binary_matrix, label_matrix

NO_LABEL = -1  # what `annotate` says of an instance that carries none of the labels


@dataclass(frozen=True)
class Traits:
    """What an estimator can do; read by the common checks, `all_estimators`, the docs and the command line.

    Parameters
    ----------
    instances : "model" or "singleton"
        Whether instance scores come from a model of instances or from bags of one instance.
    probabilities : bool
        Whether ``predict_proba`` exists.
    sparse : bool
        Whether CSR instances are taken.
    views : bool
        Whether several views (`MultiViewBags`) are taken.
    empty_bags : bool
        Whether bags without instances are taken.
    label_equivariant : bool
        Whether permuting the labels permutes the output and changes nothing else.
    sample_weight : bool
        Whether ``fit`` takes ``sample_weight``, one weight per bag.
    instance_labels : bool
        Whether training needs the labels of instances (an upper bound, not weak supervision).
    device : tuple of str
        Where it can run.
    """

    instances: Literal["model", "singleton"] = "singleton"
    probabilities: bool = False
    sparse: bool = True
    views: bool = False
    empty_bags: bool = False
    label_equivariant: bool = True
    sample_weight: bool = False
    instance_labels: bool = False
    device: tuple[str, ...] = ("cpu",)


class _BagInput(BaseEstimator):
    """Shared by classifiers and transformers: one door for data."""

    traits = Traits()

    def _as_bags(self, X: Any, *, reset: bool) -> Any:
        """Bring ``X`` into bags and check them against what was seen in ``fit``."""
        if isinstance(X, MultiViewBags):
            return self._check_views(X, reset=reset)
        if not isinstance(X, Bags):
            if is_list_of_bags(X):
                X = Bags.from_list(X)
            else:
                return self._table_as_bags(X, reset=reset)
        if reset:
            self.n_features_in_ = X.n_features
            _remember_names(self, X.feature_names)
        elif X.n_features != self.n_features_in_:
            raise DataError(
                f"X has {X.n_features} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )
        elif X.feature_names is not None and hasattr(self, "feature_names_in_"):
            if list(X.feature_names) != list(self.feature_names_in_):
                raise DataError("the features have other names or another order than in fit")
        if X.is_sparse and not self.traits.sparse:
            raise DataError(f"{type(self).__name__} does not take sparse instances; use bags.X.toarray()")
        if len(X) == 0:
            raise DataError("Found array with 0 sample(s): there is no bag to learn from or to predict")
        if not self.traits.empty_bags:
            _refuse_empty_bags(X, type(self).__name__)
        refuse_non_finite(X)
        return X

    def _table_as_bags(self, X: Any, *, reset: bool) -> Bags:
        """Take a plain table: every row is a bag of one instance."""
        accepted = "csr" if self.traits.sparse else False
        X = validate_data(self, X, reset=reset, accept_sparse=accepted, dtype=[np.float64, np.float32])
        return Bags(X, np.arange(X.shape[0] + 1))

    def _check_views(self, X: MultiViewBags, *, reset: bool) -> MultiViewBags:
        if not self.traits.views:
            raise TypeError(
                f"{type(self).__name__} takes one view; pick one with bags[name] "
                f"(the views are {', '.join(X.view_names)})"
            )
        shapes = {name: bags.n_features for name, bags in X.views.items()}
        if reset:
            self.n_features_in_ = X.shape[1]
            self.view_features_in_ = shapes
        elif shapes != self.view_features_in_:
            raise DataError(f"the views are {shapes}, but fit saw {self.view_features_in_}")
        if not self.traits.empty_bags:
            _refuse_empty_bags(X, type(self).__name__)
        for bags in X.views.values():
            refuse_non_finite(bags)
        return X

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.traits.sparse
        return tags


class MIMLClassifier(ClassifierMixin, _BagInput):
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

    label_names_: tuple[str, ...]

    # ------------------------------------------------------------------ what an algorithm writes

    def _fit(self, bags: Any, Y: np.ndarray) -> None:
        """Learn from bags and an int8 matrix of labels."""
        raise NotImplementedError

    def _scores(self, bags: Any) -> np.ndarray:
        """Score of every label for every bag; above 0 means predicted."""
        raise NotImplementedError

    def _instance_scores(self, bags: Bags) -> np.ndarray:
        """Score of every label for every instance; by default that of a bag with this instance alone."""
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
        """Checks of scikit-learn that cannot hold, each with the reason."""
        return {}

    # ------------------------------------------------------------------ what users call

    def fit(self, X: Any, y: Any) -> Any:
        """Learn from bags and their labels.

        Parameters
        ----------
        X : Bags, list of 2-D arrays, or table
            The bags.
        y : 0/1 matrix, DataFrame, lists of label names, or 1-D array of classes
            Their labels.

        Returns
        -------
        self
        """
        bags, targets = self._check_training(X, y)
        self._fit(bags, targets)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Score every label for every bag; above 0 means predicted.

        Returns
        -------
        ndarray of shape (n_bags, n_labels), or (n_bags,) after fitting a 1-D ``Y`` of two classes
        """
        check_is_fitted(self)
        scores = self._scores(self._as_bags(X, reset=False))
        return scores[:, 0] if self._target == "binary" else scores

    def predict(self, X: Any) -> np.ndarray:
        """Predict the label set (or class) of every bag, in the number type of the training ``Y``."""
        scores = self.decision_function(X)
        if self._target == "multilabel":
            return (scores > 0).astype(self._target_dtype)
        if self._target == "binary":
            return self.classes_[(scores > 0).astype(np.intp)]
        return self.classes_[scores.argmax(axis=1)]

    @available_if(lambda self: self.traits.probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability that each bag carries each label.

        Returns
        -------
        ndarray of shape (n_bags, n_labels); columns are the classes after fitting a 1-D ``Y``
        """
        check_is_fitted(self)
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
        return self._instance_scores(self._as_bags(X, reset=False))

    def key_instances(self, X: Any, k: int = 1) -> np.ndarray:
        """Find the instances that speak most for each label.

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
        return best_rows(self._instance_scores(bags), bags.offsets, k)

    def annotate(self, X: Any, Y: Any = None, *, return_proba: bool = False) -> Any:
        """Say which label each instance carries.

        Parameters
        ----------
        X : Bags, list of 2-D arrays, or table
            The bags.
        Y : labels as in ``fit``, optional
            The bags' known labels. Without them the answer is inductive; with them transductive:
            never a label outside the bag's set.
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
        bags = self._as_bags(X, reset=False)
        known = None if Y is None else self._known_labels(Y, bags)
        labels = self._annotate(bags, known)
        if not return_proba:
            return labels
        if not self.traits.probabilities:
            raise TypeError(f"{type(self).__name__} has no probabilities; call annotate without return_proba")
        return labels, self._instance_probabilities(bags, known)

    def _annotate(self, bags: Bags, Y: np.ndarray | None) -> np.ndarray:
        scores = self._instance_scores(bags)
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

    # ------------------------------------------------------------------ checking

    def _check_training(self, X: Any, Y: Any) -> tuple[Any, np.ndarray]:
        if Y is None:
            raise DataError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        bags = self._as_bags(X, reset=True)
        targets = self._encode_targets(Y, bags)
        if len(targets) != len(bags):
            raise DataError(
                f"inconsistent numbers of samples: {len(bags)} bags, {len(targets)} rows of labels"
            )
        return bags, targets

    def _encode_targets(self, Y: Any, bags: Any) -> np.ndarray:
        """Labels as an int8 matrix; remembers how to give predictions back."""
        if hasattr(self, "label_names_"):
            del self.label_names_  # of an earlier fit
        self._target_dtype = "int64"
        if _carries_names(Y):
            matrix, self.label_names_ = label_matrix(Y, bag_ids=bags.bag_ids)
        elif sparse.issparse(Y):
            matrix = binary_matrix(Y.toarray(), bags.bag_ids)
        else:
            array = np.asarray(Y)
            if array.ndim == 1:
                return self._encode_classes(array)
            if array.ndim == 2 and array.shape[1] == 1 and not _is_binary(array):
                advice = "A column-vector y was passed when a 1d array was expected; use y.ravel()"
                warnings.warn(advice, DataConversionWarning, stacklevel=4)
                return self._encode_classes(array.ravel())
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise DataError("Input y contains NaN or infinity; labels are 0 or 1")
            if array.dtype.kind == "O":
                array = array.astype(np.float64)
            matrix = binary_matrix(array, bags.bag_ids)
            self._target_dtype = array.dtype.name
        self._target = "multilabel"
        self.classes_ = np.tile([0, 1], (matrix.shape[1], 1))
        return matrix

    def _encode_classes(self, y: np.ndarray) -> np.ndarray:
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise DataError(
                f"y has one class only, {quoted(self.classes_[0])}; {type(self).__name__} needs two"
            )
        if len(self.classes_) == 2:
            self._target = "binary"
            return codes.astype(np.int8)[:, None]
        self._target = "multiclass"
        return (codes[:, None] == np.arange(len(self.classes_))).astype(np.int8)

    @staticmethod
    def _check_weights(sample_weight: Any, bags: Any) -> np.ndarray | None:
        """One finite, non-negative weight per bag, not all of them zero; None stays None."""
        if sample_weight is None:
            return None
        weights = np.asarray(sample_weight, dtype=np.float64)
        if weights.ndim == 0:
            weights = np.full(len(bags), float(weights))
        if weights.shape != (len(bags),):
            raise DataError(f"sample_weight has shape {weights.shape}, expected ({len(bags)},): one per bag")
        if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
            raise DataError("every sample_weight must be finite and at least zero, and not all weights zero")
        return weights

    def _known_labels(self, Y: Any, bags: Bags) -> np.ndarray:
        """Labels given to `annotate`, in the order of training."""
        n_labels = 1 if self._target == "binary" else len(self.classes_)
        if _carries_names(Y):
            if not hasattr(self, "label_names_"):
                raise DataError("fit saw no label names; give Y as a 0/1 matrix")
            matrix, _ = label_matrix(Y, self.label_names_, bags.bag_ids)
        elif not sparse.issparse(Y) and np.ndim(Y) == 1:
            codes = np.searchsorted(self.classes_, Y).clip(max=len(self.classes_) - 1)
            unknown = self.classes_[codes] != np.asarray(Y)
            if unknown.any():
                raise DataError(f"class {quoted(np.asarray(Y)[unknown][0])} was not seen in fit")
            columns = [1] if self._target == "binary" else np.arange(n_labels)
            matrix = (codes[:, None] == columns).astype(np.int8)
        else:
            matrix = binary_matrix(Y.toarray() if sparse.issparse(Y) else Y, bags.bag_ids)
        if matrix.shape != (len(bags), n_labels):
            raise DataError(f"Y has shape {matrix.shape}, expected ({len(bags)}, {n_labels})")
        return matrix

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


class BagTransformer(TransformerMixin, _BagInput):
    """Base of transformers that turn bags into bags, or bags into a table."""


# ---------------------------------------------------------------------- helpers


def is_list_of_bags(X: Any) -> bool:
    """Whether ``X`` is a list of 2-D arrays, one per bag, rather than a table.

    Examples
    --------
    >>> is_list_of_bags([[[1.0, 2.0]], [[3.0, 4.0]]]), is_list_of_bags([[1.0, 2.0], [3.0, 4.0]])
    (True, False)
    """
    if not isinstance(X, (list, tuple)) or len(X) == 0:
        return isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1 and _any_matrix(X)
    return _any_matrix(X)


def _any_matrix(items: Iterable[Any]) -> bool:
    for item in items:
        if sparse.issparse(item):
            return True
        if isinstance(item, np.ndarray):
            return item.ndim >= 2
        if isinstance(item, (list, tuple)) and len(item):
            return isinstance(item[0], (list, tuple, np.ndarray)) and np.ndim(item[0]) >= 1
        if np.ndim(item) == 0:
            return False
    return False


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


def refuse_non_finite(bags: Bags) -> None:
    """Raise an error that names the first bag with NaN or infinity."""
    values = bags.X.data if bags.is_sparse else bags.X
    # the sum meets every NaN and infinity at the price of one read; an overflow is looked at closer
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum(dtype=np.float64)):
            return
    bad = ~np.isfinite(values)
    if not bad.any():
        return
    if bags.is_sparse:
        row = int(np.searchsorted(bags.X.indptr, np.flatnonzero(bad)[0], side="right")) - 1
    else:
        row = int(np.flatnonzero(bad.any(axis=1))[0])
    bag = bags.bag_ids[np.searchsorted(bags.offsets, row, side="right") - 1]
    raise DataError(
        f"Input X contains NaN or infinity: instance {row}, in bag {quoted(bag)}; fill or drop it first"
    )


def _refuse_empty_bags(bags: Any, name: str) -> None:
    empty = np.flatnonzero(bags.sizes == 0)
    if empty.size:
        some = ", ".join(repr(i) for i in bags.bag_ids[empty[:5]].tolist())
        more = "" if empty.size <= 5 else f" and {empty.size - 5} more"
        raise DataError(f"{name} needs at least one instance per bag; empty: {some}{more}; leave them out")


def _remember_names(estimator: Any, names: tuple[str, ...] | None) -> None:
    if names is not None:
        estimator.feature_names_in_ = np.asarray(names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def _is_binary(array: np.ndarray) -> bool:
    return array.dtype.kind in "biuf" and bool(((array == 0) | (array == 1)).all())


def _carries_names(Y: Any) -> bool:
    """Whether labels are a DataFrame or lists of names, rather than numbers or 1-D classes."""
    if hasattr(Y, "columns"):
        return True
    if isinstance(Y, np.ndarray) and Y.dtype != object:
        return False
    try:
        return any(not isinstance(row, str) and any(isinstance(v, str) for v in row) for row in Y)
    except TypeError:
        return False
