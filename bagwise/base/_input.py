"""One door for data: what may come in as bags and as labels, what is refused by name, and the one ``fit``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import Any, Literal

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from bagwise.bags import Bags, MultiViewBags, first_not_finite
from bagwise.bags.labels import binary_matrix, dense_labels, in_bag_order, label_matrix
from bagwise.base._fits import fit_sharded
from bagwise.base.blocks import is_sharded
from bagwise.base.parameters import check_parameters
from bagwise.errors import DataError, listed, quoted, warn

NO_LABEL = -1  # what `annotate` says of an instance that carries none of the labels
UNKNOWN_LABEL = -1  # in the matrix that `_fit` gets, where traits allow labels that are not known
_FEW = 1 << 20  # values whose sum is made at once; more are looked at in blocks, by several threads


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
    known_instances : bool
        Whether ``fit`` takes ``instance_y``, labels of the instances that are known.
    instance_labels : bool
        Whether training needs the labels of instances (an upper bound, not weak supervision).
    missing_labels : bool
        Whether labels of training bags may be NaN: not known.
    device : tuple of str
        Where it can run.
    requires : tuple of str
        Packages beyond those that bagwise itself needs.
    shards : bool
        Whether ``fit`` takes `bagwise.ShardedBags`, data that need not fit into memory.
    """

    instances: Literal["model", "singleton"] = "singleton"
    probabilities: bool = False
    sparse: bool = True
    views: bool = False
    empty_bags: bool = False
    label_equivariant: bool = True
    sample_weight: bool = False
    known_instances: bool = False
    instance_labels: bool = False
    missing_labels: bool = False
    device: tuple[str, ...] = ("cpu",)
    requires: tuple[str, ...] = ()
    shards: bool = False


