"""cs.SVM and cs.MISVM: costs as weights, views averaged."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.svm import SVC
from toy_bags import miml, planted, rbf

import bagwise
from bagwise import Bags, MultiViewBags
from bagwise.models import CSMISVM, CSSVM, MISVM
from bagwise.models.svm.cs_svm import view_weights


def test_cs_svm_is_a_weighted_svc_of_sums():
    bags, Y = miml(50, seed=6)
    sums = np.array([bag.sum(axis=0) for bag in bags])
    S = CSSVM(scaling="none").fit(bags, Y).decision_function(bags)
    for label in range(3):
        n, p = 50, Y[:, label].sum()
        svm = SVC(gamma=1 / 4, class_weight={1: n / p, 0: n / (n - p)}, tol=1e-6).fit(sums, Y[:, label])
        np.testing.assert_allclose(S[:, label], svm.decision_function(sums), atol=1e-4)


def test_weights_are_copies_of_bags():
    # a third of the bags is positive: weights 3 and 3/2 at C are 2 and 1 at 3C/2, or positive bags twice
    bags, _ = miml(30, seed=7)
    y = (np.arange(30) % 3 == 0).astype(int)
    twice = np.concatenate([np.arange(30), np.flatnonzero(y)])
    sums = np.array([bag.sum(axis=0) for bag in bags])
    S = CSSVM(scaling="none", C=2.0).fit(bags, y).decision_function(bags)
    copies = SVC(gamma=1 / 4, C=3.0, tol=1e-7).fit(sums[twice], y[twice])
    np.testing.assert_allclose(S, copies.decision_function(sums), atol=1e-3)


def test_cs_mi_svm_is_mi_svm_with_these_costs():
    bags, Y = miml(40, seed=8)
    model = CSMISVM(C=2.0).fit(bags, Y)
    for label in range(3):
        p, n = Y[:, label].sum(), 40
        plain = MISVM(C=2.0 * n / (n - p), positive_weight=(n - p) / p).fit(bags, Y[:, label])
        np.testing.assert_allclose(
            model.decision_function(bags)[:, label], plain.decision_function(bags), atol=1e-9
        )
        assert len(model.objective_[label]) == len(plain.objective_[0])


def test_views_are_averaged_and_missing_ones_left_out(tmp_path):
    bags, Y = miml(30, seed=9)
    left, right = bags[:, :2], bags[:, 2:]
    gap = np.arange(30) % 5 == 0
    keep = ~gap[right.index]
    holed = Bags(right.X[keep], np.concatenate([[0], np.cumsum(np.where(gap, 0, right.sizes))]))
    both = MultiViewBags({"left": left, "right": holed})
    model = CSSVM([0.3, 0.7]).fit(both, Y)
    one = CSSVM().fit(left, Y).decision_function(left)
    other = CSSVM().fit(right[~gap], Y[~gap]).decision_function(right)
    expected = np.where(gap[:, None], one, 0.3 * one + 0.7 * other)
    np.testing.assert_allclose(model.decision_function(both), expected, atol=1e-9)
    bagwise.save(model, tmp_path / "views.skops")
    again = bagwise.load(tmp_path / "views.skops")
    np.testing.assert_array_equal(again.decision_function(both), model.decision_function(both))
    F = model.instance_scores(both)
    assert F["left"].shape == (left.n_instances, 3) and F["right"].shape == (holed.n_instances, 3)
    labels = model.annotate(both, Y)
    assert all(Y[both[v].index[labels[v] >= 0], labels[v][labels[v] >= 0]].all() for v in ("left", "right"))
    assert model.key_instances(both)["right"].shape == (30, 3, 1)


def test_views_are_refused_by_name():
    bags, Y = miml(12)
    both = MultiViewBags({"a": bags[:, :2], "b": bags[:, 2:]})
    with pytest.raises(ValueError, match=r"\['a', 'c'\]"):
        CSSVM({"a": 1.0, "c": 1.0}).fit(both, Y)
    with pytest.raises(ValueError, match="3 numbers for the 2 views"):
        CSSVM([1.0, 1.0, 1.0]).fit(both, Y)
    empty = Bags(np.empty((0, 2)), np.zeros(13, dtype=np.int64))
    with pytest.raises(ValueError, match="view 'b'"):
        CSSVM().fit(MultiViewBags({"a": bags[:, :2], "b": empty}), Y)
    assert view_weights({"b": 2, "a": 1}, ["a", "b"]) == {"a": 1.0, "b": 2.0}


def test_sums_of_sparse_bags_and_of_none():
    bags, Y = miml(40, seed=3)
    few = bags.with_X(sparse.csr_array(bags.X))
    dense = CSSVM(scaling="none").fit(bags, Y).decision_function(bags)
    np.testing.assert_allclose(CSSVM(scaling="none").fit(few, Y).decision_function(few), dense, atol=1e-9)
    assert (CSSVM().fit(bags, Y).decision_function(Bags(np.empty((0, 4)), [0, 0])) == -1).all()


def test_cs_mi_svm_keeps_a_machine_of_the_printed_costs():
    """Witnesses and negative instances, weighed by hand: the machine, and the objective it was kept for."""
    bags, y, _ = planted(noise=1.5, seed=1)
    y = y * (np.arange(len(y)) < 16)
    model = CSMISVM(C=2.0, gamma=0.3, scaling="none").fit(bags, y)
    n, p = len(y), int(y.sum())
    rows = np.concatenate([model.witnesses_[0], np.flatnonzero(y[bags.index] == 0)])
    targets, costs = np.arange(len(rows)) < p, {1: n / p, 0: n / (n - p)}
    svm = SVC(gamma=0.3, C=2.0, class_weight=costs, tol=1e-8).fit(bags.X[rows], targets.astype(int))
    np.testing.assert_allclose(model.instance_scores(bags)[:, 0], svm.decision_function(bags.X), atol=2e-2)
    f, a = svm.decision_function(bags.X[rows]), svm.dual_coef_[0]
    length = a @ rbf(svm.support_vectors_, svm.support_vectors_, 0.3) @ a
    slack = np.maximum(0, 1 - np.where(targets, f, -f))
    value = 0.5 * length + 2.0 * (costs[1] * slack[:p].sum() + costs[0] * slack[p:].sum())
    np.testing.assert_allclose(model.objective_[0][1:].min(), value, rtol=2e-3)
