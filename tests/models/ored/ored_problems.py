"""Small problems for the tests of ORed logistic regression."""

import itertools

import numpy as np
from scipy.special import logsumexp

from bagwise import Bags


def random_problem(seed=0, n_bags=6, n_labels=3, n_features=4, empty=False):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, n_bags)
    X = rng.normal(size=(sizes.sum(), n_features)) * (rng.random((sizes.sum(), n_features)) < 0.7)
    bags = Bags(X, np.concatenate([[0], np.cumsum(sizes)]))
    Y = np.zeros((n_bags, n_labels), dtype=np.int8)
    Y[bags.index, rng.integers(0, n_labels, bags.n_instances)] = 1
    if empty:
        Y[0] = 0
    return bags, Y


def enumerate_bag(logits, labels, background=False):
    """Log-likelihood of a label set and posterior of every instance, by going through all labellings."""
    log_p = logits - logsumexp(logits, axis=1, keepdims=True)
    n, n_classes = logits.shape
    total, Q = 0.0, np.zeros_like(logits)
    for z in itertools.product(range(n_classes), repeat=n):
        union = {c for c in z if not (background and c == n_classes - 1)}
        if union == set(labels):
            weight = np.exp(sum(log_p[i, c] for i, c in enumerate(z)))
            total += weight
            Q[np.arange(n), z] += weight
    return (np.log(total), Q / total) if total > 0 else (-np.inf, Q)
