"""Small problems for the tests of MM-MIL, and its equations as plain loops."""

from bagwise.datasets import make_sub_concepts
from bagwise.models.mm_mil import objective as obj


def smooth_objective(Phi, offsets, labels, n_clusters, lam, beta, weights=None):
    losses = obj.BagLosses(Phi, offsets, labels, weights)
    return obj.Descended(losses, Phi.shape[1], n_clusters, lam, beta)


def faces(n_bags=300, n_faces=3, seed=0):
    data = make_sub_concepts(n_bags, 1, n_faces, cardinality=0.5, noise=1.0, random_state=seed)
    return data.bags, data.Y[:, 0], data.bags.instance_info["sub_concept"]
