"""Compiled loops of extremely randomised trees whose targets are soft and have several outputs.

A row's targets are a sparse vector: label numbers with values, such as the posterior of an instance or the
label set of a bag. A split is drawn at random for some features and the one that lowers the sum of squared
deviations most is kept; for 0/1 targets that is Gini impurity summed over labels. Costs go by the labels that
rows have, not by the labels that there are. Trees grow on features that lie column by column,
``X[feature, row]``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bagwise.compute.compiled import kernel, part
from bagwise.compute.numeric import splitmix64

ENOUGH = 256  # rows by which a split is judged: a sample of a larger node ranks random splits as well


class Targets(NamedTuple):
    """Sparse targets of all rows: those of row r are ``start[r]`` to ``start[r + 1]``."""

    start: np.ndarray
    label: np.ndarray
    value: np.ndarray


class Tree(NamedTuple):
    """Where a tree is written: nodes, then the entries of its leaves; ``size`` counts both.

    ``feature`` is -1 for a leaf, whose entries are ``child`` to ``last``; otherwise the children are the
    nodes ``child`` (at most the threshold) and ``child + 1``.
    """

    feature: np.ndarray
    threshold: np.ndarray
    child: np.ndarray
    last: np.ndarray
    label: np.ndarray
    value: np.ndarray
    size: np.ndarray


class Scratch(NamedTuple):
    """Memory that trees share one after the other."""

    total: np.ndarray  # of each label in the node; zeros between calls
    left: np.ndarray  # of each label left of a threshold; zeros between calls
    features: np.ndarray  # a permutation of the features
    stack: np.ndarray  # nodes to do: number, first row, last row
    state: np.ndarray  # of the random generator


@part
def _sum_targets(rows, step, weight, targets, total):
    """Add the rows' targets to ``total``; returns sum of weights, squared length of the total, deviation."""
    mass, squares, norm = 0.0, 0.0, 0.0
    for i in range(0, rows.size, step):
        r = rows[i]
        mass += weight[r]
        for e in range(targets.start[r], targets.start[r + 1]):
            v = weight[r] * targets.value[e]
            squares += v * targets.value[e]
            total[targets.label[e]] += v
    for i in range(0, rows.size, step):
        r = rows[i]
        for e in range(targets.start[r], targets.start[r + 1]):
            norm += weight[r] * targets.value[e] * total[targets.label[e]]
    return mass, norm, squares - norm / mass


@part
def _clear(rows, step, targets, total):
    """Set the totals of the rows' labels to zero."""
    if total.size * step <= rows.size:
        for k in range(total.size):
            total[k] = 0.0
        return
    for i in range(0, rows.size, step):
        r = rows[i]
        for e in range(targets.start[r], targets.start[r + 1]):
            total[targets.label[e]] = 0.0


@part
def _score(x, rows, step, threshold, weight, targets, total, left, mass, norm):
    """How much length the two halves keep (more is better), and the smaller number of rows on a side."""
    n_left, n, mass_left, cross, square = 0, 0, 0.0, 0.0, 0.0
    for i in range(0, rows.size, step):
        r = rows[i]
        n += 1
        if x[r] <= threshold:
            n_left += 1
            w = weight[r]
            mass_left += w
            for e in range(targets.start[r], targets.start[r + 1]):
                k = targets.label[e]
                v = w * targets.value[e]
                cross += v * total[k]
                square += v * (2.0 * left[k] + v)
                left[k] += v
    _clear(rows, step, targets, left)
    if n_left == 0 or n_left == n:
        return -1.0, 0
    score = square / mass_left + (norm - 2.0 * cross + square) / (mass - mass_left)
    return score, min(n_left, n - n_left)


