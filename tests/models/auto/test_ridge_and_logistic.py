"""Leave-one-out answers by leaving out, kernels by their definition, logistic regression by scikit-learn."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from bagwise.models.auto import fit_ridge as ridge
from bagwise.models.auto.fit_linear import TermWeights, choose_alpha, fit_logistic, sum_rows


def bags(n_bags=25, d=3, seed=0, largest=5):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, largest, n_bags)
    return rng.normal(size=(sizes.sum(), d)), np.concatenate([[0], np.cumsum(sizes)])


def plain_kernel(X, offsets, gamma):
    D = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    member = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)) == np.arange(len(offsets) - 1)[:, None]
    K = member @ np.exp(-gamma * D) @ member.T
    root = np.sqrt(np.maximum(K.diagonal(), 1e-300))
    return K / root[:, None] / root


def test_kernels_are_those_of_the_definition(monkeypatch):
    X, offsets = bags()
    monkeypatch.setattr(ridge, "_CELLS", 100)  # many blocks
    for K, gamma in zip(ridge.bag_kernels(X, offsets, [0.1, 0.4, 1.6]), [0.1, 0.4, 1.6]):
        np.testing.assert_allclose(K, plain_kernel(X, offsets, gamma), atol=1e-6)


def test_leave_one_out_is_leaving_one_out():
    X, offsets = bags()
    K = plain_kernel(X, offsets, 0.3) + ridge.BIAS
    T = np.sign(np.random.default_rng(1).normal(size=(len(K), 2)))
    for penalties in ([0.3], [0.1, 1.0]):
        for penalty, alpha, answers in ridge.leave_one_out(K, T, penalties):
            np.testing.assert_allclose(alpha, np.linalg.solve(K + penalty * np.eye(len(K)), T), atol=1e-8)
            for b in range(len(K)):
                rest = np.delete(np.arange(len(K)), b)
                other = np.linalg.solve(K[np.ix_(rest, rest)] + penalty * np.eye(len(rest)), T[rest])
                np.testing.assert_allclose(answers[b], K[b, rest] @ other, atol=1e-7)


@pytest.mark.parametrize("exact", [3000, 10])
def test_prediction_of_training_bags(exact, monkeypatch):
    # exact: K alpha; landmarks that are all instances span the same space
    X, offsets = bags(40)
    monkeypatch.setattr(ridge, "EXACT_BAGS", exact)
    Y = (np.random.default_rng(2).random((40, 2)) < 0.5).astype(int)
    model, answers, facts = ridge.fit_ridge(X, offsets, Y, (0.25, 1.0, 4.0), np.random.RandomState(0))
    assert ("landmarks" in facts) == (exact == 10)
    K = plain_kernel(X, offsets, facts["gamma"]) + ridge.BIAS
    if exact == 3000:
        expected = K @ np.linalg.solve(K + facts["penalty"] * np.eye(40), 2.0 * Y - 1.0)
        np.testing.assert_allclose(model.predict(X, offsets), expected, atol=1e-4)
    assert answers.shape == Y.shape and np.isfinite(answers).all()


def test_landmarks_come_near_the_exact_kernel(monkeypatch):
    X, offsets = bags(120, largest=4)
    Y = (X[offsets[:-1].clip(max=len(X) - 1), :1] > 0).astype(int)
    exact, first, _ = ridge.fit_ridge(X, offsets, Y, (1.0,), np.random.RandomState(0))
    monkeypatch.setattr(ridge, "EXACT_BAGS", 10)
    near, second, _ = ridge.fit_ridge(X, offsets, Y, (1.0,), np.random.RandomState(0))
    assert np.corrcoef(first[:, 0], second[:, 0])[0, 1] > 0.99
    assert np.corrcoef(exact.predict(X, offsets)[:, 0], near.predict(X, offsets)[:, 0])[0, 1] > 0.99


def test_choice_on_some_bags_fits_all(monkeypatch):
    X, offsets = bags(120)
    Y = (np.random.default_rng(2).random((120, 2)) < 0.5).astype(int)
    monkeypatch.setattr(ridge, "CHOICE_BAGS", 40)
    model, answers, facts = ridge.fit_ridge(X, offsets, Y, (0.25, 1.0), np.random.RandomState(0))
    K = plain_kernel(X, offsets, facts["gamma"]) + ridge.BIAS
    for _, alpha, expected in ridge.leave_one_out(K, 2.0 * Y - 1.0, [facts["penalty"]]):
        np.testing.assert_allclose(answers, expected, atol=1e-3)
        np.testing.assert_allclose(model.predict(X, offsets), K @ alpha, atol=1e-3)


def test_logistic_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    X = sparse.csr_array(rng.poisson(0.4, size=(150, 8)).astype(float))
    Y = (rng.random((150, 2)) < 0.4).astype(float)
    weights = rng.random(150) + 0.5
    ours = fit_logistic(X, Y, 0.7, weights, max_iter=500)
    for l in range(2):
        theirs = LogisticRegression(C=1 / 0.7, tol=1e-8, max_iter=1000)
        theirs.fit(X, Y[:, l], sample_weight=weights)
        np.testing.assert_allclose(ours.coef[:, l], theirs.coef_[0], atol=2e-3)
        np.testing.assert_allclose(ours.intercept[l], theirs.intercept_[0], atol=2e-3)


def test_alpha_is_chosen_on_rows_left_out():
    rng = np.random.default_rng(0)
    X = sparse.csr_array(rng.normal(size=(200, 30)))
    noise = (rng.random((200, 1)) < 0.5).astype(float)
    clear = (X.toarray()[:, :1] > 0).astype(float)
    train, test, weights = np.arange(120), np.arange(120, 200), np.ones(200)
    alphas = (0.1, 1.0, 10.0, 100.0)
    assert choose_alpha(X, noise, train, test, alphas, weights) == 100.0
    assert choose_alpha(X, clear, train, test, alphas, weights) < 100.0


def test_term_weights_have_length_one():
    X = sparse.csr_array(np.array([[2.0, 0, 1], [0, 0, 0], [1, 1, 0], [0, 0, 3.0]]))
    offsets = np.array([0, 2, 2, 4])
    terms = TermWeights.learn(X, offsets)
    np.testing.assert_allclose(terms.idf, np.log(4 / (1 + np.array([2, 1, 2]))) + 1)
    np.testing.assert_allclose(sum_rows(X, offsets).toarray(), [[2, 0, 1], [0, 0, 0], [1, 1, 3]])
    lengths = np.linalg.norm(terms.bags(X, offsets).toarray(), axis=1)
    np.testing.assert_allclose(lengths, [1, 0, 1])
