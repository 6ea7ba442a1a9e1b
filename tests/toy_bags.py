"""Small bags that tests of several rooms share."""

import pickle

import numpy as np

import bagwise
from bagwise import Bags


def planted(n_bags=40, d=3, noise=0.6, seed=0, at=4.0):
    """Every second bag has one instance around (at, 0, ...); the others lie around the origin."""
    rng = np.random.default_rng(seed)
    y = np.arange(n_bags) % 2
    sizes = rng.integers(2, 6, n_bags)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    X = rng.normal(scale=noise, size=(offsets[-1], d))
    rows = offsets[:-1] + rng.integers(0, sizes)
    X[rows[y == 1], 0] += at
    return Bags(X, offsets), y, rows[y == 1]


def planted_and_stored(model, folder):
    """Learn the planted instances beside constant labels; a model file and a pickle answer the same."""
    bags, y, _ = planted()
    model.fit(bags, np.column_stack([y, np.ones_like(y), 1 - y, np.zeros_like(y)]))
    bagwise.save(model, folder / "model.skops")
    S = model.decision_function(bags)
    np.testing.assert_array_equal(bagwise.load(folder / "model.skops").decision_function(bags), S)
    np.testing.assert_array_equal(S[:, [1, 3]], np.tile([1.0, -1.0], (len(y), 1)))
    return bags, pickle.loads(pickle.dumps(model))


def random_bags(n_bags, d=3, *, seed=0, smallest=1, largest=5):
    """Bags of noise."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(smallest, largest + 1, n_bags)
    return Bags(rng.normal(size=(sizes.sum(), d)), np.concatenate([[0], np.cumsum(sizes)]))


def miml(n_bags=24, n_labels=3, d=4, seed=0, largest=5):
    """Bags whose labels are the kinds of their instances."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, largest + 1, n_bags)
    kinds = rng.integers(0, n_labels, sizes.sum())
    X = 2.0 * np.eye(n_labels, d)[kinds] + rng.normal(scale=0.7, size=(len(kinds), d))
    bags = Bags(X, np.concatenate([[0], np.cumsum(sizes)]))
    Y = np.zeros((n_bags, n_labels), dtype=int)
    Y[bags.index, kinds] = 1
    return bags, Y


def rbf(A, B, gamma):
    return np.exp(-gamma * ((A[:, None, :] - B[None, :, :]) ** 2).sum(axis=2))


def two_sets(seed=0):
    """Two sets of bags far from the origin, as X, offsets, Z, z_offsets."""
    rng = np.random.default_rng(seed)
    sets = []
    for n_bags in (17, 11):
        offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 9, n_bags))])
        sets += [rng.normal(size=(offsets[-1], 4)) + 5.0, offsets]
    return sets