class BagInput(BaseEstimator):
    """Shared by classifiers and transformers: one door for data."""

    traits = Traits()
    view_features_in_: dict[str, int]  # where fit saw several views

    def _as_bags(self, X: Any, *, reset: bool) -> Any:
        """Bring ``X`` into bags and check them against what was seen in ``fit``."""
        if isinstance(X, MultiViewBags):
            return self._check_views(X, reset=reset)
        if hasattr(self, "view_features_in_"):
            if not reset:
                some = ", ".join(self.view_features_in_)
                raise DataError(f"X is a single view, but fit saw the views {some}; give a MultiViewBags")
            del self.view_features_in_  # of an earlier fit
        if not isinstance(X, Bags):
            if is_sharded(X):
                raise TypeError("shards are answered in parts here: for part in shards: ...(part.bags)")
            if not is_list_of_bags(X):  # a table: every row is a bag of one instance
                csr, kinds = "csr" if self.traits.sparse else False, [np.float64, np.float32]
                X = validate_data(self, X, reset=reset, accept_sparse=csr, dtype=kinds)
                return Bags(X, np.arange(X.shape[0] + 1))
            X = Bags.from_list(X)
        width = X.X.shape[1]
        if reset:
            self.n_features_in_ = width
            self._remember_names(X.feature_names)
        elif width != self.n_features_in_:
            raise DataError(
                f"X has {width} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )
        elif X.feature_names is not None and hasattr(self, "feature_names_in_"):
            if list(X.feature_names) != list(self.feature_names_in_):
                raise DataError("the features have other names or another order than in fit")
        if sparse.issparse(X.X) and not self.traits.sparse:
            raise DataError(f"{type(self).__name__} does not take sparse instances; use bags.X.toarray()")
        if len(X.offsets) == 1:
            raise DataError("Found array with 0 sample(s): there is no bag to learn from or to predict")
        if not self.traits.empty_bags and not (X.offsets[1:] > X.offsets[:-1]).all():
            raise _empty_bags(X, type(self).__name__)
        refuse_non_finite(X)
        return X

    def _remember_names(self, names: tuple[str, ...] | None) -> None:
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

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
        elif not hasattr(self, "view_features_in_"):
            raise DataError("fit saw a single view; pick one with bags[name]")
        elif shapes != self.view_features_in_:
            raise DataError(f"the views are {shapes}, but fit saw {self.view_features_in_}")
        else:
            X = X.select(list(self.view_features_in_))  # views go by name, not by order
        if not self.traits.empty_bags and not X.sizes.all():
            raise _empty_bags(X, type(self).__name__)
        for bags in X.views.values():
            refuse_non_finite(bags)
        return X

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.traits.sparse
        return tags


def is_list_of_bags(X: Any) -> bool:
    """Whether ``X`` is a list of 2-D arrays, one per bag, or a 3-D array, rather than a table.

    Examples
    --------
    >>> is_list_of_bags([[[1.0, 2.0]], [[3.0, 4.0]]]), is_list_of_bags([[1.0, 2.0], [3.0, 4.0]])
    (True, False)
    """
    if isinstance(X, np.ndarray) and X.ndim == 3:
        return True
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


def refuse_non_finite(bags: Bags) -> None:
    """Raise an error that names the first bag with NaN or infinity."""
    values = bags.X.data if sparse.issparse(bags.X) else bags.X
    with np.errstate(over="ignore", invalid="ignore"):
        if values.size <= _FEW and np.isfinite(values.sum()):  # only then is every value
            return
    found = first_not_finite(bags.X)
    if found is None:
        return
    row = found[0]
    bag = bags.bag_ids[np.searchsorted(bags.offsets, row, side="right") - 1]
    raise DataError(
        f"Input X contains NaN or infinity: instance {row}, in bag {quoted(bag)}; fill or drop it first"
    )


def _empty_bags(bags: Any, name: str) -> DataError:
    some = listed(bags.bag_ids[bags.sizes == 0].tolist(), 5, show=repr)
    return DataError(f"{name} needs at least one instance per bag; empty: {some}; leave them out")


# ----------------------------------------------------------------------
# The transformer: bags to bags, or bags to a table


class BagTransformer(TransformerMixin, BagInput):
    """Base of transformers that turn bags into bags, or bags into a table."""


# ----------------------------------------------------------------------
# Labels, and what else ``fit`` takes


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
            binary = array.dtype.kind in "biuf" and bool(((array == 0) | (array == 1)).all())
            if array.ndim == 2 and array.shape[1] == 1 and not binary:
                advice = "A column-vector y was passed when a 1d array was expected; use y.ravel()"
                warn(advice, DataConversionWarning)
                return self._encode_classes(array.ravel())
            if array.ndim == 2 and binary:  # nearly always: nothing to look for and to name
                matrix = np.ascontiguousarray(array, dtype=np.int8)
            else:
                array = array.astype(np.float64) if array.dtype.kind == "O" else array
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
# The one ``fit``: scikit-learn looks at its signature, so each class shows what its traits promise


_DOCUMENTED = """Learn from bags{what}.

    Parameters
    ----------
    X : Bags, list of 2-D arrays, table, or ShardedBags
        The bags.
    y : 0/1 matrix, DataFrame, lists of label names, or 1-D array of classes
        Their labels; left out for shards, which carry them inside.
{beside}
    Returns
    -------
    self
    """
_BESIDE = {
    "sample_weight": """\
    sample_weight : array of shape (n_bags,), optional
        Weights of the bags.
""",
    "instance_y": """\
    instance_y : array of shape (n_instances,) or (n_instances, n_labels), or str, optional
        Label index of every instance, -1 where it is not known; or a matrix: 1 where an instance carries
        a label, 0 where it does not, -1 where that is not known; or the name of the fact in
        ``bags.instance_info`` that holds either, which is cut with the bags in cross-validation.
""",
}


def fit_for(traits: Traits) -> Callable[..., Any]:
    """``fit`` of a class: with ``sample_weight`` and ``instance_y`` where its traits promise them."""
    promised = {"sample_weight": traits.sample_weight, "instance_y": traits.known_instances}
    names = [name for name, here in promised.items() if here]

    def fit(self: Any, X: Any, y: Any = None, *given: Any, **named: Any) -> Any:
        beside = signature.bind(self, X, y, *given, **named).arguments if given or named else {}
        sample_weight, instance_y = beside.get("sample_weight"), beside.get("instance_y")
        check_parameters(self, self._parameters)
        if not isinstance(X, Bags) and is_sharded(X):
            return fit_sharded(self, X, y, **{name: beside.get(name) for name in names})
        bags, Y = self._check_training(X, y)
        weights = None if sample_weight is None else self._check_weights(sample_weight, bags)
        known = None if instance_y is None else self._check_instance_labels(instance_y, bags, Y)
        self._fit(bags, Y, *[value for value, here in zip((weights, known), promised.values()) if here])
        return self

    by_place, by_name = Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY
    usual = [Parameter("self", by_place), Parameter("X", by_place), Parameter("y", by_place, default=None)]
    beyond = [Parameter(n, by_place if n == names[0] else by_name, default=None) for n in names]
    signature = Signature(usual + beyond)
    what = ", their labels, and the labels of instances that are known"
    fit.__doc__ = _DOCUMENTED.format(
        what=what if traits.known_instances else " and their labels",
        beside="".join(_BESIDE[name] for name in names),
    )
    fit.__signature__ = signature  # type: ignore[attr-defined]
    fit.__qualname__ = "MIMLClassifier.fit"
    return fit
