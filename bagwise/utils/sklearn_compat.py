"""The only file that names private parts of scikit-learn (and the few of SciPy that its estimators hold)."""

from __future__ import annotations

import inspect
from functools import cache
from importlib import import_module
from types import FunctionType
from typing import Any

import numpy as np
import sklearn.feature_selection
import sklearn.gaussian_process.kernels
import sklearn.metrics
import sklearn.model_selection

# What fitted estimators hold beside arrays, numbers and estimators. They store parameters and arrays; what
# may crash when its numbers are wrong is checked by `broken_structure` after loading.
_PARTS = {
    "sklearn.calibration": ("_CalibratedClassifier", "_SigmoidCalibration"),
    "sklearn.cluster._bisect_k_means": ("_BisectingTree",),
    "sklearn.cluster._kmeans": ("_kmeans_single_elkan", "_kmeans_single_lloyd"),
    "sklearn.ensemble._hist_gradient_boosting.binning": ("_BinMapper",),
    "sklearn.ensemble._hist_gradient_boosting.predictor": ("TreePredictor",),
    "sklearn.gaussian_process._gpc": ("_BinaryGaussianProcessClassifierLaplace",),
    "sklearn.metrics._scorer": ("_CurveScorer", "_MultimetricScorer", "_PassthroughScorer", "_Scorer"),
    "sklearn.model_selection._search_successive_halving": ("HalvingGridSearchCV", "HalvingRandomSearchCV"),
    "sklearn.multiclass": ("_ConstantPredictor",),
    "sklearn.neighbors._ball_tree": ("BallTree", "BallTree32", "BallTree64"),
    "sklearn.neighbors._kd_tree": ("KDTree", "KDTree32", "KDTree64"),
    "sklearn.neural_network._stochastic_optimizers": ("AdamOptimizer", "SGDOptimizer"),
    "sklearn.tree._tree": ("Tree",),
    "sklearn.utils._bunch": ("Bunch",),
    "sklearn.utils._metadata_requests": ("MetadataRequest", "MethodMetadataRequest"),
    "scipy.interpolate._bsplines": ("BSpline",),
    "scipy._lib.array_api_compat.numpy._aliases": ("asarray",),  # which BSpline holds
}
_WHOLE = (  # all their classes
    "sklearn.model_selection._split", "sklearn.gaussian_process.kernels", "sklearn._loss.loss",
    "sklearn._loss.link", "sklearn.metrics._dist_metrics", "scipy.sparse._csr", "scipy.sparse._csc",
    "scipy.sparse._coo", "scipy.sparse._dia", "scipy.sparse._lil",
)  # fmt: skip
# Functions of arrays that touch neither files nor the network, for FunctionTransformer and the like.
_NUMPY = (
    "abs", "argmax", "argmin", "around", "asarray", "ascontiguousarray", "average", "clip", "cumsum", "diff",
    "dot", "fliplr", "flipud", "imag", "max", "mean", "median", "min", "nan_to_num", "nanmax", "nanmean",
    "nanmedian", "nanmin", "nanstd", "nansum", "nanvar", "prod", "ptp", "ravel", "real", "round", "sort",
    "squeeze", "std", "sum", "transpose", "var",
)  # fmt: skip


@cache
def trusted_names() -> frozenset[str]:
    """Names of all that a model file may hold of scikit-learn, SciPy and NumPy beyond what skops trusts."""
    functions = (getattr(np, name, None) for name in _NUMPY)  # ufuncs are trusted by skops itself
    found = {"numpy.dtype"} | {_name(f) for f in functions if f is not None and hasattr(f, "__module__")}
    for module, names in _PARTS.items():
        found |= {f"{module}.{name}" for name in names}
    for module in _WHOLE:
        try:
            parts = vars(import_module(module)).values()
        except ImportError:
            continue  # another version keeps them elsewhere
        found |= {_name(part) for part in parts if inspect.isclass(part) and part.__module__ == module}
    for public in (sklearn.metrics, sklearn.metrics.pairwise, sklearn.feature_selection):
        functions = (value for value in vars(public).values() if isinstance(value, FunctionType))
        found |= {_name(value) for value in functions if value.__module__.startswith("sklearn.")}
    return frozenset(found)


def _name(part: Any) -> str:
    return f"{part.__module__}.{part.__name__}"


def broken_structure(part: Any) -> str:
    """What is wrong with a loaded tree, whose compiled code would follow any number out of its memory.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> broken_structure(DecisionTreeClassifier().fit([[0.0], [1.0]], [0, 1]).tree_)
    ''
    """
    kind = type(part).__name__
    if not type(part).__module__.startswith("sklearn."):
        return ""
    if kind == "Tree":
        return _tree(part)
    if kind == "TreePredictor":
        return _predictor(part)
    if kind.startswith(("KDTree", "BallTree")):
        return _neighbours(part)
    return ""


def _tree(part: Any) -> str:
    n = part.node_count
    here = np.arange(n)
    left, right, feature = part.children_left, part.children_right, part.feature
    inner = left != -1
    sizes = len(left) == n and len(part.value) == n and n > 0
    # children come after their parent, so that no walk can run in a circle
    after = (
        (left[inner] > here[inner]) & (right[inner] > here[inner]) & (left[inner] < n) & (right[inner] < n)
    )
    known = (feature[inner] >= 0) & (feature[inner] < part.n_features)
    return "" if sizes and after.all() and known.all() else "a decision tree refers to nodes that it lacks"


def _predictor(part: Any) -> str:
    nodes = part.nodes
    n, inner = len(nodes), ~nodes["is_leaf"].astype(bool)
    here = np.arange(n)[inner]
    fine = n > 0
    for side in ("left", "right"):
        fine &= bool(((nodes[side][inner] > here) & (nodes[side][inner] < n)).all())
    category = nodes["is_categorical"].astype(bool)
    fine &= bool((nodes["bitset_idx"][category] < len(part.raw_left_cat_bitsets)).all())
    fine &= bool((nodes["feature_idx"][inner] >= 0).all())
    return "" if fine else "a boosted tree refers to nodes that it lacks"


def _neighbours(part: Any) -> str:
    data, indices, nodes, bounds = (np.asarray(a) for a in part.get_arrays())
    n = len(data)
    fine = len(indices) == n and n > 0 and indices.min() >= 0 and indices.max() < n
    fine = fine and len(nodes) > 0 and bounds.ndim == 3 and bounds.shape[1] == len(nodes)
    fine = fine and bounds.shape[2] == data.shape[1]
    if fine:
        start, end = nodes["idx_start"], nodes["idx_end"]
        fine = bool((start >= 0).all() and (end >= start).all() and (end <= n).all())
        levels = int(np.log2(len(nodes) + 1))
        last = (np.arange(len(nodes)) >= 2 ** (levels - 1) - 1) | nodes["is_leaf"].astype(bool)
        fine = fine and len(nodes) == 2**levels - 1 and bool(nodes["is_leaf"][last].all())
    return "" if fine else "a tree of neighbours refers to rows that it lacks"
