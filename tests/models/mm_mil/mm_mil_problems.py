"""Small problems for the tests of MM-MIL, and its equations as plain loops."""

import numpy as np

from bagwise.datasets import make_sub_concepts
from bagwise.models.mm_mil.fit import problem_in_memory
from bagwise.models.mm_mil.fit_smooth import BagLosses, Descended
from bagwise.models.mm_mil.kernels import bag_losses


def smooth_objective(Phi, offsets, labels, n_clusters, lam, beta, weights=None):
    losses = BagLosses(Phi, offsets, labels, weights)
    return Descended(losses, Phi.shape[1], n_clusters, lam, beta)


def label_problem(Phi, offsets, labels, n_clusters, lam, beta):
    """What starts and solvers ask of one label in memory."""
    return problem_in_memory(Phi, offsets, labels, {"n_clusters": n_clusters, "lam": lam, "beta": beta})


def losses_of(F, offsets, labels, weights, sharpness, G):
    """Losses of activations with their intercepts in them, and G; intercepts apart must change nothing."""
    none, of_bias = np.zeros(F.shape[1]), np.zeros(F.shape[1])
    values = bag_losses(F, none, offsets, labels, weights, sharpness, G, of_bias)
    np.testing.assert_allclose(of_bias, G.sum(axis=0), rtol=1e-9, atol=1e-12)
    bias, apart, of_bias = np.arange(F.shape[1]) % 3 - 1.0, np.empty_like(G), np.ones(F.shape[1])
    again = bag_losses(F - bias, bias, offsets, labels, weights, sharpness, apart, of_bias)
    np.testing.assert_allclose(again, values, rtol=1e-12)
    np.testing.assert_allclose(apart, G, atol=1e-11)
    np.testing.assert_allclose(of_bias, 1.0 + G.sum(axis=0), rtol=1e-9, atol=1e-11)
    return values


def faces(n_bags=300, n_faces=3, seed=0):
    data = make_sub_concepts(n_bags, 1, n_faces, cardinality=0.5, noise=1.0, random_state=seed)
    return data.bags, data.Y[:, 0], data.bags.instance_info["sub_concept"]
