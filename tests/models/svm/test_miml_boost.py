"""MIMLBoost against plain loops."""

import numpy as np
import pytest
from plain_loops import boosted_scores, boosted_votes
from toy_bags import miml, rbf

from bagwise import Bags
from bagwise.models import MIMLBoost
from bagwise.models.svm.boosting import best_vote


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
