"""What parameters and single steps of the diverse density family do, each against a few lines of its own."""

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from toy_bags import planted

from bagwise.models import DDSVM, EMDD, MCEMDD, DiverseDensity
from bagwise.models.diverse_density.base import choose, reseed, starting_sets
from bagwise.models.diverse_density.dd_svm import find_prototypes


@pytest.mark.parametrize("cls", [DiverseDensity, EMDD, MCEMDD, DDSVM])
def test_scales_stay_below_the_limit(cls):
    bags, y, _ = planted(40, noise=0.3)
    model = cls(max_scale=0.8, random_state=0).fit(bags, y)
    assert np.abs(model.scales_[0]).max() == pytest.approx(0.8)


def test_prototypes_of_negative_bags_are_those_of_swapped_labels():
    bags, y, _ = planted(40, noise=1.5)
    settings = {"n_starts": 12, "merge": 0.05, "init_scale": 0.6, "max_scale": 10.0, "max_iter": 60}
    settings |= {"tol": 1e-5, "seed": 3}
    points, scales, n, _ = find_prototypes(y, bags.X, bags.offsets, **settings)
    swapped, of_swapped, n_swapped, _ = find_prototypes(1 - y, bags.X, bags.offsets, **settings)
    np.testing.assert_array_equal(points[n:], swapped[:n_swapped])
    np.testing.assert_array_equal(scales[:n], of_swapped[n_swapped:])


def test_dd_svm_is_a_plain_machine_of_distances_and_its_threshold_makes_fewest_errors():
    bags, y, _ = planted(50, noise=1.5)
    train = bags[:30]
    model = DDSVM(15, kernel="linear", C=2.0, random_state=0).fit(train, y[:30])
    phi = model.prototype_distances(bags)[0]
    Z = StandardScaler().fit(phi[:30]).transform(phi)
    plain = SVC(kernel="linear", C=2.0, tol=1e-6).fit(Z[:30], y[:30])
    np.testing.assert_allclose(model.decision_function(bags), plain.decision_function(Z), atol=1e-4)
    best = np.maximum.reduceat(model.instance_scores(train)[:, 0], train.offsets[:-1])
    near = best + model.offset_[0]
    errors = [((near > limit) != y[:30]).sum() for limit in [*near, near.min() - 1.0]]
    assert ((best > 0) != y[:30]).sum() == min(errors)


def test_nearest_concepts_by_loops():
    bags, y, _ = planted(40, noise=1.5)
    model = MCEMDD(3, n_starts=3, random_state=0).fit(bags, y)
    Z = StandardScaler().fit_transform(bags.X)
    pairs = list(zip(model.concepts_[0], model.scales_[0]))
    q = [[((s * (z - h)) ** 2).sum() for h, s in pairs] for z in Z]
    np.testing.assert_array_equal(model.nearest_concepts(bags)[:, 0], np.argmin(q, axis=1))


def test_concepts_without_a_bag_begin_anew_and_no_other_loses_its_last():
    X = np.array([[0.0], [1.0], [10.0], [50.0]])
    theta = np.array([[[0.5, 1.0], [90.0, 1.0], [99.0, 1.0], [11.0, 1.0]]])  # nothing is near 90 and 99
    choice = choose(X, np.arange(5), 4, theta)
    _, best, moved = reseed(X, 4, theta, choice, 1.0)
    assert moved.all() and sorted(best[:, 0].tolist()) == [0, 1, 2, 3]


def test_starts_of_several_concepts_explain_more_than_one_face():
    y = np.arange(40) % 2
    X = np.random.default_rng(0).normal(scale=0.3, size=(40, 2))
    X[1::4] += 4.0
    X[3::4] -= 4.0
    sets = starting_sets(X, np.arange(41), y, 2, 2, 0.7, np.random.RandomState(0))
    assert np.sign(sets[1, :, 0]).sum() == 0  # one of either face
