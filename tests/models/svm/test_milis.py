"""MILIS against loops and a general solver."""

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from toy_bags import planted, rbf

import bagwise
from bagwise.models import MILIS
from bagwise.models.svm.miles import bag_similarities
from bagwise.models.svm.milis import _machine, exchange, first_prototypes, learn_label, negative_density


def loss(S, rows, t, w, b):
    return (np.maximum(0.0, 1.0 - t * (S[:, rows] @ w + b)) ** 2).sum()


@pytest.mark.parametrize("cells", [1, 100, 1 << 21])
def test_density_of_negatives_equals_loops(cells, monkeypatch):
    monkeypatch.setattr("bagwise.models.svm.base.CELLS", cells)
    bags, y, _ = planted(10)
    Y = np.column_stack([y, 1 - y, np.ones_like(y)])
    expected = np.zeros((bags.n_instances, 3))
    for label in range(2):
        negatives = bags.X[Y[bags.index, label] == 0]
        for i, x in enumerate(bags.X):
            expected[i, label] = np.mean([np.exp(-0.4 * ((x - u) ** 2).sum()) for u in negatives])
    for X in (bags.X, sparse.csr_array(bags.X)):
        np.testing.assert_allclose(negative_density(X, bags.offsets, Y, 0.4), expected)
    first = first_prototypes(expected, bags.offsets, Y)
    for b in range(10):
        rows = np.flatnonzero(bags.index == b)
        for label in range(2):
            q = expected[rows, label]
            assert first[b, label] == rows[q.argmin() if Y[b, label] else q.argmax()]


@pytest.mark.parametrize("C", [0.01, 3.0, 1000.0])
def test_machine_is_the_minimum(C):
    bags, y, _ = planted(30, noise=1.5)
    S = bag_similarities(bags.X, bags.offsets, bags.X[:12], 0.4)
    t = np.where(y > 0, 1.0, -1.0)
    w, b, value, lowest = _machine(S, t, C)
    assert lowest

    def objective(v):
        slack = np.maximum(0.0, 1.0 - t * (S @ v[:-1] + v[-1]))
        return 0.5 * (v[:-1] @ v[:-1] + (v[-1] / 10.0) ** 2) + C * (slack**2).sum()

    assert value == pytest.approx(objective(np.append(w, b)))
    theirs = minimize(objective, np.append(w, b) + 0.01, options={"gtol": 1e-7})
    assert value == pytest.approx(theirs.fun, rel=1e-6)
    plain = LinearSVC(C=C, dual=False, tol=1e-9, intercept_scaling=10.0, max_iter=100_000).fit(S, t)
    np.testing.assert_allclose(w, plain.coef_[0], atol=1e-3 * np.abs(w).max())
    assert b == pytest.approx(plain.intercept_[0], rel=1e-3, abs=1e-3)


def test_exchange_equals_loops():
    bags, y, _ = planted(30, noise=1.5)
    S = bag_similarities(bags.X, bags.offsets, bags.X, 0.4)
    t = np.where(y > 0, 1.0, -1.0)
    rows = bags.offsets[:-1].copy()
    w, b, *_ = _machine(S[:, rows], t, 3.0)
    expected = rows.copy()
    for k in range(30):
        if t[k] * (S[k, expected] @ w + b) >= 1.0:
            continue
        tried = []
        for row in range(bags.offsets[k], bags.offsets[k + 1]):
            other = expected.copy()
            other[k] = row
            tried.append(loss(S, other, t, w, b))
        if min(tried) < loss(S, expected, t, w, b) - 1e-9:
            expected[k] = bags.offsets[k] + int(np.argmin(tried))
    before = loss(S, rows, t, w, b)
    assert exchange(rows, S, bags.offsets, t, w, b)
    np.testing.assert_array_equal(rows, expected)
    assert loss(S, rows, t, w, b) < before


@pytest.mark.parametrize("seed", range(3))
def test_rounds_never_raise_the_objective(seed):
    bags, y, _ = planted(noise=1.5, seed=seed)
    S = bag_similarities(bags.X, bags.offsets, bags.X, 0.4)
    found = learn_label(y, bags.offsets[:-1], S, bags.offsets, {"C": 3.0, "max_iter": 50})
    assert len(found["objective"]) > 1 and found["at_rest"]
    assert (np.diff(found["objective"]) <= 1e-9 * np.array(found["objective"][:-1])).all()
    np.testing.assert_array_equal(
        np.repeat(np.arange(40), bags.sizes)[found["rows"]], np.arange(40)
    )  # each from its own bag


