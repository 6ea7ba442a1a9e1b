"""Kernels of sets and graphs of instances against double loops."""

import os
import tracemalloc

import numpy as np
import pytest
from scipy import sparse
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from toy_bags import planted, random_bags, rbf

from bagwise import Bags
from bagwise.models import MILES, SetKernelSVM
from bagwise.models.svm.kernels import graph_weights, own_kernels, set_kernel


def plain_weights(A, gamma, gaussian, threshold):
    W = []
    for i in range(len(A)):
        D = [((A[p] - A[q]) ** 2).sum() for p in range(len(A)) for q in range(p)]
        D = [1.0 - np.exp(-gamma * v) for v in D] if gaussian else D
        delta = (np.mean(D) if D else 0.0) if threshold is None else threshold
        near = 0
        for j in range(len(A)):
            v = ((A[i] - A[j]) ** 2).sum()
            near += i == j or (1.0 - np.exp(-gamma * v) if gaussian else v) < delta
        W.append(1.0 / near)
    return np.array(W)


def plain_kernel(A, C, gamma, u, v):
    total = 0.0
    for i in range(len(A)):
        for j in range(len(C)):
            k = A[i] @ C[j] if gamma is None else np.exp(-gamma * ((A[i] - C[j]) ** 2).sum())
            total += u[i] * v[j] * k
    return total


@pytest.mark.parametrize("gamma", [0.4, None])
@pytest.mark.parametrize("as_csr", [False, True])
@pytest.mark.parametrize("cells", [1, 30, 1 << 19])
def test_set_kernel_equals_double_loops(gamma, as_csr, cells, monkeypatch):
    monkeypatch.setattr("bagwise.models.svm.kernels._CELLS", cells)
    bags, others = random_bags(7, 3, seed=0), random_bags(5, 3, seed=1)
    u, v = (
        np.random.default_rng(2).random(bags.n_instances),
        np.random.default_rng(3).random(others.n_instances),
    )
    parts, other_parts = np.split(u, bags.offsets[1:-1]), np.split(v, others.offsets[1:-1])
    expected = [
        [plain_kernel(A, C, gamma, a, c) for C, c in zip(others, other_parts)] for A, a in zip(bags, parts)
    ]
    own = [[plain_kernel(A, C, gamma, a, c) for C, c in zip(bags, parts)] for A, a in zip(bags, parts)]
    X, Z = (sparse.csr_array(bags.X), sparse.csr_array(others.X)) if as_csr else (bags.X, others.X)
    got = set_kernel(X, bags.offsets, u, Z, others.offsets, v, gamma=gamma)
    np.testing.assert_allclose(got, expected, atol=1e-12)
    square = set_kernel(X, bags.offsets, u, gamma=gamma)
    np.testing.assert_allclose(square, own, atol=1e-12)
    np.testing.assert_array_equal(square, square.T)
    np.testing.assert_allclose(own_kernels(X, bags.offsets, u, gamma=gamma), np.diag(own), atol=1e-12)


@pytest.mark.parametrize("gaussian", [True, False])
@pytest.mark.parametrize("threshold", [None, 0.3, 0.0])
def test_graph_weights_equal_loops(gaussian, threshold):
    bags = random_bags(12, 2, seed=4)
    expected = np.concatenate([plain_weights(A, 0.5, gaussian, threshold) for A in bags])
    for X in (bags.X, sparse.csr_array(bags.X)):
        got = graph_weights(X, bags.offsets, gamma=0.5, gaussian=gaussian, threshold=threshold)
        np.testing.assert_allclose(got, expected)


@pytest.mark.parametrize("model", [SetKernelSVM(), SetKernelSVM("graph"), MILES(penalty=0.1)], ids=str)
def test_a_large_bag_needs_no_matrix_of_its_pairs(model):
    rng = np.random.default_rng(0)
    sizes = np.array([6000, 3, 4, 5])
    bags = Bags(rng.normal(size=(sizes.sum(), 3)), np.concatenate([[0], np.cumsum(sizes)]))
    model.fit(bags[1:], [1, 0, 1])  # compiles
    tracemalloc.start()
    try:
        model.fit(bags, [1, 0, 0, 1]).decision_function(bags)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * 6000**2 / 4  # the matrix would be 288 MB


def test_what_cannot_fit_is_refused_with_advice(monkeypatch):
    monkeypatch.setattr(os, "sysconf", lambda name: 32)  # 32 pages of 32 bytes
    bags, y, _ = planted(40)
    for model in (SetKernelSVM(), MILES()):
        with pytest.raises(MemoryError, match="take a sample of the bags"):
            model.fit(bags, y)


def kernel_of(model, bags, others):
    """Kernel matrix that the model uses, on features as they are."""
    u, v = model._weights(bags.X, bags.offsets), model._weights(others.X, others.offsets)
    return set_kernel(bags.X, bags.offsets, u, others.X, others.offsets, v, gamma=model._rbf)


def with_gamma(gamma, **parameters):
    model = SetKernelSVM(scaling="none", gamma=gamma, **parameters)
    model.gamma_ = gamma
    return model


def test_copies_of_an_instance_count_once():
    x, u = np.array([[1.0, 2.0]]), np.array([[0.0, 1.5]])
    copies, one = Bags.from_list([np.repeat(x, m, axis=0) for m in (1, 2, 5)]), Bags.from_list([u])
    K = kernel_of(with_gamma(0.3, weights="graph", normalization="mean"), copies, one)
    np.testing.assert_allclose(K, rbf(x, u, 0.3)[0, 0])


