"""Union EM around any classifier: posteriors by enumeration, EM by its own guarantee, all kinds inside."""

from itertools import product

import numpy as np
import pytest
from scipy import sparse
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bagwise import Bags
from bagwise.checks import sample_bags
from bagwise.errors import DataError
from bagwise.models import ORedClassifier
from bagwise.models.ored.estimator_any import maximisation
from bagwise.models.ored.predict import FLOOR, expectation


def enumerated(P, Y, background, known):
    """Posterior of one bag by summing over all labellings of its instances."""
    n, C = P.shape
    P = np.maximum(P, FLOOR)
    P = P / P.sum(axis=1, keepdims=True)
    Q, total = np.zeros((n, C)), 0.0
    for labels in product(range(C), repeat=n):
        if any(k >= 0 and k != c for k, c in zip(known, labels)):
            continue
        union = {c for c in labels if not (background and c == C - 1)}
        if union != set(np.flatnonzero(Y)):
            continue
        p = np.prod([1.0 if known[i] >= 0 else P[i, c] for i, c in enumerate(labels)])
        total += p
        for i, c in enumerate(labels):
            Q[i, c] += p
    return Q / total if total > 0 else None, total


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("clamped", [False, True])
def test_expectation_is_the_enumeration(background, clamped):
    rng = np.random.default_rng(5)
    for _ in range(40):
        n, L = rng.integers(1, 5), 3
        P = rng.dirichlet(np.full(L + background, 0.4), size=n)
        Y = (rng.random(L) < 0.6).astype(np.int8)
        known = np.full(n, -1)
        if clamped and Y.any():
            known[0] = rng.choice(np.flatnonzero(Y))
        expected, total = enumerated(P, Y, background, known)
        Q, loglik = expectation(P, np.array([0, n]), Y[None], background=background, known=known)
        if total == 0:
            assert loglik[0] == -np.inf
            continue
        np.testing.assert_allclose(Q, expected, atol=1e-9)
        np.testing.assert_allclose(np.exp(loglik[0]), total, rtol=1e-9)


def test_soft_rounds_without_held_out_climb_the_likelihood():
    # exact EM needs the exact maximiser of the weighted likelihood: class frequencies of a coarse table
    class Frequencies:
        def get_params(self, deep=False):
            return {}

        def fit(self, X, y, sample_weight):
            self.classes_ = np.unique(y)
            cells = X[:, 0].astype(int)
            table = np.full((cells.max() + 1, len(self.classes_)), 1e-12)
            np.add.at(table, (cells, np.searchsorted(self.classes_, y)), sample_weight)
            self.table = table / table.sum(axis=1, keepdims=True)
            return self

        def predict_proba(self, X):
            return self.table[X[:, 0].astype(int)]

    rng = np.random.default_rng(0)
    z = rng.integers(0, 3, 240)
    X = np.where(rng.random(240) < 0.7, z, rng.integers(0, 3, 240))[:, None].astype(float)
    offsets = np.arange(0, 241, 4)
    Y = np.zeros((60, 3), dtype=np.int8)
    Y[np.repeat(np.arange(60), 4), z] = 1
    P, values = np.full((240, 3), 1 / 3), []
    for _ in range(8):
        Q, loglik = expectation(P, offsets, Y, background=False)
        values.append(loglik.sum())
        copies = Q.copy()
        rows, classes = np.nonzero(copies > 0)
        P = Frequencies().fit(X[rows], classes, copies[rows, classes]).predict_proba(X)
    assert (np.diff(values) > -1e-9).all() and values[-1] > values[0] + 1.0


def test_maximisation_shows_copies_or_the_best_label():
    class Recorder:
        def get_params(self, deep=False):
            return {}

        def fit(self, X, y, sample_weight=None):
            self.seen = X[:, 0].tolist(), y.tolist(), np.round(sample_weight, 2).tolist()
            return self

    X = np.array([[0.0], [1.0], [2.0]])
    Q = np.array([[0.7, 0.3], [0.0, 1.0], [0.0, 0.0]])  # the last belongs to no class
    assert maximisation(Recorder(), X, Q, soft=False).seen == ([0, 1], [0, 1], [0.7, 1.0])
    assert maximisation(Recorder(), X, Q, soft=True).seen == ([0, 0, 1], [0, 1, 1], [0.7, 0.3, 1.0])
    assert maximisation(Recorder(), X, Q[1:2], soft=True) == 1  # one class alone needs no classifier


KINDS = [
    ExtraTreesClassifier(30, bootstrap=True, random_state=0),
    RandomForestClassifier(30, random_state=0),
    HistGradientBoostingClassifier(max_iter=15, min_samples_leaf=3),
    GaussianNB(var_smoothing=0.01),
    LogisticRegression(),
    KNeighborsClassifier(5),
    make_pipeline(StandardScaler(), LogisticRegression()),
]


