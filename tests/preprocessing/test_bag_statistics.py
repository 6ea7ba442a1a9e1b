"""Statistics of bags, each against those of its bag alone."""

import numpy as np
from scipy import sparse

from bagwise import Bags
from bagwise.preprocessing import bag_statistics

STATISTICS = ("mean", "std", "min", "max", "sum", 0.0, 0.1, 0.5, 0.9, 1, "size")


def ragged(seed=0, n_bags=30, d=4):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 6, n_bags)
    X = rng.normal(size=(sizes.sum(), d)) * (rng.random((sizes.sum(), d)) < 0.6)
    return Bags(X, np.concatenate([[0], np.cumsum(sizes)]))


def one_bag(x, name):
    if name == "size":
        return [float(len(x))]
    if len(x) == 0:
        return np.zeros(x.shape[1])
    if isinstance(name, (int, float)):
        return np.quantile(x, name, axis=0)
    return getattr(np, name)(x, axis=0)


def test_statistics_are_those_of_each_bag_alone():
    bags = ragged()
    expected = [np.concatenate([one_bag(x, name) for name in STATISTICS]) for x in bags]
    np.testing.assert_allclose(bag_statistics(bags, STATISTICS), expected, atol=1e-12)


def test_sparse_statistics_are_the_dense_ones(monkeypatch):
    bags = ragged()
    monkeypatch.setattr("bagwise.preprocessing.pooling._CELLS", 40)  # several blocks
    table = bag_statistics(bags.with_X(sparse.csr_array(bags.X)), STATISTICS)
    assert sparse.issparse(table)
    np.testing.assert_allclose(table.toarray(), bag_statistics(bags, STATISTICS), atol=1e-12)


def test_order_of_instances_changes_no_bit():
    bags = ragged()
    rng = np.random.default_rng(1)
    order = np.concatenate(
        [rng.permutation(np.arange(a, b)) for a, b in zip(bags.offsets[:-1], bags.offsets[1:])]
    ).astype(int)
    shuffled = Bags(bags.X[order], bags.offsets)
    assert np.array_equal(bag_statistics(bags, STATISTICS), bag_statistics(shuffled, STATISTICS))
