"""DD-SVM: which maxima are kept, and the machine on their distances, by loops."""

import numpy as np
from density_references import plain_q
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from toy_bags import planted

from bagwise.models import DDSVM
from bagwise.models.diverse_density.dd_svm import select_maxima


def test_maxima_that_are_kept_equal_loops():
    rng = np.random.default_rng(0)
    theta, values = rng.normal(size=(40, 4)), rng.uniform(0, 10, 40)
    theta[20:] = theta[:20] + rng.normal(scale=0.02, size=(20, 4))
    left = [int(i) for i in np.argsort(values) if values[i] <= (values.min() + values.max()) / 2]
    kept = []
    while left:
        best = left.pop(0)
        kept.append(best)
        v, s = theta[best, :2] * abs(theta[best, 2:]), theta[best, 2:]
        least = 0.3 * max(np.linalg.norm(v), np.linalg.norm(s))
        left = [i for i in left if np.linalg.norm(theta[i, :2] * abs(theta[i, 2:]) - v) >= least]
    np.testing.assert_array_equal(select_maxima(theta, values, 0.3), kept)
    assert len(kept) < 20
    np.testing.assert_array_equal(select_maxima(theta[:1], values[:1], 0.05), [0])


def test_one_planted_point_is_one_prototype():
    bags, y, rows = planted(60, noise=0.4)
    model = DDSVM("all", merge=0.5).fit(bags, y)
    assert model.n_positive_[0] == 1
    point = StandardScaler().fit(bags.X).inverse_transform(model.concepts_[0][:1])[0]
    assert abs(point[0] - 4.0) < 0.5
    phi = model.prototype_distances(bags)[0][:, 0]
    truth = np.array([np.abs(bag[:, 0] - point[0]).min() for bag in bags])
    assert phi[y == 1].max() < phi[y == 0].min()
    assert np.corrcoef(phi, truth)[0, 1] > 0.95
    np.testing.assert_array_equal(model.key_instances(bags)[y == 1, 0, 0], rows)


def test_machine_on_distances_by_loops():
    bags, y, _ = planted(50, noise=1.5)
    model = DDSVM(15, C=5.0, random_state=0).fit(bags[:30], y[:30])
    Z = StandardScaler().fit(bags[:30].X).transform(bags.X)
    phi = np.array(
        [
            [
                np.sqrt(min(plain_q(z, h, s) for z in Z[bags.index == b]))
                for h, s in zip(model.concepts_[0], model.scales_[0])
            ]
            for b in range(50)
        ]
    )
    np.testing.assert_allclose(model.prototype_distances(bags)[0], phi, rtol=1e-6, atol=1e-4)
    scaled = StandardScaler().fit(phi[:30]).transform(phi)
    plain = SVC(C=5.0, gamma=1.0 / phi.shape[1], tol=1e-6).fit(scaled[:30], y[:30])
    np.testing.assert_allclose(model.decision_function(bags), plain.decision_function(scaled), atol=1e-3)
    n = model.n_positive_[0]
    near = np.array(
        [-min(np.sqrt(plain_q(z, h, s)) for h, s in zip(model.concepts_[0][:n], model.scales_[0])) for z in Z]
    )
    np.testing.assert_allclose(model.instance_scores(bags)[:, 0], near - model.offset_[0], atol=1e-4)
    assert 0 < n < len(model.concepts_[0])  # of positive and of negative bags
