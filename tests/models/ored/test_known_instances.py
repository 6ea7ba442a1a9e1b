"""Instances whose labels are known: likelihood, gradient and posterior against enumeration of labellings."""

from itertools import product

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp

from bagwise import Bags
from bagwise.datasets import make_digits
from bagwise.errors import DataError
from bagwise.models import ORedClassifier, ORedLogisticRegression
from bagwise.models.ored.fit import UnionLikelihood
from bagwise.models.ored.predict import known_classes


def small(seed, background):
    rng = np.random.default_rng(seed)
    sizes, C = [3, 2, 4], 3
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    X = rng.normal(size=(9, 2))
    Y = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], dtype=np.int8)
    known = np.full((9, C), -1)
    known[0] = [1, -1, -1]  # carries the first
    known[3] = [-1, 0, -1]  # does not carry the second
    known[6] = [0, -1, 0] if background else [0, -1, -1]  # with a background: none of its bag's labels
    classes = np.column_stack([Y, np.ones(3, dtype=np.int8)]) if background else Y
    return X, offsets, np.ascontiguousarray(classes), known, rng


def enumerated(logits, offsets, Y, known, background):
    """log p(set, what is known) of every bag, by adding up all labellings."""
    n_labels = known.shape[1]
    P = log_softmax(logits, axis=1)
    found = []
    for b in range(len(Y)):
        terms = []
        rows = range(offsets[b], offsets[b + 1])
        for z in product(range(P.shape[1]), repeat=len(rows)):
            union = {c for c in z if c < n_labels}
            fits = union == set(np.flatnonzero(Y[b, :n_labels]))
            for i, c in zip(rows, z):
                carries = np.arange(n_labels) == c
                fits &= bool(((known[i] == -1) | (known[i] == carries)).all())
            if fits:
                terms.append(sum(P[i, c] for i, c in zip(rows, z)))
        found.append(logsumexp(terms) if terms else -np.inf)
    return np.array(found)


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_likelihood_and_gradient(seed, background):
    X, offsets, Y, known, rng = small(seed, background)
    weights = np.array([1.0, 2.0, 0.5])
    problem = UnionLikelihood(
        X,
        offsets,
        Y,
        weights,
        alpha=0.3,
        fit_intercept=True,
        background=background,
        candidates=np.zeros(3, dtype=bool),
        known=known_classes(known, 3, background),
        method="auto",
        max_labels=8,
        n_threads=1,
    )
    W = rng.normal(size=problem.shape)

    def value(W):
        total = weights @ enumerated(problem.logits(W), offsets, Y, known, background)
        return total - 0.15 * np.square(W[:, :-1]).sum()

    found, G = problem.value_and_gradient(W)
    assert found == pytest.approx(value(W), rel=1e-10)
    for at in np.ndindex(*W.shape):
        E = np.zeros_like(W)
        E[at] = 1e-5
        assert G[at] == pytest.approx((value(W + E) - value(W - E)) / 2e-5, abs=1e-5)


def test_both_ways_of_writing_agree():
    data = make_digits(n_bags=40, pictures=False)
    z = np.where(np.arange(data.bags.n_instances) % 3 == 0, data.instance_Y, -1)
    matrix = np.full((len(z), 10), -1)
    matrix[np.flatnonzero(z >= 0), z[z >= 0]] = 1
    fits = [ORedLogisticRegression(max_iter=20).fit(data.bags, data.Y, instance_y=y) for y in (z, matrix)]
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)
    named = data.bags.with_info(seen=z)
    again = ORedLogisticRegression(max_iter=20).fit(named, data.Y, instance_y="seen")
    np.testing.assert_array_equal(fits[0].coef_, again.coef_)
    with pytest.warns(UserWarning):  # a few iterations
        none = ORedLogisticRegression(max_iter=20).fit(data.bags, data.Y, instance_y=np.full(len(z), -1))
        plain = ORedLogisticRegression(max_iter=20).fit(data.bags, data.Y)
    np.testing.assert_array_equal(none.coef_, plain.coef_)


