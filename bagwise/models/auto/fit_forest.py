"""Extremely randomised trees with soft targets and several outputs: the driver of the compiled loops.

With trees of scikit-learn on the same bootstraps of whole bags (``benchmarks/own_or_library.py trees``)
BagClassifier is as good (average precision +.004 +- .003 on birds, +.006 +- .004 on Frost, +.004 +- .002 on
MSRC v2), and its fit takes 1.4 to 1.5, 1.1 to 2.3 and 1.35 times as long in up to four runs. A forest alone
takes 1.3 to 2.0 times as long and 3 to 5 times the memory; with 99 labels, which
scikit-learn keeps dense in every node, 2.7 and 15 times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from bagwise.compute.aligned import frozen
from bagwise.compute.threads import in_threads
from bagwise.errors import DataError
from bagwise.models.auto.kernels import Scratch, Targets, Tree, add_leaves, grow_tree

_ROWS = 4096  # that go down a tree together


@dataclass(frozen=True)
class Forest:
    """Trees one after the other in flat arrays; see `kernels.Tree` for their meaning."""

    feature: np.ndarray
    threshold: np.ndarray
    child: np.ndarray
    last: np.ndarray
    label: np.ndarray
    value: np.ndarray
    roots: np.ndarray
    n_outputs: int

    @property
    def n_trees(self) -> int:
        """Number of trees."""
        return len(self.roots)

    def predict(self, X: np.ndarray, n_jobs: int | None = None) -> np.ndarray:
        """Mean over trees of the targets in the leaf of each row of ``X`` (n, d)."""
        return self.predict_unseen(X, np.zeros((1, len(X)), dtype=np.uint8), n_jobs)[0]

    def predict_unseen(self, X: np.ndarray, used: np.ndarray, n_jobs: int | None = None) -> Any:
        """Mean over the trees that did not use the row (``used[tree, row]`` is 0), and how many they are."""
        self._check(X.shape[1])
        X = frozen(np.ascontiguousarray(X, dtype=np.float32))
        out = np.zeros((len(X), self.n_outputs))
        counts = np.zeros(len(X), dtype=np.int64)
        nodes = (self.feature, self.threshold, self.child, self.last, self.label, self.value)
        tree = Tree._make([*(frozen(a) for a in nodes), frozen(np.zeros(2, dtype=np.int64))])
        roots, used = frozen(self.roots), frozen(used)

        def add(first: int, last: int) -> None:
            for a in range(first, last, _ROWS):
                add_leaves(a, min(a + _ROWS, last), X, tree, roots, used, out, counts)

        in_threads(add, len(X), n_jobs, smallest=256)
        return out / np.maximum(counts, 1)[:, None], counts

    def _check(self, n_features: int) -> None:
        """Refuse arrays of a spoiled file: compiled loops would read foreign memory, or never end."""
        n, entries = len(self.feature), len(self.label)
        inner = self.feature >= 0
        nodes = np.flatnonzero(inner)
        sound = (
            len(self.threshold) == len(self.child) == len(self.last) == n
            and len(self.value) == entries
            and n > 0
            and len(self.roots) > 0
            and ((self.roots >= 0) & (self.roots < n)).all()
            and (self.feature < n_features).all()
            and ((self.child[inner] > nodes) & (self.child[inner] + 1 < n)).all()
            and ((self.child[~inner] >= 0) & (self.last[~inner] <= entries)).all()
            and ((self.label >= 0) & (self.label < self.n_outputs)).all()
        )
        if not sound:
            raise DataError("the trees of this model are damaged: fit it again, or load another copy")


def grow_forest(
    X: np.ndarray,
    T: Any,
    *,
    n_trees: int,
    seed: int,
    groups: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    max_features: int | None = None,
    min_leaf: int = 1,
    n_jobs: int | None = None,
) -> tuple[Forest, np.ndarray]:
    """Grow a forest, each tree on a bootstrap of rows, or of groups of rows.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Features.
    T : ndarray or CSR of shape (n, n_outputs)
        Targets of at least 0.
    n_trees : int
        Number of trees.
    seed : int
        Seed; tree t has the seed ``(seed, t)``, so that the number of threads does not matter.
    groups : ndarray of shape (n,), optional
        Group numbers 0, 1, ... : a bootstrap draws groups (the instances of a bag) together, so that what is
        not used by a tree is unseen as a whole.
    weights : ndarray of shape (n,), optional
        Weights of the rows.
    max_features : int, optional
        Features tried at each split; by default the root of their number.
    min_leaf : int, default=1
        Fewest rows of a leaf.
    n_jobs : int, optional
        Threads.

    Returns
    -------
    forest : Forest
        The trees.
    used : ndarray of uint8, shape (n_trees, n)
        Whether each tree used each row.

    Examples
    --------
    >>> X = np.arange(40.0)[:, None]
    >>> forest, used = grow_forest(X, (X > 19.5) * 1.0, n_trees=20, seed=0)
    >>> forest.predict(X)[[0, 39], 0].round(1)
    array([0., 1.])
    """
    n, d = X.shape
    T = sparse.csr_array(T)
    targets = Targets(
        frozen(T.indptr.astype(np.int64)),
        frozen(T.indices.astype(np.int64)),
        frozen(T.data.astype(np.float64)),
    )
    columns = frozen(np.ascontiguousarray(X.T, dtype=np.float32))
    groups = np.arange(n) if groups is None else groups
    n_groups = int(groups.max(initial=-1)) + 1
    base = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    tries = max_features or max(1, int(np.sqrt(d)))
    used = np.zeros((n_trees, n), dtype=np.uint8)

    def grow(first: int, last: int) -> list[Tree]:
        scratch = Scratch(
            *(np.zeros(T.shape[1]), np.zeros(T.shape[1]), np.arange(d)),
            *(np.zeros((n + 2, 3), dtype=np.int64), np.zeros(1, dtype=np.uint64)),
        )
        buffer = _buffer(n, T.nnz)
        trees = []
        for t in range(first, last):
            rng = np.random.default_rng([seed, t])
            weight = base * np.bincount(rng.integers(0, n_groups, n_groups), minlength=n_groups)[groups]
            if not weight.any():  # few groups, and those drawn weigh nothing
                weight = base
            used[t] = weight > 0
            rows = np.flatnonzero(weight).astype(np.uint32)
            scratch.state[0] = rng.integers(0, 2**63)
            scratch.features[:] = np.arange(d)
            grow_tree(columns, rows, frozen(weight), targets, tries, min_leaf, scratch, buffer)
            nodes, entries = buffer.size
            kept = [a[:nodes] for a in buffer[:4]] + [a[:entries] for a in buffer[4:6]] + [buffer.size]
            trees.append(Tree._make(a.copy() for a in kept))
        return trees

    parts = in_threads(grow, n_trees, n_jobs)
    return _join([tree for part in parts for tree in part], T.shape[1]), used


def _buffer(n: int, n_entries: int) -> Tree:
    nodes, entries = 2 * n + 1, n_entries + 1
    return Tree(
        np.zeros(nodes, dtype=np.int32),
        np.zeros(nodes, dtype=np.float32),
        np.zeros(nodes, dtype=np.int64),
        np.zeros(nodes, dtype=np.int64),
        np.zeros(entries, dtype=np.int32),
        np.zeros(entries, dtype=np.float32),
        np.zeros(2, dtype=np.int64),
    )


def _join(trees: list[Tree], n_outputs: int) -> Forest:
    """All trees in one set of arrays: numbers of nodes and entries count through."""
    sizes = np.array([tree.size for tree in trees])
    starts = np.cumsum(sizes, axis=0) - sizes
    child = [
        tree.child + np.where(tree.feature >= 0, node, entry) for tree, (node, entry) in zip(trees, starts)
    ]
    last = [tree.last + entry for tree, (_, entry) in zip(trees, starts)]
    return Forest(
        np.concatenate([tree.feature for tree in trees]),
        np.concatenate([tree.threshold for tree in trees]),
        np.concatenate(child),
        np.concatenate(last),
        np.concatenate([tree.label for tree in trees]),
        np.concatenate([tree.value for tree in trees]),
        starts[:, 0].copy(),
        n_outputs,
    )
