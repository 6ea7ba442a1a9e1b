"""Compiled trees: leaves by their definition, the best split, what they leave unseen, scikit-learn."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier

from bagwise.errors import DataError
from bagwise.models.auto.fit_forest import grow_forest


def data(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6)).astype(np.float32)
    Y = np.column_stack([X[:, 0] + X[:, 1] > 0, X[:, 2] > 0.5, X[:, 3] * X[:, 4] > 0]).astype(float)
    return X, Y


def leaf_of(forest, t, x):
    node = forest.roots[t]
    while forest.feature[node] >= 0:
        node = forest.child[node] + (x[forest.feature[node]] > forest.threshold[node])
    return node


def content(forest, leaf, n_outputs):
    stored = np.zeros(n_outputs)
    part = slice(forest.child[leaf], forest.last[leaf])
    stored[forest.label[part]] = forest.value[part]
    return stored


def test_leaves_hold_the_mean_target_of_the_rows_that_reach_them():
    X, Y = data()
    rng = np.random.default_rng(1)
    T = Y * rng.random(Y.shape)  # soft
    weights = rng.random(len(X)) + 0.1
    forest, used = grow_forest(X, T, n_trees=3, seed=5, weights=weights, min_leaf=4)
    for t in range(3):
        drawn = np.bincount(np.random.default_rng([5, t]).integers(0, len(X), len(X)), minlength=len(X))
        assert np.array_equal(used[t] > 0, drawn > 0)
        leaves = np.array([leaf_of(forest, t, x) for x in X])
        for leaf in np.unique(leaves[drawn > 0]):
            rows = np.flatnonzero((leaves == leaf) & (drawn > 0))
            w = weights[rows] * drawn[rows]
            expected = w @ T[rows] / w.sum()
            np.testing.assert_allclose(content(forest, leaf, 3), expected, rtol=1e-5, atol=1e-7)
            assert len(rows) >= 4


def test_prediction_is_the_mean_over_trees_that_may_answer():
    X, Y = data(120)
    forest, used = grow_forest(X, Y, n_trees=7, seed=0)
    values = np.array([[content(forest, leaf_of(forest, t, x), 3) for x in X] for t in range(7)])
    np.testing.assert_allclose(forest.predict(X), values.mean(axis=0), atol=1e-12)
    P, counts = forest.predict_unseen(X, used)
    free = used == 0
    assert np.array_equal(counts, free.sum(axis=0))
    expected = np.where(free[:, :, None], values, 0).sum(axis=0) / np.maximum(counts, 1)[:, None]
    np.testing.assert_allclose(P, expected, atol=1e-12)


def test_the_split_kept_is_the_best_of_those_tried():
    # one feature separates the classes, the others are noise: with all tried, the root must use it
    rng = np.random.default_rng(0)
    for seed in range(20):
        X = rng.normal(size=(60, 4)).astype(np.float32)
        y = np.repeat([0, 1], 30)
        X[:, 2] = y
        forest, _ = grow_forest(X, np.eye(2)[y], n_trees=1, seed=seed, max_features=4)
        assert forest.feature[0] == 2 and len(forest.feature) == 3


def test_groups_are_left_out_together():
    X, Y = data(200)
    _, used = grow_forest(X, Y, n_trees=10, seed=0, groups=np.repeat(np.arange(40), 5))
    whole = used.reshape(10, 40, 5)
    assert (whole == whole[:, :, :1]).all()
    assert 0.5 < whole[:, :, 0].mean() < 0.75


def test_threads_change_no_bit():
    X, Y = data()
    one, two = (grow_forest(X, Y, n_trees=9, seed=3, n_jobs=k) for k in (1, 2))
    assert np.array_equal(one[1], two[1])
    assert np.array_equal(one[0].predict(X), two[0].predict(X, n_jobs=2))


def test_as_good_as_scikit_learn():
    X, Y = data(900)  # more rows than a split is judged by
    test_X, test_Y = data(600, seed=1)
    ours, _ = grow_forest(X, Y, n_trees=60, seed=0)
    theirs = ExtraTreesClassifier(60, bootstrap=True, random_state=0).fit(X, Y)
    wrong = ((ours.predict(test_X) > 0.5) != test_Y).mean()
    assert wrong < (theirs.predict(test_X) != test_Y).mean() + 0.02


def test_many_labels_and_constant_features():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=200), np.ones(200)]).astype(np.float32)
    truth = np.where(X[:, 0] > 0, 7, 900)
    T = np.zeros((200, 1000))
    T[np.arange(200), truth] = 1
    P = grow_forest(X, T, n_trees=5, seed=0)[0].predict(X)
    assert (P.argmax(axis=1) == truth).mean() > 0.97
    assert not P[:, [0, 500, 999]].any()
    flat, _ = grow_forest(X[:, 1:], T, n_trees=2, seed=0)
    assert len(flat.feature) == 2  # nothing to split by: two leaves


@pytest.mark.parametrize("part", ["child", "label", "feature", "last", "roots", "value"])
def test_damaged_trees_are_refused(part):
    X, Y = data(60)
    forest, _ = grow_forest(X, Y, n_trees=2, seed=0)
    spoiled = getattr(forest, part).copy()
    spoiled = spoiled[:-1] if part == "value" else np.where(np.arange(len(spoiled)) == 0, 10**6, spoiled)
    if part == "last":
        spoiled = getattr(forest, part) + 10**6
    with pytest.raises(DataError, match="damaged"):
        replace(forest, **{part: spoiled}).predict(X)
    back = np.where(forest.feature >= 0, 0, forest.child)  # a tree that never ends
    with pytest.raises(DataError, match="damaged"):
        replace(forest, child=back).predict(X)
