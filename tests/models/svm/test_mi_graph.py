"""MIGraph against a kernel written as loops over nodes and edges, and a machine on it."""

import itertools

import numpy as np
import pytest
from scipy import sparse
from sklearn.svm import SVC
from toy_bags import random_bags

from bagwise import Bags
from bagwise.errors import DataError
from bagwise.models import MIGraph, SetKernelSVM
from bagwise.models.svm import mi_graph
from bagwise.models.svm.mi_graph import bag_edges, edge_features


def graph(X):
    """Edges of a bag as a dictionary of weights, by the definition."""
    pairs = list(itertools.combinations(range(len(X)), 2))
    lengths = {(u, v): np.linalg.norm(X[u] - X[v]) for u, v in pairs}
    mean = np.mean(list(lengths.values())) if pairs else 0.0
    return {pair: 1.0 / length for pair, length in lengths.items() if length < mean}


def described(X):
    """For every edge its four numbers, and those of the edge turned round."""
    weights = graph(X)
    degree = {u: sum(u in pair for pair in weights) for u in range(len(X))}
    strength = {u: sum(w for pair, w in weights.items() if u in pair) for u in range(len(X))}
    result = []
    for (u, v), w in weights.items():
        ends = [(degree[t] / (2.0 * len(weights)), w / strength[t]) for t in (u, v)]
        result.append((np.array([*ends[0], *ends[1]]), np.array([*ends[1], *ends[0]])))
    return result


def plain_kernel(A, C, gamma, edge_gamma):
    total = sum(np.exp(-gamma * ((a - c) ** 2).sum()) for a in A for c in C)
    for e, _ in described(A):
        for f, turned in described(C):
            total += np.exp(-edge_gamma * ((e - f) ** 2).sum())
            total += np.exp(-edge_gamma * ((e - turned) ** 2).sum())
    return total


def test_edges_by_the_definition():
    X = np.random.default_rng(0).normal(size=(7, 2))
    expected = sorted(tuple(row) for pair in described(X) for row in pair)
    np.testing.assert_allclose(sorted(map(tuple, edge_features(X))), expected, rtol=1e-12)


def test_scores_are_those_of_a_plain_machine():
    bags = random_bags(24, seed=1)
    y = np.arange(24) % 2
    train, test = bags[:16], bags[16:]
    model = MIGraph(0.3, 5.0, edge_gamma=2.0, scaling="none").fit(train, y[:16])
    K = np.array([[plain_kernel(A, C, 0.3, 2.0) for C in bags] for A in bags])
    K /= np.sqrt(np.outer(np.diag(K), np.diag(K)))
    machine = SVC(kernel="precomputed", C=5.0, tol=1e-8).fit(K[:16, :16], y[:16])
    expected = machine.decision_function(K[16:, :16])
    np.testing.assert_allclose(model.decision_function(test), expected, atol=1e-4)


@pytest.mark.parametrize("as_csr", [False, True])
def test_without_edges_it_is_the_set_kernel(as_csr):
    bags = random_bags(20, seed=2)
    if as_csr:
        bags = bags.with_X(sparse.csr_array(bags.X))
    y = np.arange(20) % 2
    alone = MIGraph(edge_threshold=0.0).fit(bags, y)
    assert alone.edges_.n_instances == 0
    expected = SetKernelSVM(normalization="cosine").fit(bags, y).decision_function(bags)
    np.testing.assert_allclose(alone.decision_function(bags), expected, atol=1e-5)


def test_bags_without_edges_beside_others():
    # single instances, pairs (never nearer than their mean), and a bag of equal instances
    bags = [np.zeros((1, 2)), np.eye(2), np.ones((3, 2)), np.array([[0.0, 0.0], [0.0, 1.0], [5.0, 5.0]])]
    assert [len(edge_features(X)) for X in bags] == [0, 0, 0, 2]
    model = MIGraph().fit(bags, [0, 1, 0, 1])
    assert np.isfinite(model.decision_function(bags)).all()
    assert np.isfinite(model.decision_function([[[0.5, 0.5]]])).all()


def test_equal_instances_have_an_edge():
    E = edge_features(np.array([[0.0], [0.0], [1.0], [3.0]]))
    assert np.isfinite(E).all() and ((E[:, 1] > 0) & (E[:, 1] <= 1)).all()


def test_most_edges_keeps_the_shortest():
    X = np.array([[0.0], [1.0], [3.0], [20.0]])  # below the mean: 0-1, 1-3 and 0-3
    assert len(edge_features(X)) == 6
    np.testing.assert_array_equal(edge_features(X, most=1), edge_features(np.array([[0.0], [1.0], [9.0]])))
    assert len(edge_features(X, most=2)) == 4
    equal = np.array([[0.0], [1.0], [2.0], [20.0]])  # 0-1 and 1-2 are as short
    assert len(edge_features(equal, most=1)) == 4


def test_too_many_edges_are_refused_with_advice(monkeypatch):
    bags = random_bags(12, seed=3, largest=11)
    y = np.arange(12) % 2
    monkeypatch.setattr(mi_graph, "MOST_EDGE_PAIRS", 100.0)
    with pytest.raises(ValueError, match=r"about \d+ edges.*max_edges.*SetKernelSVM"):
        MIGraph().fit(bags, y)
    MIGraph(edge_threshold=0).fit(bags, y)
    monkeypatch.setattr(mi_graph, "MOST_EDGE_PAIRS", 1000.0)
    MIGraph(max_edges=1).fit(bags, y)


def test_the_threshold_is_a_distance():
    X = np.array([[0.0], [1.0], [3.0], [20.0]])
    assert len(edge_features(X, threshold=1.5)) == 2 and len(edge_features(X, threshold=2.5)) == 4


def test_the_limit_on_edges_holds_for_new_bags():
    bags, y = random_bags(24, seed=1, smallest=4, largest=6), np.arange(24) % 2
    model = MIGraph(max_edges=2).fit(bags, y)
    X = model._scaled(bags.X)
    edges = Bags(*bag_edges(X, bags.offsets, None, 2))
    K = model._kernel(bags.with_X(X), edges)
    K = K / np.sqrt(np.outer(np.diag(K), np.diag(K)))
    plain = SVC(kernel="precomputed", C=10.0, tol=1e-8).fit(K, y)
    np.testing.assert_allclose(model.decision_function(bags), plain.decision_function(K), atol=1e-4)


def test_a_new_bag_with_too_many_edges_is_refused(monkeypatch):
    bags, y = random_bags(10, seed=1), np.arange(10) % 2
    model = MIGraph().fit(bags, y)
    large = Bags(np.random.default_rng(0).normal(size=(40, 3)), [0, 40])
    assert np.isfinite(model.decision_function(large)).all()
    monkeypatch.setattr(mi_graph, "MOST_EDGE_PAIRS", 1e4)
    with pytest.raises(DataError, match=r"one of 40 instances has .* edges, and 50 are the most; cut it"):
        model.decision_function(large)
