"""Citation-kNN against plain loops over sorted lists of neighbours, and the example worked by hand."""

import os

import numpy as np
import pytest

from bagwise import Bags, load_dataset
from bagwise.models import CitationKNN


def random_bags(n_bags, seed, n_labels=3):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, n_bags)
    bags = Bags(rng.normal(size=(sizes.sum(), 2)), np.concatenate([[0], np.cumsum(sizes)]))
    return bags, rng.integers(0, 2, (n_bags, n_labels))


def closest_pair(A, C):
    return min(np.sqrt(((a - c) ** 2).sum()) for a in A for c in C)


def average_hausdorff(A, C):
    D = [[np.sqrt(((a - c) ** 2).sum()) for c in C] for a in A]
    rows, columns = [min(row) for row in D], [min(column) for column in zip(*D)]
    return (sum(rows) + sum(columns)) / (len(A) + len(C))


def by_loops(train, Y, query, n_references, n_citers, distance):
    """Votes of one query, by lists sorted with the query inserted into those of the training bags."""
    to_query = [distance(query, bag) for bag in train]
    voters = sorted(range(len(train)), key=lambda j: to_query[j])[:n_references]
    for j in range(len(train)):
        others = [distance(train[j], train[k]) for k in range(len(train)) if k != j]
        rank = sum(d <= to_query[j] for d in others)  # training bags that come before the query
        if rank < n_citers:
            voters.append(j)
    return np.mean([Y[j] for j in voters], axis=0) - 0.5


@pytest.mark.parametrize(("r", "c"), [(1, 1), (2, 4), (3, 2), (5, 40)])
@pytest.mark.parametrize("kind", ["min", "average"])
def test_votes_are_those_of_plain_loops(r, c, kind):
    bags, Y = random_bags(30, seed=r)
    train, test = bags[:22], bags[22:]
    model = CitationKNN(r, c, distance=kind, scaling="none").fit(train, Y[:22])
    distance = {"min": closest_pair, "average": average_hausdorff}[kind]
    expected = [by_loops(list(train), Y[:22], query, r, c, distance) for query in test]
    np.testing.assert_allclose(model.decision_function(test), expected, atol=1e-12)
    np.testing.assert_array_equal(model.predict(test), np.array(expected) > 0)


def test_worked_by_hand():
    # 0 and 1 cite 0.4 (0.4 < 1, 0.6 < 1), 5 does not (4.6 > 4); the only reference is 0
    model = CitationKNN(1, 1, scaling="none").fit([[[0.0]], [[1.0]], [[5.0]]], [1, 1, 0])
    np.testing.assert_array_equal(model.citing_distance_, [1.0, 1.0, 4.0])
    assert model.decision_function([[[0.4]]]) == 0.5
    # 4.2: the reference 5 is negative, and alone in citing it
    assert model.decision_function([[[4.2]]]) == -0.5


def test_a_tie_is_negative():
    # references 0 and 1 of different labels; neither has the query among its nearest one
    bags = [[[0.0]], [[0.1]], [[1.0]], [[1.1]]]
    model = CitationKNN(2, 1, scaling="none").fit(bags, [1, 0, 0, 1])
    assert model.decision_function([[[0.4]]]) == 0.0
    assert model.predict([[[0.4]]]) == 0


def test_new_bags_do_not_cite_each_other():
    bags, Y = random_bags(20, seed=0)
    model = CitationKNN().fit(bags[:10], Y[:10])
    alone = np.vstack([model.decision_function(bags[i : i + 1]) for i in range(10, 20)])
    np.testing.assert_array_equal(model.decision_function(bags[10:]), alone)


def test_one_training_bag():
    model = CitationKNN(2, 4).fit([[[0.0], [1.0]]], [[1, 0]])
    np.testing.assert_array_equal(model.predict([[[0.5]]]), [[1, 0]])


@pytest.mark.skipif("BAGWISE_DATA" not in os.environ, reason="needs the public sets")
def test_musk_one_bag_left_out():
    # every third bag left out in turn; all of them give 91.3 %
    data = load_dataset("musk1")
    y = data.Y[:, 0]
    left_out = range(0, len(y), 3)
    right = 0
    for b in left_out:
        rest = np.delete(np.arange(len(y)), b)
        right += CitationKNN().fit(data.bags[rest], y[rest]).predict(data.bags[b : b + 1])[0] == y[b]
    assert right / len(left_out) > 0.85


def test_limits_and_ties_by_hand():
    bags = [[[0.0]], [[1.0]], [[5.0]]]
    model = CitationKNN(9, 3, scaling="none").fit(bags, [1, 1, 0])
    np.testing.assert_array_equal(model.citing_distance_, np.inf)
    # all three are references and all three cite: 4 votes of 6
    assert model.decision_function([[[4.9]]]) == pytest.approx(1 / 6)
    # 3 has 5 at a distance of 2, and the new bag at 2 as well: the training bag is the nearer one
    tie = CitationKNN(1, 1, scaling="none").fit([[[0.0]], [[3.0]], [[5.0]]], [1, 0, 0])
    assert tie.decision_function([[[1.0]]]) == 0.5
