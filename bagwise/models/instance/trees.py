"""Trees of one forest after another on the same instances, without a check of these for every tree.

On a few hundred bags `DecisionTreeClassifier.fit` spends two fifths of its time on checks of parameters,
labels and weights, which annealing makes itself and which are right. What grows a tree inside of it is not
public, though: it is used with the versions of scikit-learn in which it was read, once it has grown the tree
of `fit` on a small problem. Elsewhere `fit` grows all trees.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import sklearn
from sklearn.tree import DecisionTreeClassifier

__all__ = ["grow_tree", "votes_of"]

_KNOWN = ("1.6.", "1.7.", "1.8.", "1.9.")  # in another one a part that is used wrongly may end the process


def grow_tree(
    X: np.ndarray, labels: np.ndarray, weights: np.ndarray, seed: int, settings: dict[str, Any]
) -> DecisionTreeClassifier:
    """Tree of instances in single precision, with labels 0 and 1, both of them present.

    Examples
    --------
    >>> X, labels = np.arange(6, dtype=np.float32)[:, None], np.array([0.0, 0, 0, 1, 1, 1])
    >>> votes_of(grow_tree(X, labels, np.ones(6), 0, {"max_depth": 1}), X)
    array([0., 0., 0., 1., 1., 1.])
    """
    grow = _grown_inside if _inside_is_known() else _grown_by_fit
    return grow(X, labels, weights, seed, settings)


def votes_of(tree: DecisionTreeClassifier, X: np.ndarray) -> np.ndarray:
    """Share of positive training instances in the leaf of each row."""
    return tree.predict_proba(X, check_input=False)[:, 1]


def _grown_by_fit(
    X: np.ndarray, labels: np.ndarray, weights: np.ndarray, seed: int, settings: dict[str, Any]
) -> DecisionTreeClassifier:
    tree = DecisionTreeClassifier(random_state=seed, **settings)
    return tree.fit(X, labels, sample_weight=weights, check_input=False)


def _grown_inside(
    X: np.ndarray, labels: np.ndarray, weights: np.ndarray, seed: int, settings: dict[str, Any]
) -> DecisionTreeClassifier:
    """What `fit` does after its checks."""
    from sklearn.tree._criterion import Gini
    from sklearn.tree._splitter import BestSplitter
    from sklearn.tree._tree import DepthFirstTreeBuilder, Tree

    tree = DecisionTreeClassifier(random_state=seed, **settings)
    tree.n_features_in_, tree.n_outputs_ = X.shape[1], 1
    tree.classes_, tree.n_classes_ = np.array([0.0, 1.0]), np.intp(2)
    tree.max_features_ = _n_features_tried(tree.max_features, X.shape[1])
    classes, leaf = np.array([2], dtype=np.intp), tree.min_samples_leaf
    depth = np.iinfo(np.int32).max if tree.max_depth is None else tree.max_depth
    rng = np.random.RandomState(seed)
    splitter = BestSplitter(Gini(1, classes), tree.max_features_, leaf, 0.0, rng, None)
    tree.tree_ = Tree(X.shape[1], classes, 1)
    builder = DepthFirstTreeBuilder(splitter, max(2, 2 * leaf), leaf, 0.0, depth, 0.0)
    builder.build(tree.tree_, X, labels[:, None], weights, None)
    return tree


def _n_features_tried(share: str | float | None, n_features: int) -> int:
    if share is None:
        return n_features
    if isinstance(share, str):
        return max(1, int({"sqrt": np.sqrt, "log2": np.log2}[share](n_features)))
    return max(1, int(share * n_features))


@cache
def _inside_is_known() -> bool:
    """Whether the inner parts of this scikit-learn grow the trees that `fit` grows."""
    if not sklearn.__version__.startswith(_KNOWN):
        return False
    rng = np.random.RandomState(0)
    X, weights = rng.normal(size=(40, 5)).astype(np.float32), rng.randint(0, 3, 40).astype(np.float64)
    problem = X, (X[:, 0] + X[:, 1] > 0).astype(np.float64), weights, 1
    for settings in ({"max_depth": None, "max_features": "sqrt"}, {"max_depth": 3, "min_samples_leaf": 2}):
        try:
            ours = _grown_inside(*problem, settings)
            same = _state(ours) == _state(_grown_by_fit(*problem, settings))
        except Exception:  # whatever has changed: there is another way
            return False
        if not same:
            return False
    return True


def _state(tree: DecisionTreeClassifier) -> list[Any]:
    """All that a fitted tree holds, in a form that can be compared."""
    inner = tree.tree_.__getstate__()
    arrays = [inner["nodes"].tobytes(), inner["values"].tobytes()]
    return [*arrays, {k: np.asarray(v).tolist() for k, v in sorted(vars(tree).items()) if k != "tree_"}]