@pytest.mark.parametrize("estimator", KINDS, ids=lambda e: type(e).__name__)
def test_any_classifier_finds_the_labels_of_instances(estimator):
    bags, Y = sample_bags(n_bags=90)
    z = bags.instance_info["label"]
    model = ORedClassifier(estimator, n_folds=3, random_state=0).fit(bags[:60], Y[:60])
    train, test = bags[:60].n_instances, slice(bags[:60].n_instances, None)
    assert (model.posteriors_.argmax(axis=1) == z[:train]).mean() > 0.9
    assert (model.annotate(bags[60:]) == z[test]).mean() > 0.85
    assert (model.predict(bags[60:]) != Y[60:]).mean() < 0.15
    assert len(model.log_likelihood_) == 2 and np.isfinite(model.log_likelihood_).all()
    inside = Y[:60][bags[:60].index] > 0
    assert (model.posteriors_[~inside] == 0).all()


def test_sparse_text_with_naive_bayes_and_empty_sets():
    rng = np.random.default_rng(0)
    topic = rng.integers(0, 4, 600)  # the last is background
    words = np.eye(4)[topic].repeat(10, axis=1) * 0.8 + 0.05
    X = sparse.csr_array(rng.poisson(words).astype(float))
    offsets = np.arange(0, 601, 4)
    Y = np.zeros((150, 4), dtype=np.int64)
    Y[np.repeat(np.arange(150), 4), topic] = 1
    Y = Y[:, :3]
    Y[:5] = 0
    bags = Bags(X, offsets)
    model = ORedClassifier(MultinomialNB(), n_folds=3).fit(bags, Y)
    assert model.has_background_
    labels = model.annotate(bags, Y)
    truth = np.where(topic == 3, -1, topic)
    truth[:20] = -1
    assert (labels == truth).mean() > 0.8
    assert (labels[:20] == -1).all()


def test_known_instances_are_clamped_and_help():
    bags, Y = sample_bags(n_bags=40)
    z = bags.instance_info["label"]
    known = np.where(np.arange(len(z)) % 2 == 0, z, -1)
    model = ORedClassifier(GaussianNB(), n_folds=3).fit(bags, Y, instance_y=known)
    given = known >= 0
    np.testing.assert_allclose(model.posteriors_[given], np.eye(3)[z[given]], atol=1e-12)
    facts = Bags(bags.X, bags.offsets, instance_info={"seen": known})
    again = ORedClassifier(GaussianNB(), n_folds=3).fit(facts, Y, instance_y="seen")
    assert again.posteriors_.shape == model.posteriors_.shape


def test_known_labels_must_be_those_of_the_bag():
    bags, Y = sample_bags()
    wrong = np.full(bags.n_instances, -1)
    wrong[3] = int(np.flatnonzero(Y[bags.index[3]] == 0)[0])
    with pytest.raises(DataError, match=r"instance 3 \(bag"):
        ORedClassifier().fit(bags, Y, instance_y=wrong)
    with pytest.raises(DataError, match="one per instance"):
        ORedClassifier().fit(bags, Y, instance_y=wrong[:-1])
    with pytest.raises(DataError, match="no fact"):
        ORedClassifier().fit(bags, Y, instance_y="nothing")


def test_sets_that_cannot_be_only_restrict():
    bags, Y = sample_bags()
    small = int(np.flatnonzero(bags.sizes == 1)[0])
    Y[small] = 1  # three labels, one instance
    model = ORedClassifier(GaussianNB(), n_folds=3).fit(bags, Y)
    assert np.isclose(model.posteriors_[bags.offsets[small]].sum(), 1.0)


def test_choices_that_contradict_are_refused():
    bags, Y = sample_bags()
    with pytest.raises(ValueError, match="bootstrap=True"):
        ORedClassifier(GaussianNB(), held_out="bootstrap").fit(bags, Y)
    with pytest.raises(ValueError, match="copies"):
        ORedClassifier(held_out="bootstrap", targets="soft").fit(bags, Y)


def test_held_out_folds_do_not_know_the_labels_of_their_bag():
    # labels drawn at random: calibrated probabilities must not see through them
    rng = np.random.default_rng(0)
    bags, _ = sample_bags(n_bags=120)
    Y = (rng.random((120, 2)) < 0.5).astype(int)
    model = ORedClassifier(ExtraTreesClassifier(30, bootstrap=True), random_state=0).fit(bags, Y)
    other, _ = sample_bags(n_bags=200, seed=9)
    assert np.abs(model.predict_proba(other) - 0.5).mean() < 0.12
