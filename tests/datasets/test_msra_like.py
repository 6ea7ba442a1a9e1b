"""Generated data of the shape of MSRA."""

import numpy as np

from bagwise.datasets import make_msra_like


def test_generator_keeps_its_promises():
    data = make_msra_like(n_bags=2000, n_labels=30, n_features=15, n_latent=8, random_state=1)
    assert data.bags.n_instances == 18_000
    assert 2.5 < data.Y.sum(axis=1).mean() < 2.9
    carried = np.zeros_like(data.Y)
    z = data.instance_Y
    carried[data.bags.index[z >= 0], z[z >= 0]] = 1
    np.testing.assert_array_equal(carried, data.Y)
    again = make_msra_like(n_bags=2000, n_labels=30, n_features=15, n_latent=8, random_state=1)
    np.testing.assert_array_equal(again.bags.X, data.bags.X)
    together = np.corrcoef(data.Y.T)[np.triu_indices(30, 1)]
    assert together.max() > 0.15
