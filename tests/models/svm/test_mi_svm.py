"""MI-SVM and mi-SVM: plain machines on single instances, objectives that fall, witnesses."""

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from toy_bags import planted, rbf

from bagwise.models import MISVM


@pytest.mark.parametrize("margin", ["bag", "instance"])
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_bags_of_one_instance_are_a_plain_machine(margin, kernel):
    bags, _, _ = planted()
    singles = bags.singletons()
    labels = (bags.X[:, 0] + 0.5 * bags.X[:, 1] > 0.3).astype(int)
    model = MISVM(margin, kernel=kernel, C=2.0).fit(singles, labels)
    Z = StandardScaler().fit_transform(bags.X)
    plain = SVC(kernel=kernel, gamma="scale", C=2.0).fit(Z, labels)
    assert model.n_iter_ == 1  # a positive bag of one keeps its instance positive: nothing to choose
    np.testing.assert_allclose(model.decision_function(singles), plain.decision_function(Z), atol=1e-2)


def objective(model, bags, y, examples, signs):
    """Half the squared norm and the slacks, from the kernel matrix of the support."""
    Z = StandardScaler().fit_transform(bags.X)
    K = rbf(model.support_vectors_, model.support_vectors_, model.gamma_)
    a = model.dual_coef_[:, 0]
    f = rbf(Z[examples], model.support_vectors_, model.gamma_) @ a + model.intercept_[0]
    return 0.5 * a @ K @ a + model.C * np.maximum(0.0, 1.0 - signs * f).sum()


@pytest.mark.parametrize("margin", ["bag", "instance"])
@pytest.mark.parametrize("seed", range(3))
def test_rounds_lower_the_objective_and_end_at_rest(margin, seed):
    bags, y, _ = planted(noise=1.5, seed=seed)  # overlapping: several rounds
    model = MISVM(margin, C=5.0).fit(bags, y)
    history = model.objective_[0][1:] if margin == "bag" else model.objective_[0]
    assert (np.diff(history) <= 2e-3 * history[:-1]).all()
    F, inside = model.instance_scores(bags)[:, 0], y[bags.index] > 0
    witnesses = model.witnesses_[0]
    chosen = np.zeros(len(F), bool)
    chosen[witnesses] = True
    assert not chosen[~inside].any()
    for b in np.flatnonzero(y):
        rows = np.flatnonzero(bags.index == b)
        best = rows[F[rows].argmax()]
        if margin == "bag":  # the one that is best under the machine it made
            np.testing.assert_array_equal(rows[chosen[rows]], [best])
        else:
            expected = F[rows] > 0
            expected[rows == best] = True
            np.testing.assert_array_equal(chosen[rows], expected)
            assert chosen[rows].any()
    examples = np.flatnonzero(~inside | (chosen if margin == "bag" else inside))
    signs = np.where(chosen[examples], 1.0, -1.0)
    np.testing.assert_allclose(objective(model, bags, y, examples, signs), history.min(), rtol=2e-3)


def test_witnesses_are_the_planted_instances():
    bags, y, rows = planted(noise=0.4)
    model = MISVM(kernel="linear", C=10.0).fit(bags, y)
    np.testing.assert_array_equal(model.witnesses_[0], rows)
    np.testing.assert_array_equal(model.key_instances(bags)[y == 1, 0, 0], rows)
    assert (model.predict(bags) == y).all()
    # the other instances of a positive bag may end on either side, the planted one cannot
    assert np.isin(rows, MISVM("instance", kernel="linear", C=10.0).fit(bags, y).witnesses_[0]).all()


def test_first_round_learns_from_means():
    bags, y, _ = planted()
    with pytest.warns(match="max_iter=1"):
        model = MISVM(max_iter=1).fit(bags, y)
    Z = StandardScaler().fit_transform(bags.X)
    means = np.array([Z[bags.index == b].mean(axis=0) for b in np.flatnonzero(y)])
    examples = np.concatenate([means, Z[y[bags.index] == 0]])
    plain = SVC(gamma=model.gamma_).fit(examples, np.arange(len(examples)) < len(means))
    np.testing.assert_allclose(model.instance_scores(bags)[:, 0], plain.decision_function(Z), atol=1e-2)
    assert (model.witnesses_[0] == -1).all()


def test_weight_of_positive_examples():
    bags, y, _ = planted(noise=1.5)
    y = y * (np.arange(len(y)) < 20)  # few positive bags
    recall = [
        MISVM(C=0.3, positive_weight=weight).fit(bags, y).predict(bags)[y == 1].mean()
        for weight in (1.0, "balanced")
    ]
    assert recall[1] > recall[0]
