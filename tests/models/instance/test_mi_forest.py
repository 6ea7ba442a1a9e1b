"""MIForest against scikit-learn's forest on bags of one instance, and annealing written as a plain loop."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier
from toy_bags import planted

import bagwise
from bagwise.models import MIForest


def test_bags_of_one_instance_give_a_plain_forest():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 5)).astype(np.float32)
    y = (X[:, 0] + 0.5 * rng.normal(size=120) > 0.4).astype(int)
    model = MIForest(12, balanced=False, random_state=7).fit(X, y)
    plain = RandomForestClassifier(12, max_depth=20, random_state=7).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), 2 * plain.predict_proba(X)[:, 1] - 1, atol=1e-12)


def annealed(bags, y, seeds, temperatures, unseen):
    """Algorithm 1 of the paper, instance after instance, every tree grown in every round."""
    X, n = bags.X.astype(np.float32), bags.n_instances
    in_bag = [np.bincount(np.random.RandomState(s).randint(0, n, n), minlength=n) for s in seeds]
    positive = [b for b in range(len(bags)) if y[b] == 1]
    rows_of = {b: range(bags.offsets[b], bags.offsets[b + 1]) for b in positive}
    inside = [i for b in positive for i in rows_of[b]]
    numbers = [dict(zip(inside, np.random.default_rng(s).random(len(inside)))) for s in seeds]

    def grow(p):
        trees = []
        for t, s in enumerate(seeds):
            labels = [float(i in numbers[t] and numbers[t][i] < p[i]) for i in range(n)]
            n_positive = sum(in_bag[t] * labels)
            weights = [c * ((n - n_positive) if label else n_positive) for c, label in zip(in_bag[t], labels)]
            tree = DecisionTreeClassifier(max_depth=20, max_features="sqrt", random_state=s)
            trees.append(tree.fit(X, labels, sample_weight=weights))
        return trees

    p = dict.fromkeys(inside, 1.0)
    trees = grow(p)
    for T in temperatures:
        votes = [tree.predict_proba(X)[:, 1] for tree in trees]
        F = {}
        for i in inside:
            those = [v[i] for t, v in enumerate(votes) if not (unseen and in_bag[t][i])]
            F[i] = np.mean(those or [v[i] for v in votes])
            losses = np.log1p(np.exp(-(2 * F[i] - 1))), np.log1p(np.exp(2 * F[i] - 1))
            p[i] = np.exp(-losses[0] / T) / (np.exp(-losses[0] / T) + np.exp(-losses[1] / T))
        for b in positive:
            p[max(rows_of[b], key=lambda i: F[i])] = 1.0
        trees = grow(p)
    return trees, p


@pytest.mark.parametrize("votes", ["all", "unseen"])
def test_annealing_is_that_of_a_plain_loop(votes):
    bags, y, _ = planted(20, seed=1)
    model = MIForest(6, cooling=0.7, last_temperature=0.1, votes=votes, random_state=3).fit(bags, y)
    rng = np.random.RandomState(3)
    seeds = [rng.randint(np.iinfo(np.int32).max) for _ in range(6)]
    np.testing.assert_allclose(model.temperatures_, np.exp(-0.7 * np.arange(4)))
    trees, p = annealed(bags, y, seeds, model.temperatures_, votes == "unseen")
    votes_of = np.mean([tree.predict_proba(bags.X.astype(np.float32))[:, 1] for tree in trees], axis=0)
    np.testing.assert_allclose(model.instance_scores(bags)[:, 0], 2 * votes_of - 1, atol=1e-12)
    expected = [p.get(i, 0.0) for i in range(bags.n_instances)]
    np.testing.assert_allclose(model.positive_probabilities_[0], expected, atol=1e-9)
    best = np.maximum.reduceat(2 * votes_of - 1, bags.offsets[:-1])
    np.testing.assert_allclose(model.decision_function(bags), best, atol=1e-12)


def test_finds_the_instances_that_were_planted():
    bags, y, rows = planted(80)
    model = MIForest(20, random_state=0).fit(bags[:40], y[:40])
    assert (model.predict(bags[40:]) == y[40:]).mean() > 0.8
    keys = model.key_instances(bags)[:, 0, 0]
    assert (keys[y == 1] == rows).mean() > 0.9


def test_temperatures_may_be_none():
    bags, y, _ = planted(20)
    model = MIForest(5, last_temperature=2.0, random_state=0).fit(bags, y)
    assert len(model.temperatures_) == 0
    np.testing.assert_array_equal(model.positive_probabilities_[0], y[bags.index])


def test_saved_and_loaded(tmp_path):
    bags, y, _ = planted()
    Y = np.column_stack([y, np.ones_like(y), np.zeros_like(y)])
    for X in (bags.X, sparse.csr_array(bags.X)):
        model = MIForest(5, random_state=0).fit(bags.with_X(X), Y)
        bagwise.save(model, tmp_path / "model.skops")
        S = model.decision_function(bags)
        np.testing.assert_array_equal(bagwise.load(tmp_path / "model.skops").decision_function(bags), S)
        np.testing.assert_array_equal(S[:, 1:], np.tile([1.0, -1.0], (len(y), 1)))
        P = model.predict_proba(bags)
        assert ((P > 0) & (P < 1)).all() and ((P > 0.5) == (S > 0)).all()


@pytest.mark.parametrize(
    "change",
    [lambda X: 1e-9 * X, lambda X: X + 1e9, lambda X: 1e39 * X, lambda X: 1e39 * X + 1e48, np.float32],
    ids=["small", "far", "large", "large and far", "single"],
)
def test_single_precision_of_trees_loses_nothing(change):
    """Trees see order alone, so units and offsets of features must not matter."""
    bags, y, _ = planted(60)
    train, test = bags[:40], bags[40:]
    expected = MIForest(20, random_state=0).fit(train, y[:40]).decision_function(test)
    there = bags.with_X(change(bags.X))
    model = MIForest(20, random_state=0).fit(there[:40], y[:40])
    np.testing.assert_allclose(model.decision_function(there[40:]), expected, atol=0.15)
    assert (model.predict(there[40:]) == y[40:]).all()


def test_one_wild_value_does_not_press_the_others_together():
    bags, y, _ = planted(60)
    X = bags.X + 1e9
    X[0, 0] = 1e30
    there = bags.with_X(X)
    model = MIForest(20, random_state=0).fit(there[:40], y[:40])
    assert (model.predict(there[40:]) == y[40:]).mean() > 0.9
    X = X.copy()
    X[-1] = np.finfo(float).max  # beyond single precision where the model has seen nothing like it
    assert np.isfinite(model.decision_function(there.with_X(X))).all()


def test_sparse_features_of_tiny_numbers():
    bags, y, _ = planted(60)
    X = np.where(bags.X > 2.0, bags.X, 0.0)
    plain = bags.with_X(sparse.csr_array(X))
    tiny = bags.with_X(sparse.csr_array(1e-30 * X))
    expected, found = (
        MIForest(10, random_state=0).fit(b[:40], y[:40]).decision_function(b[40:]) for b in (plain, tiny)
    )
    np.testing.assert_allclose(found, expected, atol=1e-12)