def test_single_instances_are_their_own_prototypes():
    bags, _, _ = planted()
    singles, labels = bags.singletons(), (bags.X[:, 0] > 1.5).astype(int)
    model = MILIS().fit(singles, labels)
    assert model.n_iter_ == 1
    np.testing.assert_array_equal(model.prototype_rows_, np.arange(bags.n_instances))
    Z = StandardScaler().fit_transform(bags.X)
    w, b, *_ = _machine(rbf(Z, Z, model.gamma_), np.where(labels > 0, 1.0, -1.0), 10.0)
    expected = rbf(Z, Z, model.gamma_) @ w + b
    np.testing.assert_allclose(model.decision_function(singles), expected, atol=1e-6)


def test_the_planted_instances_become_prototypes():
    bags, y, rows = planted(60)
    model = MILIS().fit(bags[:40], y[:40])
    assert np.isin(rows[:20], model.prototype_rows_).all()
    assert (model.predict(bags[40:]) == y[40:]).mean() > 0.9
    np.testing.assert_array_equal(model.key_instances(bags)[y == 1, 0, 0], rows)


def test_scores_equal_loops():
    bags, y, _ = planted(30, noise=1.0)
    model = MILIS(C=2.0).fit(bags, y)
    Z = StandardScaler().fit_transform(bags.X)
    each = rbf(Z, model.prototypes_, model.gamma_)
    top = np.array([each[bags.index == b].max(axis=0) for b in range(30)])
    np.testing.assert_allclose(model.decision_function(bags), top @ model.coef_[0] + model.intercept_[0])
    np.testing.assert_allclose(
        model.instance_scores(bags)[:, 0], each @ model.coef_[0] + model.intercept_[0], rtol=1e-6
    )
    assert ((model.coef_[0] != 0).sum()) <= 30


def test_labels_constants_and_files(tmp_path):
    bags, y, _ = planted()
    Y = np.column_stack([y, np.ones_like(y), 1 - y, np.zeros_like(y)])
    model = MILIS().fit(bags, Y)
    S = model.decision_function(bags)
    np.testing.assert_array_equal(S[:, [1, 3]], np.tile([1.0, -1.0], (len(y), 1)))
    np.testing.assert_allclose(S[:, 0], MILIS().fit(bags, y).decision_function(bags), atol=1e-9)
    bagwise.save(model, tmp_path / "model.skops")
    np.testing.assert_array_equal(bagwise.load(tmp_path / "model.skops").decision_function(bags), S)
    only = MILIS().fit(bags, Y[:, [1, 3]])
    np.testing.assert_array_equal(only.decision_function(bags), S[:, [1, 3]])
    assert only.instance_scores(bags).shape == (bags.n_instances, 2)


def test_too_few_rounds_are_told():
    bags, y, _ = planted(noise=1.5)
    with pytest.warns(match="max_iter=2"):
        MILIS(max_iter=2, density_gamma=1e-9, C=3.0).fit(bags, y)
    MILIS(max_iter=1).fit(bags, y)  # the first prototypes, as asked for


@pytest.mark.parametrize("beta", [0.01, 30.0])
def test_the_width_of_the_density_chooses_the_first_prototypes(beta):
    bags, y, _ = planted(30, noise=1.5)
    Z = StandardScaler().fit_transform(bags.X)
    model = MILIS(density_gamma=beta, max_iter=1).fit(bags, y)
    density = negative_density(Z, bags.offsets, y[:, None], beta)
    assert set(model.prototype_rows_) <= set(first_prototypes(density, bags.offsets, y[:, None])[:, 0])


def test_a_machine_that_is_not_the_best_one_says_so():
    bags, y, _ = planted(60, noise=3.0)
    with pytest.warns(
        ConvergenceWarning, match="of 1 labels are not the best ones for C=1e.12: similarities"
    ):
        MILIS(gamma=1e-3, C=1e12).fit(bags, y)