@pytest.mark.parametrize("threshold", [0.0, 1e9])
def test_graphs_without_edges_or_with_all_are_the_mean(threshold):
    bags = random_bags(9, 3, seed=5)
    graph = with_gamma(0.3, weights="graph", normalization="mean", edge_threshold=threshold)
    mean = with_gamma(0.3, normalization="mean")
    np.testing.assert_allclose(kernel_of(graph, bags, bags), kernel_of(mean, bags, bags), atol=1e-12)
    assert kernel_of(mean, bags, bags)[0, 1] == pytest.approx(rbf(bags[0], bags[1], 0.3).mean())


@pytest.mark.parametrize("weights", ["equal", "graph"])
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_normalizations(weights, kernel):
    bags = random_bags(9, 3, seed=6)
    K = {
        name: kernel_of(with_gamma(0.3, weights=weights, kernel=kernel, normalization=name), bags, bags)
        for name in ("none", "cosine", "mean", "sqrt")
    }
    roots = np.sqrt(np.diag(K["none"]))
    np.testing.assert_allclose(np.diag(K["cosine"]), 1.0)
    np.testing.assert_allclose(K["cosine"], K["none"] / np.outer(roots, roots))
    W = with_gamma(0.3, weights=weights, normalization="none")._weights(bags.X, bags.offsets)
    sums = np.array([W[bags.index == b].sum() for b in range(9)])
    np.testing.assert_allclose(K["mean"], K["none"] / np.outer(sums, sums))
    np.testing.assert_allclose(K["sqrt"], K["none"] / np.sqrt(np.outer(sums, sums)))
    root_sqrt = np.sqrt(np.diag(K["sqrt"]))  # "sqrt" and then a cosine is a cosine
    np.testing.assert_allclose(K["sqrt"] / np.outer(root_sqrt, root_sqrt), K["cosine"])


@pytest.mark.parametrize("weights", ["equal", "graph"])
@pytest.mark.parametrize("normalization", ["cosine", "mean", "sqrt", "none"])
def test_set_kernel_of_single_instances_is_a_plain_machine(weights, normalization):
    bags, _, _ = planted()
    labels = (bags.X[:, 0] + 0.5 * bags.X[:, 1] > 0.3).astype(int)
    Z = StandardScaler().fit_transform(bags.X)
    model = SetKernelSVM(weights, C=3.0, normalization=normalization).fit(bags.singletons(), labels)
    plain = SVC(C=3.0, gamma="scale").fit(Z, labels)
    np.testing.assert_allclose(
        model.decision_function(bags.singletons()), plain.decision_function(Z), atol=1e-2
    )


def test_machine_on_double_loops():
    bags, y, _ = planted(50, noise=1.5)
    Z = [
        np.asarray(z)
        for z in np.split(StandardScaler().fit(bags[:30].X).transform(bags.X), bags.offsets[1:-1])
    ]
    gamma = 1.0 / 3.0
    W = [plain_weights(A, gamma, True, None) for A in Z]
    K = np.array([[plain_kernel(A, C, gamma, a, c) for C, c in zip(Z, W)] for A, a in zip(Z, W)])
    K /= np.sqrt(np.outer(np.diag(K), np.diag(K)))
    plain = SVC(kernel="precomputed", C=10.0, tol=1e-6).fit(K[:30, :30], y[:30])
    cosine = SetKernelSVM("graph", C=10.0, gamma=gamma, normalization="cosine").fit(bags[:30], y[:30])
    expected = plain.decision_function(K[30:, :30])
    np.testing.assert_allclose(cosine.decision_function(bags[30:]), expected, atol=1e-4)
    pairs = K[:30, :30].diagonal()[:, None] - 2 * K[:30, :30] + K[:30, :30].diagonal()
    K /= pairs.mean()  # two bags lie at a mean squared distance of 1
    plain = SVC(kernel="precomputed", C=10.0, tol=1e-6).fit(K[:30, :30], y[:30])
    model = SetKernelSVM("graph", C=10.0, gamma=gamma).fit(bags[:30], y[:30])
    expected = plain.decision_function(K[30:, :30])
    np.testing.assert_allclose(model.decision_function(bags[30:]), expected, atol=1e-4)


def test_what_all_bags_share_does_not_hide_what_they_differ_in():
    """Bags of the same hundred instances and a few more: their cosines are all but 1."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=(100, 3))
    y = np.repeat([0, 1, 1], 12)  # more of one class: the label of all where a machine sees nothing
    bags = [np.vstack([common, rng.normal(4.0 * label, 0.3, size=(2, 3))]) for label in y]
    settings = {"gamma": 0.01, "scaling": "none"}
    unseen = SetKernelSVM(normalization="cosine", **settings).fit(bags, y)
    assert (unseen.predict(bags) == 1).all()
    assert (SetKernelSVM(**settings).fit(bags, y).predict(bags) == y).all()


def test_bags_that_are_all_alike_have_no_spread():
    bags, y = [np.ones((2, 3))] * 6, [0, 1, 0, 1, 1, 0]
    model = SetKernelSVM(scaling="none").fit(bags, y)
    assert np.isfinite(model.decision_function(bags)).all()
