"""Whether the parts of a loaded model fit together: compiled loops follow sizes and places without asking."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np
from scipy import sparse

from bagwise.bags import Bags, MultiViewBags
from bagwise.base import MIMLClassifier
from bagwise.base._input import BagInput
from bagwise.compute.devices import gpu_there
from bagwise.compute.scaling import Scaling
from bagwise.errors import DataError
from bagwise.inspection import last_estimator
from bagwise.utils.sklearn_compat import broken_structure

_FEATURES = 10_000_000  # more than any model of ours could have been fitted with


def check_parts(model: Any) -> None:
    """Refuse bags, matrices and trees whose numbers lead out of their own memory; update what is older."""
    seen: set[int] = set()
    todo = [model]
    while todo:
        part = todo.pop()
        if id(part) in seen or isinstance(part, (str, bytes, int, float, type(None), type)):
            continue
        seen.add(id(part))
        if isinstance(part, np.ndarray):
            todo += part.ravel().tolist() if part.dtype == object else []
            continue
        if isinstance(part, dict):
            todo += part.values()
        elif isinstance(part, (list, tuple, set)):
            todo += part
        elif sparse.issparse(part):
            _check_sparse(part)
        elif isinstance(part, Bags):
            _check_bags(part)
        else:
            fault = broken_structure(part)
            if fault:
                raise DataError(fault)
            if hasattr(part, "__dict__"):
                update(part)
                todo += vars(part).values()


def _check_sparse(part: Any) -> None:
    try:
        if hasattr(part, "check_format"):
            part.check_format(full_check=True)
    except ValueError as error:
        raise DataError(f"a sparse matrix does not fit together ({error})") from None


def _check_bags(part: Bags) -> None:
    if sparse.issparse(part.X):
        _check_sparse(part.X)
    try:
        Bags(part.X, part.offsets, bag_ids=part.bag_ids, instance_info=part.instance_info)
    except (ValueError, TypeError) as error:
        raise DataError(f"its bags do not fit together ({error})") from None


def check_answers(model: Any) -> None:
    """Let a fitted classifier of bags answer two bags of zeros: arrays of wrong shapes show here.

    What is not fitted, or ends in a classifier of something else than bags, is left alone.
    """
    inner = last_estimator(model)
    n_features = getattr(model, "n_features_in_", getattr(inner, "n_features_in_", None))
    classes = getattr(inner, "classes_", None)
    if not isinstance(inner, MIMLClassifier) or classes is None or n_features is None:
        return
    if not isinstance(n_features, (int, np.integer)) or not 0 < n_features <= _FEATURES:
        raise DataError(f"n_features_in_ should be a number of features, is {n_features!r}")
    views = getattr(inner, "view_features_in_", None)
    classes = np.asarray(classes)
    columns = classes.shape[:1] if classes.ndim == 2 or len(classes) > 2 else ()
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            several = views is not None and sum(views.values()) == n_features  # else a later fit saw one view
            sizes: Any = views if several else {"": int(n_features)}
            made = {name: Bags(np.zeros((2, n)), np.arange(3)) for name, n in sizes.items()}
            found = np.shape(model.decision_function(MultiViewBags(made) if several else made[""]))
    except Exception as error:  # whatever wrong arrays may lead to
        raise DataError(f"its arrays do not fit together ({type(error).__name__}: {error})") from None
    if found != (2, *columns):
        raise DataError(
            f"its arrays do not fit together: scores of 2 bags should be {(2, *columns)}, are {found}"
        )


# ----------------------------------------------------------------------
# Models of files that older versions or other machines wrote, brought to what works here today


# These kept a factor, or mean and spread, where they keep a `Scaling` now.
_SCALED = {
    "CodebookSVM",
    "MILES",
    "MIMLKNN",
    "MIMLNN",
    "MIMLRBF",
    "MIMLSVM",
    "MISVM",
    "SetKernelSVM",
}


def update(part: Any) -> None:
    """Give an estimator of an older version the attributes of today, and one of a GPU a device."""
    if isinstance(part, BagInput):
        for name, parameter in inspect.signature(type(part)).parameters.items():
            if parameter.default is not parameter.empty and name not in vars(part):
                setattr(part, name, parameter.default)  # came later; by its default a model behaves as before
        if str(vars(part).get("device")).startswith("cuda") and not gpu_there(part.device):
            part.device = "auto"  # made on a GPU, and loaded where there is none
    if type(part).__name__ not in _SCALED or "_scale" not in vars(part) or hasattr(part, "_scaling"):
        return
    kept, d = vars(part).pop("_scale"), part.n_features_in_
    shift, factor = np.zeros(d), np.ones(d)
    if isinstance(kept, tuple):
        shift, spread = (np.asarray(values, dtype=np.float64) for values in kept)
        factor = np.divide(1.0, spread, out=np.zeros(d), where=spread > 0)
    elif kept is not None:
        factor = np.asarray(kept, dtype=np.float64)
    part._scaling = Scaling(part.scaling, shift, factor)
