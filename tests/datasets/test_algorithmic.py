import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from bagwise.datasets.algorithmic import make_absence_trap, make_counting_trap, make_order_trap

TRAPS = [make_absence_trap, make_counting_trap, make_order_trap]


def bag_means(bags):
    return np.stack([x.mean(axis=0) for x in bags])


def first_and_last(bags):
    return np.stack([np.concatenate([x[0], x[-1]]) for x in bags])


def auc_of_shortcut(data, embed, label=0):
    train, test = data["train"], data["test"]
    model = LogisticRegression().fit(embed(train.bags), train.Y[:, label])
    assert roc_auc_score(train.Y[:, label], model.decision_function(embed(train.bags))) > 0.99
    return roc_auc_score(test.Y[:, label], model.decision_function(embed(test.bags)))


def auc_of_largest_instance(data, label=0):
    """A learner that may see training instance labels, and scores a bag by its best instance."""
    train, test = data["train"], data["test"]
    model = LogisticRegression().fit(train.bags.X, train.instance_Y == label)
    scores = [model.decision_function(x).max() for x in test.bags]
    return roc_auc_score(test.Y[:, label], scores)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("make", TRAPS)
def test_largest_instance_solves_the_trap(make, seed):
    assert auc_of_largest_instance(make(random_state=seed)) == 1.0


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("make", "shortcut"),
    [(make_absence_trap, bag_means), (make_counting_trap, bag_means), (make_order_trap, first_and_last)],
)
def test_shortcut_falls_below_chance(make, shortcut, seed):
    assert auc_of_shortcut(make(random_state=seed), shortcut) < 0.1


def test_several_labels_are_several_traps():
    data = make_absence_trap(n_bags=800, n_labels=3)
    for label in range(3):
        assert auc_of_largest_instance(data, label) == 1.0
        assert auc_of_shortcut(data, bag_means, label) < 0.3


@pytest.mark.parametrize("make", TRAPS)
def test_labels_are_caused_by_targets_alone(make):
    data = make(n_bags=80)
    holds = np.bincount(data.bags.index, weights=data.instance_Y == 0) > 0
    assert np.array_equal(holds, data.Y[:, 0] == 1)
    assert np.array_equal(data.bags.instance_info["role"] == 1, data.instance_Y == 0)
    assert {part: len(data[part]) for part in data.splits} == {"train": 40, "test": 40}
    assert data["train"].Y.sum() == data["test"].Y.sum() == 20


def test_order_trap_puts_the_marker_on_an_end_and_the_target_inside():
    data = make_order_trap(n_bags=60, min_size=1, max_size=2)
    for role in np.split(data.bags.instance_info["role"], data.bags.offsets[1:-1]):
        assert (role == 2).sum() == 1 and 2 in (role[0], role[-1])
        assert role[0] != 1 and role[-1] != 1


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="at least 6 features"):
        make_absence_trap(n_labels=3, n_features=5)
    with pytest.raises(ValueError, match="n_bags=2"):
        make_counting_trap(n_bags=2)
    with pytest.raises(ValueError, match="n_features must be 2"):
        make_order_trap(n_features=1)
