"""How labels come in: sets of labels, classes, weights of bags and labels of instances; checked, encoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets

from bagwise.bags import Bags
from bagwise.bags.labels import binary_matrix, dense_labels, in_bag_order, label_matrix
from bagwise.base._input import BagInput
from bagwise.errors import DataError, quoted, warn

NO_LABEL = -1  # what `annotate` says of an instance that carries none of the labels
UNKNOWN_LABEL = -1  # in the matrix that `_fit` gets, where traits allow labels that are not known


class LabelInput(BagInput):
    """The door for labels; remembers how they came, so that predictions go back in the same form."""

    label_names_: tuple[str, ...]
    classes_: np.ndarray
    _target: str
    _target_dtype: str

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
        numbers = isinstance(Y, np.ndarray) and Y.dtype != object  # neither names nor an index to go by
        if not numbers and carries_names(Y := in_bag_order(Y, bags)):
            matrix, self.label_names_ = label_matrix(Y, bag_ids=bags.bag_ids)
        elif sparse.issparse(Y):
            matrix = binary_matrix(dense_labels(Y), bags.bag_ids)
        else:
            array = np.asarray(Y)
            if array.ndim == 1:
                return self._encode_classes(array)
            if array.ndim == 2 and array.shape[1] == 1 and not _is_binary(array):
                advice = "A column-vector y was passed when a 1d array was expected; use y.ravel()"
                warn(advice, DataConversionWarning)
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
    def _check_weights(sample_weight: Any, bags: Any) -> np.ndarray:
        """One finite, non-negative weight per bag, not all of them zero."""
        weights = np.asarray(in_bag_order(sample_weight, bags, "sample_weight"), dtype=np.float64)
        if weights.ndim == 0:
            weights = np.full(len(bags), float(weights))
        if weights.shape != (len(bags),):
            raise DataError(f"sample_weight has shape {weights.shape}, expected ({len(bags)},): one per bag")
        if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
            raise DataError("every sample_weight must be finite and at least zero, and not all weights zero")
        return weights

    @staticmethod
    def _check_instance_labels(instance_y: Any, bags: Any, Y: np.ndarray) -> np.ndarray:
        """Label index (or row of 1, 0 and -1) per instance, within the set of its bag."""
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
        if carries_names(Y):
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


def carries_names(Y: Any) -> bool:
    """Whether labels are a DataFrame, lists of names or a mapping to them, not numbers or 1-D classes."""
    if hasattr(Y, "columns") or isinstance(Y, Mapping):
        return True
    if isinstance(Y, np.ndarray) and Y.dtype != object:
        return False
    try:
        return any(not isinstance(row, str) and any(isinstance(v, str) for v in row) for row in Y)
    except TypeError:
        return False


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
