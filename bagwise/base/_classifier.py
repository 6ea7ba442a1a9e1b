"""The classifier: every public method written once, two private ones left to the algorithm."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.base import ClassifierMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.metrics import accuracy_score
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from bagwise.bags import Bags, MultiViewBags
from bagwise.base._input import BagInput, Traits
from bagwise.base.blocks import Blocks, is_sharded
from bagwise.base.parameters import Rules, check_parameters
from bagwise.base.sharded import fit_sharded, over_parts, score_sharded
from bagwise.errors import DataError, quoted
from bagwise.labels import binary_matrix, dense_labels, in_bag_order, label_matrix

UNKNOWN_LABEL = -1  # in the matrix that `_fit` gets, where traits allow labels that are not known
NO_LABEL = -1  # what `annotate` says of an instance that carries none of the labels


class MIMLClassifier(ClassifierMixin, BagInput):
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

    # One rule, or several of which one must hold, for every argument of the constructor.
    _parameters: ClassVar[Rules] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Give ``fit`` a ``sample_weight`` where the traits promise it; scikit-learn looks at it."""
        super().__init_subclass__(**kwargs)
        if "traits" in vars(cls) and "fit" not in vars(cls):
            traits = cls.traits if isinstance(cls.traits, Traits) else Traits()
            cls.fit = MIMLClassifier._fit_plain  # type: ignore
            if traits.sample_weight and traits.known_instances:
                cls.fit = MIMLClassifier._fit_weighted_with_instances  # type: ignore
            elif traits.sample_weight:
                cls.fit = MIMLClassifier._fit_weighted  # type: ignore
            elif traits.known_instances:
                cls.fit = MIMLClassifier._fit_with_instances  # type: ignore

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

    def _fit_plain(self, X: Any, y: Any = None) -> Any:
        """Learn from bags and their labels.

        Parameters
        ----------
        X : Bags, list of 2-D arrays, table, or ShardedBags
            The bags.
        y : 0/1 matrix, DataFrame, lists of label names, or 1-D array of classes
            Their labels; left out for shards, which carry them inside.

        Returns
        -------
        self
        """
        check_parameters(self, self._parameters)
        if is_sharded(X):
            return fit_sharded(self, X, y)
        self._fit(*self._check_training(X, y))
        return self

    def _fit_weighted(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Learn from bags and their labels.

        Parameters
        ----------
        X : Bags, list of 2-D arrays, table, or ShardedBags
            The bags.
        y : 0/1 matrix, DataFrame, lists of label names, or 1-D array of classes
            Their labels; left out for shards, which carry them inside.
        sample_weight : array of shape (n_bags,), optional
            Weights of the bags.

        Returns
        -------
        self
        """
        check_parameters(self, self._parameters)
        if is_sharded(X):
            return fit_sharded(self, X, y, sample_weight=sample_weight)
        bags, targets = self._check_training(X, y)
        self._fit(bags, targets, self._check_weights(sample_weight, bags))
        return self

    def _fit_with_instances(self, X: Any, y: Any = None, instance_y: Any = None) -> Any:
        """Learn from bags, their labels, and the labels of instances that are known.

        Parameters
        ----------
        X : Bags, list of 2-D arrays, table, or ShardedBags
            The bags.
        y : 0/1 matrix, DataFrame, lists of label names, or 1-D array of classes
            Their labels; left out for shards, which carry them inside.
        instance_y : array of shape (n_instances,) or (n_instances, n_labels), or str, optional
            Label index of every instance, -1 where it is not known; or a matrix: 1 where an instance carries
            a label, 0 where it does not, -1 where that is not known; or the name of the fact in
            ``bags.instance_info`` that holds either, which is cut with the bags in cross-validation.

        Returns
        -------
        self
        """
        check_parameters(self, self._parameters)
        if is_sharded(X):
            return fit_sharded(self, X, y, instance_y=instance_y)
        bags, targets = self._check_training(X, y)
        self._fit(bags, targets, self._check_instance_labels(instance_y, bags, targets))
        return self

    def _fit_weighted_with_instances(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, instance_y: Any = None
    ) -> Any:
        """Learn from bags, their labels, and the labels of instances that are known.

        Parameters
        ----------
        X : Bags, list of 2-D arrays, table, or ShardedBags
            The bags.
        y : 0/1 matrix, DataFrame, lists of label names, or 1-D array of classes
            Their labels; left out for shards, which carry them inside.
        sample_weight : array of shape (n_bags,), optional
            Weights of the bags.
        instance_y : array of shape (n_instances,) or (n_instances, n_labels), or str, optional
            Label index of every instance, -1 where it is not known; or a matrix: 1 where an instance carries
            a label, 0 where it does not, -1 where that is not known; or the name of the fact in
            ``bags.instance_info`` that holds either, which is cut with the bags in cross-validation.

        Returns
        -------
        self
        """
        check_parameters(self, self._parameters)
        if is_sharded(X):
            return fit_sharded(self, X, y, sample_weight=sample_weight, instance_y=instance_y)
        bags, targets = self._check_training(X, y)
        known = self._check_instance_labels(instance_y, bags, targets)
        self._fit(bags, targets, self._check_weights(sample_weight, bags), known)
        return self

    _fit_plain.__name__ = _fit_weighted.__name__ = _fit_with_instances.__name__ = "fit"
    _fit_weighted_with_instances.__name__ = "fit"
    fit = _fit_plain

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
        truth = self._known_labels(y, bags) if _carries_names(y) else in_bag_order(y, bags)
        weights = self._check_weights(sample_weight, bags)
        return float(accuracy_score(truth, self.predict(bags), sample_weight=weights))

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
        Y = in_bag_order(Y, bags)
        if hasattr(self, "label_names_"):
            del self.label_names_  # of an earlier fit
        self._target_dtype = "int64"
        if _carries_names(Y):
            matrix, self.label_names_ = label_matrix(Y, bag_ids=bags.bag_ids)
        elif sparse.issparse(Y):
            matrix = binary_matrix(dense_labels(Y), bags.bag_ids)
        else:
            array = np.asarray(Y)
            if array.ndim == 1:
                return self._encode_classes(array)
            if array.ndim == 2 and array.shape[1] == 1 and not _is_binary(array):
                advice = "A column-vector y was passed when a 1d array was expected; use y.ravel()"
                warnings.warn(advice, DataConversionWarning, stacklevel=4)
                return self._encode_classes(array.ravel())
            if array.dtype.kind == "O":
                array = array.astype(np.float64)
            unknown = np.isnan(array) if array.dtype.kind == "f" else np.zeros(array.shape, dtype=bool)
            if unknown.any() and self.traits.missing_labels:
                array = np.where(unknown, 0, array)
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise DataError("Input y contains NaN or infinity; labels are 0 or 1")
            matrix = binary_matrix(array, bags.bag_ids)
            matrix = np.where(unknown, np.int8(UNKNOWN_LABEL), matrix) if unknown.any() else matrix
            self._target_dtype = array.dtype.name
        if matrix.shape[1] == 0:
            raise DataError(
                f"{type(self).__name__} has no labels to learn from: Y has {len(matrix)} rows and no column. "
                "Where data came from a file, say which columns hold labels (labels=..., instance_label=...)"
            )
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
        weights = np.asarray(in_bag_order(sample_weight, bags, "sample_weight"), dtype=np.float64)
        if weights.ndim == 0:
            weights = np.full(len(bags), float(weights))
        if weights.shape != (len(bags),):
            raise DataError(f"sample_weight has shape {weights.shape}, expected ({len(bags)},): one per bag")
        if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
            raise DataError("every sample_weight must be finite and at least zero, and not all weights zero")
        return weights

    @staticmethod
    def _check_instance_labels(instance_y: Any, bags: Any, Y: np.ndarray) -> np.ndarray | None:
        """Label index (or row of 1, 0 and -1) per instance, within the set of its bag; None stays None."""
        if instance_y is None:
            return None
        if isinstance(instance_y, str):
            if instance_y not in bags.instance_info:
                raise DataError(
                    f"instance_y={instance_y!r} is no fact of the instances; there are "
                    f"{sorted(bags.instance_info) or 'none'}; Dataset.labelled_bags puts 'label' there"
                )
            instance_y = bags.instance_info[instance_y]
        known = np.asarray(instance_y)
        if known.ndim == 2:
            return _checked_answers(known, bags, Y)
        if known.shape != (bags.n_instances,) or known.dtype.kind not in "iu":
            raise DataError(
                f"instance_y must hold {bags.n_instances} label numbers, one per instance and -1 where it is "
                f"not known; got {known.dtype} of shape {known.shape}"
            )
        known = known.astype(np.int64)
        outside = (known < NO_LABEL) | (known >= Y.shape[1])
        given = np.where(outside, NO_LABEL, known)
        foreign = (given >= 0) & (Y[bags.index, given] == 0)
        if (outside | foreign).any():
            row = int(np.flatnonzero(outside | foreign)[0])
            raise DataError(
                f"instance {row} (bag {quoted(bags.bag_ids[bags.index[row]])}) has the label {known[row]}, "
                f"which its bag does not carry; use labels of the bag, or -1 for unknown"
            )
        return known

    def _known_labels(self, Y: Any, bags: Bags) -> np.ndarray:
        """Labels given to `annotate`, in the order of training."""
        Y = in_bag_order(Y, bags)
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
            matrix = binary_matrix(dense_labels(Y), bags.bag_ids)
        if matrix.shape != (len(bags), n_labels):
            raise DataError(f"Y has shape {matrix.shape}, expected ({len(bags)}, {n_labels})")
        return matrix

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


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


def _checked_answers(known: np.ndarray, bags: Any, Y: np.ndarray) -> np.ndarray:
    """Whether instances carry labels: 1, 0 or -1, at most one label each and that one of the bag's."""
    if known.shape != (bags.n_instances, Y.shape[1]) or known.dtype.kind not in "iu":
        raise DataError(
            f"instance_y as a matrix has a row for each of {bags.n_instances} instances and a column for "
            f"each of {Y.shape[1]} labels, whole numbers; got {known.dtype} of shape {known.shape}"
        )
    carried = known == 1
    outside = ((known < -1) | (known > 1)).any(axis=1) | (carried & (Y[bags.index] == 0)).any(axis=1)
    wrong = np.flatnonzero(outside | (carried.sum(axis=1) > 1))
    if wrong.size:
        bag = quoted(bags.bag_ids[bags.index[wrong[0]]])
        raise DataError(
            f"instance_y of instance {wrong[0]} (bag {bag}) must be -1, 0 or 1, and 1 at most once, for a "
            f"label that the bag carries; got {known[wrong[0]].tolist()}"
        )
    return known.astype(np.int8)


def _is_binary(array: np.ndarray) -> bool:
    return array.dtype.kind in "biuf" and bool(((array == 0) | (array == 1)).all())


def _carries_names(Y: Any) -> bool:
    """Whether labels are a DataFrame, lists of names or a mapping to them, not numbers or 1-D classes."""
    if hasattr(Y, "columns") or isinstance(Y, Mapping):
        return True
    if isinstance(Y, np.ndarray) and Y.dtype != object:
        return False
    try:
        return any(not isinstance(row, str) and any(isinstance(v, str) for v in row) for row in Y)
    except TypeError:
        return False
