"""MIMLBoost against plain loops."""

import numpy as np
import pytest
from plain_loops import boosted_scores, boosted_votes
from sklearn.svm import SVC
from toy_bags import miml, rbf

from bagwise import Bags
from bagwise.models import MIMLBoost
from bagwise.models.svm.miml_boost import best_vote, label_places


def test_vote_of_a_machine():
    rng = np.random.default_rng(0)
    W, E = rng.random(50), (rng.random(50) < 0.3).astype(float)
    W /= W.sum()
    c = best_vote(W, E)
    np.testing.assert_allclose(c, 0.5 * np.log(W[E == 0].sum() / W[E == 1].sum()))  # AdaBoost
    after = W * np.exp((2 * E - 1) * c)
    np.testing.assert_allclose(after[E == 1].sum(), after[E == 0].sum())
    E = rng.random(50) * 0.8
    c = best_vote(W, E)
    lowest = min((W * np.exp((2 * E - 1) * x)).sum() for x in np.linspace(0, 10, 20001))
    np.testing.assert_allclose((W * np.exp((2 * E - 1) * c)).sum(), lowest, rtol=1e-6)
    assert best_vote(np.array([0.4, 0.6]), np.array([0.0, 1.0])) == 0.0


@pytest.mark.parametrize("seed", range(3))
def test_boosting_against_plain_loops(seed):
    bags, Y = miml(16, seed=seed)
    model = MIMLBoost(3, gamma=1.0, scaling="none", tol=1e-6, random_state=seed).fit(bags, Y)
    T = np.where(Y > 0, 1.0, -1.0)
    settings = {"gamma": 1.0, "C": 1.0, "n_rounds": 3, "rng": np.random.RandomState(seed)}
    machines, votes = boosted_votes(list(bags), T, **settings)
    np.testing.assert_allclose(model.votes_, votes, atol=1e-4)
    S = boosted_scores(machines, votes, list(bags), 3)
    np.testing.assert_allclose(model.decision_function(bags), S, atol=1e-2)
    for t, machine in enumerate(machines):
        F = np.einsum("ik,kl->il", rbf(bags.X, model.landmarks_, 1.0), model.coef_[:, t])
        for label in range(3):
            rows = np.column_stack([bags.X, np.full(len(bags.X), label / 2)])
            expected = machine.decision_function(rows)
            np.testing.assert_allclose(F[:, label] + model.intercept_[t], expected, atol=2e-2)


def test_scores_of_bags_are_sums_over_instances():
    bags, Y = miml()
    model = MIMLBoost(5, resample=False, gamma=4.0).fit(bags, Y)
    sums = np.array(
        [model.instance_scores(bags)[a:b].sum(axis=0) for a, b in zip(bags.offsets, bags.offsets[1:])]
    )
    np.testing.assert_allclose(model.decision_function(bags), sums, atol=1e-12)
    assert (model.predict(bags) == (sums >= 0)).all()


def test_a_machine_without_an_error_is_kept():
    bags = Bags(np.array([[0.0], [1.0], [0.1], [0.9]]), np.arange(5))
    y = np.array([0, 1, 0, 1])
    model = MIMLBoost(gamma=10.0, C=100.0, resample=False).fit(bags, y)
    assert model.votes_.tolist() == [1.0]
    assert model.predict(bags).tolist() == y.tolist()


def test_other_penalties_and_widths_against_plain_loops():
    bags, Y = miml(16, seed=5)
    settings = {"gamma": 0.3, "C": 10.0}
    model = MIMLBoost(6, **settings, scaling="none", tol=1e-7, max_iter=50000, random_state=5).fit(bags, Y)
    T, rng = np.where(Y > 0, 1.0, -1.0), np.random.RandomState(5)
    machines, votes = boosted_votes(list(bags), T, **settings, n_rounds=6, rng=rng)
    np.testing.assert_allclose(model.votes_, votes, atol=1e-3)
    scores = boosted_scores(machines, votes, list(bags), 3)
    np.testing.assert_allclose(model.decision_function(bags), scores, atol=1e-2)


def test_without_drawing_the_first_machine_is_a_weighted_svc_of_all_rows():
    bags, Y = miml(14, seed=2)
    (n, L), settings = Y.shape, {"gamma": 0.5, "C": 3.0}
    model = MIMLBoost(1, **settings, resample=False, scaling="none", tol=1e-8, max_iter=50000).fit(bags, Y)
    rows = np.array([[*x, label / 2] for x in bags.X for label in range(L)])
    weights = np.repeat(bags.n_instances / n / bags.sizes, bags.sizes)[:, None].repeat(L, axis=1)
    svm = SVC(**settings, tol=1e-8).fit(rows, Y[bags.index].ravel(), sample_weight=weights.ravel())
    F = rbf(bags.X, model.landmarks_, 0.5) @ model.coef_[:, 0] + model.intercept_[0]
    np.testing.assert_allclose(F, svm.decision_function(rows).reshape(-1, L), atol=5e-3)


def test_votes_on_constant_labels_are_unanimous():
    """Scores are sums of votes, as large as bags are; one score for all bags would lie amid them."""
    bags, Y = miml(16, seed=3)
    settings = {"gamma": 0.5, "scaling": "none", "random_state": 3}
    plain = MIMLBoost(4, **settings).fit(bags, Y)
    never_always = np.column_stack([np.zeros(len(Y), int), Y, np.ones(len(Y), int)])
    model = MIMLBoost(4, **settings).fit(bags, never_always)
    S, F = model.decision_function(bags), model.instance_scores(bags)
    np.testing.assert_allclose(F[:, [0, -1]], np.tile([-1, 1], (len(F), 1)) * model.votes_.sum())
    np.testing.assert_allclose(S[:, -1], bags.sizes * model.votes_.sum())
    assert (S[:, :1] <= S).all() and (S[:, -1:] >= S).all()
    assert not model.predict(bags)[:, 0].any() and model.predict(bags)[:, -1].all()
    np.testing.assert_array_equal(model.votes_.shape, plain.votes_.shape)
    only = MIMLBoost(4, **settings).fit(bags, never_always[:, [0, -1]])
    np.testing.assert_allclose(only.decision_function(bags), np.outer(bags.sizes, [-1.0, 1.0]))


def test_places_of_labels_are_as_far_apart_as_features_are_many():
    assert label_places(2, 49)[1] == 1.0
    np.testing.assert_allclose(label_places(2, 50)[1], np.log(51) / np.log(50))
    np.testing.assert_allclose(label_places(5, 3), [0, 0.25, 0.5, 0.75, 1])


def test_a_draw_counts_as_predicted():
    apart = Bags(np.array([[0.0], [1.0]]), [0, 1, 2])
    settings = {"gamma": 10.0, "C": 100.0, "resample": False, "scaling": "none"}
    model = MIMLBoost(1, **settings).fit(apart, np.array([0, 1]))
    both = Bags(np.array([[0.0], [1.0]]), [0, 2])
    assert model.instance_scores(both).sum() == 0 and model.predict(both)[0] == 1