@part
def _best_split(X, rows, step, weight, targets, scratch, mass, norm, max_features, min_leaf):
    """Feature and threshold of the best of some random splits; feature -1 where none is possible."""
    total, left, order, _, state = scratch
    best, feature, cut, tried, i = -1.0, -1, np.float32(0.0), 0, 0
    while i < order.size and tried < max_features:
        j = i + int(splitmix64(state) % np.uint64(order.size - i))
        f = order[j]
        order[j], order[i] = order[i], f
        i += 1
        x = X[f]
        low, high = x[rows[0]], x[rows[0]]
        for m in range(0, rows.size, step):
            v = x[rows[m]]
            if v < low:
                low = v
            elif v > high:
                high = v
        if not low < high:
            continue
        tried += 1
        uniform = float(splitmix64(state) >> np.uint64(11)) * (1.0 / 9007199254740992.0)
        threshold = np.float32(low + uniform * (high - low))
        if threshold >= high:  # by rounding: nothing would go right
            threshold = low
        score, fewest = _score(x, rows, step, threshold, weight, targets, total, left, mass, norm)
        if score > best and fewest >= min_leaf:
            best, feature, cut = score, f, threshold
    return feature, cut


@part
def _partition(x, rows, threshold):
    """Bring rows up to the threshold to the front; returns how many they are."""
    i, j = 0, rows.size - 1
    while i <= j:
        if x[rows[i]] <= threshold:
            i += 1
        else:
            rows[i], rows[j] = rows[j], rows[i]
            j -= 1
    return i


@part
def _write_leaf(rows, targets, total, mass, tree, node):
    """Store the mean target of the rows, and clear the total."""
    e = tree.size[1]
    tree.feature[node], tree.child[node] = -1, e
    for r in rows:
        for t in range(targets.start[r], targets.start[r + 1]):
            k = targets.label[t]
            if total[k] > 0.0:
                tree.label[e], tree.value[e] = k, total[k] / mass
                total[k] = 0.0
                e += 1
    tree.last[node] = tree.size[1] = e


@kernel
def grow_tree(X, rows, weight, targets, max_features, min_leaf, scratch, tree):
    """Grow one tree on the given rows, which are reordered; writes nodes, entries and their numbers."""
    stack, total = scratch.stack, scratch.total
    tree.size[0], tree.size[1] = 1, 0
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, 0, rows.size
    depth = 1
    while depth > 0:
        depth -= 1
        node, a, b = stack[depth, 0], stack[depth, 1], stack[depth, 2]
        mine = rows[a:b]
        step = max((b - a) // ENOUGH, 1)
        feature, cut = -1, np.float32(0.0)
        while feature < 0 and step > 0:
            mass, norm, deviation = _sum_targets(mine, step, weight, targets, total)
            if b - a >= 2 * min_leaf and deviation > 1e-7 * mass:
                feature, cut = _best_split(
                    X, mine, step, weight, targets, scratch, mass, norm, max_features, min_leaf
                )
            if feature >= 0 or step > 1:
                _clear(mine, step, targets, total)
            step = 1 if step > 1 else 0  # a sample without a split: look at all rows
        if feature < 0:
            _write_leaf(mine, targets, total, mass, tree, node)
            continue
        middle = a + _partition(X[feature], mine, cut)
        child = tree.size[0]
        tree.feature[node], tree.threshold[node], tree.child[node] = feature, cut, child
        stack[depth, 0], stack[depth, 1], stack[depth, 2] = child, a, middle
        stack[depth + 1, 0], stack[depth + 1, 1], stack[depth + 1, 2] = child + 1, middle, b
        depth += 2
        tree.size[0] = child + 2


@kernel
def add_leaves(first, last, X, tree, roots, used, out, counts):
    """Add to rows ``first`` to ``last`` of ``out`` the leaf of each tree, where ``used[tree, row]`` is 0.

    Here features lie row by row, and a tree stays in the cache while all rows go down it.
    """
    for t in range(roots.size):
        for i in range(first, last):
            if used[t % used.shape[0], i] > 0:
                continue
            counts[i] += 1
            node = roots[t]
            while tree.feature[node] >= 0:
                right = X[i, tree.feature[node]] > tree.threshold[node]
                node = tree.child[node] + right
            for e in range(tree.child[node], tree.last[node]):
                out[i, tree.label[e]] += tree.value[e]
