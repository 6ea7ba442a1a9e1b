"""D-MIMLSVM against plain loops and machines of one label."""

import numpy as np
import pytest
from plain_loops import d_miml_svm
from scipy.optimize import minimize
from sklearn.svm import LinearSVC
from toy_bags import miml, rbf

from bagwise.models import DMIMLSVM
from bagwise.models.svm.d_miml_svm import dual_set, simplex


@pytest.mark.parametrize(("alignment", "sharing"), [(0.0, 0.0), (0.3, 0.0), (0.2, 2.0)])
def test_d_miml_svm_against_plain_loops(alignment, sharing):
    bags, Y = miml(10, seed=1)
    settings = {"alignment": alignment, "sharing": sharing, "gamma": 0.3, "C": 5.0}
    model = DMIMLSVM(**settings, scaling="none", tol=1e-6, max_iter=20000).fit(bags, Y)
    T = np.where(Y > 0, 1.0, -1.0)
    lowest, F, f = d_miml_svm(list(bags), T, **settings, widths=(0.1, 0.01, 0.001))
    assert model.objective_ <= lowest * (1 + 1e-6)  # the loops smooth, and stop a little above
    np.testing.assert_allclose(model.objective_, lowest, rtol=5e-3)
    np.testing.assert_allclose(model.decision_function(bags), F, atol=0.1)  # their steps halt at kinks
    np.testing.assert_allclose(model.instance_scores(bags), f, atol=0.2)


def test_without_coupling_labels_are_set_kernel_machines():
    bags, Y = miml(30, seed=2)
    model = DMIMLSVM(0.0, 0.0, gamma=0.2, C=4.0, scaling="none", tol=1e-7, max_iter=20000).fit(bags, Y)
    k = rbf(bags.X, bags.X, 0.2)
    M = np.array([(bags.index == b) / bags.sizes[b] for b in range(len(bags))])
    K = M @ k @ M.T
    features = np.linalg.cholesky(K + 1e-10 * np.eye(len(K)))
    for label in range(3):
        svm = LinearSVC(loss="hinge", C=4.0, fit_intercept=False, tol=1e-9, max_iter=1_000_000)
        expected = svm.fit(features, Y[:, label]).decision_function(features)
        np.testing.assert_allclose(model.decision_function(bags)[:, label], expected, atol=5e-3)


def test_a_bag_is_the_mean_of_its_instances_and_the_coupling_acts():
    bags, Y = miml()
    near, far = (DMIMLSVM(0.1, s, tol=1e-5, max_iter=20000).fit(bags, Y) for s in (0.0, 50.0))
    F = near.instance_scores(bags)
    means = np.array([F[a:b].mean(axis=0) for a, b in zip(bags.offsets, bags.offsets[1:])])
    np.testing.assert_allclose(near.decision_function(bags), means, atol=1e-10)
    # a large price on the mean function leaves little of it
    assert np.abs(far.coef_.mean(axis=1)).max() < 0.2 * np.abs(near.coef_.mean(axis=1)).max()
    tight = DMIMLSVM(3.0, tol=1e-5, max_iter=20000).fit(bags, Y)

    def spread(model):
        G = model.instance_scores(bags)
        return sum(
            G[a:b].max(axis=0).sum() - G[a:b].mean(axis=0).sum()
            for a, b in zip(bags.offsets, bags.offsets[1:])
        )

    assert spread(tight) < spread(near)


def test_projection_onto_the_dual_set():
    rng = np.random.default_rng(0)
    offsets, T, cost, pull = np.array([0, 3, 4]), np.array([[1.0], [-1.0]]), 2.0, 0.7
    V = 3 * rng.normal(size=(4, 1))
    Z = dual_set(T, offsets, cost, pull)(V)

    def point(z):
        a, g = z[:2], np.maximum(z[2:5], 0)
        g = g / g.sum()
        return np.concatenate([(a[0] + pull) / 3 - pull * g, [-a[1]]])

    def distance(z):
        return ((point(z) - V[:, 0]) ** 2).sum()

    starts = rng.random((20, 5)) * [cost, cost, 1, 1, 1]
    bounds = [(0, cost)] * 2 + [(1e-9, 1)] * 3
    best = min(minimize(distance, s, bounds=bounds).fun for s in starts)
    np.testing.assert_allclose(((Z - V) ** 2).sum(), best, atol=1e-5)
    S = simplex(rng.normal(size=(5, 4, 2)))
    np.testing.assert_allclose(S.sum(axis=1), 1.0)
    assert (S >= 0).all()


def test_a_span_of_few_landmarks_says_what_it_misses():
    bags, Y = miml(60, seed=3)
    some, all_ = DMIMLSVM(n_landmarks=30).fit(bags, Y), DMIMLSVM().fit(bags, Y)
    assert some.coef_.shape == (30, 3) and 0 < some.kernel_error_ < 1 and all_.kernel_error_ < 1e-8
    assert (some.predict(bags) == Y).mean() > 0.9
    assert some.objective_ > all_.objective_ * (1 - 1e-3)


def test_linear_machines_have_a_constant_feature():
    bags, Y = miml(30, seed=2)
    settings = {"kernel": "linear", "C": 4.0, "scaling": "none", "tol": 1e-8, "max_iter": 50000}
    S = DMIMLSVM(0.0, 0.0, **settings).fit(bags, Y).decision_function(bags)
    means = np.array([[*bag.mean(axis=0), 1.0] for bag in bags])
    for label in range(3):
        svm = LinearSVC(loss="hinge", C=4.0, fit_intercept=False, tol=1e-10, max_iter=2_000_000)
        expected = svm.fit(means, Y[:, label]).decision_function(means)
        np.testing.assert_allclose(S[:, label], expected, atol=1e-2)