@pytest.mark.filterwarnings("ignore:stopped after")
@pytest.mark.parametrize("solver", ["lbfgs", "em"])
def test_known_instances_teach(solver):
    # bags that always carry both labels say nothing about which instance is which
    rng = np.random.default_rng(0)
    z = np.tile([0, 1], 60)
    X = rng.normal(size=(120, 2)) * 0.3 + np.where(z[:, None] == 0, 1.0, -1.0)
    bags, Y = Bags(X, np.arange(0, 121, 2)), np.ones((60, 2), dtype=int)
    known = np.where(np.arange(120) < 10, z, -1)
    model = ORedLogisticRegression(solver=solver, max_iter=200).fit(bags, Y, instance_y=known)
    assert (model.annotate(bags) == z).mean() > 0.95
    flipped = ORedLogisticRegression(solver=solver, max_iter=200).fit(
        bags, Y, instance_y=np.where(known >= 0, 1 - known, -1)
    )
    assert (flipped.annotate(bags) == 1 - z).mean() > 0.95


@pytest.mark.filterwarnings("ignore:stopped after")
def test_contradictions_count_as_sets_that_cannot_be():
    rng = np.random.default_rng(0)
    bags, Y = Bags(rng.normal(size=(12, 2)), np.arange(0, 13, 2)), np.ones((6, 2), dtype=int)
    known = np.full(12, -1)
    known[:2] = 0  # both instances of the first bag, which carries two labels
    with pytest.warns(UserWarning, match="1 bags carry label sets that no labelling"):
        model = ORedLogisticRegression(max_iter=20).fit(bags, Y, instance_y=known)
    assert model.n_unusable_ == 1 and np.isfinite(model.coef_).all()


@pytest.mark.filterwarnings("ignore:stopped after")
def test_none_of_the_labels_is_background():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2)) * 0.3
    z = np.tile([0, -1], 100)
    X[z == 0] += 2.0
    bags = Bags(X, np.arange(0, 201, 2))
    Y = np.ones((100, 1), dtype=int)
    Y[-1] = 0  # one empty bag, so that there is a background
    known = np.full((200, 1), -1)
    known[1:40:2] = 0
    model = ORedLogisticRegression(background=True).fit(bags, Y, instance_y=known)
    assert (model.annotate(bags)[:190] == z[:190]).mean() > 0.95


@pytest.mark.parametrize("cls", [ORedLogisticRegression, ORedClassifier])
def test_wrong_answers_are_refused(cls):
    data = make_digits(n_bags=12, pictures=False)
    absent = int(np.flatnonzero(data.Y[0] == 0)[0])
    matrix = np.full((data.bags.n_instances, 10), -1)
    for row, match in [({absent: 1}, "carries"), ({0: 2}, "must be -1, 0 or 1")]:
        wrong = matrix.copy()
        for column, value in row.items():
            wrong[0, column] = value
        with pytest.raises(DataError, match=match):
            cls().fit(data.bags, data.Y, instance_y=wrong)
    with pytest.raises(DataError, match="column for each"):
        cls().fit(data.bags, data.Y, instance_y=matrix[:, :3])
    with pytest.raises(DataError, match="which its bag does not carry"):
        cls().fit(data.bags, data.Y, instance_y=np.full(data.bags.n_instances, absent))


def test_matrix_for_any_classifier():
    from sklearn.naive_bayes import GaussianNB

    data = make_digits(n_bags=60, pictures=False)
    z = np.where(np.arange(data.bags.n_instances) % 4 == 0, data.instance_Y, -1)
    matrix = np.full((len(z), 10), -1)
    matrix[np.flatnonzero(z >= 0), z[z >= 0]] = 1
    fits = [
        ORedClassifier(GaussianNB(var_smoothing=0.01), n_folds=3, random_state=0).fit(
            data.bags, data.Y, instance_y=y
        )
        for y in (z, matrix)
    ]
    np.testing.assert_array_equal(fits[0].posteriors_, fits[1].posteriors_)
    assert (fits[0].posteriors_.argmax(axis=1)[z >= 0] == z[z >= 0]).all()
